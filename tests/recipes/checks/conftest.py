"""Fixtures of the checks."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from django.core.management import call_command
from django.db.migrations.loader import MigrationLoader
from django.test import Client

from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.conftest import one_worker, static_folder, woken  # noqa: F401  (fixtures)
from tests.messaging.console.scenes import browser as logged_in


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> None:
    """The last step of every recipe, before the tables are made; no database is asked which of them it has."""
    with mock.patch.object(MigrationLoader, "check_consistent_history"):
        call_command("makemigrations", verbosity=0)


@pytest.fixture
def admin(db: None) -> Api:
    """A caller of the API with all scopes."""
    return Api(make_token(make_user(Role.ADMIN)))


@pytest.fixture
def browser(db: None) -> Client:
    """The console, as an administrator sees it."""
    return logged_in(Role.ADMIN, "olga")


@pytest.fixture(scope="session")
def openapi() -> dict[str, Any]:
    """The description of the API."""
    from messaging.api.openapi import document

    return document()
