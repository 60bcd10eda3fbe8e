"""HTTPS to addresses of the public internet only, checked on the connection itself.

A name can be looked up once for a check and point elsewhere when it is connected to; the address of the socket can not.
"""

from __future__ import annotations

import ipaddress
import socket

import urllib3
from urllib3.connectionpool import HTTPSConnectionPool
from urllib3.exceptions import NewConnectionError

from messaging.transports.bounded import BoundedTLSConnection

# Prefixes whose addresses lead to an IPv4 address that stands in them, NAT64 (RFC 6052) and 6to4 (RFC 3056), and how
# many bits from the right it stands.
_LEADING_ON = ((ipaddress.IPv6Network("64:ff9b::/96"), 0), (ipaddress.IPv6Network("2002::/16"), 80))
# What is_global takes for public, and is not: site-local (RFC 3879), Teredo (RFC 4380), IPv4-compatible and translated
# addresses, NAT64 of one's own network (RFC 8215), and documentation, ORCHID and other blocks for special purposes.
_SPECIAL = tuple(
    ipaddress.IPv6Network(one) for one in ("fec0::/10", "::/32", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2001::/23")
)


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet, whatever road leads there. False for what is no address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif any(found in network for network in _SPECIAL):
            return False
        else:
            behind = next((bits for network, bits in _LEADING_ON if found in network), None)
            if behind is not None:
                found = ipaddress.IPv4Address(int(found) >> behind & 0xFFFFFFFF)
    return found.is_global and not found.is_multicast


class _PublicConnection(BoundedTLSConnection):
    """Closes a connection to a private, loopback or otherwise special address before a byte is sent."""

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        address = sock.getpeername()[0]
        if not is_public(address):
            sock.close()
            raise NewConnectionError(self, f"{self.host} is at {address}, which is not a public address")
        return sock


class _PublicPool(HTTPSConnectionPool):
    ConnectionCls = _PublicConnection


def public_pool() -> urllib3.PoolManager:
    """A pool that speaks https to public addresses and nothing else."""
    pool = urllib3.PoolManager(num_pools=50, maxsize=4, retries=False)
    pool.pool_classes_by_scheme = {"https": _PublicPool}
    return pool
