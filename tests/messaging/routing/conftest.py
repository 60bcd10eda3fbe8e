"""Fixtures of the tests of several hubs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmhub.clock import FrozenClock, frozen
from tests.messaging.profiles.repeatable.callers import T
from tests.messaging.routing.hubs import Network, join, make_schema, network

HUBS = 4


@pytest.fixture(scope="session")
def hub_schemas(django_db_setup: None, django_db_blocker: Any) -> None:
    """A schema for each hub, made once for all tests of a process."""
    with django_db_blocker.unblock():
        for number in range(1, HUBS + 1):
            make_schema(f"hub_{number}")


@pytest.fixture
def time(hub_schemas: None, db: None) -> Iterator[FrozenClock]:
    with frozen(T) as clock:
        yield clock


@pytest.fixture
def net(time: FrozenClock, request: pytest.FixtureRequest) -> Iterator[Network]:
    """Sender A, router B, receiver C: all ebXML. The indirect parameter is fields of B's route."""
    with network("ABC") as made:
        with made["A"] as a:
            a.agrees("C", "tpa:A-C", hop="B", timeout=600, retries=2, retry_interval=60)
        with made["B"] as b:
            b.agrees("A", "tpa:B-A")
            onward = b.agrees("C", "tpa:B-C", timeout=30, retries=2, retry_interval=10, transport_retries=0)
            b.routes_to("C", onward, **getattr(request, "param", {}))
        with made["C"] as c:
            c.agrees("A", "tpa:A-C", hop="B")
        join(made["A"], made["B"])
        join(made["B"], made["C"])
        yield made
