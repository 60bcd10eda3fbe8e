"""What people see when something is not there, not allowed, or broken."""

from __future__ import annotations

import logging

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import resolve
from lxml import html

from messaging.overview import pages
from rmhub.roles import Role
from tests.messaging.console.scenes import browser

pytestmark = pytest.mark.django_db


def _words(answer: HttpResponse) -> str:
    page = html.fromstring(answer.content)
    assert len(page.xpath("//h1")) == 1
    assert page.xpath("//a[@href='/']")
    return " ".join(page.text_content().split())


def test_what_is_not_there_is_named_with_the_requests_id() -> None:
    answer = browser().get("/pairs/NOPE/", headers={"X-Request-Id": "req-42"})
    assert answer.status_code == 404
    assert "There is no pair NOPE." in _words(answer)
    assert "Request req-42" in _words(answer)
    assert "Check the address" in _words(Client().get("/no/such/page"))


def test_what_the_address_says_is_escaped() -> None:
    assert b"<script>" not in browser().get("/pairs/<script>alert(1)<script>/").content


def test_a_mistake_of_ours_is_said_without_its_details(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(pages, "overview", broken)
    client = browser()
    client.raise_request_exception = False
    with caplog.at_level(logging.CRITICAL):
        answer = client.get("/")
    assert answer.status_code == 500
    assert "The hub failed" in _words(answer)
    assert b"secret detail" not in answer.content


def test_another_host_name_is_refused_with_a_page(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        answer = Client().get("/", HTTP_HOST="evil.example")
    assert answer.status_code == 400
    assert "This request cannot be read" in _words(answer)


def test_a_form_that_is_too_old_says_that_nothing_was_changed() -> None:
    answer = browser(Role.ADMIN, csrf=True).post("/logout/")
    assert answer.status_code == 403
    assert "Nothing was changed." in _words(answer)


def test_links_to_other_parts_of_the_hub_lead_somewhere() -> None:
    assert b'href="/api/v1/docs"' in browser().get("/").content
    assert resolve("/api/v1/docs")
