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


class _PublicConnection(BoundedTLSConnection):
    """Closes a connection to a private, loopback or otherwise special address before a byte is sent."""

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        address = sock.getpeername()[0].partition("%")[0]
        if not ipaddress.ip_address(address).is_global:
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
