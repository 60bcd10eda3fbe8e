"""A job as an application of spark-submit, on a cluster where the hub is not installed.

    spark-submit --py-files jobs.zip jobs.py audit --manifest manifest.json --output DIRECTORY

`jobs.zip` and `jobs.py` are written by `manage.py pipeline package`, the manifest by `manage.py pipeline manifest`;
what it writes is taken in by `manage.py pipeline publish`. Needs PySpark and nothing else: no Django, no database.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from messaging.pipeline.jobs.frames import TYPES, literal
from messaging.pipeline.schemas import ENTITIES, Entity

JOBS = ("audit", "levels", "sla", "window", "timing")
FACTS = "_facts"  # folder of one row with the lineage as JSON, beside the tables


def main(arguments: Sequence[str] | None = None) -> int:
    """Computes one job and writes one Parquet folder for each table. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Computes one report from the lake.")
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--manifest", required=True, help="written by `manage.py pipeline manifest`")
    parser.add_argument("--output", required=True, help="a new folder, or a URL that Spark can write to")
    parser.add_argument("--lake", help="where the executors see the lake, if not where the hub does")
    options = parser.parse_args(arguments)
    with open(options.manifest) as file:
        manifest = json.load(file)
    spark = SparkSession.builder.appName(f"rmhub {options.job}").getOrCreate()
    try:
        compute(spark, options.job, manifest, options.output, options.lake or manifest["lake"])
    finally:
        spark.stop()
    return 0


def compute(spark: SparkSession, name: str, manifest: Mapping[str, Any], output: str, lake: str) -> None:
    """Runs the job on the files of the manifest; writes `<output>/<table>/` for each table, and the lineage last."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    begun = time.monotonic()
    job = importlib.import_module(f"messaging.pipeline.jobs.{name}")
    begin, end, as_of = (_instant(manifest[key]) for key in ("from", "to", "as_of"))
    frames = {
        entity: frame(spark, ENTITIES[entity], columns, manifest["entities"][entity]["parts"], lake, begin, end)
        for entity, columns in job.INPUTS.items()
    }
    parameters = {"from": begin, "to": end, "as_of": as_of, "price_gb_month": manifest["price_gb_month"]}
    for table, result in job.run(frames, parameters).items():
        result.coalesce(1).write.parquet(f"{output}/{table}")
    facts = {
        **{key: manifest[key] for key in ("generation", "through_xid", "as_of", "from", "to", "code")},
        "job": name,
        "entities": {
            entity: {key: manifest["entities"][entity][key] for key in ("files", "rows", "bytes")}
            for entity in job.INPUTS
        },
        "spark": spark.conf.get("spark.master", ""),
        "seconds": {"Submitted job": round(time.monotonic() - begun, 2)},
    }
    spark.range(1).select(F.lit(json.dumps(facts)).alias("facts")).coalesce(1).write.parquet(f"{output}/{FACTS}")


def struct(entity: Entity, columns: Sequence[str] | None = None) -> StructType:
    """The Spark schema of these columns, in this order (None = all). Raises KeyError for one that does not exist."""
    known = {column.name: column.type for column in entity.columns}
    return StructType([StructField(name, TYPES[known[name]]) for name in columns or entity.column_names])


def of_files(spark: SparkSession, entity: Entity, paths: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """These files as they are, every version in them. Columns that are newer than a file are null."""
    return spark.read.schema(struct(entity, columns)).option("recursiveFileLookup", "true").parquet(*paths)


def latest(rows: DataFrame) -> DataFrame:
    """Of each id the version that was written last (highest `xid`)."""
    newest_first = Window.partitionBy("id").orderBy(F.col("xid").desc())
    return rows.withColumn("_version", F.row_number().over(newest_first)).where("_version = 1").drop("_version")


def frame(
    spark: SparkSession,
    entity: Entity,
    columns: Sequence[str],
    parts: Sequence[Mapping[str, Any]],
    lake: str,
    begin: datetime | None,
    end: datetime | None,
) -> DataFrame:
    """The rows of one entity, each once, restricted to the range.

    A part: {"files": [path below `lake`], "latest": several versions of a row may be in it, "from_xid": only rows from
    this transaction on (null = all)}.
    """
    read = list(columns)
    if entity.day:
        read += [name for name in ("id", "xid", entity.day) if name not in columns]
    found = []
    for part in parts:
        rows = of_files(spark, entity, [f"{lake}/{path}" for path in part["files"]], read)
        # The day of a row never changes, so this may come before the versions are told apart.
        if entity.day and begin:
            rows = rows.where(F.col(entity.day) >= F.lit(begin))
        if entity.day and end:
            rows = rows.where(F.col(entity.day) < F.lit(end))
        if part["from_xid"] is not None:
            rows = rows.where(F.col("xid") >= F.lit(part["from_xid"]))
        if part["latest"]:
            rows = latest(rows)
        found.append(rows.select(*columns))
    if not found:
        return literal(spark, [], struct(entity, columns))
    return reduce(DataFrame.unionByName, found)


def _instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


if __name__ == "__main__":
    raise SystemExit(main())
