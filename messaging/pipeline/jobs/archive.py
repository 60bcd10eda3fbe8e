"""Archive: reads files of the archive back and computes from their octets what must be equal to the store's records.

Pure: DataFrame -> DataFrame. What the results are compared with is the caller's.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
)

_ROW = StructType([StructField("xid", LongType())])
# What is read of a file: the columns that the check needs.
FILE = StructType(
    [
        StructField("id", StringType()),
        StructField("xid", LongType()),
        StructField("digest", StringType()),
        StructField("wire_frame", BinaryType()),
        StructField(
            "payloads",
            ArrayType(
                StructType(
                    [
                        StructField("number", LongType()),
                        StructField("size", LongType()),
                        StructField("sha256", StringType()),
                        StructField("content", BinaryType()),
                        StructField("in_frame", BooleanType()),
                    ]
                )
            ),
        ),
        *(StructField(name, ArrayType(_ROW)) for name in ("transmissions", "signals", "deliveries", "events")),
    ]
)

# The frame (`messaging.storage.pack_frame`): number of literals (2 bytes), their lengths (4 bytes each), their octets.
_COUNT = "CAST(conv(hex(substring(wire_frame, 1, 2)), 16, 10) AS INT)"
_LENGTHS = (
    "transform(sequence(0, literals - 1), i -> CAST(conv(hex(substring(wire_frame, 3 + 4 * i, 4)), 16, 10) AS INT))"
)
# The body is literal, payload, literal, payload ... literal; payloads that lie in the frame are no slices of it.
_SLICES = (
    "transform(filter(array_sort(payloads, (a, b) -> CAST(a.number - b.number AS INT)), p -> NOT p.in_frame),"
    " p -> p.content)"
)
_BODY = """
aggregate(
    sequence(0, literals - 1),
    named_struct('at', 3 + 4 * literals, 'octets', CAST('' AS BINARY)),
    (done, i) -> named_struct(
        'at', done.at + lengths[i],
        'octets', concat(
            done.octets, substring(wire_frame, done.at, lengths[i]), coalesce(get(slices, i), CAST('' AS BINARY))
        )
    ),
    done -> done.octets
)
"""
_XIDS = ", ".join(
    f"coalesce(array_max({name}.xid), 0)" for name in ("transmissions", "signals", "deliveries", "events")
)
_SIZES = " + ".join(f"size({name})" for name in ("payloads", "transmissions", "signals", "deliveries", "events"))


def verify(files: DataFrame) -> DataFrame:
    """One row a message: file, id, contents, payload_bytes, wrong, body_digest, written, entries.

    `files` has the columns of `FILE`. `contents`: the digests that stand beside its payloads. `wrong`: numbers of
    payloads whose octets have not the digest or the size that stands beside them. `body_digest`: SHA-256 of the body
    that frame and payloads make; "" for a message without a frame, null where they do not fit.
    `written` and `entries`: the highest transaction and the number of all rows of the message.
    """
    framed = F.expr("wire_frame IS NOT NULL")
    return (
        files.withColumn("file", F.input_file_name())
        .withColumn("literals", F.when(framed, F.expr(_COUNT)))
        .withColumn("lengths", F.when(F.expr("literals > 0"), F.expr(_LENGTHS)))
        .withColumn("slices", F.expr(_SLICES))
        .withColumn(
            "body_digest",
            F.when(~framed, F.lit("")).when(
                F.expr("literals > 0 AND size(slices) = literals - 1"), F.sha2(F.expr(_BODY), 256)
            ),
        )
        .select(
            "file",
            "id",
            F.expr("transform(payloads, p -> p.sha256)").alias("contents"),
            F.expr("aggregate(payloads, 0L, (sum, p) -> sum + length(p.content))").alias("payload_bytes"),
            F.expr(
                "transform(filter(payloads, p -> NOT (sha2(p.content, 256) <=> p.sha256"
                " AND CAST(length(p.content) AS BIGINT) <=> p.size)), p -> p.number)"
            ).alias("wrong"),
            "body_digest",
            F.expr(f"greatest(xid, {_XIDS})").alias("written"),
            F.expr(f"CAST(1 + {_SIZES} AS BIGINT)").alias("entries"),
        )
    )
