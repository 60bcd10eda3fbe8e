"""Triggers: made, changed, suspended and resumed. Every action of a person has an actor and a reason, and is audited.

The engine suspends and resumes through `suspend_now` and `resume_locked`, inside transactions of its own.
"""

from __future__ import annotations

import base64
import secrets
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Unpack

from django.db import transaction
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from messaging import dispatch
from messaging.choices import TRIGGER_LOOKS, Consult, TriggerState
from messaging.deliveries.services.trigger_rules import SETTINGS, TriggerValues, apply_values, check
from messaging.engine import subscriptions
from messaging.exceptions import Stale, WrongState
from messaging.journal import audit, events, incidents
from messaging.journal.audit import Actor
from messaging.models import Event, Trigger
from messaging.models.base import existing
from partners.secrets import encrypt
from rmhub import clock
from rmhub.language import inside

BY_USER = "suspended_by_user"
# What no monitor ends: somebody wanted it so, or has to look at the document that its service failed on.
ONLY_PEOPLE_RESUME = frozenset({BY_USER, "service_error"})
_STATE_FIELDS = ("state", "cause", "cause_detail", "changed_at", "monitor_due_at", "version")


def suspend_now(trigger: Trigger, cause: str, detail: str, now: datetime) -> list[Event]:
    """Nothing is handed over any more; an incident opens, and the monitor is asked after its interval, if there is one.

    Call with the trigger's row locked; saves it and returns the events to write. One that is suspended already keeps
    its first cause, and one that is disabled stays so: no events then.
    """
    if trigger.state != TriggerState.ACTIVE:
        return []
    look = _first_look(trigger, cause, now)
    _become(trigger, TriggerState.SUSPENDED, now, cause=cause, detail=detail, monitor_due_at=look)
    data: dict[str, object] = {"trigger": trigger.public_id, "name": trigger.name, "cause": cause, "detail": detail}
    opened: list[Event] = []
    if cause != BY_USER:
        incident, opened = incidents.incident_open(pair=None, trigger=trigger, cause=cause, now=now, detail=detail)
        data["incident"] = incident.public_id
    return [events.event("trigger.suspended", now, data=data), *opened]


def resume_locked(trigger: Trigger, now: datetime, by: str, reason: str) -> list[Event]:
    """What waits is handed over again, and the incident of the suspension is resolved.

    Call with the trigger's row locked; saves it, wakes the workers after the commit and returns the events to write
    (none for a trigger that is not suspended).
    """
    if trigger.state != TriggerState.SUSPENDED:
        return []
    cause = trigger.cause
    _become(trigger, TriggerState.ACTIVE, now)
    dispatch.wake_on_commit(dispatch.DELIVER)
    data = {"trigger": trigger.public_id, "name": trigger.name, "cause": cause, "reason": reason, "actor": by}
    resolved = incidents.incidents_resolve_for_trigger(
        trigger=trigger, now=now, by=by, resolution=reason, causes=(cause,)
    )
    return [events.event("trigger.resumed", now, data=data), *resolved]


@sensitive_variables("secret")
def trigger_create(*, actor: Actor, reason: str, **values: Unpack[TriggerValues]) -> tuple[Trigger, str]:
    """A new active trigger and its secret (`whsec_...`), which is shown this once.

    The secret signs what goes to the service, the resolver and the monitor. Raises InvalidSubmission by field.
    """
    audit.require_reason(reason)
    secret, sealed = _new_secret()
    with transaction.atomic():
        trigger = Trigger(secret_encrypted=sealed, changed_at=clock.now())
        apply_values(trigger, values)
        check(trigger)
        trigger.save(force_insert=True)
        audit.record(actor, "trigger.create", trigger, reason=reason, after=described(trigger))
        transaction.on_commit(subscriptions.current.forget)
    return trigger, secret


def trigger_update(
    *,
    trigger_id: uuid.UUID,
    actor: Actor,
    reason: str,
    expected_version: int | None = None,
    **values: Unpack[TriggerValues],
) -> Trigger:
    """Changes what is given. Documents that came before keep the deliveries that they have.

    A trigger that becomes a member of an atomic one is active with it; one that is taken away from it is disabled.
    Raises NotFound, Stale, InvalidSubmission by field.
    """
    audit.require_reason(reason)
    with transaction.atomic():
        trigger = _locked(trigger_id, expected_version)
        before = described(trigger)
        was_join, was_kind, was_member_of = trigger.join_type, trigger.kind, trigger.member_of_id
        apply_values(trigger, values)
        check(trigger, was_join=was_join, was_kind=was_kind, was_member_of=was_member_of)
        after = described(trigger)
        changed = [name for name in SETTINGS if before[name] != after[name]]
        if not changed:
            return trigger
        if trigger.state == TriggerState.SUSPENDED:
            look = _first_look(trigger, trigger.cause, clock.now())
            trigger.monitor_due_at = min(look, trigger.monitor_due_at or look) if look else None
        _follow_membership(trigger, was_member_of)
        trigger.version += 1
        trigger.save()
        audit.record(
            actor,
            "trigger.update",
            trigger,
            reason=reason,
            before={name: before[name] for name in changed},
            after={name: after[name] for name in changed},
        )
        dispatch.wake_on_commit(dispatch.DELIVER)
        transaction.on_commit(subscriptions.current.forget)
    return trigger


def _follow_membership(trigger: Trigger, was_member_of: uuid.UUID | None) -> None:
    """A member is active with its trigger; one that is none any more would take every document, so it is disabled."""
    if (trigger.member_of_id is None) == (was_member_of is None):
        return
    trigger.state = TriggerState.DISABLED if trigger.member_of_id is None else TriggerState.ACTIVE
    trigger.cause = trigger.cause_detail = ""
    trigger.changed_at = clock.now()


def trigger_leave(*, trigger_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> Trigger:
    """Takes a member away from its atomic trigger; it is disabled then, and has documents of its own once enabled.

    Raises NotFound, Stale, WrongState.
    """
    audit.require_reason(reason)
    with transaction.atomic():
        trigger = _locked(trigger_id, expected_version)
        _require(trigger, "leave")
        whole, was = trigger.member_of, trigger.member_of_id
        trigger.member_of = trigger.atomic_agreement = None
        _follow_membership(trigger, was)
        trigger.version += 1
        trigger.save(update_fields=["member_of", "atomic_agreement", *_STATE_FIELDS])
        before: dict[str, object] = {"member_of": whole.name if whole is not None else ""}
        audit.record(actor, "trigger.leave", trigger, reason=reason, before=before, after=_state_of(trigger))
        transaction.on_commit(subscriptions.current.forget)
    return trigger


def trigger_suspend(
    *, trigger_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None
) -> Trigger:
    """Holds the trigger until a person resumes it; no monitor ends this. Documents are taken in and wait.

    One that trouble has suspended can be held so too. Raises NotFound, Stale, WrongState.
    """
    audit.require_reason(reason)
    with transaction.atomic():
        trigger = _locked(trigger_id, expected_version)
        _require(trigger, "suspend")
        now = clock.now()
        before = _state_of(trigger)
        if trigger.state == TriggerState.SUSPENDED:
            written = incidents.incidents_resolve_for_trigger(
                trigger=trigger, now=now, by=actor.name, resolution=reason, causes=(trigger.cause,)
            )
            _become(trigger, TriggerState.SUSPENDED, now, cause=BY_USER, detail=reason)
        else:
            written = suspend_now(trigger, BY_USER, reason, now)
        _act(trigger, "trigger.suspend", actor, reason, before, written)
    return trigger


def trigger_resume(*, trigger_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> Trigger:
    """What waits is handed over at once, with a fresh retry budget. Raises NotFound, Stale, WrongState."""
    audit.require_reason(reason)
    with transaction.atomic():
        trigger = _locked(trigger_id, expected_version)
        _require(trigger, "resume")
        before = _state_of(trigger)
        written = resume_locked(trigger, clock.now(), actor.name, reason)
        _act(trigger, "trigger.resume", actor, reason, before, written)
    return trigger


def trigger_disable(
    *, trigger_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None
) -> Trigger:
    """No delivery is made for documents that come from now on; what waits stays. Raises NotFound, Stale, WrongState."""
    audit.require_reason(reason)
    with transaction.atomic():
        trigger = _locked(trigger_id, expected_version)
        _require(trigger, "disable")
        now = clock.now()
        before = _state_of(trigger)
        written: list[Event] = []
        if trigger.state == TriggerState.SUSPENDED:
            written = incidents.incidents_resolve_for_trigger(
                trigger=trigger, now=now, by=actor.name, resolution=reason, causes=(trigger.cause,)
            )
        _become(trigger, TriggerState.DISABLED, now)
        _act(trigger, "trigger.disable", actor, reason, before, written)
    return trigger


def trigger_enable(*, trigger_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> Trigger:
    """Takes documents again, and what waited is handed over. Raises NotFound, Stale, WrongState."""
    audit.require_reason(reason)
    with transaction.atomic():
        trigger = _locked(trigger_id, expected_version)
        _require(trigger, "enable")
        before = _state_of(trigger)
        _become(trigger, TriggerState.ACTIVE, clock.now())
        dispatch.wake_on_commit(dispatch.DELIVER)
        _act(trigger, "trigger.enable", actor, reason, before, [])
    return trigger


@sensitive_variables("secret")
def trigger_rotate_secret(
    *, trigger_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None
) -> tuple[Trigger, str]:
    """A new secret, shown this once; the old one signs nothing more from now on. Raises NotFound, Stale."""
    audit.require_reason(reason)
    secret, sealed = _new_secret()
    with transaction.atomic():
        trigger = _locked(trigger_id, expected_version)
        trigger.secret_encrypted = sealed
        trigger.version += 1
        trigger.save(update_fields=["secret_encrypted", "version"])
        audit.record(actor, "trigger.rotate_secret", trigger, reason=reason)
    return trigger, secret


VERBS: dict[str, Callable[..., Trigger]] = {
    "suspend": trigger_suspend,
    "resume": trigger_resume,
    "disable": trigger_disable,
    "enable": trigger_enable,
    "leave": trigger_leave,
}


def allowed_verbs(trigger: Trigger) -> tuple[str, ...]:
    """Which of `VERBS` the trigger's state takes right now (for screens and for `allowed_actions` of problems).

    A member goes with the trigger that it belongs to.
    """
    if trigger.member_of_id is not None:
        return ("leave",)
    if trigger.state == TriggerState.DISABLED:
        return ("enable",)
    if trigger.state == TriggerState.ACTIVE:
        return ("suspend", "disable")
    return ("resume", "disable") if trigger.cause == BY_USER else ("resume", "suspend", "disable")


def described(trigger: Trigger) -> dict[str, object]:
    """The settings of a trigger as JSON, without its secret: for the audit log."""
    found: dict[str, object] = {}
    for name in SETTINGS:
        value: Any = getattr(trigger, name)
        found[name] = str(value) if isinstance(value, uuid.UUID) else value
    return found


def _require(trigger: Trigger, verb: str) -> None:
    possible = allowed_verbs(trigger)
    if verb not in possible:
        if verb == "leave":
            said = _("{trigger} is not a member of another trigger.")
        elif trigger.member_of is not None:
            said = {
                "suspend": _("{trigger} is a member of {whole}: only that can be suspended."),
                "resume": _("{trigger} is a member of {whole}: only that can be resumed."),
                "disable": _("{trigger} is a member of {whole}: only that can be disabled."),
                "enable": _("{trigger} is a member of {whole}: only that can be enabled."),
            }[verb]
        else:
            said = {
                "suspend": _("{trigger} is {state}: it cannot be suspended."),
                "resume": _("{trigger} is {state}: it cannot be resumed."),
                "disable": _("{trigger} is {state}: it cannot be disabled."),
                "enable": _("{trigger} is {state}: it cannot be enabled."),
            }[verb]
        whole = trigger.member_of.name if trigger.member_of is not None else ""
        said = said.format(trigger=trigger.name, whole=whole, state=_word(trigger))
        raise WrongState(said, state=trigger.state, allowed=possible)


def _word(trigger: Trigger) -> str:
    return inside(TRIGGER_LOOKS[trigger.state].label)


def _become(
    trigger: Trigger,
    state: TriggerState,
    now: datetime,
    *,
    cause: str = "",
    detail: str = "",
    monitor_due_at: datetime | None = None,
) -> None:
    trigger.state = state
    trigger.cause, trigger.cause_detail = cause, detail
    trigger.changed_at, trigger.monitor_due_at = now, monitor_due_at
    trigger.version += 1
    trigger.save(update_fields=list(_STATE_FIELDS))
    transaction.on_commit(subscriptions.current.forget)


def _first_look(trigger: Trigger, cause: str, now: datetime) -> datetime | None:
    """When the monitor is asked first; None without a monitor, and for a suspension that only people end."""
    if trigger.monitor == Consult.NONE or cause in ONLY_PEOPLE_RESUME:
        return None
    return now + timedelta(seconds=trigger.monitor_interval)


def _act(
    trigger: Trigger, verb: str, actor: Actor, reason: str, before: dict[str, object], written: list[Event]
) -> None:
    audit.record(actor, verb, trigger, reason=reason, before=before, after=_state_of(trigger))
    events.write(written)


def _state_of(trigger: Trigger) -> dict[str, object]:
    return {"state": trigger.state, "cause": trigger.cause}


def _locked(trigger_id: uuid.UUID, expected_version: int | None) -> Trigger:
    # Not FOR UPDATE: deliveries that arrive meanwhile refer to this row.
    found = existing(Trigger.objects.select_for_update(of=("self",), no_key=True), trigger_id)
    if expected_version is not None and found.version != expected_version:
        raise Stale(
            _("{trigger} changed since you looked at it; it is {state} now. Look again before you act.").format(
                trigger=found.name, state=_word(found)
            ),
            version=found.version,
        )
    return found


def _new_secret() -> tuple[str, bytes]:
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    return secret, encrypt(secret)
