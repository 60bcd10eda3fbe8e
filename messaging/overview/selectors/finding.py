"""What an id that somebody pasted names: exact ids first, then what is called so among the things that are few."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from django.core.exceptions import ObjectDoesNotExist

from messaging.access.selectors import people
from messaging.archive import selectors as archive
from messaging.bulk.selectors import jobs
from messaging.choices import PHASE_LOOKS
from messaging.deliveries.selectors import deliveries, triggers
from messaging.exceptions import NotFound
from messaging.messages import masks
from messaging.messages.selectors import messages, relatives
from messaging.models import ArchivedMessage, Coordination, Delivery, Message, Route, Signal, Trigger
from messaging.notifications.selectors import notifications
from messaging.onboarding.selectors import drafts as onboarding
from messaging.overview.selectors import records
from messaging.pairs.selectors import pairs
from messaging.pollers import selectors as pickups
from messaging.reports.selectors import partner_logs, pipeline
from messaging.routing import selectors as routes
from messaging.transactions.selectors import coordinations
from partners import selectors as partners
from partners.models import Agreement, Party
from partners.visibility import limit
from rmhub.ids import BadPublicId, public_id, read_public_id

_MOST = 10
_SHORTEST = 6  # signs of the beginning of a MessageId
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
class Found:
    """`only`: the one thing that has exactly this id. Else what is near; `more_messages`: the list goes on."""

    only: Hit | None = None
    hits: list[Hit] = field(default_factory=list)
    more_messages: bool = False


def find(text: str, scopes: Collection[str] = ()) -> Found:
    """Looks for `msg_...` and the like, INC-n, codes of pairs, TPAIds, names of triggers, Identifiers of transactions,
    MessageIds, document ids, ConversationIds, party identifiers.

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
    hits, more = _messages(text)
    hits += _identifiers(text)
    if len(hits) == 1:
        return Found(only=hits[0])
    if hits:
        return Found(hits=hits, more_messages=more)
    return Found(hits=_near(text))


def _by_public_id(text: str, scopes: Collection[str]) -> Hit | None:
    prefix, mark, _ = text.partition("_")
    look = _BY_PREFIX.get(prefix)
    needed = _NEEDS.get(prefix, "")
    if not mark or look is None or (needed and needed not in scopes):
        return None
    try:
        return look(read_public_id(prefix, text))
    except (BadPublicId, NotFound, ObjectDoesNotExist):
        return None


def _by_number(text: str) -> Hit | None:
    if not _INCIDENT.fullmatch(text):
        return None
    try:
        return _incident_hit(text)
    except NotFound:
        return None


def _pair(text: str) -> Hit | None:
    found = pairs.pairs().filter(code__iexact=text).first()
    return Hit("Pair", found.code, "pair", (found.code,)) if found else None


def _agreement(text: str) -> Hit | None:
    found = limit(Agreement.objects.filter(tpa_id=text), "partner").first()
    return Hit("Agreement", found.tpa_id, "agreement", (found.public_id,)) if found else None


def _trigger(text: str) -> Hit | None:
    found = triggers.triggers().filter(name__iexact=text).first()
    return _trigger_hit(found) if found else None


def _transaction(text: str) -> Hit | None:
    """By its Identifier: an absolute URI, which the messages about it carry too."""
    if ":" not in text:
        return None
    same = coordinations.within_reach(Coordination.objects.filter(identifier=text))
    found = coordinations.with_names(same).order_by("-id").first()
    return _transaction_hit(found) if found else None


def _messages(text: str) -> tuple[list[Hit], bool]:
    """Messages with this MessageId or document id, else those of the conversation with this ConversationId; in the
    store, and those that have left it for the archive.
    """
    rows = list(
        messages.with_names(limit(Message.objects.filter(messages.of_document(text)), "pair__partner")).order_by("-id")[
            :_MOST
        ]
    )
    gone = archive.left(text)
    if not rows and not any(row.message_id == text for row in gone):
        talk = limit(Message.objects.filter(conversation_id=text), "pair__partner")
        rows = list(messages.with_names(talk).order_by("-id")[: _MOST + 1])
    hits = [_message_hit(row) for row in rows[:_MOST]]
    return [*hits, *(_archived_hit(row) for row in gone)], len(rows) > _MOST


def _identifiers(text: str) -> list[Hit]:
    _, colon, value = text.partition(":")
    found = limit(Party.objects.filter(identifiers__value__in=[text, value] if colon else [text]), "pk")
    return [_party_hit(party) for party in found.distinct().order_by("name")[:_MOST]]


def _near(text: str) -> list[Hit]:
    """Things whose names contain the text, and messages whose MessageIds begin with it."""
    found = [Hit("Pair", pair.code, "pair", (pair.code,)) for pair in pairs.pairs(search=text).order_by("code")[:_MOST]]
    found += [_party_hit(party) for party in partners.parties(search=text)[:_MOST]]
    found += [
        Hit("Agreement", agreement.tpa_id, "agreement", (agreement.public_id,), agreement.name)
        for agreement in partners.agreements(search=text)[:_MOST]
    ]
    found += [_trigger_hit(trigger) for trigger in triggers.triggers(search=text).order_by("name")[:_MOST]]
    found += [_route_hit(route) for route in routes.routes(q=text)[:_MOST]]
    return found + [_message_hit(row) for row in _beginning(text)]


def _beginning(text: str) -> list[Message]:
    """Some of the messages whose MessageIds begin so, in no order: the index of the ids has none of time."""
    if len(text) < _SHORTEST:
        return []
    begun = messages.shown().filter(message_id__startswith=text).values_list("pk", flat=True)[:_MOST]
    return list(messages.with_names(Message.objects.filter(pk__in=list(begun))).order_by("-id"))


def _route_hit(route: Route) -> Hit:
    return Hit("Route", route.name, "route", (route.public_id,), f"{route.party_context} {route.party_value}")


def _trigger_hit(trigger: Trigger) -> Hit:
    return Hit("Trigger", trigger.name, "trigger", (trigger.public_id,), triggers.target(trigger))


def _transaction_hit(found: Coordination) -> Hit:
    detail = f"{PHASE_LOOKS[found.phase].label}, begun by {coordinations.beginner(found)}"
    return Hit("Transaction", found.identifier, "transaction", (found.public_id,), detail)


def _enlistment_by_key(key: uuid.UUID) -> Hit:
    found = coordinations.enlistment(key)
    name = f"{coordinations.name_of(found)} in {found.coordination.identifier}"
    return Hit("Participant", name, "transaction", (found.coordination.public_id,))


def _message_hit(message: Message) -> Hit:
    detail = f"{message.pair.code}, {message.action}, {message.state}"
    return Hit("Message", message.message_id, "message", (message.public_id,), detail)


def _archived_hit(row: ArchivedMessage) -> Hit:
    detail = f"{row.pair.code}, {row.action}, in the archive"
    return Hit("Archived message", row.message_id, "archived", (row.public_id,), detail)


def _message_by_key(key: uuid.UUID) -> Hit:
    found = messages.in_store(key)
    return _message_hit(found) if found is not None else _archived_hit(archive.archived_message(key))


def _hold_by_key(key: uuid.UUID) -> Hit:
    found = archive.hold(key)
    return Hit("Legal hold", found.name, "hold", (found.public_id,))


def _party_hit(party: Party) -> Hit:
    return Hit("Party", party.name, "partner", (party.public_id,))


def _incident_hit(reference: str | uuid.UUID) -> Hit:
    incident = records.incident(reference)
    return Hit("Incident", str(incident), "incident", (str(incident),))


def _signal_hit(key: uuid.UUID) -> Hit:
    found = limit(Signal.objects.filter(pk=key), "pair__partner").defer("body").first()
    if found is None:
        raise NotFound(f"There is no signal {public_id('sig', key)}.")
    return Hit("Signal", found.message_id, "signal", (found.public_id,))


def _one(kind: str, page: str, prefix: str, look: Callable[[uuid.UUID], object]) -> Callable[[uuid.UUID], Hit]:
    """A look-up by key that raises NotFound, as a hit."""

    def found(key: uuid.UUID) -> Hit:
        return Hit(kind, str(look(key)), page, (public_id(prefix, key),))

    return found


def _pair_by_key(key: uuid.UUID) -> Hit:
    found = pairs.pair(key)
    return Hit("Pair", found.code, "pair", (found.code,))


def _party_by_key(key: uuid.UUID) -> Hit:
    found = limit(Party.objects.filter(pk=key), "pk").first()
    if found is None:
        raise NotFound(f"There is no party {public_id('par', key)}.")
    return _party_hit(found)


def _agreement_by_key(key: uuid.UUID) -> Hit:
    found = limit(Agreement.objects.filter(pk=key), "partner").first()
    if found is None:
        raise NotFound(f"There is no agreement {public_id('agr', key)}.")
    return Hit("Agreement", found.tpa_id, "agreement", (found.public_id,))


def _delivery_by_key(key: uuid.UUID) -> Hit:
    found: Delivery = deliveries.delivery(key)
    return Hit("Delivery", f"{found.trigger.name}: {found.message.message_id}", "delivery", (found.public_id,))


def _endpoint_by_key(key: uuid.UUID) -> Hit:
    found = partners.endpoint(key)
    return Hit("Endpoint", f"{found.party.name}: {found.name}", "endpoint", (found.public_id,))


def _credential_by_key(key: uuid.UUID) -> Hit:
    """What a partner shows has no page of its own: it stands on the partner's."""
    found = partners.credential(key)
    return Hit("Credential", f"Credential of {found.party.name}", "partner", (found.party.public_id,))


def _inquiry_by_key(key: uuid.UUID) -> Hit:
    found = relatives.inquiry(key)
    return Hit("Question to the partner", found.message.message_id, "inquiry", (found.public_id,))


def _log_by_key(key: uuid.UUID) -> Hit:
    found = partner_logs.log(key)
    return Hit("Partner's log", f"{found.party.name}: {found.filename}", "partner-log", (found.public_id,))


def _test_by_key(key: uuid.UUID) -> Hit:
    found = onboarding.report(public_id("tst", key))
    return Hit("Test report", f"{found.agreement.tpa_id} v{found.number}", "bench-report", (found.public_id,))


def _draft_by_key(key: uuid.UUID) -> Hit:
    """At the step that somebody was at; the first one is over when there is a draft."""
    found = onboarding.draft(key)
    return Hit("Draft of a partner", str(found), "onboarding-step", (found.public_id, str(max(2, found.step))))


def _webhook_delivery_by_key(key: uuid.UUID) -> Hit:
    found = records.webhook_delivery_by_id(key)
    where = (found.endpoint.public_id, found.public_id)
    return Hit("Webhook delivery", f"{found.public_id} to {found.endpoint}", "webhook-delivery", where)


_BY_PREFIX: dict[str, Callable[[uuid.UUID], Hit]] = {
    "msg": _message_by_key,
    "hold": _hold_by_key,
    "pair": _pair_by_key,
    "inc": _incident_hit,
    "att": _one("Transmission", "transmission", "att", messages.transmission),
    "sig": _signal_hit,
    "rej": _one("Refusal", "rejection", "rej", records.rejection),
    "par": _party_by_key,
    "agr": _agreement_by_key,
    "rt": lambda key: _route_hit(routes.route(key)),
    "trg": lambda key: _trigger_hit(triggers.trigger(key)),
    "del": _delivery_by_key,
    "txn": lambda key: _transaction_hit(coordinations.coordination(key)),
    "enl": _enlistment_by_key,
    "job": _one("Job", "job", "job", jobs.job),
    "run": _one("Run", "pipeline-run", "run", pipeline.run),
    "end": _endpoint_by_key,
    "cred": _credential_by_key,
    "pick": _one("Pickup", "pickup", "pick", pickups.pickup),
    "inq": _inquiry_by_key,
    "plog": _log_by_key,
    "tst": _test_by_key,
    "drf": _draft_by_key,
    "whe": _one("Webhook endpoint", "webhook", "whe", records.webhook_endpoint),
    "dlv": _webhook_delivery_by_key,
    "rule": _one("Notification rule", "notification-rule", "rule", notifications.rule),
    "mask": _one("Mask", "mask", "mask", masks.mask),
    "grp": _one("Partner group", "group-edit", "grp", people.group),
}
# Prefix -> the scope of the page that it leads to, where not everybody has it.
_NEEDS: dict[str, str] = {
    "drf": "partners:write",
    "whe": "webhooks:manage",
    "dlv": "webhooks:manage",
    "rule": "notifications:manage",
    "mask": "masks:manage",
    "grp": "users:manage",
}
