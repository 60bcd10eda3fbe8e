"""What the settings of a trigger may be: one table of rules, each with the field that it speaks of."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext as _

from messaging import applications, profile
from messaging.choices import Consult, DeliveryState, JoinType, ServiceKind, TriggerState
from messaging.exceptions import InvalidSubmission
from messaging.models import Delivery, Trigger
from messaging.models.delivery import OPEN_STATES
from messaging.protocol import document_ids
from partners.models import AgreementVersion
from partners.services.writing import is_clean
from partners.transports import HTTP, uri_fault
from rmhub.language import gettext_lazy

MAX_DOCUMENTS = 100
MAX_TEXT = 255


class TriggerValues(TypedDict, total=False):
    """What a person can set of a trigger; see `messaging.models.Trigger`. Times are whole seconds."""

    name: str
    party_id: uuid.UUID | None
    agreement_id: uuid.UUID | None
    documents: Sequence[Mapping[str, str]]
    kind: str
    url: str
    callable_name: str
    member_of_id: uuid.UUID | None
    atomic_agreement_id: uuid.UUID | None
    timeout: int
    answers: bool
    retry_statuses: Sequence[int]
    detect_duplicates: bool
    use_history: bool
    history_ttl: int
    document_id_path: str
    resolver: str
    resolver_url: str
    resolver_callable: str
    resolver_failure: str
    retry_until: str
    max_retries: int
    retry_interval: int
    when_exhausted: str
    suspend_on_error: bool
    concurrency: int
    ordered: bool
    lease_seconds: int
    monitor: str
    monitor_url: str
    monitor_callable: str
    monitor_interval: int
    join_type: str
    join_timeout: int
    silent_after: int


SETTINGS: tuple[str, ...] = tuple(TriggerValues.__annotations__)


def apply_values(trigger: Trigger, values: TriggerValues) -> None:
    """Sets what is given; what belongs to a kind of service, resolver or monitor that is not chosen is emptied.

    Raises InvalidSubmission when a value was given for a kind that has no use for it.
    """
    for name, value in values.items():
        setattr(trigger, name, value.strip() if isinstance(value, str) else value)
    errors: dict[str, list[str]] = {}
    for chooser, needed in _NEEDS.items():
        chosen = getattr(trigger, chooser)
        for kind, field in needed.items():
            if kind == chosen:
                continue
            if str(values.get(field) or "").strip():
                said = _("This is used by the kind “{kind}” only, and “{chosen}” is chosen: leave it empty.")
                errors[field] = [said.format(kind=kind, chosen=chosen)]
            setattr(trigger, field, "")
    if errors:
        raise InvalidSubmission(errors)


def check(
    trigger: Trigger, *, was_join: str = JoinType.NONE, was_kind: str = "", was_member_of: uuid.UUID | None = None
) -> None:
    """Raises InvalidSubmission with everything that is wrong, by field.

    `was_...`: what stood there before a change; `was_kind` is empty for a new trigger.
    """
    errors = _unclean(trigger) or _documents_errors(trigger) or _status_errors(trigger)
    if errors:  # the database driver would stumble over these, so that nothing else is looked at
        raise InvalidSubmission(errors)
    try:
        trigger.full_clean(validate_constraints=False)
    except ValidationError as error:
        raise InvalidSubmission(_by_field(error)) from error
    for rule in RULES:
        if (sentence := rule.broken(trigger)) is not None:
            errors.setdefault(rule.field, []).append(sentence)
    if (
        was_join != trigger.join_type
        and Delivery.objects.filter(trigger=trigger, state=DeliveryState.JOINED, part_of__isnull=False).exists()
    ):
        errors["join_type"] = [
            _("Documents wait in joins of this trigger: let these complete or expire before you change the join.")
        ]
    if was_kind:
        errors |= _moves(trigger, was_kind=was_kind, was_member_of=was_member_of)
    if errors:
        raise InvalidSubmission(errors)


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: `broken` gives the sentence that says what is wrong and what to do, or None."""

    field: str
    broken: Callable[[Trigger], str | None]


# Which field a chosen kind needs.
_NEEDS: dict[str, dict[str, str]] = {
    "kind": {ServiceKind.HTTP.value: "url", ServiceKind.CALLABLE.value: "callable_name"},
    "resolver": {Consult.HTTP.value: "resolver_url", Consult.CALLABLE.value: "resolver_callable"},
    "monitor": {Consult.HTTP.value: "monitor_url", Consult.CALLABLE.value: "monitor_callable"},
}


def _address(chooser: str, kind: str, field: str) -> Callable[[Trigger], str | None]:
    def broken(trigger: Trigger) -> str | None:
        if getattr(trigger, chooser) != kind:
            return None
        address = getattr(trigger, field)
        if not address:
            return _("Enter the address, such as {example}.").format(example="http://orders.internal:8080/documents")
        fault = uri_fault(address, HTTP.name)
        return fault[1] if fault else None

    return broken


def _registered(
    chooser: str, kind: str, field: str, known: Mapping[str, object], missing: str, unknown: str
) -> Callable[[Trigger], str | None]:
    """`missing`, `unknown`: what is said when nothing is named, and when nobody registers `{name}`."""

    def broken(trigger: Trigger) -> str | None:
        name = getattr(trigger, field)
        if getattr(trigger, chooser) != kind or name in known:
            return None
        asked = str(unknown).format(name=repr(name)) if name else str(missing)
        if not known:
            registered = _("Registered: none: no installed application registers one.")
        else:
            registered = _("Registered: {names}.").format(names=", ".join(sorted(known)))
        return f"{asked} {registered}"

    return broken


def _no_answers(trigger: Trigger) -> str | None:
    if not trigger.answers:
        return None
    if trigger.kind == ServiceKind.PULL:
        return _("Nobody can wait for the answer of a pull queue: switch this off, or choose another kind of service.")
    if trigger.join_type != JoinType.NONE:
        return _("A join has no single sender to answer: switch this off, or remove the join.")
    return None


def _join_needs_types(trigger: Trigger) -> str | None:
    if trigger.join_type not in (JoinType.ALL, JoinType.ONLY_ONE) or len(trigger.documents) >= 2:
        return None
    return _("This join is made of documents of different types: name at least two services and actions, one for each.")


def _agreement_of_party(trigger: Trigger) -> str | None:
    agreement, party = trigger.agreement, trigger.party
    if agreement is None or party is None or agreement.partner_id == party.pk:
        return None
    return _("{agreement} is an agreement with {partner}, not with {party}: choose one, or leave one open.").format(
        agreement=agreement, partner=agreement.partner, party=party
    )


def _party_is_partner(trigger: Trigger) -> str | None:
    if trigger.party is None or not trigger.party.is_own:
        return None
    return _("{party} is ours, and documents come from partners: choose a partner, or leave it open.").format(
        party=trigger.party
    )


def _path(trigger: Trigger) -> str | None:
    if not trigger.document_id_path:
        return None
    try:
        document_ids.check_path(trigger.document_id_path)
    except ValueError as error:
        return _("This leads nowhere in a document: write {path}.").format(path=error)
    return None


# --- atomic triggers and their members (spec 5) ---
#
# A member has no documents and no queue of its own: it takes part when a document of its trigger is handed over. What
# has had documents of its own is disabled and empty before it becomes one, and disabled when it stops being one, so
# that no document reaches its service by two ways.
_MEMBERS = (ServiceKind.HTTP.value, ServiceKind.CALLABLE.value)


def _member_of(trigger: Trigger) -> str | None:
    """Whether it can be a member of the trigger that it names."""
    whole = trigger.member_of
    if whole is None:
        return None
    if whole.kind != ServiceKind.ATOMIC:
        return _("{trigger} is not of the kind “atomic”: only such a trigger has members.").format(trigger=whole.name)
    if trigger.kind not in _MEMBERS:
        return _("Only an HTTP service or a callable can be a member: choose one of these kinds.")
    return None


def _no_documents(trigger: Trigger) -> str | None:
    """A member's documents are those of the trigger that it belongs to."""
    if trigger.member_of is None or not (trigger.documents or trigger.party_id or trigger.agreement_id):
        return None
    return _("{trigger} says which documents there are: leave partner, agreement and documents open.").format(
        trigger=trigger.member_of.name
    )


def _nothing_of_its_own(trigger: Trigger) -> str | None:
    """What a trigger without documents of its own has no use for."""
    if trigger.member_of is None:
        return None
    used = [
        name
        for name, is_set in (
            (_("a resolver"), trigger.resolver != Consult.NONE),
            (_("a resource monitor"), trigger.monitor != Consult.NONE),
            (_("a join"), trigger.join_type != JoinType.NONE),
            (_("answers to synchronous exchanges"), trigger.answers),
            (_("silence"), trigger.silent_after > 0),
        )
        if is_set
    ]
    if not used:
        return None
    return _("{trigger} is what decides about documents: remove here {names}.").format(
        trigger=trigger.member_of.name, names=", ".join(used)
    )


def _atomic_agreement(trigger: Trigger) -> str | None:
    """Under which agreement the application of an HTTP member registers and votes."""
    wanted = trigger.member_of is not None and trigger.kind == ServiceKind.HTTP
    chosen = trigger.atomic_agreement
    if not wanted:
        return _("Only an HTTP service that is a member needs this agreement: leave it open.") if chosen else None
    if chosen is None:
        return _("Name the agreement (profile wsat) under which the application takes part in transactions.")
    atomic = profile.names(lambda one: not one.carries_documents)
    if not AgreementVersion.objects.filter(agreement=chosen, profile__in=atomic).exists():
        return _("{agreement} is not an agreement of the profile wsat: choose one that is.").format(agreement=chosen)
    return _agreement_taken(trigger)


def _agreement_taken(trigger: Trigger) -> str | None:
    """Whoever registers is known by its agreement only: two members of one could not be told apart.

    The trigger that they belong to is locked, so that of two members that are added at once the second one sees the
    first.
    """
    assert trigger.member_of is not None, "the caller looked"
    whole = Trigger.objects.select_for_update(no_key=True).get(pk=trigger.member_of.pk)
    others = Trigger.objects.filter(member_of=whole, kind=ServiceKind.HTTP).exclude(pk=trigger.pk)
    other = others.filter(atomic_agreement=trigger.atomic_agreement_id).first()
    if other is None:
        return None
    return _(
        "{member} takes part in {trigger} under {agreement} already: each member needs an agreement of its own, so "
        "that the hub knows which application has registered."
    ).format(member=other.name, trigger=whole.name, agreement=trigger.atomic_agreement)


def _exactly_once(trigger: Trigger) -> str | None:
    """An abort is handed over again, which only the document history can tell from a copy."""
    if trigger.kind != ServiceKind.ATOMIC or (trigger.detect_duplicates and trigger.use_history):
        return None
    return _("An atomic trigger relies on its document history: switch duplicate detection and history on.")


def _one_answer(trigger: Trigger) -> str | None:
    """Nobody can wait for several services."""
    if trigger.kind != ServiceKind.ATOMIC or not trigger.answers:
        return None
    return _("Several services have no single answer to give: switch this off, or choose another kind of service.")


def _moves(trigger: Trigger, *, was_kind: str, was_member_of: uuid.UUID | None) -> dict[str, list[str]]:
    """What is in the way of a change of kind or membership, by field. `trigger` is locked and not saved yet."""
    errors: dict[str, list[str]] = {}
    if was_kind != trigger.kind and ServiceKind.ATOMIC in (was_kind, trigger.kind):
        if Trigger.objects.filter(member_of=trigger).exists():
            errors["kind"] = [_("It has members: remove them before you change the kind.")]
        elif Delivery.objects.filter(trigger=trigger, state=DeliveryState.RUNNING).exists():
            errors["kind"] = [
                _("Documents are in progress: suspend the trigger, and change the kind when they are done.")
            ]
    if trigger.member_of_id is not None and was_member_of != trigger.member_of_id:
        if was_member_of is None and trigger.state != TriggerState.DISABLED:
            errors["member_of"] = [_("It takes documents by itself: disable it first.")]
        elif Delivery.objects.filter(trigger=trigger, state__in=OPEN_STATES).exists():
            errors["member_of"] = [_("Documents wait in its own queue: let them be processed first.")]
    return errors


RULES: tuple[Rule, ...] = (
    Rule("party", _party_is_partner),
    Rule("agreement", _agreement_of_party),
    Rule("url", _address("kind", ServiceKind.HTTP, "url")),
    Rule(
        "callable_name",
        _registered(
            "kind",
            ServiceKind.CALLABLE,
            "callable_name",
            applications.SERVICES,
            gettext_lazy("Name the service."),
            gettext_lazy("No installed application registers a service named {name}."),
        ),
    ),
    Rule("answers", _no_answers),
    Rule("answers", _one_answer),
    Rule("use_history", _exactly_once),
    Rule("document_id_path", _path),
    Rule("member_of", _member_of),
    Rule("member_of", _nothing_of_its_own),
    Rule("documents", _no_documents),
    Rule("atomic_agreement", _atomic_agreement),
    Rule("resolver_url", _address("resolver", Consult.HTTP, "resolver_url")),
    Rule(
        "resolver_callable",
        _registered(
            "resolver",
            Consult.CALLABLE,
            "resolver_callable",
            applications.RESOLVERS,
            gettext_lazy("Name the resolver."),
            gettext_lazy("No installed application registers a resolver named {name}."),
        ),
    ),
    Rule("monitor_url", _address("monitor", Consult.HTTP, "monitor_url")),
    Rule(
        "monitor_callable",
        _registered(
            "monitor",
            Consult.CALLABLE,
            "monitor_callable",
            applications.MONITORS,
            gettext_lazy("Name the monitor."),
            gettext_lazy("No installed application registers a monitor named {name}."),
        ),
    ),
    Rule(
        "suspend_on_error",
        # Documents of a concurrent trigger have no order that a suspension could keep (spec 4; protocols 4.1).
        lambda t: (
            _(
                "Only a trigger that processes in order can be suspended by an error: choose “in order, pair by pair”, "
                "or switch this off."
            )
            if t.suspend_on_error and not t.ordered
            else None
        ),
    ),
    Rule("documents", _join_needs_types),
)


def _unclean(trigger: Trigger) -> dict[str, list[str]]:
    """Text that neither HTTP headers nor the database take."""
    errors = {}
    for field in trigger._meta.concrete_fields:
        if field.name in SETTINGS and isinstance(field, models.CharField):
            value = getattr(trigger, field.attname)
            if not isinstance(value, str):
                errors[field.name] = [_("A text is needed here.")]
            elif not is_clean(value):
                errors[field.name] = [_("There is a control character in this text: remove it.")]
    return errors


def _documents_errors(trigger: Trigger) -> dict[str, list[str]]:
    """`documents` is a list of {"service", "action"}; brings each to exactly these two, without blanks around."""
    given: Any = trigger.documents
    shape = _("A list of {example} is needed; an action * stands for any, an empty list for all documents.").format(
        example='{"service": …, "action": …}'
    )
    if not isinstance(given, list | tuple):
        return {"documents": [shape]}
    if len(given) > MAX_DOCUMENTS:
        return {
            "documents": [
                _("At most {count} services and actions: use * for the action, or several triggers.").format(
                    count=MAX_DOCUMENTS
                )
            ]
        }
    taken: list[dict[str, str]] = []
    for number, entry in enumerate(given, start=1):
        if not isinstance(entry, Mapping) or set(entry) != {"service", "action"}:
            return _entry(number, shape)
        service, action = entry["service"], entry["action"]
        if not isinstance(service, str) or not isinstance(action, str):
            return _entry(number, _("service and action are texts."))
        service, action = service.strip(), action.strip()
        if not service or not action:
            return _entry(number, _("name the service and the action (* for any action)."))
        if len(service) > MAX_TEXT or len(action) > MAX_TEXT or not is_clean(service) or not is_clean(action):
            said = _("at most {count} characters each, and no control characters.").format(count=MAX_TEXT)
            return _entry(number, said)
        one = {"service": service, "action": action}
        if one in taken:
            said = _("{service} / {action} is there already: remove it.").format(service=service, action=action)
            return _entry(number, said)
        taken.append(one)
    trigger.documents = taken
    return {}


def _entry(number: int, said: str) -> dict[str, list[str]]:
    return {"documents": [_("Entry {number}: {said}").format(number=number, said=said)]}


def _status_errors(trigger: Trigger) -> dict[str, list[str]]:
    given: Any = trigger.retry_statuses
    sentence = _("HTTP statuses from 400 to 599 that say: not processed, try again later.")
    if not isinstance(given, list | tuple) or len(given) > 50:
        return {"retry_statuses": [sentence]}
    if any(isinstance(one, bool) or not isinstance(one, int) or not 400 <= one <= 599 for one in given):
        return {"retry_statuses": [sentence]}
    trigger.retry_statuses = sorted(set(given))
    return {}


def _by_field(error: ValidationError) -> dict[str, list[str]]:
    found = {field: [str(sentence) for sentence in sentences] for field, sentences in error.message_dict.items()}
    agreement = _("There is no such agreement: choose one that is registered, or leave it open.")
    missing = {
        "party": _("There is no such party: choose one that is registered, or leave it open."),
        "agreement": agreement,
        "atomic_agreement": agreement,
        "member_of": _("There is no such trigger: choose one that is registered, or leave it open."),
    }
    for field in missing.keys() & found.keys():
        found[field] = [missing[field]]
    return found
