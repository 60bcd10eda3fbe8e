"""The form of a pickup: what stands in its fields, what was posted, and what is wrong beside each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse, QueryDict
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from messaging.access.selectors.reach import read_id
from messaging.console.access import actor, requires
from messaging.console.rendering import page, see_other
from messaging.deliveries.pages.trigger_fields import Field, Group
from messaging.deliveries.pages.trigger_form import Shown, ShownGroup
from messaging.deliveries.pages.triggers import once, used_already
from messaging.exceptions import InvalidSubmission, Stale
from messaging.pollers import selectors
from messaging.pollers.pages.pickups import SCOPE
from messaging.pollers.services import changes as services
from partners import selectors as partners
from partners.choices import CredentialKind, PickupKind
from partners.fields import read_duration
from partners.models import Pickup
from partners.validation import duration
from rmhub.ids import BadPublicId

_ONCE = "pickup_form"
_MOST_CHOICES = 500
_SECRETS = ("password", "private_key")
_FOLDER, _MAILBOX = (PickupKind.SFTP.value,), (PickupKind.IMAP.value,)
GROUPS: tuple[Group, ...] = (
    Group(
        "Mailbox or folder",
        "",
        (
            Field("name", "Name", "text", "What people call it. It stands on every page."),
            Field("kind", "Kind", "choice", choices=tuple((one.value, one.label) for one in PickupKind)),
            Field(
                "url",
                "Address",
                "text",
                "Mailbox: imaps://mail.example.org/INBOX. Folder: sftp://files.example.org/outgoing/",
            ),
            Field(
                "endpoint",
                "Endpoint of ours",
                "select",
                "The messages are for its URI; its timeouts hold for the server too.",
                choices=(("", "Choose one"),),
            ),
            Field(
                "partner",
                "Partner",
                "select",
                "Who puts files there: whatever lies in the folder counts as sent by them.",
                choices=(("", "Choose one"),),
                only=("kind", _FOLDER),
            ),
            Field(
                "trusted_checker",
                "Trusted checker of senders",
                "text",
                "The name in Authentication-Results by which your mail server says that it has checked a sender "
                "(RFC 8601). Mails that it has not checked are not taken.",
                only=("kind", _MAILBOX),
                placeholder="mx.example.org",
            ),
        ),
    ),
    Group(
        "How the hub logs in",
        "",
        (
            Field("username", "User name", "text"),
            Field(
                "secret_kind",
                "With",
                "choice",
                "Mail servers take a password.",
                choices=((CredentialKind.BASIC.value, "a password"), (CredentialKind.SSH_KEY.value, "a private key")),
            ),
            Field(
                "password",
                "Password",
                "password",
                "Kept encrypted and never shown. Empty: the one that is stored stays.",
                only=("secret_kind", (CredentialKind.BASIC.value,)),
            ),
            Field(
                "private_key",
                "Private key",
                "lines",
                "PEM text without a passphrase. Kept encrypted and never shown. Empty: the one that is stored stays.",
                only=("secret_kind", (CredentialKind.SSH_KEY.value,)),
            ),
            Field(
                "host_key",
                "Key of the server",
                "text",
                "Its fingerprint, as ssh-keygen -l prints it. Several, while a key is replaced, are apart by spaces.",
                only=("kind", _FOLDER),
                placeholder="SHA256:…",
            ),
        ),
    ),
    Group(
        "When",
        "",
        (
            Field("interval", "Look every", "time"),
            Field("enabled", "Look into it", "switch", "Off: what lies there waits."),
        ),
    ),
)
FIELDS: dict[str, Field] = {field.name: field for group in GROUPS for field in group.fields}


@sensitive_post_parameters(*_SECRETS)
@sensitive_variables("values")
@requires(SCOPE, methods=("GET", "POST"))
def pickup_new(request: HttpRequest) -> HttpResponse:
    """The form; POST makes the pickup."""
    if request.method != "POST":
        return _form(request, None, _texts(Pickup(kind=PickupKind.SFTP)))
    if used_already(request, _ONCE):
        notices.error(request, "This form was used already: see whether the pickup is in the list.")
        return see_other("console:pickups")
    values, errors = read(request.POST)
    if not errors:
        try:
            made = services.pickup_create(actor=actor(request), reason=_reason(request), **values)
        except InvalidSubmission as error:
            errors = error.errors
        else:
            del request.session[_ONCE]
            notices.success(request, f"{made.name} is made.")
            return see_other("console:pickup", made.public_id)
    return _form(request, None, _posted(request.POST), errors=errors)


@sensitive_post_parameters(*_SECRETS)
@sensitive_variables("values")
@requires(SCOPE, methods=("GET", "POST"))
def pickup_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """The same form for a pickup that there is."""
    pickup = selectors.pickup(read_id("pick", reference))
    if request.method != "POST":
        return _form(request, pickup, _texts(pickup))
    values, errors = read(request.POST)
    version = request.POST.get("version", "")
    if not version:
        errors = {"": ["This form is not complete: open it again from the pickup's page."]}
    if not errors:
        values["secret"] = values["secret"] or None
        try:
            services.pickup_update(
                pickup_id=pickup.pk,
                actor=actor(request),
                reason=_reason(request),
                expected=version,
                without_partner=values["partner_id"] is None,
                **values,
            )
        except Stale as error:
            pickup = selectors.pickup(pickup.pk)
            return _form(request, pickup, _posted(request.POST), errors={"": [error.detail]}, status=409)
        except InvalidSubmission as error:
            errors = error.errors
        else:
            notices.success(request, f"{values['name']} is changed.")
            return see_other("console:pickup", pickup.public_id)
    return _form(request, pickup, _posted(request.POST), errors=errors)


@sensitive_variables("texts", "values")
def read(posted: QueryDict) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The values of a posted form as the services take them, and what cannot be read, by field."""
    texts = _posted(posted)
    values: dict[str, Any] = {}
    errors: dict[str, list[str]] = {}
    for name in FIELDS:
        text = texts[name] if name in _SECRETS else texts[name].strip()
        try:
            if name == "endpoint":
                if not text:
                    raise ValueError("Choose the endpoint that the messages are for.")
                values["endpoint_id"] = read_id("end", text)
            elif name == "partner":
                values["partner_id"] = read_id("par", text) if text else None
            elif name == "interval":
                values[name] = read_duration(text)
            elif name == "enabled":
                values[name] = text == "on"
            else:
                values[name] = text
        except (ValueError, BadPublicId) as error:
            errors[name] = [str(error)]
    return _of_its_kind(values), errors


def _of_its_kind(values: dict[str, Any]) -> dict[str, Any]:
    """Without what the other kind has: its fields are hidden, and whoever changes the kind cannot empty them."""
    if values["kind"] == PickupKind.IMAP:
        values |= {"partner_id": None, "host_key": ""}
    else:
        values["trusted_checker"] = ""
    password, key = (values.pop(name) for name in _SECRETS)
    values["secret"] = key if values["secret_kind"] == CredentialKind.SSH_KEY else password
    return values


def _texts(pickup: Pickup) -> dict[str, str]:
    """What stands in the fields for a pickup; never the secret."""
    plain = ("name", "kind", "url", "username", "secret_kind", "host_key", "trusted_checker")
    found = {name: str(getattr(pickup, name)) for name in plain}
    found["endpoint"] = pickup.endpoint.public_id if pickup.endpoint_id else ""
    found["partner"] = pickup.partner.public_id if pickup.partner else ""
    found |= dict.fromkeys(_SECRETS, "")
    found["interval"] = duration(pickup.interval)
    found["enabled"] = "on" if pickup.enabled else ""
    return found


def _posted(posted: QueryDict) -> dict[str, str]:
    return {name: posted.get(name, "").replace("\x00", "") for name in FIELDS}


def _reason(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip().replace("\x00", "")


def _choices() -> dict[str, tuple[tuple[str, str], ...]]:
    return {
        "endpoint": tuple(
            (one.public_id, f"{one.party}: {one.uri}")
            for one in partners.endpoints().filter(party__is_own=True)[:_MOST_CHOICES]
        ),
        "partner": tuple((one.public_id, one.name) for one in partners.parties(is_own=False)[:_MOST_CHOICES]),
    }


@sensitive_variables("texts")
def _form(
    request: HttpRequest,
    pickup: Pickup | None,
    texts: Mapping[str, str],
    *,
    errors: Mapping[str, list[str]] | None = None,
    status: int = 0,
) -> HttpResponse:
    field_of = {"secret": "private_key" if texts["secret_kind"] == CredentialKind.SSH_KEY else "password"}
    wrong = {field_of.get(name, name): tuple(sentences) for name, sentences in (errors or {}).items()}
    choices = _choices()
    shown = [
        ShownGroup(
            group.title,
            group.lead,
            [_shown(field, texts[field.name], choices, wrong.get(field.name, ())) for field in group.fields],
            False,
            True,
        )
        for group in GROUPS
    ]
    listed = [
        (name if name in FIELDS or name == "reason" else "", f"{_label(name)}{sentence}")
        for name, sentences in wrong.items()
        for sentence in sentences
    ]
    context = {
        "pickup": pickup,
        "version": services.revision(pickup) if pickup is not None else "",
        "groups": shown,
        "errors": listed,
        "given": request.POST,
        "once": once(request, _ONCE) if pickup is None else "",
    }
    return page(request, "console/pollers/pickup_form.html", context, status=status or (422 if errors else 200))


def _shown(
    field: Field, value: str, choices: Mapping[str, tuple[tuple[str, str], ...]], wrong: tuple[str, ...]
) -> Shown:
    offered = (*field.choices, *choices.get(field.name, ()))
    if field.kind == "select" and value not in {one for one, _ in offered}:
        # Whoever changes something else must not take it away unawares.
        offered = (*offered, (value, value))
    # A secret that was posted is not sent back.
    return Shown(field, "" if field.name in _SECRETS else value, offered, wrong)


def _label(name: str) -> str:
    return f"{FIELDS[name].label}: " if name in FIELDS else ""
