"""Deliveries: one document on its way to one trigger, and the evidence by which it was new, duplicate or in doubt."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from messaging import keyset
from messaging.choices import TRIGGER_LOOKS, Consult, DeliveryState, DocumentIdSource, ServiceKind
from messaging.messages.selectors import messages
from messaging.messages.selectors.messages import bounded
from messaging.models import AuditEntry, Delivery, DocumentCompleted, DocumentStarted, Message, Pair, Payload, Trigger
from messaging.models.base import existing
from messaging.overview.selectors import records
from partners.visibility import limit
from rmhub.ids import BadPublicId, read_public_id
from rmhub.language import gettext_lazy, inside

_MOST = 50


def deliveries(
    *,
    states: tuple[str, ...] = (),
    trigger_id: uuid.UUID | None = None,
    partner_id: uuid.UUID | None = None,
    message_id: uuid.UUID | None = None,
    doubt: str = "",
    document: str = "",
    q: str = "",
) -> QuerySet[Delivery]:
    """Deliveries with trigger, message and sender, without bytes and secrets. Not ordered; pages by ("-id",).

    `document` is the document id that the history goes by; `q` an exact id: of the delivery or its message, the
    MessageId, or the document id.
    """
    found = with_names(limit(Delivery.objects.all(), "pair__partner"))
    if states:
        found = found.filter(state__in=states)
    if trigger_id is not None:
        found = found.filter(trigger=trigger_id)
    if partner_id is not None:
        found = found.filter(pair__in=Pair.objects.filter(partner=partner_id).values("pk"))
    if message_id is not None:
        found = found.filter(message=message_id)
    if doubt:
        found = found.filter(doubt=doubt, state=DeliveryState.IN_DOUBT)
    if document:
        found = found.filter(_of_document(document))
    return found.filter(_exact(q)) if q else found


ORDERS = {"-created_at": ("-id",), "created_at": ("id",)}  # by what the API calls them


def delivery_page(
    found: QuerySet[Delivery], *, order: tuple[str, ...] = ("-id",), limit: int, place: keyset.Place | None = None
) -> keyset.Page[Delivery]:
    """A page of `deliveries`, newest first unless `order` says so. Raises messages.TooBroad when it takes too long."""
    with bounded():
        return keyset.page(found, order=order, limit=limit, place=place)


def delivery(reference: str | uuid.UUID) -> Delivery:
    """One delivery with everything but the service's answer, by id (`del_...`). Raises NotFound."""
    key = read_public_id("del", reference) if isinstance(reference, str) else reference
    rows = limit(Delivery.objects.filter(pk=key), "pair__partner")
    return existing(with_names(rows).select_related("resubmission_of", "join", "part_of"), key)


def with_names(queryset: QuerySet[Delivery]) -> QuerySet[Delivery]:
    """The same deliveries with what a row shows."""
    return queryset.select_related(
        "trigger", "sender", "message__pair__partner", "message__agreement_version__agreement"
    ).defer("answer", "message__wire_frame", "trigger__secret_encrypted")


def of_message(message_id: uuid.UUID) -> list[Delivery]:
    """The deliveries of one message, in the order of their triggers' names; resubmissions behind their originals.

    `first`, of a duplicate: the delivery that brought the same document before.
    """
    found = with_names(Delivery.objects.filter(message=message_id)).order_by("trigger__name", "id")
    rows = list(found[:_MOST])
    for row in rows:
        row.first = first_of(row) if row.state == DeliveryState.DUPLICATE else None  # type: ignore[attr-defined]
    return rows


def resubmitted_as(delivery_id: uuid.UUID) -> uuid.UUID | None:
    """The delivery that a person had made from this one, if any."""
    return Delivery.objects.filter(resubmission_of=delivery_id).values_list("pk", flat=True).first()


def _exact(text: str) -> Q:
    """By index each: an OR over two tables would have none. A MessageId is unique for its sender only."""
    for prefix, column in (("del", "pk"), ("msg", "message")):
        if text.startswith(f"{prefix}_"):
            try:
                return Q(**{column: read_public_id(prefix, text)})
            except BadPublicId:
                break
    known = Message.objects.filter(message_id=text).order_by("-id").values_list("pk", flat=True)
    return Q(message__in=list(known[:_MOST])) | _of_document(text)


def _of_document(document_id: str) -> Q:
    """Whose history goes by this id: found by it where the document holds it, else by the messages that brought it."""
    said = Message.objects.filter(messages.of_document(document_id)).order_by("-id").values_list("pk", flat=True)
    inside = Q(document_id_from=DocumentIdSource.DOCUMENT)
    return Q(document_id=document_id) & (inside | Q(message__in=list(said[:_MOST])))


def first_of(delivery: Delivery) -> Delivery | None:
    """The delivery of the same document to the same trigger that the history knows, where it is another one."""
    if not delivery.document_id:
        return None
    same = {"trigger": delivery.trigger_id, "sender": delivery.sender_id, "document_id": delivery.document_id}
    ended = DocumentCompleted.objects.filter(**same).order_by("completed_at").values_list("delivery_id", flat=True)
    begun = DocumentStarted.objects.filter(**same).values_list("delivery_id", flat=True)
    known = ended.first() or begun.first()
    if known is None or known == delivery.pk:
        return None
    return limit(with_names(Delivery.objects.filter(pk=known)), "pair__partner").first()


# --- the evidence ladder ---


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the decision. `sign`: yes, no, unknown or skipped; `verdict` in words, "" = it did not decide."""

    step: str
    title: str
    question: str
    finding: str
    verdict: str
    sign: str
    detail: str = ""
    at: datetime | None = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryScreen:
    """All of a delivery's page."""

    delivery: Delivery
    rungs: list[Rung]
    payloads: list[Payload]
    started: DocumentStarted | None
    resubmitted_as: Delivery | None
    parts: list[Delivery]
    siblings: list[Delivery]
    first: Delivery | None = None
    audit: list[AuditEntry] = field(default_factory=list)


def delivery_screen(delivery: Delivery) -> DeliveryScreen:
    """Everything about one delivery that `delivery` read. A fixed number of queries."""
    begun = DocumentStarted.objects.filter(
        trigger=delivery.trigger_id, sender=delivery.sender_id, document_id=delivery.document_id
    )
    siblings = with_names(Delivery.objects.filter(message=delivery.message_id).exclude(pk=delivery.pk))
    # A join may bring together documents of several partners.
    parts = limit(Delivery.objects.filter(part_of=delivery.join_id), "pair__partner")
    joined = with_names(parts) if delivery.join_id else None
    audit = records.audit_entries(object_type="delivery", object_id=delivery.public_id)
    return DeliveryScreen(
        delivery=delivery,
        rungs=ladder(delivery),
        payloads=list(messages.payloads(delivery.message_id)),
        started=begun.first() if delivery.document_id else None,
        resubmitted_as=with_names(Delivery.objects.filter(resubmission_of=delivery)).first(),
        parts=list(joined.order_by("id")[:_MOST]) if joined is not None else [],
        siblings=list(siblings.order_by("id")[:_MOST]),
        first=first_of(delivery),
        audit=list(audit.order_by("-id")[:15]),
    )


# step -> title, question; the order is the order of the decision (spec 4).
_STEPS: Mapping[str, tuple[str, str]] = {
    "redelivery": (gettext_lazy("Redelivery count"), gettext_lazy("Was it handed over before?")),
    "history": (gettext_lazy("Document history"), gettext_lazy("Has this trigger begun or completed it?")),
    "memory": (gettext_lazy("Hub's memory"), gettext_lazy("Has evidence expired?")),
    "schema": (gettext_lazy("Schema"), gettext_lazy("Does it fit?")),
    "resolver": (gettext_lazy("Resolver"), gettext_lazy("What does the application's own check say?")),
    "operator": (gettext_lazy("Person"), gettext_lazy("What did somebody decide?")),
}
# (step, finding) -> sign and words.
_FINDINGS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("redelivery", "first"): ("yes", gettext_lazy("Handed over for the first time")),
    ("redelivery", "redelivered"): ("no", gettext_lazy("Handed over before")),
    ("redelivery", "undefined"): ("unknown", gettext_lazy("Cannot be known")),
    ("redelivery", "not_looked_at"): ("skipped", gettext_lazy("Not looked at")),
    ("history", "absent"): ("yes", gettext_lazy("No entry")),
    ("history", "started"): ("unknown", gettext_lazy("Begun, and no end recorded")),
    ("history", "completed"): ("no", gettext_lazy("Completed")),
    ("history", "unusable_id"): ("unknown", gettext_lazy("The document has no usable id")),
    ("history", "unreachable"): ("unknown", gettext_lazy("Could not be read")),
    ("memory", "lost"): ("unknown", gettext_lazy("Lost")),
    ("schema", "misfit"): ("no", gettext_lazy("Does not fit")),
    ("resolver", "new"): ("yes", gettext_lazy("Not processed")),
    ("resolver", "duplicate"): ("no", gettext_lazy("Processed already")),
    ("resolver", "in_doubt"): ("unknown", gettext_lazy("Cannot say")),
    ("resolver", "transient"): ("unknown", gettext_lazy("Not available")),
    ("resolver", "failed"): ("unknown", gettext_lazy("Ended with an error")),
    ("resolver", "nonsense"): ("unknown", gettext_lazy("Gave an answer that is no verdict")),
    ("operator", "resubmitted"): ("yes", gettext_lazy("Resubmitted: process it, whatever the history says")),
    ("operator", "processed"): ("no", gettext_lazy("The application has processed it")),
    ("operator", "not_processed"): ("yes", gettext_lazy("Not processed: resubmitted")),
}
_VERDICTS: Mapping[str, str] = {
    "new": gettext_lazy("New"),
    "duplicate": gettext_lazy("Duplicate"),
    "in_doubt": gettext_lazy("In doubt"),
    "unchecked": gettext_lazy("Processed without a check"),
    "suspend": gettext_lazy("Asked again later"),
}


def ladder(delivery: Delivery) -> list[Rung]:
    """The four steps in their order, each with what it found or why it was not taken; one more after a loss of memory,
    and where the document does not fit its schema.
    """
    known: dict[str, Mapping[str, Any]] = {
        str(one.get("step", "")): one for one in delivery.evidence if isinstance(one, dict)
    }
    decided = ""
    rungs = []
    for step, (title, question) in _STEPS.items():
        one = known.get(step)
        if one is None and step in ("memory", "schema"):
            continue  # nothing was lost, and it fits
        if one is None:
            rungs.append(Rung(step, title, question, _not_taken(delivery, step, decided), "", "skipped"))
            continue
        finding, verdict = str(one.get("finding", "")), str(one.get("verdict", ""))
        sign, words = _FINDINGS.get((step, finding), ("unknown", finding.replace("_", " ").capitalize()))
        detail = str(one.get("detail", ""))
        if detail and step in ("redelivery", "history", "memory", "schema"):  # the hub's own words for what it found
            words, detail = detail, ""
        decided = decided or verdict
        rungs.append(
            Rung(
                step,
                title,
                question,
                words,
                _VERDICTS.get(verdict, verdict),
                sign,
                detail,
                _instant(one.get("at")),
                str(one.get("by", "")),
            )
        )
    return rungs


def _not_taken(delivery: Delivery, step: str, decided: str) -> str:
    trigger = delivery.trigger
    if not delivery.evidence:
        return _("Not yet decided") if step != "operator" else _("Nobody was asked")
    if step == "operator":
        return _("Nobody has decided yet") if delivery.state in _UNDECIDED else _("Nobody had to decide")
    if decided and decided != "in_doubt":
        return _("Not needed: the step before decided")
    if step == "history" and not (trigger.detect_duplicates and trigger.use_history):
        return _("This trigger keeps no history")
    if step == "resolver" and trigger.resolver == Consult.NONE:
        return _("This trigger has no resolver")
    return _("Not asked")


_UNDECIDED = (DeliveryState.IN_DOUBT, DeliveryState.FAILED)


def _instant(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


# --- sentences ---


def headline(delivery: Delivery) -> str:
    """What has become of it, in one sentence."""
    state = DeliveryState(delivery.state)
    trigger: Trigger = delivery.trigger
    if state == DeliveryState.SETTLED:
        how = {
            "duplicate": _("Settled as processed already by {who}."),
            "resubmit": _("Settled by resubmitting it by {who}."),
        }.get(delivery.decision, _("Settled by {who}."))
        return how.format(who=delivery.decided_by)
    if state == DeliveryState.WAITING and trigger.state != "active":
        word = inside(TRIGGER_LOOKS[trigger.state].label)
        return _("Waits: {trigger} is {state}.").format(trigger=trigger.name, state=word)
    if state == DeliveryState.RUNNING and trigger.kind == ServiceKind.PULL:
        if not delivery.taken_by:
            return _("Taken by a consumer.")
        return _("Taken by {who}.").format(who=delivery.taken_by)
    if state == DeliveryState.RUNNING and trigger.kind == ServiceKind.ATOMIC:
        return _("Its members have it in one transaction, which is not decided yet.")
    return str(_HEADLINES[state])


_HEADLINES: Mapping[DeliveryState, str] = {
    DeliveryState.WAITING: gettext_lazy("Waits for its turn."),
    DeliveryState.RUNNING: gettext_lazy("The application has it right now."),
    DeliveryState.JOINED: gettext_lazy("Waits in a join for the other documents of its conversation."),
    DeliveryState.COMPLETED: gettext_lazy("The application has processed it."),
    DeliveryState.FAILED: gettext_lazy(
        "The application's service ended with an error; it is not handed over again by itself."
    ),
    DeliveryState.DUPLICATE: gettext_lazy("A copy of a document that was processed before: discarded."),
    DeliveryState.IN_DOUBT: gettext_lazy("No rule can say whether the application has processed it: a person decides."),
    DeliveryState.DISCARDED: gettext_lazy("Discarded by the rules of its join."),
}


_NAMES = ("message__pair__partner", "message__agreement_version__agreement")


@dataclass(frozen=True, slots=True)
class DocumentFacts:
    """One message of a delivery, with its payloads in their order (rows without the octets)."""

    message: Message
    payloads: tuple[Payload, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """A delivery with its trigger and its document; `others` are the other documents of a join, as they arrived."""

    delivery: Delivery
    document: DocumentFacts
    others: tuple[DocumentFacts, ...]

    @property
    def messages(self) -> list[Message]:
        return [facts.message for facts in (self.document, *self.others)]


def taken(delivery_ids: Sequence[uuid.UUID]) -> list[Taken]:
    """These deliveries in this order, in three queries at most. Raises KeyError for one that is not there."""
    found = Delivery.objects.select_related("trigger", *_NAMES).filter(pk__in=delivery_ids)
    rows = {row.pk: row for row in found.defer("trigger__secret_encrypted", "answer", "message__wire_frame")}
    chosen = [rows[delivery_id] for delivery_id in delivery_ids]
    others = _others(chosen)
    payloads = _payloads(message.pk for row in chosen for message in (row.message, *others[row.pk]))

    def facts(message: Message) -> DocumentFacts:
        return DocumentFacts(message, tuple(payloads[message.pk]))

    return [Taken(row, facts(row.message), tuple(facts(message) for message in others[row.pk])) for row in chosen]


def held(trigger_id: uuid.UUID, consumer: str) -> list[uuid.UUID]:
    """The deliveries of a pull queue that this consumer has leased now, in the order of their leases' ends."""
    running = Delivery.objects.filter(trigger=trigger_id, state=DeliveryState.RUNNING, taken_by=consumer)
    return list(running.filter(claim__isnull=False).order_by("due_at", "id").values_list("pk", flat=True))


def _others(firings: Sequence[Delivery]) -> dict[uuid.UUID, list[Message]]:
    """By delivery: the messages that its join brought together, but its own."""
    found: dict[uuid.UUID, list[Message]] = defaultdict(list)
    by_join: dict[uuid.UUID | None, Delivery] = {row.join_id: row for row in firings if row.join_id is not None}
    if by_join:
        parts = Delivery.objects.filter(part_of__in=by_join, state=DeliveryState.COMPLETED, join__isnull=True)
        parts = parts.select_related(*_NAMES).defer("answer", "message__wire_frame")
        for part in parts.order_by("message_id", "id"):
            firing = by_join[part.part_of_id]
            if part.message_id != firing.message_id:
                found[firing.pk].append(part.message)
    return found


def _payloads(message_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, list[Payload]]:
    found: dict[uuid.UUID, list[Payload]] = defaultdict(list)
    rows = Payload.objects.filter(message__in=set(message_ids)).defer("content")
    for payload in rows.order_by("message_id", "number"):
        found[payload.message_id].append(payload)
    return found
