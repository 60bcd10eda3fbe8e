"""Looks at a partner's endpoint on a person's word: what is talked about is read, then talked, then recorded.

Nothing is claimed: a look changes nothing, so two at once do no harm.
"""

from __future__ import annotations

import time
import uuid
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.utils import translation
from django.utils.translation import gettext as _

from messaging import profile
from messaging.engine import circuits
from messaging.exceptions import NotFound, WrongState
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import Pair, ProbeReport
from messaging.models.base import existing
from messaging.profile import terms_in_force
from messaging.protocol.circuit import Seen, seen
from messaging.transports import Parcel, http
from messaging.transports import probe as transport
from messaging.transports.base import MAX_ANSWER, Login, printable, server_of
from messaging.transports.probe import ProbeStep, Target
from partners import registry
from partners.models import AgreementVersion, Endpoint
from partners.secrets import SecretUnreadable
from partners.transports import HTTP, SFTP
from rmhub import clock
from rmhub.ids import public_id
from rmhub.postgresql.base import give_back

MOST_SECONDS = 20
_KEPT = 200  # reports of one endpoint


def probe(*, endpoint_id: uuid.UUID, actor: Actor, pair_id: uuid.UUID | None = None) -> ProbeReport:
    """Looks at the endpoint and keeps what it found. `pair_id`: the pair for whose sake.

    Takes at most the endpoint's connect and read timeout, and never more than `MOST_SECONDS`. Never inside a
    transaction. Raises NotFound.
    """
    endpoint = Endpoint.objects.select_related("party").filter(pk=endpoint_id).first()
    if endpoint is None:
        raise NotFound(_("There is no endpoint {reference}.").format(reference=public_id("end", endpoint_id)))
    now = clock.now()
    target = _target(endpoint)
    give_back()
    with translation.override(settings.LANGUAGE_CODE):  # it is kept, for readers of every language
        steps = transport.look(target, now)
        steps += _pinged(endpoint, pair_id, target, steps, now)
    failed = next((step for step in steps if step.verdict == "failed"), None)
    report = ProbeReport(
        endpoint=endpoint,
        pair_id=pair_id,
        address=endpoint.address or endpoint.uri,
        ok=failed is None,
        cause=_cause(steps),
        steps=[step.as_dict() for step in steps],
        actor=actor.name[:150],
        at=now,
    )
    with transaction.atomic(durable=True):
        report.save()
        after: dict[str, object] = {"ok": report.ok, "cause": report.cause, "report": report.public_id}
        if pair_id is not None:
            after["pair"] = public_id("pair", pair_id)
        audit.record(actor, "endpoint.probe", endpoint, after=after)
        _drop_old(endpoint)
    if _answered(steps):
        circuits.answered(server_of(report.address, endpoint.server))
    return report


def _pinged(
    endpoint: Endpoint, pair_id: uuid.UUID | None, target: Target, steps: list[ProbeStep], now: datetime
) -> list[ProbeStep]:
    """The profile's own question, where it has one, a pair says under which agreement, and the server answers."""
    pair = Pair.objects.filter(pk=pair_id).first() if pair_id is not None else None
    terms = terms_in_force(pair) if pair is not None else None
    speaks = profile.of(terms) if terms is not None else None
    words = speaks.ping(terms, now) if speaks is not None and terms is not None else None
    if speaks is None or words is None or endpoint.transport != HTTP.name or not _answered(steps):
        return []
    give_back()
    began = time.monotonic()
    receipt = http.send(
        Parcel(
            address=target.address,
            content_type=words.content_type,
            body=words.body,
            authorization=target.authorization,
            connect_timeout=target.seconds / 2,
            read_timeout=target.seconds / 2,
            headers=words.headers,
            answer_bytes=MAX_ANSWER,
            trusted_certificates=target.trusted,
            client_certificate=target.client,
        )
    )
    step = ProbeStep("ping", seconds=time.monotonic() - began)
    if not receipt.ok:
        step.verdict, step.cause, step.detail = "failed", receipt.cause, receipt.detail
        return [step]
    instead = speaks.ponged(receipt)
    step.verdict = "warning" if instead else "ok"
    step.detail = printable(instead) or "The partner's messaging service answers to a Ping."
    return [step]


def ping(*, pair_id: uuid.UUID, actor: Actor) -> ProbeReport:
    """Looks at the endpoint that a pair's messages go to. Raises NotFound, WrongState when no agreement says where."""
    pair = existing(Pair.objects, pair_id)
    return probe(endpoint_id=endpoint_of(pair), actor=actor, pair_id=pair.pk)


def endpoint_of(pair: Pair) -> uuid.UUID:
    """The partner's endpoint of a pair: that of the message in flight, else of the terms in force.

    Raises WrongState when no agreement in force uses the pair.
    """
    version_id = pair.in_flight.agreement_version_id if pair.in_flight is not None else None
    if version_id is None:
        terms = terms_in_force(pair)
        version_id = terms.version_id if terms is not None else None
    if version_id is None:
        raise WrongState(
            _("No agreement in force uses this pair, so that it is not known where to look."),
            state=pair.gate,
            code="agreement_missing",
        )
    found: uuid.UUID = AgreementVersion.objects.values_list("partner_endpoint_id", flat=True).get(pk=version_id)
    return found


def _target(endpoint: Endpoint) -> Target:
    authorization, login, client = _credentials(endpoint)
    echo = f"{endpoint.service_address.rstrip('/')}/echo" if endpoint.service_address else ""
    return Target(
        transport=endpoint.transport,
        address=endpoint.address or endpoint.uri,
        server=endpoint.server,
        host_key=endpoint.host_key,
        trusted=endpoint.trusted_certificates,
        client=client,
        authorization=authorization,
        login=login,
        echo=echo,
        seconds=min(MOST_SECONDS, endpoint.connect_timeout + endpoint.read_timeout),
    )


def _credentials(endpoint: Endpoint) -> tuple[str, Login | None, str]:
    """What we show this partner: an Authorization header, a log-in, a certificate. One that cannot be decrypted is left
    out: the partner's answer says so then.
    """
    known, now = registry.current(), clock.now()
    try:
        authorization = known.outbound_authorization(endpoint.party_id, now)
        certificate = known.outbound_certificate(endpoint.party_id, now)
        found = None
        if endpoint.transport == SFTP.name:
            found = known.outbound_login(endpoint.party_id, now, *SFTP.logins)
    except SecretUnreadable:
        return "", None, ""
    return authorization, Login(*found) if found else None, certificate


def _cause(steps: list[ProbeStep]) -> str:
    """The most telling code: a certificate's own over that of the handshake that it broke."""
    failed = [step for step in steps if step.verdict == "failed" and step.cause]
    named = next((step for step in failed if step.name == "certificate"), None) or next(iter(failed), None)
    return named.cause if named is not None else ""


def _answered(steps: list[ProbeStep]) -> bool:
    """Whether the server itself answered; the test services (`echo`) may lie on another one."""
    cause = next((step.cause for step in steps if step.verdict == "failed" and step.name != "echo"), "")
    return seen(ok=not cause, status=None, cause=cause) is Seen.REACHED


def _drop_old(endpoint: Endpoint) -> None:
    """The newest are enough: whoever pings all day must not fill the disk."""
    edge = ProbeReport.objects.filter(endpoint=endpoint).order_by("-id").values_list("id", flat=True)[_KEPT:].first()
    if edge is not None:
        ProbeReport.objects.filter(endpoint=endpoint, id__lte=edge).delete()
