"""Real web servers over the test's database, to race them and to kill them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import urllib3
from django.conf import settings
from django.db import connection

from rmhub.hubs import web_command
from tests import ROOT
from tests.rmhub.conditions import eventually


def environment(var: Path) -> dict[str, str]:
    """Of a process over the test's database and store, without a broker."""
    database = connection.settings_dict
    place = f"{database['HOST']}:{database['PORT']}/{database['NAME']}"
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": f"postgresql://{database['USER']}:{database['PASSWORD']}@{place}",
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "RMHUB_STORE_DIR": str(settings.RMHUB_STORE_DIR),
        "RMHUB_VAR": str(var),
        "RMHUB_SECRET_KEYS": ",".join(settings.RMHUB_SECRET_KEYS),
    }


class Hub:
    """One web server process, as `manage.py up` starts it; no worker, and no broker to wake one."""

    def __init__(self, log: Path, more: Mapping[str, str] | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                web_command("127.0.0.1", self.port),
                cwd=ROOT,
                env={**environment(log.parent / "var"), "RMHUB_WEB_THREADS": "16", **(more or {})},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def ready(self) -> Hub:
        eventually(self._answers, 120)
        return self

    def _answers(self) -> bool:
        assert self._process.poll() is None, "the server has ended"
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            return urllib3.request("GET", f"{self.url}/problems/", retries=False, timeout=5).status < 500
        return False

    def most_memory(self) -> int:
        """The most resident memory, in bytes, that any of its processes has ever had (VmHWM, proc(5))."""
        group = self._process.pid
        return max(most_memory(int(path.name)) for path in Path("/proc").glob("[0-9]*") if _in_group(path, group))

    def end(self) -> None:
        """Tell it to end, as systemd and containers do, and return at once."""
        self._process.terminate()

    def ended(self) -> int:
        """Its exit status, when it has ended."""
        return self._process.wait(120)

    def kill(self) -> None:
        """Every process of it, at once and for good."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(120)


def most_memory(pid: int) -> int:
    """The most resident memory, in bytes, that a process has ever had; 0 for one that has ended (VmHWM, proc(5))."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _in_group(path: Path, group: int) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return os.getpgid(int(path.name)) == group
    return False


@contextlib.contextmanager
def hubs(folder: Path, count: int = 1, more: Mapping[str, str] | None = None) -> Iterator[list[Hub]]:
    """Servers that are up; all are gone afterwards."""
    started: list[Hub] = []
    try:
        for number in range(count):
            started.append(Hub(folder / f"hub{number}.log", more))
        yield [hub.ready() for hub in started]
    finally:
        for hub in started:
            hub.kill()
