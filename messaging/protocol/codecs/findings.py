"""Collects what a reader finds wrong in a message that can nevertheless be answered."""

from __future__ import annotations

from messaging.protocol.codecs.ebxml_lexical import CONTROL
from messaging.protocol.codecs.xml import XML_SPACE
from messaging.protocol.errors import Defect, ErrorCode
from messaging.protocol.limits import Limits

_MAX_DEFECTS = 50  # enough to tell what is wrong with a message; a hostile one could cause thousands


class Findings:
    """The defects of one message, in the order in which they were found."""

    __slots__ = ("defects", "limits")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.defects: list[Defect] = []

    def add(self, code: ErrorCode, description: str, location: str = "") -> None:
        if len(self.defects) < _MAX_DEFECTS:
            self.defects.append(Defect(code, description, location))

    def identifier(self, value: str, location: str) -> str:
        """`value` as it may be stored and written again; a defect if that is not what came."""
        limit = self.limits.identifier
        if len(value) <= limit and CONTROL.search(value) is None:
            return value
        if len(value) > limit:
            self.add(ErrorCode.VALUE_NOT_RECOGNIZED, f"{len(value)} characters; {limit} allowed", location)
        else:
            self.add(ErrorCode.VALUE_NOT_RECOGNIZED, "line breaks and control characters are not allowed", location)
        return CONTROL.sub(" ", value[:limit]).strip(XML_SPACE)
