from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections

from messaging.entrance import smtp_server as mail
from tests.messaging.entrance.mail.servers import certificates, trusting

__all__ = ["certificates", "one_connection", "trusting"]


@pytest.fixture
def one_connection(db: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The entrance's threads work in the transaction of the test, which is rolled back: a flush takes a second.

    The test waits for their answer meanwhile, so that two threads never use the connection at once. Tests that commit
    have their own marks, and threads with connections of their own.
    """
    if "transactional_db" in request.fixturenames:
        yield
        return
    main, run = connections["default"], mail._in_thread

    def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
        connections["default"] = main
        try:
            return run(work, *arguments)
        finally:
            del connections["default"]

    monkeypatch.setattr(mail, "_in_thread", in_thread)
    main.inc_thread_sharing()
    yield
    main.dec_thread_sharing()
    assert connection.connection is not None
