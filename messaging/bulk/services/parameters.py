"""What a bulk job takes beside its objects and its reason: the parameters of an action, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from messaging.bulk.services.actions import Action
from messaging.deliveries.services import deciding as settling
from messaging.exceptions import InvalidSubmission
from messaging.journal import incidents

MAX_STAGGER = 3600  # seconds between two pairs
MODES = ("probe", "all")


def checked(action: Action, parameters: Mapping[str, Any], *, planned: bool = False) -> dict[str, Any]:
    """The parameters of a job, as they are stored. Raises InvalidSubmission by field.

    `planned`: of a plan, so that what has no default (an owner) may still be missing.
    """
    errors: dict[str, list[str]] = {}
    allowed = {*action.takes, *({"decision", "remind_in"} if action.decisions else set())}
    for name in sorted(set(parameters) - allowed):
        errors[name] = ["This action does not take it."]
    kept = _decided(action, parameters, errors) if action.decisions else {}
    for name in action.takes:
        if planned and name in _GIVEN_LAST and parameters.get(name) is None:
            continue
        kept |= _CHECKS[name](parameters.get(name), errors)
    if errors:
        raise InvalidSubmission(errors)
    return kept


def _decided(action: Action, parameters: Mapping[str, Any], errors: dict[str, list[str]]) -> dict[str, Any]:
    decision, remind_in = parameters.get("decision"), parameters.get("remind_in")
    kept: dict[str, Any] = {"decision": decision}
    if decision not in action.decisions:
        errors["decision"] = [f"One of {', '.join(action.decisions)}."]
    if remind_in is not None:
        kept["remind_in"] = remind_in
    wants = decision == "later"
    fits = isinstance(remind_in, int) and settling.MIN_REMIND <= remind_in <= settling.MAX_REMIND
    if wants and not fits:
        errors["remind_in"] = [f"Seconds, from {settling.MIN_REMIND} to {settling.MAX_REMIND} (90 days)."]
    elif not wants and remind_in is not None:
        errors["remind_in"] = ["Only the decision “later” takes a time: leave it out."]
    return kept


def _mode(given: Any, errors: dict[str, list[str]]) -> dict[str, Any]:
    mode = given or MODES[0]
    if mode not in MODES:
        errors["mode"] = [f"One of {', '.join(MODES)}."]
    return {"mode": mode}


def _stagger(given: Any, errors: dict[str, list[str]]) -> dict[str, Any]:
    seconds = 0 if given is None else given
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 <= seconds <= MAX_STAGGER:
        errors["stagger"] = [f"Seconds between two pairs, from 0 to {MAX_STAGGER}."]
    return {"stagger": seconds}


def _owner(given: Any, errors: dict[str, list[str]]) -> dict[str, Any]:
    if given not in incidents.may_own():
        errors["owner"] = ["The name of an active user with the role operator."]
    return {"owner": given}


_GIVEN_LAST = ("owner",)
_CHECKS: Mapping[str, Callable[[Any, dict[str, list[str]]], dict[str, Any]]] = {
    "mode": _mode,
    "stagger": _stagger,
    "owner": _owner,
}
