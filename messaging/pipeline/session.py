"""The Spark session: on this machine, on a cluster (SPARK_MASTER), or at a Spark Connect server (SPARK_REMOTE).

The only place that says how Spark runs. Nothing else differs between the three.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.conf import settings

from messaging.exceptions import ApplicationError
from messaging.pipeline import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOG4J = Path(__file__).with_name("log4j2.properties")
# Rows up to which starting, planning and compiling take longer than reading them does (docs/benchmarks.md).
SMALL = 200_000
# Rows up to which Java's second compiler takes more time than its code saves.
MEDIUM = 10_000_000
# Of a JVM that has little to compute: the simplest collector, and the first compiler. What that one compiles needs more
# stack: Spark goes through plans, and through the message of an error, by expressions that recurse.
_SHORT = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss4m"]
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_current: list[SparkSession] = []


class SparkMisconfigured(RuntimeError):
    """A sentence that says which setting, and what to do."""


def get(app_name: str = "rmhub", *, rows: int) -> SparkSession:
    """The session of this process, fit to read about so many rows; starts it at the first call (2 to 10 seconds).

    Raises java.NoJava, SparkMisconfigured, or what Spark says when a cluster does not answer.
    """
    if not _current:
        _current.append(_remote(app_name) if settings.SPARK_REMOTE else _classic(app_name, rows))
    for name, value in fit(rows).items():
        _current[0].conf.set(name, value)
    return _current[0]


def stop() -> None:
    """Ends the session, and the JVM that it started. Does nothing when there is none."""
    while _current:
        session = _current.pop()
        with contextlib.suppress(Exception):  # it may be the JVM that has died
            session.stop()
    with contextlib.suppress(Exception):
        _end_gateway()
    shutil.rmtree(_spill(), ignore_errors=True)


def current() -> SparkSession | None:
    """The session, if this process has begun one."""
    return _current[0] if _current else None


def fit(rows: int) -> dict[str, str]:
    """How so many rows are computed: a few of them in one part, by expressions that are interpreted, not compiled."""
    small = rows <= SMALL
    found = {
        "spark.sql.adaptive.enabled": "false" if small else "true",
        "spark.sql.codegen.wholeStage": "false" if small else "true",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if small else "FALLBACK",
    }
    if not settings.SPARK_REMOTE and is_local(settings.SPARK_MASTER):
        # Shuffles of one machine: more parts than cores, so that each fits into the heap; empty ones are merged.
        found["spark.sql.shuffle.partitions"] = "1" if small else "32"
    return found


def configuration(master: str, rows: int) -> dict[str, str]:
    """What Spark is told, by master. What is not here may be said in spark-defaults.conf (SPARK_CONF_DIR)."""
    var = Path(settings.VAR_DIR)
    options = {
        "spark.driver.memory": memory(),
        # A result that does not fit is refused before it takes the whole heap.
        "spark.driver.maxResultSize": f"{_megabytes(memory()) // 2}m",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(var / "run" / "spark-warehouse"),
        "spark.jars.ivy": str(var / "run" / "ivy"),
        "spark.ui.enabled": "false",
        # Spark writes every plan down for a page that nobody looks at; the audit's are megabytes of text.
        "spark.sql.maxPlanStringLength": "4096",
        "spark.sql.ui.explainMode": "simple",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": " ".join(_java_options(rows)),
    }
    if is_local(master):
        options["spark.local.dir"] = str(_spill())
    else:
        options["spark.executor.memory"] = memory()
    if is_local(master) or urlsplit(master).hostname in _LOOPBACK:
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return options


def _java_options(rows: int) -> list[str]:
    """Of the driver."""
    return [f"-Dlog4j2.configurationFile={LOG4J.as_uri()}", *(_SHORT if rows <= MEDIUM else ["-XX:+UseParallelGC"])]


def is_local(master: str) -> bool:
    """Whether this master is this very process."""
    return master == "local" or master.startswith("local[")


def memory() -> str:
    """RMHUB_SPARK_MEMORY. Raises SparkMisconfigured: Spark itself says it in forty lines."""
    text = str(settings.RMHUB_SPARK_MEMORY).strip().lower()
    if not re.fullmatch(r"\d+[mg]", text) or _megabytes(text) < 512:
        raise SparkMisconfigured(f"RMHUB_SPARK_MEMORY={text!r}: a heap such as 1g or 2048m, and at least 512m.")
    return text


def _megabytes(text: str) -> int:
    return int(text[:-1]) * (1024 if text.endswith("g") else 1)


def prepare_environment(master: str) -> None:
    """What PySpark reads from the environment: this interpreter and this Java. Raises java.NoJava."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(java.find(Path(settings.VAR_DIR)).home)
    if is_local(master) or urlsplit(master).hostname in _LOOPBACK:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if not os.environ.get("SPARK_REMOTE"):
        os.environ.pop("SPARK_REMOTE", None)  # PySpark takes an empty one for an address


def _spill() -> Path:
    """Where this process's shuffles go when they do not fit into the heap."""
    return Path(settings.VAR_DIR) / "run" / "spark" / str(os.getpid())


def _sweep() -> None:
    """Removes what processes that were killed have left there."""
    if not _spill().parent.is_dir():
        return
    for folder in _spill().parent.iterdir():
        if folder.name.isdigit() and not Path("/proc", folder.name).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _classic(app_name: str, rows: int) -> SparkSession:
    master = settings.SPARK_MASTER
    prepare_environment(master)
    from pyspark.sql import SparkSession

    _sweep()
    _spill().mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.master(master).appName(app_name).config(map=dict(configuration(master, rows)))
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of every connection that it closes
    interrupt = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    if interrupt is not None:
        # PySpark installs a handler of its own; ours ends the run and then the session.
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, interrupt)
    session.sparkContext.setLogLevel("ERROR")
    return session


def _remote(app_name: str) -> SparkSession:
    """The lake's path must be the same on the server; its settings are the server's own."""
    try:
        from pyspark.sql import SparkSession

        session = SparkSession.builder.remote(settings.SPARK_REMOTE).appName(app_name).getOrCreate()
    except ImportError as error:
        raise SparkMisconfigured(f"SPARK_REMOTE needs packages that are missing: {error}") from error
    for name, value in (("spark.sql.session.timeZone", "UTC"), ("spark.sql.parquet.compression.codec", "zstd")):
        session.conf.set(name, value)
    return session


def _end_gateway() -> None:
    """A session that is stopped leaves its JVM behind; the next one of the same process would get that one's heap."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None:
        process = gateway.proc
        gateway.shutdown()
        if process is not None:
            process.stdin.close()
            process.wait(timeout=20)
        SparkContext._gateway = None
        SparkContext._jvm = None


# --- What Spark says when something fails, in one sentence; the rest goes into the run's detail.

LONGEST_SENTENCE = 400
# The innermost cause says what happened; the frames before it say where Spark was.
_CAUSE = re.compile(r"^Caused by: (?P<text>.+)$", re.MULTILINE)
_CLASS = re.compile(r"^(?:[a-z_$][\w$]*\.)+(?P<name>[A-Z][\w$]*): ?")
_KNOWN = (
    (
        re.compile(r"java\.lang\.OutOfMemoryError"),
        "Spark ran out of memory: give it more (RMHUB_SPARK_MEMORY), or a shorter range.",
    ),
    (
        re.compile(r"Answer from Java side is empty|Connection refused.*py4j|Py4JNetworkError"),
        "Spark's process ended in the middle; was it killed, or is the machine out of memory?",
    ),
    (
        re.compile(r"All masters are unresponsive|Failed to connect to master|Could not connect to spark://"),
        "The cluster's master does not answer: see SPARK_MASTER and `manage.py pipeline check`.",
    ),
    (
        re.compile(r"JAVA_GATEWAY_EXITED"),
        "Spark's Java process did not start: `manage.py pipeline check` says what is missing.",
    ),
    (
        re.compile(r"StatusCode\.UNAVAILABLE"),
        "The Spark Connect server does not answer: see SPARK_REMOTE and `manage.py pipeline check`.",
    ),
    (
        re.compile(r"maxResultSize"),
        "The result is too large to be published: give Spark more memory (RMHUB_SPARK_MEMORY), or a shorter range.",
    ),
    (re.compile(r"No space left on device"), "The disk is full."),
)


def error_sentence(error: BaseException) -> str:
    """One sentence for people: ours where the trouble is a known one, else the innermost cause's first line."""
    if isinstance(error, ApplicationError):
        return error.detail
    text = str(error)
    for pattern, known in _KNOWN:
        if pattern.search(text) or pattern.search(type(error).__name__):
            return known
    causes = _CAUSE.findall(text)
    line = causes[-1] if causes else _first_line(text)
    line = _CLASS.sub(lambda match: f"{match['name']}: ", line).strip()
    if not line:
        line = type(error).__name__
    return line if len(line) <= LONGEST_SENTENCE else line[: LONGEST_SENTENCE - 1] + "…"


def error_detail(error: BaseException) -> str:
    """The whole of it, for whoever repairs it."""
    return "".join(traceback.format_exception(error))


def _first_line(text: str) -> str:
    for line in text.splitlines():
        line = line.strip()
        # "An error occurred while calling o52.toArrow." says nothing; the next line does.
        if line and not line.startswith("An error occurred while calling"):
            return line.removeprefix(": ")
    return ""
