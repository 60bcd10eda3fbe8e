"""Free ports of the loopback interface."""

from __future__ import annotations

import errno
import random
import socket

from rmhub.embedded.errors import EmbeddedError

RANGE = range(15000, 32000)
"""Below the ports that the kernel gives to outgoing connections, so that a port is still free at the next start."""


def choose(preferred: int, taken: int = 0) -> int:
    """The preferred port when it is free, otherwise one that is. Raises EmbeddedError when there is none."""
    for port in (preferred, *random.sample(RANGE, 200)):
        if port not in (0, taken) and _is_free(port):
            return port
    raise EmbeddedError(f"no free port on 127.0.0.1 between {RANGE.start} and {RANGE.stop}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # as the servers do: connections of the last run that linger in TIME_WAIT do not count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True
