"""Pollers changed by a person: `partners.services` with an audit entry each, and looks that are asked for."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from messaging import dispatch
from messaging.exceptions import InvalidSubmission, NotFound, Stale, WrongState
from messaging.journal import audit, events
from messaging.journal.audit import Actor
from messaging.models import PollerState
from messaging.pollers.services import pollers
from partners import selectors, services
from partners.exceptions import InvalidInput
from partners.models import Endpoint, Party, Poller
from partners.services.writing import writing
from rmhub import clock
from rmhub.ids import public_id

_FIELDS = ("name", "kind", "url", "username", "secret_kind", "host_key", "trusted_checker", "interval", "enabled")


def describe(poller: Poller) -> dict[str, Any]:
    """A poller as the audit log holds it. Never its secret."""
    found: dict[str, Any] = {name: getattr(poller, name) for name in _FIELDS}
    found["endpoint"] = poller.endpoint.public_id
    found["partner"] = poller.partner.public_id if poller.partner else ""
    return found


def revision(poller: Poller) -> str:
    """Names its present content; changes when a person changes it, its secret too (ETag)."""
    described = json.dumps([describe(poller), str(poller.updated_at)], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:20]


@sensitive_variables("values")
def poller_create(*, actor: Actor, reason: str, **values: Any) -> Poller:
    """A new poller, looked into at once if it is enabled; endpoint and partner are ids. Raises InvalidSubmission."""
    audit.require_reason(reason)
    with _understood(), writing():
        made = services.poller_create(**_named(values))
        made = selectors.poller(made.pk)
        PollerState.objects.create(poller=made, due_at=clock.now())
        audit.record(actor, "poller.create", made, reason=reason, after=describe(made))
        dispatch.wake_on_commit(dispatch.POLLERS)
    return made


@sensitive_variables("values")
def poller_update(
    *,
    poller_id: uuid.UUID,
    actor: Actor,
    reason: str,
    expected_version: str | None = None,
    **values: Any,
) -> Poller:
    """Changes what is given, and looks again at once. Raises InvalidSubmission, NotFound, Stale.

    Another mailbox or folder begins at its beginning: what was there before is told by MessageIds.
    """
    audit.require_reason(reason)
    with _understood(), writing():
        poller, before = _fresh(poller_id, expected_version)
        without = "partner" in values and values["partner"] is None
        services.poller_update(poller=poller, without_partner=without, **_named(values))
        changed = selectors.poller(poller_id)
        state = _state(poller_id)
        if (changed.kind, changed.url) != (before["kind"], before["url"]):
            state.position = ""
        state.due_at = clock.now()
        state.save(update_fields=["position", "due_at"])
        audit.record(
            actor,
            "poller.update",
            changed,
            reason=reason,
            before=before,
            after={**describe(changed), **({"secret": "replaced"} if values.get("secret") else {})},
        )
        _after_change(actor)
    return changed


def poller_delete(*, poller_id: uuid.UUID, actor: Actor, reason: str, expected_version: str | None = None) -> None:
    """Ends a poller; what lies there stays there. Raises InvalidSubmission (no reason), NotFound, Stale."""
    audit.require_reason(reason)
    with writing():
        poller, before = _fresh(poller_id, expected_version)
        audit.record(actor, "poller.delete", poller, reason=reason, before=before)
        services.poller_delete(poller=poller)
        _after_change(actor)


def poller_enable(*, poller_id: uuid.UUID, actor: Actor, reason: str, expected_version: str | None = None) -> Poller:
    """Looks again, from now on. Raises InvalidSubmission (no reason), NotFound, Stale, WrongState."""
    return _switch(poller_id, actor, reason, expected_version, enabled=True)


def poller_disable(*, poller_id: uuid.UUID, actor: Actor, reason: str, expected_version: str | None = None) -> Poller:
    """Looks no more until it is enabled; what lies there waits. Raises as `poller_enable`."""
    return _switch(poller_id, actor, reason, expected_version, enabled=False)


def poller_look(*, poller_id: uuid.UUID, actor: Actor, reason: str, expected_version: str | None = None) -> Poller:
    """Looks at once, or right after the look that is under way. Raises as `poller_enable`; WrongState when disabled."""
    audit.require_reason(reason)
    with writing():
        poller = _fresh(poller_id, expected_version)[0]
        if not poller.enabled:
            raise WrongState(
                _("{name} is switched off: switch it on to poll.").format(name=poller),
                state="off",
                allowed=allowed_verbs(poller),
            )
        state = _state(poller_id)
        state.due_at = clock.now()
        state.save(update_fields=["due_at"])
        audit.record(actor, "poller.look", poller, reason=reason)
        dispatch.wake_on_commit(dispatch.POLLERS)
    return poller


def allowed_verbs(poller: Poller) -> tuple[str, ...]:
    """Which of `VERBS` its state takes; any poller can be deleted, so that is not among them."""
    return ("look", "disable") if poller.enabled else ("enable",)


def _switch(poller_id: uuid.UUID, actor: Actor, reason: str, expected_version: str | None, *, enabled: bool) -> Poller:
    audit.require_reason(reason)
    word = "on" if enabled else "off"
    with _understood(), writing():
        poller, before = _fresh(poller_id, expected_version)
        if poller.enabled is enabled:
            said = _("{name} is on already.") if enabled else _("{name} is off already.")
            raise WrongState(said.format(name=poller), state=word, allowed=allowed_verbs(poller))
        services.poller_update(poller=poller, enabled=enabled)
        changed = selectors.poller(poller_id)
        state = _state(poller_id)
        state.due_at, state.failures, state.cause, state.detail = clock.now(), 0, "", ""
        state.save(update_fields=["due_at", "failures", "cause", "detail"])
        verb = "poller.enable" if enabled else "poller.disable"
        audit.record(actor, verb, changed, reason=reason, before=before, after=describe(changed))
        _after_change(actor)
    return changed


def _after_change(actor: Actor) -> None:
    """A poller that failed and is gone, off or fixed needs nobody any more."""
    events.write(pollers.close_incident(clock.now(), by=actor.name))
    dispatch.wake_on_commit(dispatch.POLLERS)


def _state(poller_id: uuid.UUID) -> PollerState:
    return PollerState.objects.select_for_update().get_or_create(poller_id=poller_id)[0]


def _fresh(poller_id: uuid.UUID, expected_version: str | None) -> tuple[Poller, dict[str, Any]]:
    try:
        poller = selectors.poller(poller_id)
    except ObjectDoesNotExist as error:
        raise NotFound(_("There is no poller {id}.").format(id=public_id("poll", poller_id))) from error
    if expected_version is not None and revision(poller) != expected_version:
        raise Stale(
            _("{name} changed since you looked at it: look again before you change it.").format(name=poller), version=0
        )
    return poller, describe(poller)


def _named(values: dict[str, Any]) -> dict[str, Any]:
    """The values with the rows that ids name. Raises InvalidSubmission."""
    kinds: dict[str, type[Any]] = {"endpoint": Endpoint, "partner": Party}
    found = dict(values)
    for field, model in kinds.items():
        if values.get(field) is not None:
            found[field] = model._default_manager.filter(pk=values[field]).first()
            if found[field] is None:
                said = _("There is no such party.") if model is Party else _("There is no such endpoint.")
                raise InvalidSubmission({field: [said]})
    return found


@contextmanager
def _understood() -> Iterator[None]:
    """What `partners` refuses, in the words of this app."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidSubmission(error.errors) from error
