"""The test bench: what can be known of an agreement before the first real message goes out under it.

The steps build on each other and each says what it has found. Nothing is sent but to the partner's test service, and
nothing is stored but the report. What runs here is what runs in earnest: the codecs, the rules of acceptance, the
transport with its credential and its trust.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import translation

from messaging import profile
from messaging.bench import CONTENT_SHA256, Found, Sample
from messaging.exceptions import ApplicationError, NotFound
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import BenchReport, OnboardingDraft, ProbeReport
from messaging.pairs.services import probing
from messaging.transports import http
from messaging.transports.base import Parcel, printable
from partners import registry, selectors, services, transports
from partners.choices import FOR_MESSAGES, CredentialDirection
from partners.models import Agreement, AgreementVersion, Credential
from partners.secrets import SecretUnreadable
from partners.services import Level
from partners.terms import Terms
from rmhub import clock
from rmhub.postgresql.base import give_back

_KEPT = 50  # reports of one agreement
_ANSWER = 64 * 1024
_PROBED = {"ok": "ok", "warning": "warning", "skipped": "skipped", "failed": "failed"}


@dataclass(slots=True)
class Step:
    """One step. `verdict`: ok, warning, failed or skipped; `detail`: sentences for people; `seconds` it took."""

    name: str
    verdict: str = "ok"
    detail: str = ""
    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)


class _Failed(Exception):
    """A step that did not do what it has to."""


def run(*, agreement_id: uuid.UUID, number: int, actor: Actor, draft_id: uuid.UUID | None = None) -> BenchReport:
    """Tests one version, whatever its state is. Talks to the partner: never call it inside a transaction.

    Raises NotFound. Everything else that goes wrong is a step of the report.
    """
    version = _version(agreement_id, number)
    with translation.override(settings.LANGUAGE_CODE):  # it is kept, for readers of every language
        return _run(version, actor, draft_id)


def _run(version: AgreementVersion, actor: Actor, draft_id: uuid.UUID | None) -> BenchReport:
    terms = registry.current().version(version.pk)
    started = clock.now()
    steps: list[Step] = []
    _in_a_step(steps, "terms", lambda step: _terms(step, version))
    _in_a_step(steps, "credentials", lambda step: _credentials(step, terms, started))
    _probe(steps, version, actor)
    tried = profile.of(terms).bench
    sample = _in_a_step(steps, "round trip", lambda step: _tried(step, tried.round_trip(terms, started)))
    _in_a_step(steps, "repeat", lambda step: _tried(step, tried.repeat(terms, started)))
    _in_a_step(steps, "order", lambda step: _tried(step, tried.order(terms, started)))
    _in_a_step(steps, "echo", lambda step: _echo(step, version, terms, sample, started))
    report = BenchReport(
        agreement_id=version.agreement_id,
        number=version.number,
        draft=OnboardingDraft.objects.filter(pk=draft_id).first() if draft_id else None,
        ok=not any(step.verdict == "failed" for step in steps),
        steps=[asdict(step) for step in steps],
        actor=actor.name[:150],
        started_at=started,
        finished_at=clock.now(),
    )
    with transaction.atomic():
        report.save()
        failed = [step.name for step in steps if step.verdict == "failed"]
        after = {"report": report.public_id, "ok": report.ok, "failed": failed, "version": version.number}
        audit.record(actor, "agreement.test", version.agreement, after=after)
        old = (
            BenchReport.objects.filter(agreement=version.agreement_id)
            .order_by("-id")
            .values_list("pk", flat=True)[_KEPT:]
        )
        BenchReport.objects.filter(pk__in=list(old)).delete()
    return report


def _version(agreement_id: uuid.UUID, number: int) -> AgreementVersion:
    found = Agreement.objects.filter(pk=agreement_id).first()
    row = AgreementVersion.objects.filter(agreement=found, number=number).first() if found else None
    if row is None:
        raise NotFound(f"There is no version {number} of this agreement.")
    return selectors.version(row.pk)


def _in_a_step(steps: list[Step], name: str, do: Callable[[Step], Sample | None]) -> Sample | None:
    step, sample, began = Step(name), None, time.monotonic()
    try:
        sample = do(step)
    except _Failed as error:
        step.verdict, step.detail = "failed", str(error)
    except SecretUnreadable:
        step.verdict, step.detail = "failed", "Our credential cannot be read any more: store it again."
    step.seconds = round(time.monotonic() - began, 3)
    steps.append(step)
    return sample


def _terms(step: Step, version: AgreementVersion) -> None:
    """Whether the settings contradict each other (the table of rules)."""
    found = services.version_validate(version=version)
    step.facts = {"problems": [{"code": one.code, "level": one.level.value} for one in found]}
    errors = [one.sentence for one in found if one.level is Level.ERROR]
    if errors:
        raise _Failed(" ".join(errors))
    step.detail = services.gives_up_sentence(version)
    if found:
        step.verdict, step.detail = "warning", " ".join([step.detail, *(one.sentence for one in found)])


def _credentials(step: Step, terms: Terms, now: datetime) -> None:
    """Whether both sides can show who they are."""
    valid = [
        one
        for one in Credential.objects.filter(party=terms.hop_party_id, revoked_at__isnull=True)
        if (one.valid_from is None or one.valid_from <= now) and (one.valid_until is None or one.valid_until > now)
    ]
    shown = [one for one in valid if one.kind not in FOR_MESSAGES]
    ours = [one for one in shown if one.direction == CredentialDirection.OUTBOUND]
    theirs = [one for one in shown if one.direction == CredentialDirection.INBOUND]
    said = []
    receives = not profile.of(terms).carries_documents or any(row[2] != "send" for row in terms.services)
    if not theirs and receives:
        said.append(f"{terms.hop_party_name} has no valid credential, so nothing that they send is taken.")
    if not ours and transports.named(terms.transport).needs_login:
        said.append("No credential is stored for their file server.")
    soon = [one for one in valid if one.valid_until is not None and one.valid_until < now + timedelta(days=30)]
    said += [f"{one} ends {one.valid_until:%Y-%m-%d}." for one in soon]
    step.facts = {"shown_by_us": len(ours), "shown_by_them": len(theirs)}
    step.verdict = "warning" if said else "ok"
    told = f"We show {len(ours)} credential{'s' * (len(ours) != 1)}, they show {len(theirs)}."
    step.detail = " ".join([told, *said])


def _probe(steps: list[Step], version: AgreementVersion, actor: Actor) -> None:
    """The look at the partner's endpoint, step by step."""
    try:
        report: ProbeReport = probing.probe(endpoint_id=version.partner_endpoint_id, actor=actor)
    except ApplicationError as error:
        steps.append(Step("connection", "failed", str(error)))
        return
    for found in report.steps:
        if found["name"] == "echo":  # this bench asks more of it, at its end
            continue
        verdict = _PROBED.get(found["verdict"], "failed")
        steps.append(Step(found["name"], verdict, found["detail"], found["seconds"] or 0.0, found["facts"] or {}))


def _tried(step: Step, found: Found) -> Sample | None:
    """Takes over what the profile's own bench has found."""
    step.verdict, step.detail, step.facts = found.verdict, found.detail, found.facts
    return found.sample


def _echo(step: Step, version: AgreementVersion, terms: Terms, sample: Sample | None, now: datetime) -> None:
    """Whether the partner's own test service reads the sample as it was meant, credential and all."""
    address = version.partner_endpoint.service_address
    if not profile.of(terms).carries_documents:
        step.verdict = "skipped"
        step.detail = "Test services read documents, and transactions carry none: nothing is sent."
        return
    if not address or sample is None:
        step.verdict = "skipped"
        step.detail = (
            "There is no sample to send." if address else "The partner has no test service (endpoint, test services)."
        )
        return
    known = registry.current()
    parcel = Parcel(
        address=f"{address}echo",
        content_type=sample.content_type,
        body=sample.body,
        authorization=known.outbound_authorization(terms.hop_party_id, now),
        connect_timeout=terms.connect_timeout,
        read_timeout=terms.read_timeout,
        headers=sample.headers,
        answer_bytes=_ANSWER,
        trusted_certificates=terms.trusted_certificates,
        client_certificate=known.outbound_certificate(terms.hop_party_id, now),
    )
    give_back()
    receipt = http.send(parcel)
    if not receipt.ok:
        raise _Failed(receipt.detail or f"The test service did not answer ({receipt.cause}).")
    answer = _json(receipt.response)
    if answer is None:
        raise _Failed("The test service's answer is not the JSON that docs/partner-services.md describes.")
    told = answer.get("message") if isinstance(answer.get("message"), dict) else {}
    step.facts = {name: printable(str(answer.get(name, "")))[:120] for name in ("partner", "profile")}
    problems = [printable(str(one))[:300] for one in answer.get("problems") or () if isinstance(one, str)][:10]
    if isinstance(told, dict) and told.get("message_id") != sample.message_id:
        problems.insert(0, "The test service read another MessageId.")
    digests = [part.get("sha256") for part in answer.get("payloads") or () if isinstance(part, dict)]
    if digests != [CONTENT_SHA256]:
        problems.insert(0, "The document did not arrive as it was sent.")
    if problems:
        raise _Failed(" ".join(problems))
    step.detail = f"The partner identifies us as {step.facts['partner']} and read the sample as it was meant."


def _json(response: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(response.partition(b"\r\n\r\n")[2])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
