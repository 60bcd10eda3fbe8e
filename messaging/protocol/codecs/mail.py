"""A message as mail, read and written (spec 1, 2.5.2; wire-ebxml 1.10 and 2.6; RFC 5322 and 2045).

A mail is another transfer form of a message: the same MIME entity with each part in base64, so that no relay has a
reason to touch it. What relays do to it all the same (further headers, folding, another transfer encoding) is undone by
`entity`: it gives the octets that the sender's own store has, so that a copy that went another way is the same message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

from messaging.protocol.codecs.mime import (
    decode_entity_head,
    decode_header_value,
    decode_multipart,
    decode_transfer_encoding,
    encode_base64,
    encode_base64_parts,
    is_header_value,
)
from messaging.protocol.errors import EncodeError, NotAMessage
from messaging.protocol.limits import DEFAULT_LIMITS, Limits

MAX_HEAD = 256 * 1024  # header block of a mail; every relay adds to it

_FOLD = re.compile(r"\r?\n(?=[ \t])")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_FOLDED_AT = re.compile(r"; (?=\S)")
_ADDRESS = r"([^\s<>()\[\],;:\\\"@]+@[A-Za-z0-9.-]+)"
_BARE = re.compile(rf"{_ADDRESS}\s*(?:\([^()]*\))?")
_NAMED = re.compile(rf"(?:\"(?:[^\"\\]|\\.)*\"|[^<>\"@,;:()]*)\s*<{_ADDRESS}>")
_LONGEST_FROM = 1000
_PART_HEADERS = (
    ("content-id", "Content-ID"),
    ("content-type", "Content-Type"),
    ("content-disposition", "Content-Disposition"),
    ("rm-document-id", "RM-Document-ID"),
)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail as it lies in a mailbox. `headers`: (lower-case name, unfolded value) in their order, repeats too."""

    octets: bytes
    headers: tuple[tuple[str, str], ...]
    start: int

    def first(self, name: str) -> str:
        """The topmost header of this lower-case name, or ""."""
        return next((value for known, value in self.headers if known == name), "")

    def all(self, name: str) -> list[str]:
        """All headers of this name, the topmost (latest) first."""
        return [value for known, value in self.headers if known == name]


@dataclass(frozen=True, slots=True)
class Heading:
    """What the head of a mail of ours says: bare addresses, a Message-ID without brackets, an aware time."""

    sender: str
    recipient: str
    message_id: str
    date: datetime
    subject: str = "ebXML Message"


def read_mail(octets: bytes, limits: Limits = DEFAULT_LIMITS) -> Mail:
    """Splits a mail into its headers and body. Raises NotAMessage (part_headers_too_large)."""
    _, start = decode_entity_head(octets, replace(limits, part_headers=MAX_HEAD))
    block = octets[:start]
    try:
        text = block.decode()
    except UnicodeDecodeError:
        text = block.decode("latin-1")
    headers = []
    for line in _FOLD.sub("", text).split("\n"):
        name, colon, value = line.partition(":")
        if colon and not name[:1].isspace():
            headers.append((name.strip().lower(), _CONTROL.sub(" ", value).strip()))
    return Mail(octets, tuple(headers), start)


def entity(mail: Mail, limits: Limits = DEFAULT_LIMITS) -> tuple[str, bytes]:
    """(Content-Type, body) of the message in a mail: each part decoded, with the heads that our writer gives them.

    A body whose parts cannot be told apart or decoded comes as it lies in the mail: the reader of the profile says what
    is wrong with it. Raises NotAMessage (bad_transfer_encoding) when the mail as a whole cannot be decoded.
    """
    content_type = mail.first("content-type")
    try:
        body = decode_transfer_encoding(mail.first("content-transfer-encoding").partition(";")[0], _body(mail))
    except ValueError as error:
        raise NotAMessage("bad_transfer_encoding", str(error)) from None
    media_type, parameters = decode_header_value(content_type)
    boundary = parameters.get("boundary", "")
    if not media_type.startswith("multipart/") or not boundary:
        return content_type, body
    try:
        return content_type, _rebuilt(body, boundary, limits)
    except NotAMessage:
        return content_type, body


def _body(mail: Mail) -> bytes:
    return mail.octets[mail.start :]


def _rebuilt(body: bytes, boundary: str, limits: Limits) -> bytes:
    """The parts without transfer encoding. The body as it is when they cannot be written so."""
    parts = decode_multipart(body, boundary, limits)
    delimiter = b"--" + boundary.encode("latin-1", "replace")
    if any(part.damage or delimiter in part.content for part in parts):
        return body
    pieces = []
    lead = b""
    for part in parts:
        head = [f"{title}: {part.headers[name]}" for name, title in _PART_HEADERS if name in part.headers]
        head.append(f"Content-Length: {len(part.content)}")
        lines = "\r\n".join(head).encode("utf-8", "replace")
        pieces += [lead, delimiter, b"\r\n", lines, b"\r\n\r\n", part.content]
        lead = b"\r\n"
    pieces += [lead, delimiter, b"--\r\n"]
    return b"".join(pieces)


def write_mail(heading: Heading, content_type: str, body: bytes, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The mail for a stored message. All but Date and Message-ID follows from the message alone.

    Raises EncodeError when the body has no form in which mail could carry it.
    """
    if not is_header_value(content_type):
        raise EncodeError(f"Content-Type {content_type[:80]!r} is not printable ASCII")
    media_type, parameters = decode_header_value(content_type)
    encoding: tuple[str, ...] = ()
    if media_type.startswith("multipart/"):
        try:
            if not (boundary := parameters.get("boundary", "")):
                raise NotAMessage("not_mime", "the Content-Type has no boundary")
            encoded = encode_base64_parts(body, boundary, limits)
        except (NotAMessage, UnicodeEncodeError) as error:
            raise EncodeError(f"the stored body cannot be sent as mail: {error}") from error
    else:
        encoded, encoding = encode_base64(body), ("Content-Transfer-Encoding: base64",)
    head = (
        f"From: {heading.sender}",
        f"To: {heading.recipient}",
        f"Date: {_date(heading.date)}",
        f"Subject: {heading.subject}",
        f"Message-ID: <{heading.message_id}>",
        "Auto-Submitted: auto-generated",
        "MIME-Version: 1.0",
        # Folded where a space stands anyway, so that unfolding gives the stored value back.
        "Content-Type: " + _FOLDED_AT.sub(";\r\n ", content_type),
        *encoding,
    )
    return "\r\n".join(head).encode("ascii") + b"\r\n\r\n" + encoded


def mailbox_of(value: str) -> str:
    """The one address of a From header, domain in lower case; "" when it holds none, several or something else."""
    value = value.strip()
    match = None if len(value) > _LONGEST_FROM else _BARE.fullmatch(value) or _NAMED.fullmatch(value)
    if match is None:
        return ""
    local, _, domain = match[1].rpartition("@")
    return f"{local}@{domain.lower()}"


def author(mail: Mail) -> str:
    """The address of its one From header, or "": of two, different readers would believe different ones."""
    values = mail.all("from")
    return mailbox_of(values[0]) if len(values) == 1 else ""


def _date(moment: datetime) -> str:
    """RFC 5322, 3.3; names of days and months are English whatever the locale."""
    offset = moment.strftime("%z") or "+0000"
    return (
        f"{_DAYS[moment.weekday()]}, {moment.day:02d} {_MONTHS[moment.month - 1]} {moment.year:04d} "
        f"{moment:%H:%M:%S} {offset}"
    )
