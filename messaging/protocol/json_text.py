"""JSON as it is written: its tokens, and the same tokens set out in lines.

Nothing passes through numbers or objects of this language: what a reader sees is what the document holds, with `1.10`,
numbers of any length and names that come twice. No recursion and no step back, so that the time grows with the length
of the text. Pure functions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

# Deeper documents are read, but not set out: their lines would be longer than the documents.
MAX_DEPTH = 200

Token = tuple[str, int, int]  # (kind, begin, end)
OPENING = frozenset("{[")
CLOSING = frozenset("}]")

# RFC 8259, and the NaN and Infinity that many programs write.
_TOKEN = re.compile(
    r"[ \t\n\r]*+(?:"
    r'(?P<string>"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})[^"\\\x00-\x1f]*+)*+")'
    r"|(?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|-?Infinity)"
    r"|(?P<word>true|false|null|NaN)"
    r"|(?P<sign>[{}\[\],:]))"
)
_SPACE = " \t\n\r"
_VALUE = frozenset({"string", "number", "word", *OPENING})
# What may come where.
_EXPECTED: Mapping[str, frozenset[str]] = {
    "value": _VALUE,
    "first item": _VALUE | {"]"},
    "more items": frozenset(",]"),
    "first name": frozenset({"string", "}"}),
    "name": frozenset({"string"}),
    "colon": frozenset(":"),
    "more members": frozenset(",}"),
    "end": frozenset(),
}
_FIRST = {"{": "first name", "[": "first item"}
_MORE = {"{": "more members", "[": "more items"}
_NEXT = {"{": "name", "[": "value"}


class BadJson(ValueError):
    """The text cannot be read or set out; the message is a sentence without its full stop."""


def read(content: bytes) -> str:
    """The text of a JSON document in UTF-8, UTF-16 or UTF-32, with or without a byte order mark. Raises BadJson."""
    coding = json.detect_encoding(content)
    try:
        return content.decode(coding)
    except UnicodeDecodeError:
        pass
    try:  # some programs write halves of surrogate pairs, which nobody else can
        return content.decode(coding, "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    except UnicodeDecodeError as error:
        raise BadJson("It is not valid JSON") from error


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a valid document in order, without the space between them.

    Kinds: the characters `{ } [ ] , :`, `name` (of a member), `value` (a text, number or word). Raises BadJson at
    the place where the text stops being JSON: what came before was yielded already.
    """
    within: list[str] = []  # what is open
    expected, at = "value", 0
    while (match := _TOKEN.match(text, at)) is not None:
        group = match.lastgroup or ""
        begin, at = match.span(group)
        kind = text[begin] if group == "sign" else group
        if kind not in _EXPECTED[expected]:
            break
        if kind in OPENING:
            within.append(kind)
            expected = _FIRST[kind]
        elif kind == ",":
            expected = _NEXT[within[-1]]
        elif kind == ":":
            expected = "value"
        elif expected in ("name", "first name") and kind == "string":
            kind, expected = "name", "colon"
        else:
            if kind in CLOSING:
                within.pop()
            else:
                kind = "value"
            expected = _MORE[within[-1]] if within else "end"
        yield kind, begin, at
    else:
        if expected == "end" and not text[at:].strip(_SPACE):
            return
    raise BadJson("It is not valid JSON")


def string(token: str) -> str:
    """The text that a `name`, or a text, stands for."""
    value: str = json.loads(token)
    return value


def set_out(text: str) -> str:
    """The document with each item and member on a line of its own, indented by two spaces for each level.

    Numbers stay as they are written; texts are written with the characters that their escapes stand for. Raises
    BadJson.
    """
    made: list[str] = []
    depth, opened = 0, False
    for kind, begin, end in tokens(text):
        if kind in CLOSING:
            depth -= 1
            if not opened:  # an empty one stays on its line
                made.append("\n" + "  " * depth)
            made.append(kind)
            opened = False
            continue
        if opened:
            made.append("\n" + "  " * depth)
        opened = kind in OPENING
        if opened:
            depth += 1
            if depth > MAX_DEPTH:
                raise BadJson("It is nested too deeply to be formatted")
            made.append(kind)
        elif kind == ",":
            made.append(",\n" + "  " * depth)
        elif kind == ":":
            made.append(": ")
        else:
            made.append(_readable(text[begin:end]))
    return "".join(made)


def _readable(token: str) -> str:
    if "\\" not in token:
        return token
    value = string(token)
    # Half of a surrogate pair is no character: its escape stays.
    return token if re.search("[\ud800-\udfff]", value) else json.dumps(value, ensure_ascii=False)
