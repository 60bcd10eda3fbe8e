"""Atomic transactions as screens and the API read them: the list, one with its participants and messages, what is in
doubt. People who are limited see those in which one of their partners takes part, and of these nothing of the others.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Count, Exists, Max, OuterRef, Prefetch, Q, QuerySet
from django.utils.translation import gettext as _

from messaging import causes, keyset
from messaging.causes.transactions import PREFIX
from messaging.choices import Direction
from messaging.exceptions import NotFound
from messaging.messages.selectors.messages import bounded
from messaging.models import AuditEntry, Coordination, CoordinationMessage, Delivery, Enlistment, Incident, Message
from messaging.models.base import existing
from messaging.overview.selectors import records
from messaging.profiles.wsat.delivering import CALLABLE, DOCUMENT_HISTORY
from messaging.protocol.atomic.words import ENDED, Phase
from partners import visibility
from partners.models import AgreementVersion
from rmhub.ids import BadPublicId, public_id, read_public_id
from rmhub.language import gettext_lazy

ROLES = ("coordinator", "participant")
MOST_PARTICIPANTS = 200
MOST_MESSAGES = 500
_MOST = 50
_COUNTED = 10_000
# What a person has decided about a participant, `Enlistment.settled_as`, in words.
_SETTLED = {
    "committed": gettext_lazy("committed"),
    "aborted": gettext_lazy("aborted"),
    "forget": gettext_lazy("forget"),
}


def coordinations(
    *,
    phases: tuple[str, ...] = (),
    doubtful: bool | None = None,
    doubt: str = "",
    party_id: uuid.UUID | None = None,
    role: str = "",
    q: str = "",
    begun_gte: datetime | None = None,
    begun_lt: datetime | None = None,
) -> QuerySet[Coordination]:
    """Transactions with who began them and their participants (`shown_enlistments`). Not ordered; pages by ("-id",).

    `party_id`: it began the transaction or takes part. `role`: this hub's, of `ROLES`. `q`: an exact id: the
    Identifier, `txn_...`, `enl_...`, or of one of the messages. `doubtful`: only those that need somebody, or only the
    others. `doubt`: a participant (of that party) is in doubt for this reason, as a cause's code.
    """
    found = with_names(within_reach(Coordination.objects.all()))
    if phases:
        found = found.filter(phase__in=phases)
    if doubtful is not None:
        found = found.filter(doubtful_since__isnull=not doubtful)
    if doubt:
        about = seen(Enlistment.objects.filter(coordination=OuterRef("pk"), doubt=doubt))
        about = about.filter(party=party_id) if party_id is not None else about
        found = found.filter(Exists(about), doubtful_since__isnull=False)
    elif party_id is not None:
        taking = Enlistment.objects.filter(party=party_id).order_by().values("coordination")
        # Looked up beforehand: the planner thinks of a party as anybody, who began a share of everything.
        versions = list(AgreementVersion.objects.filter(agreement__partner=party_id).values_list("pk", flat=True))
        began = Coordination.objects.filter(agreement_version__in=versions).order_by().values("pk")
        found = found.filter(pk__in=taking.union(began))
    if role:
        found = found.filter(subordinate=role == "participant")
    if begun_gte is not None:
        found = found.filter(id__gte=keyset.floor_id(begun_gte))
    if begun_lt is not None:
        found = found.filter(id__lt=keyset.floor_id(begun_lt))
    return found.filter(_exact(q)) if q else found


ORDERS = {"-created_at": ("-id",), "created_at": ("id",)}  # by what the API calls them


def coordination_page(
    found: QuerySet[Coordination], *, order: tuple[str, ...] = ("-id",), limit: int, place: keyset.Place | None = None
) -> keyset.Page[Coordination]:
    """A page of `coordinations`, newest first unless `order` says so. Raises messages.TooBroad."""
    with bounded():
        return keyset.page(found, order=order, limit=limit, place=place)


def coordination(reference: str | uuid.UUID) -> Coordination:
    """One transaction with its participants, by id (`txn_...`). Raises NotFound."""
    key = read_public_id("txn", reference) if isinstance(reference, str) else reference
    return existing(with_names(within_reach(Coordination.objects.filter(pk=key))), key)


def enlistment(reference: str | uuid.UUID) -> Enlistment:
    """One participant with its transaction, by id (`enl_...`). Raises NotFound."""
    key = read_public_id("enl", reference) if isinstance(reference, str) else reference
    rows = seen(Enlistment.objects.filter(pk=key)).select_related("coordination", "party")
    found = rows.first()
    if found is None or not within_reach(Coordination.objects.filter(pk=found.coordination_id)).exists():
        raise NotFound(_("There is no participant {id}.").format(id=public_id("enl", key)))
    return found


def with_names(found: QuerySet[Coordination]) -> QuerySet[Coordination]:
    """The same transactions with what a row shows: one query more for all participants, one for all deliveries."""
    takers = seen(Enlistment.objects.all()).select_related(
        "party", "trigger", "agreement_version__agreement", "pair__partner"
    )
    takers = takers.defer("trigger__secret_encrypted").order_by("id")
    # Not by joins: with that many the planner keeps their order, and reads everything before it filters.
    handed = Delivery.objects.select_related("trigger", "message", "pair")
    handed = handed.defer("answer", "trigger__secret_encrypted", "message__wire_frame")
    return found.select_related("agreement_version__agreement__partner").prefetch_related(
        Prefetch("enlistments", queryset=takers, to_attr="shown_enlistments"), Prefetch("delivery", queryset=handed)
    )


def within_reach(found: QuerySet[Coordination]) -> QuerySet[Coordination]:
    """The transactions that the present request may see (as `reach.OWNED` has it, for rows of lists)."""
    partners = visibility.visible()
    if partners is None:
        return found
    takes = Enlistment.objects.filter(coordination=OuterRef("pk"), party_id__in=partners)
    # What begins the hand-over of a document is a trigger; people choose the names of those.
    own = Q(agreement_version__isnull=True, delivery__isnull=True, begun_by=visibility.viewer())
    began = Q(agreement_version__agreement__partner__in=partners)
    return found.filter(Q(Exists(takes)) | began | Q(delivery__pair__partner__in=partners) | own)


def seen(found: QuerySet[Enlistment]) -> QuerySet[Enlistment]:
    """Participants that may be shown: those of partners in reach, and what this hub does itself."""
    return visibility.shared(found, "party")


def hidden(one: Coordination) -> int:
    """How many participants are of partners that the present request may not see."""
    if visibility.visible() is None:
        return 0
    every = Enlistment.objects.filter(coordination=one.pk)
    return every.count() - seen(every).count()


def cause_of(one: Coordination) -> causes.Cause | None:
    """Why it aborted, as an entry of the list of causes; None when nothing is recorded."""
    return cause_named(one.cause)


def cause_named(code: str) -> causes.Cause | None:
    """The entry of a code as the rows of a transaction hold it: without the prefix, or a code of any other part."""
    if not code:
        return None
    return causes.CAUSES.get(f"{PREFIX}{code}") or causes.lookup(code)


def name_of(one: Enlistment) -> str:
    """What people call a participant: its partner, or what this hub does itself."""
    if one.local == DOCUMENT_HISTORY:
        return _("Document history")
    if one.local.startswith(CALLABLE):
        return _("Callable {name}").format(name=one.local.removeprefix(CALLABLE))
    if one.local:
        return one.local[:1].upper() + one.local[1:]
    return one.party.name if one.party is not None else one.peer_address or one.public_id


def settled_word(outcome: str) -> str:
    """What a person has decided about a participant, in words."""
    return str(_SETTLED.get(outcome, outcome))


def beginner(one: Coordination) -> str:
    """Who began it: a partner, a person or token, or the trigger of its delivery; of what may be shown."""
    if one.agreement_version is not None:
        partner = one.agreement_version.agreement.partner
        return partner.name if visibility.allows(partner.pk) else _("another partner")
    if one.begun_by:
        return one.begun_by
    shown = delivery_of(one)
    return shown.trigger.name if shown is not None else _("this hub")


def delivery_of(one: Coordination) -> Delivery | None:
    """The delivery that it belongs to, if it may be shown."""
    return one.delivery if one.delivery is not None and visibility.allows(one.delivery.pair.partner_id) else None


def outcome(one: Coordination) -> str:
    """`committed`, `aborted`, or "" while it is not decided."""
    if one.decided_at is not None or one.phase in (Phase.COMMITTING, Phase.COMMITTED):
        return "committed"
    return "aborted" if one.phase in (Phase.ABORTING, Phase.ABORTED) else ""


# --- one transaction's page ---


@dataclass(frozen=True, slots=True)
class Pending:
    """What a participant was sent and has not answered: its kind, since when, how often, and when it goes out again."""

    kind: str
    since: datetime
    attempts: int
    next_at: datetime | None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class CoordinationScreen:
    """All of a transaction's page. `messages` are the oldest; `more`: there are others behind them."""

    coordination: Coordination
    enlistments: list[Enlistment]
    hidden: int
    messages: list[CoordinationMessage]
    more: bool
    pending: dict[uuid.UUID, Pending] = field(default_factory=dict)
    heard: dict[uuid.UUID, datetime] = field(default_factory=dict)
    incidents: list[Incident] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)


def coordination_screen(one: Coordination) -> CoordinationScreen:
    """Everything about one transaction that `coordination` read. A fixed number of queries."""
    rows = list(messages_of(one.pk).order_by("at", "message_id")[: MOST_MESSAGES + 1])
    audit = records.audit_entries(object_type="coordination", object_id=one.public_id)
    return CoordinationScreen(
        coordination=one,
        enlistments=taking_part(one),
        hidden=hidden(one),
        messages=rows[:MOST_MESSAGES],
        more=len(rows) > MOST_MESSAGES,
        pending=pending(one.pk),
        heard=heard(one.pk),
        incidents=list(incidents_of(one.pk)[:8]),
        audit=list(audit.order_by("-id")[:15]),
    )


def taking_part(one: Coordination) -> list[Enlistment]:
    """Its participants that may be shown, in the order of their registration; of a row that this module read."""
    found: list[Enlistment] = one.shown_enlistments  # type: ignore[attr-defined]
    return found[:MOST_PARTICIPANTS]


def messages_of(coordination_id: uuid.UUID) -> QuerySet[CoordinationMessage]:
    """The messages that were exchanged about it, without octets. Not ordered; pages by ("message_id",)."""
    found = visibility.limit(CoordinationMessage.objects.filter(coordination=coordination_id), "message__pair__partner")
    return found.select_related("message__pair__partner", "enlistment__party").defer("message__wire_frame")


def pending(coordination_id: uuid.UUID) -> dict[uuid.UUID, Pending]:
    """What is not answered yet, by participant: the oldest of each. One query by index."""
    rows = CoordinationMessage.objects.filter(
        coordination=coordination_id, awaits=True, enlistment__isnull=False, message__state__in=_UNANSWERED
    )
    found: dict[uuid.UUID, Pending] = {}
    for row in rows.select_related("message").defer("message__wire_frame").order_by("at", "message_id"):
        assert row.enlistment_id is not None
        message = row.message
        found.setdefault(row.enlistment_id, Pending(row.kind, row.at, message.attempts, message.due_at, message.cause))
    return found


def heard(coordination_id: uuid.UUID) -> dict[uuid.UUID, datetime]:
    """When each participant was last heard of, by participant."""
    rows = CoordinationMessage.objects.filter(
        coordination=coordination_id, enlistment__isnull=False, message__direction=Direction.IN
    )
    return dict(rows.order_by().values_list("enlistment").annotate(last=Max("at")))


_UNANSWERED = ("queued", "sending", "awaiting_ack", "retrying")


def incidents_of(coordination_id: uuid.UUID) -> QuerySet[Incident]:
    """Incidents about it, the unresolved and the newest first."""
    return records.incidents(coordination_id=coordination_id).order_by("-number")


# --- links from elsewhere ---


def of_message(message_id: uuid.UUID) -> CoordinationMessage | None:
    """What a message is to a transaction, with the transaction; None for all other messages."""
    row = CoordinationMessage.objects.filter(message=message_id).select_related("coordination", "enlistment").first()
    if row is None or row.coordination is None:
        return row
    return row if within_reach(Coordination.objects.filter(pk=row.coordination.pk)).exists() else None


def of_delivery(delivery_id: uuid.UUID, most: int = 10) -> list[Coordination]:
    """The transactions in which a document was handed over, the newest first."""
    return list(with_names(within_reach(Coordination.objects.filter(delivery=delivery_id))).order_by("-id")[:most])


# --- what needs somebody ---


def doubtful(most: int = _MOST) -> list[Coordination]:
    """Transactions that somebody has to look at, the oldest doubt first."""
    found = with_names(within_reach(Coordination.objects.filter(doubtful_since__isnull=False)))
    return list(found.order_by("doubtful_since", "id")[:most])


def doubtful_count() -> int:
    """How many there are, counted up to 10,000; one query over the partial index."""
    found = within_reach(Coordination.objects.filter(doubtful_since__isnull=False))
    return found.order_by()[:_COUNTED].count()


# How many transactions are in doubt, as a column of `screens.nav_counts`.
COUNT = (
    "(SELECT count(*) FROM (SELECT 1 FROM messaging_coordination WHERE doubtful_since IS NOT NULL"
    " LIMIT 10000) AS counted)"
)


def doubts_of(one: Coordination) -> list[Enlistment]:
    """The participants for which it is in doubt."""
    return [taker for taker in taking_part(one) if taker.doubt]


def counts_by_phase() -> dict[str, int]:
    """How many transactions are open, by phase; those that ended are not counted. One query over the partial index."""
    found = within_reach(Coordination.objects.exclude(phase__in=[one.value for one in ENDED]))
    counted = dict(found.order_by().values_list("phase").annotate(number=Count("pk")))
    return {phase.value: counted.get(phase.value, 0) for phase in Phase if phase not in ENDED}


def _exact(text: str) -> Q:
    """By index each: an OR over several tables would have none."""
    for prefix, model in (("txn", None), ("enl", Enlistment), ("msg", CoordinationMessage), ("del", None)):
        if not text.startswith(f"{prefix}_"):
            continue
        try:
            key = read_public_id(prefix, text)
        except BadPublicId:
            break
        if prefix == "del":
            return Q(delivery=key)
        if model is None:
            return Q(pk=key)
        rows = model.objects.filter(pk=key).values_list("coordination", flat=True)
        return Q(pk__in=[one for one in rows if one is not None])
    if Coordination.objects.filter(identifier=text).exists():
        return Q(identifier=text)
    known = Message.objects.filter(message_id=text).order_by("-id").values_list("pk", flat=True)[:_MOST]
    rows = CoordinationMessage.objects.filter(message__in=list(known)).values_list("coordination", flat=True)
    return Q(pk__in=[one for one in rows if one is not None])
