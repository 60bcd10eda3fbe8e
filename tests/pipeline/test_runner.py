"""The pipeline's own process: a child for each run, ended when the run is cancelled, and spoken for when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from django.core.management.base import OutputWrapper
from django.db import connection

from messaging.journal.audit import Actor
from messaging.models import PipelineRun
from messaging.pipeline import commands, runner
from messaging.pipeline.runner import Runner
from messaging.reports.services import runs as pipeline_runs
from rmhub.supervisor.processes import PRELUDE
from tests import ROOT

pytestmark = pytest.mark.django_db(transaction=True)

ANN = Actor("ann", "console")


def request(job: str = "extract", actor: Actor = ANN) -> PipelineRun:
    return pipeline_runs.run_request(job=job, actor=actor)


def script(text: str) -> Callable[[PipelineRun], list[str]]:
    return lambda run: [sys.executable, "-c", text]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.05)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "no memory left"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal 11"),
        ("raise SystemExit(3)", "exit code 3"),
        ("", "exit code 0"),
    ],
)
def test_a_child_that_dies_without_a_word(text: str, sentence: str) -> None:
    run = request()
    said: list[str] = []
    assert Runner(said.append, script(text)).serve(once=True, signals=False) == 0
    run.refresh_from_db()
    assert run.state == "failed" and sentence in run.error
    assert said[0].endswith("started") and sentence in said[1]


def test_a_scheduled_run_whose_child_was_killed_goes_again_once() -> None:
    request(actor=pipeline_runs.SCHEDULE)
    Runner(lambda line: None, script("import os; os.kill(os.getpid(), 9)")).serve(once=True, signals=False)
    assert list(PipelineRun.objects.order_by("id").values_list("state", flat=True)) == ["failed", "failed"]


def test_runs_are_worked_on_in_their_order_by_a_real_child(settings: object) -> None:
    first, second = request("export"), request("restore")
    order: list[str] = []
    command = [sys.executable, "-c", "import sys; sys.exit(7)"]

    def chosen(run: PipelineRun) -> list[str]:
        order.append(run.public_id)
        return command

    Runner(lambda line: None, chosen).serve(once=True, signals=False)
    assert order == [first.public_id, second.public_id]


@pytest.mark.parametrize("stubborn", [False, True], ids=["ends when asked", "has to be killed"])
def test_a_cancelled_run_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stubborn: bool) -> None:
    monkeypatch.setattr(runner, "TERM_AFTER", 0.1)
    monkeypatch.setattr(runner, "KILL_AFTER", 0.8)
    mark = tmp_path / "pid"
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN);" if stubborn else ""
    # With a child of its own, as Spark's JVM is: it has to go as well.
    text = (
        f"import os, signal, subprocess; {ignore}"
        "child = subprocess.Popen(['sleep', '600']);"
        f"open({str(mark)!r} + '.new', 'w').write(f'{{os.getpid()}} {{child.pid}}');"
        f"os.rename({str(mark)!r} + '.new', {str(mark)!r}); signal.pause()"
    )
    run = request()

    def cancel() -> None:
        wait_until(mark.exists, "the child has begun")
        pipeline_runs.run_cancel(run_id=run.pk, actor=ANN)
        connection.close()

    thread = threading.Thread(target=cancel)
    thread.start()
    Runner(lambda line: None, script(text)).serve(once=True, signals=False)
    thread.join()
    run.refresh_from_db()
    assert (run.state, run.error) == ("cancelled", "")
    wait_until(lambda: not any(alive(int(pid)) for pid in mark.read_text().split()), "both processes are gone")


def test_a_child_goes_on_with_what_is_due_next_until_a_run_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [request(job) for job in ("extract", "audit", "levels", "sla")]
    worked_on: list[str] = []

    def execute(run: PipelineRun) -> bool:
        worked_on.append(run.job)
        if run.job == "levels":
            return not pipeline_runs.run_fail(run, "It does not fit.")
        pipeline_runs.run_succeed(run)
        return True

    monkeypatch.setattr(commands.driver, "execute", execute)
    monkeypatch.setattr(commands.os, "nice", lambda by: 0)
    monkeypatch.setattr(commands.signal, "signal", lambda number, handler: None)
    claimed = pipeline_runs.claim_next(worker="x:1")
    assert claimed is not None
    assert commands.execute({"run": claimed.pk, "claim": claimed.claim}, OutputWrapper(StringIO())) == 1
    assert worked_on == ["extract", "audit", "levels"]
    for run in runs:
        run.refresh_from_db()
    assert [run.state for run in runs] == ["succeeded", "succeeded", "failed", "queued"]
    assert {run.facts.get("worker") for run in runs[:3]} == {"x:1"}, "the process that follows it"


def test_a_child_is_followed_through_all_its_runs_and_spoken_for_when_it_dies(tmp_path: Path) -> None:
    first, second = request("extract"), request("audit")
    mark = tmp_path / "pid"
    text = (
        f"import os, signal; open({str(mark)!r} + '.new', 'w').write(str(os.getpid()));"
        f"os.rename({str(mark)!r} + '.new', {str(mark)!r}); signal.pause()"
    )
    said: list[str] = []
    working = Runner(said.append, script(text))

    def go_on() -> None:
        wait_until(mark.exists, "the child has begun")
        pipeline_runs.run_succeed(PipelineRun.objects.get(pk=first.pk))
        assert pipeline_runs.claim_next(worker=working.worker) is not None
        wait_until(lambda: any(line.startswith(f"audit {second.public_id} started") for line in said), "it is followed")
        os.kill(int(mark.read_text()), signal.SIGKILL)
        connection.close()

    thread = threading.Thread(target=go_on)
    thread.start()
    assert working.serve(once=True, signals=False) == 0
    thread.join()
    assert said[1] == f"extract {first.public_id} succeeded"
    second.refresh_from_db()
    assert second.state == "failed" and "no memory left" in second.error


def test_a_runner_that_is_stopped_ends_its_run(tmp_path: Path) -> None:
    mark = tmp_path / "begun"
    run = request()
    working = Runner(lambda line: None, script(f"import signal; open({str(mark)!r}, 'w'); signal.pause()"))

    def stop() -> None:
        wait_until(mark.exists, "the child has begun")
        working.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    assert working.serve(signals=False) == 0
    thread.join()
    run.refresh_from_db()
    assert run.state == "failed" and "was stopped" in run.error


def test_the_child_dies_with_a_runner_that_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    inner = f"import os, signal; open({str(mark)!r}, 'w').write(str(os.getpid())); signal.pause()"
    outer = (
        "import os, signal, subprocess, sys;"
        f"subprocess.Popen([sys.executable, '-I', '-S', {str(PRELUDE)!r}, str(os.getpid()), '15', '-', '-',"
        f" sys.executable, '-c', {inner!r}], start_new_session=True); signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", outer])
    wait_until(lambda: mark.exists() and mark.read_text() != "", "the child has begun")
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not alive(int(mark.read_text())), "the child is gone")


def test_a_child_without_the_claim_does_nothing() -> None:
    run = request()
    claimed = pipeline_runs.claim_run(run.pk, worker="x")
    assert claimed is not None
    command = runner._execute(claimed)
    command[-1] = "00000000-0000-0000-0000-000000000001"
    database = connection.settings_dict
    user = database["USER"] + (f":{database['PASSWORD']}" if database["PASSWORD"] else "")
    url = f"postgresql://{user}@{database['HOST']}:{database['PORT']}/{database['NAME']}"
    child = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "rmhub.settings"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert child.returncode == 2 and "not ours" in child.stderr
    run.refresh_from_db()
    assert run.state == "running"


def alive(pid: int) -> bool:
    """Whether it runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False
