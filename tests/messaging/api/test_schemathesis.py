"""Requests made from the API's own description: whatever it allows, and what it does not, is answered as it says.

The short form runs with the other tests; `make schemathesis` (RMHUB_SCHEMATHESIS=200) makes many more requests.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rmhub.roles import ORDER, Role
from tests.messaging.api.client import make_token, make_user
from tests.messaging.api.things import things
from tests.messaging.factories import PartnerSide
from tests.sizes import ALL

pytestmark = pytest.mark.django_db

EXAMPLES = int(os.environ.get("RMHUB_SCHEMATHESIS") or (3 if ALL else 2))
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Asking for these keeps the caller waiting, or answers with a file of any size.
SLOW = {"wait"}


@pytest.fixture(scope="module")
def description() -> Iterator[Any]:
    """The document that the hub serves, tied to the hub itself: no socket between, and the test's own connection."""
    _keep_the_connection()
    yield schemathesis.openapi.from_wsgi("/api/v1/openapi.json", get_wsgi_application())
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def _keep_the_connection() -> None:
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)


def operations(description: Any) -> Iterator[Any]:
    for found in description.get_all_operations():
        yield found.ok()


# Others than admins are mostly refused, and test_access shows that.
@pytest.mark.parametrize("role", list(ORDER) if ALL else [Role.ADMIN])
def test_answers_are_what_the_description_says(role: Role, description: Any, partner: PartnerSide) -> None:
    known = things(partner)
    _keep_the_connection()  # Django's test client, which some of the things are made with, connects it again
    token = make_token(make_user(role))
    turns = itertools.count()
    failures: dict[str, str] = {}
    # Others than admins are mostly refused: fewer requests show that.
    examples = EXAMPLES if role is Role.ADMIN else max(1, EXAMPLES // 3)
    for operation in operations(description):
        name = f"{operation.method.upper()} {operation.path}"

        @hypothesis.settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=EXAMPLES < 50,
            print_blob=False,
            phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            turn = next(turns)
            _aim(case, known, turn)
            # Whatever it did is undone: the next request finds the same hub.
            undone = transaction.atomic()
            undone._from_testcase = True  # durable blocks may be inside of it
            with undone:
                case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=CHECKS)
                transaction.set_rollback(True)

        try:
            ask()
        except (Exception, BaseExceptionGroup) as error:
            failures[name] = "\n".join(str(part) for part in getattr(error, "exceptions", [error]))
    assert not failures, "\n\n".join(f"{name}: {text[:1500]}" for name, text in failures.items())


def _aim(case: Any, known: dict[str, dict[str, str]], turn: int) -> None:
    """Three requests of four are about things that exist; every second carries an If-Match that fits."""
    for name in SLOW & set(case.query or {}):
        case.query[name] = 0
    if turn % 4:
        first = case.operation.path.removeprefix("/api/v1/").partition("/")[0]
        case.path_parameters.update(
            {name: value for name, value in known.get(first, {}).items() if name in case.path_parameters}
        )
    if turn % 2 and "If-Match" in (case.headers or {}):
        case.headers["If-Match"] = "*"
