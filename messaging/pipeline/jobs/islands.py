"""Sequences of numbers, and what is wrong with them, without sorting the messages.

Messages of a pair have a `position`, 1, 2, 3 ... in the order in which they were queued or accepted; the pair's lock
keeps it unique. Where numbers count up with positions, number - position stays the same. So one hash aggregation over
(pair, number - position, position / 64) with a bitmap of the positions in it holds all that there is to know, exactly,
in about a sixty-fourth of the rows. Only these are sorted.

A run is a stretch of positions whose numbers follow each other. Its first number, and the last one of the run before it
(in the order of the positions), say how it goes on:

    wrap    at most NEAR numbers forward over the end: 1 follows 999,999,999 (spec 1, 2.2.2 b)
    late    at most NEAR numbers back over the end: sent before the wrap, and came after it
    reset   number 1 of another message (2.2.2 c), unless the sequence goes on behind it as if it were not there; or
            number 2, where the pair's events say that a stored message came again as number 1 (decisions: acceptance)

Between two resets numbers are counted on over the wraps (`ext`) and sorted: a hole is a gap, an overlap a repeat, in
whatever order the messages came. That a pair's very first or last message is missing cannot be seen here
(reconciliation sees it), and nobody could tell a wrap from the loss of nearly a thousand million numbers.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

LAST = 999_999_999  # spec 1, 2.2.2
NEAR = 1_000_000
RESTARTED, OTHER_ROAD = "restarted", "by-other-road"  # rules of acceptance that move a sequence without a message
PROOF = 10  # repeated numbers whose messages are named, two for each


def chunk(position: Column) -> Column:
    """The chunk of 64 positions that a position lies in."""
    return F.shiftright(position, 6)


def bit(position: Column) -> Column:
    """The bit of a position in its chunk's bitmap."""
    return F.call_function("shiftleft", F.lit(1).cast("long"), position.bitwiseAND(F.lit(63).cast("long")).cast("int"))


def has(bits: Column, position: Column) -> Column:
    """Whether the position's bit is set in its chunk's bitmap."""
    return bits.bitwiseAND(bit(position)) != 0


def positions(bits: Column, chunk: Column) -> Column:
    """The positions of a bitmap as an array, in their order. Not for millions of rows."""
    return F.filter(F.sequence(chunk * 64, chunk * 64 + 63), lambda position: has(bits, position))


def runs(stretches: DataFrame) -> DataFrame:
    """Runs, from rows of (pair_id, offset, chunk) with `bits`, `first_at` and `last_at`. offset: number - position.

    Returns pair_id, position and number of the first message, `length`, first_at and last_at (of the chunk: not exact).
    """
    bits = F.col("bits")
    begins = bits.bitwiseAND(F.bitwise_not(F.shiftleft(bits, 1)))
    ends = bits.bitwiseAND(F.bitwise_not(F.shiftrightunsigned(bits, 1)))
    whole = F.array(F.struct(_lowest(begins).alias("begin"), _lowest(ends).alias("end")))
    several = F.arrays_zip(_all(begins).alias("begin"), _all(ends).alias("end"))
    found = stretches.select(
        "pair_id", "offset", "chunk", "first_at", "last_at",
        F.explode(F.when(F.bit_count(begins) == 1, whole).otherwise(several)).alias("run"),
    )  # fmt: skip
    first = F.col("chunk") * 64 + F.col("run.begin")
    return found.select(
        "pair_id",
        first.alias("position"),
        (first + F.col("offset")).alias("number"),
        (F.col("run.end") - F.col("run.begin") + 1).alias("length"),
        "first_at",
        "last_at",
    )


def _lowest(single: Column) -> Column:
    """The place of the only bit that is set: how many are below it."""
    below = F.when(single < 0, F.lit(63).cast("long")).otherwise(F.bit_count(single - 1).cast("long"))
    return F.when(single == 0, F.lit(None).cast("long")).otherwise(below)


def _all(bits: Column) -> Column:
    return F.filter(
        F.sequence(F.lit(0).cast("long"), F.lit(63).cast("long")), lambda place: bits.bitwiseAND(bit(place)) != 0
    )


def unwrapped(runs: DataFrame, moved: DataFrame) -> DataFrame:
    """The runs with epoch (resets counted), `ext` (numbers counted on over wraps) and what was there before each.

    `moved`: one row a pair with `moves`, an array of (at, rule): events of RESTARTED and OTHER_ROAD. Rarely any.
    """
    order = Window.partitionBy("pair_id").orderBy("position")
    last = F.col("number") + F.col("length") - 1
    found = runs.withColumns(
        {
            "before": F.lag(last).over(order),
            "before_at": F.lag("first_at").over(order),
            "before_position": F.lag(F.col("position") + F.col("length") - 1).over(order),
            "following": F.when(F.col("length") > 1, F.col("number") + 1).otherwise(F.lead("number").over(order)),
        }
    )
    number, before = F.col("number"), F.col("before")
    found = found.join(F.broadcast(moved), "pair_id", "left")
    between = F.filter(
        F.col("moves"), lambda move: (move["at"] >= F.col("before_at")) & (move["at"] <= F.col("last_at"))
    )
    moves = F.when(F.col("moves").isNotNull() & (number != before + 1), between)
    restarted = F.coalesce(F.exists(moves, lambda move: move["rule"] == RESTARTED), F.lit(False))
    others = F.size(F.filter(moves, lambda move: move["rule"] == OTHER_ROAD))
    wraps = (number < before) & (number - before + LAST <= NEAR)
    late = (number > before) & (before - number + LAST <= NEAR)
    goes_on = (F.col("following") == before + 1) & (before > 1)
    begins_again = (number == 1) & ~wraps & ~F.coalesce(goes_on, F.lit(False))
    reset = begins_again | ((number == 2) & (before != 1) & restarted)
    lap = F.when(wraps, 1).when(late, -1).otherwise(0)
    found = found.withColumns(
        {
            "reset": F.coalesce(reset, F.lit(False)),
            "lap": F.coalesce(lap, F.lit(0)).cast("long"),
            "others": F.greatest(F.coalesce(others, F.lit(0)), F.lit(0)).cast("long"),
        }
    ).drop("moves", "before_at", "following")
    found = found.withColumns(
        {
            "epoch": F.sum(F.col("reset").cast("long")).over(order),
            "ext": F.col("number") + F.lit(LAST).cast("long") * F.sum("lap").over(order),
        }
    )
    return found.drop("lap")


def steps(unwrapped: DataFrame) -> DataFrame:
    """What is not a plain count upwards: one row each.

    kind: gap, repeat, reset, wrap; pair_id; first_number, last_number, count; `proof`: positions of the messages that
    show it; position: where the run begins that showed it; `until`: of a gap, the number that came instead (its `ext`),
    and `ext` the first that is missing.
    """
    order = Window.partitionBy("pair_id", "epoch").orderBy("ext", "position")
    above = F.max(F.struct((F.col("ext") + F.col("length") - 1).alias("ext"), "position", "length"))
    found = unwrapped.withColumn("top", above.over(order.rowsBetween(Window.unboundedPreceding, -1)))
    ext, position, top = F.col("ext"), F.col("position"), F.col("top.ext")
    top_position = F.col("top.position") + F.col("top.length") - 1
    missing = ext - top - 1 - F.col("others")
    twice = F.when(top.isNotNull(), F.least(ext + F.col("length") - 1, top) - ext + 1)
    back = top_position - (top - ext)  # where the first of the repeated numbers was before
    shown = F.least(twice, F.lit(PROOF).cast("long")) - 1
    found = found.withColumn(
        "found",
        F.filter(
            F.array(
                F.when(missing > 0, _step("gap", number(top + 1), number(ext - 1), missing,
                                          F.array(top_position, position), top + 1, ext)),
                F.when(twice > 0, _step("repeat", number(ext), number(ext + twice - 1), twice,
                                        F.concat(F.sequence(back, back + shown),
                                                 F.sequence(position, position + shown)))),
                F.when(F.col("reset"), _step("reset", F.col("before"), F.col("number"), F.lit(1),
                                             F.array(F.col("before_position"), position))),
                F.when(_lap(ext) > _lap(top), _step("wrap", number(top), number(ext), _lap(ext) - _lap(top),
                                                    F.array(top_position, position))),
            ),
            lambda step: step.isNotNull(),
        ),
    )  # fmt: skip
    odd = (missing > 0) | (twice > 0) | F.col("reset") | (_lap(ext) > _lap(top))
    return found.where(odd).select("pair_id", "position", F.inline("found"))


def _step(
    kind: str, first: Column, last: Column, count: Column, proof: Column, ext: Column | None = None,
    until: Column | None = None,
) -> Column:  # fmt: skip
    none = F.lit(None).cast("long")
    return F.struct(
        F.lit(kind).alias("kind"),
        first.alias("first_number"),
        last.alias("last_number"),
        count.cast("long").alias("count"),
        proof.alias("proof"),
        (none if ext is None else ext).alias("ext"),
        (none if until is None else until).alias("until"),
    )


def number(ext: Column) -> Column:
    """The sequence number of an `ext`."""
    return F.pmod(ext - 1, F.lit(LAST).cast("long")) + 1


def _lap(ext: Column) -> Column:
    return F.floor((ext - 1) / LAST)


# --- Whether deliveries and accepted messages belong together, from bitmaps of their positions (see `islands`).
#
# A delivery has the position of its message, so for each trigger, pair and chunk of 64 positions a bitmap and the XOR
# of the hashed message keys say what a join of all deliveries with all messages would say: a trigger takes whole
# services, so its bitmap is the union of those of the services that it takes, and its XOR theirs. Chunks where that
# is not so, and those with more deliveries than positions, are looked at row by row.

OPEN = ("waiting", "running")


def delivered(deliveries: DataFrame) -> DataFrame:
    """First deliveries (no resubmissions, no firings of joins), summed by trigger, pair and chunk."""
    rows = first_deliveries(deliveries)
    return rows.groupBy(
        F.xxhash64("trigger_id").alias("trigger_key"), "pair_id", chunk(F.col("position")).alias("chunk")
    ).agg(
        F.bit_or(bit(F.col("position"))).alias("bits"),
        F.bit_xor(F.xxhash64("message_pk")).alias("keys"),
        F.count(F.lit(1)).alias("rows"),
    )


def first_deliveries(deliveries: DataFrame) -> DataFrame:
    """Deliveries that acceptance made."""
    return deliveries.where(F.col("resubmission_of").isNull() & F.col("join_id").isNull())


def suspicious(delivered: DataFrame, accepted: DataFrame) -> DataFrame:
    """Chunks (pair_id, chunk) in which some trigger's deliveries are not simply those of whole services.

    `accepted`: inbound messages by pair_id, service (a hash of service and action) and chunk, with `bits` and `keys`.
    """
    services = accepted.select("pair_id", "chunk", F.col("bits").alias("its_bits"), F.col("keys").alias("its_keys"))
    taken = F.col("its_bits").bitwiseAND(F.col("bits")) != 0
    found = (
        delivered.join(services, ["pair_id", "chunk"], "left")
        .groupBy("pair_id", "chunk", "trigger_key")
        .agg(
            F.any_value("bits").alias("bits"),
            F.any_value("keys").alias("keys"),
            F.any_value("rows").alias("rows"),
            F.bit_or(F.when(taken, F.col("its_bits"))).alias("its_bits"),
            F.bit_xor(F.when(taken, F.col("its_keys"))).alias("its_keys"),
        )
    )
    alike = F.col("bits").eqNullSafe(F.col("its_bits")) & F.col("keys").eqNullSafe(F.col("its_keys"))
    odd = ~alike | (F.bit_count("bits") != F.col("rows"))
    return found.where(odd).select("pair_id", "chunk").distinct()


def undelivered(accepted: DataFrame, delivered: DataFrame) -> DataFrame:
    """Accepted messages that no trigger got, although messages of their service before and after them were delivered.

    Returns pair_id, position, `service` and `stretch`: those without a delivered one between them have it in common.
    Where a service has never been delivered, not yet, or not any more, there was no trigger for it: nothing is said.
    """
    by_any = delivered.groupBy("pair_id", "chunk").agg(F.bit_or("bits").alias("given"))
    order = Window.partitionBy("pair_id", "service").orderBy("chunk")
    given = F.col("bits").bitwiseAND(F.coalesce("given", F.lit(0).cast("long")))
    found = accepted.join(by_any, ["pair_id", "chunk"], "left").select(
        "pair_id", "service", "chunk",
        given.alias("given"),
        F.col("bits").bitwiseAND(F.bitwise_not(given)).alias("missing"),
    )  # fmt: skip
    count = F.bit_count("given").cast("long")
    found = found.withColumns(
        {
            "so_far": F.sum(count).over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow)) - count,
            "in_all": F.sum(count).over(Window.partitionBy("pair_id", "service")),
        }
    ).where((F.col("missing") != 0) & (F.col("in_all") > 0))
    found = found.withColumn("position", F.explode(positions(F.col("missing"), F.col("chunk"))))
    stretch = F.col("so_far") + F.bit_count(F.col("given").bitwiseAND(_below(F.col("position"))))
    found = found.withColumn("stretch", stretch).where((F.col("stretch") > 0) & (F.col("stretch") < F.col("in_all")))
    return found.select("pair_id", "position", "service", "stretch")


def _below(position: Column) -> Column:
    """A bitmap of all positions of its chunk before a position."""
    place = position.bitwiseAND(F.lit(63).cast("long")).cast("int")
    return F.when(place == 0, F.lit(0).cast("long")).otherwise(
        F.call_function("shiftrightunsigned", F.lit(-1).cast("long"), 64 - place)
    )
