"""What is in doubt, by evidence group: documents that share a trigger and a reason, messages that share a pair and one,
transactions that share a partner and one.

People settle a group of documents or messages at once, because what is true of one of them is likely to be true of
all; never more than a group. Transactions are settled participant by participant.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Count, F, Min, Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _

from messaging import causes
from messaging.choices import Consult, DeliveryState, Direction, MessageState, PartnerAnswer
from messaging.deliveries.selectors import deliveries
from messaging.messages.selectors import messages
from messaging.models import Coordination, Delivery, Enlistment, Message, Pair, Trigger
from messaging.models.traffic import HAS_IT, partner_said
from messaging.protocol.processing import Doubt
from messaging.transactions.selectors import coordinations
from partners.models import Party
from partners.visibility import limit, visible
from rmhub.language import gettext_lazy, inside

MOST = 10_000
# How long something may be in doubt before its age is shown in yellow and in red, in seconds.
LATE, TOO_LATE = 3600, 4 * 3600


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a document is in doubt: what happened, and how a person finds out."""

    label: str
    sentence: str
    advice: str


REASONS: Mapping[str, Reason] = {
    Doubt.REDELIVERED: Reason(
        gettext_lazy("Handed over before, no history"),
        gettext_lazy(
            "The document was handed over before, and the trigger keeps no history that could say what came of it."
        ),
        gettext_lazy(
            "Look for it in the application. Let the trigger use the document history, and this happens far less."
        ),
    ),
    Doubt.STARTED: Reason(
        gettext_lazy("Begun, never finished"),
        gettext_lazy(
            "The application was given the document before, and whether it finished was never recorded: the connection "
            "or the worker was lost."
        ),
        gettext_lazy("Look for the document in the application: is its effect there?"),
    ),
    Doubt.UNUSABLE_ID: Reason(
        gettext_lazy("No usable id"),
        gettext_lazy("Its MessageId is longer than 96 characters, so the document history cannot know it."),
        gettext_lazy("Look for it in the application, and ask the partner for shorter ids."),
    ),
    Doubt.HISTORY_UNREACHABLE: Reason(
        gettext_lazy("History could not be read"),
        gettext_lazy("The document history could not be read, so nobody can say whether the document is new."),
        gettext_lazy("When the database is fixed, have it decided again, or look for it in the application."),
    ),
    Doubt.MEMORY_LOST: Reason(
        gettext_lazy("Came after a loss of memory"),
        gettext_lazy(
            "The hub's database was restored, and what was processed since the backup is not known. The document may "
            "be a repeat from that time."
        ),
        gettext_lazy("Look for the document in the application: is its effect there?"),
    ),
    Doubt.RESOLVER_IN_DOUBT: Reason(
        gettext_lazy("Resolver cannot say"),
        gettext_lazy("The resolver was asked and does not know either."),
        gettext_lazy("Look for the document in the application: is its effect there?"),
    ),
    Doubt.RESOLVER_FAILED: Reason(
        gettext_lazy("Resolver failed"),
        gettext_lazy("The resolver could not answer: it was not available, or ended with an error."),
        gettext_lazy("Fix the resolver and ask it again."),
    ),
    Doubt.RESOLVER_NONSENSE: Reason(
        gettext_lazy("Resolver's answer unknown"),
        gettext_lazy("The resolver answered something that is neither NEW nor DUPLICATE nor IN DOUBT."),
        gettext_lazy("Fix the resolver and ask it again."),
    ),
    Doubt.MISFIT: Reason(
        gettext_lazy("Does not fit its schema"),
        gettext_lazy(
            "The document does not fit the schema of its service and action, which holds such documents: no "
            "application has been given it."
        ),
        gettext_lazy(
            "Look at what does not fit, and ask the partner for a corrected document; or hand it over as it is."
        ),
    ),
}


def reason(code: str) -> Reason:
    """The entry of a doubt code; an unknown one gets its own name."""
    known = REASONS.get(code)
    if known is not None:
        return known
    label = code.replace("_", " ").capitalize() or _("No reason recorded")
    return Reason(label, f"{label}.", _("Look for the document in the application."))


@dataclass(frozen=True, slots=True)
class DoubtGroup:
    """Inbound documents in doubt with one trigger for one reason. `later` of them were put off by a person."""

    trigger: Trigger
    doubt: str
    count: int
    later: int
    oldest_at: datetime

    @property
    def reason(self) -> Reason:
        return reason(self.doubt)

    @property
    def can_ask(self) -> bool:
        return self.trigger.resolver != Consult.NONE and self.doubt != Doubt.MISFIT


@dataclass(frozen=True, slots=True)
class OutboundGroup:
    """Outbound messages in doubt on one pair for one cause. `answers`: what the partner says -> of how many."""

    pair: Pair
    cause: str
    count: int
    later: int
    oldest_at: datetime
    answers: Mapping[str, int] = field(default_factory=dict)

    @property
    def mixed(self) -> bool:
        """The partner has some of them, and does not know others."""
        return bool(set(self.answers) & set(HAS_IT)) and PartnerAnswer.NOT_RECOGNIZED in self.answers

    @property
    def suggestion(self) -> str:
        """The decision that the partner's answer about each of them speaks for, "" when there is none."""
        found = {suggested(answer) for answer in self.answers}
        return found.pop() if len(found) == 1 else ""

    @property
    def asked(self) -> list[tuple[str, str, int]]:
        """Answers, their words, and their counts for people; "" = not asked."""
        return [
            (answer, inside(PartnerAnswer(answer).label) if answer else _("not asked"), count)
            for answer, count in sorted(self.answers.items())
        ]

    @property
    def reason(self) -> Reason:
        known = causes.lookup(self.cause)
        return Reason(known.label, known.sentence, known.action)


@dataclass(frozen=True, slots=True)
class TransactionGroup:
    """Transactions in which participants of one partner are in doubt for one reason. `oldest`: the participant of the
    oldest doubt; None, without partner and `doubt`, when nobody who may be shown is to be asked.

    A transaction with several participants in doubt is in several groups.
    """

    partner: Party | None
    doubt: str
    count: int
    oldest_at: datetime
    oldest: Enlistment | None = None

    @property
    def reason(self) -> Reason:
        known = coordinations.cause_named(self.doubt or "transaction_in_doubt")
        assert known is not None
        return Reason(known.label, known.sentence, known.action)


def groups(now: datetime, *, trigger_id: uuid.UUID | None = None) -> list[DoubtGroup]:
    """Inbound groups, the oldest first. Two queries."""
    found = limit(Delivery.objects.filter(state=DeliveryState.IN_DOUBT), "pair__partner")
    if trigger_id is not None:
        found = found.filter(trigger=trigger_id)
    rows = list(
        found.order_by()
        .values("trigger", "doubt")
        .annotate(
            number=Count("pk"),
            later=Count("pk", filter=Q(remind_at__gt=now)),
            oldest=Min(Coalesce("completed_at", "created_at")),
        )
    )
    known = Trigger.objects.defer("secret_encrypted").in_bulk({row["trigger"] for row in rows})
    made = [
        DoubtGroup(known[row["trigger"]], row["doubt"], row["number"], row["later"], row["oldest"])
        for row in rows
        if row["trigger"] in known
    ]
    return sorted(made, key=lambda group: group.oldest_at)


def group(trigger: Trigger, doubt: str, now: datetime) -> DoubtGroup | None:
    """One group as it is now; None when nothing is in it any more."""
    return next((one for one in groups(now, trigger_id=trigger.pk) if one.doubt == doubt), None)


def documents(trigger_id: uuid.UUID, doubt: str) -> QuerySet[Delivery]:
    """The documents of one group. Not ordered; pages by ("id",), the oldest first."""
    found = Delivery.objects.filter(trigger=trigger_id, state=DeliveryState.IN_DOUBT, doubt=doubt)
    return deliveries.with_names(limit(found, "pair__partner"))


def outbound_groups(now: datetime, *, pair_id: uuid.UUID | None = None) -> list[OutboundGroup]:
    """Outbound groups, the oldest first. Two queries."""
    found = limit(Message.objects.filter(state=MessageState.IN_DOUBT, direction=Direction.OUT), "pair__partner")
    if pair_id is not None:
        found = found.filter(pair=pair_id)
    rows = list(
        found.annotate(answer=partner_said())
        .order_by()
        .values("cause", "answer", pair_key=F("pair"))
        .annotate(
            number=Count("pk"),
            later=Count("pk", filter=Q(remind_at__gt=now)),
            oldest=Min(Coalesce("completed_at", "created_at")),
        )
    )
    known = Pair.objects.select_related("partner", "own_party").in_bulk({row["pair_key"] for row in rows})
    parts: dict[tuple[uuid.UUID, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["pair_key"] in known:
            parts.setdefault((row["pair_key"], row["cause"]), []).append(dict(row))
    made = [
        OutboundGroup(
            known[pair_key],
            cause,
            sum(row["number"] for row in of_group),
            sum(row["later"] for row in of_group),
            min(row["oldest"] for row in of_group),
            {row["answer"]: row["number"] for row in of_group},
        )
        for (pair_key, cause), of_group in parts.items()
    ]
    return sorted(made, key=lambda one: one.oldest_at)


def transaction_groups(*, pair_id: uuid.UUID | None = None) -> list[TransactionGroup]:
    """Groups of transactions, the oldest first; with a pair only those of participants that are reached by it. At most
    three queries.
    """
    doubtful = coordinations.within_reach(Coordination.objects.filter(doubtful_since__isnull=False)).order_by()
    about = coordinations.seen(Enlistment.objects.exclude(doubt="")).filter(coordination__in=doubtful.values("pk"))
    if pair_id is not None:
        about = about.filter(pair=pair_id)
    counted = about.order_by().values("party", "doubt")
    rows = counted.annotate(
        number=Count("coordination", distinct=True), since=Min("coordination__doubtful_since")
    ).values_list("party", "doubt", "number", "since")
    first = about.select_related("coordination", "party").distinct("party_id", "doubt")
    oldest = {
        (taker.party_id, taker.doubt): taker
        for taker in first.order_by("party_id", "doubt", "coordination__doubtful_since", "id")
    }
    made = [
        TransactionGroup(oldest[party, doubt].party, doubt, number, since, oldest[party, doubt])
        for party, doubt, number, since in rows
        if (party, doubt) in oldest
    ]
    if pair_id is None:
        nameless = doubtful.exclude(pk__in=about.values("coordination"))
        count, since = nameless.aggregate(number=Count("pk"), since=Min("doubtful_since")).values()
        made += [TransactionGroup(None, "", count, since)] if count else []
    return sorted(made, key=lambda one: one.oldest_at)


def outbound_counts(pair_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, int]:
    """How many messages of each of these pairs are in doubt, those put off too. One query over the partial index."""
    wanted = list(pair_ids)
    if not wanted:
        return {}
    found = Message.objects.filter(state=MessageState.IN_DOUBT, direction=Direction.OUT, pair__in=wanted)
    return dict(found.order_by().values_list("pair").annotate(number=Count("pk")))


@dataclass(frozen=True, slots=True)
class AnswerGroup:
    """Outbound messages in doubt about which their partners say the same; `answer` "" = not asked yet."""

    answer: str
    count: int
    pairs: int
    oldest_at: datetime

    @property
    def label(self) -> str:
        return PartnerAnswer(self.answer).label if self.answer else _("Not asked yet")

    @property
    def suggestion(self) -> str:
        """The decision that the answer is evidence for, "" when it is none."""
        return suggested(self.answer)


def suggested(answer: str) -> str:
    """`delivered`, `resubmit` or "": what the partner's answer speaks for (`services.settling.MessageDecision`)."""
    if answer in HAS_IT:
        return "delivered"
    return "resubmit" if answer == PartnerAnswer.NOT_RECOGNIZED else ""


def by_answer(groups: Iterable[OutboundGroup]) -> list[AnswerGroup]:
    """The same messages by what the partners say, those with evidence first, the largest first. No query."""
    found: dict[str, list[OutboundGroup]] = {}
    for one in groups:
        for answer in one.answers:
            found.setdefault(answer, []).append(one)
    made = [
        AnswerGroup(
            answer,
            sum(one.answers[answer] for one in of_answer),
            len({one.pair.pk for one in of_answer}),
            min(one.oldest_at for one in of_answer),
        )
        for answer, of_answer in found.items()
    ]
    return sorted(made, key=lambda one: (not one.suggestion, one.answer == "", -one.count))


def answered(answer: str) -> QuerySet[Message]:
    """The messages in doubt about which their partners say this. Not ordered; pages by ("id",)."""
    found = limit(Message.objects.filter(state=MessageState.IN_DOUBT, direction=Direction.OUT), "pair__partner")
    return messages.with_names(found.annotate(answer=partner_said()).filter(answer=answer))


def outbound_group(pair: Pair, cause: str, now: datetime) -> OutboundGroup | None:
    """One group as it is now; None when nothing is in it any more."""
    return next((one for one in outbound_groups(now, pair_id=pair.pk) if one.cause == cause), None)


def outbound_messages(pair_id: uuid.UUID, cause: str) -> QuerySet[Message]:
    """The messages of one group. Not ordered; pages by ("id",)."""
    found = Message.objects.filter(pair=pair_id, state=MessageState.IN_DOUBT, direction=Direction.OUT, cause=cause)
    return messages.with_names(found.annotate(answer=partner_said()))


@dataclass(frozen=True, slots=True)
class Counts:
    """What is in doubt and not put off, counted up to `MOST`."""

    inbound: int
    outbound: int

    @property
    def all(self) -> int:
        return self.inbound + self.outbound


# How many are in doubt and not put off, inbound and outbound: two columns, with the parameters of `count_parameters`.
COUNTS = (
    "(SELECT count(*) FROM (SELECT 1 FROM messaging_delivery WHERE state = 'in_doubt'"
    " AND (remind_at IS NULL OR remind_at <= %s) LIMIT %s) AS counted),"
    " (SELECT count(*) FROM (SELECT 1 FROM messaging_message WHERE standing = 'in_doubt' AND direction = 'out'"
    " AND (remind_at IS NULL OR remind_at <= %s) LIMIT %s) AS counted)"
)


def count_parameters(now: datetime) -> list[datetime | int]:
    """What `COUNTS` takes."""
    return [now, MOST, now, MOST]


def counts(now: datetime) -> Counts:
    """One query over the partial indexes; two for whoever is limited to some partners."""
    if visible() is not None:
        awake = Q(remind_at=None) | Q(remind_at__lte=now)
        inbound = limit(Delivery.objects.filter(awake, state=DeliveryState.IN_DOUBT), "pair__partner")
        outbound = Message.objects.filter(awake, state=MessageState.IN_DOUBT, direction=Direction.OUT)
        return Counts(inbound[:MOST].count(), limit(outbound, "pair__partner")[:MOST].count())
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {COUNTS}", count_parameters(now))
        return Counts(*cursor.fetchone())


def age(since: datetime, now: datetime) -> str:
    """`good`, `watch` or `bad`: how long a decision has been waited for."""
    seconds = (now - since).total_seconds()
    return "bad" if seconds >= TOO_LATE else "watch" if seconds >= LATE else "good"
