"""A message as mail, read and written (spec 1, 2.5.2; wire-ebxml 1.10 and 2.6; RFC 5322 and 2045).

A mail is another transfer form of a message: the same MIME entity with each part in base64, so that no relay has a
reason to touch it. What relays do to it all the same (further headers, folding, another transfer encoding) is undone by
`entity`: it gives the octets that the sender's own store has, so that a copy that went another way is the same message.

Reports of mail servers about mails of ours: delivery status notifications, "bounces" (RFC 3464 and 6522).

What a mail server that we trust has found out about a sender: Authentication-Results (RFC 8601).

Only the topmost header with the checker's name counts: a server that follows section 5 removes what others wrote under
its name before it adds its own on top, and whatever lies below came with the mail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from messaging.protocol.codecs.mime import (
    Part,
    decode_entity_head,
    decode_header_value,
    decode_multipart,
    decode_transfer_encoding,
    encode_base64,
    encode_base64_parts,
    is_header_value,
)
from messaging.protocol.envelope import DEFAULT_LIMITS, Limits
from messaging.protocol.errors import EncodeError, NotAMessage

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
        encoding = mail.first("content-transfer-encoding").partition(";")[0]
        body = decode_transfer_encoding(encoding, mail.octets[mail.start :])
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
        pieces += [lead, delimiter, b"\r\n", lines, b"\r\n\r\n", part.octets]
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


_STATUS = "message/delivery-status"
_ORIGINALS = frozenset(("message/rfc822", "text/rfc822-headers", "message/rfc822-headers", "message/global-headers"))
_CODE = re.compile(r"[245]\.[0-9]{1,3}\.[0-9]{1,3}")
_BLANK_LINE = re.compile(rb"\r?\n[ \t]*\r?\n")
_MANY = 100  # recipients of one report


class Action(StrEnum):
    """What a report says of its recipients, the worst first."""

    FAILED = "failed"
    DELAYED = "delayed"
    DELIVERED = "delivered"


@dataclass(frozen=True, slots=True)
class Report:
    """One report. `status`: enhanced status code such as 5.1.1, or "". `diagnostic`: one printable line.

    `names`: what may name the mail that it is about: its envelope id, and Message-IDs as they stand in headers.
    """

    action: Action
    status: str
    diagnostic: str
    recipient: str
    names: tuple[str, ...]

    @property
    def permanent(self) -> bool:
        """Whether the mail server says that another try will not help (RFC 3463: 5.x.x)."""
        return self.action is Action.FAILED and self.status.startswith("5")


def read_report(mail: Mail, limits: Limits = DEFAULT_LIMITS) -> Report | None:
    """The report in a mail, or None when it is none. Raises NotAMessage for one that cannot be read."""
    media_type, parameters = decode_header_value(mail.first("content-type"))
    if media_type != "multipart/report" or parameters.get("report-type", "delivery-status").lower() not in (
        "delivery-status",
        "",
    ):
        return None
    parts = decode_multipart(mail.octets[mail.start :], parameters.get("boundary", ""), limits)
    blocks = [block for part in parts if _type(part) == _STATUS for block in _blocks(part.octets)]
    if not blocks:
        raise NotAMessage("not_a_report", "the report has no part of type message/delivery-status")
    names = [block["original-envelope-id"] for block in blocks if "original-envelope-id" in block]
    for part in parts:
        if _type(part) in _ORIGINALS:
            headers, _ = decode_entity_head(part.octets, Limits(part_headers=MAX_HEAD))
            names.append(headers.get("message-id", ""))
    names += [*mail.all("in-reply-to"), *mail.all("references")]
    worst = min((block for block in blocks if "action" in block), key=_rank, default={})
    diagnostic = worst.get("diagnostic-code") or worst.get("status") or "The mail server gave no reason."
    return Report(
        action=_action(worst),
        status=match[0] if (match := _CODE.search(worst.get("status", ""))) else "",
        diagnostic=_value(diagnostic)[:500],
        recipient=_value(worst.get("final-recipient", ""))[:254],
        names=tuple(name[:500] for name in names if name),
    )


def _type(part: Part) -> str:
    return decode_header_value(part.content_type)[0]


def _blocks(content: bytes) -> Iterator[dict[str, str]]:
    """The groups of fields, the one about the whole mail first (RFC 3464, 2.1)."""
    for group in _BLANK_LINE.split(content.strip())[:_MANY]:
        headers, _ = decode_entity_head(group.strip(b"\r\n") + b"\r\n\r\n", Limits(part_headers=MAX_HEAD))
        if headers:
            yield headers


def _action(block: dict[str, str]) -> Action:
    written = block.get("action", "failed").strip().lower()
    if written in (Action.FAILED, Action.DELAYED):
        return Action(written)
    return Action.DELIVERED  # delivered, relayed or expanded: nothing went wrong


def _rank(block: dict[str, str]) -> int:
    return list(Action).index(_action(block))


def _value(field: str) -> str:
    """The text behind `rfc822;` or `smtp;`."""
    kind, semicolon, text = field.partition(";")
    text = text if semicolon and kind.strip().replace("-", "").isalnum() else field
    return "".join(character if character.isprintable() else " " for character in text).strip()


_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_METHOD = re.compile(r"([A-Za-z0-9-]+)\s*(?:/\s*[0-9]+\s*)?=\s*([A-Za-z]+)(?:\s|\Z)")
# A quoted local part may hold another address: the domain is what follows it.
_PROPERTY = re.compile(r'\b([A-Za-z0-9-]+)\s*\.\s*([A-Za-z0-9_-]+)\s*=\s*((?:"(?:[^"\\]|\\.)*")?[^\s;"]*)')
_REASON = re.compile(r'\breason\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s;"]*)', re.IGNORECASE)
_LONGEST = 16 * 1024

# What a passed check proves, by method: the properties that hold the domain (RFC 8601, 2.7; RFC 7489, 11.1).
_DOMAINS = {
    "dkim": ("header.d", "header.i"),
    "spf": ("smtp.mailfrom",),
    "dmarc": ("header.from",),
}


def is_vouched_for(mail: Mail, checker: str, address: str) -> bool:
    """Whether the checker says that a mail in whose From `address` stands really comes from that address's domain.

    dkim, spf or dmarc must have passed for the domain itself or one above it, whose owner rules it anyway.
    """
    domain = address.rpartition("@")[2].lower()
    if not checker or not domain:
        return False
    for value in mail.all("authentication-results"):
        name, results = _read(value)
        if name == checker.lower():
            return any(_covers(proved, domain) for proved in _proved(results))
    return False


def _covers(proved: str, domain: str) -> bool:
    return "." in proved and (domain == proved or domain.endswith("." + proved))


def _proved(results: list[str]) -> Iterator[str]:
    """The domains for which a check has passed."""
    for result in results:
        match = _METHOD.match(result)
        if match is None or match[2].lower() != "pass":
            continue
        wanted = _DOMAINS.get(match[1].lower(), ())
        for kind, name, value in _PROPERTY.findall(_REASON.sub(" ", result[match.end() :])):
            if f"{kind}.{name}".lower() in wanted:
                yield value.strip('"').rpartition("@")[2].lower().rstrip(".")


def _read(value: str) -> tuple[str, list[str]]:
    """(authserv-id in lower case, the results), comments left out. ("", []) for a header that cannot be read."""
    text = _without_comments(value[:_LONGEST])
    if text is None:
        return "", []
    head, *results = _split(text)
    words = head.split()
    if not words:
        return "", []
    name = words[0]
    if quoted := _QUOTED.fullmatch(name):
        name = quoted[1]
    return name.lower(), [result.strip() for result in results]


def _without_comments(text: str) -> str | None:
    """`text` with each comment as a space (RFC 5322, 3.2.2: they nest); None when one, or a quotation, never ends."""
    kept: list[str] = []
    depth = 0
    quoted = escaped = False
    for character in text:
        if escaped:
            escaped = False
        elif character == "\\" and (quoted or depth):
            escaped = True
        elif character == '"' and not depth:
            quoted = not quoted
        elif character == "(" and not quoted:
            depth += 1
            kept.append(" ")
        elif character == ")" and depth and not quoted:
            depth -= 1
            continue
        if not depth:
            kept.append(character)
    return None if depth or quoted or escaped else "".join(kept)


def _split(text: str) -> list[str]:
    """At semicolons outside quotations."""
    pieces = [""]
    quoted = escaped = False
    for character in text:
        if escaped:
            escaped = False
        elif character == "\\" and quoted:
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif character == ";" and not quoted:
            pieces.append("")
            continue
        pieces[-1] += character
    return pieces
