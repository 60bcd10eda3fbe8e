"""Pairs as people look at them, with one state word; what the matter is with one says `diagnosis`."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

from django.db.models import Case, CharField, IntegerField, Q, QuerySet, Value, When
from django.utils.translation import gettext as _

from messaging import profile
from messaging.access.selectors.reach import named
from messaging.choices import MessageState
from messaging.exceptions import NotFound
from messaging.models import Message, Pair, Transmission
from messaging.models.message import IN_FLIGHT, OPEN
from messaging.protocol.pair_state import Flow, Gate
from partners import registry
from partners.visibility import limit

# The state word of a pair (`choices.PAIR_LOOKS`), the worst first: the first condition that holds.
STATES: tuple[tuple[str, Q], ...] = (
    ("suspended", Q(flow=Flow.SUSPENDED)),
    ("holding", Q(flow=Flow.HOLDING, gate=Gate.OPEN)),
    ("retrying", Q(flow=Flow.RESEND_WAIT, gate=Gate.OPEN) | Q(retries__gt=0, gate=Gate.OPEN)),
    ("paused", Q(gate=Gate.PAUSED)),
    ("resync", Q(resync_since__isnull=False, gate=Gate.OPEN)),
    ("silent", Q(silent_since__isnull=False, gate=Gate.OPEN)),
    ("disabled", Q(gate=Gate.DISABLED)),
    ("waiting", Q(flow=Flow.AWAITING_ACK)),
    ("active", Q()),
)
STATE_NAMES = tuple(name for name, __ in STATES)
ORDERS = {
    "code": ("code",),
    "-code": ("-code",),
    "severity": ("severity", "code"),
    "-created_at": ("-id",),
    "created_at": ("id",),
}


if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    class _Rating(TypedDict):
        state: str
        severity: int

    RatedPair = WithAnnotations[Pair, _Rating]


def pairs(
    *,
    states: tuple[str, ...] = (),
    direction: str = "",
    partner_id: uuid.UUID | None = None,
    search: str = "",
    resync: bool | None = None,
) -> QuerySet[RatedPair]:
    """Pairs with parties and head of line, each with `state` and `severity` (0 = worst). Not ordered.

    They page by `ORDERS`. `search` looks in the code, in the URIs and in the partner's name.
    `resync`: those that need it whatever their state is, or those that do not.
    """
    found = limit(Pair.objects.select_related("own_party", "partner", "in_flight"), "partner")
    found = found.defer("in_flight__wire_frame")
    found = found.annotate(
        state=Case(
            *(When(condition, then=Value(name)) for name, condition in STATES[:-1]),
            default=Value(STATE_NAMES[-1]),
            output_field=CharField(),
        ),
        severity=Case(
            *(When(condition, then=Value(rank)) for rank, (__, condition) in enumerate(STATES[:-1])),
            default=Value(len(STATES) - 1),
            output_field=IntegerField(),
        ),
    )
    if states:
        found = found.filter(state__in=states)
    if direction:
        found = found.filter(direction=direction)
    if partner_id is not None:
        found = found.filter(partner=partner_id)
    if resync is not None:
        found = found.filter(resync_since__isnull=not resync)
    if search:
        found = found.filter(
            Q(code__icontains=search)
            | Q(sender_uri__icontains=search)
            | Q(receiver_uri__icontains=search)
            | Q(partner__name__icontains=search)
        )
    return found


def pair(reference: str | uuid.UUID) -> RatedPair:
    """One pair with `state` and `severity`, by id (`pair_...`) or code. Raises NotFound."""
    found = pairs().filter(named("pair", reference, "code")).first()
    if found is None:
        raise NotFound(_("There is no pair {reference}.").format(reference=reference))
    return found


def state_of(pair: Pair) -> str:
    """The state word (`choices.PAIR_LOOKS`) of a pair that was read without `pairs()`, e.g. by a service."""
    opened = pair.gate == Gate.OPEN
    if pair.flow == Flow.SUSPENDED:
        return "suspended"
    if pair.flow == Flow.HOLDING and opened:
        return "holding"
    if opened and (pair.flow == Flow.RESEND_WAIT or pair.retries > 0):
        return "retrying"
    if pair.gate == Gate.PAUSED:
        return "paused"
    if opened and pair.resync_since is not None:
        return "resync"
    if opened and pair.silent_since is not None:
        return "silent"
    if pair.gate == Gate.DISABLED:
        return "disabled"
    return "waiting" if pair.flow == Flow.AWAITING_ACK else "active"


def queue(pair_id: uuid.UUID) -> QuerySet[Message]:
    """What waits on a pair, in the order in which it will be sent (by `position`)."""
    waiting = Message.objects.filter(pair=pair_id, state=MessageState.QUEUED, due_at__isnull=True)
    return waiting.defer("wire_frame").order_by("position")


def in_flight(pair_id: uuid.UUID) -> QuerySet[Message]:
    """Messages of a pair, each with its own timer, that are on the way, as they were submitted (by `position`)."""
    flying = Message.objects.filter(pair=pair_id, state__in=IN_FLIGHT, expires_at__isnull=False)
    return flying.select_related("pair").defer("wire_frame").order_by("position")


def unanswered(pair_id: uuid.UUID) -> QuerySet[Message]:
    """Messages of transactions that are not done: unsent, not taken or not answered; the next one to go out first."""
    open_ones = Message.objects.filter(pair=pair_id, state__in=OPEN, due_at__isnull=False)
    return open_ones.defer("wire_frame").order_by("due_at")


def next_repeat(pair_id: uuid.UUID) -> datetime | None:
    """When the next of them goes out again; None when all are on the wire."""
    times = (repeat_at(message) for message in in_flight(pair_id))
    return min((at for at in times if at is not None), default=None)


def repeat_at(message: Message) -> datetime | None:
    """When a message goes out again by itself; None: it does not, or it is on the wire. Reads its pair."""
    terms = registry.current().version(message.agreement_version_id)
    return profile.of(terms).repeat_at(message, terms)


def transmissions(pair_id: uuid.UUID) -> QuerySet[Transmission]:
    """The pair's attempts with their messages, newest first (by "-id"); without the answers' bytes."""
    found = Transmission.objects.filter(pair=pair_id, message__isnull=False).select_related("message")
    return found.defer("response", "message__wire_frame").order_by("-id")


def pair_ids_of_partners(partner_ids: Collection[uuid.UUID]) -> list[uuid.UUID]:
    """The pairs that join us with these parties."""
    return list(Pair.objects.filter(partner__in=partner_ids).order_by("id").values_list("id", flat=True))
