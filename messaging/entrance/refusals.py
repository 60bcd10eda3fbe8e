"""What comes in at the entrances, and what is refused there: written down once, for people who have to find out why."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import F

from messaging import storage
from messaging.engine.group import GroupCommit
from messaging.entrance.authentication import Entered
from messaging.models import Rejection
from partners.terms import Presented, Principal
from partners.transports import HTTP, Transport
from rmhub import clock

log = logging.getLogger(__name__)

SAMPLE = 4096
# Refusals of nobody in particular, of one kind and from one address, are one row for so long.
FOLDED = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a transport hands over: one entity, who brought it, from where, and which transport it is.

    `traceparent`: what its sender calls the span that it belongs to, where traces are told (`rmhub.traces`).
    """

    content_type: str
    body: bytes | storage.Large
    presented: Presented
    remote_address: str = ""
    came_by: Transport = HTTP
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP status, when to come again (seconds), and what goes with it."""

    status: int
    retry_after: int | None = None
    content_type: str = ""
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def refuse(
    arrival: Arrival,
    status: int,
    reason: str,
    detail: str,
    *,
    principal: Principal | None = None,
    tpa_id: str = "",
    message_id: str = "",
) -> int:
    """Writes a refusal down and returns its status. Of those who showed no credential the first is kept, and the others
    are counted on it.
    """
    log.warning(
        "refused",
        extra={"action": "refused", "reason": reason, "status": status, "remote": arrival.remote_address},
    )
    row = Rejection(
        at=clock.now(),
        remote_address=arrival.remote_address[:64],
        party_name=principal.party_name if principal else "",
        reason=reason[:60],
        detail=_storable(detail)[:2000],
        http_status=status,
        tpa_id=_storable(tpa_id)[:512],
        message_id=_storable(message_id)[:512],
        content_type=_storable(arrival.content_type)[:255],
        size=len(arrival.body),
        sha256=storage.digest(arrival.body),
        sample=arrival.body[:SAMPLE],
    )
    if row.reason == "unauthenticated":
        _folding.submit(row)
    else:
        row.save(force_insert=True)
    return status


def refuse_body(arrival: Arrival, limit: int, principal: Principal) -> Answer:
    """The answer to a body that is larger than this hub takes, and was not read."""
    return Answer(refuse(arrival, 413, "body_too_large", f"More than {limit} bytes.", principal=principal))


def turn_away(arrival: Arrival, entered: Entered) -> Answer:
    """The answer to whoever does not come in; written down unless they guess."""
    if entered.noted:
        refuse(arrival, entered.status, entered.reason, "No credential of a partner was shown.")
    return Answer(entered.status, entered.wait or None)


def _fold(rows: list[Rejection]) -> list[None]:
    """Counts them on rows of the last hour, or writes the first of each kind and address."""
    kinds: dict[tuple[str, str, int], list[Rejection]] = {}
    for row in rows:
        kinds.setdefault((row.remote_address, row.reason, row.http_status), []).append(row)
    with transaction.atomic():
        for (address, reason, status), same in sorted(kinds.items()):  # in one order, or two processes could deadlock
            first, last = same[0], same[-1]
            alike = Rejection.objects.filter(
                party_name="", remote_address=address, reason=reason, http_status=status, at__gt=first.at - FOLDED
            )
            known = alike.order_by("-id").values_list("pk", flat=True).first()
            if known is None or not Rejection.objects.filter(pk=known).update(
                times=F("times") + len(same), last_at=last.at
            ):
                first.times, first.last_at = len(same), last.at if len(same) > 1 else None
                first.save(force_insert=True)
    return [None] * len(rows)


# Strangers who are refused by the hundred must not queue for one row with a web thread each.
_folding: GroupCommit[Rejection, None] = GroupCommit(_fold)


def _storable(text: str) -> str:
    """PostgreSQL's text has no NUL."""
    return text.replace("\x00", "\ufffd")
