"""What the sender of one reliable message (spec 1, 2.1.4 and table 2-1) would have done under other parameters.

The record of a message says how the partner was then: `outage`: from the first attempt until the one that was answered;
`latency`: from an attempt that is answered to its acknowledgement; `failing`: attempts before the outage's end failed
on the transport (else they were taken and not answered); `lost_takes` and `sent_takes`: how long an attempt of either
kind keeps the sender busy. All in whole microseconds; an outage or latency that is null never ended.

The schedule of `messaging.protocol.sender` is periodic, so where it meets the end of the outage, and how many repeats
go out while the answer is on its way, are divisions. A test holds this against the machine itself, step by step.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

PARAMETERS = ("timeout", "retries", "retry_interval", "transport_retries", "transport_retry_interval")
RESULTS = ("replayed_attempts", "needless", "gave_up", "micros")
_SECOND = 1_000_000
_WITHOUT_END = 2**40


def replay(frame: DataFrame) -> DataFrame:
    """Adds `RESULTS` to messages with the columns above and `PARAMETERS` (long; seconds or counts).

    replayed_attempts: transmissions until the acknowledgement or the suspension. needless: of these, those after the
    one that was answered. gave_up: 1 when the pair was suspended before the acknowledgement came. micros: from the
    first attempt to the acknowledgement; null when it gave up. At one and the same instant an answer comes before a
    timer, and an attempt at the very end of the outage is answered.
    """
    zero = F.lit(0).cast("long")
    timeout, retry, transport_wait = (
        F.col(name) * _SECOND for name in ("timeout", "retry_interval", "transport_retry_interval")
    )
    retries, transport_retries = F.col("retries"), F.col("transport_retries")
    outage, latency, failing = F.col("outage"), F.col("latency"), F.col("failing")
    lost, sent = F.col("lost_takes"), F.col("sent_takes")

    # On the transport: each retry is a run of transport attempts, then RetryInterval (2.5.4).
    gap = lost + transport_wait
    run = transport_retries * gap
    period = run + lost + retry
    # Handed over and not answered: Timeout after the first, RetryInterval after each of the others.
    pause = lost + retry

    frame = frame.select(
        "*",
        F.when(outage <= 0, zero)
        .when(failing, F.greatest(zero, _up(outage - run, period)))
        .otherwise(F.greatest(zero + 1, _up(outage - timeout + retry, pause)))
        .alias("_turn"),
    )
    turn = F.col("_turn")
    frame = frame.select(
        "*",
        F.when(failing & (outage > 0), F.greatest(zero, _up(outage - turn * period, gap)))
        .otherwise(zero)
        .alias("_within"),
    )
    within = F.col("_within")
    start = (
        F.when(turn + within == 0, zero)
        .when(failing, turn * period + within * gap)
        .otherwise(turn * lost + timeout + (turn - 1) * retry)
    )
    before = F.when(failing, turn * (transport_retries + 1) + within).otherwise(turn)
    wait = F.when(turn == 0, timeout).otherwise(retry)
    late = latency - sent - wait
    repeats = F.when(late <= 0, zero).otherwise(_up(late, sent + retry))
    left = retries - turn
    never = outage.isNull() | latency.isNull() | (turn > retries)
    in_vain = F.when(failing, (retries + 1) * (transport_retries + 1)).otherwise(retries + 1)
    return frame.select(
        *[name for name in frame.columns if not name.startswith("_")],
        F.when(never, in_vain).otherwise(before + 1 + F.least(repeats, left)).alias("replayed_attempts"),
        F.when(never, zero).otherwise(F.least(repeats, left)).alias("needless"),
        F.when(never | (repeats > left), zero + 1).otherwise(zero).alias("gave_up"),
        F.when(~never & (repeats <= left), start + latency).alias("micros"),
    )


def _up(dividend: Column, divisor: Column) -> Column:
    """Whole division, rounded up; by nothing, as good as without end (a message is repeated at once, for ever)."""
    step = F.greatest(divisor, F.lit(1).cast("long"))
    up = F.call_function("div", dividend, step) + F.when((dividend > 0) & (dividend % step != 0), 1).otherwise(0)
    return F.when((divisor == 0) & (dividend > 0), F.lit(_WITHOUT_END)).otherwise(up)
