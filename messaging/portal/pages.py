"""The partner portal: what somebody of a partner sees of their own messages and connection, and may hand to us.

A room of its own and not the console under a limit: it shows what is written here, and nothing of how we work. Whoever
has the role `partner` opens these pages and their own account; every selector is limited to their partner besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.contrib import messages as notices
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from messaging import keyset
from messaging.access.selectors import people
from messaging.access.selectors.reach import read_id
from messaging.choices import Direction, MessageState, OfferState
from messaging.console import cells, zones
from messaging.console.access import actor, requires
from messaging.console.filters import Filter, bar
from messaging.console.rendering import PAGE, as_context, keyset_page, page, posted, problems, read_place, see_other
from messaging.console.resource import Column, table
from messaging.exceptions import InvalidSubmission, TooLarge
from messaging.messages.selectors import finding, messages
from messaging.messages.selectors.finding import MessageFilters
from messaging.messages.selectors.messages import TooBroad
from messaging.models import Message, OfferedCertificate, Signal, Transmission
from messaging.onboarding import selectors as onboarding
from messaging.onboarding.selectors import Held
from messaging.onboarding.services import offers
from messaging.pairs.selectors import pairs
from messaging.reports.selectors import pipeline as partner_logs
from messaging.reports.services import partner_logs as logs
from messaging.templatetags.hub import ago, clock_time, middle, octets, state
from partners import certificates, registry
from partners.choices import CredentialDirection, CredentialKind, Profile
from partners.models import Credential, Party
from rmhub.ids import BadPublicId
from rmhub.roles import PORTAL

_OVERHEAD = 1024 * 1024
_WAYS = {Direction.OUT.value: "From us to you", Direction.IN.value: "From you to us"}
# What of a message's states a partner tells apart; the others of our own are among them.
_STATES = {
    "open": (
        "Under way",
        (MessageState.QUEUED, MessageState.SENDING, MessageState.AWAITING_ACK, MessageState.RETRYING),
    ),
    "failed": ("Failed", (MessageState.FAILED,)),
    "done": ("Delivered or received", (MessageState.DELIVERED, MessageState.SENT, MessageState.RECEIVED)),
    "in_doubt": ("In doubt", (MessageState.IN_DOUBT,)),
    "not_sent": ("Skipped or cancelled", (MessageState.SKIPPED, MessageState.CANCELLED)),
}


def _partner(request: HttpRequest) -> Party:
    assert isinstance(request.user, User)
    return people.partner_of(request.user)


def _way(direction: str) -> str:
    return _WAYS[direction]


# --- overview


_PAIRS = (
    Column("Direction", lambda row: _way(row.direction), "nowrap strong"),
    Column("State", lambda row: state("pair", row.state), "nowrap"),
    Column("Since", lambda row: ago(row.changed_at), "nowrap"),
    Column("Waiting", lambda row: cells.number(row.queued) if row.direction == Direction.OUT else "—", "num"),
    Column("Last message", lambda row: ago(row.last_success_at, "none yet"), "nowrap"),
    Column("Sender", lambda row: row.sender_uri, "mono wrap"),
    Column("Receiver", lambda row: row.receiver_uri, "mono wrap"),
)


@requires(PORTAL)
def overview(request: HttpRequest) -> HttpResponse:
    """Whether messages flow in each direction, what wants their attention, and their newest messages."""
    partner = _partner(request)
    rows = list(pairs.pairs(partner_id=partner.pk).order_by("code")[:100])
    newest = finding.message_page(MessageFilters(partner_id=partner.pk), limit=10)
    held = onboarding.certificates(within_days=onboarding.SOON, party_id=partner.pk)
    context = {
        "partner": partner,
        "stopped": [_way(row.direction) for row in rows if row.state == "suspended"],
        "ending": held,
        "connections": table("Connections", _PAIRS, rows) if rows else None,
        "table": table("Newest messages", _MESSAGES, newest.rows) if newest.rows else None,
    }
    return page(request, "console/portal/overview.html", context, live="live-portal")


# --- messages


def _message(message: Message) -> SafeString:
    return cells.link(
        cells.to("portal-message", message.public_id), middle(message.message_id, 40), "mono", title=message.message_id
    )


_MESSAGES = (
    Column("Time", lambda row: clock_time(row.created_at), "nowrap", zoned=True),
    Column("Direction", lambda row: _way(row.direction), "nowrap"),
    Column("State", lambda row: state("message", row.state), "nowrap"),
    Column("MessageId", _message),
    Column("Service, action", lambda row: cells.joined(row.service, cells.below(row.action, "text-faint wrap"))),
    Column("Completed", lambda row: ago(row.completed_at), "nowrap"),
)


_FILTERS = (
    Filter("q", "MessageId, document id or attribute", kind="search", most=512),
    Filter("direction", "Direction", choices=tuple((one.value, _way(one)) for one in Direction), meaning=_WAYS),
    Filter("state", "State", choices=tuple((key, label) for key, (label, _) in _STATES.items()), meaning=_STATES),
    Filter("since", "From", kind="time", most=40),
    Filter("until", "Before", kind="time", most=40),
)


@requires(PORTAL)
def message_list(request: HttpRequest) -> HttpResponse:
    """Their messages, newest first, narrowed by id, direction, state and time."""
    given, zone = {one.name: one.read(request) for one in _FILTERS}, zones.zone_of(request)
    times = {name: zones.read_local(given[name], zone) for name in ("since", "until") if given[name]}
    wrong = {name: "Write a day or a time, such as 2026-11-20." for name, at in times.items() if at is None}
    wanted = MessageFilters(
        partner_id=_partner(request).pk,
        q=given["q"],
        direction=given["direction"],
        states=tuple(one.value for one in _STATES[given["state"]][1]) if given["state"] else (),
        created_gte=times.get("since"),
        created_lt=times.get("until"),
    )
    mark = keyset.fingerprint("console.portal-messages", given, "-id")
    context: dict[str, Any] = {"rows": [], "filtered": any(given.values())}
    try:
        found = finding.message_page(wanted, limit=PAGE, place=read_place(request, mark))
    except TooBroad:
        context["too_broad"] = True
    else:
        context |= as_context(found, mark) | {"back_to": finding.looked_back_to(found, PAGE)}
    context["bar"] = bar(request, "messages", _FILTERS, given, wrong=wrong)
    context["table"] = table("Messages, newest first", _MESSAGES, context["rows"])
    return page(request, "console/portal/messages.html", context)


def _happened(message: Message) -> list[tuple[Any, str]]:
    """When something happened to the message on the wire, and what; oldest first."""
    found: list[tuple[Any, str]] = []
    out = message.direction == Direction.OUT
    found.append((message.created_at, "Accepted for you" if out else "Received from you"))
    for attempt in messages.newest(messages.transmissions(message.pk), 100):
        found += _attempt(attempt)
    for signal in messages.newest(messages.signals(message.pk), 50):
        found.append((signal.created_at, _said(signal)))
    return sorted(found, key=lambda one: one[0])


_HAPPENED = (
    Column("Time", lambda row: clock_time(row[0]), "nowrap", zoned=True),
    Column("What", lambda row: row[1], "wrap"),
)


def _attempt(attempt: Transmission) -> list[tuple[Any, str]]:
    answer = f", your server answered HTTP {attempt.http_status}" if attempt.http_status else ""
    ended = {"sent": "handed over", "failed": "failed", "lost": "no answer known"}.get(attempt.outcome, "on the wire")
    return [(attempt.started_at, f"Sent to {attempt.address} (attempt {attempt.number}): {ended}{answer}")]


def _said(signal: Signal) -> str:
    kind = "Acknowledgement" if signal.kind == "ack" else f"Error {signal.error_code}".strip()
    return (
        f"{kind} {'from you' if signal.direction == Direction.IN else 'to you'}: {signal.get_state_display().lower()}"
    )


@requires(PORTAL)
def message_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One message: what it is, and what happened to it between their server and ours."""
    message = messages.message(read_id("msg", reference))
    rows = _happened(message)
    context = {
        "message": message,
        "way": _way(message.direction),
        "payloads": list(messages.payloads(message.pk)),
        "table": table(
            "What happened to this message",
            (
                Column("Time", lambda row: clock_time(row[0]), "nowrap", zoned=True),
                Column("What", lambda row: row[1], "wrap"),
            ),
            rows,
        ),
    }
    return page(request, "console/portal/message.html", context)


# --- connection


@requires(PORTAL)
def connection(request: HttpRequest) -> HttpResponse:
    """What both sides have to set: addresses, identifiers, and the terms of every agreement in force."""
    partner = _partner(request)
    context = {
        "partner": partner,
        "agreements": [
            (terms, Profile(terms.profile).label)
            for terms in registry.current().active()
            if terms.partner_id == partner.pk
        ],
    }
    return page(request, "console/portal/connection.html", context)


# --- certificates


def _fact(one: certificates.CertificateFacts) -> SafeString:
    return cells.joined(cells.span("strong", one.title), cells.below(one.fingerprint, "mono wrap"))


def _offer(offer: OfferedCertificate) -> SafeString | str:
    if offer.state == OfferState.WAITING:
        return "We compare its fingerprint with you before we trust it."
    return cells.joined(ago(offer.decided_at), cells.below(offer.answer, "text-faint wrap"))


def _own_fact(one: certificates.CertificateFacts) -> SafeString:
    href = cells.to("portal-own-certificate", one.fingerprint)
    return cells.joined(cells.link(href, one.title, "strong"), cells.below(one.fingerprint, "mono wrap"))


_OFFERS = (
    Column("State", lambda offer: state("offer", offer.state), "nowrap"),
    Column("Certificate", lambda offer: _fact(offer.facts)),
    Column("Expires", lambda offer: f"{offer.facts.not_after:%Y-%m-%d}", "nowrap"),
    Column("Used by", lambda offer: offer.endpoint.uri if offer.endpoint else "You, when you call us", "wrap"),
    Column("Uploaded", lambda offer: cells.joined(offer.offered_by, cells.below(ago(offer.created_at))), "nowrap"),
    Column("Decision", _offer, "wrap"),
)
_HELD = (
    Column("State", lambda one: state("held", one.state), "nowrap"),
    Column("Certificate", lambda one: _fact(one.facts) if one.facts else one.title),
    Column("Expires", lambda one: f"{one.ends_at:%Y-%m-%d}", "nowrap"),
    Column("Used by", lambda one: one.endpoint.uri if one.endpoint else "You, when you call us", "wrap"),
)
_OURS = (
    Column("Certificate", _own_fact),
    Column("Issued by", lambda one: "itself" if one.self_signed else one.issuer, "wrap"),
    Column("Expires", lambda one: f"{one.not_after:%Y-%m-%d}", "nowrap"),
)


@requires(PORTAL, methods=("GET", "POST"))
def certificate_list(request: HttpRequest) -> HttpResponse:
    """The certificates that we trust, the one that we show, and the form by which they hand us a new one."""
    partner = _partner(request)
    errors: list[tuple[str, str]] = []
    if request.method == "POST":
        try:
            file, chosen = request.FILES.get("file"), posted(request, "endpoint")
            if file is None:
                raise InvalidSubmission({"file": ["Choose the file of the certificate."]})
            offers.certificate_offer(
                party_id=partner.pk,
                endpoint_id=read_id("end", chosen) if chosen else None,
                octets=file.read(certificates.MAX_TEXT + 1),
                note=posted(request, "note"),
                actor=actor(request),
            )
        except InvalidSubmission as error:
            errors = problems(error)
        except BadPublicId:
            errors = [("endpoint", "Choose one of your servers.")]
        else:
            notices.success(
                request, "Your certificate is here. We trust it after we have compared its fingerprint with you."
            )
            return see_other("console:portal-certificates")
    held = [one for one in onboarding.certificates(party_id=partner.pk) if _is_theirs(one)]
    uploaded = list(onboarding.offers(party_id=partner.pk).order_by("-id")[:50])
    context = {
        "errors": errors,
        "given": request.POST,
        "servers": list(onboarding.pinned_servers(partner.pk)),
        "held": table("Your certificates", _HELD, held) if held else None,
        "ours": table("Our certificate", _OURS, ours) if (ours := _ours(partner)) else None,
        "offers": table("Uploaded certificates, newest first", _OFFERS, uploaded) if uploaded else None,
    }
    return page(request, "console/portal/certificates.html", context, status=422 if errors else 200)


def _is_theirs(one: Held) -> bool:
    return one.credential is None or one.credential.direction == CredentialDirection.INBOUND


def _ours(partner: Party) -> Sequence[certificates.CertificateFacts]:
    """What we show the partner's servers, without the certificates of its issuers."""
    shown = Credential.objects.filter(
        party=partner, direction=CredentialDirection.OUTBOUND, kind=CredentialKind.CERTIFICATE, revoked_at=None
    ).exclude(certificate="")
    return [facts[0] for one in shown.order_by("-created_at")[:4] if (facts := certificates.read(one.certificate))]


@requires(PORTAL)
def own_certificate(request: HttpRequest, fingerprint: str) -> HttpResponse:
    """Our certificate as a file, for their list of trusted ones."""
    found = next((one for one in _ours(_partner(request)) if one.fingerprint == fingerprint), None)
    if found is None:
        return HttpResponse(status=404)
    response = HttpResponse(found.pem, content_type="application/x-pem-file")
    response["Content-Disposition"] = f'attachment; filename="{fingerprint[:16]}.pem"'
    return response


# --- reconciliation


_LOGS = (
    Column("State", lambda row: state("log", row.log.state), "nowrap"),
    Column("Log", lambda row: cells.joined(row.log.filename, cells.below(octets(row.log.size))), "wrap"),
    Column("Rows", lambda row: cells.number(row.log.rows), "num"),
    Column("Agreed", lambda row: cells.number(row.verdicts.get("agreed", 0) if row.published else None), "num"),
    Column("Differences", lambda row: cells.bad(row.findings) if row.published else "—", "num"),
    Column("Uploaded", lambda row: cells.joined(row.log.uploaded_by, cells.below(ago(row.log.created_at))), "nowrap"),
)


@csrf_exempt
@requires(PORTAL, methods=("GET", "POST"))
def log_list(request: HttpRequest) -> HttpResponse:
    """The logs that they sent, what the comparison with ours found, and the form for another one.

    What is too long is refused before it is read: the check of the CSRF token reads all of it.
    """
    declared, most = request.META.get("CONTENT_LENGTH") or "", settings.RMHUB_PARTNER_LOG_MAX_BYTES
    if request.method == "POST" and declared.isdigit() and int(declared[:20]) > most + _OVERHEAD:
        error = f"The log is larger than {most:,} bytes: send it in parts, one for each month perhaps."
        return _logs(request, [("file", error)], status=413)
    checked: HttpResponse = _receive(request)
    return checked


@csrf_protect
def _receive(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return _logs(request, [])
    file = request.FILES.get("file")
    try:
        if file is None:
            raise InvalidSubmission({"file": ["Choose the file of your log."]})
        received = logs.log_receive(
            party_id=_partner(request).pk,
            chunks=file.chunks(1024 * 1024),
            filename=file.name or "log",
            actor=actor(request),
            strict=False,
        )
    except (InvalidSubmission, TooLarge) as error:
        return _logs(request, problems(error), status=422)
    if received.created:
        notices.success(request, "Your log is here. We compare it with ours, and the result appears below.")
    else:
        notices.info(request, "This very log was there before: nothing was stored twice.")
    return see_other("console:portal-logs")


def _logs(request: HttpRequest, errors: Sequence[tuple[str, str]], *, status: int = 200) -> HttpResponse:
    own = partner_logs.logs(party_id=_partner(request).pk)
    context: Mapping[str, Any] = keyset_page(request, "console.portal-logs", own, order=("-id",), filters={})
    rows = partner_logs.log_rows(context["rows"])
    shown = {**context, "errors": errors, "most": settings.RMHUB_PARTNER_LOG_MAX_BYTES}
    shown["table"] = table("Logs, newest first", _LOGS, rows, about=lambda row: {"data-state": row.log.state})
    return page(request, "console/portal/logs.html", shown, status=status)
