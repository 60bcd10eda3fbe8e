"""Servers on loopback that pollers look into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from messaging.transports import sftp, sftp_connection
from tests.messaging.entrance.mail.servers import certificates, trusting
from tests.messaging.transports.sftp_server import SftpServer

__all__ = ["certificates", "server", "trusting"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SftpServer]:
    """An SFTP server with the folders `out` and `in`."""
    root = tmp_path / "sftp"
    root.mkdir()
    made = SftpServer(root)
    made.folder("out")
    made.folder("in")
    sftp._swept.clear()
    yield made
    sftp_connection.close_idle()
    made.close()
