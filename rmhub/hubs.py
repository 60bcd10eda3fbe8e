"""What one hub is made of: its environment and its processes. Used by `manage.py up`, the demo and the benchmark."""

from __future__ import annotations

import os
import random
import socket
import sys
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rmhub.env import env_bool
from rmhub.front.application import LIVE
from rmhub.supervisor import Process

BASE = Path(__file__).resolve().parent.parent

_CELERY = ("-m", "celery", "-q", "-A", "rmhub")
# The processes of a hub: what Python is given, in the hub's folder. `deploy/` has the same (tests/deploy).
ROLES: Mapping[str, tuple[str, ...]] = {
    "migrate": ("manage.py", "migrate", "--verbosity", "0"),
    "web": ("-m", "rmhub.front.serving"),
    "worker": (
        *(*_CELERY, "worker", "-P", "threads", "-c", "4"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "warning"),
    ),
    "beat": (*_CELERY, "beat", "-l", "warning"),
    "mail": ("manage.py", "mail"),
    "pipeline": ("manage.py", "pipeline", "serve"),
    "live": ("manage.py", "pipeline", "live"),
}


def command(role: str, *more: str) -> list[str]:
    """The command line of one of `ROLES`, to be run in the hub's folder (`BASE`)."""
    return [sys.executable, *ROLES[role], *more]


def web_command(host: str, port: int) -> list[str]:
    """The command line of a web server."""
    return command("web", "--host", host, "--port", str(port))


@dataclass(frozen=True, slots=True)
class Hub:
    """One hub: its name in logs, its servers, its folder and the port of its web server."""

    name: str
    database_url: str
    redis_url: str
    var: Path
    port: int
    title: str = "RM Hub"
    host: str = "127.0.0.1"
    threads: int = 32
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def environment(self, process: str = "") -> dict[str, str]:
        """Return the environment of this hub's processes."""
        own = {
            "DJANGO_SETTINGS_MODULE": "rmhub.settings",
            "PYTHONPATH": str(BASE),
            "PYTHONUNBUFFERED": "1",
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "RMHUB_VAR": str(self.var),
            "RMHUB_NAME": self.title,
            "RMHUB_PUBLIC_URL": self.url,
            "RMHUB_COOKIE_SUFFIX": self.name,
            "RMHUB_PROCESS": f"rmhub {self.name} {process}".strip(),
            "RMHUB_WEB_THREADS": str(self.threads),
            **self.settings,
        }
        # A file that names the supervisor's value would contradict the one that is set here.
        files = {f"{name}_FILE" for name in own}
        return {**{name: text for name, text in os.environ.items() if name not in files}, **own}

    def machine(self, number: int, port: int) -> Hub:
        """Another machine of this hub, as far as one can show it: same database, Valkey, folder and public address."""
        settings = {**self.settings, "RMHUB_PUBLIC_URL": self.url}
        return replace(self, name=f"{self.name}{number}", port=port, settings=settings)

    def manage(self, *arguments: str) -> list[str]:
        """The command line of a management command of this hub."""
        return [sys.executable, str(BASE / "manage.py"), *arguments]

    def processes(
        self, *, prefix: str = "", restart: bool = True, pipeline: bool = False, beat: bool = True
    ) -> list[Process]:
        """Web server, worker and beat, in their order of start; with `pipeline` also the data pipeline's process.

        One `beat` is enough for all machines of a hub.
        """
        self.var.mkdir(parents=True, exist_ok=True)

        def process(name: str, argv: list[str], **more: Any) -> Process:
            more.setdefault("env", self.environment(name))
            return Process(name=f"{prefix}{name}", argv=argv, restart=restart, cwd=BASE, **more)

        last = [
            # It ends the run that it works on, and what that has started.
            process("pipeline", command("pipeline"), grace=15.0)
        ]
        if env_bool("RMHUB_PIPELINE_LIVE"):
            # It counts what it has begun to count.
            last.append(process("live", command("live"), grace=15.0))
        # Embedded and demo hubs run as whoever starts them, root too; docs/operations.md says how to do better.
        quiet = {"PYTHONWARNINGS": "ignore:You're running the worker with superuser"}
        found = [
            process("web", web_command(self.host, self.port), ready=self.answers, grace=self._ends_within()),
            process("worker", command("worker", "-n", f"{self.name}@%h"), env={**self.environment("worker"), **quiet}),
        ]
        if beat:
            found.append(process("beat", command("beat")))
        # What the environment says is meant for the hub that is operated, not for every hub of a demo or benchmark.
        if pipeline or "RMHUB_SMTP_LISTEN" in self.settings:
            found += self._mail(prefix, restart)
        return [*found, *(last if pipeline else [])]

    def _ends_within(self) -> float:
        """Seconds that the web server may take to end: what it is told to take itself, and some for the rest."""
        environment = self.environment()
        told = [environment.get(name, "") for name in ("RMHUB_DRAIN_SECONDS", "RMHUB_FINISH_SECONDS")]
        return 10.0 + sum(int(text) for text in told if text.isdigit())

    def _mail(self, prefix: str, restart: bool) -> list[Process]:
        """The partners' mail entrance, when this hub has one (docs/mail.md)."""
        environment = self.environment("mail")
        listen = environment.get("RMHUB_SMTP_LISTEN", "").strip()
        if not listen:
            return []
        host, _, port = listen.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        reached_at = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
        return [
            Process(
                name=f"{prefix}mail",
                argv=command("mail"),
                env=environment,
                # A port that is not a number is the command's to complain about.
                ready=listens(int(port), reached_at) if port.isdigit() else None,
                restart=restart,
                cwd=BASE,
            )
        ]

    def answers(self) -> bool:
        """Whether the web server answers at all. Raises OSError when nobody does."""
        with urllib.request.urlopen(f"{self.url}{LIVE}", timeout=2):  # noqa: S310  (our own address)
            return True


# Below those that the system gives to whoever connects or asks for any port (32768 and up on Linux): what is started
# on one of these a while later finds it free still.
_PORTS = range(10_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on right now. Raises OSError when there are not enough."""
    found: list[int] = []
    with ExitStack() as stack:
        for port in random.sample(_PORTS, len(_PORTS)):
            if len(found) == count:
                return found
            one = stack.enter_context(socket.socket())
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    raise OSError(f"{count} free ports were wanted, and there are {len(found)}")


def link_process(
    routes: Mapping[int, int | list[int]],
    *,
    drop: float,
    duplicate: float,
    delay_ms: float,
    seed: int,
    name: str = "link",
) -> Process:
    """The bad link of the demo: each of `routes` leads from a listening port to a hub's port, or to those of its
    machines in turn.
    """
    arguments: list[str] = []
    for listen, target in routes.items():
        ports = target if isinstance(target, list) else [target]
        arguments += ["--route", f"{listen}=127.0.0.1:{','.join(map(str, ports))}"]
    faults = ["--drop", str(drop), "--duplicate", str(duplicate), "--delay-ms", str(delay_ms), "--seed", str(seed)]
    first = next(iter(routes))
    return Process(
        name=name,
        argv=[sys.executable, "-m", "messaging.demo.link", *arguments, *faults],
        env={**os.environ, "PYTHONPATH": str(BASE), "PYTHONUNBUFFERED": "1"},
        ready=listens(first),
        cwd=BASE,
    )


def listens(port: int, host: str = "127.0.0.1") -> Callable[[], bool]:
    """A readiness check: somebody listens on this port, of the loopback interface unless another host is named."""

    def check() -> bool:
        with socket.create_connection((host, port), timeout=1):
            return True

    return check
