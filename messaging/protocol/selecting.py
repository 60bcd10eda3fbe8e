"""Where a path leads in a document: XPath in XML, a path in JSON, an element of a segment in EDI, a column of CSV.

XML is matched without regard to namespaces, so that a path cannot miss an element because of a prefix. All
here are pure functions of bytes.

Bytes as text: by the charset that the content type names, else by what they look like. Nothing raises.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from email.message import Message as MimeHeaders
from typing import Any, NamedTuple

from lxml import etree

from messaging.protocol import json_text

# A document must be read as a whole to be looked into.
MAX_BYTES = 8 * 1024 * 1024

_SEPARATORS = (",", ";", "\t", "|")
# What may stand before a document's first sign: byte order marks, blanks, zeros of wide characters.
_BEFORE = b"\xef\xbb\xbf\xff\xfe\x00" + b" \t\r\n\v\f"
_BLANKS = " \t\r\n\x00\x1a\ufeff"
_TAG = re.compile(r"[A-Z0-9]{2,3}", re.ASCII)
_DOCTYPE = re.compile(rb"<!DOCTYPE", re.IGNORECASE)
_JSON_STEP = re.compile(r"\.\.?(?:[^.\[\]\s]+|\*)|\[(?:[0-9]{1,9}|\*|'[^']*'|\"[^\"]*\")\]")
_EDI = re.compile(r"([A-Z][A-Z0-9]{1,2})\+([0-9]{1,3})(?::([0-9]{1,3}))?", re.ASCII)


class Unreadable(ValueError):
    """The document cannot be read, so that nothing in it can be found; the message says why."""


def kind_of(content: bytes, content_type: str) -> str:
    """What a document is: `edi`, `xml`, `json`, `csv` or "", by how it begins, else by its content type."""
    media = content_type.partition(";")[0].strip().lower()
    start = content.lstrip(_BEFORE)[:4]
    if start.startswith((b"UNA", b"UNB", b"UNG", b"UNH", b"ISA")):
        return "edi"
    if media.endswith(("/xml", "+xml")) or start.startswith(b"<"):
        return "xml"
    if media.endswith(("/json", "+json")) or start.startswith((b"{", b"[")):
        return "json"
    if media in ("text/csv", "application/csv"):
        return "csv"
    return "edi" if media.startswith("application/edi") else ""


def check(kind: str, path: str) -> None:
    """Raises ValueError, with what to write instead, for a path that is none of its kind."""
    if kind == "xml":
        _check_xpath(path)
    elif kind == "json":
        _json_steps(path)
    elif kind == "csv":
        if not path.strip() or path == "0":
            raise ValueError("the heading of a column, such as Invoice number, or its number, such as 3")
    elif segment(path) is None:
        raise ValueError("a segment and the number of one of its elements, such as NAD+4, or NAD+4:2 for a component")


def segment(path: str) -> tuple[str, int, int] | None:
    """(segment, element, component) of a path of EDI; component 0: the whole element. None: it is no such path."""
    match = _EDI.fullmatch(path)
    return (match[1], int(match[2]), int(match[3] or 0)) if match else None


def first_text(content: bytes, kind: str, path: str) -> str:
    """The first value that is not empty where the path leads; "" for none, and in what cannot be read."""
    if len(content) > MAX_BYTES:
        return ""
    try:
        return next((found for found in _TEXTS[kind](content, path) if found.strip()), "")
    except Unreadable:
        return ""


def xml(content: bytes) -> etree._Element:
    """The root of an XML document. Raises Unreadable."""
    if _DOCTYPE.search(content.replace(b"\0", b"")):
        raise Unreadable("it has a DOCTYPE")
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)
    try:
        return etree.fromstring(content.lstrip(b" \t\r\n\v\f"), parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Unreadable("it is not well-formed XML") from error


def xpath(root: etree._Element, path: str) -> list[Any]:
    """What an XPath finds in a copy without namespaces. Raises Unreadable."""
    try:
        found = root.xpath(path)
    except etree.XPathError as error:
        raise Unreadable(f"the rule {path} failed: {error}") from error
    return found if isinstance(found, list) else []


def _xml_texts(content: bytes, path: str) -> Iterator[str]:
    plain = xml(content)
    for element in plain.iter():
        without_namespaces(element)
    for one in xpath(plain, path):
        yield str(one.xpath("string()")) if isinstance(one, etree._Element) else str(one)


def without_namespaces(element: etree._Element) -> dict[str, list[str]]:
    """Strips the names of a copy; returns its attributes' local names with the names that they have in the original.

    Of attributes that differ by their namespaces alone the copy has one, which stands for all.
    """
    if not isinstance(element.tag, str):
        return {}
    element.tag = etree.QName(element).localname
    names: dict[str, list[str]] = {}
    for name, value in list(element.attrib.items()):
        local = etree.QName(str(name)).localname
        names.setdefault(local, []).append(str(name))
        if local != name:
            del element.attrib[name]
            element.attrib[local] = value
    return names


def _check_xpath(path: str) -> None:
    try:
        found = etree.XPath(path)(etree.Element("a"))
    except etree.XPathError as error:
        raise ValueError(f"an XPath such as //Customer/IBAN, with names without prefixes ({error})") from error
    if not isinstance(found, list):
        raise ValueError("an XPath that leads to elements, attributes or texts, not to a number or a truth")


def json_document(content: bytes) -> str:
    """The text of a JSON document. Raises Unreadable."""
    try:
        return json_text.read(content)
    except json_text.BadJson as error:
        raise Unreadable("it is not valid JSON") from error


def _json_texts(content: bytes, path: str) -> Iterator[str]:
    text = json_document(content)
    for begin, end in json_spans(text, [path]):
        written = text[begin:end]
        if written[0] == '"':
            yield json_text.string(written)
        elif written[0] not in "{[" and written != "null":
            yield written


def json_spans(text: str, paths: Sequence[str]) -> Iterator[tuple[int, int]]:
    """(begin, end) of each value that a path leads to, in order; of one within another, the outer. Raises Unreadable.

    Of names that come twice, every member counts.
    """
    try:
        yield from _spans(text, tuple((_json_steps(path), 0) for path in paths))
    except json_text.BadJson as error:
        raise Unreadable("it is not valid JSON") from error


def json_begin(text: str, path: Sequence[str | int]) -> int:
    """Where the value begins to which names and numbers of items lead, in a text that is valid JSON; 0: nowhere."""
    if not path:
        return len(text) - len(text.lstrip("\ufeff \t\r\n"))
    steps = tuple(
        _Step(False, False, "" if isinstance(one, int) else one, one if isinstance(one, int) else -1) for one in path
    )
    return next((begin for begin, _ in _spans(text, ((steps, 0),))), 0)


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


def _spans(text: str, ways: _Ways) -> Iterator[tuple[int, int]]:
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


class Syntax(NamedTuple):
    """The separators that an interchange is written with, and its text from its first segment on."""

    component: str
    element: str
    release: str
    terminator: str
    head: str
    rest: str


def edi(text: str) -> Syntax:
    """How an EDI document is written. Raises Unreadable."""
    body = text.lstrip("\ufeff \t\r\n\x00")
    if body.startswith("ISA"):
        if len(body) < 106:
            raise Unreadable("its ISA segment is cut off")
        return Syntax(body[104], body[3], "", body[105], "", body)
    told = body.startswith("UNA")
    if told and len(body) < 9:
        raise Unreadable("its UNA segment is cut off")
    characters = body[3:9] if told else ":+.? '"
    head, rest = (body[:9], body[9:]) if told else ("", body)
    return Syntax(characters[0], characters[1], characters[3].strip(), characters[5], head, rest)


def segments(syntax: Syntax) -> Iterator[tuple[str, list[str]]]:
    """(tag, elements) of each segment; what is blank has the tag "". Raises Unreadable."""
    begun = False
    for one in split(syntax.rest, syntax.terminator, syntax.release):
        parts = split(one, syntax.element, syntax.release)
        # The tag; behind it may stand where the segment is nested (ISO 9735, explicit indication).
        tag = split(parts[0].strip(_BLANKS), syntax.component, syntax.release)[0]
        blank = not tag and len(parts) == 1
        if not blank and (_TAG.fullmatch(tag) is None or (tag in ("UNA", "ISA") and begun)):
            raise Unreadable("its segments cannot be told apart")
        yield tag, parts
        begun = True


def _edi_texts(content: bytes, path: str) -> Iterator[str]:
    wanted = segment(path)
    if wanted is None:
        return
    tag, number, place = wanted
    syntax = edi(content.decode("utf-8", "replace") if not content.isascii() else content.decode("ascii"))
    for own, parts in segments(syntax):
        if own != tag or number >= len(parts):
            continue
        inner = split(parts[number], syntax.component, syntax.release)
        found = parts[number] if place == 0 else inner[place - 1] if place <= len(inner) else ""
        yield re.sub(re.escape(syntax.release) + "(.)", r"\1", found) if syntax.release else found


def split(text: str, sign: str, release: str) -> list[str]:
    """The parts between separators; a released separator belongs to its part."""
    parts = text.split(sign)
    if not release or release not in text:
        return parts
    found, begun = [], ""
    for part in parts:
        begun += part
        if (len(part) - len(part.rstrip(release))) % 2:
            begun += sign
        else:
            found.append(begun)
            begun = ""
    return [*found, begun.removesuffix(sign)] if begun else found


def _csv_texts(content: bytes, path: str) -> Iterator[str]:
    """The values of a column: of the one with this heading, else of the one with this number; the first row is the
    headings.
    """
    text = text_of(content, "")
    if text is None:
        raise Unreadable("it is not text")
    separator = max(_SEPARATORS, key=text.partition("\n")[0].count)
    try:
        rows = csv.reader(io.StringIO(text.lstrip("\ufeff"), newline=""), delimiter=separator)
        names = [name.strip().casefold() for name in next(rows, [])]
        number = int(path) - 1 if path.isascii() and path.isdigit() else -1
        place = names.index(path.strip().casefold()) if path.strip().casefold() in names else number
        if 0 <= place < len(names):
            yield from (row[place] for row in rows if place < len(row))
    except csv.Error as error:
        raise Unreadable("it is not CSV") from error


_TEXTS: dict[str, Callable[[bytes, str], Iterator[str]]] = {
    "xml": _xml_texts,
    "json": _json_texts,
    "edi": _edi_texts,
    "csv": _csv_texts,
}


def decoded(content: bytes, content_type: str) -> str:
    """The text, whatever it takes: what is not text at all is read as Latin-1."""
    return text_of(content, content_type) or content.decode("latin-1")


def text_of(content: bytes, content_type: str) -> str | None:
    """Decoded by the named charset, else UTF-8, else Latin-1; None for what looks like no text."""
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    start = content[:4096]
    if not wide and sum(byte < 32 and byte not in b"\t\n\r" for byte in start) * 10 > len(start):
        return None
    charset = _charset(content_type) or ("utf-16" if wide else "utf-8")
    for name in (charset, "utf-8"):
        try:
            return content.decode(name)
        except (UnicodeDecodeError, LookupError):
            pass
        # Only the end may be in the middle of a character.
        for drop in (1, 2, 3):
            try:
                return content[:-drop].decode(name)
            except (UnicodeDecodeError, LookupError):
                continue
    return content.decode("latin-1")


def _charset(content_type: str) -> str:
    headers = MimeHeaders()
    headers["Content-Type"] = content_type.replace("\r", " ").replace("\n", " ")
    return headers.get_content_charset() or ""
