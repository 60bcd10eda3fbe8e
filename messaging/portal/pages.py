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
from django.utils.translation import gettext as _
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
from partners import certificates, registry, transports
from partners.choices import CredentialDirection, CredentialKind, Profile
from partners.models import Credential, Party
from rmhub.ids import BadPublicId
from rmhub.language import gettext_lazy, inside, number, pgettext_lazy
from rmhub.roles import PORTAL

_OVERHEAD = 1024 * 1024
_WAYS = {Direction.OUT.value: gettext_lazy("From us to you"), Direction.IN.value: gettext_lazy("From you to us")}
_STOPPED = {
    Direction.OUT.value: gettext_lazy(
        "Messages from us to you are stopped, and our operations staff know of it. "
        "Nothing is lost: they go on in their order."
    ),
    Direction.IN.value: gettext_lazy(
        "Messages from you to us are stopped, and our operations staff know of it. "
        "Nothing is lost: they go on in their order."
    ),
}
# What of a message's states a partner tells apart; the others of our own are among them.
_STATES = {
    "open": (
        gettext_lazy("Under way"),
        (MessageState.QUEUED, MessageState.SENDING, MessageState.AWAITING_ACK, MessageState.RETRYING),
    ),
    "failed": (gettext_lazy("Failed"), (MessageState.FAILED,)),
    "done": (gettext_lazy("Delivered or received"), (MessageState.DELIVERED, MessageState.SENT, MessageState.RECEIVED)),
    "in_doubt": (gettext_lazy("In doubt"), (MessageState.IN_DOUBT,)),
    "not_sent": (gettext_lazy("Skipped or cancelled"), (MessageState.SKIPPED, MessageState.CANCELLED)),
}


def _partner(request: HttpRequest) -> Party:
    assert isinstance(request.user, User)
    return people.partner_of(request.user)


def _way(direction: str) -> str:
    return _WAYS[direction]


# --- overview


_PAIRS = (
    Column(gettext_lazy("Direction"), lambda row: _way(row.direction), "nowrap strong"),
    Column(gettext_lazy("State"), lambda row: state("pair", row.state), "nowrap"),
    Column(gettext_lazy("Since"), lambda row: ago(row.changed_at), "nowrap"),
    Column(
        gettext_lazy("Waiting"), lambda row: cells.number(row.queued) if row.direction == Direction.OUT else "—", "num"
    ),
    Column(gettext_lazy("Last message"), lambda row: ago(row.last_success_at, _("none yet")), "nowrap"),
    Column(gettext_lazy("Sender"), lambda row: row.sender_uri, "mono wrap"),
    Column(gettext_lazy("Receiver"), lambda row: row.receiver_uri, "mono wrap"),
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
        "stopped": [_STOPPED[row.direction] for row in rows if row.state == "suspended"],
        "ending": held,
        "connections": table(_("Connections"), _PAIRS, rows) if rows else None,
        "table": table(_("Newest messages"), _MESSAGES, newest.rows) if newest.rows else None,
    }
    return page(request, "console/portal/overview.html", context, live="live-portal")


# --- messages


def _message(message: Message) -> SafeString:
    return cells.link(
        cells.to("portal-message", message.public_id), middle(message.message_id, 40), "mono", title=message.message_id
    )


_MESSAGES = (
    Column(gettext_lazy("Time"), lambda row: clock_time(row.created_at), "nowrap", zoned=True),
    Column(gettext_lazy("Direction"), lambda row: _way(row.direction), "nowrap"),
    Column(gettext_lazy("State"), lambda row: state("message", row.state), "nowrap"),
    Column("MessageId", _message),
    Column(
        gettext_lazy("Service, action"),
        lambda row: cells.joined(row.service, cells.below(row.action, "text-faint wrap")),
    ),
    Column(gettext_lazy("Completed"), lambda row: ago(row.completed_at), "nowrap"),
)


_FILTERS = (
    Filter("q", gettext_lazy("MessageId, document id or attribute"), kind="search", most=512),
    Filter(
        "direction",
        gettext_lazy("Direction"),
        choices=tuple((one.value, _way(one)) for one in Direction),
        meaning=_WAYS,
    ),
    Filter(
        "state",
        gettext_lazy("State"),
        choices=tuple((key, label) for key, (label, __) in _STATES.items()),
        meaning=_STATES,
    ),
    Filter("since", gettext_lazy("From"), kind="time", most=40),
    Filter("until", pgettext_lazy("time", "Before"), kind="time", most=40),
)


@requires(PORTAL)
def message_list(request: HttpRequest) -> HttpResponse:
    """Their messages, newest first, narrowed by id, direction, state and time."""
    given, zone = {one.name: one.read(request) for one in _FILTERS}, zones.zone_of(request)
    times = {name: zones.read_local(given[name], zone) for name in ("since", "until") if given[name]}
    wrong = {name: _("Write a day or a time, such as 2026-11-20.") for name, at in times.items() if at is None}
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
    context["bar"] = bar(request, _("messages"), _FILTERS, given, wrong=wrong)
    context["table"] = table(_("Messages, newest first"), _MESSAGES, context["rows"])
    return page(request, "console/portal/messages.html", context)


def _happened(message: Message) -> list[tuple[Any, str]]:
    """When something happened to the message on the wire, and what; oldest first."""
    found: list[tuple[Any, str]] = []
    out = message.direction == Direction.OUT
    found.append((message.created_at, _("Accepted for you") if out else _("Received from you")))
    for attempt in messages.newest(messages.transmissions(message.pk), 100):
        found += _attempt(attempt)
    for signal in messages.newest(messages.signals(message.pk), 50):
        found.append((signal.created_at, _said(signal)))
    return sorted(found, key=lambda one: one[0])


_HAPPENED = (
    Column(gettext_lazy("Time"), lambda row: clock_time(row[0]), "nowrap", zoned=True),
    Column(gettext_lazy("What"), lambda row: row[1], "wrap"),
)


_ENDED = {
    "sent": gettext_lazy("handed over"),
    "failed": gettext_lazy("failed"),
    "lost": gettext_lazy("no answer known"),
}


def _attempt(attempt: Transmission) -> list[tuple[Any, str]]:
    ended = _ENDED.get(attempt.outcome, gettext_lazy("on the wire"))
    said = _("Sent to {address} (attempt {number}): {ended}")
    if attempt.http_status:
        said = _("Sent to {address} (attempt {number}): {ended}, your server answered HTTP {status}")
    told = said.format(address=attempt.address, number=attempt.number, ended=ended, status=attempt.http_status)
    return [(attempt.started_at, told)]


def _said(signal: Signal) -> str:
    theirs = signal.direction == Direction.IN
    if signal.kind == "ack":
        said = _("Acknowledgement from you: {state}") if theirs else _("Acknowledgement to you: {state}")
    elif signal.error_code:
        said = _("Error {code} from you: {state}") if theirs else _("Error {code} to you: {state}")
    else:
        said = _("Error from you: {state}") if theirs else _("Error to you: {state}")
    return said.format(code=signal.error_code, state=inside(signal.get_state_display()))


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
            _("What happened to this message"),
            (
                Column(_("Time"), lambda row: clock_time(row[0]), "nowrap", zoned=True),
                Column(_("What"), lambda row: row[1], "wrap"),
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
            (terms, Profile(terms.profile).label, transports.named(terms.transport).label)
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
        return _("We compare its fingerprint with you before we trust it.")
    return cells.joined(ago(offer.decided_at), cells.below(offer.answer, "text-faint wrap"))


def _own_fact(one: certificates.CertificateFacts) -> SafeString:
    href = cells.to("portal-own-certificate", one.fingerprint)
    return cells.joined(cells.link(href, one.title, "strong"), cells.below(one.fingerprint, "mono wrap"))


_OFFERS = (
    Column(gettext_lazy("State"), lambda offer: state("offer", offer.state), "nowrap"),
    Column(gettext_lazy("Certificate"), lambda offer: _fact(offer.facts)),
    Column(gettext_lazy("Expires"), lambda offer: f"{offer.facts.not_after:%Y-%m-%d}", "nowrap"),
    Column(
        gettext_lazy("Used by"),
        lambda offer: offer.endpoint.uri if offer.endpoint else _("You, when you call us"),
        "wrap",
    ),
    Column(
        gettext_lazy("Uploaded"),
        lambda offer: cells.joined(offer.offered_by, cells.below(ago(offer.created_at))),
        "nowrap",
    ),
    Column(gettext_lazy("Decision"), _offer, "wrap"),
)
_HELD = (
    Column(gettext_lazy("State"), lambda one: state("held", one.state), "nowrap"),
    Column(gettext_lazy("Certificate"), lambda one: _fact(one.facts) if one.facts else one.title),
    Column(gettext_lazy("Expires"), lambda one: f"{one.ends_at:%Y-%m-%d}", "nowrap"),
    Column(
        gettext_lazy("Used by"), lambda one: one.endpoint.uri if one.endpoint else _("You, when you call us"), "wrap"
    ),
)
_OURS = (
    Column(gettext_lazy("Certificate"), _own_fact),
    Column(gettext_lazy("Issued by"), lambda one: _("itself") if one.self_signed else one.issuer, "wrap"),
    Column(gettext_lazy("Expires"), lambda one: f"{one.not_after:%Y-%m-%d}", "nowrap"),
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
                raise InvalidSubmission({"file": [_("Choose the file of the certificate.")]})
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
            errors = [("endpoint", _("Choose one of your servers."))]
        else:
            notices.success(
                request, _("Your certificate is here. We trust it after we have compared its fingerprint with you.")
            )
            return see_other("console:portal-certificates")
    held = [one for one in onboarding.certificates(party_id=partner.pk) if _is_theirs(one)]
    uploaded = list(onboarding.offers(party_id=partner.pk).order_by("-id")[:50])
    context = {
        "errors": errors,
        "given": request.POST,
        "servers": list(onboarding.pinned_servers(partner.pk)),
        "held": table(_("Your certificates"), _HELD, held) if held else None,
        "ours": table(_("Our certificate"), _OURS, ours) if (ours := _ours(partner)) else None,
        "offers": table(_("Uploaded certificates, newest first"), _OFFERS, uploaded) if uploaded else None,
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
    Column(gettext_lazy("State"), lambda row: state("log", row.log.state), "nowrap"),
    Column(gettext_lazy("Log"), lambda row: cells.joined(row.log.filename, cells.below(octets(row.log.size))), "wrap"),
    Column(gettext_lazy("Rows"), lambda row: cells.number(row.log.rows), "num"),
    Column(
        gettext_lazy("Agreed"),
        lambda row: cells.number(row.verdicts.get("agreed", 0) if row.published else None),
        "num",
    ),
    Column(gettext_lazy("Differences"), lambda row: cells.bad(row.findings) if row.published else "—", "num"),
    Column(
        gettext_lazy("Uploaded"),
        lambda row: cells.joined(row.log.uploaded_by, cells.below(ago(row.log.created_at))),
        "nowrap",
    ),
)


@csrf_exempt
@requires(PORTAL, methods=("GET", "POST"))
def log_list(request: HttpRequest) -> HttpResponse:
    """The logs that they sent, what the comparison with ours found, and the form for another one.

    What is too long is refused before it is read: the check of the CSRF token reads all of it.
    """
    declared, most = request.META.get("CONTENT_LENGTH") or "", settings.RMHUB_PARTNER_LOG_MAX_BYTES
    if request.method == "POST" and declared.isdigit() and int(declared[:20]) > most + _OVERHEAD:
        error = _("The log is larger than {bytes} bytes: send it in parts, one for each month perhaps.")
        error = error.format(bytes=number(most))
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
            raise InvalidSubmission({"file": [_("Choose the file of your log.")]})
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
        notices.success(request, _("Your log is here. We compare it with ours, and the result appears below."))
    else:
        notices.info(request, _("This log was uploaded before: nothing was stored twice."))
    return see_other("console:portal-logs")


def _logs(request: HttpRequest, errors: Sequence[tuple[str, str]], *, status: int = 200) -> HttpResponse:
    own = partner_logs.logs(party_id=_partner(request).pk)
    context: Mapping[str, Any] = keyset_page(request, "console.portal-logs", own, order=("-id",), filters={})
    rows = partner_logs.log_rows(context["rows"])
    shown = {**context, "errors": errors, "most": settings.RMHUB_PARTNER_LOG_MAX_BYTES}
    shown["table"] = table(_("Logs, newest first"), _LOGS, rows, about=lambda row: {"data-state": row.log.state})
    return page(request, "console/portal/logs.html", shown, status=status)
