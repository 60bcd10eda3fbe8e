"""What a draft of the wizard makes: party, endpoint, credential and agreement, or what is wrong with them, by step.

The steps hold what was typed, in kinds that JSON has; each maker checks the kinds before a service sees the values.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import IntegerField, Model
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from messaging.exceptions import ApplicationError, InvalidSubmission
from messaging.journal.audit import Actor
from messaging.models import OnboardingDraft
from messaging.onboarding.services import changing as onboarding
from messaging.onboarding.services.bundle import find_endpoint
from messaging.onboarding.services.bundle_format import same_kind
from partners import secrets, selectors, services
from partners.exceptions import InvalidInput, PartnersError
from partners.exceptions import WrongState as PartnersWrongState
from partners.models import ENDPOINT, TERMS, Agreement, AgreementVersion, Endpoint, Party
from partners.secrets import SecretUnreadable
from partners.services import Problem, gives_up_sentence
from partners.services.writing import writing
from rmhub.ids import BadPublicId, read_public_id

# What each step may hold. Identifiers are [[type, value]], services [[service, action, direction]].
FIELDS: Mapping[str, tuple[str, ...]] = {
    "identity": ("existing", "name", "identifiers", "contact", "time_zone", "hours"),
    "transport": (
        *ENDPOINT,
        *("outbound_kind", "outbound_username", "inbound_kind", "inbound_username", "inbound_certificate"),
    ),
    "agreement": ("tpa_id", "title", "own_endpoint", "services", *TERMS),
}
Errors = dict[str, list[str]]
Row = TypeVar("Row", bound=Model)


@dataclass(slots=True)
class Check:
    """What would come of a draft now. `errors`: step -> field -> sentences; `problems`: of the agreement's settings."""

    errors: dict[str, Errors] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    sentence: str = ""

    @property
    def ok(self) -> bool:
        return not self.errors and not any(one.level is services.Level.ERROR for one in self.problems)


def values_of(draft: OnboardingDraft, step: str) -> dict[str, Any]:
    """What a step holds and could be read."""
    return dict(draft.data.get(step, {}).get("values", {}))


def step_of(problem: Problem) -> str:
    """The step in which a contradiction of the agreement is put right."""
    return {"partner": "identity", "partner_endpoint": "transport"}.get(problem.field, "agreement")


def make(draft: OnboardingDraft, actor: Actor, check: Check) -> AgreementVersion | None:
    """Makes or changes what the draft says, in the caller's transaction; what is wrong goes into `check`."""
    with writing():
        made = dict(draft.data.get("made", {}))
        party = _try("identity", check, lambda: _make_party(draft, made, actor), draft)
        if party is None:
            # The steps behind it are looked at all the same.
            party = Party.objects.create(name=f"draft {uuid.uuid4().hex}")
            made.pop("party", None)
        endpoint = _try("transport", check, lambda: _make_endpoint(draft, made, party, actor), draft)
        if endpoint is None:
            endpoint = Endpoint.objects.create(party=party, uri=f"urn:draft:{uuid.uuid4().hex}", error_uri="urn:draft")
        version = _try("agreement", check, lambda: _make_agreement(draft, party, endpoint, actor), draft)
        draft.data = draft.data | {"made": made}
        return version


def _try(step: str, check: Check, do: Callable[[], Row], draft: OnboardingDraft) -> Row | None:
    unread = draft.data.get(step, {}).get("unread", {})
    if unread:
        check.errors[step] = {name: [_("This cannot be read: correct it.")] for name in unread}
        return None
    try:
        with transaction.atomic():
            return do()
    except PartnersWrongState as error:
        check.errors[step] = {"": [error.why]}
    except (ApplicationError, PartnersError) as error:
        check.errors[step] = dict(getattr(error, "errors", {"": [str(error)]}))
    return None


def _make_party(draft: OnboardingDraft, made: dict[str, str], actor: Actor) -> Party:
    values = values_of(draft, "identity")
    existing = values.pop("existing", "")
    if existing:
        found = _named(Party, "par", existing, "existing")
        if found.is_own:
            raise InvalidSubmission({"existing": [_("{party} is ours: choose a partner.").format(party=found)]})
        return found
    values["identifiers"] = _rows(values.get("identifiers", ()), 2, "identifiers")
    values.setdefault("name", "")
    _texts(values, ("name", "contact", "time_zone", "hours"))
    known = Party.objects.filter(pk__in=made_ids(made, "party")).first()
    reason = _reason(draft)
    if known is None:
        party = onboarding.party_create(actor=actor, reason=reason, **values)
    else:
        party = onboarding.party_update(party_id=known.pk, actor=actor, reason=reason, **values)
    made["party"] = party.public_id
    return party


@sensitive_variables("secret")
def _make_endpoint(draft: OnboardingDraft, made: dict[str, str], party: Party, actor: Actor) -> Endpoint:
    values = values_of(draft, "transport")
    wish = {name: values.pop(name, "") for name in FIELDS["transport"] if name.startswith(("outbound_", "inbound_"))}
    values.setdefault("uri", "")
    numbers = [name for name in ENDPOINT if isinstance(Endpoint._meta.get_field(name), IntegerField)]
    _texts(values, [name for name in ENDPOINT if name not in numbers])
    _texts(wish, tuple(wish))
    _numbers(values, numbers)
    reason = _reason(draft)
    known = Endpoint.objects.filter(pk__in=made_ids(made, "endpoint")).first() or find_endpoint(values["uri"])
    if known is not None and known.party_id != party.pk:
        raise InvalidSubmission(
            {"uri": [_("{party} has an endpoint with this URI already: use another URI.").format(party=known.party)]}
        )
    if known is None:
        endpoint = onboarding.endpoint_create(party_id=party.pk, actor=actor, reason=reason, **values)
        made["endpoint"] = endpoint.public_id
    else:
        endpoint = onboarding.endpoint_update(endpoint_id=known.pk, actor=actor, reason=reason, **values)
    held = draft.data.get("transport", {})
    if wish["outbound_kind"] and held.get("secret"):
        try:
            secret = secrets.decrypt(base64.b64decode(held["secret"]))
        except SecretUnreadable:
            raise InvalidSubmission({"secret": [_("The secret cannot be read any more: enter it again.")]}) from None
        stored = onboarding.credential_store_outbound(
            party_id=party.pk,
            actor=actor,
            reason=reason,
            kind=wish["outbound_kind"],
            username=wish["outbound_username"],
            secret=secret,
        )
        made["credential"] = stored.public_id
        draft.data = draft.data | {"transport": {name: one for name, one in held.items() if name != "secret"}}
    elif wish["outbound_kind"] and "credential" not in made:
        raise InvalidSubmission({"secret": [_("Enter the password, token or key that they gave us.")]})
    if wish["inbound_kind"]:
        _check_inbound(party, wish)
    return endpoint


def _check_inbound(party: Party, wish: Mapping[str, str]) -> None:
    """What the partner is to show is made after the activation: what is wrong with it is said before."""
    if wish["inbound_kind"] == "basic" and not wish["inbound_username"].strip():
        raise InvalidSubmission({"inbound_username": [_("Enter the user name that they are to show.")]})
    try:
        services.credential_check_inbound(
            party=party,
            kind=wish["inbound_kind"],
            username=wish["inbound_username"],
            certificate=wish["inbound_certificate"],
        )
    except InvalidInput as error:
        places = {"fingerprint": "inbound_certificate"}
        raise InvalidSubmission({places.get(n, f"inbound_{n}"): texts for n, texts in error.errors.items()}) from error


def _make_agreement(draft: OnboardingDraft, party: Party, endpoint: Endpoint, actor: Actor) -> AgreementVersion:
    values = values_of(draft, "agreement")
    own = _named(Endpoint, "end", values.pop("own_endpoint", "") or only_own_endpoint(), "own_endpoint")
    allowed = _rows(values.pop("services", ()), 3, "services")
    title, tpa_id = values.pop("title", ""), values.pop("tpa_id", "")
    terms = {name: value for name, value in values.items() if name in TERMS}
    _like_the_defaults(terms)
    reason = _reason(draft)
    known = Agreement.objects.filter(pk=draft.agreement_id).first() if draft.agreement_id else None
    if known is None:
        made = onboarding.agreement_create(
            tpa_id=tpa_id,
            name=title,
            own_party_id=own.party_id,
            partner_id=party.pk,
            own_endpoint_id=own.pk,
            partner_endpoint_id=endpoint.pk,
            allowed=allowed,
            actor=actor,
            reason=reason,
            **terms,
        )
        return selectors.version(made.versions.all()[0].pk)
    if tpa_id != known.tpa_id or title != known.name:
        onboarding.agreement_update(agreement_id=known.pk, actor=actor, reason=reason, tpa_id=tpa_id, name=title)
    number = known.versions.order_by("-number")[0].number
    return onboarding.version_edit(
        agreement_id=known.pk,
        number=number,
        actor=actor,
        reason=reason,
        own_endpoint_id=own.pk,
        partner_endpoint_id=endpoint.pk,
        allowed=allowed,
        **terms,
    )


def said(draft: OnboardingDraft, version: AgreementVersion | None) -> tuple[str, list[Problem]]:
    """The sentence that says when it gives up, and what contradicts itself; of terms that are not complete, too."""
    if version is not None:
        return gives_up_sentence(version), services.version_validate(version=version)
    terms = {name: value for name, value in values_of(draft, "agreement").items() if name in TERMS}
    try:
        _like_the_defaults(terms)
        return gives_up_sentence(AgreementVersion(**terms)), []
    except (InvalidSubmission, ValueError):
        return "", []


def _named(model: type[Row], prefix: str, reference: Any, name: str) -> Row:
    try:
        found = model._default_manager.filter(pk=read_public_id(prefix, str(reference))).first()
    except BadPublicId:
        found = None
    if found is None:
        raise InvalidSubmission({name: [_("Choose one of the list.")]})
    return found


def made_ids(made: Mapping[str, str], name: str) -> list[uuid.UUID]:
    """The key of what the draft has made, if it has."""
    prefix = {"party": "par", "endpoint": "end"}[name]
    return [read_public_id(prefix, made[name])] if name in made else []


def only_own_endpoint() -> str:
    """The public id of our endpoint when there is just one, else "": a choice that needs nobody."""
    found = list(Endpoint.objects.filter(party__is_own=True, party__archived_at__isnull=True)[:2])
    return found[0].public_id if len(found) == 1 else ""


def _rows(value: Any, width: int, name: str) -> list[Any]:
    """Rows of texts as services take them. Raises InvalidSubmission."""
    if not isinstance(value, list | tuple) or any(
        not isinstance(row, list | tuple) or len(row) != width or not all(isinstance(one, str) for one in row)
        for row in value
    ):
        raise InvalidSubmission({name: [_("A list of rows of {width} texts is needed here.").format(width=width)]})
    return [tuple(row) for row in value]


def _texts(values: Mapping[str, Any], names: Sequence[str]) -> None:
    if wrong := {name: [_("A text is needed here.")] for name in names if not isinstance(values.get(name, ""), str)}:
        raise InvalidSubmission(wrong)


def _numbers(values: Mapping[str, Any], names: Sequence[str]) -> None:
    if wrong := {name: [_("A whole number is needed here.")] for name in names if type(values.get(name, 1)) is not int}:
        raise InvalidSubmission(wrong)


def _like_the_defaults(terms: Mapping[str, Any]) -> None:
    """Raises InvalidSubmission when a term is not of its kind: text, number, or yes and no."""
    defaults = AgreementVersion()
    wrong = {
        name: [_("A value of another kind is needed here.")]
        for name, value in terms.items()
        if not same_kind(value, getattr(defaults, name))
    }
    if wrong:
        raise InvalidSubmission(wrong)


def _reason(draft: OnboardingDraft) -> str:
    return f"Onboarding of {draft.title or 'a partner'}"
