"""The frame of a message: its octets without the payloads, so that both together are the message again."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from messaging.protocol.envelope import Sought


def pack_frame(literals: Sequence[bytes]) -> bytes:
    """The literals between the payloads as one value: their number, their lengths (big-endian), their bytes."""
    lengths = [len(literal) for literal in literals]
    return struct.pack(f">H{len(lengths)}I", len(lengths), *lengths) + b"".join(literals)


def unpack_frame(frame: bytes | memoryview) -> tuple[bytes, ...]:
    """The literals that `pack_frame` was given."""
    data = bytes(frame)
    (count,) = struct.unpack_from(">H", data)
    lengths = struct.unpack_from(f">{count}I", data, 2)
    literals, at = [], 2 + 4 * count
    for length in lengths:
        literals.append(data[at : at + length])
        at += length
    return tuple(literals)


def cut_frame(body: bytes | Sought, slices: Sequence[tuple[int, int]]) -> bytes:
    """The frame of a received body: what is left when the payload slices (offset, length; ascending) are taken out."""
    literals, at = [], 0
    for offset, length in slices:
        literals.append(body[at:offset])
        at = offset + length
    literals.append(body[at:])
    return pack_frame(literals)
