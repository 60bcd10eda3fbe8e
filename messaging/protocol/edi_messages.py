"""Whether an interchange is whole, and its messages have the segments that were agreed: EDIFACT and X12.

Envelopes: ISO 9735-1 (UNB to UNZ, UNG to UNE, UNH to UNT) and X12.5 (ISA to IEA, GS to GE, ST to SE): what is opened is
closed, with the same reference and the right count. Segments: a list as segment tables of directories have it.
Pure functions of texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from messaging.protocol import selecting

MOST_DEEP = 20


class Fault(NamedTuple):
    """What of a document does not fit, where. Lines and columns count from 1; 0: the whole, or not known."""

    line: int
    column: int
    path: str
    text: str

    def __str__(self) -> str:
        places = [f"line {self.line}"] if self.line else []
        places += [f"column {self.column}"] if self.column else []
        places += [self.path] if self.path else []
        return f"{', '.join(places)}: {self.text}" if places else self.text


@dataclass(frozen=True, slots=True)
class Item:
    """A segment, or with `items` a group of them that begins with the first of these. `needs`: elements, and components
    of elements, that have to be there: (number, component), component 0 = any of it.
    """

    tag: str
    least: int
    most: int
    needs: tuple[tuple[int, int], ...] = ()
    items: tuple[Item, ...] = ()

    @property
    def begins(self) -> str:
        """The tag by which it is known that it is there."""
        return self.items[0].begins if self.items else self.tag


@dataclass(frozen=True, slots=True)
class Guide:
    """The segments of one type of message. `type` "": of any, and only envelopes are looked at."""

    type: str
    version: tuple[str, ...]
    items: tuple[Item, ...]

    def __str__(self) -> str:
        return " ".join((self.type, *self.version))


_LINE = re.compile(
    r"(?P<blanks> *)(?:[0-9]{4,5} +)?(?P<tag>[A-Z][A-Z0-9]{1,9}) +(?P<status>[MCO]) +(?P<most>[1-9][0-9]{0,5})"
    r"(?: +needs(?P<needs>(?: +[0-9]{1,3}(?::[0-9]{1,3})?)+))?",
    re.ASCII,
)
_TYPE = re.compile(r"[A-Z0-9]{3,6}( +[A-Z0-9]{1,12}){0,3}", re.ASCII)


def read(text: str) -> Guide:
    """A guide as people write it. Raises ValueError: "line 3: ...".

    The first line names type, version and release (`INVOIC D 96A`, `850 004010`), or is `*`. Each other line is a
    segment or a group with its status (M, C or O) and how often it may come: `DTM M 35`. The lines of a group are
    indented deeper. `needs 1 2:1`: elements and components that must not be empty. # begins a comment.
    """
    lines = [(number, line.partition("#")[0].rstrip()) for number, line in enumerate(text.splitlines(), start=1)]
    lines = [(number, line.expandtabs(4)) for number, line in lines if line]
    if not lines:
        raise ValueError("line 1: name the type of message, such as INVOIC D 96A, or * for envelopes only.")
    number, first = lines.pop(0)
    if first == "*":
        if lines:
            raise ValueError(f"line {lines[0][0]}: * stands for messages of any type, so no segments can be listed.")
        return Guide("", (), ())
    if not _TYPE.fullmatch(first):
        raise ValueError(f"line {number}: name the type of message, such as INVOIC D 96A, or * for envelopes only.")
    kind, *version = first.split()
    rows: list[tuple[int, int, Item]] = []
    for number, line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number}: write a segment as DTM M 35, or BGM M 1 needs 1 2.")
        needs = tuple(
            (int(element), int(component or 0))
            for element, _, component in (one.partition(":") for one in (match["needs"] or "").split())
        )
        rows.append(
            (number, len(match["blanks"]), Item(match["tag"], match["status"] == "M", int(match["most"]), needs))
        )
    return Guide(kind, tuple(version), _items(rows, 0))


def _items(rows: list[tuple[int, int, Item]], depth: int) -> tuple[Item, ...]:
    """Takes the lines of one depth, with what is below them."""
    if depth > MOST_DEEP:
        raise ValueError(f"line {rows[0][0]}: groups are nested too deeply.")
    found: list[Item] = []
    blanks = rows[0][1] if rows else 0
    while rows and rows[0][1] == blanks:
        number, _, item = rows.pop(0)
        below: tuple[Item, ...] = ()
        if rows and rows[0][1] > blanks:
            below = _items(rows, depth + 1)
            if item.needs:
                raise ValueError(f"line {number}: {item.tag} is a group: its segments have elements, it has none.")
        elif len(item.tag) > 3:
            raise ValueError(f"line {number}: {item.tag} is a group: its segments follow, indented deeper.")
        found.append(Item(item.tag, item.least, item.most, item.needs, below))
    if rows and (depth == 0 or rows[0][1] > blanks):
        raise ValueError(f"line {rows[0][0]}: it is indented like no line above it.")
    return tuple(found)


class _Segment(NamedTuple):
    number: int
    tag: str
    elements: list[str]
    line: int
    column: int

    def element(self, number: int) -> str:
        return self.elements[number].strip() if number < len(self.elements) else ""

    def fault(self, text: str) -> Fault:
        return Fault(self.line, self.column, f"segment {self.number} ({self.tag})", text)


class _Envelope(NamedTuple):
    """`begins` to `ends`, with the elements of their references and of the count; `counts`: what that counts."""

    begins: str
    ends: str
    reference: int
    counts: str


_SEGMENTS = "segments"
# From the outermost to the innermost. The end says the count first, then the reference.
_EDIFACT = (_Envelope("UNB", "UNZ", 5, ""), _Envelope("UNG", "UNE", 5, "UNH"), _Envelope("UNH", "UNT", 1, _SEGMENTS))
_X12 = (_Envelope("ISA", "IEA", 13, "GS"), _Envelope("GS", "GE", 6, "ST"), _Envelope("ST", "SE", 2, _SEGMENTS))


def faults(text: str, guide: Guide) -> Iterator[Fault]:
    """What of an interchange does not fit, in its order. Raises selecting.Unreadable."""
    syntax = selecting.edi(text)
    found = list(_read(text, syntax))
    if not found:
        yield Fault(1, 1, "", "It has no segments.")
        return
    envelopes = _X12 if found[0].tag == "ISA" else _EDIFACT
    yield from _of_envelopes(found, envelopes)
    message = envelopes[-1]
    begun: int | None = None
    release = ""
    for at, segment in enumerate(found):
        if segment.tag == "GS":
            release = segment.element(8)
        if segment.tag == message.begins:
            begun = at
        elif segment.tag == message.ends and begun is not None:
            yield from _of_message(found[begun : at + 1], guide, syntax, release)
            begun = None


def _read(text: str, syntax: selecting.Syntax) -> Iterator[_Segment]:
    at = len(text) - len(syntax.rest)
    line, column, seen = 1, 1, 0
    number = 0
    parts = selecting.split(syntax.rest, syntax.terminator, syntax.release)
    for written, (tag, elements) in zip(parts, selecting.segments(syntax), strict=True):
        begin = at + len(written) - len(written.lstrip())
        at += len(written) + 1
        if not tag:
            continue
        number += 1
        between = text[seen:begin]
        breaks = between.count("\n")
        line += breaks
        column = len(between) - between.rfind("\n") if breaks else column + len(between)
        seen = begin
        yield _Segment(number, tag, elements, line, column)


def _of_envelopes(found: Sequence[_Segment], envelopes: Sequence[_Envelope]) -> Iterator[Fault]:
    outermost = envelopes[0]
    if found[0].tag != outermost.begins:
        yield found[0].fault(f"An interchange begins with {outermost.begins}.")
    by_begin = {one.begins: one for one in envelopes}
    by_end = {one.ends: one for one in envelopes}
    opened: list[tuple[_Envelope, _Segment, dict[str, int]]] = []
    for segment in found:
        if segment.tag in by_begin:
            for _, _, counted in opened:
                counted[segment.tag] = counted.get(segment.tag, 0) + 1
            opened.append((by_begin[segment.tag], segment, {}))
        elif segment.tag in by_end:
            if not opened or opened[-1][0].ends != segment.tag:
                wanted = opened[-1][0].ends if opened else outermost.begins
                yield segment.fault(f"{segment.tag} closes what is not open; {wanted} is expected.")
                return
            yield from _closed(*opened.pop(), segment)
        elif not opened or opened[-1][0] is not envelopes[-1]:
            yield segment.fault(f"It stands outside a message: {envelopes[-1].begins} is expected before it.")
            return
    for envelope, segment, _ in reversed(opened):
        yield segment.fault(f"{segment.tag} is not closed: {envelope.ends} is missing.")


def _closed(envelope: _Envelope, begun: _Segment, counted: Mapping[str, int], end: _Segment) -> Iterator[Fault]:
    if envelope.counts == _SEGMENTS:
        number = end.number - begun.number + 1
    else:
        # An interchange counts its groups if it has some, else its messages (ISO 9735-1, 0036).
        number = counted.get(envelope.counts or "UNG", 0) or counted.get("UNH", 0)
    said = end.element(1)
    if not (said.isascii() and said.isdigit() and int(said) == number):
        what = "segments" if envelope.counts == _SEGMENTS else "groups or messages"
        yield end.fault(f"Its count of {what} is not right: it has to be {number}.")
    if end.element(2) != begun.element(envelope.reference):
        yield end.fault(f"Its reference is not that of its {begun.tag}.")


def _of_message(message: Sequence[_Segment], guide: Guide, syntax: selecting.Syntax, release: str) -> Iterator[Fault]:
    if not guide.type:
        return
    begin = message[0]
    if begin.tag == "UNH":
        named = selecting.split(begin.element(2), syntax.component, syntax.release)
    else:
        named = [begin.element(1), release]
    if named[: 1 + len(guide.version)] != [guide.type, *guide.version]:
        yield begin.fault(f"Its type or version is not {guide}.")
        return
    within = message[1:-1]
    at, found = _match(guide.items, within, 0, message[-1], syntax)
    yield from found
    if at < len(within):
        yield within[at].fault("It is not expected here.")


def _match(
    items: Sequence[Item], segments: Sequence[_Segment], at: int, end: _Segment, syntax: selecting.Syntax
) -> tuple[int, list[Fault]]:
    """(where what the items allow ends, faults on the way)."""
    found: list[Fault] = []
    for item in items:
        count = 0
        while count < item.most and at < len(segments) and segments[at].tag == item.begins:
            if item.items:
                at, inner = _match(item.items, segments, at, end, syntax)
                found += inner
            else:
                found += _lacking(item, segments[at], syntax)
                at += 1
            count += 1
        if count < item.least:
            found.append((segments[at] if at < len(segments) else end).fault(f"{item.tag} is missing before it."))
    return at, found


def _lacking(item: Item, segment: _Segment, syntax: selecting.Syntax) -> Iterator[Fault]:
    for number, component in item.needs:
        text = segment.element(number)
        if component:
            inner = selecting.split(text, syntax.component, syntax.release)
            text = inner[component - 1].strip() if component <= len(inner) else ""
        if not text.replace(syntax.component, "").strip():
            name = f"{number}:{component}" if component else str(number)
            yield segment.fault(f"Its element {name} is empty.")
