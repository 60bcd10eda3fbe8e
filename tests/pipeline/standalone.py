"""A standalone Spark cluster of this machine's processes, for tests and the benchmark: one master and some workers.

The processes are started by the package's own scripts, on free ports of the loopback interface.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rmhub.hubs import free_ports, listens
from rmhub.supervisor import guard
from tests import ROOT

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass
class Cluster:
    """A master and its workers (leaders of sessions)."""

    url: str
    page: str
    workers: list[subprocess.Popen[bytes]]

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.page + "/json/", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except (OSError, ValueError):
            pass  # nobody answers yet, or only that it is starting
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s: {what}"
        threading.Event().wait(0.1)


def package() -> Path:
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Small and quick to start; everything that is written is written below `folder`."""
    configuration = folder / "conf"
    configuration.mkdir(exist_ok=True)
    (configuration / "spark-defaults.conf").write_text(
        f"spark.executor.extraJavaOptions {QUICK}\nspark.executor.cores 1\nspark.sql.shuffle.partitions 4\n"
        "spark.sql.files.maxPartitionBytes 1m\n"
    )
    known = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **known,
        "SPARK_HOME": str(package()),
        "SPARK_CONF_DIR": str(configuration),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_PID_DIR": str(folder),
        "SPARK_LOG_DIR": str(folder),
        "PYSPARK_PYTHON": sys.executable,
        "DJANGO_SETTINGS_MODULE": "rmhub.settings",
        "RMHUB_VAR": str(folder),
        "RMHUB_SPARK_MEMORY": "512m",
        **more,
    }


@contextmanager
def running(command: list[str], folder: Path, name: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a session; all of that is killed at the end."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment(folder, **more), cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        guard.kill({process.pid})
        process.wait()


@contextmanager
def standalone(folder: Path, workers: int, memory: str = "1g") -> Iterator[Cluster]:
    """A master and its workers, of one core and so much memory each, which have registered."""
    port, page, *worker_pages = free_ports(2 + workers)
    program = str(package() / "bin" / "spark-class")
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
            command = [program, f"org.apache.spark.deploy.{arguments[0]}", "--host", "127.0.0.1", *arguments[1:]]
            return stack.enter_context(running(command, folder, name))

        start("master", "master.Master", "--port", str(port), "--webui-port", str(page))
        wait_until(listens(port), "the master listens")
        started = [
            start(
                *(f"worker{number}", "worker.Worker", "-c", "1", "-m", memory, "-d", str(folder / f"work{number}")),
                *("--webui-port", str(worker_page), url),
            )
            for number, worker_page in enumerate(worker_pages)
        ]
        found = Cluster(url, f"http://127.0.0.1:{page}", started)
        wait_until(lambda: found.state()["aliveworkers"] == workers, "the workers are registered")
        yield found
