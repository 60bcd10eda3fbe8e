"""What the settings of atomic triggers and of their members may be (spec 5): rows of `trigger_rules.RULES`.

A member has no documents and no queue of its own: it takes part when a document of its trigger is handed over. What
has had documents of its own is disabled and empty before it becomes one, and disabled when it stops being one, so that
no document reaches its service by two ways.
"""

from __future__ import annotations

import uuid

from messaging.choices import Consult, DeliveryState, JoinType, ServiceKind, TriggerState
from messaging.models import Delivery, Trigger
from messaging.models.delivery import OPEN_STATES
from partners.choices import Profile
from partners.models import AgreementVersion

_MEMBERS = (ServiceKind.HTTP.value, ServiceKind.CALLABLE.value)


def member_of(trigger: Trigger) -> str | None:
    """Whether it can be a member of the trigger that it names."""
    whole = trigger.member_of
    if whole is None:
        return None
    if whole.kind != ServiceKind.ATOMIC:
        return f"{whole.name} is not of the kind “atomic”: only such a trigger has members."
    if trigger.kind not in _MEMBERS:
        return "Only an HTTP service or a callable can be a member: choose one of these kinds."
    return None


def no_documents(trigger: Trigger) -> str | None:
    """A member's documents are those of the trigger that it belongs to."""
    if trigger.member_of is None or not (trigger.documents or trigger.party_id or trigger.agreement_id):
        return None
    return f"{trigger.member_of.name} says which documents there are: leave partner, agreement and documents open."


def nothing_of_its_own(trigger: Trigger) -> str | None:
    """What a trigger without documents of its own has no use for."""
    if trigger.member_of is None:
        return None
    used = [
        name
        for name, is_set in (
            ("a resolver", trigger.resolver != Consult.NONE),
            ("a resource monitor", trigger.monitor != Consult.NONE),
            ("a join", trigger.join_type != JoinType.NONE),
            ("answers to synchronous exchanges", trigger.answers),
            ("silence", trigger.silent_after > 0),
        )
        if is_set
    ]
    if not used:
        return None
    return f"{trigger.member_of.name} is what decides about documents: take away here {', '.join(used)}."


def agreement(trigger: Trigger) -> str | None:
    """Under which agreement the application of an HTTP member registers and votes."""
    wanted = trigger.member_of is not None and trigger.kind == ServiceKind.HTTP
    chosen = trigger.atomic_agreement
    if not wanted:
        return "Only an HTTP service that is a member needs this agreement: leave it open." if chosen else None
    if chosen is None:
        return "Name the agreement (profile wsat) under which the application takes part in transactions."
    if not AgreementVersion.objects.filter(agreement=chosen, profile=Profile.WSAT).exists():
        return f"{chosen} is not an agreement of the profile wsat: choose one that is."
    return _taken(trigger)


def _taken(trigger: Trigger) -> str | None:
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
    return (
        f"{other.name} takes part in {whole.name} under {trigger.atomic_agreement} already: each member needs an "
        "agreement of its own, so that the hub knows which application has registered."
    )


def exactly_once(trigger: Trigger) -> str | None:
    """An abort is handed over again, which only the document history can tell from a copy."""
    if trigger.kind != ServiceKind.ATOMIC or (trigger.detect_duplicates and trigger.use_history):
        return None
    return "An atomic trigger goes by its document history: switch duplicate detection and history on."


def no_answers(trigger: Trigger) -> str | None:
    """Nobody can wait for several services."""
    if trigger.kind != ServiceKind.ATOMIC or not trigger.answers:
        return None
    return "Several services have no single answer to give: switch this off, or choose another kind of service."


def moves(trigger: Trigger, *, was_kind: str, was_member_of: uuid.UUID | None) -> dict[str, list[str]]:
    """What is in the way of a change of kind or membership, by field. `trigger` is locked and not saved yet."""
    errors: dict[str, list[str]] = {}
    if was_kind != trigger.kind and ServiceKind.ATOMIC in (was_kind, trigger.kind):
        if Trigger.objects.filter(member_of=trigger).exists():
            errors["kind"] = ["It has members: take them away before you change the kind."]
        elif Delivery.objects.filter(trigger=trigger, state=DeliveryState.RUNNING).exists():
            errors["kind"] = ["Documents are in work: suspend the trigger, and change the kind when they are done."]
    if trigger.member_of_id is not None and was_member_of != trigger.member_of_id:
        if was_member_of is None and trigger.state != TriggerState.DISABLED:
            errors["member_of"] = ["It takes documents by itself: disable it first."]
        elif Delivery.objects.filter(trigger=trigger, state__in=OPEN_STATES).exists():
            errors["member_of"] = ["Documents wait in its own queue: let them be processed first."]
    return errors
