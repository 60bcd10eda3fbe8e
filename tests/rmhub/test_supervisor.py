"""The supervisor on tiny real processes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmhub.supervisor import Console, Process, StartFailed, Stopped, Supervisor
from rmhub.supervisor.processes import LONGEST, PRELUDE, Lines, Restarts
from tests import ROOT
from tests.rmhub.conditions import alive, eventually

PYTHON = (sys.executable, "-I", "-S", "-u", "-c")
FOREVER = "import signal\nwhile True: signal.pause()"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up')\nwhile True: signal.pause()"
CHILDLESS_PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-I", "-S", "-u", "-c", {STUBBORN!r}])
print("grandchild", child.pid)
child.wait()
"""


class Recorder:
    """Collects the lines instead of printing them."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, name: str, line: str) -> None:
        self.lines.append((name, line))

    def of(self, name: str) -> list[str]:
        return [line for who, line in self.lines if who == name]

    def number(self, name: str, word: str) -> int:
        """The number after this word in what a process printed last; 0 while there is none."""
        found = [line for line in self.of(name) if line.startswith(f"{word} ")]
        return int(found[-1].split()[1]) if found else 0


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def started(recorder: Recorder) -> Iterator[list[Supervisor]]:
    """Supervisors to stop at the end, whatever the test did to them."""
    supervisors: list[Supervisor] = []
    yield supervisors
    for supervisor in supervisors:
        supervisor.stop()


def python(name: str, code: str, **how: object) -> Process:
    return Process(name, [*PYTHON, textwrap.dedent(code)], **how)  # type: ignore[arg-type]


def test_starts_in_order_and_stops_in_reverse(recorder: Recorder, started: list[Supervisor], tmp_path: Path) -> None:
    mark = tmp_path / "ready"
    asked: list[bool] = []

    def ready() -> bool:
        asked.append(len(asked) == 2)
        if asked[-1]:
            mark.touch()
        return asked[-1]

    supervisor = Supervisor(
        [
            python("database", FOREVER, ready=ready),
            python("migrate", f"import os; print('ready first:', os.path.exists({str(mark)!r}))", once=True),
            python("web", FOREVER),
        ],
        output=recorder,
    )
    started.append(supervisor)
    supervisor.start()
    assert recorder.of("migrate") == ["ready first: True"]
    pids = [pid for name in ("database", "web") for pid in supervisor.pids(name)]
    assert len(pids) == 2 and supervisor.pids("migrate") == []
    supervisor.stop()
    assert supervisor.wait(0) == 0
    assert not any(map(alive, pids))
    assert [line for line in recorder.of("hub") if "stopped" in line] == ["web stopped", "database stopped"]
    with pytest.raises(Stopped):
        supervisor.kill("web")


def test_readiness_is_asked_until_it_says_yes(recorder: Recorder, started: list[Supervisor]) -> None:
    answers: Iterator[bool | OSError] = iter([False, OSError("refused"), False, True])

    def ready() -> bool:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    supervisor = Supervisor([python("web", FOREVER, ready=ready)], output=recorder)
    started.append(supervisor)
    supervisor.start()
    assert next(answers, None) is None
    assert any(line.startswith("web ready after") for line in recorder.of("hub"))


def test_one_that_never_gets_ready_stops_all(recorder: Recorder) -> None:
    supervisor = Supervisor(
        [python("database", FOREVER), python("web", FOREVER, ready=lambda: False, ready_within=0.1)], output=recorder
    )
    with pytest.raises(StartFailed, match=r"web was not ready within 0\.1 s"):
        supervisor.start()
    assert supervisor.pids("database") == []


@pytest.mark.parametrize("how", [{"once": True}, {"restart": True, "ready": lambda: False}])
def test_one_that_ends_while_starting_stops_all(recorder: Recorder, how: dict[str, object]) -> None:
    processes = [python("database", FOREVER), python("migrate", "raise SystemExit(7)", **how)]
    with pytest.raises(StartFailed, match="migrate ended with exit code 7") as failure:
        Supervisor(processes, output=recorder).start()
    assert failure.value.code == 7
    assert "database stopped" in recorder.of("hub")


def test_a_program_that_does_not_exist(recorder: Recorder) -> None:
    assert Supervisor([Process("web", ["/no/such/program"], once=True)], output=recorder).run() == 127
    assert recorder.of("web") == ["/no/such/program: no such program"]


def test_kill_takes_the_grandchildren_too_and_the_process_is_restarted(
    recorder: Recorder, started: list[Supervisor]
) -> None:
    supervisor = Supervisor([python("web", CHILDLESS_PARENT, restart=True)], output=recorder)
    started.append(supervisor)
    supervisor.start()
    before = eventually(lambda: pids if len(pids := supervisor.pids("web")) == 2 else [])
    assert supervisor.kill("web") == sorted(before)
    after = eventually(lambda: pids if len(pids := supervisor.pids("web")) == 2 else [])
    assert not set(before) & set(after)
    assert not any(map(alive, before))


def test_what_a_dead_leader_left_behind_is_killed_before_the_restart(
    recorder: Recorder, started: list[Supervisor]
) -> None:
    supervisor = Supervisor([python("web", CHILDLESS_PARENT, restart=True)], output=recorder)
    started.append(supervisor)
    supervisor.start()
    orphan = eventually(lambda: recorder.number("web", "grandchild"))
    os.kill(supervisor.pids("web")[0], signal.SIGKILL)
    eventually(lambda: recorder.number("web", "grandchild") not in (0, orphan))
    assert not alive(orphan)


def test_too_many_deaths_within_a_minute_stop_all(recorder: Recorder, started: list[Supervisor]) -> None:
    reports: list[int] = []
    supervisor = Supervisor(
        [python("database", FOREVER), python("web", "raise SystemExit(3)", restart=True)],
        output=recorder,
        restarts_per_minute=2,
        ended=reports.append,
    )
    started.append(supervisor)
    supervisor.start()
    assert supervisor.wait(120) == 3
    eventually(lambda: reports == [3])
    assert [line for line in recorder.of("hub") if "web ended" in line] == [
        "web ended with exit code 3: started again in 0.1 s",
        "web ended with exit code 3: started again in 0.2 s",
        "web ended with exit code 3, too often: stopping everything",
    ]
    assert "database stopped" in recorder.of("hub")


def test_pauses_grow_and_are_forgotten() -> None:
    restarts = Restarts(per_minute=8)
    pauses = [restarts.pause("web", float(second)) for second in range(8)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert restarts.pause("worker", 8.0) == 0.1
    assert restarts.pause("web", 9.0) is None
    assert restarts.pause("web", 120.0) == 0.1


def test_what_may_die_any_number_of_times_is_started_each_time_after_a_longer_pause() -> None:
    restarts = Restarts(per_minute=None)
    assert [restarts.pause("postgres", 1.0) for _ in range(100)][5:] == [3.2] + [5.0] * 94


def test_a_final_exit_code_is_not_restarted(recorder: Recorder, started: list[Supervisor]) -> None:
    supervisor = Supervisor(
        [python("database", FOREVER, restart=True, final_codes=frozenset({128 + signal.SIGTERM}))], output=recorder
    )
    started.append(supervisor)
    supervisor.start()
    os.kill(supervisor.pids("database")[0], signal.SIGTERM)
    assert supervisor.wait(120) == 143


def test_one_that_ignores_the_stop_signal_is_killed_after_its_grace(
    recorder: Recorder, started: list[Supervisor]
) -> None:
    supervisor = Supervisor([python("web", STUBBORN, grace=0.1)], output=recorder)
    started.append(supervisor)
    supervisor.start()
    eventually(lambda: recorder.of("web"))
    supervisor.stop()
    assert "web did not stop within 0.1 s: killed" in recorder.of("hub")


def test_a_stop_while_starting(recorder: Recorder) -> None:
    supervisor = Supervisor([python("web", FOREVER, ready=lambda: False)], output=recorder)
    stopper = threading.Thread(
        target=lambda: (eventually(lambda: recorder.of("hub")), supervisor.request_stop(5)),  # type: ignore[func-returns-value]
    )
    stopper.start()
    with pytest.raises(StartFailed, match="stopped while starting") as failure:
        supervisor.start()
    stopper.join()
    assert failure.value.code == 5


def test_output_to_a_file_and_an_environment_of_its_own(
    recorder: Recorder, started: list[Supervisor], tmp_path: Path
) -> None:
    log = tmp_path / "web.log"
    code = "import os; print(os.environ.get('COLOUR'), os.environ.get('HOME'))"
    supervisor = Supervisor([python("web", code, once=True, env={"COLOUR": "blue"}, log=log)], output=recorder)
    started.append(supervisor)
    supervisor.start()
    assert log.read_text() == "blue None\n"
    assert recorder.of("web") == []


def test_a_lock_is_held_as_long_as_the_process_or_its_children_live(
    recorder: Recorder, started: list[Supervisor], tmp_path: Path
) -> None:
    def supervisor() -> Supervisor:
        made = Supervisor([python("web", CHILDLESS_PARENT, lock=tmp_path / "lock")], output=recorder)
        started.append(made)
        return made

    first = supervisor()
    first.start()
    with pytest.raises(StartFailed, match="lock is locked: somebody else"):
        supervisor().start()
    first.stop()
    supervisor().start()


HOST = f"""
import sys
from rmhub.supervisor import Process, Supervisor
python = [sys.executable, "-I", "-S", "-u", "-c"]
processes = [Process("database", [*python, {FOREVER!r}]), Process("web", [*python, {CHILDLESS_PARENT!r}], grace=0.2)]
supervisor = Supervisor(processes)
sys.exit(supervisor.run())
"""


@pytest.fixture
def host() -> Iterator[subprocess.Popen[str]]:
    """A supervisor in a process of its own: a database, and web with a grandchild that ignores SIGTERM."""
    # through the prelude, so that it dies with a test run that is killed
    prelude = [sys.executable, "-I", "-S", str(PRELUDE), str(os.getpid()), str(int(signal.SIGKILL)), "-", "-"]
    with subprocess.Popen(
        [*prelude, sys.executable, "-c", HOST], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        yield process
        process.kill()


def numbers(host: subprocess.Popen[str]) -> list[int]:
    """The pids of database, web and web's grandchild, from what the supervisor prints."""
    assert host.stdout is not None
    found: list[int] = []
    while len(found) < 3:
        line = host.stdout.readline()
        assert line, "the supervisor ended"
        if "started, pid" in line or "grandchild" in line:
            found.append(int(line.split()[-1]))
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_stop_everything(host: subprocess.Popen[str], number: int, code: int) -> None:
    pids = numbers(host)
    host.send_signal(number)
    output, _ = host.communicate(timeout=120)
    assert host.returncode == code
    assert not any(map(alive, pids))
    assert output.splitlines()[-1] == "hub      | database stopped"


def test_nothing_survives_when_the_supervisor_is_killed(host: subprocess.Popen[str]) -> None:
    pids = numbers(host)
    host.kill()
    host.wait(120)
    eventually(lambda: not any(map(alive, pids)))


def test_lines_are_cut_where_they_end() -> None:
    lines = Lines()
    assert lines.feed(b"one\r\ntw") == ["one"]
    assert lines.feed(b"o\nthree \xff") == ["two"]
    assert lines.flush() == ["three \ufffd"]
    assert lines.flush() == []
    assert [len(line) for line in lines.feed(b"x" * (LONGEST + 1))] == [LONGEST + 1]


def test_names_are_coloured_on_a_terminal_only() -> None:
    stream = io.StringIO()
    Console(["web", "worker"], stream)("web", "hello")
    assert stream.getvalue() == "web    | hello\n"
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    Console(["web", "worker"], terminal)("worker", "hello")
    assert terminal.getvalue() == "\x1b[32mworker |\x1b[0m hello\n"


def test_two_of_the_same_name() -> None:
    with pytest.raises(ValueError, match="same name"):
        Supervisor([python("web", FOREVER), python("web", FOREVER)])
