"""What the pipeline needs, looked at one by one: each finding is a sentence. Imports neither Spark nor Arrow."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.db import DatabaseError, connection

from messaging.models import LakeState, PipelineRun
from messaging.pipeline import java, session
from messaging.report_choices import RunState
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock

NEEDED = ("pyspark", "pyarrow", "pandas", "numpy")
CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard", "protobuf")
_ROOM = 1024**3
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence; `good` when nothing has to be done."""

    good: bool
    text: str


def findings(*, start: bool = False) -> Iterator[Finding]:
    """All of them. With `start` a session is begun and asked something, which takes some seconds."""
    looks: list[Callable[[], Iterator[Finding]]] = [_packages, _java, _memory, _spark, _folders, _database]
    for look in looks:
        yield from look()
    if start:
        yield from _session()


def _packages() -> Iterator[Finding]:
    names = (*NEEDED, *(CONNECT if settings.SPARK_REMOTE else ()))
    versions, missing = [], []
    for name in names:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        yield Finding(False, f"{', '.join(missing)} not installed: pip install -r requirements.txt.")
    else:
        yield Finding(True, f"{', '.join(versions)}.")


def _java() -> Iterator[Finding]:
    if settings.SPARK_REMOTE:
        return  # the server's matter
    try:
        found = java.find(Path(settings.VAR_DIR))
    except java.NoJava as error:
        yield Finding(False, str(error))
    else:
        yield Finding(True, f"Java {found.version} ({found.origin}: {found.home}).")
    if shutil.which("bash") is None:
        yield Finding(False, "Spark's scripts need bash, and there is none on the PATH: install it.")


def _memory() -> Iterator[Finding]:
    try:
        text = session.memory()
    except session.SparkMisconfigured as error:
        yield Finding(False, str(error))
        return
    heap = int(text[:-1]) * (1024**3 if text.endswith("g") else 1024**2)
    free = _available()
    # A heap of 1 GiB was measured to make a process of 1.6 GiB.
    if session.is_local(settings.SPARK_MASTER) and not settings.SPARK_REMOTE and free and free < heap * 1.6:
        yield Finding(
            False,
            f"RMHUB_SPARK_MEMORY={text} makes a process of about {heap * 1.6 / 1024**3:.1f} GiB, and"
            f" {free / 1024**3:.1f} GiB are free: set it lower, or make room.",
        )
    else:
        yield Finding(True, f"Spark's heap is {text}.")


def _spark() -> Iterator[Finding]:
    if settings.SPARK_REMOTE:
        parts = urlsplit(settings.SPARK_REMOTE)
        if parts.scheme != "sc" or not parts.hostname:
            yield Finding(False, f"SPARK_REMOTE={settings.SPARK_REMOTE!r} is not of the form sc://host:15002.")
        else:
            yield from _reach("SPARK_REMOTE", "Spark Connect server", parts.hostname, _port(parts.port, 15002))
        return
    master = settings.SPARK_MASTER
    if session.is_local(master):
        yield Finding(True, f"Spark runs on this machine ({master}, {os.cpu_count()} cores).")
    elif master.startswith("spark://"):
        # Several masters are named with commas; one that answers is enough for a look.
        parts = urlsplit(master.split(",")[0])
        yield from _reach("SPARK_MASTER", "cluster's master", parts.hostname or "", _port(parts.port, 7077))
    elif master == "yarn" or master.startswith("k8s://"):
        yield Finding(True, f"Spark runs on {master}; `pipeline check --start` asks it.")
    else:
        yield Finding(
            False, f"SPARK_MASTER={master!r} is none that Spark knows: local[*], spark://host:7077, yarn, k8s://…"
        )


def _port(port: int | None, default: int) -> int:
    return default if port is None else port


def _reach(setting: str, what: str, host: str, port: int) -> Iterator[Finding]:
    try:
        with socket.create_connection((host, port), timeout=_PATIENCE):
            yield Finding(True, f"The {what} at {host}:{port} answers.")
    except OSError as error:
        yield Finding(False, f"The {what} at {host}:{port} ({setting}) does not answer: {error.strerror or error}.")


def _folders() -> Iterator[Finding]:
    for setting, folder in (
        ("RMHUB_LAKE_DIR", Path(settings.RMHUB_LAKE_DIR)),
        ("RMHUB_ARCHIVE_DIR", Path(settings.RMHUB_ARCHIVE_DIR)),
    ):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            yield Finding(False, f"{setting} {folder} cannot be written to: {error.strerror}.")
            continue
        free = shutil.disk_usage(folder).free
        if free < _ROOM:
            yield Finding(False, f"{setting} {folder} has {free / 1024**2:.0f} MiB left: make room, at least 1 GiB.")
        else:
            yield Finding(True, f"{setting} {folder} ({free / 1024**3:.0f} GiB free).")


def _database() -> Iterator[Finding]:
    try:
        state = LakeState.objects.filter(pk=1).first()
        latest = PipelineRun.objects.exclude(finished_at=None).order_by("-finished_at").first()
        stuck = PipelineRun.objects.filter(
            state=RunState.QUEUED, due_at__lt=clock.now() - 5 * pipeline_runs.LEASE
        ).exists()
        working = PipelineRun.objects.filter(state=RunState.RUNNING).exists()
    except DatabaseError as error:
        connection.close()
        yield Finding(False, f"The database does not have the pipeline's tables, or does not answer: {_first(error)}.")
        return
    if state is None or state.extracted_at is None:
        yield Finding(True, "The lake is empty: `manage.py pipeline run all` fills it.")
    else:
        yield Finding(True, f"The lake is as of {state.extracted_at:%Y-%m-%d %H:%M} UTC.")
    if stuck and not working:
        yield Finding(False, "Runs have been waiting for 5 minutes: start the process `manage.py pipeline serve`.")
    if latest is not None and latest.state == RunState.FAILED:
        yield Finding(False, f"The last run ({latest.job} {latest.public_id}) failed: {latest.error}")


def _session() -> Iterator[Finding]:
    try:
        spark = session.get("rmhub check", rows=0)
        counted = spark.range(1000).selectExpr("sum(id) AS total").collect()[0]["total"]
        good = counted == 499_500
        yield Finding(good, f"Spark {spark.version} computes." if good else f"Spark computed {counted}, not 499500.")
    except Exception as error:
        yield Finding(False, f"Spark does not start: {session.error_sentence(error)}")
    finally:
        session.stop()


def _available() -> int:
    """Bytes that a new process may use; 0 when unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
