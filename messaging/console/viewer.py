"""Bytes as lines to look at: XML, EDIFACT, X12 and JSON set out, anything else as text or hex. Nothing is executed,
fetched or expanded, and the templates escape every token. Pure functions of bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import Message as MimeHeaders

from lxml import etree

MODES = (("pretty", "Pretty"), ("raw", "Raw"), ("hex", "Hex"))
# What a person scrolls through, and what a browser lays out at once.
TEXT_LIMIT = 256 * 1024
HEX_LIMIT = 32 * 1024

Token = tuple[str, str]  # (kind for the colour, text); kind "" = plain
Line = list[Token]

_CONTROL = {code: f"‹{code:02X}›" for code in (*range(32), 127) if code not in (9, 10, 13)}
_DOCTYPE = re.compile(rb"<!DOCTYPE", re.IGNORECASE)
_EDIFACT_TAGS = {
    "UNA": "separators",
    "UNB": "interchange header",
    "UNG": "group header",
    "UNH": "message header",
    "BGM": "beginning of message",
    "DTM": "date, time",
    "FTX": "free text",
    "RFF": "reference",
    "NAD": "name and address",
    "LOC": "place",
    "CTA": "contact",
    "COM": "communication",
    "TAX": "duty, tax",
    "CUX": "currencies",
    "PAT": "payment terms",
    "PAI": "payment instructions",
    "TDT": "transport",
    "TOD": "terms of delivery",
    "LIN": "line item",
    "PIA": "additional product id",
    "IMD": "item description",
    "QTY": "quantity",
    "PRI": "price",
    "MOA": "monetary amount",
    "ALC": "allowance or charge",
    "MEA": "measurements",
    "PAC": "package",
    "UNS": "section control",
    "CNT": "control total",
    "UNT": "message trailer",
    "UNE": "group trailer",
    "UNZ": "interchange trailer",
}
_X12_TAGS = {
    "ISA": "interchange header",
    "GS": "group header",
    "ST": "transaction set header",
    "SE": "transaction set trailer",
    "GE": "group trailer",
    "IEA": "interchange trailer",
}


@dataclass(frozen=True, slots=True)
class View:
    """`note` says what is not shown, and why. `kind`: what the bytes were taken for."""

    mode: str
    kind: str
    lines: list[Line]
    size: int
    note: str = ""


class _NotThat(Exception):
    """The bytes are not of the kind that was tried; the text says why it is not set out."""


def view(content: bytes, content_type: str, mode: str) -> View:
    """Lines for `mode` (pretty, raw, hex); pretty falls back to raw, and raw to hex for what is no text."""
    size = len(content)
    note = ""
    if mode not in ("raw", "hex"):
        kind, layout = _kind(content, content_type)
        if layout is not None and size <= TEXT_LIMIT:
            try:
                return View("pretty", kind, layout(content, content_type), size)
            except _NotThat as error:
                note = str(error)
        elif layout is not None:
            note = "It is too large to be set out."
        mode = "raw"
    if mode == "raw":
        text = _text(content[: TEXT_LIMIT + 4], content_type)
        if text is not None:
            shown = text if size <= TEXT_LIMIT else text[:TEXT_LIMIT]
            cut = f" The first {TEXT_LIMIT // 1024} KiB of {size:,} bytes are shown." if size > TEXT_LIMIT else ""
            return View("raw", _kind(content, content_type)[0], list(_raw_lines(shown)), size, (note + cut).strip())
        note = "These bytes are no text."
    cut = f" The first {HEX_LIMIT // 1024} KiB of {size:,} bytes are shown." if size > HEX_LIMIT else ""
    return View("hex", "Bytes", list(_hex_lines(content[:HEX_LIMIT])), size, (note + cut).strip())


Layout = Callable[[bytes, str], list[Line]]


def _kind(content: bytes, content_type: str) -> tuple[str, Layout | None]:
    media = content_type.partition(";")[0].strip().lower()
    start = content[:200].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"UNA", b"UNB+")):
        return "EDIFACT", _edifact
    if start.startswith(b"ISA") and len(content) > 106:
        return "X12", _x12
    if media.endswith(("/xml", "+xml")) or start.startswith((b"<?xml", b"<")):
        return "XML", _xml
    if media.endswith(("/json", "+json")) or start.startswith((b"{", b"[")):
        return "JSON", _json
    return "Text", None


def _text(content: bytes, content_type: str) -> str | None:
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


def _clean(text: str) -> str:
    """Control characters made visible, and the signs that turn the direction of reading."""
    return re.sub("[\u202a-\u202e\u2066-\u2069]", "\ufffd", text.translate(_CONTROL))


def _raw_lines(text: str) -> Iterator[Line]:
    for line in text.split("\n"):
        if line.endswith("\r"):
            yield [("", _clean(line[:-1].replace("\r", "‹CR›"))), ("mark", "‹CR›")]
        else:
            yield [("", _clean(line.replace("\r", "‹CR›")))]


def _hex_lines(content: bytes) -> Iterator[Line]:
    for offset in range(0, len(content), 16):
        row = content[offset : offset + 16]
        halves = " ".join(f"{byte:02x}" for byte in row[:8]), " ".join(f"{byte:02x}" for byte in row[8:])
        shown = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        yield [("mark", f"{offset:08x}  "), ("", f"{halves[0]:<23}  {halves[1]:<23}  "), ("value", shown)]


def _json(content: bytes, content_type: str) -> list[Line]:
    try:
        text = json.dumps(json.loads(content), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        raise _NotThat("It is not valid JSON, so it is shown as it is.") from error
    return [_json_line(line) for line in text.split("\n")]


_JSON_LINE = re.compile(r'(\s*)("(?:[^"\\]|\\.)*")(: )?(.*)', re.DOTALL)


def _json_line(line: str) -> Line:
    match = _JSON_LINE.fullmatch(line)
    if match is None:
        return [("", _clean(line))]
    space, text, colon, rest = match.groups()
    if colon:
        return [("", space), ("name", _clean(text)), ("mark", ": "), ("value", _clean(rest))]
    return [("", space), ("value", _clean(text)), ("mark", _clean(rest))]


def _edifact(content: bytes, content_type: str) -> list[Line]:
    text = (_text(content, content_type) or "").lstrip("\ufeff \t\r\n")
    separators = ":+.? '"
    if text.startswith("UNA") and len(text) >= 9:
        separators = text[3:9]
    release, terminator = separators[3], separators[5]
    lines: list[Line] = []
    body = text
    if text.startswith("UNA"):
        lines.append([("name", "UNA"), ("", _clean(text[3:9])), ("hint", _EDIFACT_TAGS["UNA"])])
        body = text[9:]
    for segment in _split(body, terminator, release if release != " " else ""):
        lines.append(_segment(segment, separators[1], terminator, _EDIFACT_TAGS))
    if not lines:
        raise _NotThat("No segments were found, so it is shown as it is.")
    return lines


def _x12(content: bytes, content_type: str) -> list[Line]:
    text = (_text(content, content_type) or "").lstrip("\ufeff \t\r\n")
    if len(text) < 106:
        raise _NotThat("Its ISA segment is cut off, so it is shown as it is.")
    element, terminator = text[3], text[105]
    return [_segment(segment, element, terminator, _X12_TAGS) for segment in _split(text, terminator, "")]


def _split(text: str, terminator: str, release: str) -> list[str]:
    """Segments without their terminator; a released terminator belongs to its segment."""
    found, start, at = [], 0, 0
    while at < len(text):
        if release and text[at] == release:
            at += 2
            continue
        if text[at] == terminator:
            found.append(text[start:at].strip("\r\n"))
            start = at + 1
        at += 1
    rest = text[start:].strip()
    return [*found, rest] if rest else found


def _segment(segment: str, element: str, terminator: str, hints: dict[str, str]) -> Line:
    tag, separator, rest = segment.partition(element)
    line: Line = [("name", _clean(tag)), ("mark", separator), ("", _clean(rest)), ("mark", _clean(terminator))]
    hint = hints.get(tag.strip())
    return [*line, ("hint", hint)] if hint else line


def _xml(content: bytes, content_type: str) -> list[Line]:
    # Looked for before parsing, so that no entity is ever defined.
    if _DOCTYPE.search(content.replace(b"\0", b"")):
        raise _NotThat("It has a DOCTYPE, so it is not parsed and shown as it is.")
    try:
        parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)
        root = etree.fromstring(content.lstrip(), parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise _NotThat("It is not well-formed XML, so it is shown as it is.") from error
    lines: list[Line] = []
    if declaration := re.match(r"\s*(<\?xml[^>]*\?>)", (_text(content, content_type) or "").lstrip("\ufeff")):
        lines.append([("mark", _clean(declaration[1]))])
    siblings = [*reversed(list(root.itersiblings(preceding=True))), root, *root.itersiblings()]
    for node in siblings:
        lines += _node(node, 0)
    return lines


def _node(node: etree._Element, depth: int) -> Iterator[Line]:
    space: Token = ("", "  " * depth)
    if not isinstance(node.tag, str):
        yield [space, ("hint", _clean(" ".join(etree.tostring(node, with_tail=False, encoding="unicode").split())))]
        return
    name = _name(node)
    opened: Line = [space, ("mark", "<"), ("name", name), *_attributes(node)]
    text = (node.text or "").strip()
    if len(node) == 0:
        if text:
            yield [*opened, ("mark", ">"), ("value", _escaped(text)), ("mark", f"</{name}>")]
        else:
            yield [*opened, ("mark", "/>")]
        return
    yield [*opened, ("mark", ">")]
    inside: Token = ("", "  " * (depth + 1))
    if text:
        yield [inside, ("value", _escaped(text))]
    for child in node:
        yield from _node(child, depth + 1)
        if child.tail and child.tail.strip():
            yield [inside, ("value", _escaped(child.tail.strip()))]
    yield [space, ("mark", f"</{name}>")]


def _name(node: etree._Element) -> str:
    local = etree.QName(node).localname
    return f"{node.prefix}:{local}" if node.prefix else local


def _attributes(node: etree._Element) -> Iterator[Token]:
    parent = node.getparent()
    known = parent.nsmap if parent is not None else {}
    for prefix, uri in sorted(node.nsmap.items(), key=lambda item: item[0] or ""):
        if known.get(prefix) != uri:
            yield from _attribute(f"xmlns:{prefix}" if prefix else "xmlns", uri)
    prefixes = {uri: prefix for prefix, uri in node.nsmap.items() if prefix}
    prefixes["http://www.w3.org/XML/1998/namespace"] = "xml"
    for key, value in node.attrib.items():
        name = etree.QName(str(key))
        prefix = prefixes.get(name.namespace or "")
        yield from _attribute(f"{prefix}:{name.localname}" if prefix else name.localname, str(value))


def _attribute(name: str, value: str) -> Iterator[Token]:
    quoted = _escaped(value).replace('"', "&quot;")
    yield ("", " ")
    yield ("attribute", _clean(name))
    yield ("mark", "=")
    yield ("value", f'"{quoted}"')


def _escaped(text: str) -> str:
    """As it has to be written in XML again; this is about what people read, the templates escape for HTML."""
    return _clean(text.replace("&", "&amp;").replace("<", "&lt;"))
