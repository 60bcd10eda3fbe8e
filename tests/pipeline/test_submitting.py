"""What a submitted job reads by its manifest is what the hub itself reads of the lake."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command

from messaging.models import LakeFile
from messaging.pipeline import driver, submitting
from messaging.pipeline.schemas import ENTITIES
from tests.messaging.factories import partner_side, submit
from tests.pipeline.lakes import T, run, writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.spark]

COLUMNS = {name: entity.column_names[:4] for name, entity in ENTITIES.items()}


class Enough(Exception):
    """The extract stops after a batch."""


def texts(frame: DataFrame) -> list[str]:
    return sorted(str(row) for row in frame.collect())


def test_the_manifest_says_which_rows_count(
    spark: SparkSession, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from messaging import dispatch
    from messaging.pipeline.submitted import frame

    monkeypatch.setattr(dispatch, "wake", lambda name: None)
    settings.RMHUB_LAKE_DIR, settings.RMHUB_STORAGE_PRICE_GB_MONTH = tmp_path / "lake", "0.25"

    def assert_same(begin: Any = None, end: Any = None) -> dict[str, Any]:
        arguments = [f"--{name}={value.isoformat()}" for name, value in (("from", begin), ("to", end)) if value]
        call_command("pipeline", "manifest", str(tmp_path / "manifest.json"), *arguments, stdout=StringIO())
        found: dict[str, Any] = json.loads((tmp_path / "manifest.json").read_text())
        expected, facts = driver.lake_inputs(spark, COLUMNS, begin, end)
        assert [found[name] for name in ("generation", "through_xid", "as_of")] == [
            facts[name] for name in ("generation", "through_xid", "as_of")
        ]
        for name, entity in ENTITIES.items():
            parts = found["entities"][name]["parts"]
            assert {key: found["entities"][name][key] for key in ("files", "rows", "bytes")} == facts["entities"][name]
            got = frame(spark, entity, COLUMNS[name], parts, found["lake"], begin, end)
            assert got.columns == list(COLUMNS[name])
            assert texts(got) == texts(expected[name]), name
        return found

    pattern = submit(partner_side())
    with writer(pattern) as first, writer(pattern) as other:
        keys = [first.message(T + timedelta(hours=6 * number)) for number in range(6)]
        first.event(3)
        first.commit()
        run()
        for key in keys[:3]:
            first.change(key, "failed")
        first.commit()
        other.event()  # open: what comes after it is read ahead
        first.event(2)
        first.commit()
        run()
        found = assert_same()
        assert found["price_gb_month"] == 0.25
        assert [part["latest"] for part in found["entities"]["messages"]["parts"]] == [False, True]
        assert_same(T + timedelta(hours=6), T + timedelta(hours=24))
        other.commit()
        for _ in range(3):
            first.event(2)
            first.commit()

        def stop(step: str) -> None:
            if step == "committed":
                raise Enough

        with pytest.raises(Enough):
            run(batch_rows=1, step=stop)
    found = assert_same()
    assert any(part["from_xid"] for part in found["entities"]["events"]["parts"]), "some were read ahead before"
    assert LakeFile.objects.filter(entity="events", replaced_at__isnull=True).count() > 2
    assert submitting.lake_manifest(None, None) == found
