"""Reports of mail servers about mails of ours: delivery status notifications, "bounces" (RFC 3464 and 6522)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from messaging.protocol.codecs.mail import MAX_HEAD, Mail
from messaging.protocol.codecs.mime import Part, decode_entity_head, decode_header_value, decode_multipart
from messaging.protocol.errors import NotAMessage
from messaging.protocol.limits import DEFAULT_LIMITS, Limits

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
    blocks = [block for part in parts if _type(part) == _STATUS for block in _blocks(part.content)]
    if not blocks:
        raise NotAMessage("not_a_report", "the report has no part of type message/delivery-status")
    names = [block["original-envelope-id"] for block in blocks if "original-envelope-id" in block]
    for part in parts:
        if _type(part) in _ORIGINALS:
            headers, _ = decode_entity_head(part.content, Limits(part_headers=MAX_HEAD))
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
    return "".join(sign if sign.isprintable() else " " for sign in text).strip()
