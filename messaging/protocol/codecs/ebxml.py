"""The codec of the ebXML profile: bytes to Envelope and back (spec 1; wire-ebxml 1 and 2).

    decode   tolerant reader    encode   strict writer
    acknowledgement, error_message, append_hop, forwarded   what follows from a received message

It is the only place that knows how a message of this profile looks on the wire.
"""

from __future__ import annotations

from messaging.protocol.codecs.ebxml_answers import (
    acknowledgement,
    append_hop,
    error_message,
    forwarded,
    may_answer_with_error,
)
from messaging.protocol.codecs.ebxml_lexical import (
    HEADER_MEDIA_TYPE,
    NAMESPACE,
    UNKNOWN_TIME,
    VERSION,
    format_timestamp,
    normalize_uri,
    parse_timestamp,
)
from messaging.protocol.codecs.ebxml_reader import decode
from messaging.protocol.codecs.ebxml_writer import encode

__all__ = [
    "HEADER_MEDIA_TYPE",
    "NAMESPACE",
    "UNKNOWN_TIME",
    "VERSION",
    "acknowledgement",
    "append_hop",
    "decode",
    "encode",
    "error_message",
    "format_timestamp",
    "forwarded",
    "may_answer_with_error",
    "normalize_uri",
    "parse_timestamp",
]
