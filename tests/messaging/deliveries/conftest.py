"""The application that documents are delivered to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.messaging.deliveries.stage import Application, application


@pytest.fixture
def app() -> Iterator[Application]:
    with application() as made:
        yield made
