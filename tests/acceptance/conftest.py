"""Two real hubs for the acceptance tests: processes, databases and all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from messaging.demo.stage import Link, Parameters, Stage, running
from rmhub.supervisor import Supervisor


@pytest.fixture(scope="session")
def hubs() -> Iterator[tuple[Stage, Supervisor]]:
    """Buyer's and seller's hub, joined by a good link."""
    with running(link=Link(), parameters=Parameters()) as stage:
        yield stage
