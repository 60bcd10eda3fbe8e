"""The archive, legal holds and retention in the console; and every way that leads to a message that has left."""

from __future__ import annotations

import pytest
from lxml import html

from messaging.archive.services import retention
from messaging.models import ArchivedMessage, AuditEntry, Event, Incident, LegalHold, PipelineRun, RetentionPolicy
from messaging.overview.selectors import finding
from rmhub import clock
from rmhub.roles import Role
from tests.messaging.archive import archive_scenes
from tests.messaging.console.scenes import ANA, World, browser
from tests.messaging.factories import link, partner_side, submit, work

pytestmark = pytest.mark.django_db


def text(answer: object) -> str:
    return " ".join(html.fromstring(answer.content).text_content().split())  # type: ignore[attr-defined]


def marked(answer: object, name: str) -> list[html.HtmlElement]:
    """The elements of a page with this test id."""
    return list(html.fromstring(answer.content).xpath(f"//*[@data-testid='{name}']"))  # type: ignore[attr-defined]


# --- finding what has left ---


def test_the_search_finds_what_has_left_the_store(scene: World) -> None:
    client = browser(Role.VIEWER)
    row = scene.archived
    for asked in (row.public_id, row.message_id, row.conversation_id):
        answer = client.get("/go", {"q": asked})
        assert (answer.status_code, answer["Location"]) == (303, f"/archive/{row.public_id}/"), asked
    assert client.get("/go", {"q": scene.hold.public_id})["Location"] == f"/holds/{scene.hold.public_id}/"


def test_the_search_shows_both_what_is_there_and_what_has_left(scene: World) -> None:
    gone = archive_scenes.archived(scene.outbound.pair, scene.outbound.message_id)
    found = finding.find(scene.outbound.message_id)
    assert [(hit.kind, hit.arguments) for hit in found.hits] == [
        ("Message", (scene.outbound.public_id,)),
        ("Archived message", (gone.public_id,)),
    ]
    ArchivedMessage.objects.filter(pk=gone.pk).update(state="copied")
    assert finding.find(scene.outbound.message_id).only is not None, "one that is in the store too is found there"


def test_the_list_of_messages_says_what_lies_in_the_archive(scene: World) -> None:
    client = browser(Role.VIEWER)
    row = scene.archived
    for query in ({"q": row.message_id}, {"q": row.public_id}, {"conversation": row.conversation_id}):
        page = client.get("/messages/", query)
        assert "Not in the store any more." in text(page)
        (section,) = marked(page, "in-archive")
        assert section.xpath(f".//a[@href='/archive/{row.public_id}/']")
    assert not marked(client.get("/messages/"), "in-archive")


def test_links_to_a_message_that_has_left_lead_to_the_archive(scene: World) -> None:
    """Its own page, by id and MessageId; from an incident; from its late acknowledgement; from the audit log."""
    client = browser(Role.VIEWER)
    message = scene.outbound
    incident = Incident.objects.create(
        number=900,
        cause="late_ack",
        state="resolved",
        pair=message.pair,
        message=message,
        opened_at=clock.now(),
        last_seen_at=clock.now(),
    )
    signal = scene.signal
    archive_scenes.left(message)
    signal.save(force_insert=True)  # a late one names it still
    Event.objects.create(at=clock.now(), type="message.duplicate", message_id=message.pk)
    for reference in (message.public_id, message.message_id):
        answer = client.get(f"/messages/{reference}/")
        assert (answer.status_code, answer["Location"]) == (303, f"/archive/{message.public_id}/")
    shown = client.get(f"/incidents/{incident}/")
    assert f"/archive/{message.public_id}/" in shown.content.decode()
    assert "in the archive" in text(shown)
    assert client.get("/incidents/?show=all").status_code == 200
    assert client.get(f"/signals/{signal.public_id}/").status_code == 200
    assert client.get(f"/pairs/{message.pair.code}/").status_code == 200
    assert client.get(f"/messages/{message.public_id}/wire/").status_code == 403
    assert browser(Role.OPERATOR, "olga").get(f"/messages/{message.public_id}/wire/").status_code == 404
    assert client.get("/messages/nobody@nowhere/").status_code == 404


def test_several_archived_messages_of_one_id_are_listed(scene: World) -> None:
    archive_scenes.archived(scene.outbound.pair, "left@us")
    client = browser(Role.VIEWER)
    answer = client.get("/messages/left@us/")
    assert answer.status_code == 303
    page = client.get(answer["Location"])
    assert page.status_code == 200
    assert text(page).count("conversation of left@us") == 0
    assert len(marked(page, "in-archive")[0].xpath(".//tbody/tr")) == 2
    assert client.get("/archive/left@us/")["Location"] == "/archive/?q=left%40us"


# --- the archive's pages ---


def test_the_list_is_narrowed_by_the_url(scene: World) -> None:
    client = browser(Role.VIEWER)
    copied = archive_scenes.archived(scene.inbound.pair, "copied@p", state="copied", purged_at=None, direction="in")

    def shown(**query: str) -> list[str]:
        page = html.fromstring(client.get("/archive/", query).content)
        return [row.get("id").removeprefix("row-") for row in page.xpath("//tbody/tr")]

    both = [copied.public_id, scene.archived.public_id]
    assert shown() == both
    assert shown(state="archived") == [scene.archived.public_id]
    assert shown(direction="in") == shown(pair=scene.inbound.pair.code) == shown(q="copied@p") == [copied.public_id]
    assert shown(state="nonsense") == both
    assert shown(q="nobody") == []
    assert "There is no pair" in text(client.get("/archive/", {"pair": "NO>BODY"}))


def test_the_page_of_one_says_where_it_lies_and_what_proves_it(scene: World) -> None:
    page = text(browser(Role.VIEWER).get(f"/archive/{scene.archived.public_id}/"))
    for said in ("In the archive only", scene.archived.file.path, "ab" * 32, "cd" * 32, "Needs the role operator."):
        assert said in page


def test_an_operator_restores_a_message_or_its_conversation(scene: World) -> None:
    client = browser(Role.OPERATOR, "olga")
    row = scene.archived
    archive_scenes.archived(scene.outbound.pair, "another@us", conversation_id=row.conversation_id)
    page = client.get(f"/archive/{row.public_id}/")
    assert marked(page, "restore")
    assert marked(page, "restore-conversation")[0].text_content().strip().endswith("(2)…")
    url = f"/archive/{row.public_id}/restore/"
    assert "2 messages" in text(client.get(f"{url}?whole=on"))
    refused = client.post(url, {"reason": ""})
    assert (refused.status_code, PipelineRun.objects.filter(job="restore").count()) == (422, 0)
    answer = client.post(url, {"reason": "asked for by the auditor"})
    run = PipelineRun.objects.get(job="restore")
    assert (answer.status_code, answer["Location"]) == (303, f"/pipeline/{run.public_id}/")
    assert run.parameters == {"message": row.public_id}
    assert client.get(answer["Location"]).status_code == 200
    assert client.post(url, {"reason": "once more"}).status_code == 409, "it is being restored already"
    client.post(url, {"reason": "all of it", "whole": "on"})
    assert PipelineRun.objects.latest("id").parameters == {"conversation": row.conversation_id}
    assert "asked for by the auditor" in text(client.get(f"/archive/{row.public_id}/"))


# --- legal holds ---


def test_an_admin_places_and_releases_a_hold(scene: World) -> None:
    client = browser(Role.ADMIN, "ada")
    given = {
        "name": "Case 12",
        "pair": scene.outbound.pair.code,
        "message_id": scene.archived.public_id,
        "from": "2025-11-01",
        "to": "2025-11-30",
        "reason": "the court asks",
    }
    answer = client.post("/holds/new/", given)
    hold = LegalHold.objects.get(name="Case 12")
    assert (answer.status_code, answer["Location"]) == (303, f"/holds/{hold.public_id}/")
    assert (hold.pair, hold.message_id, hold.placed_by) == (scene.outbound.pair, "left@us", "ada")
    assert (f"{hold.range_from:%m-%d %H}", f"{hold.range_to:%m-%d %H}") == ("11-01 00", "12-01 00")
    assert "Case 12" in text(client.get("/holds/"))
    assert client.post(f"/holds/{hold.public_id}/release/", {"reason": ""}).status_code == 422
    assert client.post(f"/holds/{hold.public_id}/release/", {"reason": "case closed"}).status_code == 303
    assert client.post(f"/holds/{hold.public_id}/release/", {"reason": "case closed"}).status_code == 409
    assert "Case 12" not in text(client.get("/holds/"))
    assert "Case 12" in text(client.get("/holds/?show=all"))
    assert [entry.verb for entry in AuditEntry.objects.filter(object_id=hold.public_id).order_by("id")] == [
        "hold.place",
        "hold.release",
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "x"}, "Say what is held"),
        ({"message_id": "m"}, "A name for the list"),
        ({"name": "x", "pair": "NO>BODY"}, "There is no pair"),
        ({"name": "x", "party": "par_nonsense"}, "No partner is called"),
        ({"name": "x", "from": "2026-02-02", "to": "2026-02-01"}, "before the first day"),
        ({"name": "x", "message_id": "m", "reason": "no"}, "Say why"),
    ],
)
def test_a_hold_that_says_too_little_is_refused(scene: World, given: dict[str, str], said: str) -> None:
    answer = browser(Role.ADMIN).post("/holds/new/", {"reason": "the court asks", **given})
    assert answer.status_code == 422
    assert said in text(answer)
    assert LegalHold.objects.count() == 1


# --- retention ---


def test_an_admin_changes_the_policy(scene: World) -> None:
    client = browser(Role.ADMIN, "ada")
    assert "Switched off" in text(client.get("/retention/"))
    given = {"archive_after": "10", "purge_after": "20", "keep_archive": "3650", "version": "1", "reason": "new rules"}
    assert client.post("/retention/change/", {**given, "enabled": "on"}).status_code == 303
    policy = RetentionPolicy.objects.get()
    assert (policy.enabled, policy.archive_after, policy.purge_after, policy.keep_archive) == (True, 10, 20, 3650)
    page = text(client.get("/retention/"))
    assert "ended 10 days ago" in page
    assert "for 3650 days" in page
    entry = AuditEntry.objects.get(verb="retention.change")
    assert (entry.actor, entry.reason) == ("ada", "new rules")
    assert (entry.before["purge_after"], entry.after["purge_after"]) == (90, 20)
    stale = client.post("/retention/change/", given)
    assert stale.status_code == 409
    assert "Somebody changed the policy" in text(stale)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"purge_after": "5"}, "Not before they are archived"),
        ({"archive_after": "0"}, "greater than or equal to 1"),
        ({"archive_after": "ten"}, "A number of days"),
        ({"keep_archive": "15"}, "Longer than they are in the store"),
        ({"reason": ""}, "Say why"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(scene: World, changes: dict[str, str], said: str) -> None:
    given = {"archive_after": "10", "purge_after": "20", "keep_archive": "0", "version": "1", "reason": "new rules"}
    answer = browser(Role.ADMIN).post("/retention/change/", {**given, **changes})
    assert answer.status_code == 422
    assert said in text(answer)
    assert not retention.policy().enabled


def test_a_message_that_is_in_both_leads_to_the_store(scene: World) -> None:
    partner = partner_side()
    message = submit(partner)
    with link():
        work()
    row = archive_scenes.archived(message.pair, message.message_id, key=message.pk, state="copied", purged_at=None)
    page = browser(Role.OPERATOR, ANA.name).get(f"/archive/{row.public_id}/")
    assert f'href="/messages/{message.public_id}/"' in page.content.decode()
    assert "The policy can purge it from" in text(page)
    assert not marked(page, "restore")
