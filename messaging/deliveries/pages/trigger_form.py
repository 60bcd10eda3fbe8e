"""The form of a trigger: what stands in its fields, what was posted, and what is wrong beside each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse, QueryDict
from django.views.decorators.debug import sensitive_variables

from messaging import applications
from messaging.access.selectors.reach import read_id
from messaging.console.access import actor, requires
from messaging.console.rendering import page, see_other
from messaging.deliveries.pages.trigger_fields import FIELDS, GROUPS, Field
from messaging.deliveries.pages.triggers import once, signs, used_already
from messaging.deliveries.selectors import triggers
from messaging.deliveries.services import triggering
from messaging.deliveries.services.trigger_rules import TriggerValues
from messaging.exceptions import InvalidSubmission, Stale
from messaging.models import Trigger
from partners import selectors as partners
from partners.choices import Profile
from partners.fields import duration, read_duration
from partners.models import Agreement
from rmhub.ids import BadPublicId

_ONCE = "trigger_form"
# Fields that name another row: the model's attribute is the name without "_id".
_REFERENCES = {"party_id": "par", "agreement_id": "agr", "member_of_id": "trg", "atomic_agreement_id": "agr"}
_MOST_CHOICES = 500


@dataclass(frozen=True, slots=True)
class Shown:
    """A field with what stands in it."""

    field: Field
    value: str
    choices: tuple[tuple[str, str], ...]
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShownGroup:
    """A group of the form as it is shown."""

    title: str
    lead: str
    fields: list[Shown]
    folded: bool
    open: bool


@sensitive_variables("secret")
@requires("triggers:write", methods=("GET", "POST"))
def trigger_new(request: HttpRequest) -> HttpResponse:
    """The form; POST makes the trigger and shows its secret this once, on a page that no cache keeps."""
    blank = Trigger()
    if request.method != "POST":
        # From the page of an atomic trigger, for one more member of it.
        given = request.GET.get("member_of", "")[:60].replace("\x00", "")
        return _form(request, None, _texts(blank) | ({"member_of_id": given} if given else {}))
    if used_already(request, _ONCE):
        notices.error(request, "This form was used already: see whether the trigger is in the list.")
        return see_other("console:triggers")
    values, errors = read(request.POST)
    if not errors:
        try:
            made, secret = triggering.trigger_create(
                actor=actor(request), reason=_reason(request), **cast(TriggerValues, values)
            )
        except InvalidSubmission as error:
            errors = error.errors
        else:
            del request.session[_ONCE]
            if signs(made):
                context = {"trigger": made, "secret": secret, "made": True}
                return page(request, "console/deliveries/trigger_secret_made.html", context)
            notices.success(request, f"{made.name} takes documents from now on.")
            return see_other("console:trigger", made.public_id)
    return _form(request, None, _posted(request.POST), errors=errors)


@requires("triggers:write", methods=("GET", "POST"))
def trigger_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """The same form for a trigger that there is."""
    trigger = triggers.trigger(reference)
    if request.method != "POST":
        return _form(request, trigger, _texts(trigger))
    values, errors = read(request.POST)
    version = request.POST.get("version", "")
    if not (version.isascii() and version.isdigit()):
        errors["__all__"] = ["This form is not complete: open it again from the trigger's page."]
    if not errors:
        try:
            triggering.trigger_update(
                trigger_id=trigger.pk,
                actor=actor(request),
                reason=_reason(request),
                expected_version=int(version),
                **cast(TriggerValues, values),
            )
        except InvalidSubmission as error:
            errors = error.errors
        except Stale as error:
            now = triggers.trigger(trigger.pk)
            return _form(request, now, _posted(request.POST), errors={"__all__": [error.detail]}, status=409)
        else:
            notices.success(request, f"{trigger.name} is changed.")
            return see_other("console:trigger", trigger.public_id)
    return _form(request, trigger, _posted(request.POST), errors=errors)


def read(posted: QueryDict) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The values of a posted form as `trigger_create` takes them, and what cannot be read, by field.

    What belongs to a kind that is not chosen is not shown, and is left out here too.
    """
    values: dict[str, Any] = {}
    errors: dict[str, list[str]] = {}
    for field in FIELDS.values():
        text = posted.get(field.name, "").strip()
        if field.only is not None and posted.get(field.only[0], "") not in field.only[1]:
            if field.kind in _EMPTY:
                values[field.name] = _EMPTY[field.kind]
            continue
        try:
            values[field.name] = _READERS[field.kind](text)
        except ValueError as error:
            errors[field.name] = [str(error)]
    for name, prefix in _REFERENCES.items():
        text = values.pop(name, "")
        try:
            values[name] = read_id(prefix, text) if text else None
        except BadPublicId:
            errors[name] = ["Choose one of the list."]
    return values, errors


def read_lines(text: str) -> list[dict[str, str]]:
    """`service | action` a line. Raises ValueError with a sentence that names the line."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        service, bar, action = line.rpartition("|")
        if not bar:
            raise ValueError(f"Line {number}: write the service, a bar and the action, such as urn:orders | *.")
        found.append({"service": service.strip(), "action": action.strip()})
    return found


def _codes(text: str) -> list[int]:
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise ValueError("HTTP statuses, such as 425, 429, 503.") from None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError("A whole number is needed here.")
    return int(text)


_READERS: Mapping[str, Any] = {
    "text": str,
    "select": str,
    "choice": str,
    "number": _number,
    "time": read_duration,
    "switch": lambda text: text == "on",
    "lines": read_lines,
    "codes": _codes,
}


# What a field that is not shown is set to; numbers and times stay as they are.
_EMPTY: Mapping[str, Any] = {"text": "", "select": "", "switch": False}


def _texts(trigger: Trigger) -> dict[str, str]:
    """What stands in the fields for a trigger."""
    found: dict[str, str] = {}
    for field in FIELDS.values():
        if field.name in _REFERENCES:
            chosen = getattr(trigger, field.name.removesuffix("_id"))
            found[field.name] = chosen.public_id if chosen is not None else ""
            continue
        value: Any = getattr(trigger, field.name)
        found[field.name] = _written(field.kind, value)
    return found


def _written(kind: str, value: Any) -> str:
    if kind == "time":
        return duration(int(value))
    if kind == "switch":
        return "on" if value else ""
    if kind == "lines":
        return "\n".join(f"{one['service']} | {one['action']}" for one in value)
    return ", ".join(str(one) for one in value) if kind == "codes" else str(value)


def _posted(posted: QueryDict) -> dict[str, str]:
    return {name: posted.get(name, "").replace("\x00", "") for name in FIELDS}


def _reason(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip().replace("\x00", "")


def _form(
    request: HttpRequest,
    trigger: Trigger | None,
    texts: Mapping[str, str],
    *,
    errors: Mapping[str, list[str]] | None = None,
    status: int = 0,
) -> HttpResponse:
    wrong = {_FIELD_OF.get(name, name): tuple(sentences) for name, sentences in (errors or {}).items()}
    lists = _lists()
    unset = _texts(Trigger())
    shown = []
    for group in GROUPS:
        fields = [
            _shown(field, texts.get(field.name, ""), lists.get(field.name, ()), wrong.get(field.name, ()))
            for field in group.fields
        ]
        touched = any(one.errors or one.value != unset[one.field.name] for one in fields)
        shown.append(ShownGroup(group.title, group.lead, fields, group.folded, touched))
    listed = [
        (name if name in FIELDS or name == "reason" else "", f"{_label(name)}{sentence}")
        for name, sentences in wrong.items()
        for sentence in sentences
    ]
    context = {
        "trigger": trigger,
        "groups": shown,
        "errors": listed,
        "given": request.POST,
        "once": once(request, _ONCE) if trigger is None else "",
        "known": triggers.known_documents(),
    }
    return page(request, "console/deliveries/trigger_form.html", context, status=status or (422 if errors else 200))


def _shown(field: Field, value: str, listed: tuple[tuple[str, str], ...], wrong: tuple[str, ...]) -> Shown:
    choices = (*field.choices, *listed)
    if field.kind == "select" and value not in {one for one, _ in choices}:
        # Whoever changes something else must not take it away unawares.
        choices = (*choices, (value, f"{value} (not in the list any more)"))
    return Shown(field, value, choices, wrong)


# The service names fields as the model does.
_FIELD_OF = {name.removesuffix("_id"): name for name in _REFERENCES}


def _label(name: str) -> str:
    return f"{FIELDS[name].label}: " if name in FIELDS else ""


def _lists() -> dict[str, tuple[tuple[str, str], ...]]:
    """What selects offer."""
    parties = partners.parties(is_own=False)[:_MOST_CHOICES]
    agreements = partners.agreements()[:_MOST_CHOICES]
    return {
        "party_id": tuple((one.public_id, one.name) for one in parties),
        "agreement_id": tuple((one.public_id, f"{one.tpa_id} ({one.partner})") for one in agreements),
        "member_of_id": tuple((one.public_id, one.name) for one in triggers.wholes()[:_MOST_CHOICES]),
        "atomic_agreement_id": tuple(
            (one.public_id, f"{one.tpa_id} ({one.partner})") for one in agreements if _is_atomic(one)
        ),
        "callable_name": _names(applications.SERVICES),
        "resolver_callable": _names(applications.RESOLVERS),
        "monitor_callable": _names(applications.MONITORS),
    }


def _is_atomic(agreement: Agreement) -> bool:
    return any(version.profile == Profile.WSAT for version in agreement.versions.all())


def _names(known: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in sorted(known))
