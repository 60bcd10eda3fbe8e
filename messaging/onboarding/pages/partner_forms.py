"""How the forms about partners are shown and read: one table of fields for each, one template for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.views.decorators.debug import sensitive_variables

from messaging.console.rendering import page
from messaging.deliveries.pages.trigger_fields import Field, Group, Shown, ShownGroup
from messaging.exceptions import ApplicationError, InvalidSubmission, Stale, WrongState
from partners.exceptions import InvalidInput, PartnersError
from partners.exceptions import WrongState as PartnersWrongState
from partners.fields import duration, read_duration

Errors = dict[str, list[str]]
SECRETS = frozenset({"secret", "password", "token", "private_key", "own_certificate"})
MOST_CHOICES = 500


@dataclass(frozen=True, slots=True)
class FormPage:
    """What stands around the fields: `label` is the verb of its button, `leave` where its other button goes.

    `crumbs`: (text, URL) each. `presets`: reasons to choose from. `reason`: whether it asks for one.
    """

    title: str
    label: str
    leave: str
    crumbs: tuple[tuple[str, str], ...] = ()
    lead: str = ""
    icon: str = "check"
    testid: str = "submit"
    with_file: bool = False
    presets: tuple[str, ...] = ()
    reason: bool = True


def fields_of(groups: Sequence[Group]) -> dict[str, Field]:
    """The fields of these groups by name."""
    return {field.name: field for group in groups for field in group.fields}


def posted(fields: Mapping[str, Field], given: QueryDict) -> dict[str, str]:
    """What was typed into each field. A switch that is off is ""."""
    return {name: given.get(name, "").replace("\x00", "") for name in fields}


def shown_now(field: Field, texts: Mapping[str, str]) -> bool:
    """Whether the field is shown beside what the others hold."""
    return field.only is None or texts.get(field.only[0], "") in field.only[1]


@sensitive_variables("texts", "text", "values")
def read(fields: Mapping[str, Field], texts: Mapping[str, str]) -> tuple[dict[str, Any], Errors]:
    """The values of the fields that are shown, as services take them, and what cannot be read, by field."""
    values: dict[str, Any] = {}
    errors: Errors = {}
    for name, field in fields.items():
        if not shown_now(field, texts) or field.kind == "file":
            continue
        text = texts.get(name, "")
        try:
            values[name] = _value(field, text if name in SECRETS else text.strip())
        except ValueError as error:
            errors[name] = [str(error)]
    return values, errors


def _value(field: Field, text: str) -> Any:
    match field.kind:
        case "switch":
            return text == "on"
        case "time":
            return read_duration(text)
        case "number":
            if not (text.isascii() and text.isdigit() and len(text) < 10):
                raise ValueError("A whole number is needed here.")
            return int(text)
    return text


def written(field: Field, value: Any) -> str:
    """How a value stands in its field."""
    if field.kind == "time":
        return duration(int(value))
    if field.kind == "switch":
        return "on" if value else ""
    return "" if value is None else str(value)


def read_identifiers(text: str) -> list[tuple[str, str]]:
    """`DUNS 123456789` a line. Raises ValueError with a sentence that names the line."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        scheme, _, value = line.strip().partition(" ")
        if not value.strip():
            raise ValueError(f"Line {number}: write the type, a space and the value, such as DUNS 123456789.")
        found.append((scheme, value.strip()))
    return found


def read_services(text: str) -> list[tuple[str, str, str]]:
    """`service | action | send` a line; action and direction may be left out. Raises ValueError."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split("|")]
        service, action, direction = (*parts, "", "")[:3] if len(parts) < 4 else ("", "", "")
        direction = direction or "both"
        if not service or direction not in ("send", "receive", "both"):
            raise ValueError(
                f"Line {number}: write the service, a bar, the action, a bar and send, receive or both, "
                "such as urn:orders | * | both."
            )
        found.append((service, action or "*", direction))
    return found


def services_text(services: Sequence[tuple[str, str, str]]) -> str:
    return "\n".join(" | ".join(row) for row in services)


# What services refuse: for bad values, and because of the state that things are in.
INVALID = (InvalidSubmission, InvalidInput)
REFUSED = (Stale, WrongState, PartnersWrongState)


def refusals(error: ApplicationError | PartnersError) -> Errors:
    """What a service refused, by field."""
    if isinstance(error, InvalidSubmission | InvalidInput):
        return error.errors
    return {"": [error.why if isinstance(error, PartnersWrongState) else str(error)]}


def groups(
    chosen: Sequence[Group],
    texts: Mapping[str, str],
    errors: Mapping[str, Sequence[str]],
    choices: Mapping[str, tuple[tuple[str, str], ...]] | None = None,
    *,
    unset: Mapping[str, str] | None = None,
) -> list[ShownGroup]:
    """The groups with what stands in their fields. A folded one is open when something in it is not as in `unset`."""
    found = []
    for group in chosen:
        fields = [
            _shown(field, texts.get(field.name, ""), choices or {}, tuple(errors.get(field.name, ())))
            for field in group.fields
        ]
        touched = any(one.errors or (unset or {}).get(one.field.name, one.value) != one.value for one in fields)
        found.append(ShownGroup(group.title, group.lead, fields, group.folded, touched))
    return found


def _shown(
    field: Field, value: str, choices: Mapping[str, tuple[tuple[str, str], ...]], wrong: tuple[str, ...]
) -> Shown:
    offered = (*field.choices, *choices.get(field.name, ()))
    if field.kind == "select" and value not in {one for one, _ in offered}:
        # Whoever changes something else must not take it away unawares.
        offered = (*offered, (value, value))
    # A secret that was posted is not sent back.
    return Shown(field, "" if field.name in SECRETS else value, offered, wrong)


def summary(fields: Mapping[str, Field], errors: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """(field or "", sentence) for the list at the top of a form."""
    return [
        (
            name if name in fields or name == "reason" else "",
            f"{fields[name].label}: {sentence}" if name in fields else sentence,
        )
        for name, sentences in errors.items()
        for sentence in sentences
    ]


def form_page(
    request: HttpRequest,
    form: FormPage,
    shown: list[ShownGroup],
    errors: list[tuple[str, str]],
    *,
    status: int = 0,
    template: str = "console/onboarding/partner_form.html",
    **context: Any,
) -> HttpResponse:
    """The form; 422 when something is wrong with it, unless `status` says otherwise."""
    known = {"form": form, "groups": shown, "errors": errors, "given": request.POST, "presets": form.presets}
    return page(request, template, known | context, status=status or (422 if errors else 200))


def reason_of(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip().replace("\x00", "")[:1000]
