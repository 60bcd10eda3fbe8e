"""Pollers: the list, the page that says what is in the way, the form, and the verbs."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from lxml import html

from messaging.models import AuditEntry, PollerState
from messaging.pollers.services import pollers
from messaging.pollers.services.collecting import Found
from partners import secrets
from partners.models import Party, Poller
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import browser, folder
from tests.messaging.factories import PartnerSide, partner_side

pytestmark = pytest.mark.django_db
KEY = "SHA256:" + "b" * 43


@pytest.fixture
def partner(time: FrozenClock) -> PartnerSide:
    return partner_side()


def _page(client: Client, url: str) -> html.HtmlElement:
    return html.fromstring(client.get(url).content)


def _words(client: Client, url: str) -> str:
    return " ".join(_page(client, url).get_element_by_id("main").text_content().split())


def _filled(page: html.HtmlElement) -> dict[str, str]:
    """What a browser would post from the form as it is shown."""
    form = page.xpath("//form[contains(@class, 'trigger-form')]")[0]
    return {name: value for name, value in form.form_values() if name != "csrfmiddlewaretoken"}


def _new(client: Client, **changes: str) -> Any:
    page = _page(client, "/pollers/new/")
    ours = page.xpath("//select[@name='endpoint']/option[@value!='']/@value")[0]
    given = {
        "name": "Globex",
        "kind": "sftp",
        "url": "sftp://files.globex.example/to-us/",
        "endpoint": ours,
        "partner": Party.objects.get(is_own=False).name.upper(),
        "username": "hub",
        "password": "their password",
        "host_key": KEY,
        "reason": "go-live",
    }
    return client.post("/pollers/new/", _filled(page) | given | changes)


def test_a_new_folder(partner: PartnerSide) -> None:
    client = browser(Role.ADMIN)
    answer = _new(client)
    made = Poller.objects.get()
    assert (answer.status_code, answer["Location"]) == (303, f"/pollers/{made.public_id}/")
    assert secrets.decrypt(made.secret_encrypted) == "their password"
    assert (made.interval, made.enabled, made.partner) == (30, True, partner.outbound.partner)
    words = _words(client, answer["Location"])
    assert "It has not been polled yet." in words and "their password" not in words


def test_what_is_wrong_stands_beside_its_field_and_the_secret_does_not_come_back(partner: PartnerSide) -> None:
    client = browser(Role.ADMIN)
    answer = _new(client, host_key="", url="sftp://files.globex.example/a/../b/")
    assert answer.status_code == 422 and b"their password" not in answer.content
    page = html.fromstring(answer.content)
    for field in ("host_key", "url"):
        assert page.get_element_by_id(f"field-{field}_error").text_content().strip()
    assert page.get_element_by_id("field-name").value == "Globex"
    assert not Poller.objects.exists()
    key = _new(client, secret_kind="ssh_key", private_key="no key")
    assert (
        "not a private key" in html.fromstring(key.content).get_element_by_id("field-private_key_error").text_content()
    )


def test_a_partner_that_there_is_not_is_said_with_those_that_may_be_meant(partner: PartnerSide) -> None:
    name = Party.objects.get(is_own=False).name
    answer = _new(browser(Role.ADMIN), partner=name[:-1] + "x")
    assert answer.status_code == 422
    said = html.fromstring(answer.content).get_element_by_id("field-partner_error").text_content()
    assert said.split() == f"No partner is called {name[:-1]}x. Did you mean {name}?".split()


def test_a_mailbox_leaves_out_what_only_folders_have(partner: PartnerSide) -> None:
    client = browser(Role.ADMIN)
    mail = {"kind": "imap", "url": "imaps://mail.us.example/INBOX", "trusted_checker": "mx.us.example"}
    assert _new(client, **mail).status_code == 303
    made = Poller.objects.get()
    assert (made.partner, made.host_key, made.trusted_checker) == (None, "", "mx.us.example")


def test_a_change_keeps_the_secret(partner: PartnerSide) -> None:
    client, made = browser(Role.ADMIN), folder(partner)
    url = f"/pollers/{made.public_id}/edit/"
    page = _page(client, url)
    assert b"kept-secret" not in client.get(url).content
    given = _filled(page) | {"interval": "2 m", "reason": "less load"}
    assert client.post(url, given).status_code == 303
    changed = Poller.objects.get()
    assert (changed.interval, secrets.decrypt(changed.secret_encrypted)) == (120, "kept-secret")
    stale = client.post(url, given | {"interval": "3 m"})
    assert stale.status_code == 409 and Poller.objects.get().interval == 120
    elsewhere = client.post(url, _filled(_page(client, url)) | {"host_key": KEY, "reason": "new server"})
    assert elsewhere.status_code == 422
    assert "again" in html.fromstring(elsewhere.content).get_element_by_id("field-password_error").text_content()


def test_the_page_says_what_is_in_the_way_and_what_to_do(partner: PartnerSide) -> None:
    client, made = browser(Role.VIEWER), folder(partner)
    words = _words(client, f"/pollers/{made.public_id}/")
    assert (
        "The last poll failed 0 s ago. The server refused the connection" in words
        and "Ask the server's operator" in words
    )
    assert "[Errno 111] Connection refused" in words and "kept-secret" not in words
    assert "Needs the role operator." in words and "Needs the role admin." in words
    listed = _words(client, "/pollers/")
    assert "Unreachable" in listed and made.name in listed and "Connection refused" in listed


def test_the_page_when_all_is_well(partner: PartnerSide, time: FrozenClock) -> None:
    client, made = browser(Role.VIEWER), folder(partner)
    time.move(3600)
    (job,) = pollers.claim_due(1)
    pollers.record([(job, Found(taken=1234))])
    time.move(20)
    words = _words(client, f"/pollers/{made.public_id}/")
    assert "The poll 20 s ago could read it, and took what was there." in words and "1,234" in words


def test_what_was_entered_since_the_look_that_failed_comes_first(partner: PartnerSide, time: FrozenClock) -> None:
    client, made = browser(Role.VIEWER), folder(partner)
    PollerState.objects.update(last_looked_at=clock.now(), failures=3)
    Poller.objects.update(updated_at=clock.now())
    time.move(40)
    words = _words(client, f"/pollers/{made.public_id}/")
    assert "The last 3 polls failed, the last one 40 s ago. The server refused the connection" in words
    Poller.objects.update(updated_at=clock.now())
    time.move(10)
    words = _words(client, f"/pollers/{made.public_id}/")
    assert "Its settings were changed 10 s ago, and no poll has ended since. Before: The server refused" in words
    assert "Ask the server's operator" not in words and "Wait for the next poll" in words
    assert "changed since" in _words(client, "/pollers/")


def test_a_look_that_nobody_makes_is_said_to_be_late(partner: PartnerSide, time: FrozenClock) -> None:
    client, made = browser(Role.VIEWER), folder(partner)
    time.move(3600)
    (job,) = pollers.claim_due(1)
    pollers.record([(job, Found())])
    time.move(made.interval + 59)
    assert "workers" not in _words(client, f"/pollers/{made.public_id}/")
    time.move(7200)
    words = _words(client, f"/pollers/{made.public_id}/")
    assert "This was due 2 h ago: the hub's workers are not doing their work." in words
    assert "The poll 2 h 1 m ago could read it" in words and "It can be read" not in words
    assert "due" in _words(client, "/pollers/")
    PollerState.objects.update(due_at=None)
    assert "The current poll" not in _words(client, f"/pollers/{made.public_id}/")


def test_look_now(partner: PartnerSide, time: FrozenClock, woken: list[str]) -> None:
    client, made = browser(Role.OPERATOR), folder(partner)
    url = f"/pollers/{made.public_id}/actions/look/"
    given = dict(_page(client, url).xpath("//main//form")[-1].form_values())
    assert client.post(url, given | {"reason": ""}).status_code == 422
    assert client.post(url, given | {"reason": "the partner called"}).status_code == 303
    assert len(pollers.claim_due(1)) == 1
    assert AuditEntry.objects.order_by("-id")[0].verb == "poller.look"


def test_switch_off_and_delete(partner: PartnerSide) -> None:
    client, made = browser(Role.ADMIN), folder(partner)
    base = f"/pollers/{made.public_id}"
    for verb in ("disable", "enable", "delete"):
        url = f"{base}/actions/{verb}/"
        given = dict(_page(client, url).xpath("//main//form")[-1].form_values())
        answer = client.post(url, given | {"reason": "because"})
        assert answer.status_code == 303, verb
        if verb != "delete":
            assert Poller.objects.get().enabled is (verb == "enable")
            assert "not possible now" in _words(client, url)
    assert answer["Location"] == "/pollers/"
    assert not Poller.objects.exists() and not PollerState.objects.exists()
    assert client.get(f"{base}/").status_code == 404


def test_the_page_says_in_words_that_no_look_has_succeeded(partner: PartnerSide) -> None:
    client, poller = browser(), folder(partner)
    words = _words(client, f"/pollers/{poller.public_id}/")
    assert "No poll has succeeded yet. The next poll is" in words
    Poller.objects.filter(pk=poller.pk).update(enabled=False)
    assert "The next poll" not in _words(client, f"/pollers/{poller.public_id}/")
    PollerState.objects.filter(poller_id=poller.pk).update(last_success_at=clock.now())
    assert "Last success 0 s ago." in _words(client, f"/pollers/{poller.public_id}/")
