"""What a job needs that runs elsewhere by spark-submit: its code as a package, and the list of files that it reads."""

from __future__ import annotations

import json
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings

from messaging.exceptions import InvalidSubmission
from messaging.pipeline import driver, manifest
from messaging.pipeline.schemas import ENTITIES

HERE = Path(__file__).resolve().parent
_MAIN = "from messaging.pipeline.submitted import main\n\nraise SystemExit(main())\n"
_MOMENT = (2020, 1, 1, 0, 0, 0)  # the same code gives the same octets


def write_package(path: Path) -> Path:
    """Writes the jobs to `path` (a .zip for --py-files) and the application beside it (.py); returns the latter."""
    if path.suffix != ".zip":
        raise InvalidSubmission({"file": ["A name that ends with .zip is needed: spark-submit relies on it."]})
    base = HERE.parent.parent
    modules = [HERE / "__init__.py", HERE / "schemas.py", HERE / "submitted.py", *sorted((HERE / "jobs").glob("*.py"))]
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for source in [HERE.parent / "__init__.py", *modules]:
            package.writestr(zipfile.ZipInfo(str(source.relative_to(base)), _MOMENT), source.read_bytes())
    application = path.with_suffix(".py")
    application.write_text(_MAIN)
    return application


def lake_manifest(begin: datetime | None, end: datetime | None) -> dict[str, Any]:
    """Which files hold what the lake holds now, for `submitted.compute`. Raises LakeUnusable."""
    contents = manifest.current()
    price = settings.RMHUB_STORAGE_PRICE_GB_MONTH
    entities = {}
    for entity in ENTITIES.values():
        parts, sizes = contents.parts(entity, begin, end)
        entities[entity.name] = {"parts": parts, **sizes}
    return {
        "version": 1,
        "lake": str(manifest.root().resolve()),
        **contents.lineage,
        "from": begin.isoformat() if begin else None,
        "to": end.isoformat() if end else None,
        "price_gb_month": float(price) if price else None,
        "code": driver.code_version(),
        "entities": entities,
    }


def write_manifest(path: Path, begin: datetime | None, end: datetime | None) -> dict[str, Any]:
    """Writes it as JSON; returns it."""
    found = lake_manifest(begin, end)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1))
    return found
