"""The test bench: what can be known of an agreement before the first real message goes out under it.

The steps build on each other and each says what it has found. Nothing is sent but to the partner's test service, and
nothing is stored but the report. What runs here is what runs in earnest: the codecs, the rules of acceptance, the
transport with its credential and its trust.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction

from messaging.engine.snapshots import acceptance_policy
from messaging.exceptions import ApplicationError, NotFound
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import BenchReport, OnboardingDraft, ProbeReport
from messaging.onboarding.services import bench_transactions, samples
from messaging.onboarding.services.samples import Sample
from messaging.pairs.services import probing
from messaging.protocol import acceptance, memory
from messaging.protocol.codecs import ebxml, repeatable, stream
from messaging.protocol.envelope import Semantics as OnTheWire
from messaging.protocol.errors import EncodeError, NotAMessage
from messaging.protocol.streams import acceptance as streams
from messaging.protocol.streams.envelope import first_id
from messaging.transports import http
from messaging.transports.base import Parcel, printable
from partners import registry, selectors, services, transports
from partners.choices import CredentialDirection, Profile, Semantics
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
    terms = registry.current().version(version.pk)
    started = clock.now()
    steps: list[Step] = []
    _in_a_step(steps, "terms", lambda step: _terms(step, version))
    _in_a_step(steps, "credentials", lambda step: _credentials(step, terms, started))
    _probe(steps, version, actor)
    made: list[Sample] = []
    if terms.profile == Profile.WSAT:
        _of_transactions(steps, terms)
    else:
        _in_a_step(steps, "round trip", lambda step: made.append(_round_trip(step, terms, started)))
        _in_a_step(steps, "repeat", lambda step: _repeat(step, terms, started))
        _in_a_step(steps, "order", lambda step: _order(step, terms, started))
        _in_a_step(steps, "echo", lambda step: _echo(step, version, terms, made[0] if made else None, started))
    report = BenchReport(
        agreement_id=agreement_id,
        number=number,
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
        after = {"report": report.public_id, "ok": report.ok, "failed": failed, "version": number}
        audit.record(actor, "agreement.test", version.agreement, after=after)
        old = BenchReport.objects.filter(agreement=agreement_id).order_by("-id").values_list("pk", flat=True)[_KEPT:]
        BenchReport.objects.filter(pk__in=list(old)).delete()
    return report


def _version(agreement_id: uuid.UUID, number: int) -> AgreementVersion:
    found = Agreement.objects.filter(pk=agreement_id).first()
    row = AgreementVersion.objects.filter(agreement=found, number=number).first() if found else None
    if row is None:
        raise NotFound(f"There is no version {number} of this agreement.")
    return selectors.version(row.pk)


def _in_a_step(steps: list[Step], name: str, do: Callable[[Step], object]) -> None:
    step = Step(name)
    with _timed(step):
        try:
            do(step)
        except _Failed as error:
            step.verdict, step.detail = "failed", str(error)
        except SecretUnreadable:
            step.verdict, step.detail = "failed", "Our credential cannot be read any more: store it again."
    steps.append(step)


@contextmanager
def _timed(step: Step) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        step.seconds = round(time.monotonic() - began, 3)


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
    ours = [one for one in valid if one.direction == CredentialDirection.OUTBOUND]
    theirs = [one for one in valid if one.direction == CredentialDirection.INBOUND]
    said = []
    receives = terms.profile == Profile.WSAT or any(row[2] != "send" for row in terms.services)
    if not theirs and receives:
        said.append(f"{terms.hop_party_name} has no valid credential, so nothing that they send is taken.")
    if not ours and transports.named(terms.transport).needs_login:
        said.append("We have nothing to log in with at their file server.")
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


def _of_transactions(steps: list[Step], terms: Terms) -> None:
    """There is no document to send: the codec and the tables are what can be tried."""
    for name, look in (
        ("round trip", bench_transactions.round_trip),
        ("repeat", bench_transactions.repeat),
        ("order", bench_transactions.order),
    ):
        _in_a_step(steps, name, partial(_looked, terms=terms, look=look))
    said = "Test services read documents, and transactions carry none: nothing is sent."
    steps.append(Step("echo", "skipped", said))


def _looked(step: Step, *, terms: Terms, look: Callable[[Terms], bench_transactions.Found]) -> None:
    try:
        step.detail, step.facts = look(terms)
    except ValueError as error:
        raise _Failed(str(error)) from None


def _round_trip(step: Step, terms: Terms, now: datetime) -> Sample:
    """Whether a message as we would send it says to a reader what it has to."""
    try:
        sample = samples.sample(terms, now)
    except (EncodeError, ValueError) as error:
        raise _Failed(f"A message of this agreement has no valid form: {error}") from None
    step.facts = {"bytes": len(sample.body), "sha256": sample.sha256, "message_id": sample.message_id}
    wrong = _misread(terms, sample)
    if wrong:
        raise _Failed("Read again, the message says something else: " + " ".join(wrong))
    step.detail = (
        f"A {sample.service} / {sample.action} of {len(sample.body)} bytes was written as it would be sent, and read "
        "again: the same parties, agreement, numbers and document."
    )
    return sample


def _misread(terms: Terms, sample: Sample) -> list[str]:
    """What is not the same after reading the sample as a partner would."""
    try:
        if terms.profile == Profile.REPEATABLE:
            identity = repeatable.read({name.lower(): [value] for name, value in sample.headers})
            read_id = identity.request_id if identity is not None else ""
            return [] if read_id == sample.message_id else [f"Its id is {read_id}."]
        if terms.profile == Profile.STREAM:
            came = stream.decode(sample.content_type, sample.body)
            told = (came.message_id, came.agreement_id, came.service, came.action)
            parts, defects = came.payloads, came.defects
        else:
            read = ebxml.decode(sample.content_type, sample.body)
            told = (read.message_id, read.agreement_id, read.service, read.action)
            parts, defects = read.payloads, read.defects
    except (NotAMessage, repeatable.HeaderProblem) as error:
        return [str(error)]
    meant = (sample.message_id, terms.tpa_id, sample.service, sample.action)
    wrong = [f"{was} became {now}." for was, now in zip(meant, told, strict=True) if was != now]
    digests = [hashlib.sha256(part.content).hexdigest() for part in parts]
    if digests != [sample.payload_sha256]:
        wrong.append("The document is not the same.")
    return wrong + [defect.description for defect in defects]


def _repeat(step: Step, terms: Terms, now: datetime) -> None:
    """Whether the same message once more is recognised and not handed on again."""
    if terms.profile == Profile.REPEATABLE:
        stored = memory.Stored(memory.State.ACCEPTED, False, now, "a")
        found = memory.decide(_memory(terms, now), memory.Received(now, "a"), stored, now)
        good = found.verdict is memory.Verdict.REPLAY
    elif terms.profile == Profile.STREAM:
        first = streams.decide(streams.Incoming(), streams.Arrival(first_id(now), 1, 0), now)
        again = streams.decide(first.state, streams.Arrival(first_id(now), 1, 0), now)
        good = first.accepted and again.verdict is streams.Verdict.DUPLICATE
    elif terms.semantics == Semantics.BEST_EFFORT and not terms.detect_repeats:
        step.verdict, step.detail = "skipped", "Best effort: repeats are not looked for, each copy is handed on."
        return
    else:
        verdicts = _accepted(terms, ((1, "m-1", False), (1, "m-1", True)))
        good = verdicts == [acceptance.Verdict.ACCEPT, acceptance.Verdict.DUPLICATE]
    if not good:
        raise _Failed("A second copy of a message would be handed on again.")
    step.detail = "The same message once more is recognised: it is answered, and not handed on again."


def _order(step: Step, terms: Terms, now: datetime) -> None:
    """Whether a message that comes out of order, or from before what is remembered, is refused."""
    if terms.profile == Profile.REPEATABLE:
        late = now - timedelta(seconds=terms.memory_window + 1)
        found = memory.decide(_memory(terms, now), memory.Received(late, "a"), None, now)
        good = found.verdict is memory.Verdict.REFUSE
        said = "Requests have no order; one from before the memory window is refused, and never taken silently."
    elif terms.profile == Profile.STREAM:
        sid = first_id(now)
        first = streams.decide(streams.Incoming(), streams.Arrival(sid, 1, 0), now)
        good = streams.decide(first.state, streams.Arrival(sid, 3, 2), now).verdict is streams.Verdict.GAP
        said = "After message 1, message 3 is held back until message 2 has come."
    elif terms.semantics != Semantics.ONCE_AND_ONLY_ONCE:
        step.verdict, step.detail = "skipped", "Only once-and-only-once messages have sequence numbers."
        return
    else:
        verdicts = _accepted(terms, ((1, "m-1", False), (3, "m-3", False), (2, "m-2", False)))
        good = verdicts == [acceptance.Verdict.ACCEPT, acceptance.Verdict.REJECT, acceptance.Verdict.ACCEPT]
        said = "After message 1, message 3 is refused with an error until message 2 has come."
    if not good:
        raise _Failed("A message that comes out of order would be taken.")
    step.detail = said


def _accepted(terms: Terms, messages: tuple[tuple[int, str, bool], ...]) -> list[acceptance.Verdict]:
    """The verdicts on (number, id, known already), one after the other, under this agreement."""
    state, verdicts = acceptance.InboundState(), []
    reliable = terms.semantics == Semantics.ONCE_AND_ONLY_ONCE
    for number, message_id, known in messages:
        received = acceptance.Received(
            message_id=message_id,
            semantics=OnTheWire(terms.semantics),
            sequence=number if reliable else None,
            known=known,
            known_number=number if known and reliable else None,
        )
        decision = acceptance.decide(state, received, acceptance_policy(terms))
        state = decision.state
        verdicts.append(decision.verdict)
    return verdicts


def _memory(terms: Terms, now: datetime) -> memory.Memory:
    window, long_ago = timedelta(seconds=terms.memory_window), now - timedelta(days=4000)
    return memory.Memory(window, timedelta(seconds=terms.clock_skew), long_ago, long_ago, now)


def _echo(step: Step, version: AgreementVersion, terms: Terms, sample: Sample | None, now: datetime) -> None:
    """Whether the partner's own test service reads the sample as it was meant, credential and all."""
    address = version.partner_endpoint.service_address
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
    if digests != [sample.payload_sha256]:
        problems.insert(0, "The document did not arrive as it was sent.")
    if problems:
        raise _Failed(" ".join(problems))
    step.detail = f"The partner takes us for {step.facts['partner']} and read the sample as it was meant."


def _json(response: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(response.partition(b"\r\n\r\n")[2])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
