"""Partners that are being set up: drafts are saved as they are typed, and nothing is in force before the last step.

`OnboardingDraft.data` has for each step what could be read (`values`) and the text of what could not (`unread`), and
under `made` what the draft has become so far. A secret is kept encrypted until it is stored as a credential.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Model, ProtectedError
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from messaging.exceptions import InvalidSubmission, NotFound, Stale, WrongState
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import OnboardingDraft
from messaging.onboarding.services import changing as onboarding
from messaging.onboarding.services.bundle import find_endpoint, find_party
from messaging.onboarding.services.bundle_format import Bundle, is_storable, write_agreement
from messaging.onboarding.services.making import FIELDS, Check, made_ids, make, only_own_endpoint, said, values_of
from partners import secrets, selectors
from partners.choices import VersionState
from partners.models import Agreement, AgreementVersion, Credential, Endpoint, Party
from partners.services.writing import writing
from rmhub import clock
from rmhub.ids import public_id

STEPS = ("start", "identity", "transport", "agreement", "test", "review")
SOURCES = ("blank", "clone", "bundle")
MOST_DRAFTS = 200
_MOST_BYTES = 256 * 1024


def draft_create(*, actor: Actor, source: str = "blank", clone_of: uuid.UUID | None = None) -> OnboardingDraft:
    """A new draft, blank or with the terms of an agreement that there is. Raises InvalidSubmission."""
    data: dict[str, Any] = {}
    if source == "clone":
        agreement = Agreement.objects.filter(pk=clone_of).first() if clone_of else None
        if agreement is None:
            raise InvalidSubmission({"clone_of": [_("There is no such agreement: choose one of the list.")]})
        data = _cloned(selectors.agreement(agreement.pk))
    elif source not in SOURCES:
        raise InvalidSubmission(
            {"source": [_("A draft starts from one of: {sources}.").format(sources=", ".join(SOURCES))]}
        )
    return _made(actor, source, data)


def draft_from_bundle(*, bundle: Bundle, actor: Actor) -> OnboardingDraft:
    """A draft with the one partner and agreement of a bundle. Raises InvalidSubmission when it has several."""
    if len(bundle.agreements) != 1:
        text = _(
            "The wizard sets up one agreement, and this bundle has {count}: import it as a whole under Partners, "
            "Bundle."
        )
        raise InvalidSubmission({"bundle": [text.format(count=len(bundle.agreements))]})
    agreement = bundle.agreements[0]
    party = next((one for one in bundle.parties if one.name == agreement.partner), None)
    ends = {end.uri: end for one in bundle.parties for end in one.endpoints}
    end = ends.get(agreement.partner_endpoint)
    own = find_endpoint(agreement.own_endpoint)
    known = find_party(agreement.partner, party.fields.get("identifiers", ()) if party else ())
    identity: dict[str, Any] = {"name": agreement.partner}
    if party is not None:
        identity |= {name: value for name, value in party.fields.items() if name in FIELDS["identity"]}
    if known is not None:
        identity["existing"] = known.public_id
    data = {
        "identity": {"values": identity},
        "transport": {"values": dict(end.fields) if end is not None else {"uri": agreement.partner_endpoint}},
        "agreement": {
            "values": {
                **agreement.terms,
                "tpa_id": agreement.tpa_id,
                "title": agreement.name,
                "services": [list(row) for row in agreement.services],
                "own_endpoint": own.public_id if own is not None and own.party.is_own else only_own_endpoint(),
            }
        },
    }
    return _made(actor, "bundle", data)


@sensitive_variables("secret")
def draft_save(
    *,
    draft_id: uuid.UUID,
    step: str,
    values: Mapping[str, Any],
    actor: Actor,
    unread: Mapping[str, str] | None = None,
    secret: str = "",
    expected: int | None = None,
    over_own: bool = False,
) -> OnboardingDraft:
    """Keeps a step as it is. `unread`: what was typed and means nothing yet. `secret`: what the partner gave us.

    `over_own`: what the same actor saved since `expected` is no obstacle. Raises NotFound, Stale (it was saved since
    `expected`), InvalidSubmission for fields that there are not.
    """
    if step not in FIELDS:
        raise InvalidSubmission({"step": [_("A draft has the steps {steps}.").format(steps=", ".join(FIELDS))]})
    strange = sorted((values.keys() | (unread or {}).keys()) - set(FIELDS[step]))
    if strange:
        raise InvalidSubmission({name: [_("The step {step} has no such field.").format(step=step)] for name in strange})
    unclean = [name for name, value in (dict(values) | dict(unread or {})).items() if not _storable(value)]
    if unclean:
        raise InvalidSubmission(
            {name: [_("There is a character in it that cannot be stored: remove it.")] for name in unclean}
        )
    with transaction.atomic():
        draft = _locked(draft_id)
        if not (over_own and expected is not None and _only_own_since(draft, expected, actor)):
            _require_fresh(draft, expected)
        kept = draft.data.get(step, {})
        held: dict[str, Any] = {"values": dict(values), "unread": {k: v[:8000] for k, v in (unread or {}).items()}}
        if secret:
            held["secret"] = base64.b64encode(secrets.encrypt(secret)).decode()
        elif "secret" in kept:
            held["secret"] = kept["secret"]
        draft.data = draft.data | {step: held}
        _require_small(draft.data)
        title = values_of(draft, "identity").get("name", "")
        draft.title = str(title)[:120] if isinstance(title, str) else ""
        _write(draft, actor)
        return draft


def draft_reach(*, draft_id: uuid.UUID, step: int) -> None:
    """Somebody got as far as this step: the progress list leads there from now on. Raises NotFound."""
    with transaction.atomic():
        draft = _locked(draft_id)
        if draft.step < step <= len(STEPS):
            draft.step = step
            draft.save(update_fields=["step"])


def draft_check(*, draft_id: uuid.UUID) -> Check:
    """What is wrong with a draft, found by making it and taking it back. Nothing stays. Raises NotFound."""
    check = Check()
    with transaction.atomic():
        draft = _locked(draft_id)
        version = make(draft, Actor("check"), check)
        check.sentence, found = said(draft, version)
        # What the steps before it lack was said there already.
        early = {"identity": ("partner",), "transport": ("partner_endpoint",)}
        known = {name for step in check.errors for name in early.get(step, ())}
        check.problems = [one for one in found if one.field not in known]
        transaction.set_rollback(True)
    return check


def draft_make(*, draft_id: uuid.UUID, actor: Actor, expected: int | None = None) -> OnboardingDraft:
    """Makes party, endpoint, credential and an agreement that is a draft: nothing of it is in force.

    What was made before is changed. Raises NotFound, Stale, InvalidSubmission with what is wrong, by field.
    """
    check = Check()
    with transaction.atomic():
        draft = _locked(draft_id)
        _require_fresh(draft, expected)
        version = make(draft, actor, check)
        if check.errors or version is None:
            raise InvalidSubmission(
                {
                    f"{step}.{name}" if name else step: texts
                    for step, errors in check.errors.items()
                    for name, texts in errors.items()
                }
                or {"agreement": [_("The draft is not complete.")]}
            )
        draft.agreement_id = version.agreement_id
        draft.step = max(draft.step, 5)
        _write(draft, actor)
        return draft


@dataclass(frozen=True, slots=True)
class Activated:
    """What came of a draft. `shown_once`: the secret that the partner shows us, "" when there is none."""

    version: AgreementVersion
    credential: Credential | None
    shown_once: str = field(repr=False)


@sensitive_variables("shown_once")
def draft_activate(*, draft_id: uuid.UUID, actor: Actor, reason: str, expected: int | None = None) -> Activated:
    """Puts it in force and ends the draft. Raises NotFound, Stale, InvalidSubmission, InvalidAgreement, WrongState."""
    audit.require_reason(reason)
    draft = draft_make(draft_id=draft_id, actor=actor, expected=expected)
    assert draft.agreement_id is not None
    number = AgreementVersion.objects.filter(agreement=draft.agreement_id).order_by("-number")[0].number
    version = onboarding.version_activate(agreement_id=draft.agreement_id, number=number, actor=actor, reason=reason)
    credential, shown_once = None, ""
    with transaction.atomic():
        wish = values_of(draft, "transport")
        kind = wish.get("inbound_kind", "")
        if kind:
            credential, shown_once = onboarding.credential_issue(
                party_id=version.partner_endpoint.party_id,
                actor=actor,
                reason=reason,
                kind=kind,
                username=wish.get("inbound_username", ""),
                certificate=wish.get("inbound_certificate", ""),
            )
        audit.record(actor, "onboarding.activate", draft, reason=reason, after={"agreement": str(version)})
        OnboardingDraft.objects.filter(pk=draft.pk).delete()
    return Activated(version, credential, shown_once)


def draft_discard(*, draft_id: uuid.UUID, actor: Actor, reason: str = "", expected: int | None = None) -> None:
    """Forgets a draft, and takes back what it has made as far as nothing else uses it. Raises NotFound, Stale."""
    with writing():
        draft = _locked(draft_id)
        _require_fresh(draft, expected)
        made = dict(draft.data.get("made", {}))
        audit.record(actor, "onboarding.discard", draft, reason=reason, before={"title": draft.title, "made": made})
        agreement = draft.agreement
        draft.delete()
        if agreement is not None:
            _take_back(agreement, made, actor, reason)


def _take_back(agreement: Agreement, made: dict[str, str], actor: Actor, reason: str) -> None:
    """Deletes the agreement if it was never in force, and then the endpoint and the party that were made for it."""
    versions = list(agreement.versions.all())
    if any(one.state != VersionState.DRAFT for one in versions):
        return
    for version in versions:
        onboarding.version_discard(agreement_id=agreement.pk, number=version.number, actor=actor, reason=reason)
    kinds: tuple[tuple[type[Model], str], ...] = ((Endpoint, "endpoint"), (Party, "party"))
    for model, name in kinds:
        try:
            with transaction.atomic():
                model._default_manager.filter(pk__in=made_ids(made, name)).delete()
        except (ProtectedError, IntegrityError):  # something else uses it by now
            return


def _cloned(agreement: Agreement) -> dict[str, Any]:
    """The terms and the way of an agreement, without what is its partner's own."""
    version = selectors.current_version(agreement)
    assert version is not None
    written = write_agreement(agreement, version)
    end = version.partner_endpoint
    way = {"transport": end.transport, "connect_timeout": end.connect_timeout, "read_timeout": end.read_timeout}
    terms = {name: value for name, value in written["terms"].items() if name != "note"}
    rows = [[one["service"], one["action"], one["direction"]] for one in written["services"]]
    return {
        "transport": {"values": way},
        "agreement": {"values": {**terms, "services": rows, "own_endpoint": version.own_endpoint.public_id}},
    }


def _made(actor: Actor, source: str, data: dict[str, Any]) -> OnboardingDraft:
    if OnboardingDraft.objects.count() >= MOST_DRAFTS:
        raise WrongState(
            _("There are {count} drafts already: discard those that nobody goes on with.").format(count=MOST_DRAFTS),
            state="full",
        )
    _require_small(data)
    now = clock.now()
    title = data.get("identity", {}).get("values", {}).get("name", "")
    draft = OnboardingDraft.objects.create(
        title=title[:120],
        source=source,
        step=2,
        data=data,
        created_by=actor.name,
        updated_by=actor.name,
        created_at=now,
        updated_at=now,
    )
    audit.record(actor, "onboarding.start", draft, after={"source": source, "title": draft.title})
    return draft


def _require_small(data: Mapping[str, Any]) -> None:
    if len(str(data)) > _MOST_BYTES:
        raise InvalidSubmission({"": [_("The draft is too large: leave out certificates that are not needed.")]})


def _storable(value: Any) -> bool:
    """Whether a JSON value can be kept."""
    if isinstance(value, Mapping):
        return all(_storable(one) for pair in value.items() for one in pair)
    if isinstance(value, list | tuple):
        return all(_storable(one) for one in value)
    return is_storable(value) if isinstance(value, str) else True


def _write(draft: OnboardingDraft, actor: Actor) -> None:
    if draft.updated_by != actor.name[:150]:
        draft.own_since = draft.version
    draft.version += 1
    draft.updated_by, draft.updated_at = actor.name[:150], clock.now()
    draft.save()


def _locked(draft_id: uuid.UUID) -> OnboardingDraft:
    draft = OnboardingDraft.objects.select_for_update(of=("self",)).filter(pk=draft_id).first()
    if draft is None:
        raise NotFound(
            _("There is no draft {reference}: it was activated or discarded.").format(
                reference=public_id("drf", draft_id)
            )
        )
    return draft


def _only_own_since(draft: OnboardingDraft, expected: int, actor: Actor) -> bool:
    """Whether everything that was saved after the version `expected` is the actor's own."""
    return draft.updated_by == actor.name[:150] and draft.own_since <= expected <= draft.version


def _require_fresh(draft: OnboardingDraft, expected: int | None) -> None:
    if expected is not None and draft.version != expected:
        raise Stale(
            _("{person} changed this draft since you looked at it.").format(person=draft.updated_by),
            version=draft.version,
        )
