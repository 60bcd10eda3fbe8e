"""Jobs from a list's selection to their results, and what the partners say about what is in doubt."""

from __future__ import annotations

import io
import zipfile
from urllib.parse import unquote

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from lxml import html

from messaging.bulk.pages import buttons as bulk
from messaging.bulk.services import jobs
from messaging.models import AuditEntry, BulkJob, Delivery, Incident, Message, Pair, StatusInquiry
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import World, browser, delivered, doubtful, failed, suspended
from tests.messaging.deliveries.documents import make_queue
from tests.messaging.factories import partner_side, submit
from tests.messaging.status_service import messages_in_doubt, status_service, told

pytestmark = pytest.mark.django_db


def _page(client: Client, url: str) -> html.HtmlElement:
    return html.fromstring(client.get(url).content)


def _words(client: Client, url: str) -> str:
    return " ".join(_page(client, url).get_element_by_id("main").text_content().split())


def _all(page: html.HtmlElement, testid: str) -> list[html.HtmlElement]:
    return list(page.xpath(f"//*[@data-testid='{testid}']"))


def _plan(client: Client, **fields: object) -> str:
    answer = client.post("/jobs/plan/", fields)
    assert answer.status_code == 303, answer.content
    return str(answer["Location"])


# --- from a list to a job ---


def test_ticked_rows_become_a_plan_and_then_a_job(time: FrozenClock) -> None:
    pairs = [partner_side().outbound for _ in range(3)]
    client = browser(Role.OPERATOR, "olga")
    url = _plan(client, action="pairs_pause", ids=[pair.public_id for pair in pairs[:2]], next="/pairs/?state=active")
    page = _page(client, url)
    assert _all(page, "plan-count")[0].text == "2"
    assert [one.text_content() for one in _all(page, "plan-group")] == ["idle2"]
    assert page.xpath("//a[@href='/pairs/?state=active']")
    assert not BulkJob.objects.exclude(state="planned").exists()
    answer = client.post(f"{url}execute/", {"expected": "2", "reason": "maintenance window"})
    assert (answer.status_code, answer["Location"]) == (303, url)
    jobs.run_due()
    assert [Pair.objects.get(pk=pair.pk).gate for pair in pairs] == ["paused", "paused", "open"]
    done = _page(client, url)
    assert _all(done, "job")[0].get("data-state") == "finished"
    text = " ".join(done.get_element_by_id("main").text_content().split())
    assert "2 of 2" in text and pairs[0].code in text
    entry = AuditEntry.objects.get(verb="job.create")
    assert (entry.actor, entry.interface, entry.reason) == ("olga", "console", "maintenance window")


def test_all_that_match_are_taken_by_the_list_s_filter(time: FrozenClock) -> None:
    suspended(time), suspended(time), partner_side()
    client = browser(Role.OPERATOR)
    url = _plan(client, action="pairs_resume", all="1", filter="state=suspended&cursor=abc", next="/pairs/")
    page = _page(client, url)
    assert _all(page, "plan-count")[0].text == "2"
    assert "6 documents in their queues" in page.get_element_by_id("main").text_content()
    (probe,) = _all(page, "mode-probe")
    assert probe.get("checked") is not None
    fields = {"expected": "2", "reason": "the firewall is fixed", "mode": "all", "stagger": "5"}
    assert client.post(f"{url}execute/", {**fields, "confirm": "3"}).status_code == 422
    assert client.post(f"{url}execute/", {**fields, "stagger": "x", "confirm": "2"}).status_code == 422
    assert client.post(f"{url}execute/", {**fields, "confirm": "2"}).status_code == 303
    assert BulkJob.objects.get().parameters == {"mode": "all", "stagger": 5}
    assert client.post(f"{url}execute/", {**fields, "confirm": "2"}).status_code == 303, "pressed twice"
    assert AuditEntry.objects.filter(verb="job.create").count() == 1


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"action": "delete_all", "ids": ["pair_" + "0" * 32]},
        {"action": "pairs_pause"},
        {"action": "pairs_pause", "ids": ["msg_" + "0" * 32]},
        {"action": "pairs_pause", "ids": ["pair_" + "0" * 32]},
        {"action": "pairs_pause", "all": "1", "filter": "state=odd"},
        {"action": "pairs_pause", "all": "1", "filter": "colour=red"},
    ],
)
def test_a_selection_that_cannot_be_says_why_and_leads_back(fields: dict[str, object], time: FrozenClock) -> None:
    answer = browser(Role.OPERATOR).post("/jobs/plan/", {**fields, "next": "/pairs/?state=active"})
    assert answer.status_code == 422
    page = html.fromstring(answer.content)
    assert page.get_element_by_id("form-errors").text_content().strip()
    assert _all(page, "back")[0].get("href") == "/pairs/?state=active"
    assert not BulkJob.objects.exists()


def test_incidents_are_taken_over_and_assigned_from_the_list_of_pairs(time: FrozenClock) -> None:
    stuck = [suspended(time).outbound, suspended(time).outbound]
    quiet = partner_side().outbound
    olga = browser(Role.OPERATOR, "olga")
    page = _page(olga, "/pairs/")
    assert _all(page, "bulk-incidents_acknowledge")[0].text_content().strip() == "Acknowledge incidents…"
    mine = {"list": "pairs", "next": "/pairs/"}
    ids = [stuck[0].public_id, quiet.public_id]
    url = _plan(olga, action="incidents_acknowledge", ids=ids, **mine)
    assert _all(_page(olga, url), "plan-count")[0].text == "1"
    assert "2 chosen one by one" in _words(olga, url)
    olga.post(f"{url}execute/", {"expected": "1", "reason": "looking"})
    jobs.run_due()
    owners = dict(Incident.objects.values_list("pair", "owner"))
    assert owners == {stuck[0].pk: "olga", stuck[1].pk: ""}
    browser(Role.OPERATOR, "pete")
    url = _plan(olga, action="incidents_assign", all="1", filter="state=suspended", **mine)
    assert _all(_page(olga, url), "owner"), "asked for with the reason"
    assert olga.post(f"{url}execute/", {"expected": "2", "reason": "their partner", "owner": "x"}).status_code == 422
    assert olga.post(f"{url}execute/", {"expected": "2", "reason": "their partner"}).status_code == 422
    olga.post(f"{url}execute/", {"expected": "2", "reason": "their partner", "owner": "pete"})
    jobs.run_due()
    assert set(Incident.objects.values_list("owner", flat=True)) == {"pete"}
    refused = olga.post("/jobs/plan/", {"action": "incidents_assign", "ids": [quiet.public_id], **mine})
    assert refused.status_code == 422 and b"None of these pairs has an unresolved incident." in refused.content


def test_incidents_are_assigned_from_their_own_list(time: FrozenClock) -> None:
    incident = Incident.objects.get(pair=suspended(time).outbound)
    client = browser(Role.OPERATOR, "olga")
    url = _plan(client, action="incidents_assign", ids=[incident.public_id], list="incidents")
    client.post(f"{url}execute/", {"expected": "1", "reason": "mine", "owner": "olga"})
    jobs.run_due()
    incident.refresh_from_db()
    assert incident.owner == "olga"


def test_deliveries_are_settled_and_processed_again_from_their_list(time: FrozenClock) -> None:
    partners = [partner_side() for _ in range(3)]
    triggers = [make_queue(party_id=one.terms.partner_id) for one in partners]
    (first,), (second,) = (
        doubtful(trigger, one, f"{number}@them") for number, trigger, one in zip("12", triggers, partners, strict=False)
    )
    went_wrong = failed(triggers[2], partners[2], "3@them")
    partners[0].send(partners[0].message(2, "waits@them"))
    client = browser(Role.OPERATOR)
    page = _page(client, "/deliveries/")
    assert [one.get("value") for one in _all(page, "select")] == [
        one.public_id for one in (went_wrong, second, first)
    ], "what nothing can be done to has no box"
    fields = {"list": "deliveries", "next": "/deliveries/"}
    mixed = client.post(
        "/jobs/plan/",
        {"action": "settle_deliveries:duplicate", "ids": [first.public_id, second.public_id], **fields},
    )
    assert mixed.status_code == 422 and b"one evidence group at a time" in mixed.content
    url = _plan(client, action="settle_deliveries:duplicate", ids=[first.public_id, went_wrong.public_id], **fields)
    page = _page(client, url)
    assert _all(page, "plan-count")[0].text == "1" and "1 left out" in _all(page, "left-out")[0].text_content()
    assert "Mark as processed" in page.get_element_by_id("main").text_content()
    given = {"expected": "1", "confirm": "1", "reason": "its effect is in the ERP"}
    assert client.post(f"{url}execute/", given).status_code == 303
    url = _plan(client, action="redeliver_failed", all="1", filter=f"q={went_wrong.public_id}", **fields)
    assert client.post(f"{url}execute/", given).status_code == 303
    jobs.run_due()
    states = [Delivery.objects.get(pk=one.pk).state for one in (first, second, went_wrong)]
    assert states == ["settled", "in_doubt", "settled"]
    assert Delivery.objects.filter(resubmission_of=went_wrong.pk).exists()
    for odd in ("settle_deliveries:", "settle_deliveries:odd", "settle_deliveries:duplicate:x"):
        assert client.post("/jobs/plan/", {"action": odd, "ids": [second.public_id]}).status_code == 422


def test_nobody_is_led_away_from_here(time: FrozenClock) -> None:
    pair = partner_side().outbound
    client = browser(Role.OPERATOR)
    for path in ("https://evil.example/", "//evil.example/", "javascript:alert(1)", "/\\evil.example"):
        url = _plan(client, action="pairs_pause", ids=[pair.public_id], next=path)
        assert "evil" not in client.get(url).content.decode() and "javascript:" not in client.get(url).content.decode()
        assert client.post(f"{url}discard/")["Location"] == "/jobs/"


def test_roles_are_those_of_the_action(time: FrozenClock) -> None:
    message = submit(partner_side())
    fields = {"action": "messages_cancel", "ids": [message.public_id]}
    assert browser(Role.VIEWER).post("/jobs/plan/", fields).status_code == 403
    operator = browser(Role.OPERATOR)
    assert operator.post("/jobs/plan/", fields).status_code == 403
    url = _plan(browser(Role.ADMIN), **fields)
    assert operator.post(f"{url}execute/", {"expected": "1", "reason": "not mine to do"}).status_code == 403
    assert "This needs the role admin." in _words(operator, url)
    assert not _all(_page(operator, url), "plan-do")


def test_the_buttons_of_a_list_say_which_role_is_missing(time: FrozenClock) -> None:
    request = browser(Role.VIEWER).get("/pairs/").wsgi_request
    found = bulk.actions(request, "pairs_pause", "messages_cancel")
    assert [(one.action, one.why_not) for one in found] == [
        ("pairs_pause", "Needs the role operator."),
        ("messages_cancel", "Needs the role admin."),
    ]


def test_what_was_refused_is_tried_again_from_the_job_s_page(time: FrozenClock) -> None:
    pairs = [partner_side().outbound for _ in range(2)]
    client = browser(Role.OPERATOR)
    url = _plan(client, action="pairs_pause", ids=[pair.public_id for pair in pairs])
    client.post(f"{url}execute/", {"expected": "2", "reason": "maintenance"})
    Pair.objects.filter(pk=pairs[1].pk).update(gate="disabled")
    jobs.run_due()
    assert _all(_page(client, url), "job-retry")
    lines = b"".join(client.get(f"{url}results.csv").streaming_content).decode().splitlines()
    assert [line.split(",")[2] for line in lines] == ["result", "done", "refused"]
    Pair.objects.filter(pk=pairs[1].pk).update(gate="open")
    again = client.post(f"{url}retry/")["Location"]
    assert _all(_page(client, again), "plan-count")[0].text == "1"


def test_the_end_of_one_s_own_job_is_told_on_any_page(time: FrozenClock) -> None:
    client = browser(Role.OPERATOR, "olga")
    url = _plan(client, action="pairs_pause", ids=[partner_side().outbound.public_id])
    client.post(f"{url}execute/", {"expected": "1", "reason": "maintenance"})
    assert client.get("/toasts/").json() == {"toasts": []}
    jobs.run_due()
    (toast,) = client.get("/toasts/").json()["toasts"]
    assert toast == {"id": url.split("/")[2], "text": "Pause pairs: finished, 1 of 1 done.", "href": url}
    assert browser(Role.OPERATOR).get("/toasts/").json() == {"toasts": []}
    time.move(601)
    assert client.get("/toasts/").json() == {"toasts": []}


def test_a_message_s_page_has_its_evidence_and_the_likely_decision_first(time: FrozenClock) -> None:
    far = partner_side(profile="repeatable")
    (message,) = messages_in_doubt(far)
    client = browser(Role.OPERATOR)
    url = f"/messages/{message.public_id}/"
    page = _page(client, url)
    assert [rung.get("data-testid") for rung in page.xpath("//ol[@data-testid='ladder']/li")] == [
        *("rung-attempts", "rung-window", "rung-acknowledgement", "rung-partner", "rung-reply")
    ]
    assert _all(page, "ask-partner")[0].get("aria-disabled") == "true", "nobody can be asked"
    with status_service(far, default="not_recognized"):
        client.post(f"/messages/{message.public_id}/ask/")
        page = _page(client, url)
    assert not _all(page, "ask-partner")[0].get("aria-disabled")
    choices = page.xpath("//*[starts-with(@data-testid, 'choice-')]/@data-testid")
    assert choices == ["choice-resubmit", "choice-delivered", "choice-later"]
    assert "Send as new" in _all(page, "suggestion")[0].text_content()
    assert _all(_page(browser(Role.VIEWER), url), "ask-partner")[0].get("aria-disabled") == "true"


def test_an_export_is_a_zip_with_an_index(time: FrozenClock) -> None:
    (message,) = delivered(partner_side())
    client = browser(Role.OPERATOR, "olga")
    url = _plan(client, action="messages_export", ids=[message.public_id])
    client.post(f"{url}execute/", {"expected": "1", "reason": "asked for by the partner"})
    assert client.get(f"{url}documents.zip").status_code == 403, "not finished"
    jobs.run_due()
    assert _all(_page(client, url), "job-export")
    with zipfile.ZipFile(io.BytesIO(b"".join(client.get(f"{url}documents.zip").streaming_content))) as packed:
        names = packed.namelist()
        assert len(names) == 2 and names[0].startswith("00001/1-") and names[1] == "index.csv"
        assert message.message_id in packed.read("index.csv").decode()
    assert AuditEntry.objects.filter(verb="payload.read", actor="olga", object_id=message.public_id).exists()
    assert browser(Role.VIEWER).get(f"{url}documents.zip").status_code == 403


# --- what the partners say ---


def test_one_is_asked_about_and_settled_in_four_presses(time: FrozenClock) -> None:
    far = partner_side(profile="repeatable")
    (message,) = messages_in_doubt(far)
    client = browser(Role.OPERATOR, "olga")
    group = f"/in-doubt/outbound/{message.pair.code}/outcome_unknown/"
    with status_service(far, {message.message_id: "processed"}):
        answer = client.post(f"/messages/{message.public_id}/ask/", {"next": group})
    assert (answer.status_code, unquote(answer["Location"])) == (303, group)
    page = _page(client, group)
    assert _all(page, "answer-processed")[0].text_content().strip() == "1 processed"
    answer = client.post(
        f"/messages/{message.public_id}/settle/delivered/", {"reason": "the partner says that it was processed"}
    )
    assert answer.status_code == 303
    said = StatusInquiry.objects.get()
    entry = AuditEntry.objects.get(verb="message.settle_delivered")
    assert entry.before["evidence"][0]["inquiry"] == said.public_id
    assert "processed" in _words(client, f"/inquiries/{said.public_id}/")


def test_all_are_asked_about_and_settled_by_their_answers(time: FrozenClock) -> None:
    near, far = partner_side(profile="repeatable"), partner_side(profile="repeatable")
    messages = [*messages_in_doubt(near, 3), *messages_in_doubt(far, 3)]
    client = browser(Role.OPERATOR)
    page = _page(client, "/in-doubt/")
    assert _all(page, "ask-all") and _all(page, "answer-group")[0].get("data-state") == "none"
    with (
        status_service(near, default="processed"),
        status_service(far, {messages[3].message_id: told(b"", "500 X")}, default="not_recognized"),
    ):
        assert (
            client.post("/in-doubt/ask/", {"next": "/in-doubt/?tab=outbound"})["Location"] == "/in-doubt/?tab=outbound"
        )
        assert _all(_page(client, "/in-doubt/?tab=outbound"), "asking")
        jobs.run_due()
    page = _page(client, "/in-doubt/?tab=outbound")
    assert [row.get("data-state") for row in _all(page, "answer-group")] == ["processed", "not_recognized", "no_answer"]
    assert [link.get("href") for link in page.xpath("//*[starts-with(@data-testid, 'settle-')]")] == [
        "/in-doubt/answers/processed/settle/delivered/",
        "/in-doubt/answers/not_recognized/settle/resubmit/",
    ]
    for answer, decision, count in (("processed", "delivered", 3), ("not_recognized", "resubmit", 2)):
        url = f"/in-doubt/answers/{answer}/settle/{decision}/"
        assert _all(_page(client, url), "plan-count")[0].text == str(count)
        given = {"expected": str(count), "confirm": str(count), "reason": "their hub says so"}
        sent = client.post(url, given)
        assert (sent.status_code, sent["Location"]) == (303, "/in-doubt/?tab=outbound")
        jobs.run_due()
    states = [Message.objects.get(pk=one.pk).state for one in messages]
    assert states == ["delivered"] * 3 + ["in_doubt"] + ["skipped"] * 2


def test_no_answer_is_no_evidence_and_a_mixed_group_is_not_settled_at_once(time: FrozenClock) -> None:
    far = partner_side(profile="repeatable")
    messages = messages_in_doubt(far, 3)
    client = browser(Role.OPERATOR)
    given = {"expected": "3", "confirm": "3", "reason": "their hub says so"}
    assert client.post("/in-doubt/answers/none/settle/delivered/", given).status_code == 422
    with status_service(far, {messages[0].message_id: "processed"}):
        client.post("/in-doubt/ask/")
        jobs.run_due()
    url = f"/in-doubt/outbound/{messages[0].pair.code}/outcome_unknown/settle/delivered/"
    refused = client.post(url, given)
    assert refused.status_code == 422
    assert "decide by its answer" in html.fromstring(refused.content).get_element_by_id("main").text_content()
    against = {"expected": "2", "confirm": "2", "reason": "their hub says so"}
    assert client.post("/in-doubt/answers/not_recognized/settle/delivered/", against).status_code == 422
    assert client.get("/in-doubt/answers/odd/").status_code == 404
    assert BulkJob.objects.filter(action="settle_messages").count() == 0


def test_asking_when_nobody_can_be_asked_says_so(time: FrozenClock) -> None:
    (message,) = messages_in_doubt(partner_side(profile="repeatable"))
    client = browser(Role.OPERATOR)
    answer = client.post("/in-doubt/ask/", {"next": "/in-doubt/"}, follow=True)
    assert "Nothing matches" in answer.content.decode()
    answer = client.post(f"/messages/{message.public_id}/ask/", {"next": "/in-doubt/"}, follow=True)
    assert "no status service" in answer.content.decode()
    assert not StatusInquiry.objects.exists()


def test_a_viewer_sees_the_answers_and_cannot_ask(time: FrozenClock) -> None:
    messages_in_doubt(partner_side(profile="repeatable"))
    page = _page(browser(Role.VIEWER), "/in-doubt/?tab=outbound")
    assert _all(page, "ask-all")[0].get("aria-disabled") == "true"
    assert browser(Role.VIEWER).post("/in-doubt/ask/").status_code == 403


def test_the_pages_cost_a_bounded_number_of_queries(time: FrozenClock) -> None:
    client = browser(Role.OPERATOR)

    def cost(url: str) -> int:
        client.get(url)
        with CaptureQueriesContext(connection) as queries:
            assert client.get(url).status_code == 200
        return len(queries)

    messages_in_doubt(partner_side(profile="repeatable"), 2)
    few = cost("/in-doubt/?tab=outbound"), cost("/in-doubt/answers/none/")
    for _ in range(4):
        messages_in_doubt(partner_side(profile="repeatable"), 3)
    assert (cost("/in-doubt/?tab=outbound"), cost("/in-doubt/answers/none/")) == few


def test_the_world_s_jobs_have_pages(scene: World) -> None:
    client = browser(Role.OPERATOR)
    assert "Acknowledge: 1 incident" in _words(client, f"/jobs/{scene.planned.public_id}/")
    assert "<b>processed</b>" not in client.get(f"/inquiries/{scene.inquiry.public_id}/").content.decode()
