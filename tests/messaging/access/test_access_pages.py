"""Who may open what. The table is `pages.PAGES`; the rule in the code is `access.requires`."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import URLPattern

from messaging.console.access import PUBLIC
from messaging.models import AuditEntry, Event, Incident, Message, Pair
from messaging.pairs.resource import VERBS
from messaging.urls.console import urlpatterns
from rmhub.roles import ORDER, Role
from tests.messaging.console.pages import PAGES, PORTAL_PAGES, Page
from tests.messaging.console.scenes import World, browser

pytestmark = pytest.mark.django_db
ROLES: list[Role | None] = [None, *ORDER]


def _may(role: Role | None, page: Page) -> bool:
    return page.role is None or (role is not None and ORDER.index(role) >= ORDER.index(page.role))


def test_every_view_has_a_rule_and_is_in_the_table() -> None:
    names = set()
    for pattern in urlpatterns:
        assert isinstance(pattern, URLPattern)
        assert hasattr(pattern.callback, "scope"), f"{pattern.name} says by no access.requires who may open it"
        names.add(pattern.name)
    assert names == {page.name for page in (*PAGES, *PORTAL_PAGES)}


def test_table_and_code_agree_on_what_is_public() -> None:
    public = {pattern.name for pattern in urlpatterns if getattr(pattern.callback, "scope", "") == PUBLIC}
    assert (
        public
        == {page.name for page in PAGES if page.role is None}
        == {*("login", "login-code", "logout", "openid", "openid-back", "invitation", "password-reset", "theme")}
    )


def test_every_verb_of_a_pair_is_in_the_table(scene: World) -> None:
    shown = [page.arguments(scene)[1] for page in PAGES if page.name == "pair-verb"]
    assert sorted(shown) == sorted(set(VERBS) - {"hand-on"})  # that one is of inbound pairs


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role or "no role")
def test_each_role_opens_its_pages_and_no_other(scene: World, role: Role | None) -> None:
    client = browser(role)
    for page in PAGES:
        if not page.get or page.role is None:
            continue
        status = client.get(page.url(scene)).status_code
        assert status == (200 if _may(role, page) else 403), (page.name, status)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role or "no role")
def test_each_role_posts_to_its_pages_and_no_other(scene: World, role: Role | None) -> None:
    refused = browser(role)
    for page in PAGES:
        if page.post is None:
            continue
        # What may be posted may end the session, or change who one is.
        client = browser(role) if _may(role, page) else refused
        status = client.post(page.url(scene), page.post).status_code
        if _may(role, page):
            assert status in (303, 409, 422), (page.name, status)
        else:
            assert status == 403, (page.name, status)


def test_without_a_session_every_page_leads_to_the_log_in(scene: World) -> None:
    for page in PAGES:
        if page.role is None or not page.get:
            continue
        answer = Client().get(page.url(scene))
        assert answer.status_code == 302
        assert answer["Location"].startswith("/login/?next=%2F"), page.name


def test_a_fragment_without_a_session_is_answered_401_with_the_way_to_the_log_in(scene: World) -> None:
    answer = Client().get("/pairs/", headers={"HX-Request": "true", "HX-Target": "live-pairs"})
    assert answer.status_code == 401
    assert answer["HX-Redirect"] == "/login/"


def test_a_page_that_takes_posts_refuses_those_without_a_csrf_token(scene: World) -> None:
    client = browser(Role.ADMIN, csrf=True)
    for page in PAGES:
        if page.post is not None:
            assert client.post(page.url(scene), page.post).status_code == 403, page.name


def test_what_only_posts_is_not_done_by_a_get(scene: World) -> None:
    client = browser(Role.ADMIN)
    for page in PAGES:
        if not page.get:
            answer = client.get(page.url(scene))
            assert answer.status_code == 405, page.name
            assert answer["Allow"] == "POST"


def test_looking_at_pages_changes_nothing_but_the_audit_log(scene: World) -> None:
    def everything() -> list[object]:
        return [
            list(model.objects.order_by("pk").values())  # type: ignore[attr-defined]
            for model in (Pair, Message, Incident, Event)
        ]

    before, audited = everything(), AuditEntry.objects.count()
    client = browser(Role.ADMIN)
    for page in PAGES:
        if page.get:
            client.get(page.url(scene))
    assert everything() == before
    assert AuditEntry.objects.count() - audited == sum(page.reads_bytes for page in PAGES)


def test_a_user_whom_somebody_switched_off_is_out_at_once(scene: World) -> None:
    client = browser(Role.ADMIN, "gone")
    assert client.get("/").status_code == 200
    from django.contrib.auth.models import User

    User.objects.filter(username="gone").update(is_active=False)
    assert client.get("/").status_code == 302


def test_a_forbidden_page_says_which_role_is_needed(scene: World) -> None:
    answer = browser(Role.VIEWER).get(f"/messages/{scene.outbound.public_id}/wire/")
    assert b"This needs the role operator. Your role is viewer." in answer.content
