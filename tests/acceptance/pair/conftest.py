"""Two real hubs that the tests of this folder share: processes, databases and all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from messaging.demo import verdict
from messaging.demo.stage import Link, Parameters, Stage, running
from rmhub.supervisor import Supervisor


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keeps the tests of this folder together when tests run in several processes: the hubs are started once."""
    item.add_marker(pytest.mark.xdist_group("pair"))


@pytest.fixture(scope="package")
def hubs() -> Iterator[tuple[Stage, Supervisor]]:
    """Buyer's and seller's hub, joined by a good link. Whatever the tests do with them, their invariants hold."""
    with running(link=Link(), parameters=Parameters()) as running_hubs:
        yield running_hubs
        stage, _ = running_hubs
        both = (stage.buyer, stage.seller)
        found = verdict.contradictions({hub.name: hub.database_url for hub in both})
        assert not found, "\n".join(found)
