"""Finds or makes the two pairs of an agreement.

What happens when a pair gives up: the message fails, an incident opens, the From-Party is told (spec 1, 2.1.4.3).

Puts a new outbound message into its pair's queue: the same for what applications submit and what is routed.
"""

from __future__ import annotations

import re
import unicodedata
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial

from django.db import connection, transaction
from django.db.models import Q

from messaging import dispatch, profile
from messaging.choices import Direction, MessageState
from messaging.engine.snapshots import apply_outbound, outbound_state, sender_policy
from messaging.exceptions import WrongState
from messaging.journal import events, incidents
from messaging.models import Enlistment, Event, Message, Pair
from messaging.models.bulk import read
from messaging.profile import terms_in_force
from messaging.protocol.atomic.words import ENDED, Seat
from messaging.protocol.codecs.ebxml import normalize_uri
from messaging.protocol.messages import Happened, move
from messaging.protocol.pair_state import Event as PairEvent
from messaging.protocol.pair_state import Flow, Gate, GateVerb, Kind, move_gate
from messaging.protocol.sender import step
from messaging.routing.services import upstream
from partners import registry
from partners.choices import VersionState
from partners.models import AgreementVersion
from partners.terms import Terms
from rmhub import clock

_CODES = 0x524D4856  # key of the advisory lock under which codes of pairs are chosen

_IN_FORCE = (VersionState.ACTIVE, VersionState.DISABLED)
_OPEN = (MessageState.QUEUED, MessageState.SENDING, MessageState.AWAITING_ACK, MessageState.RETRYING)

# URIs of a version never change and pairs are never deleted, so what was found once stays true.
_known: dict[tuple[uuid.UUID, Direction], uuid.UUID] = {}
# What was made in a transaction is true for that one only until it is committed: it may be rolled back.
_uncommitted: dict[tuple[uuid.UUID, Direction], Callable[[], object]] = {}


def outbound_pair_id(terms: Terms) -> uuid.UUID:
    """The pair on which we send under these terms; made at first use."""
    return _pair_id(terms, Direction.OUT)


def inbound_pair_id(terms: Terms) -> uuid.UUID:
    """The pair on which the partner sends under these terms; made at first use."""
    return _pair_id(terms, Direction.IN)


def _pair_id(terms: Terms, direction: Direction) -> uuid.UUID:
    key = (terms.version_id, direction)
    if key not in _known or not _still_there(key):
        pair, made = _pair(terms, direction, *_uris(terms, direction))
        _known[key] = pair.pk
        if made and connection.in_atomic_block:
            committed: Callable[[], object] = partial(_uncommitted.pop, key, None)
            _uncommitted[key] = committed
            transaction.on_commit(committed)
    return _known[key]


def _uris(terms: Terms, direction: Direction) -> tuple[str, str]:
    """Sender's and receiver's, as pairs have them."""
    ours, theirs = normalize_uri(terms.own_uri), normalize_uri(terms.partner_uri)
    return (ours, theirs) if direction == Direction.OUT else (theirs, ours)


def _still_there(key: tuple[uuid.UUID, Direction]) -> bool:
    """False for what was made in a transaction that was rolled back, or that is not the present one and still open."""
    committed = _uncommitted.get(key)
    if committed is None or any(function is committed for _, function, *_ in connection.run_on_commit):
        return True
    _uncommitted.pop(key, None)
    return False


def ensure_pairs() -> int:
    """Makes the pairs of all active agreements, so that screens show them from the start. Returns how many."""
    wanted = [(terms, direction) for terms in registry.current().active() for direction in Direction]
    if unknown := [(terms, direction) for terms, direction in wanted if (terms.version_id, direction) not in _known]:
        there = {
            tuple(row): pk for pk, *row in Pair.objects.values_list("pk", "direction", "sender_uri", "receiver_uri")
        }
        for terms, direction in unknown:
            if (pk := there.get((direction, *_uris(terms, direction)))) is not None:
                _known[terms.version_id, direction] = pk
    before = Pair.objects.count()
    for terms, direction in wanted:
        _pair_id(terms, direction)
    return Pair.objects.count() - before


def close_unagreed() -> int:
    """Disables the outbound pairs that no agreement in force uses, and enables those that one uses again.

    A disabled pair keeps what waits and sends nothing; answers to what it sent are still taken. Returns how many moved.
    """
    agreed = {(normalize_uri(terms.own_uri), normalize_uri(terms.partner_uri)) for terms in registry.current().active()}
    now = clock.now()
    moved = 0
    with transaction.atomic():
        wrong = [
            key
            for key, sender, receiver, gate in Pair.objects.filter(direction=Direction.OUT).values_list(
                "pk", "sender_uri", "receiver_uri", "gate"
            )
            if ((sender, receiver) in agreed) == (gate == Gate.DISABLED)
        ]
        for pair in Pair.locked(wrong).values():
            verb = GateVerb.ENABLE if pair.gate == Gate.DISABLED else GateVerb.DISABLE
            apply_outbound(pair, replace(outbound_state(pair), gate=move_gate(Gate(pair.gate), verb)), now)
            pair.save(update_fields=["gate", "changed_at", "version"])
            moved += 1
            if verb is GateVerb.ENABLE:
                profile.carried(pair, terms_in_force(pair)).let_go(pair, now)
                dispatch.wake_on_commit(dispatch.SEND)
    return moved


def require_drained(draft: AgreementVersion) -> None:
    """A pair changes how it sends only when nothing is on its way: what was begun under the old terms ends under them.

    The pair stays locked until the commit, so that nothing is put into its queue meanwhile. Raises WrongState with the
    code pair_not_drained.
    """
    in_force = AgreementVersion.objects.filter(agreement=draft.agreement_id, state__in=_IN_FORCE)
    before = in_force.select_related("own_endpoint", "partner_endpoint").first()
    if before is None:
        return
    unordered = before.ordered and not draft.ordered
    changes = [
        what
        for what, changed in (
            ("another profile", before.profile != draft.profile),
            (
                "other endpoints",
                (before.own_endpoint_id, before.partner_endpoint_id)
                != (draft.own_endpoint_id, draft.partner_endpoint_id),
            ),
            (
                "no order any more",
                profile.named(before.profile).answered_at_once and unordered,
            ),
        )
        if changed
    ]
    if not changes:
        return
    known = Pair.objects.filter(
        direction=Direction.OUT,
        sender_uri=normalize_uri(before.own_endpoint.uri),
        receiver_uri=normalize_uri(before.partner_endpoint.uri),
    )
    for pair in Pair.locked(known.values_list("pk", flat=True)).values():
        still = Q(state__in=_OPEN) | Q(pk=pair.in_flight_id)
        count = Message.objects.filter(still, pair=pair, agreement_version__agreement=draft.agreement_id).count()
        if count:
            raise WrongState(
                f"Version {draft.number} has {' and '.join(changes)}, and {count:,} "
                f"message{'' if count == 1 else 's'} of this agreement "
                f"{'is' if count == 1 else 'are'} still open on {pair.code}: let them come to their end, "
                "or cancel them, then activate the version.",
                state=draft.state,
                code="pair_not_drained",
            )
    # Between a vote and the outcome there may be no message: what is owed then goes to where the peer registered.
    bound = Enlistment.objects.filter(agreement_version__agreement=draft.agreement_id).exclude(seat=Seat.NONE)
    bound = bound.exclude(coordination__phase__in=ENDED)
    if count := bound.values("coordination").distinct().count():
        raise WrongState(
            f"Version {draft.number} has {' and '.join(changes)}, and this agreement takes part in {count:,} "
            f"transaction{'' if count == 1 else 's'} that {'has' if count == 1 else 'have'} not ended: let "
            f"{'it' if count == 1 else 'them'} come to {'its' if count == 1 else 'their'} end, or roll "
            f"{'it' if count == 1 else 'them'} back, then activate the version.",
            state=draft.state,
            code="pair_not_drained",
        )


def _pair(terms: Terms, direction: Direction, sender_uri: str, receiver_uri: str) -> tuple[Pair, bool]:
    """The pair, and whether it was made just now."""
    found = Pair.objects.filter(direction=direction, sender_uri=sender_uri, receiver_uri=receiver_uri).first()
    if found is not None:
        return found, False
    sender, receiver = terms.own_party_name, terms.hop_party_name
    if direction == Direction.IN:
        sender, receiver = receiver, sender
    with transaction.atomic():
        # Two that are made at the same moment would choose the same code.
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_CODES])
        return Pair.objects.get_or_create(
            direction=direction,
            sender_uri=sender_uri,
            receiver_uri=receiver_uri,
            defaults={
                "own_party_id": terms.own_party_id,
                "partner_id": terms.hop_party_id,
                "code": _free_code(f"{_short(sender)}>{_short(receiver)}"),
            },
        )


# Letters that are written in another way where there are only those from A to Z.
_WRITTEN = [
    "Ä",
    "AE",
    "Ö",
    "OE",
    "Ü",
    "UE",
    "Æ",
    "AE",
    "Ø",
    "OE",
    "Œ",
    "OE",
    "Å",
    "AA",
    "Þ",
    "TH",
    "Ð",
    "D",
    "Ł",
    "L",
    "ẞ",
    "SS",
]
_LATIN = str.maketrans(dict(zip(_WRITTEN[::2], _WRITTEN[1::2], strict=True)))


def _short(name: str) -> str:
    """Part of a code: `MUELLER-SOEHNE` for "Müller & Söhne"."""
    written = unicodedata.normalize("NFKD", unicodedata.normalize("NFC", name.upper()).translate(_LATIN))
    plain = "".join(letter for letter in written if not unicodedata.combining(letter))
    return re.sub(r"[^A-Z0-9]+", "-", plain).strip("-")[:40].rstrip("-") or "PARTY"


def _free_code(wished: str) -> str:
    """The wished-for code, or with the next free number behind it (two agreements may join the same two parties)."""
    taken = set(Pair.objects.filter(code__startswith=wished).values_list("code", flat=True))
    if wished not in taken:
        return wished
    return next(f"{wished}-{n}" for n in range(2, len(taken) + 3) if f"{wished}-{n}" not in taken)


def reset() -> None:
    """Forgets which pairs were found (tests)."""
    _known.clear()
    _uncommitted.clear()


def give_up(pair: Pair, message: Message | None, now: datetime) -> list[Event]:
    """Call with the pair's lock held, after the machine's GIVE_UP. Changes `message` in memory; returns the events."""
    written: list[Event] = []
    detail = pair.cause_detail
    pair.probing = False
    upstream.onward_stopped(pair, "The next hop is suspended", now)
    if message is not None and pair.in_flight_id == message.pk:
        message.state = move(message.state, Happened.GAVE_UP, reliable=True)
        message.cause, message.cause_detail = pair.cause, detail
        data = {"cause": pair.cause, "detail": detail, "attempts": message.attempts}
        written.append(events.event("message.failed", now, pair=pair, message=message, data=data))
    in_flight = message.pk if message is not None else None
    incident, opened = incidents.incident_open(
        pair=pair, cause=pair.cause, now=now, detail=detail, message_pk=in_flight
    )
    data = {"cause": pair.cause, "detail": detail, "queued": pair.queued, "incident": incident.public_id}
    written.append(events.event("pair.suspended", now, pair=pair, data=data))
    return written + opened


def stop(pair: Pair, message: Message, cause: str, detail: str, terms: Terms, now: datetime) -> list[Event]:
    """Suspends a pair of repeatable requests because of one of them; no change when it is suspended already.

    Call with the pair's lock held. The message keeps its state: what becomes of it is the caller's to say.
    """
    if pair.flow == Flow.SUSPENDED:
        return []
    moved = step(outbound_state(pair), PairEvent(Kind.SUSPEND, cause=cause), now, sender_policy(terms))
    apply_outbound(pair, moved.state, now)
    pair.cause_detail = detail[:2000]
    return give_up(pair, message, now)


# Columns of the pair that `enqueue` changes.
PAIR_FIELDS = ("next_position", "queued", "due_at")


def enqueue(message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
    """Gives the message its place. Call with the pair's lock held; the caller saves both (`PAIR_FIELDS`)."""
    message.pair = pair
    message.created_at = now
    message.position = pair.next_position
    pair.next_position += 1
    profile.of(terms).enqueue(message, pair, terms, now)


def is_due(pair: Pair, now: datetime) -> bool:
    """Whether a claim would find the pair."""
    return pair.due_at is not None and pair.due_at <= now and pair.gate == Gate.OPEN


def queues(room: Mapping[uuid.UUID, int]) -> dict[uuid.UUID, list[Message]]:
    """The first queued messages of pairs, in their order: as many as each has `room` for, up to one of another profile.

    One index probe a pair, however long its queue is. A pair without any is left out.
    """
    if not room:
        return {}
    rows = read(
        Message,
        "SELECT m.* FROM unnest(%s::uuid[], %s::int[]) AS p(id, room) CROSS JOIN LATERAL ("
        " SELECT * FROM messaging_message WHERE pair_id = p.id AND standing = 'open' AND state = 'queued'"
        " AND due_at IS NULL ORDER BY position LIMIT p.room) AS m",
        [list(room), list(room.values())],
    )
    versions = registry.current()
    found: dict[uuid.UUID, list[Message]] = {}
    for message in sorted(rows, key=lambda message: message.position):
        found.setdefault(message.pair_id, []).append(message)
    for pair_id, waiting in found.items():
        spoken = [profile.of(versions.version(message.agreement_version_id)) for message in waiting]
        limit = next((at for at, other in enumerate(spoken) if other is not spoken[0]), len(waiting))
        found[pair_id] = waiting[:limit]
    return found
