"""The same jobs on a real standalone cluster (one master, two workers) and at a Spark Connect server, from the package.

The processes are started by the package's own scripts, on free ports of the loopback interface.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from messaging.models import AuditFinding, PipelineRun, PublishedReport
from messaging.pipeline import check, driver, submitting
from messaging.pipeline.schemas import ENTITIES
from rmhub.hubs import free_ports, listens
from rmhub.supervisor import guard
from tests.pipeline import planted
from tests.pipeline.planted import Finding, Planted
from tests.pipeline.standalone import QUICK, Cluster, package, running, standalone, wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.spark]

ROWS = 20_000
NO_DATABASE = "postgresql://nobody@127.0.0.1:1/none"


@dataclass(frozen=True)
class Books:
    """Logs with planted faults as a lake, and its manifest."""

    made: Planted
    manifest: Path

    def check(self, output: Path) -> int:
        """The audit in this folder says what was planted and nothing else. Returns how many rows it has."""
        findings, pairs = (ds.dataset(output / name, format="parquet").to_table() for name in ("findings", "pairs"))
        got = Counter(
            Finding(
                *(row["kind"], row["pair"]),
                *(-1 if row[name] is None else row[name] for name in ("first_number", "last_number")),
                *(row["count"], tuple(row["message_ids"])),
            )
            for row in findings.to_pylist()
        )
        assert got == Counter(self.made.findings) and len(got) > 20
        counted = {row["pair"]: row for row in pairs.to_pylist()}
        for pair, wanted in self.made.pairs.items():
            assert {name: counted[pair][name] for name in wanted} == wanted, pair
        return int(findings.num_rows + pairs.num_rows)


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    folder = tmp_path_factory.mktemp("books")
    made = planted.plant(folder / "lake", ROWS, one_in=1_000, pairs=20)
    entities = {}
    for entity in ENTITIES:
        paths = sorted(made.path(entity).glob("*.parquet"))
        part = {"files": [f"{entity}/{path.name}" for path in paths], "latest": False, "from_xid": None}
        entities[entity] = {"parts": [part] if paths else [], "files": len(paths), "rows": made.rows, "bytes": 1}
    description = {
        "lake": str(folder / "lake"),
        "generation": 1,
        "through_xid": 1,
        "as_of": "2026-09-01T00:00:00+00:00",
        "from": None,
        "to": None,
        "price_gb_month": None,
        "code": driver.code_version(),
        "entities": entities,
    }
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(description))
    return Books(made, manifest)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster"), workers=2) as found:
        yield found


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_in_the_middle_of_a_submitted_job_changes_nothing(
    books: Books, cluster: Cluster, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RMHUB_LAKE_DIR = tmp_path / "lake"
    call_command("pipeline", "package", str(tmp_path / "jobs.zip"))
    output = tmp_path / "output"
    (port,) = free_ports(1)
    submit = [str(package() / "bin" / "spark-submit"), "--master", cluster.url]
    for option in ("driver.bindAddress=127.0.0.1", "driver.host=127.0.0.1", "ui.enabled=true", f"ui.port={port}"):
        submit += ["--conf", f"spark.{option}"]
    submit += ["--driver-memory", "512m", "--executor-memory", "512m", "--driver-java-options", QUICK]
    submit += ["--py-files", str(tmp_path / "jobs.zip"), str(tmp_path / "jobs.py"), "audit"]
    submit += ["--manifest", str(books.manifest), "--output", str(output)]
    with pytest.raises(CommandError, match="not what a job has written to the end"):
        call_command("pipeline", "publish", "audit", str(output))
    with running(submit, tmp_path, "submit", PYTHONPATH="") as job:
        wait_until(lambda: job.poll() is not None or under_way(port), "a part of the job is done", 240)
        assert job.poll() is None, (tmp_path / "submit.log").read_text()[-3000:]
        # The worker and its executor, which is in its session.
        assert len(guard.members({cluster.workers[0].pid})) >= 2, "it has an executor"
        guard.kill({cluster.workers[0].pid})
        # Its process is asked, and not its stages: between two of them none is active.
        assert job.poll() is None, "it was in the middle"
        assert job.wait(timeout=240) == 0, (tmp_path / "submit.log").read_text()[-3000:]
    count = books.check(output)
    wait_until(lambda: cluster.state()["aliveworkers"] == 1, "the master has noticed", 240)
    with pytest.raises(CommandError, match="output of audit, not of levels"):
        call_command("pipeline", "publish", "levels", str(output))
    call_command("pipeline", "publish", "audit", str(output), "--reason", "computed on the cluster")
    run = PipelineRun.objects.get()
    assert (run.state, run.rows) == ("succeeded", count)
    assert run.facts["submitted"]["spark"] == cluster.url
    assert run.data_as_of is not None and run.data_as_of.isoformat() == "2026-09-01T00:00:00+00:00"
    assert PublishedReport.objects.get().run_id == run.pk
    assert AuditFinding.objects.count() == len(books.made.findings)
    monkeypatch.setattr(driver, "code_version", lambda: "another")
    with pytest.raises(CommandError, match="of other code"):
        call_command("pipeline", "publish", "audit", str(output))


def under_way(port: int) -> bool:
    """Whether Spark has done tasks of the job and is at others, as its own page says."""
    base = f"http://127.0.0.1:{port}/api/v1/applications"
    with urllib.request.urlopen(base, timeout=60) as answer:
        (application,) = json.load(answer)
    with urllib.request.urlopen(f"{base}/{application['id']}/stages?status=active", timeout=60) as answer:
        active = json.load(answer)
    with urllib.request.urlopen(f"{base}/{application['id']}/stages?status=complete", timeout=60) as answer:
        return len(json.load(answer)) > 0 and len(active) > 0


@pytest.mark.long
def test_the_session_of_the_settings_computes_on_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "pipeline", "check", "--start"]
    with running(command, tmp_path, "check", SPARK_MASTER=cluster.url, DATABASE_URL=NO_DATABASE) as checking:
        checking.wait(timeout=240)
    said = (tmp_path / "check.log").read_text()
    assert f"The cluster's master at {cluster.url.removeprefix('spark://')} answers." in said
    assert "Spark 4.3.0 computes." in said
    assert "rmhub check" in {application["name"] for application in cluster.state()["completedapps"]}


@pytest.mark.skipif(not os.environ.get("RMHUB_TEST_CONNECT"), reason="`make test-pipeline-remote` runs it")
def test_a_spark_connect_server_computes_the_same(books: Books, settings: Any, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings.SPARK_REMOTE = f"sc://127.0.0.1:{port}"
    before = {finding.text: finding.good for finding in check._spark()}
    assert [good for text, good in before.items() if str(port) in text and "does not answer" in text] == [False]
    server = [
        *(str(package() / "sbin" / "start-connect-server.sh"), "--wait", "--master", "local[2]"),
        *("--driver-memory", "512m", "--driver-java-options", QUICK, "--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
    ]
    output = tmp_path / "output"
    command = [sys.executable, "-m", "tests.pipeline.through_settings", "audit", str(books.manifest), str(output)]
    with running(server, tmp_path, "server", SPARK_DAEMON_MEMORY="512m"):
        wait_until(listens(port), "the server listens")
        assert all(finding.good for finding in check._spark())
        with running(command, tmp_path, "client", SPARK_REMOTE=settings.SPARK_REMOTE) as client:
            assert client.wait(timeout=240) == 0, (tmp_path / "client.log").read_text()[-3000:]
    books.check(output)


def test_the_package_needs_neither_django_nor_the_hub(tmp_path: Path) -> None:
    application = submitting.write_package(tmp_path / "jobs.zip")
    first = (tmp_path / "jobs.zip").read_bytes()
    submitting.write_package(tmp_path / "jobs.zip")
    assert (tmp_path / "jobs.zip").read_bytes() == first, "the same code is the same package"
    script = (
        "import sys; sys.modules['django'] = None; sys.path[0] = sys.argv[1];"
        "from messaging.pipeline import submitted; assert 'jobs.zip' in submitted.__file__;"
        "import importlib.util as util;"
        "assert all(util.find_spec('messaging.pipeline.jobs.' + name) for name in submitted.JOBS)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "jobs.zip")], cwd=tmp_path, check=True, timeout=60)
    assert application.read_text().startswith("from messaging.pipeline.submitted import main")
