"""What an id that somebody pasted names: exact ids first, then what is called so among the things that are few."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.utils.translation import gettext as _

from messaging.access.selectors import people
from messaging.archive import selectors as archive
from messaging.bulk import selectors as jobs
from messaging.choices import MESSAGE_LOOKS, PHASE_LOOKS
from messaging.deliveries.selectors import deliveries, triggers
from messaging.engine import attributes as attribute_rules
from messaging.exceptions import NotFound
from messaging.messages import attributes, masks, schemas
from messaging.messages.selectors import messages, relatives
from messaging.models import Coordination, Message, Signal
from messaging.notifications import selectors as notifications
from messaging.onboarding import selectors as onboarding
from messaging.overview.selectors import records
from messaging.pairs.selectors import pairs
from messaging.pollers import selectors as pollers
from messaging.reports.selectors import pipeline
from messaging.routing import selectors as routes
from messaging.transactions.selectors import coordinations
from partners import selectors as partners
from partners.models import Agreement, Party
from partners.visibility import limit
from rmhub.ids import BadPublicId, public_id, read_public_id
from rmhub.language import gettext_lazy

_MOST = 10
_SHORTEST = 6  # characters of the beginning of a MessageId
_INCIDENT = re.compile(r"INC-[0-9]{1,9}", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing that was found: what it is, its name, and what shows it (name and arguments of a page)."""

    kind: str
    name: str
    page: str
    arguments: tuple[str, ...]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing: what it is called, the page that shows it, and how one is looked up by the key in its id.

    `look` raises NotFound or DoesNotExist; None is a message that has left the store. `name`, `arguments` (of the
    page) and `detail` are those of one.
    """

    kind: str
    page: str
    look: Callable[[uuid.UUID], Any]
    name: Callable[[Any], str] = str
    arguments: Callable[[Any], tuple[str, ...]] = lambda one: (one.public_id,)
    detail: Callable[[Any], str] = lambda one: ""

    def hit(self, one: Any) -> Hit:
        return Hit(self.kind, self.name(one), self.page, self.arguments(one), self.detail(one))


@dataclass(frozen=True, slots=True)
class Found:
    """`only`: the one thing that has exactly this id. Else what is near; `more_messages`: the list goes on."""

    only: Hit | None = None
    hits: list[Hit] = field(default_factory=list)
    more_messages: bool = False


def find(text: str, scopes: Collection[str] = ()) -> Found:
    """Looks for `msg_...` and the like, INC-n, codes of pairs, TPAIds, names of triggers, Identifiers of transactions,
    MessageIds, document ids, ConversationIds, attributes (`invoice:4711`, or the value alone), party identifiers.

    `scopes`: those of whoever asks; what only some may see (`_NEEDS`) is not there for others. Index look-ups for what
    is many (messages); partial names only for what is few (pairs, parties, triggers ...).
    """
    text = text.strip()[:512].replace("\x00", "")
    if not text:
        return Found()
    exact = _by_public_id(text, scopes) or _by_number(text) or _pair(text) or _agreement(text) or _trigger(text)
    exact = exact or _transaction(text)
    if exact is not None:
        return Found(only=exact)
    with messages.planned_for_values():
        hits, more = _messages(text)
        hits += _identifiers(text)
        if len(hits) == 1:
            return Found(only=hits[0])
        if hits:
            return Found(hits=hits, more_messages=more)
        return Found(hits=_near(text))


def _by_public_id(text: str, scopes: Collection[str]) -> Hit | None:
    prefix, mark, _ = text.partition("_")
    kind = _BY_PREFIX.get(prefix)
    needed = _NEEDS.get(prefix, "")
    if not mark or kind is None or (needed and needed not in scopes):
        return None
    try:
        key = read_public_id(prefix, text)
        one = kind.look(key)
        return kind.hit(one) if one is not None else ARCHIVED.hit(ARCHIVED.look(key))
    except (BadPublicId, NotFound, ObjectDoesNotExist):
        return None


def _by_number(text: str) -> Hit | None:
    if not _INCIDENT.fullmatch(text):
        return None
    try:
        return INCIDENT.hit(records.incident(text))
    except NotFound:
        return None


def _pair(text: str) -> Hit | None:
    found = pairs.pairs().filter(code__iexact=text).first()
    return PAIR.hit(found) if found else None


def _agreement(text: str) -> Hit | None:
    found = limit(Agreement.objects.filter(tpa_id=text), "partner").first()
    return AGREEMENT.hit(found) if found else None


def _trigger(text: str) -> Hit | None:
    found = triggers.triggers().filter(name__iexact=text).first()
    return TRIGGER.hit(found) if found else None


def _transaction(text: str) -> Hit | None:
    """By its Identifier: an absolute URI, which the messages about it carry too."""
    if ":" not in text:
        return None
    same = coordinations.within_reach(Coordination.objects.filter(identifier=text))
    found = coordinations.with_names(same).order_by("-id").first()
    return TRANSACTION.hit(found) if found else None


def _messages(text: str) -> tuple[list[Hit], bool]:
    """Messages with this MessageId or document id, else those of the conversation with this ConversationId, else those
    with this attribute; in the store, and those that have left it for the archive.
    """
    rows = list(
        messages.with_names(limit(Message.objects.filter(messages.of_document(text)), "pair__partner")).order_by("-id")[
            :_MOST
        ]
    )
    gone = archive.left(text)
    if not rows and not any(row.message_id == text for row in gone):
        talk = limit(Message.objects.filter(conversation_id=text), "pair__partner")
        rows = list(messages.with_names(talk).order_by("-id")[: _MOST + 1]) or _valued(text)
    hits = [MESSAGE.hit(row) for row in rows[:_MOST]]
    return [*hits, *(ARCHIVED.hit(row) for row in gone)], len(rows) > _MOST


def _valued(text: str) -> list[Message]:
    """Some of the messages that have an attribute `name:value`, or one with this value, in no order until they are few:
    the index of the attributes has none of time.
    """
    name, colon, value = text.partition(":")
    known = bool(colon and value and attribute_rules.NAME.fullmatch(name))
    which = {"attributes__contains": {name: value}} if known else {"attributes__any_value": text}
    having = messages.shown().filter(**which).values_list("pk", flat=True)[: _MOST + 1]
    return list(messages.with_names(Message.objects.filter(pk__in=list(having))).order_by("-id"))


def _identifiers(text: str) -> list[Hit]:
    _, colon, value = text.partition(":")
    found = limit(Party.objects.filter(identifiers__value__in=[text, value] if colon else [text]), "pk")
    return [PARTY.hit(party) for party in found.distinct().order_by("name")[:_MOST]]


def _near(text: str) -> list[Hit]:
    """Things whose names contain the text, and messages whose MessageIds begin with it."""
    found = [PAIR.hit(pair) for pair in pairs.pairs(search=text).order_by("code")[:_MOST]]
    found += [PARTY.hit(party) for party in partners.parties(search=text)[:_MOST]]
    for agreement in partners.agreements(search=text)[:_MOST]:
        found.append(replace(AGREEMENT.hit(agreement), detail=agreement.name))
    found += [TRIGGER.hit(trigger) for trigger in triggers.triggers(q=text).order_by("name")[:_MOST]]
    found += [ROUTE.hit(route) for route in routes.routes(q=text)[:_MOST]]
    return found + [MESSAGE.hit(row) for row in _beginning(text)]


def _beginning(text: str) -> list[Message]:
    """Some of the messages whose MessageIds begin so, in no order: the index of the ids has none of time."""
    if len(text) < _SHORTEST:
        return []
    begun = messages.shown().filter(message_id__startswith=text).values_list("pk", flat=True)[:_MOST]
    return list(messages.with_names(Message.objects.filter(pk__in=list(begun))).order_by("-id"))


PAIR = Kind(gettext_lazy("Pair"), "pair", pairs.pair, lambda pair: pair.code, lambda pair: (pair.code,))
PARTY = Kind(gettext_lazy("Partner"), "partner", lambda key: limit(Party.objects.all(), "pk").get(pk=key))
AGREEMENT = Kind(
    gettext_lazy("Agreement"),
    "agreement",
    lambda key: limit(Agreement.objects.all(), "partner").get(pk=key),
    lambda agreement: agreement.tpa_id,
)
INCIDENT = Kind(gettext_lazy("Incident"), "incident", records.incident, arguments=lambda incident: (str(incident),))
ROUTE = Kind(
    gettext_lazy("Route"), "route", routes.route, detail=lambda route: f"{route.party_context} {route.party_value}"
)
TRIGGER = Kind(
    gettext_lazy("Trigger"), "trigger", triggers.trigger, lambda trigger: trigger.name, detail=triggers.target
)
TRANSACTION = Kind(
    gettext_lazy("Transaction"),
    "transaction",
    coordinations.coordination,
    lambda one: one.identifier,
    detail=lambda one: _("{state}, begun by {name}").format(
        state=PHASE_LOOKS[one.phase].label, name=coordinations.beginner(one)
    ),
)
MESSAGE = Kind(
    gettext_lazy("Message"),
    "message",
    messages.in_store,
    lambda message: message.message_id,
    detail=lambda message: f"{message.pair.code}, {message.action}, {MESSAGE_LOOKS[message.state].label}",
)
ARCHIVED = Kind(
    gettext_lazy("Archived message"),
    "archived",
    archive.archived_message,
    lambda row: row.message_id,
    detail=lambda row: _("{pair}, {action}, in the archive").format(pair=row.pair.code, action=row.action),
)
# Prefix of public ids -> what they name.
_BY_PREFIX: dict[str, Kind] = {
    "msg": MESSAGE,
    "hold": Kind(gettext_lazy("Legal hold"), "hold", archive.hold, lambda hold: hold.name),
    "pair": PAIR,
    "inc": INCIDENT,
    "att": Kind(gettext_lazy("Transmission"), "transmission", messages.transmission),
    "sig": Kind(
        gettext_lazy("Signal"),
        "signal",
        lambda key: limit(Signal.objects.defer("body"), "pair__partner").get(pk=key),
        lambda signal: signal.message_id,
    ),
    "rej": Kind(gettext_lazy("Rejection"), "rejection", records.rejection),
    "par": PARTY,
    "agr": AGREEMENT,
    "rt": ROUTE,
    "trg": TRIGGER,
    "del": Kind(
        gettext_lazy("Delivery"),
        "delivery",
        deliveries.delivery,
        lambda one: f"{one.trigger.name}: {one.message.message_id}",
    ),
    "txn": TRANSACTION,
    "enl": Kind(
        gettext_lazy("Participant"),
        "transaction",
        coordinations.enlistment,
        lambda one: _("{name} in {transaction}").format(
            name=coordinations.name_of(one), transaction=one.coordination.identifier
        ),
        lambda one: (one.coordination.public_id,),
    ),
    "job": Kind(gettext_lazy("Job"), "job", jobs.job),
    "run": Kind(gettext_lazy("Run"), "pipeline-run", pipeline.run),
    "end": Kind(gettext_lazy("Endpoint"), "endpoint", partners.endpoint, lambda one: f"{one.party.name}: {one.name}"),
    # What a partner shows has no page of its own: it stands on the partner's.
    "cred": Kind(
        gettext_lazy("Credential"),
        "partner",
        partners.credential,
        lambda one: _("Credential of {name}").format(name=one.party.name),
        lambda one: (one.party.public_id,),
    ),
    "poll": Kind(gettext_lazy("Poller"), "poller", pollers.poller),
    "inq": Kind(gettext_lazy("Status inquiry"), "inquiry", relatives.inquiry, lambda one: one.message.message_id),
    "plog": Kind(
        gettext_lazy("Partner's log"), "partner-log", pipeline.log, lambda log: f"{log.party.name}: {log.filename}"
    ),
    "tst": Kind(
        gettext_lazy("Test report"),
        "bench-report",
        lambda key: onboarding.report(public_id("tst", key)),
        lambda one: f"{one.agreement.tpa_id} v{one.number}",
    ),
    # At the step that somebody was at; the first one is over when there is a draft.
    "drf": Kind(
        gettext_lazy("Draft of a partner"),
        "onboarding-step",
        onboarding.draft,
        arguments=lambda draft: (draft.public_id, str(max(2, draft.step))),
    ),
    "whe": Kind(gettext_lazy("Webhook endpoint"), "webhook", notifications.webhook_endpoint),
    "dlv": Kind(
        gettext_lazy("Webhook delivery"),
        "webhook-delivery",
        notifications.webhook_delivery_by_id,
        lambda one: _("{id} to {name}").format(id=one.public_id, name=one.endpoint),
        lambda one: (one.endpoint.public_id, one.public_id),
    ),
    "rule": Kind(gettext_lazy("Notification rule"), "notification-rule", notifications.rule),
    "mask": Kind(gettext_lazy("Mask"), "mask", masks.mask),
    "sch": Kind(gettext_lazy("Schema"), "schema", schemas.rule),
    "atr": Kind(gettext_lazy("Attribute"), "attribute", attributes.rule),
    "grp": Kind(gettext_lazy("Partner group"), "group-edit", people.group),
}
# Prefix -> the scope of the page that it leads to, where not everybody has it.
_NEEDS: dict[str, str] = {
    "drf": "partners:write",
    "whe": "webhooks:manage",
    "dlv": "webhooks:manage",
    "rule": "notifications:manage",
    "mask": "masks:manage",
    "atr": "attributes:manage",
    "sch": "schemas:manage",
    "grp": "users:manage",
}
