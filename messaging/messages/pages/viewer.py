"""Bytes as lines to look at: XML, EDIFACT, X12 and JSON set out, anything else as text or hex. Nothing is executed,
fetched or expanded, and the templates escape every token. Pure functions of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.utils.translation import gettext as _
from lxml import etree

from messaging.protocol import json_text
from messaging.protocol.masking import COVER
from messaging.protocol.selecting import split, text_of
from rmhub.language import gettext_lazy, number

MODES = (("pretty", gettext_lazy("Pretty")), ("raw", gettext_lazy("Raw")), ("hex", gettext_lazy("Hex")))
# What a person scrolls through, and what a browser lays out at once.
TEXT_LIMIT = 256 * 1024
HEX_LIMIT = 32 * 1024
MOST_FOUND = 200

Token = tuple[str, str]  # (kind for the colour, text); kind "" = plain
Line = list[Token]

_CONTROL = {code: f"‹{code:02X}›" for code in (*range(32), 127) if code not in (9, 10, 13)}
_DOCTYPE = re.compile(rb"<!DOCTYPE", re.IGNORECASE)
_EDIFACT_TAGS = {
    "UNA": gettext_lazy("separators"),
    "UNB": gettext_lazy("interchange header"),
    "UNG": gettext_lazy("group header"),
    "UNH": gettext_lazy("message header"),
    "BGM": gettext_lazy("beginning of message"),
    "DTM": gettext_lazy("date, time"),
    "FTX": gettext_lazy("free text"),
    "RFF": gettext_lazy("reference"),
    "NAD": gettext_lazy("name and address"),
    "LOC": gettext_lazy("place"),
    "CTA": gettext_lazy("contact"),
    "COM": gettext_lazy("communication"),
    "TAX": gettext_lazy("duty, tax"),
    "CUX": gettext_lazy("currencies"),
    "PAT": gettext_lazy("payment terms"),
    "PAI": gettext_lazy("payment instructions"),
    "TDT": gettext_lazy("transport"),
    "TOD": gettext_lazy("terms of delivery"),
    "LIN": gettext_lazy("line item"),
    "PIA": gettext_lazy("additional product id"),
    "IMD": gettext_lazy("item description"),
    "QTY": gettext_lazy("quantity"),
    "PRI": gettext_lazy("price"),
    "MOA": gettext_lazy("monetary amount"),
    "ALC": gettext_lazy("allowance or charge"),
    "MEA": gettext_lazy("measurements"),
    "PAC": gettext_lazy("package"),
    "UNS": gettext_lazy("section control"),
    "CNT": gettext_lazy("control total"),
    "UNT": gettext_lazy("message trailer"),
    "UNE": gettext_lazy("group trailer"),
    "UNZ": gettext_lazy("interchange trailer"),
}
_X12_TAGS = {
    "ISA": gettext_lazy("interchange header"),
    "GS": gettext_lazy("group header"),
    "ST": gettext_lazy("transaction set header"),
    "SE": gettext_lazy("transaction set trailer"),
    "GE": gettext_lazy("group trailer"),
    "IEA": gettext_lazy("interchange trailer"),
}


@dataclass(frozen=True, slots=True)
class View:
    """`note` says what is not shown, and why. `kind`: what the bytes were taken for.

    Of large ones a part is shown, from byte `begin` to `end`; `before` and `after` are where the neighbours begin.
    `found`: the offsets at which `sought` stands in the whole, at most `MOST_FOUND`; None when nothing is sought.
    """

    mode: str
    kind: str
    lines: list[Line]
    size: int
    note: str = ""
    begin: int = 0
    end: int = 0
    before: int | None = None
    after: int | None = None
    sought: str = ""
    found: list[int] | None = None

    @property
    def part(self) -> str:
        """`0.25 of 48.20 MiB`; "" when all of it is shown."""
        if self.begin == 0 and self.end >= self.size:
            return ""
        unit, name = (2**20, "MiB") if self.size >= 2**20 else (2**10, "KiB")
        sizes = (self.end - self.begin, self.size, self.begin)
        part, whole, begin = (number(round(size / unit, 2), 2) for size in sizes)
        if not self.begin:
            return _("{part} of {whole} {unit}").format(part=part, whole=whole, unit=name)
        return _("{part} of {whole} {unit}, from {begin}").format(part=part, whole=whole, unit=name, begin=begin)


class _NotThat(Exception):
    """The bytes are not of the kind that was tried; the text says why it is not set out."""


def view(content: bytes, content_type: str, mode: str, *, offset: int = 0, sought: str = "") -> View:
    """Lines for `mode` (pretty, raw, hex); pretty falls back to raw, and raw to hex for what is not text.

    Above `TEXT_LIMIT` (hex: `HEX_LIMIT`) a part from `offset` on, cut between characters; such a part is never set
    out, for it is not the document. `sought` is marked where it is shown, and looked for in all of it.
    """
    size, note = len(content), ""
    found = _occurrences(content, content_type, sought) if sought else None
    if mode not in ("raw", "hex"):
        kind, layout = _kind(content, content_type)
        if layout is not None and size <= TEXT_LIMIT:
            try:
                lines = _marked(layout(content, content_type), sought)
            except _NotThat as error:
                note = str(error)
            else:
                return View("pretty", kind, lines, size, end=size, sought=sought, found=found)
        elif layout is not None:
            note = _("It is too large to be formatted.")
        mode = "raw"
    if mode == "raw" and text_of(content[:4096], content_type) is not None:
        begin, end = _part(content, content_type, offset)
        text = text_of(content[begin:end], content_type) or ""
        lines = _marked(list(_raw_lines(text)), sought)
        return View(
            "raw",
            _kind(content, content_type)[0],
            lines,
            size,
            note,
            begin,
            end,
            *_beside(begin, end, size, TEXT_LIMIT),
            sought,
            found,
        )
    if mode == "raw":
        note = _("These bytes are not text.")
    begin = min(max(offset, 0), max(size - 1, 0)) // 16 * 16
    end = min(begin + HEX_LIMIT, size)
    lines = list(_hex_lines(content[begin:end], begin))
    return View("hex", _("Bytes"), lines, size, note, begin, end, *_beside(begin, end, size, HEX_LIMIT), sought, found)


def _part(content: bytes, content_type: str, offset: int) -> tuple[int, int]:
    """(begin, end) of the part of a text from about `offset` on, between characters."""
    size = len(content)
    begin = min(max(offset, 0), max(size - 1, 0))
    end = min(begin + TEXT_LIMIT, size)
    if _is_wide(content, content_type):
        return begin // 2 * 2, end if end == size else end // 2 * 2
    # The bytes that go on with a character of UTF-8; in other charsets of one byte nothing is lost by a shift.
    begin = _character(content, begin)
    return begin, end if end == size else _character(content, end)


def _character(content: bytes, at: int) -> int:
    """The nearest place at or before `at` at which a character of UTF-8 begins."""
    for back in range(4):
        if at - back <= 0 or at - back >= len(content) or content[at - back] & 0xC0 != 0x80:
            return max(at - back, 0)
    return at


def _is_wide(content: bytes, content_type: str) -> bool:
    return content.startswith((b"\xff\xfe", b"\xfe\xff")) or "utf-16" in content_type.lower()


def _beside(begin: int, end: int, size: int, limit: int) -> tuple[int | None, int | None]:
    return (max(0, begin - limit) if begin > 0 else None), (end if end < size else None)


def _occurrences(content: bytes, content_type: str, sought: str) -> list[int]:
    """Where a text stands, without regard to case for ASCII letters, as offsets of bytes."""
    coding = "utf-16-be" if content.startswith(b"\xfe\xff") else "utf-16-le"
    needle = sought.encode(coding if _is_wide(content, content_type) else "utf-8", "replace")
    found = []
    for match in re.finditer(re.escape(needle), content, re.IGNORECASE):
        found.append(match.start())
        if len(found) == MOST_FOUND:
            break
    return found


def _marked(lines: list[Line], sought: str) -> list[Line]:
    """The same lines, with what was sought, and what is covered, as tokens of their own."""
    if not sought and not any(COVER in text for line in lines for __, text in line):
        return lines
    patterns = [f"(?P<covered>{re.escape(COVER)})"]
    if sought:
        patterns.append(f"(?P<found>{re.escape(sought)})")
    pattern = re.compile("|".join(patterns), re.IGNORECASE)
    return [[token for kind, text in line for token in _pieces(kind, text, pattern)] for line in lines]


def _pieces(kind: str, text: str, pattern: re.Pattern[str]) -> Iterator[Token]:
    at = 0
    for match in pattern.finditer(text):
        if match.start() > at:
            yield kind, text[at : match.start()]
        yield match.lastgroup or "", match[0]
        at = match.end()
    if at < len(text) or not text:
        yield kind, text[at:]


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
    return _("Text"), None


def _clean(text: str) -> str:
    """Control characters made visible, and the characters that turn the direction of reading."""
    return re.sub("[\u202a-\u202e\u2066-\u2069]", "\ufffd", text.translate(_CONTROL))


def _raw_lines(text: str) -> Iterator[Line]:
    for line in text.split("\n"):
        if line.endswith("\r"):
            yield [("", _clean(line[:-1].replace("\r", "‹CR›"))), ("mark", "‹CR›")]
        else:
            yield [("", _clean(line.replace("\r", "‹CR›")))]


def _hex_lines(content: bytes, begin: int = 0) -> Iterator[Line]:
    for offset in range(0, len(content), 16):
        row = content[offset : offset + 16]
        halves = " ".join(f"{byte:02x}" for byte in row[:8]), " ".join(f"{byte:02x}" for byte in row[8:])
        shown = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        yield [("mark", f"{begin + offset:08x}  "), ("", f"{halves[0]:<23}  {halves[1]:<23}  "), ("value", shown)]


def _json(content: bytes, content_type: str) -> list[Line]:
    try:
        text = json_text.set_out(json_text.read(content))
    except json_text.BadJson as error:
        raise _NotThat(_("{error}, so it is shown as it is.").format(error=error)) from error
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
    text = (text_of(content, content_type) or "").lstrip("\ufeff \t\r\n")
    separators = ":+.? '"
    if text.startswith("UNA") and len(text) >= 9:
        separators = text[3:9]
    release, terminator = separators[3], separators[5]
    lines: list[Line] = []
    body = text
    if text.startswith("UNA"):
        lines.append([("name", "UNA"), ("", _clean(text[3:9])), ("hint", str(_EDIFACT_TAGS["UNA"]))])
        body = text[9:]
    for segment in _split(body, terminator, release if release != " " else ""):
        lines.append(_segment(segment, separators[1], terminator, _EDIFACT_TAGS))
    if not lines:
        raise _NotThat(_("No segments were found, so it is shown as it is."))
    return lines


def _x12(content: bytes, content_type: str) -> list[Line]:
    text = (text_of(content, content_type) or "").lstrip("\ufeff \t\r\n")
    if len(text) < 106:
        raise _NotThat(_("Its ISA segment is cut off, so it is shown as it is."))
    element, terminator = text[3], text[105]
    return [_segment(segment, element, terminator, _X12_TAGS) for segment in _split(text, terminator, "")]


def _split(text: str, terminator: str, release: str) -> list[str]:
    """Segments without their terminator; a released terminator belongs to its segment."""
    *found, rest = split(text, terminator, release)
    return [*(one.strip("\r\n") for one in found), *([rest.strip()] if rest.strip() else [])]


def _segment(segment: str, element: str, terminator: str, hints: dict[str, str]) -> Line:
    tag, separator, rest = segment.partition(element)
    line: Line = [("name", _clean(tag)), ("mark", separator), ("", _clean(rest)), ("mark", _clean(terminator))]
    hint = hints.get(tag.strip())
    return [*line, ("hint", str(hint))] if hint else line


def _xml(content: bytes, content_type: str) -> list[Line]:
    # Looked for before parsing, so that no entity is ever defined.
    if _DOCTYPE.search(content.replace(b"\0", b"")):
        raise _NotThat(_("It has a DOCTYPE, so it is not parsed and shown as it is."))
    try:
        parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)
        root = etree.fromstring(content.lstrip(), parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise _NotThat(_("It is not well-formed XML, so it is shown as it is.")) from error
    lines: list[Line] = []
    if declaration := re.match(r"\s*(<\?xml[^>]*\?>)", (text_of(content, content_type) or "").lstrip("\ufeff")):
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
