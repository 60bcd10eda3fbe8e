"""Rows made by the driver come through as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType, StructType

from messaging.pipeline.jobs.frames import literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_rows_come_through_as_they_are(spark: SparkSession) -> None:
    schema = StructType().add("a", StringType()).add("b", LongType()).add("c", DoubleType()).add("d", BooleanType())
    rows = [("x\"'\\\n\u20ac", 2**62, 0.1 + 0.2, True), (None, None, None, None), ("", -1, 1e300, False)]
    found = literal(spark, rows, schema)
    assert [(field.name, field.dataType) for field in found.schema] == [(one.name, one.dataType) for one in schema]
    assert [tuple(row) for row in found.collect()] == rows
    assert literal(spark, [], schema).collect() == []
