"""Invitations go out by mail where the hub has a mail server; when that fails, the link is shown."""

from __future__ import annotations

import smtplib
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.test import Client
from django.utils.translation import trans_real
from lxml import html

from messaging.models import AuditEntry, Preference
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.scenes import browser
from tests.messaging.console.test_languages import Marking

pytestmark = pytest.mark.django_db
PERSON = {"username": "bob", "full_name": "Bob", "email": "bob@hub.test", "role": "viewer"}


@pytest.fixture
def relay(settings: Any) -> None:
    settings.RMHUB_MAIL_SERVER = "smtp://mail.hub.test"
    settings.RMHUB_MAIL_FROM = "hub@hub.test"
    settings.RMHUB_PUBLIC_URL = "https://hub.test"


def created(page: Client, **more: str) -> Any:
    form = html.fromstring(page.get("/users/new/").content)
    return page.post("/users/new/", {**PERSON, "once": form.xpath("//input[@name='once']/@value")[0], **more})


@pytest.mark.usefixtures("relay")
def test_the_invitation_is_mailed_and_sets_the_password() -> None:
    answer = created(browser(Role.ADMIN), mail="on")
    assert answer["Location"] == "/users/bob/"
    [sent] = mail.outbox
    assert (sent.to, sent.from_email) == (["bob@hub.test"], "hub@hub.test")
    assert "Your user name: bob" in str(sent.body)
    [link] = [line for line in str(sent.body).splitlines() if line.startswith("https://hub.test/")]
    password = "correct horse battery staple"
    done = Client().post(link.removeprefix("https://hub.test"), {"new_password1": password, "new_password2": password})
    assert done.status_code == 303
    assert User.objects.get(username="bob").check_password(password)
    entry = AuditEntry.objects.get(verb="user.mail_invitation")
    assert entry.after == {"sent": True, "error": ""}
    assert not AuditEntry.objects.filter(after__icontains=link.rstrip("/").rpartition("/")[2]).exists()


@pytest.mark.usefixtures("relay")
def test_when_the_mail_server_refuses_the_link_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise smtplib.SMTPRecipientsRefused({"bob@hub.test": (550, b"no such user")})

    monkeypatch.setattr(EmailBackend, "send_messages", refuse)
    shown = created(browser(Role.ADMIN), mail="on").content.decode()
    assert "The mail server refused the recipients (bob@hub.test: 550)." in shown
    assert 'data-testid="invitation"' in shown


def test_without_a_mail_server_nothing_is_offered() -> None:
    page = browser(Role.ADMIN)
    assert 'name="mail"' not in page.get("/users/new/").content.decode()
    assert 'data-testid="invitation"' in created(page).content.decode()


@pytest.mark.usefixtures("relay")
def test_the_api_mails_it_too_and_a_new_one() -> None:
    api = Api(make_token(make_user(Role.ADMIN)))
    made = api.post("/users", {**PERSON, "mail": True}).json
    assert (made["invitation"], made["mail_error"], len(mail.outbox)) == (None, "", 1)
    again = api.post("/users/bob/invite", {}).json
    assert again["invitation"].startswith("https://hub.test/")
    assert len(mail.outbox) == 1
    api.patch("/users/bob", {"email": "", "reason": "has left"})
    none = api.post("/users/bob/invite", {"mail": True}).json
    assert none["mail_error"] == "bob has no mail address."
    assert none["invitation"].startswith("https://hub.test/")


@pytest.mark.usefixtures("relay")
def test_an_invitation_is_in_the_language_of_its_reader(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setitem(trans_real._translations, "de", Marking("de"))  # type: ignore[attr-defined]
    bob = make_user(Role.VIEWER, "bob")
    settings.RMHUB_LANGUAGE = "de"
    bob.email = "bob@hub.test"
    page = browser(Role.ADMIN)
    bob.save()
    form = html.fromstring(page.get("/users/bob/invite/").content)
    page.post("/users/bob/invite/", {"once": form.xpath("//input[@name='once']/@value")[0], "mail": "on"})
    Preference.objects.create(user=bob, language="en-gb")
    form = html.fromstring(page.get("/users/bob/invite/").content)
    page.post("/users/bob/invite/", {"once": form.xpath("//input[@name='once']/@value")[0], "mail": "on"})
    hub = settings.RMHUB_NAME
    assert [sent.subject for sent in mail.outbox] == [f"⟦Your access to {hub}⟧", f"Your access to {hub}"]
