"""What bulk jobs can do: the table of actions, and the service that each calls for one object."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Model, Q, QuerySet
from django.utils.translation import gettext as _

from messaging.choices import (
    Consult,
    DeliveryState,
    Direction,
    IncidentState,
    MessageState,
    PartnerAnswer,
    TriggerState,
)
from messaging.deliveries.services import settling
from messaging.exceptions import InvalidSubmission, NotFound
from messaging.journal import incidents
from messaging.journal.audit import HEAVY_REASON, MIN_REASON, Actor
from messaging.messages import attributes
from messaging.messages.services import resubmitting
from messaging.models import Delivery, Incident, Message, Pair, Payload
from messaging.models.traffic import partner_said
from messaging.pairs.services import operating
from messaging.protocol.pair_state import Gate
from partners.visibility import limit
from rmhub.ids import BadPublicId, read_public_id

Filter = Mapping[str, Any]
Rows = QuerySet[Any]
Parameters = Mapping[str, Any]
Run = Callable[..., object]
# Prefix of the ids -> the kind of object, and the path from it to the party whose it is.
_KINDS: Mapping[str, tuple[type[Model], str]] = {
    "pair": (Pair, "partner"),
    "inc": (Incident, "pair__partner"),
    "msg": (Message, "pair__partner"),
    "del": (Delivery, "pair__partner"),
}


@dataclass(frozen=True, slots=True)
class Action:
    """One kind of job.

    `prefix`: of the ids of its objects. `scope`: who may. `can`: which rows it can be done to. `run(id, parameters,
    actor=, reason=)` does one object and raises ApplicationError; None for what talks to partners (`asking`). `split`:
    by what a plan counts them, for people. `group`: what all of one job must have in common, unless the partner's
    answer is what they share (`by_answer`). `decisions`: the allowed ones, none = it takes no decision. `takes`: names
    of further parameters. `find`: the rows that a filter of its own means; None = it takes the filters of the list of
    its objects (`selectors.matching`), which are given to it as rows. `heavy`: cannot be taken back.
    """

    prefix: str
    scope: str
    can: Q
    run: Run | None
    split: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    by_answer: bool = False
    decisions: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    find: Callable[[Filter], Rows] | None = None
    heavy: bool = False

    @property
    def model(self) -> type[Model]:
        """The kind of its objects."""
        return _KINDS[self.prefix][0]

    def all(self) -> Rows:
        """All objects of its kind that the caller may see. Not ordered."""
        model, partner = _KINDS[self.prefix]
        found = limit(model._default_manager.all(), partner)
        return found.annotate(answer=partner_said()) if self.by_answer else found

    def rows(self) -> Rows:
        """Those that it can be done to."""
        return self.all().filter(self.can)

    def least_reason(self, parameters: Mapping[str, Any]) -> int:
        """How many characters a reason needs: more for what cannot be taken back."""
        decision = parameters.get("decision", "")
        return HEAVY_REASON if self.heavy and decision not in (*_LIGHT, None) else MIN_REASON


_LIGHT = ("later", "ask")


def _only(chosen: Filter, names: Collection[str]) -> None:
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        said = _("Unknown: {names}. Known: {known}.").format(names=", ".join(unknown), known=", ".join(sorted(names)))
        raise InvalidSubmission({"filter": [said]})


def _key(prefix: str, name: str, chosen: Filter) -> uuid.UUID:
    text = chosen.get(name)
    try:
        return read_public_id(prefix, text if isinstance(text, str) else "")
    except BadPublicId as error:
        said = _("{name}: an id of the form {form} is needed.").format(name=name, form=f"{prefix}_…")
        raise InvalidSubmission({"filter": [said]}) from error


def _in_doubt(chosen: Filter) -> Rows:
    _only(chosen, ("trigger", "doubt"))
    if not chosen.get("doubt"):
        raise InvalidSubmission({"filter": [_("doubt: name one reason, so that all are of one evidence group.")]})
    found = ACTIONS["settle_deliveries"].rows()
    return found.filter(trigger=_key("trg", "trigger", chosen), doubt=str(chosen["doubt"])[:40].replace("\x00", ""))


def _failed(chosen: Filter) -> Rows:
    _only(chosen, ("trigger",))
    return ACTIONS["redeliver_failed"].rows().filter(trigger=_key("trg", "trigger", chosen))


def _messages_in_doubt(chosen: Filter) -> Rows:
    """One pair's for one cause, or all that the partners say the same about, or both."""
    _only(chosen, ("pair", "cause", "answer"))
    found = ACTIONS["settle_messages"].rows()
    answer = chosen.get("answer")
    if answer:
        if answer not in PartnerAnswer.values:
            said = _("{name}: one of {known}.").format(name="answer", known=", ".join(PartnerAnswer.values))
            raise InvalidSubmission({"filter": [said]})
        found = found.filter(answer=answer)
    if answer and "pair" not in chosen and "cause" not in chosen:
        return found
    if not chosen.get("cause"):
        raise InvalidSubmission({"filter": [_("cause: name one, so that all are of one evidence group.")]})
    return found.filter(pair=_key("pair", "pair", chosen), cause=str(chosen["cause"])[:60].replace("\x00", ""))


def _to_ask(chosen: Filter) -> Rows:
    """Messages in doubt about which the partner can be asked: all of them, a pair's, or those of one answer."""
    _only(chosen, ("pair", "cause", "answer"))
    found = ACTIONS["ask_partner"].rows().filter(state=MessageState.IN_DOUBT)
    if "pair" in chosen:
        found = found.filter(pair=_key("pair", "pair", chosen))
    if "cause" in chosen:
        found = found.filter(cause=str(chosen["cause"])[:60].replace("\x00", ""))
    if "answer" in chosen:
        found = found.filter(answer=str(chosen["answer"])[:16].replace("\x00", ""))
    return found


def _to_resolve(chosen: Filter) -> Rows:
    """Documents in doubt whose trigger has a resolver: all of them, a trigger's, or those of one reason."""
    _only(chosen, ("trigger", "doubt"))
    found = ACTIONS["ask_application"].rows()
    if "trigger" in chosen:
        found = found.filter(trigger=_key("trg", "trigger", chosen))
    if "doubt" in chosen:
        found = found.filter(doubt=str(chosen["doubt"])[:40].replace("\x00", ""))
    return found


def _acknowledge(key: uuid.UUID, given: Parameters, actor: Actor, reason: str) -> object:
    owner = actor.name.partition(" (token ")[0]
    return incidents.incident_acknowledge(incident_id=key, actor=actor, reason=reason, owner=owner)


def _export(key: uuid.UUID, given: Parameters, actor: Actor, reason: str) -> object:
    """Whether the documents are there: they are read when the job's file is downloaded."""
    if not Payload.objects.filter(message=key).exists():
        raise NotFound(_("It has no document in the store: it may have been purged."))
    return None


_ENDED = (
    MessageState.DELIVERED,
    MessageState.SENT,
    MessageState.FAILED,
    MessageState.SKIPPED,
    MessageState.CANCELLED,
)
_UNRESOLVED = ~Q(state=IncidentState.RESOLVED)
ACTIONS: Mapping[str, Action] = {
    "settle_deliveries": Action(
        "del",
        "indoubt:resolve",
        Q(state=DeliveryState.IN_DOUBT),
        lambda key, given, **why: settling.delivery_settle(
            delivery_id=key, decision=given["decision"], remind_in=given.get("remind_in"), **why
        ),
        split=("trigger__name", "doubt"),
        group=("trigger", "doubt"),
        decisions=tuple(one.value for one in settling.Decision),
        find=_in_doubt,
        heavy=True,
    ),
    "settle_messages": Action(
        "msg",
        "indoubt:resolve",
        Q(direction=Direction.OUT, state=MessageState.IN_DOUBT),
        lambda key, given, **why: settling.message_settle(
            message_id=key, decision=given["decision"], remind_in=given.get("remind_in"), **why
        ),
        split=("pair__code", "cause", "answer"),
        group=("pair", "cause"),
        by_answer=True,
        decisions=tuple(one.value for one in settling.MessageDecision),
        find=_messages_in_doubt,
        heavy=True,
    ),
    "redeliver_failed": Action(
        "del",
        "indoubt:resolve",
        Q(state=DeliveryState.FAILED),
        lambda key, given, **why: settling.delivery_settle(
            delivery_id=key, decision=settling.Decision.RESUBMIT.value, **why
        ),
        split=("trigger__name",),
        group=("trigger",),
        find=_failed,
        heavy=True,
    ),
    "ask_partner": Action(
        "msg",
        "indoubt:resolve",
        Q(direction=Direction.OUT, attempts__gt=0) & ~Q(agreement_version__partner_endpoint__service_address=""),
        None,
        split=("pair__code", "answer"),
        by_answer=True,
        find=_to_ask,
    ),
    "ask_application": Action(
        "del",
        "indoubt:resolve",
        Q(state=DeliveryState.IN_DOUBT) & ~Q(trigger__resolver=Consult.NONE) & ~Q(trigger__state=TriggerState.DISABLED),
        lambda key, given, **why: settling.delivery_settle(
            delivery_id=key, decision=settling.Decision.ASK.value, **why
        ),
        split=("trigger__name", "doubt"),
        find=_to_resolve,
    ),
    "pairs_pause": Action(
        "pair",
        "pairs:operate",
        Q(direction=Direction.OUT, gate=Gate.OPEN),
        lambda key, given, **why: operating.pair_pause(pair_id=key, **why),
        split=("flow",),
    ),
    "pairs_resume": Action(
        "pair",
        "pairs:operate",
        Q(direction=Direction.OUT, flow="suspended"),
        lambda key, given, **why: operating.pair_resume(pair_id=key, mode=given["mode"], **why),
        split=("cause",),
        takes=("mode", "stagger"),
        heavy=True,
    ),
    "pairs_release": Action(
        "pair",
        "pairs:operate",
        Q(direction=Direction.OUT, gate=Gate.PAUSED),
        lambda key, given, **why: operating.pair_release(pair_id=key, **why),
        split=("flow",),
    ),
    "pairs_clear_resync": Action(
        "pair",
        "pairs:skip",
        Q(resync_since__isnull=False),
        lambda key, given, **why: operating.pair_clear_resync(pair_id=key, **why),
        split=("direction",),
        heavy=True,
    ),
    "incidents_acknowledge": Action(
        "inc",
        "incidents:write",
        Q(state=IncidentState.OPEN),
        _acknowledge,
        split=("cause",),
    ),
    "incidents_assign": Action(
        "inc",
        "incidents:write",
        _UNRESOLVED,
        lambda key, given, **why: incidents.incident_assign(incident_id=key, owner=given["owner"], **why),
        split=("cause",),
        takes=("owner",),
    ),
    "incidents_resolve": Action(
        "inc",
        "incidents:write",
        _UNRESOLVED,
        lambda key, given, **why: incidents.incident_resolve(incident_id=key, **why),
        split=("cause",),
    ),
    "messages_resubmit": Action(
        "msg",
        "messages:write",
        Q(direction=Direction.OUT, state__in=_ENDED),
        lambda key, given, **why: resubmitting.message_resubmit(message_id=key, **why),
        split=("pair__code",),
        heavy=True,
    ),
    "messages_cancel": Action(
        "msg",
        "messages:cancel",
        Q(direction=Direction.OUT, state=MessageState.QUEUED),
        # Planned were messages that waited: one that has left the queue since is given up one by one, or not at all.
        lambda key, given, **why: operating.message_cancel(message_id=key, only_waiting=True, **why),
        split=("pair__code",),
        heavy=True,
    ),
    "messages_export": Action(
        "msg",
        "payloads:read",
        Q(),
        _export,
        split=("pair__code",),
    ),
    "messages_attributes": Action(
        "msg",
        "attributes:manage",
        Q(),
        lambda key, given, **why: attributes.message_take(message_id=key, **why),
        split=("pair__code",),
    ),
}
