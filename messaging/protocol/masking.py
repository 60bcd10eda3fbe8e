"""Covers parts of a document: the same document with other text where a rule says so. Pure functions of bytes.

XML is matched without regard to namespaces, so that a rule cannot miss an element because of a prefix. What cannot be
read cannot be covered: `cover` raises then, and nobody who must not see the parts is shown any of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from lxml import etree

from messaging.protocol import json_text

COVER = "‹covered›"
# A document must be read as a whole to be covered.
MAX_BYTES = 8 * 1024 * 1024

_DOCTYPE = re.compile(rb"<!DOCTYPE", re.IGNORECASE)
_JSON_STEP = re.compile(r"\.\.?(?:[^.\[\]\s]+|\*)|\[(?:[0-9]{1,9}|\*|'[^']*'|\"[^\"]*\")\]")
_EDI = re.compile(r"([A-Z][A-Z0-9]{1,2})\+([0-9]{1,3})(?::([0-9]{1,3}))?", re.ASCII)


class Uncoverable(ValueError):
    """The document cannot be read, so that nothing in it can be found and covered."""


def kind_of(content: bytes, content_type: str) -> str:
    """What a document is: `edi`, `xml`, `json` or "", by how it begins, else by its content type."""
    media = content_type.partition(";")[0].strip().lower()
    start = content[:200].lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n\x00")
    if start.startswith((b"UNA", b"UNB+", b"ISA")):
        return "edi"
    if media.endswith(("/xml", "+xml")) or start.startswith(b"<"):
        return "xml"
    if media.endswith(("/json", "+json")) or start.startswith((b"{", b"[")):
        return "json"
    return ""


def check(kind: str, path: str) -> None:
    """Raises ValueError, with what to write instead, for a path that is none of its kind."""
    if kind == "xml":
        _check_xpath(path)
    elif kind == "json":
        _json_steps(path)
    elif _EDI.fullmatch(path) is None:
        raise ValueError("a segment and the number of one of its elements, such as NAD+4, or NAD+4:2 for a component")


def cover(content: bytes, kind: str, paths: Sequence[str], *, text: str) -> tuple[bytes, int]:
    """(the document in UTF-8 with everything covered that one of the paths names, how many places that were).

    `text`: the decoded document, which EDI is read from. Raises Uncoverable.
    """
    if len(content) > MAX_BYTES:
        raise Uncoverable(f"it is larger than {MAX_BYTES // 1024**2} MiB")
    return _KINDS[kind](content, paths, text)


def _xml(content: bytes, paths: Sequence[str], text: str) -> tuple[bytes, int]:
    if _DOCTYPE.search(content.replace(b"\0", b"")):
        raise Uncoverable("it has a DOCTYPE")
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)
    try:
        root, plain = etree.fromstring(content.lstrip(), parser), etree.fromstring(content.lstrip(), parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Uncoverable("it is not well-formed XML") from error
    # The same elements without their namespaces, in the same order.
    own = dict(zip(plain.iter(), root.iter(), strict=True))
    names = {element: _without_namespaces(element) for element in list(own)}
    count = 0
    for path in paths:
        try:
            found = plain.xpath(path)
        except etree.XPathError as error:
            raise Uncoverable(f"the rule {path} failed: {error}") from error
        for one in found if isinstance(found, list) else []:
            count += _cover_node(one, own, names)
    return etree.tostring(root.getroottree(), encoding="UTF-8", xml_declaration=True), count


def _without_namespaces(element: etree._Element) -> dict[str, str]:
    """Strips the names of a copy; returns its attributes' local names with the names that they have in the original."""
    if not isinstance(element.tag, str):
        return {}
    element.tag = etree.QName(element).localname
    names: dict[str, str] = {}
    for name, value in list(element.attrib.items()):
        local = etree.QName(str(name)).localname
        names[local] = str(name)
        if local != name:
            del element.attrib[name]
            element.attrib[local] = value
    return names


def _cover_node(one: Any, own: dict[Any, Any], names: dict[Any, dict[str, str]]) -> int:
    if isinstance(one, etree._Element):
        for element in own[one].iter():
            if isinstance(element.tag, str):
                for name in element.attrib:
                    element.attrib[name] = COVER
            element.text = COVER if (element.text or "").strip() or len(element) == 0 else element.text
            if element is not own[one] and (element.tail or "").strip():
                element.tail = COVER
        return 1
    parent = one.getparent() if hasattr(one, "getparent") else None
    if parent is None:
        return 0
    element = own[parent]
    if one.is_attribute:
        element.attrib[names[parent].get(one.attrname, one.attrname)] = COVER
    elif one.is_tail:
        element.tail = COVER
    else:
        element.text = COVER
    return 1


def _check_xpath(path: str) -> None:
    try:
        found = etree.XPath(path)(etree.Element("a"))
    except etree.XPathError as error:
        raise ValueError(f"an XPath such as //Customer/IBAN, with names without prefixes ({error})") from error
    if not isinstance(found, list):
        raise ValueError("an XPath that leads to elements, attributes or texts, not to a number or a truth")


def _json(content: bytes, paths: Sequence[str], text: str) -> tuple[bytes, int]:
    """Only what is covered is written anew: all else stays as the document has it."""
    try:
        document = json_text.read(content)
        spans = list(_json_spans(document, tuple((_json_steps(path), 0) for path in paths)))
    except json_text.BadJson as error:
        raise Uncoverable("it is not valid JSON") from error
    made, at = [], 0
    for begin, end in spans:
        made += [document[at:begin], json.dumps(COVER, ensure_ascii=False)]
        at = end
    return "".join([*made, document[at:]]).encode(), len(spans)


class _Step(NamedTuple):
    """One step of a path. `number`: the item of a list that it names, -1 for none."""

    deep: bool
    every: bool
    name: str
    number: int


# How far paths have come at a value: (the steps of a path, how many of them lead here).
_Ways = tuple[tuple[tuple[_Step, ...], int], ...]


def _json_steps(path: str) -> tuple[_Step, ...]:
    steps = _JSON_STEP.findall(path[1:])
    if not path.startswith("$") or not steps or "".join(steps) != path[1:]:
        raise ValueError("a path such as $.customer.iban, $.lines[*].price or $..iban")
    return tuple(_json_step(step) for step in steps)


def _json_step(step: str) -> _Step:
    word = step[1:-1] if step.startswith("[") else step.lstrip(".")
    number = int(word) if word.isdecimal() and len(word) < 10 else -1
    return _Step(step.startswith(".."), word == "*", word.strip("'\""), number)


def _json_spans(text: str, ways: _Ways) -> Iterator[tuple[int, int]]:
    """(begin, end) of each value that a path leads to, in order; of one within another, the outer. Raises BadJson.

    Of names that come twice, every member counts.
    """
    around: list[tuple[_Ways, int]] = []  # of each open object and array: the ways to it, how many items it had
    covered, since = -1, 0  # how deep the value lies that is being covered, and where it begins
    name = ""
    for kind, begin, end in json_text.tokens(text):
        if kind == "name":
            name = json_text.string(text[begin:end]) if covered < 0 and around[-1][0] else ""
        elif kind in json_text.CLOSING:
            around.pop()
            if len(around) == covered:
                yield since, end
                covered = -1
        elif kind == "value" or kind in json_text.OPENING:
            here = ways if not around else ()
            found = False
            if around and covered < 0 and around[-1][0]:
                above, number = around[-1]
                here, found = _json_below(above, name, number)
                if number >= 0:
                    around[-1] = (above, number + 1)
            if kind == "value":
                if found:
                    yield begin, end
                continue
            if found:
                covered, since = len(around), begin
            around.append((here, 0 if kind == "[" else -1))


def _json_below(ways: _Ways, name: str, number: int) -> tuple[_Ways, bool]:
    """(the ways to a member, or to the item with that number, whether one of them ends there)."""
    below: dict[tuple[tuple[_Step, ...], int], None] = {}
    found = False
    for steps, come in ways:
        step = steps[come]
        if step.deep:
            below[steps, come] = None
        if step.every or (step.name == name if number < 0 else step.number == number):
            if come + 1 == len(steps):
                found = True
            else:
                below[steps, come + 1] = None
    return tuple(below), found


def _edi(content: bytes, paths: Sequence[str], text: str) -> tuple[bytes, int]:
    body = text.lstrip("﻿ \t\r\n\x00")
    if body.startswith("ISA"):
        if len(body) < 106:
            raise Uncoverable("its ISA segment is cut off")
        element, component, release, terminator = body[3], body[104], "", body[105]
    else:
        signs = body[3:9] if body.startswith("UNA") and len(body) >= 9 else ":+.? '"
        component, element, release, terminator = signs[0], signs[1], signs[3].strip(), signs[5]
    wanted = [(match[1], int(match[2]), int(match[3] or 0)) for path in paths if (match := _EDI.fullmatch(path))]
    head, rest = (body[:9], body[9:]) if body.startswith("UNA") else ("", body)
    count, made = 0, []
    for segment in split(rest, terminator, release):
        parts = split(segment, element, release)
        for tag, number, place in wanted:
            if parts[0].strip() != tag or number >= len(parts) or not parts[number]:
                continue
            inner = split(parts[number], component, release)
            if place == 0:
                parts[number] = COVER
            elif place <= len(inner) and inner[place - 1]:
                inner[place - 1] = COVER
                parts[number] = component.join(inner)
            else:
                continue
            count += 1
        made.append(element.join(parts))
    return (head + terminator.join(made)).encode(), count


def split(text: str, sign: str, release: str) -> list[str]:
    """The parts between separators; a released separator belongs to its part."""
    found, start, at = [], 0, 0
    while at < len(text):
        if release and text[at] == release:
            at += 2
            continue
        if text[at] == sign:
            found.append(text[start:at])
            start = at + 1
        at += 1
    return [*found, text[start:]]


_KINDS: dict[str, Callable[[bytes, Sequence[str], str], tuple[bytes, int]]] = {"xml": _xml, "json": _json, "edi": _edi}
