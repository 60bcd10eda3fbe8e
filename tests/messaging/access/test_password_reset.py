"""A forgotten password: the link goes by mail to the user, and whoever asked learns nothing."""

from __future__ import annotations

import smtplib
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.test import Client
from django.utils.translation import get_language, trans_real

from messaging import dispatch
from messaging.access.services import password_resets
from messaging.engine.looking import look
from messaging.models import AuditEntry, LoginThrottle, OpenIdAccount, PasswordReset, Preference
from messaging.tasks import notifications_due
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.api.client import make_user
from tests.messaging.console.test_languages import Marking

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery staple"
PAGE = "/login/reset/"


@pytest.fixture(autouse=True)
def relay(settings: Any) -> None:
    settings.RMHUB_MAIL_SERVER = "smtp://mail.hub.test"
    settings.RMHUB_MAIL_FROM = "hub@hub.test"
    settings.RMHUB_PUBLIC_URL = "https://hub.test"


@pytest.fixture
def ana() -> User:
    user = make_user(Role.OPERATOR)
    user.email = "ana@hub.test"
    user.save()
    return user


def ask(who: str) -> str:
    answer = Client().post(PAGE, {"who": who})
    assert answer.status_code == 200
    return answer.content.decode()


def links() -> list[str]:
    return [
        line.removeprefix("https://hub.test")
        for sent in mail.outbox
        for line in str(sent.body).splitlines()
        if line.startswith("https://hub.test/")
    ]


def test_the_link_sets_a_new_password_once(ana: User) -> None:
    assert 'href="/login/reset/"' in Client().get("/login/").content.decode()
    ask("ana@HUB.test")
    assert dispatch.NOTIFICATIONS in look(1)
    notifications_due()
    assert dispatch.NOTIFICATIONS not in look(1)
    [link] = links()
    assert mail.outbox[0].to == ["ana@hub.test"]
    assert User.objects.get(pk=ana.pk).password == ana.password
    given = {"new_password1": PASSWORD, "new_password2": PASSWORD}
    assert Client().post(link, given).status_code == 303
    assert User.objects.get(pk=ana.pk).check_password(PASSWORD)
    used = Client().post(link, given)
    assert used.status_code == 410
    assert 'href="/login/reset/"' in used.content.decode()
    entry = AuditEntry.objects.get(verb="user.mail_reset")
    assert (entry.actor, entry.address, entry.after) == ("system", "127.0.0.1", {"sent": True, "error": ""})
    assert not AuditEntry.objects.filter(after__icontains=link.rstrip("/").rpartition("/")[2]).exists()


def test_a_stranger_gets_the_same_answer_and_no_mail(ana: User) -> None:
    known, unknown = ask(ana.username), ask("eve@hub.test")
    assert known.replace(ana.username, "X") == unknown.replace("eve@hub.test", "X")
    assert PasswordReset.objects.count() == 2
    password_resets.send_due()
    assert [sent.to for sent in mail.outbox] == [["ana@hub.test"]]
    assert not PasswordReset.objects.exists()


@pytest.mark.parametrize("change", ["off", "without mail", "single sign-on"])
def test_whoever_cannot_log_in_by_password_gets_none(ana: User, change: str) -> None:
    if change == "off":
        User.objects.update(is_active=False)
    elif change == "without mail":
        User.objects.update(email="")
    else:
        OpenIdAccount.objects.create(issuer="https://idp.test", subject="1", user=ana, created_at=clock.now())
    ask(ana.username)
    password_resets.send_due()
    assert not mail.outbox


def test_others_cannot_fill_a_mailbox(ana: User, time: FrozenClock) -> None:
    for _ in range(5):
        ask(ana.username)
        password_resets.send_due()
        LoginThrottle.objects.all().delete()
    assert len(mail.outbox) == password_resets.MOST_AN_HOUR
    time.move(3601)
    ask(ana.username)
    password_resets.send_due()
    assert len(mail.outbox) == password_resets.MOST_AN_HOUR + 1


def test_asking_again_and_again_is_slowed_down_and_the_log_in_is_not(ana: User) -> None:
    for _ in range(5):
        ask(ana.username)
    answer = Client().post(PAGE, {"who": ana.username})
    assert answer.status_code == 429
    assert int(answer["Retry-After"]) > 0
    assert PasswordReset.objects.count() == 1
    ana.set_password(PASSWORD)
    ana.save()
    assert Client().post("/login/", {"username": ana.username, "password": PASSWORD}).status_code == 303


def test_a_mail_server_that_refuses_is_asked_again(
    ana: User, time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise smtplib.SMTPServerDisconnected("gone")

    ask(ana.username)
    with monkeypatch.context() as broken:
        broken.setattr(EmailBackend, "send_messages", refuse)
        password_resets.send_due()
    assert AuditEntry.objects.get(verb="user.mail_reset").after["sent"] is False
    time.move(61)
    password_resets.send_due()
    assert [sent.to for sent in mail.outbox] == [["ana@hub.test"]]
    assert not PasswordReset.objects.exists()


def test_a_mail_server_that_never_takes_it_is_left_alone_in_the_end(
    ana: User, time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise smtplib.SMTPServerDisconnected("gone")

    monkeypatch.setattr(EmailBackend, "send_messages", refuse)
    ask(ana.username)
    for _ in range(6):
        password_resets.send_due()
        time.move(2000)
    assert not PasswordReset.objects.exists()
    assert AuditEntry.objects.filter(verb="user.mail_reset").count() == len(password_resets.SCHEDULE) + 1


@pytest.mark.parametrize("text", ["", "   ", "a\x00b"])
def test_what_can_be_no_name_is_refused_beside_the_field(text: str) -> None:
    answer = Client().post(PAGE, {"who": text})
    assert answer.status_code == 422
    assert 'href="#field-who"' in answer.content.decode()
    assert not PasswordReset.objects.exists()


def test_without_a_mail_server_the_page_says_whom_to_ask(settings: Any) -> None:
    settings.RMHUB_MAIL_SERVER = ""
    shown = Client().get(PAGE).content.decode()
    assert "This hub cannot send mail" in shown
    Client().post(PAGE, {"who": "ana"})
    assert not PasswordReset.objects.exists()


@pytest.mark.parametrize(("own", "hub"), [("de", "en-gb"), ("", "de")])
def test_the_mail_is_in_the_language_of_its_reader_else_of_the_hub(
    monkeypatch: pytest.MonkeyPatch, settings: Any, ana: User, own: str, hub: str
) -> None:
    monkeypatch.setitem(trans_real._translations, "de", Marking("de"))  # type: ignore[attr-defined]
    settings.RMHUB_LANGUAGE = hub
    Preference.objects.create(user=ana, language=own)
    ask(ana.username)
    notifications_due()
    [sent] = mail.outbox
    assert sent.subject == f"⟦Your password for {settings.RMHUB_NAME}⟧"
    assert f"⟦Your user name: {ana.username}⟧\n⟦Set a new password here:⟧\n\n" in str(sent.body)
    assert links(), "the link stands on a line of its own"
    assert get_language() == "en-gb"
