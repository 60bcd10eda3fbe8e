"""What a look into a mailbox or folder is given and gives back: the contract of all collectors.

A collector talks to the server with no transaction open, hands each item to `receiving.receive`, which commits, and
only then takes it away. It may be cut off at any point, and two may look at once: the MessageId makes the second time
a repeat.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from messaging.transports.base import Login
from partners.terms import Principal

LOOK_SECONDS = 60.0  # after so long a look begins no further item
MOST_ITEMS = 500  # of one look
# Set while this process ends: a look finishes the item that it is at, and the next worker takes the rest.
ending = threading.Event()


@dataclass(frozen=True, slots=True)
class Look:
    """One look into one mailbox or folder; all of it was read before.

    `partner`: who is authenticated by the folder itself; None for mailboxes. `position`: what the look before came to.
    `read_timeout`: seconds for one step on the network. `until`: monotonic seconds.
    """

    poller_id: uuid.UUID
    name: str
    kind: str
    url: str
    login: Login | None
    host_key: str
    trusted_checker: str
    partner: Principal | None
    position: str
    connect_timeout: float
    read_timeout: float
    until: float

    def time_is_up(self) -> bool:
        """Whether no further item may be begun."""
        return ending.is_set() or time.monotonic() >= self.until


@dataclass(slots=True)
class Found:
    """What a look came to, also one that broke off in the middle.

    `taken`: items that are done with. `refused`: items that were set aside. `position`: None leaves it. `more`: there
    was more than one look takes. `cause`: "" = success. `permanent`: a person is needed. `detail`: one printable line.
    """

    taken: int = 0
    refused: int = 0
    position: str | None = None
    more: bool = False
    cause: str = ""
    detail: str = ""
    permanent: bool = False


Collector = Callable[[Look], Found]
