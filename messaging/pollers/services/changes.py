"""Pickups changed by a person: `partners.services` with an audit entry each, and looks that are asked for."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.views.decorators.debug import sensitive_variables

from messaging import dispatch
from messaging.exceptions import InvalidSubmission, NotFound, Stale, WrongState
from messaging.journal import audit, events
from messaging.journal.audit import Actor
from messaging.models import PickupState
from messaging.pollers.services import pickups
from partners import selectors, services
from partners.exceptions import InvalidInput
from partners.models import Endpoint, Party, Pickup
from partners.services.writing import writing
from rmhub import clock
from rmhub.ids import public_id

_FIELDS = ("name", "kind", "url", "username", "secret_kind", "host_key", "trusted_checker", "interval", "enabled")


def describe(pickup: Pickup) -> dict[str, Any]:
    """A pickup as the audit log holds it. Never its secret."""
    found: dict[str, Any] = {name: getattr(pickup, name) for name in _FIELDS}
    found["endpoint"] = pickup.endpoint.public_id
    found["partner"] = pickup.partner.public_id if pickup.partner else ""
    return found


def revision(pickup: Pickup) -> str:
    """Names its present content; changes when a person changes it, its secret too (ETag)."""
    described = json.dumps([describe(pickup), str(pickup.updated_at)], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:20]


@sensitive_variables("values")
def pickup_create(*, actor: Actor, reason: str, **values: Any) -> Pickup:
    """A new pickup, looked into at once if it is enabled; endpoint and partner are ids. Raises InvalidSubmission."""
    audit.require_reason(reason)
    with _understood(), writing():
        made = services.pickup_create(**_named(values))
        made = selectors.pickup(made.pk)
        PickupState.objects.create(pickup=made, due_at=clock.now())
        audit.record(actor, "pickup.create", made, reason=reason, after=describe(made))
        dispatch.wake_on_commit(dispatch.PICKUPS)
    return made


@sensitive_variables("values")
def pickup_update(
    *,
    pickup_id: uuid.UUID,
    actor: Actor,
    reason: str,
    expected_version: str | None = None,
    **values: Any,
) -> Pickup:
    """Changes what is given, and looks again at once. Raises InvalidSubmission, NotFound, Stale.

    Another mailbox or folder begins at its beginning: what was there before is told by MessageIds.
    """
    audit.require_reason(reason)
    with _understood(), writing():
        pickup, before = _fresh(pickup_id, expected_version)
        without = "partner" in values and values["partner"] is None
        services.pickup_update(pickup=pickup, without_partner=without, **_named(values))
        changed = selectors.pickup(pickup_id)
        state = _state(pickup_id)
        if (changed.kind, changed.url) != (before["kind"], before["url"]):
            state.position = ""
        state.due_at = clock.now()
        state.save(update_fields=["position", "due_at"])
        audit.record(
            actor,
            "pickup.update",
            changed,
            reason=reason,
            before=before,
            after={**describe(changed), **({"secret": "replaced"} if values.get("secret") else {})},
        )
        _after_change(actor)
    return changed


def pickup_delete(*, pickup_id: uuid.UUID, actor: Actor, reason: str, expected_version: str | None = None) -> None:
    """Ends a pickup; what lies there stays there. Raises InvalidSubmission (no reason), NotFound, Stale."""
    audit.require_reason(reason)
    with writing():
        pickup, before = _fresh(pickup_id, expected_version)
        audit.record(actor, "pickup.delete", pickup, reason=reason, before=before)
        services.pickup_delete(pickup=pickup)
        _after_change(actor)


def pickup_enable(*, pickup_id: uuid.UUID, actor: Actor, reason: str, expected_version: str | None = None) -> Pickup:
    """Looks again, from now on. Raises InvalidSubmission (no reason), NotFound, Stale, WrongState."""
    return _switch(pickup_id, actor, reason, expected_version, enabled=True)


def pickup_disable(*, pickup_id: uuid.UUID, actor: Actor, reason: str, expected_version: str | None = None) -> Pickup:
    """Looks no more until it is enabled; what lies there waits. Raises as `pickup_enable`."""
    return _switch(pickup_id, actor, reason, expected_version, enabled=False)


def pickup_look(*, pickup_id: uuid.UUID, actor: Actor, reason: str, expected_version: str | None = None) -> Pickup:
    """Looks at once, or right after the look that is under way. Raises as `pickup_enable`; WrongState when disabled."""
    audit.require_reason(reason)
    with writing():
        pickup, _ = _fresh(pickup_id, expected_version)
        if not pickup.enabled:
            raise WrongState(
                f"{pickup} is switched off: switch it on to look.", state="off", allowed=allowed_verbs(pickup)
            )
        state = _state(pickup_id)
        state.due_at = clock.now()
        state.save(update_fields=["due_at"])
        audit.record(actor, "pickup.look", pickup, reason=reason)
        dispatch.wake_on_commit(dispatch.PICKUPS)
    return pickup


def allowed_verbs(pickup: Pickup) -> tuple[str, ...]:
    """Which of `VERBS` its state takes; any pickup can be deleted, so that is not among them."""
    return ("look", "disable") if pickup.enabled else ("enable",)


def _switch(pickup_id: uuid.UUID, actor: Actor, reason: str, expected_version: str | None, *, enabled: bool) -> Pickup:
    audit.require_reason(reason)
    word = "on" if enabled else "off"
    with _understood(), writing():
        pickup, before = _fresh(pickup_id, expected_version)
        if pickup.enabled is enabled:
            raise WrongState(f"{pickup} is {word} already.", state=word, allowed=allowed_verbs(pickup))
        services.pickup_update(pickup=pickup, enabled=enabled)
        changed = selectors.pickup(pickup_id)
        state = _state(pickup_id)
        state.due_at, state.failures, state.cause, state.detail = clock.now(), 0, "", ""
        state.save(update_fields=["due_at", "failures", "cause", "detail"])
        verb = "pickup.enable" if enabled else "pickup.disable"
        audit.record(actor, verb, changed, reason=reason, before=before, after=describe(changed))
        _after_change(actor)
    return changed


def _after_change(actor: Actor) -> None:
    """A pickup that failed and is gone, off or mended needs nobody any more."""
    events.write(pickups.close_incident(clock.now(), by=actor.name))
    dispatch.wake_on_commit(dispatch.PICKUPS)


def _state(pickup_id: uuid.UUID) -> PickupState:
    state, _ = PickupState.objects.select_for_update().get_or_create(pickup_id=pickup_id)
    return state


def _fresh(pickup_id: uuid.UUID, expected_version: str | None) -> tuple[Pickup, dict[str, Any]]:
    try:
        pickup = selectors.pickup(pickup_id)
    except ObjectDoesNotExist as error:
        raise NotFound(f"There is no pickup {public_id('pick', pickup_id)}.") from error
    if expected_version is not None and revision(pickup) != expected_version:
        raise Stale(f"{pickup} changed since you looked at it: look again before you change it.", version=0)
    return pickup, describe(pickup)


def _named(values: dict[str, Any]) -> dict[str, Any]:
    """The values with the rows that ids name. Raises InvalidSubmission."""
    kinds: dict[str, type[Any]] = {"endpoint": Endpoint, "partner": Party}
    found = dict(values)
    for field, model in kinds.items():
        if values.get(field) is not None:
            found[field] = model._default_manager.filter(pk=values[field]).first()
            if found[field] is None:
                raise InvalidSubmission({field: [f"There is no such {model._meta.verbose_name}."]})
    return found


@contextmanager
def _understood() -> Iterator[None]:
    """What `partners` refuses, in the words of this app."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidSubmission(error.errors) from error
