"""The supervisor: one thread that starts, watches, restarts and stops the processes."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from rmhub.supervisor import guard
from rmhub.supervisor.processes import Child, Console, Output, Process, Restarts, spawn

Result = TypeVar("Result")
GUARD = Path(guard.__file__)
SECOND_THOUGHT = 0.5
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StartFailed(Exception):
    """A process did not get ready; everything that had been started is stopped again. ``code`` is an exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Stopped(RuntimeError):
    """The supervisor has stopped, or is stopping, and does nothing else any more."""


class Supervisor:
    """Starts processes in order, keeps them running, and stops them in reverse order.

    ``run()`` is all of it, with signal handlers, for a command's main thread. ``start()``, ``wait()`` and ``stop()``
    are for programs that do something themselves meanwhile; they may be called from any thread.

    All children are started by one thread of the supervisor, which lives as long as they do: see ``spawn``.

    ``ended`` is called (in that thread) with the exit code when all has stopped although nobody had called ``stop()``
    or ``request_stop()``.
    """

    def __init__(
        self,
        processes: Sequence[Process],
        *,
        output: Output | None = None,
        name: str = "hub",
        restarts_per_minute: int | None = 5,
        ended: Callable[[int], None] | None = None,
    ) -> None:
        """Raises ValueError when two processes have the same name."""
        names = [process.name for process in processes]
        if len(set(names)) != len(names):
            raise ValueError(f"two processes of the same name in {names}")
        self._processes = list(processes)
        self._output = output or Console([name, *names])
        self._name = name
        self._restarts = Restarts(restarts_per_minute)
        self._ended = ended
        self._children: dict[str, Child] = {}
        self._due: dict[str, float] = {}
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._bell: socket.socket | None = None
        self._rope: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._guard: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._code: int | None = None  # decided: everything is stopping
        self._asked = False
        self._hurry = False
        self._done = threading.Event()

    # --- what a program calls

    def run(self) -> int:
        """Start, wait, stop; return the exit code.

        130 after Ctrl-C, 143 after SIGTERM, 129 after a hang-up; otherwise the code of the process that ended it all
        (128 + signal for one that was killed). A second Ctrl-C kills at once what has not stopped yet; a second
        SIGTERM does not, because `make` and `timeout` pass on one that the whole process group has had already.
        """
        with self._signals():
            try:
                self.start()
                return self.wait() or 0
            except StartFailed as failure:
                self._output(self._name, str(failure))
                return failure.code
            finally:
                self.stop()

    def start(self) -> None:
        """Start all processes; return when the last is ready.

        Raises StartFailed, after stopping what had been started, when one ends or does not get ready in time, or when
        a stop was asked for meanwhile.
        """
        if sys.platform != "linux":
            raise StartFailed("the supervisor needs Linux; on other systems start the processes one by one", 1)
        if self._thread is not None:
            raise RuntimeError("a supervisor starts once")
        self._bell, self._rope = socket.socketpair()
        self._thread = threading.Thread(
            target=self._watch, args=(self._bell,), name=f"supervisor-{self._name}", daemon=True
        )
        self._thread.start()
        try:
            for process in self._processes:
                self._bring_up(process)
        except BaseException:
            self.stop()
            raise

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until everything has stopped; return the exit code, or None when the time is over first."""
        return self._code if self._done.wait(timeout) else None

    def stop(self) -> None:
        """Stop all processes in reverse order and return when they are gone. Does nothing the second time."""
        if self._thread is not None:
            self.request_stop(0)
            self._thread.join()
        for end in (self._bell, self._rope):
            if end is not None:
                end.close()
        self._selector.close()

    def request_stop(self, code: int) -> None:
        """Begin to stop and return at once: for signal handlers and callbacks. The first request decides the code."""
        self._submit(lambda: self._decide(code, asked=True))

    def pids(self, name: str) -> list[int]:
        """The live processes under this name, the one that we started first; empty while it is down."""
        child = self._children.get(self._known(name))
        if child is None:
            return []
        return sorted(guard.members({child.pid}), key=lambda pid: (pid != child.pid, pid))

    def kill(self, name: str) -> list[int]:
        """Kill (signal 9) the process and all that it has started, for chaos tests; return their pids.

        It is then restarted if it is one that is. Raises Stopped when the supervisor has stopped.
        """
        self._known(name)

        def action() -> list[int]:
            child = self._children.get(name)
            return [] if child is None else guard.kill({child.pid})

        return self._call(action)

    def _known(self, name: str) -> str:
        if all(process.name != name for process in self._processes):
            raise ValueError(f"no process is called {name!r}")
        return name

    # --- the calling thread

    def _bring_up(self, process: Process) -> None:
        try:
            child = self._call(lambda: self._spawn(process))
        except OSError as error:
            raise StartFailed(f"{process.name} could not be started: {error}", 126) from error
        except Stopped:
            raise StartFailed("stopped while starting", self._code or 0) from None
        self._await_ready(process, child)

    def _await_ready(self, process: Process, child: Child) -> None:
        pause = threading.Event()
        deadline = time.monotonic() + process.ready_within
        while True:
            # the order of these three matters: what ended has not got ready, and a stop explains an end
            ready = not process.once and process.is_ready()
            code = child.code
            if self._code is not None:
                raise StartFailed("stopped while starting", self._code)
            if process.once and code == 0:
                return
            if code is not None:
                raise StartFailed(f"{process.name} ended with exit code {code} before it was ready", code)
            if ready and self._settles(child):
                if process.ready is not None:
                    self._output(self._name, f"{process.name} ready after {time.monotonic() - child.begun:.1f} s")
                return
            if time.monotonic() > deadline and not process.once:
                raise StartFailed(f"{process.name} was not ready within {process.ready_within:g} s", 1)
            pause.wait(0.02)

    def _settles(self, child: Child) -> bool:
        """From now on its death is handled by the rules; False when it has died before that, or all is stopping."""

        def action() -> bool:
            child.settled = child.code is None
            return child.settled

        try:
            return self._call(action)
        except Stopped:
            return False

    def _submit(self, command: Callable[[], None]) -> None:
        """Hand a command to the supervisor's thread. Safe in a signal handler: takes no lock."""
        self._commands.put(command)
        if self._rope is None:
            return  # not started yet: it will look
        with contextlib.suppress(OSError):  # closed: it has stopped; full: it has enough reason to wake up
            self._rope.send(b"!", socket.MSG_DONTWAIT)

    def _call(self, action: Callable[[], Result]) -> Result:
        """Have the supervisor's thread do something; return its result or raise its exception, or Stopped."""
        future: Future[Result] = Future()

        def command() -> None:
            try:
                future.set_result(action())
            except BaseException as error:
                future.set_exception(error)

        self._submit(command)
        while True:
            try:
                return future.result(0.2)
            except TimeoutError:
                if self._done.is_set() and not future.done():
                    raise Stopped from None

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Turn signals into stop requests, where that is possible: handlers belong to the main thread."""
        previous: dict[signal.Signals, Any] = {}
        asked = [math.inf]

        def handle(number: int, _: object) -> None:
            hurry = number == signal.SIGINT and time.monotonic() > asked[0] + SECOND_THOUGHT
            asked[0] = min(asked[0], time.monotonic())
            self._submit(lambda: self._decide(128 + number, asked=True, hurry=hurry))

        if threading.current_thread() is threading.main_thread():
            previous = {number: signal.signal(number, handle) for number in HANDLED}
        try:
            yield
        finally:
            for number, handler in previous.items():
                # None: it was not set from Python, and cannot be set again from here
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    # --- the supervisor's thread

    def _watch(self, bell: socket.socket) -> None:
        self._selector.register(bell, selectors.EVENT_READ)
        try:
            while self._code is None:
                self._turn()
            self._stop_all()
        finally:
            # also after an exception: nothing may stay behind, and nobody may wait for ever
            guard.kill({child.pid for child in self._children.values()})
            for child in list(self._children.values()):
                self._bury(child)
            if self._guard is not None and self._guard.stdin is not None:
                self._guard.stdin.close()
                self._guard.wait()
            if self._code is None:
                self._code = 1
            self._done.set()
            if self._ended is not None and not self._asked:
                self._ended(self._code)

    def _turn(self, until: float | None = None) -> None:
        """Wait for something to happen, at most until then, and deal with it."""
        moments = [*self._due.values()] + ([] if until is None else [until])
        if any(child.death is None for child in self._children.values()):
            moments.append(time.monotonic() + 0.1)
        timeout = max(0.0, min(moments) - time.monotonic()) if moments else None
        for key, _ in self._selector.select(timeout):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.recv(4096)
            elif isinstance(key.data, Child):
                self._print(key.data, key.data.read())
                if key.data.silent:
                    self._selector.unregister(key.fileobj)
        with contextlib.suppress(queue.Empty):
            while True:
                self._commands.get_nowait()()
        for child in list(self._children.values()):
            if child.has_ended():
                self._bury(child)
                self._react(child)
        for name in [name for name, due in self._due.items() if due <= time.monotonic() and self._code is None]:
            del self._due[name]
            self._restart(next(process for process in self._processes if process.name == name))

    def _spawn(self, process: Process) -> Child:
        if self._code is not None:
            raise Stopped
        if self._guard is None:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        child = spawn(process)
        self._children[process.name] = child
        self._tell_guard(f"+ {child.pid} {int(process.stop_signal)} {process.grace}\n")
        if child.pipe is not None:
            self._selector.register(child.pipe, selectors.EVENT_READ, child)
        if child.death is not None:
            self._selector.register(child.death, selectors.EVENT_READ)
        self._output(self._name, f"{process.name} started, pid {child.pid}")
        return child

    def _tell_guard(self, line: str) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # somebody killed it; the children still die with us
                os.write(self._guard.stdin.fileno(), line.encode())

    def _print(self, child: Child, lines: list[str]) -> None:
        for line in lines:
            self._output(child.process.name, line)

    def _bury(self, child: Child) -> None:
        """Take leave of a child whose leader has ended: with all that it has left running, which may hold its port."""
        guard.kill({child.pid})
        for descriptor in (child.pipe, child.death):
            if descriptor is not None and descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        self._print(child, child.reap())
        self._children.pop(child.process.name, None)
        self._tell_guard(f"- {child.pid}\n")

    def _react(self, child: Child) -> None:
        """The rules for a death."""
        process, code = child.process, child.code or 0
        if self._code is not None or not child.settled:
            return  # we are stopping, or start() deals with it
        if process.restart and code not in process.final_codes:
            self._plan_restart(process, code)
        else:
            self._output(self._name, f"{process.name} ended with exit code {code}: stopping everything")
            self._decide(code)

    def _plan_restart(self, process: Process, code: int) -> None:
        now = time.monotonic()
        pause = self._restarts.pause(process.name, now)
        if pause is None:
            self._output(self._name, f"{process.name} ended with exit code {code}, too often: stopping everything")
            self._decide(code or 1)
        else:
            self._output(self._name, f"{process.name} ended with exit code {code}: started again in {pause:g} s")
            self._due[process.name] = now + pause

    def _restart(self, process: Process) -> None:
        try:
            self._spawn(process).settled = True
        except OSError as error:
            self._output(self._name, f"{process.name} could not be started: {error}")
            self._plan_restart(process, 126)

    def _decide(self, code: int, *, hurry: bool = False, asked: bool = False) -> None:
        if self._code is None:
            self._code, self._asked = code, asked
        elif hurry:
            self._hurry = True

    def _stop_all(self) -> None:
        self._due.clear()
        for process in reversed(self._processes):
            child = self._children.get(process.name)
            if child is None:
                continue
            guard.send([child.pid], process.stop_signal)
            deadline = time.monotonic() + process.grace
            while child.code is None and not self._hurry and time.monotonic() < deadline:
                self._turn(deadline)
            if child.code is None:
                self._output(self._name, f"{process.name} did not stop within {process.grace:g} s: killed")
                guard.kill({child.pid})
            while child.code is None:
                self._turn(time.monotonic() + 0.1)
            self._output(self._name, f"{process.name} stopped")
