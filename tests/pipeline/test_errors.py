"""What Spark says, in a sentence."""

from __future__ import annotations

import pytest

from messaging.exceptions import InvalidSubmission
from messaging.pipeline import session

JAVA = """An error occurred while calling o52.toArrow.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
\tat org.apache.spark.errors.SparkCoreErrors$.x(SparkCoreErrors.scala:1)
Caused by: org.apache.spark.sql.execution.QueryExecutionException: Encountered error while reading file
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.FileNotFoundException: /lake/g1/messages/x.parquet (No such file or directory)
\t... 20 more"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError(JAVA), "FileNotFoundException: /lake/g1/messages/x.parquet (No such file or directory)"),
        (RuntimeError(JAVA.split("Caused by")[0]), "SparkException: Job aborted due to stage failure"),
        (ValueError("[UNRESOLVED_COLUMN] A column `x`.\nfoo"), "[UNRESOLVED_COLUMN] A column `x`."),
        (RuntimeError("x\nCaused by: java.lang.OutOfMemoryError: Java heap space"), "RMHUB_SPARK_MEMORY"),
        (RuntimeError("Total size of serialized results is bigger than spark.driver.maxResultSize"), "shorter range"),
        (RuntimeError("java.io.IOException: No space left on device"), "The disk is full."),
        (InvalidSubmission({"to": ["Too early."]}), "to: Too early."),
        (ZeroDivisionError(), "ZeroDivisionError"),
    ],
)
def test_one_sentence(error: Exception, expected: str) -> None:
    found = session.error_sentence(error)
    assert expected in found
    assert "\n" not in found and len(found) <= session.LONGEST_SENTENCE


def test_the_detail_has_it_all() -> None:
    try:
        raise RuntimeError(JAVA)
    except RuntimeError as error:
        assert "SparkCoreErrors.scala" in session.error_detail(error) and "test_errors.py" in session.error_detail(
            error
        )
    assert len(session.error_sentence(RuntimeError("x" * 5000))) == session.LONGEST_SENTENCE
