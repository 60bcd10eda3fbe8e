"""Log-in, log-out, password and theme."""

from __future__ import annotations

import pytest
from django.test import Client
from lxml import html

from messaging.access.services import preferences
from messaging.entrance import throttling
from messaging.exceptions import InvalidSubmission
from messaging.models import AuditEntry
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import PASSWORD, browser, user

pytestmark = pytest.mark.django_db


def _log_in(client: Client, name: str = "ana", password: str = PASSWORD, **more: str) -> int:
    return client.post("/login/", {"username": name, "password": password, **more}).status_code


def test_the_right_password_opens_the_page_that_was_wanted() -> None:
    user(Role.VIEWER, "ana")
    client = Client()
    wanted = client.get("/pairs/?state=suspended")["Location"]
    page = html.fromstring(client.get(wanted).content)
    after = page.xpath("//input[@name='next']/@value")[0]
    answer = client.post("/login/", {"username": "ana", "password": PASSWORD, "next": after})
    assert (answer.status_code, answer["Location"]) == (303, "/pairs/?state=suspended")
    assert client.get("/login/").status_code == 303


@pytest.mark.parametrize(
    "where", ["https://evil.example/", "//evil.example", "javascript:alert(1)", "\\\\evil.ex", "users"]
)
def test_nobody_is_sent_to_another_site(where: str) -> None:
    user(Role.VIEWER, "ana")
    answer = Client().post("/login/", {"username": "ana", "password": PASSWORD, "next": where})
    assert answer["Location"] == "/"
    assert Client().post("/theme/", {"theme": "dark", "next": where})["Location"] == "/"


def test_a_wrong_password_tells_nothing_about_the_name() -> None:
    user(Role.VIEWER, "ana")
    answers = []
    for name in ("ana", "nobody"):
        client = Client()
        answer = client.post("/login/", {"username": name, "password": "wrong"})
        assert answer.status_code == 422
        answers.append(html.fromstring(answer.content).get_element_by_id("login-problem").text_content())
    assert answers[0] == answers[1]


def test_guessing_becomes_slow_and_the_right_password_works_after_the_wait(time: FrozenClock) -> None:
    user(Role.VIEWER, "ana")
    client = Client()
    statuses = [_log_in(client, password=f"guess {number}") for number in range(throttling.FREE)]
    assert statuses == [422] * (throttling.FREE - 1) + [429]
    assert _log_in(client) == 429, "the right password must not work during the wait: it would tell that it is right"
    assert _log_in(Client(REMOTE_ADDR="10.9.9.9")) == 303, "the owner elsewhere is not locked out"
    answer = client.post("/login/", {"username": "ANA", "password": "x"})
    assert answer.status_code == 429
    assert answer["Retry-After"] == str(throttling.FIRST_WAIT)
    time.move(throttling.FIRST_WAIT + 1)
    assert _log_in(client) == 303


def test_the_wait_doubles_and_has_an_end(time: FrozenClock) -> None:
    for _ in range(throttling.FREE + 20):
        while throttling.attempt("ana", "10.0.0.1"):
            time.move(throttling.wait_for("ana", "10.0.0.1"))
    assert throttling.wait_for("ana", "10.0.0.1") == throttling.LONGEST_WAIT
    assert throttling.wait_for("ana", "10.0.0.2") == 0


def test_logging_out_ends_the_session() -> None:
    client = browser(Role.VIEWER)
    assert client.get("/logout/").status_code == 405
    assert client.get("/").status_code == 200
    assert client.post("/logout/")["Location"] == "/login/"
    assert client.get("/").status_code == 302


def test_ones_own_password_is_changed_and_other_sessions_end(time: FrozenClock) -> None:
    client, other = browser(Role.VIEWER, "ana"), Client()
    _log_in(other)
    wrong = {"old_password": "wrong", "new_password1": "a new long password", "new_password2": "a new long password"}
    assert client.post("/password/", wrong).status_code == 422
    short = {"old_password": PASSWORD, "new_password1": "short", "new_password2": "short"}
    assert client.post("/password/", short).status_code == 422
    good = {**wrong, "old_password": PASSWORD}
    assert client.post("/password/", good).status_code == 303
    assert client.get("/").status_code == 200
    assert other.get("/").status_code == 302
    assert _log_in(Client(), password="a new long password") == 303
    entry = AuditEntry.objects.get(verb="user.change_password")
    assert entry.actor == "ana"
    assert "a new long" not in str(entry.before) + str(entry.after) + entry.reason


def test_guesses_at_the_present_password_are_slowed_down_too(time: FrozenClock) -> None:
    client = browser(Role.VIEWER, "ana")
    given = {"old_password": "wrong", "new_password1": "a new long password", "new_password2": "a new long password"}
    for _ in range(throttling.FREE):
        client.post("/password/", given)
    assert "Too many attempts" in client.post("/password/", {**given, "old_password": PASSWORD}).content.decode()


def test_the_theme_is_kept_and_follows_the_system_until_then() -> None:
    client = browser(Role.VIEWER)
    assert html.fromstring(client.get("/").content).get("data-bs-theme") == "auto"
    here = "/pairs/?state=paused"
    assert client.post("/theme/", {"theme": "dark", "next": here})["Location"] == here
    assert html.fromstring(client.get("/").content).get("data-bs-theme") == "dark"
    client.post("/theme/", {"theme": "pink"})
    assert html.fromstring(client.get("/").content).get("data-bs-theme") == "dark"
    client.cookies["rmhub_theme"] = "'><script>"
    assert html.fromstring(client.get("/").content).get("data-bs-theme") == "auto"


def test_names_and_passwords_of_any_size_and_sign_are_no_error() -> None:
    for name in ("", "\x00", "x" * 5000, "a\ud800".encode("utf-8", "replace").decode()):
        assert _log_in(Client(), name=name) in (422, 429)
        assert _log_in(Client(), password=name) in (422, 429)


@pytest.mark.parametrize("zone", ["UTC", "local", "Europe/Berlin"])
def test_times_are_shown_in_the_zone_that_is_chosen(zone: str) -> None:
    assert preferences.preference_update(user=user(Role.VIEWER, "ana"), zone=zone).zone == zone


def test_a_zone_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidSubmission) as caught:
        preferences.preference_update(user=user(Role.VIEWER, "ana"), zone="Berlin")
    assert list(caught.value.errors) == ["zone"]


def test_the_next_page_is_in_the_language_that_is_chosen() -> None:
    client = browser(Role.VIEWER)
    form = html.fromstring(client.get("/preferences/", headers={"Accept-Language": "fr"}).content)
    assert form.get("lang") == "fr"
    chosen = [one.get("value") for one in form.xpath("//input[@name='language'][@checked]")]
    assert chosen == [""], "the browser's"
    assert form.xpath("//fieldset[@id='field-language']//span/@lang") == ["en-gb", "de", "fr"]
    assert client.post("/preferences/", {"zone": "UTC", "language": "de"}).status_code == 303
    page = html.fromstring(client.get("/preferences/", headers={"Accept-Language": "fr"}).content)
    assert page.get("lang") == "de"
    assert page.xpath("//input[@name='language'][@checked]/@value") == ["de"]
    assert html.fromstring(client.get("/").content).get("lang") == "de"
    assert client.post("/preferences/", {"zone": "UTC", "language": ""}).status_code == 303
    assert html.fromstring(client.get("/", headers={"Accept-Language": "fr"}).content).get("lang") == "fr"
    assert client.post("/preferences/", {"zone": "UTC", "language": "tlh"}).status_code == 422


def test_a_language_that_nobody_speaks_is_refused() -> None:
    with pytest.raises(InvalidSubmission) as caught:
        preferences.preference_update(user=user(Role.VIEWER, "ana"), language="Klingon")
    assert list(caught.value.errors) == ["language"]
