"""A mail that came in, by SMTP or from a mailbox: a message of a partner, or a report about a mail of ours.

Both entrances call `take` with what they know of the sender; it commits before it returns.

Who may hand in mail by SMTP: partners that log in, and relays of our own network that have checked the sender.

Whose mail addresses are known: our own endpoints' and the partners', as agreements in force have them.
"""

from __future__ import annotations

import base64
import ipaddress
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from messaging import profile
from messaging.entrance import authentication
from messaging.entrance.refusals import Arrival, refuse
from messaging.profiles.ebms2 import receiving as ebms2
from messaging.profiles.ebxml import bounces
from messaging.profiles.ebxml import receiving as ebxml
from messaging.protocol.codecs.ebxml import HEADER_MEDIA_TYPE
from messaging.protocol.codecs.mail import Mail, Report, author, entity, is_vouched_for, read_report
from messaging.protocol.envelope import Limits
from messaging.protocol.errors import NotAMessage
from partners import registry
from partners.addresses import mailbox
from partners.registry import Registry
from partners.terms import Presented, Principal
from partners.transports import SMTP
from rmhub import clock

TOO_EARLY = 425


@dataclass(frozen=True, slots=True)
class Taken:
    """`status` as `receiving.receive` has it: 204 = done with; 400, 401, 403, 413 = refused for good, and written down;
    425 = later. `sentence` says why, for the other side."""

    status: int
    sentence: str = ""


def take(mail: Mail, *, principal: Principal | None, remote_address: str, limits: Limits) -> Taken:
    """Takes one mail. `principal`: who has sent it, proved; None for a mail that nobody vouches for.

    Raises what the database raises when nothing could be stored.
    """
    arrival = Arrival("", mail.octets, Presented(), remote_address, SMTP)
    try:
        report = read_report(mail, limits)
        if report is not None:
            return _report(report, arrival, principal)
        if principal is None:
            sentence = "Nobody that we trust has checked who sent it, or its sender is no partner."
            detail = f"{sentence} From: {mail.first('from')[:200]}"
            return Taken(refuse(arrival, 401, "sender_unproved", detail), sentence)
        content_type, body = entity(mail, limits)
    except NotAMessage as error:
        status = refuse(arrival, 400, error.reason, error.detail, principal=principal)
        return Taken(status, error.detail)
    arrival = replace(arrival, content_type=content_type[:1000], body=body)
    if len(body) > limits.body:
        sentence = f"More than {limits.body} bytes."
        return Taken(refuse(arrival, 413, "body_too_large", sentence, principal=principal), sentence)
    if _is_ebms2(content_type, principal):
        status = ebms2.receive(arrival, limits=limits, principal=principal, one_way=True).status
        return Taken(TOO_EARLY, "The way onward is closed now.") if status == 503 else Taken(status)
    return Taken(ebxml.receive(arrival, limits=limits, principal=principal))


def _is_ebms2(content_type: str, principal: Principal) -> bool:
    """Whether a mail that is no report is read as ebXML 2.0: it does not say the older type, and that is agreed."""
    if HEADER_MEDIA_TYPE in content_type.lower():
        return False
    return any(profile.of(terms).acknowledged_singly for terms in registry.current().by_hop(principal.party_id))


def _report(report: Report, arrival: Arrival, principal: Principal | None) -> Taken:
    try:
        if bounces.take(report, arrival.body[:], clock.now()):
            return Taken(204)
    except bounces.TooEarly:
        return Taken(TOO_EARLY, "The mail that this is about is still being recorded.")
    sentence = "The report is about no mail of ours."
    detail = f"{sentence} {report.action}: {report.diagnostic}"
    refuse(arrival, 204, "bounce_unknown", detail, principal=principal)
    return Taken(204)


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class LogIn(NamedTuple):
    """What came of a log-in. `later`: too many wrong ones came from there, so that nothing was looked at."""

    principal: Principal | None
    later: bool = False


def log_in(username: bytes, password: bytes, remote_address: str) -> LogIn:
    """Checks an inbound Basic credential of a partner, as the HTTP entrance does (RFC 4954)."""
    token = base64.b64encode(username + b":" + password).decode()
    principal, refused = authentication.identify(Presented(authorization=f"Basic {token}"), remote_address)
    return LogIn(principal, later=principal is None and refused.status != 401)


def is_trusted(remote_address: str, relays: Sequence[Network]) -> bool:
    """Whether a connection comes from one of our own relays."""
    try:
        address = ipaddress.ip_address(remote_address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in relays)


def author_of(mail: Mail, checker: str) -> Principal | None:
    """The partner in the From of a mail for whom the trusted checker vouches (RFC 8601), or None."""
    address = author(mail)
    return partner_at(address) if address and is_vouched_for(mail, checker, address) else None


_NO_CREDENTIAL = uuid.UUID(int=0)


class _Addresses(NamedTuple):
    own: frozenset[str]
    partners: dict[str, Principal]


def is_ours(address: str) -> bool:
    """Whether messages, acknowledgements or error messages may come to this address."""
    return address.lower() in _known(registry.current()).own


def partner_at(address: str) -> Principal | None:
    """The partner, or the router that leads to one, that sends from this address.

    It is no proof: whoever calls this has had the address checked, or asks somebody who has.
    """
    return _known(registry.current()).partners.get(address.lower())


@lru_cache(maxsize=2)
def _known(known: Registry) -> _Addresses:
    own: set[str] = set()
    partners: dict[str, Principal] = {}
    for terms in known.active():
        own.update(_mailboxes((terms.own_uri, terms.own_error_uri)))
        principal = Principal(terms.hop_party_id, terms.hop_party_name, _NO_CREDENTIAL)
        theirs = (terms.partner_uri, terms.partner_address, terms.partner_error_uri, terms.partner_error_address)
        for address in _mailboxes(theirs):
            partners.setdefault(address, principal)
    return _Addresses(frozenset(own), partners)


def _mailboxes(uris: Iterable[str]) -> set[str]:
    """In lower case throughout: no partner tells two mailboxes apart by capitals, and relays do not keep them."""
    return {address.lower() for uri in uris if (address := mailbox(uri))}
