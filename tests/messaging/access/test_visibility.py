"""Whose data a person may see: those limited to a group see nothing of other partners, on no page and by no path."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, reverse

from messaging.access.selectors import reach
from messaging.bulk import selectors as job_selectors
from messaging.bulk.services import jobs
from messaging.exceptions import NotFound
from messaging.journal.audit import Actor
from messaging.messages.services import uploading
from messaging.models import Access, AuditEntry, BulkJob, Incident, Message, Pair, Upload, feed
from messaging.notifications import selectors as events
from messaging.overview.selectors import records
from messaging.pairs.selectors import pairs
from messaging.pairs.services import operating
from messaging.permissions import permissions_of
from messaging.urls.api import urlpatterns as api_patterns
from partners import visibility
from partners.models import Credential, PartnerGroup, Party
from rmhub.clock import FrozenClock
from rmhub.roles import ADMIN_SCOPES, SCOPES, WHOLE_HUB_SCOPES, Role
from tests.messaging.api.client import Api, make_token, make_user, submission
from tests.messaging.console.pages import PAGES
from tests.messaging.console.scenes import World, browser
from tests.messaging.factories import PartnerSide, make_agreement, partner_side, submit

pytestmark = pytest.mark.django_db


def limited(name: str, role: Role = Role.ADMIN, *partners: Party) -> Client:
    """A client that is logged in as somebody who is limited to a group of these partners."""
    client = browser(role, name)
    group = PartnerGroup.objects.create(name=f"group of {name}")
    group.partners.set(partners)
    _limit(name, group)
    return client


def _limit(name: str, group: PartnerGroup) -> Access:
    access = Access.objects.create(user=User.objects.get(username=name), limited=True)
    access.groups.set([group])
    return access


def _traces(world: World) -> list[str]:
    """What would tell somebody of the world's partners: names, codes, ids of their messages, addresses."""
    partners = Party.objects.filter(is_own=False).exclude(name="Within Reach")
    found = set(partners.values_list("name", flat=True))
    mine = Pair.objects.exclude(partner__name="Within Reach")
    found |= set(mine.values_list("code", flat=True))
    found |= set(Message.objects.filter(pair__in=mine).values_list("message_id", flat=True))
    found |= {partner.public_id for partner in partners} | {pair.public_id for pair in mine}
    found |= {world.circuit.address, world.log.public_id, world.hold.name, world.archived.message_id}
    return sorted(trace for trace in found if trace)


def _shown(text: str, traces: list[str]) -> list[str]:
    return [trace for trace in traces if re.search(rf"(?<![\w.-]){re.escape(trace)}(?![\w-])", text)]


@pytest.fixture
def near(time: FrozenClock, db: None) -> PartnerSide:
    """The partner whom they may see."""
    return _named("Within Reach")


@pytest.fixture
def far(near: PartnerSide) -> PartnerSide:
    """Another one."""
    return _named("Out Of Reach")


def _named(name: str) -> PartnerSide:
    """A partner of that name with a message on the way."""
    version = make_agreement()
    Party.objects.filter(pk=version.agreement.partner_id).update(name=name)
    side = partner_side(version)
    submit(side)
    return side


def _partner(side: PartnerSide) -> Party:
    return Party.objects.get(pk=side.terms.partner_id)


def test_no_page_shows_a_partner_out_of_reach(scene: World, near: PartnerSide) -> None:
    client = limited("lim", Role.ADMIN, _partner(near))
    traces = _traces(scene)
    assert len(traces) > 20
    for page in PAGES:
        if not page.get or page.role is None:
            continue
        url = page.url(scene)
        answer = client.get(url)
        assert answer.status_code in (200, 302, 303, 403, 404), (url, answer.status_code)
        # Whoever names a thing in the address knows its name: only what the page adds is a leak.
        known = [trace for trace in traces if trace not in url]
        text = answer.getvalue().decode(errors="replace")
        assert not _shown(text, known), (url, answer.status_code)


def test_nothing_out_of_reach_is_found(near: PartnerSide, far: PartnerSide) -> None:
    client = limited("lim", Role.ADMIN, _partner(near))
    pair, message = far.outbound, Message.objects.get(pair__partner=far.terms.partner_id)
    named = ("Out Of Reach", pair.code, message.message_id, message.public_id, pair.public_id, far.terms.tpa_id)
    for text in named:
        for url in ("/go", "/palette/", "/messages/", "/partners/", "/pairs/", "/agreements/", "/audit/"):
            answer = client.get(url, {"q": text})
            assert answer.status_code in (200, 404), (url, text, answer.status_code)
            # What was typed comes back in fields and links; nothing else does.
            told = [name for name in ("Out Of Reach", html.escape(pair.code), message.message_id) if name not in text]
            assert not _shown(answer.content.decode(), told if text != pair.code else told[:1]), (url, text)
    assert client.get("/go", {"q": near.outbound.code})["Location"] == f"/pairs/{quote(near.outbound.code)}/"


def test_what_is_named_by_an_address_is_not_there(scene: World, near: PartnerSide) -> None:
    """Pages and verbs of things of other partners are 404 (or closed, where they are for those who see everything)."""
    client = limited("lim", Role.ADMIN, _partner(near))
    for page in PAGES:
        if not page.arguments(scene) or page.name in _ABOUT_NOBODY:
            continue
        url = page.url(scene)
        if page.get:
            assert client.get(url).status_code in (403, 404), url
        if page.post is not None:
            assert client.post(url, page.post).status_code in (403, 404), url


# Pages with an argument that names no partner's thing.
_ABOUT_NOBODY = (
    "doubt-answer",
    "doubt-answer-settle",
    "invitation",
    "password-reset",
    "columns",
    "saved-view-edit",
    "saved-view-delete",
    "own-session-end",
    "help-page",
)


# --- the API ---


def _upload(world: World) -> Upload:
    """The one of whoever has the world's token."""
    owner = world.token.owner.get_username()
    return Upload.objects.filter(owner=owner).first() or uploading.upload_begin(owner=owner, size=1)


# Name of a path's argument -> what it is in the world. A path with an argument that is not here fails the test.
ARGUMENTS: dict[str, Callable[[World], str]] = {
    "pair": lambda w: w.pair.public_id,
    "message_id": lambda w: w.outbound.public_id,
    "number": lambda w: "1",
    "transmission_id": lambda w: w.transmission.public_id,
    "signal_id": lambda w: w.signal.public_id,
    "circuit": lambda w: w.circuit.public_id,
    "trigger": lambda w: w.queue.public_id,
    "delivery": lambda w: w.doubtful.public_id,
    "job": lambda w: w.job.public_id,
    "party_id": lambda w: w.partner.public_id,
    "endpoint_id": lambda w: w.outbound.agreement_version.partner_endpoint.public_id,
    "agreement_id": lambda w: w.outbound.agreement_version.agreement.public_id,
    "route": lambda w: w.route.public_id,
    "table": lambda w: "findings",
    "run": lambda w: w.made.public_id,
    "name": lambda w: "findings.parquet",
    "log": lambda w: w.log.public_id,
    "hold": lambda w: w.hold.public_id,
    "poller": lambda w: w.poller.public_id,
    "credential_id": lambda w: Credential.objects.filter(party=w.partner)[0].public_id,
    "incident": lambda w: str(w.incident),
    "rejection_id": lambda w: w.rejection.public_id,
    "delivery_id": lambda w: w.webhook.deliveries.all()[0].public_id,
    "token_id": lambda w: w.token.public_id,
    "code": lambda w: "not-found",
    "username": lambda w: w.token.owner.get_username(),
    "session": lambda w: "ses_" + "0" * 32,
    "group": lambda w: PartnerGroup.objects.get_or_create(name="North")[0].public_id,
    "inquiry": lambda w: w.inquiry.public_id,
    "mask": lambda w: w.mask.public_id,
    "upload": lambda w: _upload(w).public_id,
    "schema": lambda w: w.schema.public_id,
    "attribute": lambda w: w.attribute.public_id,
    "offer": lambda w: w.offer.public_id,
    "draft": lambda w: "drf_" + "0" * 32,
    "probe": lambda w: "prb_" + "0" * 32,
    "report": lambda w: "tst_" + "0" * 32,
    "rule": lambda w: w.rule.public_id,
    "view": lambda w: "view_" + "0" * 32,
    "transaction": lambda w: w.transaction.public_id,
    "participant": lambda w: w.taker.public_id,
}
# Paths that say something about the hub or its documentation, and nothing about partners.
_PUBLIC = ("health", "problems", "problem", "openapi", "docs", "not-found")


def _paths(world: World) -> Iterator[tuple[str, str, bool]]:
    """(name, path below /api/v1, whether it names something of the world) of all of the API."""
    for pattern in api_patterns:
        assert isinstance(pattern, URLPattern)
        if pattern.name in _PUBLIC:
            continue
        wanted = pattern.pattern.converters
        missing = set(wanted) - set(ARGUMENTS)
        assert not missing, f"{pattern.name}: say in ARGUMENTS what {missing} is in the world"
        values = {name: ARGUMENTS[name](world) for name in wanted}
        path = reverse(f"api:{pattern.name}", kwargs=values)
        yield str(pattern.name), path.removeprefix("/api/v1"), bool(set(wanted) - {"view"})


def _api(near: PartnerSide, role: Role = Role.ADMIN) -> Api:
    limited("lim", role, _partner(near))
    return Api(make_token(User.objects.get(username="lim"), scopes=SCOPES[role]))


def test_no_answer_of_the_api_shows_a_partner_out_of_reach(scene: World, near: PartnerSide) -> None:
    api, traces = _api(near), _traces(scene)
    for name, path, named in _paths(scene):
        answer = api.get(path)
        assert answer.status in ((403, 404, 405) if named else (200, 400, 403, 404, 405)), (
            path,
            answer.status,
            answer.json,
        )
        known = [trace for trace in traces if trace not in path]
        assert not _shown(answer.content.decode(errors="replace"), known), (name, path)


def test_what_is_changed_by_the_api_must_be_within_reach(scene: World, near: PartnerSide) -> None:
    api = _api(near)

    def everything() -> list[Any]:
        found = [list(model.objects.order_by("pk").values()) for model in (Pair, Message, Incident, BulkJob)]  # type: ignore[attr-defined]
        return [*found, AuditEntry.objects.filter(result="done").count()]

    before = everything()
    for _, path, named in _paths(scene):
        for method in ("POST", "PATCH", "DELETE"):
            if named:
                answer = api.call(method, path, {"reason": "because the test says so"}, If_Match="*")
                # 415: a part of an upload is no JSON, whosever it is.
                assert answer.status in (403, 404, 405, 415), (method, path, answer.status, answer.json)
    for reference in (scene.doubtful.public_id, str(scene.doubtful.pk)):
        body = {"action": "settle_deliveries", "ids": [reference], "decision": "duplicate", "reason": "asked them"}
        assert api.post("/bulk-operations", body).status in (404, 422)
    assert everything() == before
    job = scene.job
    with visibility.only(frozenset(), "ana"):
        assert job_selectors.job(job.pk).pk == job.pk
    with visibility.only(frozenset(), "an"), pytest.raises(NotFound):
        job_selectors.job(job.pk)
    with visibility.only(frozenset(), "bob"), pytest.raises(NotFound):
        jobs.job_cancel(job_id=job.pk, actor=Actor("bob"), reason="no longer wanted")


def test_what_is_within_reach_is_all_there(near: PartnerSide, far: PartnerSide, monkeypatch: Any) -> None:
    monkeypatch.setattr(feed, "horizon", lambda: 1 << 62)  # the test's own transaction is open
    api = _api(near)
    (party,) = api.get("/parties", {"is_own": "false"}).json["data"]
    assert party["name"] == "Within Reach"
    codes = {one["code"] for one in api.get("/pairs").json["data"]}
    assert codes == _codes(near)
    assert api.get(f"/pairs/{near.outbound.code}").status == 200
    assert api.get(f"/pairs/{far.outbound.code}").status == 404
    accepted = api.submit(submission(near))
    assert accepted.status == 202
    listed = api.get("/messages").json["data"]
    assert len(listed) == 2 and listed[0]["id"] == accepted.json["id"]
    told = {one["data"]["message"] for one in api.get("/events").json["data"]}
    assert told == {one["id"] for one in listed}


def _codes(side: PartnerSide) -> set[str]:
    return set(Pair.objects.filter(partner=side.terms.partner_id).values_list("code", flat=True))


def test_documents_are_taken_for_partners_within_reach_only(near: PartnerSide, far: PartnerSide) -> None:
    answer = _api(near).submit(submission(far))
    assert (answer.status, answer.code) == (422, "unknown_agreement")


def test_a_token_is_cut_to_its_own_groups(near: PartnerSide, far: PartnerSide) -> None:
    group = PartnerGroup.objects.create(name="near")
    group.partners.set([_partner(near)])
    secret = make_token(make_user(Role.ADMIN), scopes=ADMIN_SCOPES, groups=[group.pk])
    api = Api(secret)
    assert {one["code"] for one in api.get("/pairs").json["data"]} == _codes(near)
    refused = api.get("/tokens")
    assert (refused.code, refused.json["required_scope"]) == ("missing_scope", "tokens:manage")
    assert "limited to the partners of some groups" in refused.json["detail"]
    assert api.get("/reports").code == "limited_access"


def test_the_limit_of_a_request_ends_with_it(near: PartnerSide, far: PartnerSide) -> None:
    limited("lim", Role.VIEWER, _partner(near)).get("/pairs/")
    assert visibility.visible() is None
    with visibility.only(frozenset()):
        assert browser(Role.VIEWER).get(f"/pairs/{far.outbound.code}/").status_code == 200
    assert visibility.visible() is None


def test_a_stream_is_made_under_the_limit_of_its_request(near: PartnerSide, far: PartnerSide) -> None:
    with visibility.only(frozenset({near.terms.partner_id})):
        lines = visibility.lasting(pair.code for _ in range(1) for pair in pairs.pairs().order_by("code"))
    assert visibility.visible() is None
    assert set(lines) == _codes(near)
    assert visibility.visible() is None


def test_whoever_is_limited_to_no_group_sees_our_own_parties_only(near: PartnerSide) -> None:
    client = limited("nobody", Role.VIEWER)
    _, partners = client.get("/pairs/"), client.get("/partners/")
    assert near.outbound.code not in client.get("/pairs/").content.decode()
    assert "Within Reach" not in partners.content.decode()
    assert client.get(f"/pairs/{near.outbound.code}/").status_code == 404


def test_a_limit_takes_the_scopes_that_concern_all_partners(near: PartnerSide) -> None:
    limited("lim", Role.ADMIN, _partner(near))
    user = User.objects.get(username="lim")
    permissions = permissions_of(user)
    assert permissions.role == Role.ADMIN
    assert permissions.scopes == ADMIN_SCOPES - WHOLE_HUB_SCOPES
    assert _partner(near).pk in (permissions.partners or ())
    Access.objects.filter(user=user).update(limited=False)
    assert permissions_of(user).partners is None
    assert permissions_of(user).scopes == ADMIN_SCOPES


def test_a_limited_person_is_told_why_a_page_is_closed(near: PartnerSide) -> None:
    client = limited("lim", Role.ADMIN, _partner(near))
    for url in ("/tokens/", "/reports/"):
        answer = client.get(url)
        assert answer.status_code == 403
        assert b"limited to the partners of some groups" in answer.content


def test_the_audit_log_shows_what_was_done_to_things_within_reach(near: PartnerSide, far: PartnerSide) -> None:
    for side in (near, far):
        pair = side.outbound
        operating.pair_pause(pair_id=pair.pk, actor=Actor("bob"), reason="maintenance", expected_version=pair.version)
    with visibility.only(frozenset({near.terms.partner_id}), "eve"):
        seen = {(entry.verb, entry.object_name) for entry in records.audit_entries()}
    assert ("pair.pause", near.outbound.code) in seen
    assert ("pair.pause", far.outbound.code) not in seen
    with visibility.only(frozenset(), "bob"):
        assert {entry.actor for entry in records.audit_entries()} == {"bob"}


def test_the_feed_passes_over_what_is_out_of_reach_and_moves_on(far: PartnerSide, monkeypatch: Any) -> None:
    monkeypatch.setattr(feed, "horizon", lambda: 1 << 62)
    with visibility.only(frozenset()):
        page = events.feed(after=events.OLDEST, limit=5)
    assert page.events == [] and page.position != events.OLDEST


def test_looking_for_ids_costs_nothing_without_a_limit(far: PartnerSide, django_assert_num_queries: Any) -> None:
    pair = far.outbound
    with django_assert_num_queries(0):
        reach.check([pair.public_id, {"ids": [pair.public_id]}])
    with visibility.only(frozenset()), pytest.raises(NotFound):
        reach.check({"deep": [{"er": pair.public_id}]})
    with visibility.only(frozenset()), pytest.raises(NotFound):
        reach.check(["msg_" + "0" * 32])  # like what is there, and out of reach
    with visibility.only(frozenset()):
        reach.check(["job_" + "0" * 32, "not an id", 7, None, True])
