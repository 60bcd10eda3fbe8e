"""Who may hand in mail by SMTP: partners that log in, and relays of our own network that have checked the sender."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

from messaging.entrance import authentication as door
from messaging.entrance import senders
from messaging.protocol.codecs.mail import Mail, author
from messaging.protocol.codecs.mail_checks import is_vouched_for
from partners.terms import Presented, Principal

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class LogIn(NamedTuple):
    """What came of a log-in. `later`: too many wrong ones came from there, so that nothing was looked at."""

    principal: Principal | None
    later: bool = False


def log_in(username: bytes, password: bytes, remote_address: str) -> LogIn:
    """Checks an inbound Basic credential of a partner, as the HTTP entrance does (RFC 4954)."""
    token = base64.b64encode(username + b":" + password).decode()
    principal, refused = door.identify(Presented(authorization=f"Basic {token}"), remote_address)
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
    return senders.partner_at(address) if address and is_vouched_for(mail, checker, address) else None
