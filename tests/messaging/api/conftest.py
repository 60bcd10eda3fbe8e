"""Fixtures of the API's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from messaging.access.services import tokens
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.factories import PartnerSide, partner_side


@pytest.fixture(autouse=True)
def fresh_tokens(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a process remembers of tokens does not outlive a test, and does outlive a slow moment in it."""
    monkeypatch.setattr(tokens, "SEEN_SECONDS", 3600.0)
    tokens.reset()
    yield
    tokens.reset()


@pytest.fixture
def admin(db: None) -> Api:
    """A caller with all scopes."""
    return Api(make_token(make_user(Role.ADMIN)))


@pytest.fixture
def operator(db: None) -> Api:
    """A caller with an operator's scopes."""
    return Api(make_token(make_user(Role.OPERATOR)))


@pytest.fixture
def viewer(db: None) -> Api:
    """A caller with a viewer's scopes."""
    return Api(make_token(make_user(Role.VIEWER)))


@pytest.fixture
def stranger() -> Api:
    """A caller without a token."""
    return Api()


@pytest.fixture
def partner(db: None) -> PartnerSide:
    """The partner of an active agreement."""
    return partner_side()
