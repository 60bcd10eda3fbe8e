"""Pairs as people look at them: one state word, why, since when, what waits and what happens next."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Case, CharField, F, IntegerField, Q, QuerySet, Value, When

from messaging.choices import Direction, MessageState
from messaging.exceptions import NotFound
from messaging.models import Message, Pair, Transmission
from messaging.protocol.sender import Flow, Gate
from partners import registry
from rmhub.ids import BadPublicId, read_public_id

# The state word of a pair (`choices.PAIR_LOOKS`), the worst first: the first condition that holds.
STATES: tuple[tuple[str, Q], ...] = (
    ("suspended", Q(flow=Flow.SUSPENDED)),
    ("holding", Q(flow=Flow.HOLDING, gate=Gate.OPEN)),
    ("retrying", Q(flow=Flow.RESEND_WAIT, gate=Gate.OPEN) | Q(retries__gt=0, gate=Gate.OPEN)),
    ("paused", Q(gate=Gate.PAUSED)),
    ("disabled", Q(gate=Gate.DISABLED)),
    ("waiting", Q(flow=Flow.AWAITING_ACK)),
    ("active", Q()),
)
STATE_NAMES = tuple(name for name, _ in STATES)


@dataclass(frozen=True, slots=True)
class Head:
    """The message that everything else of the pair waits behind."""

    message: Message
    attempts_allowed: int  # 1 send + Retries of its agreement; transport recovery comes on top


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why the pair is as it is. `sentence` says it to a person; `action` is the verb that mends it, or ""."""

    state: str
    sentence: str
    flow: str
    gate: str
    cause: str
    detail: str
    since: datetime | None
    queued: int
    next_attempt_at: datetime | None
    action: str


def pairs(
    *,
    states: tuple[str, ...] = (),
    direction: str = "",
    partner_id: uuid.UUID | None = None,
    search: str = "",
) -> QuerySet[Pair]:
    """Pairs with parties and head of line, each with `state` and `severity` (0 = worst). Not ordered.

    Unique orders for pages: ("code",), ("severity", "code"). `search` looks in the code and in the URIs.
    """
    found = Pair.objects.select_related("own_party", "partner", "in_flight").defer("in_flight__wire_frame")
    found = found.annotate(
        state=Case(
            *(When(condition, then=Value(name)) for name, condition in STATES[:-1]),
            default=Value(STATE_NAMES[-1]),
            output_field=CharField(),
        ),
        severity=Case(
            *(When(condition, then=Value(rank)) for rank, (_, condition) in enumerate(STATES[:-1])),
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
    if search:
        found = found.filter(
            Q(code__icontains=search) | Q(sender_uri__icontains=search) | Q(receiver_uri__icontains=search)
        )
    return found


def pair(reference: str | uuid.UUID) -> Pair:
    """One pair with `state` and `severity`, by id (`pair_...`) or code. Raises NotFound."""
    if isinstance(reference, uuid.UUID):
        chosen = Q(pk=reference)
    else:
        try:
            chosen = Q(pk=read_public_id("pair", reference))
        except BadPublicId:
            chosen = Q(code=reference)
    found = pairs().filter(chosen).first()
    if found is None:
        raise NotFound(f"There is no pair {reference}.")
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
    if pair.gate == Gate.DISABLED:
        return "disabled"
    return "waiting" if pair.flow == Flow.AWAITING_ACK else "active"


def head_of(pair: Pair) -> Head | None:
    """The message in flight, with the number of sends that its agreement allows; None when there is none."""
    message = pair.in_flight
    if message is None:
        return None
    terms = registry.current().version(message.agreement_version_id)  # type: ignore[attr-defined]
    return Head(message, terms.retries + 1)


def diagnosis(pair: Pair) -> Diagnosis:
    """What is the matter with this pair and what happens next. Reads nothing but what `pair()` loaded."""
    state = state_of(pair)
    return Diagnosis(
        state=state,
        sentence=_sentence(pair, state),
        flow=pair.flow,
        gate=pair.gate,
        cause=pair.cause,
        detail=pair.cause_detail,
        since=pair.holding_since if state == "holding" else pair.changed_at,
        queued=pair.queued,
        next_attempt_at=pair.due_at if pair.gate == Gate.OPEN and pair.flow != Flow.SENDING else None,
        action={"suspended": "resume", "paused": "release"}.get(state, ""),
    )


def queue(pair_id: uuid.UUID) -> QuerySet[Message]:
    """What waits on a pair, in the order in which it will be sent (by `position`)."""
    waiting = Message.objects.filter(pair=pair_id, state=MessageState.QUEUED, due_at__isnull=True)
    return waiting.defer("wire_frame").order_by("position")


def transmissions(pair_id: uuid.UUID) -> QuerySet[Transmission]:
    """The pair's attempts with their messages, newest first (by "-id"); without the answers' bytes."""
    found = Transmission.objects.filter(pair=pair_id, message__isnull=False).select_related("message")
    return found.defer("response", "message__wire_frame").order_by("-id")


def pair_ids_of_partner(partner_id: uuid.UUID) -> list[uuid.UUID]:
    """The pairs that join us with this party."""
    return list(Pair.objects.filter(partner=partner_id).order_by("id").values_list("id", flat=True))


def troubled() -> dict[str, int]:
    """How many pairs are in each state, and how many messages wait behind those that are suspended or paused.

    One pass over the pairs (thousands, not millions); keys are `STATE_NAMES` and "blocked".
    """
    counts = dict.fromkeys(STATE_NAMES, 0)
    counts["blocked"] = 0
    rows = pairs().order_by().values_list("state", F("queued"), "in_flight")
    for state, queued, in_flight in rows:
        counts[state] += 1
        if state in ("suspended", "paused"):
            counts["blocked"] += queued + (in_flight is not None)
    return counts


def _sentence(pair: Pair, state: str) -> str:
    if pair.direction == Direction.IN:
        last = f"{pair.last_success_at:%Y-%m-%d %H:%M:%SZ}" if pair.last_success_at else ""
        received = f"The last message was taken at {last}" if last else "No message has come in yet"
        return f"{received}; number {pair.last_sequence % 999_999_999 + 1} is expected next."
    since = f" since {pair.changed_at:%Y-%m-%d %H:%MZ}" if pair.changed_at else ""
    waiting = {0: "Nothing waits", 1: "1 message waits"}.get(pair.queued, f"{pair.queued} messages wait")
    name = pair.in_flight.message_id if pair.in_flight else ""
    why = f" ({pair.cause})" if pair.cause else ""
    next_at = f" at {pair.due_at:%Y-%m-%d %H:%M:%SZ}" if pair.due_at else ""
    if state == "suspended":
        head = f" Message {name} is not acknowledged." if name else ""
        return f"Suspended{since}{why}.{head} {waiting}. Nothing is sent until somebody resumes the pair."
    if state == "holding":
        return f"The partner asked for a pause{why}. Message {name} is sent again{next_at}. {waiting}."
    if state == "retrying":
        if pair.flow == Flow.SENDING:
            return f"Message {name} is being sent again{why}. {waiting}."
        return f"Message {name} was not acknowledged{why} and is sent again{next_at}. {waiting}."
    if state in ("paused", "disabled"):
        exit_ = "somebody releases the pair" if state == "paused" else "the pair is enabled"
        return f"{state.capitalize()}{since}. {waiting}. Nothing is sent until {exit_}."
    if state == "waiting":
        return f"Message {name} was sent and waits for its acknowledgement. {waiting}."
    if name:
        return f"Message {name} is being sent. {waiting}."
    return "Nothing is under way." if not pair.queued else f"{waiting} for a worker."
