"""What users, integrators and partners see, as text that a change of the code's shape must leave as it is.

`GOLDEN=write pytest tests/golden` writes the texts anew; the differences are then read, line by line, before they are
committed. docs/openapi.yaml is one more of them, with a check of its own (`manage.py openapi --check`).
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.urls import URLPattern, URLResolver, get_resolver
from lxml import html

from messaging.api.catalogue import CODES
from messaging.causes import CAUSES
from rmhub.settings import BASE_DIR
from tests import staged
from tests.messaging.conftest import NOON, one_worker, scene, static_folder, time, woken  # noqa: F401  (fixtures)  # noqa: F401  (fixtures)
from tests.messaging.console.pages import DOWNLOADS, PAGES
from tests.messaging.console.scenes import World, browser
from tests.simulation.atomic import AtomicWorld
from tests.simulation.ebms2 import Ebms2World
from tests.simulation.requests import RequestWorld
from tests.simulation.streams import StreamWorld
from tests.simulation.triggers import TriggerWorld
from tests.simulation.world import World as PairWorld

HERE = Path(__file__).parent
WRITE = os.environ.get("GOLDEN") == "write"
SEEDS = range(1, 9)
ROOM = shutil._ntuple_diskusage(2 * 10**12, 10**12, 10**12)  # type: ignore[attr-defined]
# A run may last over midnight.
TODAY = datetime.now(UTC)
DAYS = f"({TODAY:%Y-%m-%d}|{TODAY + timedelta(days=1):%Y-%m-%d})"
# Made anew by each run, or the machine's own.
VARYING = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
        (r"(?<![0-9a-f])[0-9a-f]{20,64}(?![0-9a-f])", "<hex>"),
        (r"([0-9a-f-]+|<hex>)…[\w@.-]*", "<id>"),
        (r"([A-Z2-7]{4} ){7}[A-Z2-7]{4}", "<secret>"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
        (rf"{DAYS} \d\d:\d\d:\d\d UTC", "<now>"),  # log-ins are Django's, whose clock is not ours
        (r'(?<=title="<now>" )\d+ (s|min) ago', "<ago>"),
        (rf"\bin ({'|'.join(str((TODAY - NOON).days + more) for more in (-1, 0, 1))}) d( \d+ h)?", "in <days> d"),
        (r'name="once" type="hidden" value="[^"]*"', 'name="once" type="hidden" value="<made up>"'),
    )
)


def same(name: str, lines: Iterable[str]) -> None:
    """Compares with the text that is kept, or keeps this one."""
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    path = HERE / f"{name}.txt"
    if WRITE:
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), f"tests/golden/{name}.txt differs"


@pytest.fixture(autouse=True)
def counted_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names that factories count up are the same whatever ran before in this process, and whoever built scenes."""
    monkeypatch.setattr(staged, "_stages", {})
    for name, module in list(sys.modules.items()):
        if name.startswith("tests.") and hasattr(module, "_count"):
            monkeypatch.setattr(module, "_count", itertools.count(1))


def test_addresses() -> None:
    """Every address of console, API and partners' entrance, with its name."""

    def below(patterns: Iterable[URLPattern | URLResolver], before: str, space: str) -> Iterator[str]:
        for one in patterns:
            path = before + str(one.pattern)
            if isinstance(one, URLResolver):
                yield from below(one.url_patterns, path, f"{space}{one.namespace}:" if one.namespace else space)
            else:
                yield f"{path}  {space}{one.name or ''}"

    same("addresses", below(get_resolver().url_patterns, "/", ""))


@pytest.mark.django_db
def test_schema() -> None:
    """Columns, constraints and indexes of every table. Names of constraints that Django makes up are left out."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,"
            " pg_get_expr(d.adbin, d.adrelid) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            " LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum"
            " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
            ' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY c.relname COLLATE "C", a.attname COLLATE "C"'
        )
        columns = ["  ".join(map(str, row)) for row in cursor.fetchall()]
        cursor.execute(
            "SELECT conrelid::regclass::text || '  ' || pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE connamespace = 'public'::regnamespace AND contype <> 'n' AND conparentid = 0"
            " UNION ALL SELECT indexrelid::regclass::text || '  ' || pg_get_indexdef(indexrelid) FROM pg_index"
            " JOIN pg_class c ON c.oid = indexrelid WHERE c.relnamespace = 'public'::regnamespace"
        )
        made_up = re.compile(r"_[0-9a-f]{8}(_\w+)?\b")
        others = sorted(made_up.sub("_<made up>", row[0]) for row in cursor.fetchall())
    same("schema", [*columns, *others])


def test_catalogues() -> None:
    """Problems of the API and causes of trouble, with every word about them."""

    def told(row: object) -> Iterator[str]:
        assert dataclasses.is_dataclass(row) and not isinstance(row, type)
        for field in dataclasses.fields(row):
            value = getattr(row, field.name)
            value = sorted(map(str, value)) if isinstance(value, frozenset) else value
            yield f"  {field.name}: {value}"

    for name, rows in (("problems", CODES), ("causes", CAUSES)):
        same(name, (line for code, row in rows.items() for line in (code, *told(row))))


def test_verbs_and_events() -> None:
    """Names of what is audited and of what the event feed tells (`pair.resume`, `message.delivered`): none is lost.

    Those that come to be are added to verbs.txt by hand.
    """
    found = set()
    for folder in ("messaging", "partners", "rmhub"):
        for path in (BASE_DIR / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    assert [name for name in (HERE / "verbs.txt").read_text().split() if name not in found] == []


@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("pairs", PairWorld),
        ("streams", StreamWorld),
        ("requests", RequestWorld),
        ("ebms2", Ebms2World),
        ("triggers", TriggerWorld),
        ("transactions", AtomicWorld),
    ],
)
def test_simulations(name: str, world: Callable[[int], object]) -> None:
    """What happens in runs of the simulated network, seed by seed."""
    lines = []
    for seed in SEEDS:
        played = world(seed)
        played.play()  # type: ignore[attr-defined]
        seen = getattr(played, "seen", {})
        told = [getattr(played, "steps", getattr(played, "count", "")), played.now]  # type: ignore[attr-defined]
        lines.append(f"seed {seed}: {told} {sorted((str(word), count) for word, count in seen.items())}")
    same(f"simulation_{name}", lines)


@pytest.mark.django_db
def test_pages(scene: World, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """The text of every page of the console, with its fields, links and buttons, as an administrator sees it."""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: ROOM)
    client = browser()
    lines: list[str] = []
    surrounded = False  # what surrounds every page is kept once
    for page in PAGES:
        if not page.get or page.name in DOWNLOADS:
            continue
        url = page.url(scene)
        answer = client.get(url)
        lines += ["", f"==== {page.name}  {url}  {answer.status_code}  {answer.get('Location', '')}"]
        if "html" in answer["Content-Type"] and answer.content:
            whole = html.fromstring(answer.content)
            parts = whole.xpath("//*[@id='main']")
            lines += _told(parts[0] if parts and surrounded else whole)
            surrounded = surrounded or bool(parts)
    same("pages", (line.replace(str(settings.RMHUB_LAKE_DIR.parent), "<folder>") for line in lines))


def _told(page: html.HtmlElement) -> Iterator[str]:
    for element in page.iter():
        if not isinstance(element.tag, str) or element.tag in ("script", "link", "meta", "head", "html"):
            continue
        if element.get("name") == "csrfmiddlewaretoken":
            continue
        if element.tag in ("option", "optgroup") and len(element.getparent()) > 60:
            continue  # time zones
        kept = [
            f'{key}="{" ".join(element.get(key).split())}"'
            for key in ("href", "action", "name", "type", "value", "title", "aria-label", "placeholder")
            if element.get(key) is not None
        ]
        kept += [key for key in ("checked", "selected", "required", "disabled") if element.get(key) is not None]
        text = " ".join((element.text or "").split())
        if kept or text:
            yield f"{element.tag} {' '.join(kept)} {text}".replace("  ", " ")
        tail = " ".join((element.tail or "").split())
        if tail:
            yield f"… {tail}"
