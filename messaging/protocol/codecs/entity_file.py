"""One MIME entity as a file: header lines, an empty line, the body byte for byte (docs/ftp-binding.md).

Spec 1, 2.5.3 leaves the binding to file transfer open; this is the hub's own. `Content-Length` is what tells a reader
that it has the whole file.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

MAX_HEAD = 16 * 1024  # bytes of the header lines
SUFFIX = ".ebxml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.ebxml", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_END = re.compile(rb"\r?\n\r?\n")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~A-Za-z0-9-]+)[ \t]*:[ \t]*(.*?)[ \t]*", re.DOTALL)
_PLAIN = ("", "7bit", "8bit", "binary")  # encodings that leave the bytes as they are


class NotAnEntity(ValueError):
    """A file that is no MIME entity. `incomplete`: it may become one, its writer is perhaps not at its end."""

    def __init__(self, detail: str, *, incomplete: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.incomplete = incomplete


@dataclass(frozen=True, slots=True)
class Entity:
    """What a file holds. `declared`: it names its length, so that what was read is known to be all of it."""

    content_type: str
    body: bytes
    declared: bool


def pack(content_type: str, body: bytes) -> bytes:
    """The file of an entity. `content_type` is one line of ASCII."""
    head = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("ascii") + body


def unpack(data: bytes) -> Entity:
    """The entity of a file: lines may end in CRLF or LF, long ones may be folded. Raises NotAnEntity."""
    end = _END.search(data, 0, MAX_HEAD)
    if end is None:
        if len(data) >= MAX_HEAD:
            raise NotAnEntity(f"No empty line ends its header within {MAX_HEAD} bytes.")
        raise NotAnEntity("It has no empty line after its header.", incomplete=True)
    fields = _fields(data[: end.start()])
    content_type = fields.get("content-type", "")
    if not content_type:
        raise NotAnEntity("Its header has no Content-Type.")
    encoding = fields.get("content-transfer-encoding", "").lower()
    if encoding not in _PLAIN:
        raise NotAnEntity(f"Content-Transfer-Encoding {encoding[:40]!r}: files carry their bytes as they are.")
    body = data[end.end() :]
    length = fields.get("content-length", "")
    if not length:
        return Entity(content_type, body, declared=False)
    if not (length.isascii() and length.isdigit() and len(length) <= 15):
        raise NotAnEntity("Its Content-Length is not a number.")
    if len(body) != int(length):
        raise NotAnEntity(
            f"It has {len(body)} of the {int(length)} bytes that its Content-Length says.",
            incomplete=len(body) < int(length),
        )
    return Entity(content_type, body, declared=True)


def _fields(head: bytes) -> dict[str, str]:
    """Fields by lower-case name. Raises NotAnEntity for a line that is none, and for one that comes twice."""
    try:
        text = head.decode("ascii")
    except UnicodeDecodeError as error:
        raise NotAnEntity("Its header has bytes outside ASCII.") from error
    unfolded = re.sub(r"\r?\n(?=[ \t])", "", text)
    found: dict[str, str] = {}
    for line in re.split(r"\r?\n", unfolded):
        match = _FIELD.fullmatch(line)
        if match is None or any(ord(sign) < 32 and sign != "\t" for sign in line):
            raise NotAnEntity(f"A line of its header is not a header field: {line[:60]!r}.")
        name = match[1].lower()
        if name in found:
            raise NotAnEntity(f"Its header has {match[1]} twice.")
        found[name] = match[2]
    return found


def name_of(kind: str, message_id: str) -> str:
    """What the file of a message is called, before its content is known: the same for every copy.

    `kind`: message, ack, error. The id itself may hold any sign, so its digest stands for it.
    """
    return f"{_UNSAFE.sub('-', kind)[:20]}-{hashlib.sha256(message_id.encode()).hexdigest()[:32]}"


def file_name(name: str, content: bytes) -> str:
    """The final name of a file: `name` and the digest of what is in it, so that one name is one content."""
    return f"{name or 'message'}-{hashlib.sha256(content).hexdigest()[:16]}{SUFFIX}"


def is_final(name: str) -> bool:
    """Whether a file of this name may be read: safe characters only, no leading dot, and the ending of whole files."""
    return _NAME.fullmatch(name) is not None
