"""Users, partner groups, sessions, invitations and the second factor, as people use them in the console."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pyotp
import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from lxml import html

from messaging.access.services import second_factor, sessions
from messaging.entrance import throttling
from messaging.models import Access, AuditEntry, LoginThrottle, SecondFactor, UserSession
from messaging.templatetags.hub import browser as browser_name
from partners import selectors
from partners.models import PartnerGroup, Party
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role, role_of
from tests.messaging.console.scenes import PASSWORD, browser, user
from tests.messaging.factories import partner_side
from tests.partners.factories import make_party

pytestmark = pytest.mark.django_db
NEW = "a new long password"


def _log_in(name: str, password: str = PASSWORD, client: Client | None = None, **more: str) -> Client:
    client = client or Client(**more)  # type: ignore[arg-type]
    answer = client.post("/login/", {"username": name, "password": password})
    assert answer.status_code == 303, answer.content[:500]
    return client


def _once(client: Client, url: str) -> str:
    return str(html.fromstring(client.get(url).content).xpath("//input[@name='once']/@value")[0])


def _by_testid(content: bytes, name: str) -> list[str]:
    return [one.text_content().strip() for one in html.fromstring(content).xpath(f"//*[@data-testid='{name}']")]


@pytest.fixture
def admin() -> Client:
    return browser(Role.ADMIN, "boss")


def test_users_sort_by_name_and_by_their_last_log_in(admin: Client) -> None:
    browser(Role.VIEWER, "ana")
    User.objects.filter(username="ana").update(last_login=None)
    User.objects.filter(username="boss").update(last_login=clock.now())

    def listed(query: str) -> list[str]:
        rows = html.fromstring(admin.get(f"/users/{query}").content).xpath("//main//tbody/tr/td[1]/a/text()")
        return [str(row) for row in rows]

    assert listed("") == ["ana", "boss"]
    assert listed("?sort=-name") == ["boss", "ana"] == listed("?sort=-seen")
    assert listed("?sort=seen") == ["ana", "boss"]


def test_an_admin_makes_a_user_who_sets_a_password_and_works(admin: Client) -> None:
    group = PartnerGroup.objects.create(name="North")
    given = {
        "once": _once(admin, "/users/new/"),
        "username": "ana",
        "full_name": "Ana Lopez",
        "role": "operator",
        "limited": "on",
        "groups": group.public_id,
    }
    made = admin.post("/users/new/", given)
    assert made.status_code == 200
    (link,) = _by_testid(made.content, "invitation")
    assert admin.post("/users/new/", given).status_code == 303, "a reload makes nobody, and shows nothing again"
    path = link.partition("127.0.0.1:8000")[2]
    stranger = Client()
    assert b"ana" in stranger.get(path).content
    short = stranger.post(path, {"new_password1": "short", "new_password2": "short"})
    assert short.status_code == 422
    assert stranger.post(path, {"new_password1": NEW, "new_password2": NEW})["Location"] == "/login/"
    assert stranger.get(path).status_code == 410, "it works once"
    ana = _log_in("ana", NEW)
    assert ana.get("/pairs/").status_code == 200
    assert ana.get("/users/").status_code == 403
    assert Access.objects.get(user__username="ana").limited
    verbs = set(AuditEntry.objects.filter(object_name="ana").values_list("verb", flat=True))
    assert verbs >= {"user.create", "user.accept_invitation", "user.login"}


def test_a_change_of_role_holds_from_the_next_click(admin: Client) -> None:
    ana = browser(Role.VIEWER, "ana")
    assert ana.get("/users/").status_code == 403
    given = {"role": "admin", "reason": "helps out"}
    assert admin.post("/users/ana/edit/", given).status_code == 303
    assert ana.get("/users/").status_code == 200
    assert role_of(User.objects.get(username="ana")) == Role.ADMIN
    entry = AuditEntry.objects.get(verb="user.change")
    assert (entry.before, entry.after) == ({"role": "viewer"}, {"role": "admin"})
    assert admin.post("/users/ana/edit/", {"role": "viewer", "reason": ""}).status_code == 422


def test_one_admin_who_sees_everything_always_remains(admin: Client) -> None:
    for given in ({"role": "viewer"}, {"role": "admin", "limited": "on"}):
        refused = admin.post("/users/boss/edit/", {**given, "reason": "going away"})
        assert refused.status_code == 409
        assert b"last admin" in refused.content
    assert admin.post("/users/boss/actions/switch-off/", {"reason": "going away"}).status_code == 409
    user(Role.ADMIN, "second")
    assert admin.post("/users/boss/edit/", {"role": "viewer", "reason": "going away"}).status_code == 303


def test_whoever_is_switched_off_is_out_everywhere(admin: Client) -> None:
    user(Role.VIEWER, "ana")
    ana = _log_in("ana")
    assert admin.post("/users/ana/actions/switch-off/", {"reason": "left us"}).status_code == 303
    assert ana.get("/").status_code == 302
    assert not UserSession.objects.filter(user__username="ana").exists()
    assert Client().post("/login/", {"username": "ana", "password": PASSWORD}).status_code == 422
    assert admin.post("/users/ana/actions/switch-on/", {"reason": "is back"}).status_code == 303
    _log_in("ana")


def test_names_that_cannot_be(admin: Client) -> None:
    user(Role.VIEWER, "ana")
    for name in ("", "ana", "ANA", "new", "a b", "x" * 200):
        given = {"once": _once(admin, "/users/new/"), "username": name, "role": "viewer"}
        assert admin.post("/users/new/", given).status_code == 422, name
    assert admin.get("/users/nobody/").status_code == 404


def test_a_new_invitation_for_a_forgotten_password(admin: Client) -> None:
    user(Role.VIEWER, "ana")
    made = admin.post("/users/ana/invite/", {"once": _once(admin, "/users/ana/invite/")})
    (link,) = _by_testid(made.content, "invitation")
    _log_in("ana")  # the old password works until then; a log-in makes the link worthless
    assert Client().get(re.sub(r"^https?://[^/]+", "", link)).status_code == 410


def test_groups_of_partners(admin: Client) -> None:
    partner = partner_side().outbound.partner
    made = admin.post("/partner-groups/new/", {"name": "North", "partners": partner.name})
    assert made.status_code == 303
    group = PartnerGroup.objects.get(name="North")
    assert list(group.partners.all()) == [partner]
    assert admin.post("/partner-groups/new/", {"name": "North"}).status_code == 422
    changed = {"name": "South", "partners": "", "reason": "moved"}
    assert admin.post(f"/partner-groups/{group.public_id}/", changed).status_code == 303
    Access.objects.create(user=user(Role.VIEWER, "ana"), limited=True).groups.add(group)
    delete = f"/partner-groups/{group.public_id}/delete/"
    refused = admin.post(delete, {"reason": "not used"})
    assert refused.status_code == 409 and b"ana" in refused.content
    Access.objects.all().delete()
    assert admin.post(delete, {"reason": "not used"}).status_code == 303
    assert not PartnerGroup.objects.exists()


def _given(content: bytes) -> dict[str, str]:
    """What stands in the fields of the form of a group, and what is said beside them."""
    tree = html.fromstring(content)
    (lines,) = tree.xpath("//textarea[@name='partners']")
    (adding,) = tree.xpath("//input[@name='adding']")
    found = {"partners": (lines.text or "").strip(), "adding": adding.get("value", "")}
    for field in (lines, adding):
        told = field.get("aria-describedby").split()[-1]
        texts = tree.xpath(f"//*[@id='{told}']/descendant-or-self::*[contains(@class, 'field-error')]")
        found[f"wrong {field.get('name')}"] = " ".join(text.text_content().strip() for text in texts)
    return found


@pytest.fixture
def parties() -> dict[str, Party]:
    make_party("Ourselves", own=True)
    known = {
        "Contoso": None,
        "contoso": None,
        "Acme & Söhne": None,
        "Fabrikam": [("GLN", "4711")],
        "Northwind": [("DUNS", "123456789"), ("Ours", "4711")],
    }
    return {name: make_party(name, identifiers=identifiers) for name, identifiers in known.items()}


def test_a_member_of_a_group_is_added_and_removed_by_name(admin: Client, parties: dict[str, Party]) -> None:
    """As a browser without JavaScript does it: one after the other, with nothing saved until the end."""
    form = {"name": "North", "partners": "", "reason": "new region", "add": "1"}
    for typed, lines in (
        ("fabrikam", "Fabrikam"),
        ("DUNS: 123456789", "Fabrikam\nNorthwind"),
        ("Fabrikam", "Fabrikam\nNorthwind"),
        (parties["Contoso"].public_id, "Fabrikam\nNorthwind\nContoso"),
    ):
        shown = admin.post("/partner-groups/new/", {**form, "adding": typed})
        given = _given(shown.content)
        assert (shown.status_code, given["partners"], given["adding"]) == (200, lines, "")
        assert len(_by_testid(shown.content, "added")) == 1
        form["partners"] = given["partners"].replace("\n", "\r\n")
    assert not PartnerGroup.objects.exists(), "nothing is saved before it is saved"
    del form["add"]
    # What was typed and not added yet counts too.
    assert admin.post("/partner-groups/new/", {**form, "adding": "Acme & Söhne"}).status_code == 303
    group = PartnerGroup.objects.get()
    members = {parties[name] for name in ("Fabrikam", "Northwind", "Contoso", "Acme & Söhne")}
    assert set(group.partners.all()) == members
    # Who is archived stays a member whoever saves the form.
    Party.objects.filter(name="Fabrikam").update(archived_at=clock.now())
    path = f"/partner-groups/{group.public_id}/"
    given = _given(admin.get(path).content)
    assert given["partners"] == "Acme & Söhne\nContoso\nFabrikam\nNorthwind"
    kept = given["partners"].replace("Contoso\n", "")
    assert admin.post(path, {"name": "North", "partners": kept, "reason": "moved"}).status_code == 303
    assert set(group.partners.all()) == members - {parties["Contoso"]}


def test_a_line_that_names_nobody_or_several_is_said_beside_the_field(admin: Client, parties: dict[str, Party]) -> None:
    typed = "Fabrikam\nNorthwnd\nCONTOSO\n4711\nOurselves"
    for button in ({}, {"add": "1"}):
        form = {"name": "North", "partners": typed, "adding": "Fabricam", "reason": "typed", **button}
        refused = admin.post("/partner-groups/new/", form)
        given = _given(refused.content)
        assert refused.status_code == 422
        assert (given["partners"], given["adding"]) == (typed, "Fabricam"), "what was typed is kept"
        said = given["wrong partners"]
        assert "No partner is called Northwnd. Did you mean Northwind?" in said
        assert "CONTOSO means several partners: Contoso, contoso." in said
        assert "4711 means several partners: Fabrikam, Northwind." in said
        assert "No partner is called Ourselves." in said
        assert given["wrong adding"] == "No partner is called Fabricam. Did you mean Fabrikam?"
    nothing = admin.post("/partner-groups/new/", {"name": "North", "partners": "Fabrikam", "add": "1"})
    assert _given(nothing.content)["wrong adding"] == "Type the name of a partner first."
    many = admin.post("/partner-groups/new/", {"name": "North", "partners": "\n".join(f"x{n}" for n in range(12))})
    assert "x4." in _given(many.content)["wrong partners"] and "7 more lines" in _given(many.content)["wrong partners"]
    assert "x5." not in _given(many.content)["wrong partners"]
    assert not PartnerGroup.objects.exists()


def test_a_list_of_partners_costs_the_same_queries_however_long_it_is(admin: Client) -> None:
    counts = []
    for many in (1, 2, 60):
        names = [make_party(f"P{many}-{n}").name for n in range(many)]
        with CaptureQueriesContext(connection) as caught:
            made = admin.post("/partner-groups/new/", {"name": f"Of {many}", "partners": "\n".join(names).lower()})
        assert made.status_code == 303
        counts.append(len(caught))
    assert counts[1] == counts[2]


@pytest.mark.parametrize("text", ["Fabrikam", "fabrikam", "DUNS:123456789", "duns: 123456789", "123456789", "nobody"])
def test_a_name_means_the_same_alone_and_among_many(parties: dict[str, Party], text: str) -> None:
    alone = {party.pk for party in selectors.named(text)}
    assert set(selectors.all_named([text])[text]) == alone


# --- sessions ---


def test_a_session_gets_a_new_key_at_the_log_in() -> None:
    user(Role.VIEWER, "ana")
    client = Client()
    client.get("/login/")
    session = client.session
    session["planted"] = True
    session.save()
    client.cookies["sessionid"] = session.session_key
    before = session.session_key
    _log_in("ana", client=client)
    assert client.session.session_key != before
    assert not Session.objects.filter(session_key=before).exists()


def test_sessions_are_listed_and_ended_one_by_one_and_all(admin: Client) -> None:
    user(Role.VIEWER, "ana")
    here, there = _log_in("ana", HTTP_USER_AGENT="Firefox/1"), _log_in("ana", REMOTE_ADDR="10.0.0.7")
    listed = here.get("/account/").content
    assert len(_by_testid(listed, "session")) == 2
    assert b"10.0.0.7" in listed and b"Firefox/1" in listed and b"This one" in listed
    other = UserSession.objects.get(address="10.0.0.7")
    stranger = browser(Role.VIEWER, "eve")
    stranger.post(f"/account/sessions/{other.public_id}/end/")
    assert there.get("/").status_code == 200, "nobody ends the sessions of others"
    assert here.post(f"/account/sessions/{other.public_id}/end/").status_code == 303
    assert there.get("/").status_code == 302
    there = _log_in("ana")
    here.post("/account/sessions/end/")
    assert (here.get("/").status_code, there.get("/").status_code) == (200, 302)
    assert admin.post("/users/ana/actions/end-sessions/", {"reason": "lost laptop"}).status_code == 303
    assert here.get("/").status_code == 302


def test_a_session_that_nobody_noted_is_noted_when_it_is_used_and_forgotten_when_it_ended() -> None:
    client = browser(Role.VIEWER, "ana")
    client.get("/")
    row = UserSession.objects.get(user__username="ana")
    assert row.method == "session"
    client.post("/logout/")
    assert not UserSession.objects.filter(pk=row.pk).exists()
    _log_in("ana")
    Session.objects.all().delete()
    assert sessions.forget(clock.now().replace(year=2100)) == 1


def test_after_a_change_of_password_this_session_stays_listed() -> None:
    user(Role.VIEWER, "ana")
    client, other = _log_in("ana"), _log_in("ana")
    good = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW}
    assert client.post("/password/", good).status_code == 303
    assert other.get("/").status_code == 302
    assert [row.session_key for row in UserSession.objects.all()] == [client.session.session_key]


# --- throttling ---


def test_misses_count_for_all_web_processes_and_are_forgotten(time: FrozenClock) -> None:
    for _ in range(throttling.FREE):
        throttling.attempt("Ana", "10.0.0.1")
    assert LoginThrottle.objects.get(name="ana", address="10.0.0.1").misses == throttling.FREE
    assert throttling.wait_for("ana", "10.0.0.1") == throttling.FIRST_WAIT
    throttling.succeeded("ana", "10.0.0.1")
    assert throttling.wait_for("ana", "10.0.0.1") == 0
    time.move(3601)
    throttling.attempt("ana", "10.0.0.1")
    assert LoginThrottle.objects.get(address="").misses == 1
    time.move(3601)
    assert throttling.forget(clock.now()) == 3


def test_a_name_that_is_guessed_from_everywhere_waits_but_for_where_its_owner_is_known(time: FrozenClock) -> None:
    user(Role.VIEWER, "ana")
    _log_in("ana", REMOTE_ADDR="192.0.2.1")
    for number in range(throttling.FREE_ANYWHERE):
        throttling.attempt("ana", f"10.0.0.{number}")
    assert throttling.wait_for("ana", "10.9.9.9") == throttling.FIRST_WAIT
    assert throttling.wait_for("ana", "192.0.2.1") == 0
    assert throttling.wait_for("bob", "10.9.9.9") == 0


# --- second factor ---

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _code(secret: str, moved: int = 0) -> str:
    return pyotp.TOTP(secret).at(int(clock.now().timestamp()) + moved)


def _enrolled(client: Client) -> tuple[str, list[str]]:
    """Sets up the factor; (secret, recovery codes)."""
    page = client.get("/account/second-factor/")
    (grouped,) = _by_testid(page.content, "totp-secret")
    assert b"data:image/svg+xml" in page.content
    secret = grouped.replace(" ", "")
    shown = client.post("/account/second-factor/", {"code": _code(secret)})
    assert shown.status_code == 200, shown.content[:300]
    return secret, _by_testid(shown.content, "recovery-code")


def test_a_code_is_asked_for_beside_the_password_and_none_is_taken_twice(time: FrozenClock) -> None:
    user(Role.VIEWER, "ana")
    secret, _ = _enrolled(_log_in("ana"))
    assert secret not in str(bytes(SecondFactor.objects.get().secret_encrypted))
    client = Client()
    asked = client.post("/login/?next=/pairs/", {"username": "ana", "password": PASSWORD})
    assert asked["Location"] == "/login/code/"
    assert client.get("/").status_code == 302, "the password alone opens nothing"
    used = _code(secret)
    assert client.post("/login/code/", {"code": used}).status_code == 422, "that code confirmed the factor"
    time.move(30)
    assert client.post("/login/code/", {"code": _code(secret, -90)}).status_code == 422
    entered = client.post("/login/code/", {"code": f" {_code(secret)[:3]} {_code(secret)[3:]} "})
    assert (entered.status_code, entered["Location"]) == (303, "/pairs/")
    assert UserSession.objects.get(session_key=client.session.session_key).method == "totp"
    again = Client()
    again.post("/login/", {"username": "ana", "password": PASSWORD})
    assert again.post("/login/code/", {"code": _code(secret)}).status_code == 422, "the same code a second time"


def test_a_recovery_code_works_once(time: FrozenClock) -> None:
    user(Role.VIEWER, "ana")
    _, codes = _enrolled(_log_in("ana"))
    assert len(set(codes)) == second_factor.RECOVERY_CODES
    for status in (303, 422):
        client = Client()
        client.post("/login/", {"username": "ana", "password": PASSWORD})
        assert client.post("/login/code/", {"code": codes[0].upper()}).status_code == status
    assert codes[1] not in str(SecondFactor.objects.get().recovery)


def test_codes_are_not_guessed_although_the_password_is_right(time: FrozenClock) -> None:
    user(Role.VIEWER, "ana")
    secret, _ = _enrolled(_log_in("ana"))
    for _ in range(throttling.FREE):
        client = Client()
        client.post("/login/", {"username": "ana", "password": PASSWORD})
        client.post("/login/code/", {"code": "000000"})
    time.move(1)
    assert client.post("/login/code/", {"code": _code(secret, 30)}).status_code == 429
    assert Client().post("/login/", {"username": "ana", "password": PASSWORD}).status_code == 429


def test_an_admin_takes_away_the_factor_of_a_lost_device(admin: Client, time: FrozenClock) -> None:
    user(Role.VIEWER, "ana")
    _enrolled(_log_in("ana"))
    assert admin.post("/users/ana/actions/reset-factor/", {"reason": ""}).status_code == 422
    assert admin.post("/users/ana/actions/reset-factor/", {"reason": "phone lost"}).status_code == 303
    _log_in("ana")
    assert AuditEntry.objects.get(verb="user.reset_second_factor").actor == "boss"


def test_its_owner_changes_it_with_a_code(time: FrozenClock) -> None:
    user(Role.VIEWER, "ana")
    client = _log_in("ana")
    secret, codes = _enrolled(client)
    time.move(30)
    assert client.post("/account/second-factor/codes/", {"code": "000000"}).status_code == 422
    renewed = client.post("/account/second-factor/codes/", {"code": _code(secret)})
    assert set(_by_testid(renewed.content, "recovery-code")).isdisjoint(codes)
    time.move(30)
    assert client.post("/account/second-factor/remove/", {"code": _code(secret)}).status_code == 303
    assert not SecondFactor.objects.exists()


def test_where_it_is_required_nothing_else_opens_before_it_is_set_up(settings: object, time: FrozenClock) -> None:
    settings.RMHUB_REQUIRE_SECOND_FACTOR = True  # type: ignore[attr-defined]
    user(Role.ADMIN, "ana")
    client = _log_in("ana")
    assert client.get("/pairs/")["Location"] == "/account/second-factor/"
    assert client.get("/api/v1/pairs").status_code == 401
    assert client.post("/users/new/", {"username": "eve"})["Location"] == "/account/second-factor/"
    _enrolled(client)
    assert client.get("/pairs/").status_code == 200
    assert client.get("/api/v1/pairs").status_code == 200


def test_a_pending_log_in_ends(monkeypatch: pytest.MonkeyPatch, time: FrozenClock) -> None:
    from messaging.access.pages import account

    user(Role.VIEWER, "ana")
    secret, _ = _enrolled(_log_in("ana"))
    client = Client()
    client.post("/login/", {"username": "ana", "password": PASSWORD})
    monkeypatch.setattr(account, "_PENDING_SECONDS", 0)
    time.move(30)
    assert client.post("/login/code/", {"code": _code(secret)})["Location"] == "/login/"
    assert client.get("/").status_code == 302


@pytest.mark.parametrize(
    ("agent", "shown"),
    [
        (
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/150.0.0.0 Safari/537.36",
            "Chrome 150, Linux",
        ),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/150.0.0.0 Safari/537.36 Edg/150.0.0.0",
            "Edge 150, Windows",
        ),
        ("Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox 140, Windows"),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile/15E148 Safari/604.1",
            "Safari 18, iPhone",
        ),
        ("curl/8.11.0", "curl/8.11.0"),
        ("", ""),
    ],
)
def test_a_session_names_the_browser_as_people_do(agent: str, shown: str) -> None:
    assert browser_name(agent) == shown
