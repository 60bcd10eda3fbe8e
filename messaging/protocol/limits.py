"""Bounds on what we read from strangers. One frozen value, passed in, so that tests can make it small."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds; sizes in bytes."""

    body: int = 50 * 1024 * 1024  # one transport entity
    header_document: int = 1024 * 1024  # the ebXMLHeader part
    parts: int = 200  # MIME parts of one message
    part_headers: int = 16 * 1024  # header block of one MIME part
    xml_depth: int = 32  # nesting of elements
    xml_nodes: int = 20_000  # elements of one header document
    identifier: int = 512  # MessageId, ConversationId, URIs, party ids
    routing_headers: int = 10  # hops (wire-ebxml 1.8)


DEFAULT_LIMITS = Limits()
