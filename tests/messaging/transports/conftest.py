"""Servers on loopback that the tests of transports send to."""

from __future__ import annotations

from tests.messaging.entrance.mail.servers import certificates, trusting
from tests.messaging.pollers.conftest import server

__all__ = ["certificates", "server", "trusting"]
