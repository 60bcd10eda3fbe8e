"""Forms of the console that are too large: refused by their headers, before a byte of them is read."""

from __future__ import annotations

import io

import pytest
from django.test import Client

from rmhub.middleware import FORM_BYTES
from rmhub.roles import Role
from tests.messaging.console.scenes import browser

pytestmark = pytest.mark.django_db


class Unread(io.BytesIO):
    """A body that nobody may look at."""

    def read(self, *size: int) -> bytes:  # type: ignore[override]
        raise AssertionError("the body is read")

    readline = read


def told(client: Client, path: str, size: int) -> int:
    answer = client.generic(
        "POST", path, b"", "multipart/form-data; boundary=b", **{"wsgi.input": Unread(), "CONTENT_LENGTH": str(size)}
    )
    return answer.status_code


@pytest.mark.parametrize("path", ["/login/", "/partners/new/", "/password/"])
def test_a_stranger_s_large_form_is_refused_unread(path: str) -> None:
    assert told(Client(enforce_csrf_checks=True), path, 64 * 1024 + 1) == 413


def test_a_form_that_is_larger_than_pages_take_is_refused_unread() -> None:
    client = browser(Role.ADMIN, csrf=True)
    assert told(client, "/partners/new/", FORM_BYTES + 1) == 413
    assert told(client, "/reconciliation/new/", 1 << 40) == 413, "it bounds what it takes by itself"


def test_a_form_without_a_length_is_refused() -> None:
    answer = Client(enforce_csrf_checks=True).generic(
        "POST", "/login/", b"", "text/plain", CONTENT_LENGTH="", HTTP_TRANSFER_ENCODING="chunked"
    )
    assert answer.status_code == 411
