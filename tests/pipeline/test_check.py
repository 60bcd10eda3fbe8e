"""`manage.py pipeline check`: one sentence for each thing, and exit code 1 when one has to be done."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from messaging.journal.audit import Actor
from messaging.models import LakeState, PipelineRun
from messaging.pipeline import check, java, session
from messaging.reports.services import runs as pipeline_runs

pytestmark = pytest.mark.django_db

JAVA = java.Java(Path("/opt/java"), "17.0.15", "JAVA_HOME")


@pytest.fixture(autouse=True)
def folders(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.RMHUB_LAKE_DIR, settings.RMHUB_ARCHIVE_DIR = tmp_path / "lake", tmp_path / "archive"
    settings.SPARK_MASTER, settings.SPARK_REMOTE, settings.RMHUB_SPARK_MEMORY = "local[2]", "", "512m"
    monkeypatch.setattr(check.java, "find", lambda var: JAVA)
    monkeypatch.setattr(check, "_available", lambda: 8 * 1024**3)


def problems() -> list[str]:
    return [finding.text for finding in check.findings() if not finding.good]


def test_nothing_is_missing() -> None:
    out = StringIO()
    call_command("pipeline", "check", stdout=out)
    lines = out.getvalue().splitlines()
    assert all(line.startswith("ok      ") and line.endswith(".") for line in lines), lines
    assert "Java 17.0.15 (JAVA_HOME: /opt/java)." in out.getvalue()


def no_java(var: Path) -> java.Java:
    raise java.NoJava("Spark needs Java 17 or later.")


def test_each_problem_is_a_sentence(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check.java, "find", no_java)
    monkeypatch.setattr(check, "NEEDED", ("pyspark", "spark-of-tomorrow"))
    (tmp_path / "file").write_text("")
    settings.RMHUB_LAKE_DIR = tmp_path / "file" / "lake"
    settings.RMHUB_SPARK_MEMORY = "100m"
    settings.SPARK_MASTER = "sparkling"
    run = pipeline_runs.run_request(job="levels", actor=Actor("ann", "console"))
    PipelineRun.objects.filter(pk=run.pk).update(due_at=datetime.now(UTC) - timedelta(minutes=10))
    failed = pipeline_runs.run_request(job="audit", actor=Actor("ann", "console"))
    PipelineRun.objects.filter(pk=failed.pk).update(
        state="failed", error="The disk is full.", finished_at=datetime.now(UTC)
    )
    expected = [
        "spark-of-tomorrow not installed",
        "Spark needs Java 17",
        "RMHUB_SPARK_MEMORY='100m'",
        "SPARK_MASTER='sparkling'",
        "RMHUB_LAKE_DIR",
        "pipeline serve",
        f"(audit {failed.public_id}) failed: The disk is full.",
    ]
    found = problems()
    assert len(found) == len(expected)
    assert all(part in text for part, text in zip(expected, found, strict=True)), found
    with pytest.raises(SystemExit) as ended:
        call_command("pipeline", "check", stdout=StringIO())
    assert ended.value.code == 1


def test_memory_and_disk(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_available", lambda: 1024**3)
    settings.RMHUB_SPARK_MEMORY = "4g"
    (found,) = problems()
    assert "about 6.4 GiB, and 1.0 GiB are free" in found
    settings.SPARK_MASTER = "yarn"
    assert problems() == [], "the heap is another machine's"
    monkeypatch.setattr(check, "_ROOM", 1 << 62)
    assert [text.split()[0] for text in problems()] == ["RMHUB_LAKE_DIR", "RMHUB_ARCHIVE_DIR"]


@pytest.mark.parametrize("remote", [False, True], ids=["a master", "Spark Connect"])
def test_another_machine_is_reached(settings: Any, remote: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if remote:
            settings.SPARK_REMOTE = f"sc://127.0.0.1:{port}/;user_id=x"
            monkeypatch.setattr(check.java, "find", no_java)  # not needed then
        else:
            settings.SPARK_MASTER = f"spark://127.0.0.1:{port}"
        assert problems() == []
    (found,) = problems()
    assert f"127.0.0.1:{port}" in found and "does not answer: Connection refused" in found
    if remote:
        settings.SPARK_REMOTE = "https://example.org"
        assert ["sc://host:15002" in text for text in problems()] == [True]


def test_how_far_the_lake_is() -> None:
    assert any("The lake is empty" in finding.text and finding.good for finding in check.findings())
    LakeState.objects.update_or_create(pk=1, defaults={"extracted_at": datetime(2026, 3, 1, 12, tzinfo=UTC)})
    assert any("as of 2026-03-01 12:00 UTC" in finding.text for finding in check.findings())


def test_settings_of_a_session(settings: Any) -> None:
    local = session.configuration("local[*]", rows=0)
    assert (local["spark.driver.memory"], local["spark.driver.maxResultSize"]) == ("512m", "256m")
    assert local["spark.driver.host"] == "127.0.0.1" and "spark.executor.memory" not in local
    remote = session.configuration("spark://10.0.0.1:7077", rows=0)
    assert remote["spark.executor.memory"] == "512m" and "spark.driver.host" not in remote
    assert session.configuration("spark://127.0.0.1:7077", rows=0)["spark.driver.host"] == "127.0.0.1"
    assert local["spark.sql.session.timeZone"] == remote["spark.sql.session.timeZone"] == "UTC"
    for bad in ("", "1", "1t", "511m", "-1g"):
        settings.RMHUB_SPARK_MEMORY = bad
        with pytest.raises(session.SparkMisconfigured, match="1g or 2048m"):
            session.memory()


def test_few_rows_are_computed_without_compiling_and_many_in_parts(settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR = tmp_path
    few, many = session.fit(session.SMALL), session.fit(session.SMALL + 1)
    assert few["spark.sql.codegen.factoryMode"] == "NO_CODEGEN" and few["spark.sql.shuffle.partitions"] == "1"
    assert many["spark.sql.codegen.factoryMode"] == "FALLBACK" and many["spark.sql.shuffle.partitions"] == "32"
    assert few.keys() == many.keys(), "a session that goes on with another lake forgets what it was told"
    settings.SPARK_MASTER = "spark://10.0.0.1:7077"
    assert "spark.sql.shuffle.partitions" not in session.fit(0), "of a cluster, its own settings say it"


def test_what_killed_processes_left_on_disk_goes(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.VAR_DIR = tmp_path
    monkeypatch.setattr(session, "_current", [])  # that of the other tests goes on
    monkeypatch.setattr(session, "_end_gateway", lambda: None)
    dead, living = session._spill().parent / "999999999", session._spill()
    for folder in (dead, living):
        (folder / "blockmgr-1").mkdir(parents=True)
    session._sweep()
    assert not dead.exists() and living.exists()
    assert session.configuration("local[2]", rows=0)["spark.local.dir"] == str(living)
    session.stop()
    assert not living.exists()
