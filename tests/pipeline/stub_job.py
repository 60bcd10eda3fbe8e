"""A job in the audit's place: what it gives is what its parameters say. Registered by tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

INPUTS: Mapping[str, tuple[str, ...]] = {"pairs": ("id", "code")}
OUTPUTS: Mapping[str, Any] = {}
HOOK: list[Callable[[], None]] = []

_FINDINGS = (
    "string kind, boolean violation, string pair_id, string pair, string partner, long first_number,"
    " long last_number, long count, array<string> message_ids, timestamp at, string detail"
)
_PAIRS = (
    "string pair_id, string pair, string direction, string partner, long messages, long first_number,"
    " long last_number, timestamp first_at, timestamp last_at, long missing, long repeats, long resets, long wraps,"
    " long bridged"
)


def _empty(columns: str) -> DataFrame:
    fields = [field.split() for field in columns.split(", ")]
    return SparkSession.active().range(0).select(*(F.lit(None).cast(kind).alias(name) for kind, name in fields))


def findings(count: int) -> DataFrame:
    """So many gaps, each with its proof."""
    known = {
        "kind": F.lit("gap"),
        "violation": F.lit(True),
        "first_number": F.col("id"),
        "count": F.lit(1).cast("long"),
        "message_ids": F.array(F.concat(F.lit("m"), F.col("id").cast("string"))),
        "at": F.lit("2026-03-01 12:00:00").cast("timestamp"),
    }
    fields = [field.split() for field in _FINDINGS.split(", ")]
    rows = SparkSession.active().range(count)
    return rows.select(*(known.get(name, F.lit(None)).cast(kind).alias(name) for kind, name in fields))


def run(inputs: Mapping[str, DataFrame], parameters: Mapping[str, Any]) -> dict[str, DataFrame]:
    """Three findings."""
    for hook in HOOK:
        hook()
    return {"findings": findings(3), "pairs": _empty(_PAIRS)}


def slow(inputs: Mapping[str, DataFrame], parameters: Mapping[str, Any]) -> dict[str, DataFrame]:
    """Findings that take for ever."""
    endless = SparkSession.active().range(10**13).agg(F.sum(F.sqrt("id")).alias("s"))
    return {"findings": findings(3).crossJoin(endless).where("s < 0").drop("s"), "pairs": _empty(_PAIRS)}
