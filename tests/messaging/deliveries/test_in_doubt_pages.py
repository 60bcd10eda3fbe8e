"""In doubt: groups by evidence, the plan of a job over one of them, single decisions, and the deliveries' pages."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from lxml import html

from messaging.bulk.services import jobs
from messaging.deliveries.pages.decisions import DELIVERY, MESSAGE
from messaging.deliveries.services import settling, triggering
from messaging.models import AuditEntry, BulkJob, BulkJobItem, Delivery, Message, Trigger
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import ANA, World, browser, documents, doubtful, failed, lost, trigger_for
from tests.messaging.factories import PartnerSide, partner_side

pytestmark = pytest.mark.django_db
STARTED = "started_not_completed"


@pytest.fixture
def partner(time: FrozenClock) -> PartnerSide:
    return partner_side()


@pytest.fixture
def queue(partner: PartnerSide) -> Trigger:
    return trigger_for(partner, "Warehouse", ordered=False, concurrency=64)


def _page(client: Client, url: str) -> html.HtmlElement:
    return html.fromstring(client.get(url).content)


def _words(client: Client, url: str) -> str:
    return " ".join(_page(client, url).get_element_by_id("main").text_content().split())


def _group(trigger: Trigger, *more: str) -> str:
    return "/".join(["/in-doubt", trigger.public_id, STARTED, *more, ""])


def _delivery(delivery: Delivery, *more: str) -> str:
    return "/".join(["/deliveries", delivery.public_id, *more, ""])


# --- the groups ---


def test_documents_are_grouped_by_trigger_and_reason_the_oldest_first(
    partner: PartnerSide, queue: Trigger, time: FrozenClock
) -> None:
    doubtful(queue, partner, "a@x", "b@x")
    time.move(2 * 3600)
    other = doubtful(queue, partner, "c@x")
    Delivery.objects.filter(pk=other[0].pk).update(doubt="resolver_in_doubt")
    rows = _page(browser(), "/in-doubt/").xpath("//tr[@data-testid='doubt-group']")
    assert len(rows) == 2
    first, second = (" ".join(row.text_content().split()) for row in rows)
    assert first.startswith("2 in doubt: Begun, never finished, Warehouse")
    assert "2 h ago" in first
    assert rows[0].xpath(".//*[contains(@class, 'age-watch')]")
    assert second.startswith("1 in doubt: Resolver cannot say")
    assert _page(browser(), "/in-doubt/").xpath("//*[@data-testid='count-inbound']/text()") == ["3"]


def test_what_was_put_off_is_not_counted_until_its_time(
    partner: PartnerSide, queue: Trigger, time: FrozenClock
) -> None:
    one, _ = doubtful(queue, partner, "a@x", "b@x")
    settling.delivery_settle(delivery_id=one.pk, decision="later", remind_in=3600, actor=ANA, reason="asked")

    def counter() -> str:
        return _page(browser(), "/in-doubt/").get_element_by_id("nav-count-side-in_doubt").text

    assert counter() == "1"
    assert "1 put off" in _words(browser(), "/in-doubt/")
    time.move(3600)
    assert counter() == "2"


def test_messages_are_grouped_by_pair_and_cause(time: FrozenClock) -> None:
    made = lost(time, 2)
    page = _page(browser(), "/in-doubt/")
    assert page.get_element_by_id("tab-outbound").get("aria-current") == "true", "there is nothing in the other tab"
    (row,) = page.xpath("//tr[@data-testid='doubt-group']")
    words = " ".join(row.text_content().split())
    assert words.startswith("2 in doubt: Partner's answer lost")
    assert made[0].pair.code in words
    code = made[0].pair.code.replace(">", "%3E")
    group = _words(browser(), f"/in-doubt/outbound/{code}/outcome_unknown/")
    assert "2 messages in doubt" in group
    assert "Mark as delivered (2)" in group


def test_an_empty_page_says_that_nothing_is_wrong(db: None, time: FrozenClock) -> None:
    assert "No document is in doubt." in _words(browser(), "/in-doubt/")
    assert "No message is in doubt." in _words(browser(), "/in-doubt/?tab=outbound")


def test_a_group_that_is_settled_says_so(partner: PartnerSide, queue: Trigger) -> None:
    assert "This group is empty now." in _words(browser(), _group(queue))
    assert browser().get("/in-doubt/trg_00/x/").status_code == 404


def test_what_a_resolver_may_know_by_now_is_offered_first(partner: PartnerSide) -> None:
    trigger = trigger_for(partner, "ERP", kind="pull", resolver="http", resolver_url="http://erp/known")
    (delivery,) = documents(partner, "a@x")
    for doubt, first in (("resolver_failed", "choice-ask"), (STARTED, "choice-duplicate")):
        Delivery.objects.filter(pk=delivery.pk).update(state="in_doubt", doubt=doubt, due_at=None)
        page = _page(browser(), f"/in-doubt/{trigger.public_id}/{doubt}/")
        assert page.xpath("//div[@class='verbs']//*[starts-with(@id, 'choice-')]/@id")[0] == first


# --- settling a group ---


def test_a_group_is_settled_by_a_job_after_its_plan_was_confirmed(partner: PartnerSide, queue: Trigger) -> None:
    doubtful(queue, partner, "a@x", "b@x", "c@x")
    client = browser(Role.OPERATOR, "olga")
    page = _page(client, _group(queue, "settle", "duplicate"))
    words = " ".join(page.get_element_by_id("main").text_content().split())
    assert "All 3 documents are taken as processed: Warehouse is not given them again." in words
    assert "look first" in words
    assert "a@x" in words and "c@x" in words
    given = {"expected": "3", "confirm": "3", "reason": "all are in the ERP"}
    assert not BulkJob.objects.exists(), "a GET changes nothing"
    refused = client.post(_group(queue, "settle", "duplicate"), {**given, "confirm": "2"})
    assert refused.status_code == 422
    assert "Type 3 to show that you mean all of them." in refused.content.decode()
    answer = client.post(_group(queue, "settle", "duplicate"), given)
    job = BulkJob.objects.get()
    assert (answer.status_code, answer["Location"]) == (303, f"/jobs/{job.public_id}/")
    assert (job.actor, job.reason, job.total, job.interface) == ("olga", "all are in the ERP", 3, "console")
    assert "0 of 3" in _words(client, f"/jobs/{job.public_id}/")
    jobs.run_due()
    assert "3 of 3" in _words(client, f"/jobs/{job.public_id}/")
    assert "This group is empty now." in _words(client, _group(queue))
    assert set(AuditEntry.objects.filter(verb="delivery.mark_processed").values_list("actor", flat=True)) == {"olga"}


def test_a_plan_that_grew_is_shown_again_with_the_new_number(partner: PartnerSide, queue: Trigger) -> None:
    doubtful(queue, partner, "a@x", "b@x")
    given = {"expected": "1", "confirm": "1", "reason": "all are in the ERP"}
    answer = browser().post(_group(queue, "settle", "resubmit"), given)
    assert answer.status_code == 409
    page = html.fromstring(answer.content)
    assert "It is 2 now, and you saw 1" in page.get_element_by_id("form-errors").text_content()
    assert page.xpath("//input[@name='expected']/@value") == ["2"]
    assert not BulkJob.objects.exists()


def test_putting_off_needs_a_time_and_no_typing(partner: PartnerSide, queue: Trigger) -> None:
    doubtful(queue, partner, "a@x")
    url = _group(queue, "settle", "later")
    assert not _page(browser(), url).xpath("//input[@name='confirm']")
    given = {"expected": "1", "reason": "asked them"}
    assert browser().post(url, {**given, "remind_in": "5"}).status_code == 422
    assert browser().post(url, {**given, "remind_in": "3600"}).status_code == 303
    jobs.run_due()
    assert Delivery.objects.get().remind_at == clock.now() + timedelta(hours=1)


def test_a_disabled_trigger_gets_no_plan_to_process(partner: PartnerSide, queue: Trigger) -> None:
    doubtful(queue, partner, "a@x")
    triggering.trigger_disable(trigger_id=queue.pk, actor=ANA, reason="not used")
    assert "Process now is not possible now. The trigger is disabled." in _words(
        browser(), _group(queue, "settle", "resubmit")
    )


def test_messages_of_a_pair_are_settled_by_a_job(time: FrozenClock) -> None:
    made = lost(time, 2)
    code = made[0].pair.code.replace(">", "%3E")
    url = f"/in-doubt/outbound/{code}/outcome_unknown/settle/delivered/"
    given = {"expected": "2", "confirm": "2", "reason": "confirmed by telephone"}
    assert browser(Role.OPERATOR).post(url, given).status_code == 303
    jobs.run_due()
    assert {Message.objects.get(pk=message.pk).state for message in made} == {"delivered"}


# --- one delivery ---


def test_every_decision_of_the_service_has_a_dialog() -> None:
    assert set(DELIVERY) == {one.value for one in settling.Decision}
    assert set(MESSAGE) == {one.value for one in settling.MessageDecision}


def test_the_evidence_is_a_ladder_of_four_steps(partner: PartnerSide, queue: Trigger, time: FrozenClock) -> None:
    (delivery,) = doubtful(queue, partner, "a@x")
    time.move(60)
    page = _page(browser(), _delivery(delivery))
    rungs = {
        element.get("data-testid").removeprefix("rung-"): " ".join(element.text_content().split())
        for element in page.xpath("//*[@data-testid='ladder']/li")
    }
    assert list(rungs) == ["redelivery", "history", "resolver", "operator"]
    assert "In doubt since" in page.xpath("//dt/text()") and "Ended" not in page.xpath("//dt/text()")
    assert "Handed over 1 time before." in rungs["redelivery"] and "1 m ago" in rungs["redelivery"]
    assert "no end was recorded" in rungs["history"] and "In doubt" in rungs["history"]
    assert "This trigger has no resolver" in rungs["resolver"]
    assert "Nobody has decided yet" in rungs["operator"]
    settling.delivery_settle(delivery_id=delivery.pk, decision="duplicate", actor=ANA, reason="it is in the ERP")
    page = _page(browser(), _delivery(delivery))
    operator = " ".join(page.xpath("//*[@data-testid='rung-operator']")[0].text_content().split())
    assert "The application has processed it (ana)" in operator
    assert "it is in the ERP" in operator
    assert not page.xpath("//*[starts-with(@id, 'choice-')]"), "nothing is left to decide"


def test_a_document_is_resubmitted_from_its_page(partner: PartnerSide, queue: Trigger) -> None:
    (delivery,) = doubtful(queue, partner, "a@x")
    client = browser(Role.OPERATOR, "olga")
    version = Delivery.objects.get(pk=delivery.pk).version
    answer = client.post(_delivery(delivery, "settle", "resubmit"), {"version": version, "reason": "not in the ERP"})
    made = Delivery.objects.get(resubmission_of=delivery)
    assert (answer.status_code, answer["Location"]) == (303, _delivery(made))
    assert "resubmission" in _words(client, _delivery(made))
    assert "It goes on as another delivery" in _words(client, _delivery(delivery))
    again = client.post(
        _delivery(delivery, "settle", "resubmit"), {"version": version + 1, "reason": "once more, please"}
    )
    assert again.status_code == 409
    assert "settled once only" in again.content.decode()
    assert client.post(_delivery(delivery, "settle", "resubmit"), {"reason": "once more, please"}).status_code == 422
    assert client.get(_delivery(delivery, "settle", "forget")).status_code == 404


def test_an_old_dialog_says_that_somebody_was_faster(partner: PartnerSide, queue: Trigger) -> None:
    (delivery,) = doubtful(queue, partner, "a@x")
    version = delivery.version
    settling.delivery_settle(delivery_id=delivery.pk, decision="later", remind_in=3600, actor=ANA, reason="asked")
    answer = browser().post(
        _delivery(delivery, "settle", "duplicate"), {"version": version, "reason": "me too, please"}
    )
    assert answer.status_code == 409
    assert "changed since you looked" in answer.content.decode()


def test_a_viewer_sees_the_evidence_and_cannot_decide(partner: PartnerSide, queue: Trigger) -> None:
    (delivery,) = doubtful(queue, partner, "a@x")
    page = _page(browser(Role.VIEWER), _delivery(delivery))
    assert page.get_element_by_id("choice-duplicate").get("aria-disabled") == "true"
    assert "Needs the role operator." in page.get_element_by_id("why-duplicate").text_content()


def test_what_the_application_said_is_shown_as_text_to_operators(partner: PartnerSide, queue: Trigger) -> None:
    delivery = failed(queue, partner, "a@x")
    Delivery.objects.filter(pk=delivery.pk).update(http_status=500, answer=b"<script>alert(1)</script>\xff\x00")
    page = _page(browser(Role.OPERATOR), _delivery(delivery))
    assert "<script>alert(1)</script>" in page.xpath("//pre")[0].text_content()
    assert not page.xpath("//pre//script")
    assert "alert(1)" not in browser(Role.VIEWER).get(_delivery(delivery)).content.decode()


def test_the_list_of_deliveries_is_narrowed(partner: PartnerSide, queue: Trigger) -> None:
    (delivery,) = doubtful(queue, partner, "a@x")
    other = failed(queue, partner, "b@x")

    def shown(query: str) -> list[str]:
        found = _page(browser(), f"/deliveries/?{query}").xpath("//a[starts-with(@id, 'open-del_')]/@id")
        return [text.removeprefix("open-") for text in found]

    assert shown("") == [other.public_id, delivery.public_id]
    assert shown("state=in_doubt") == [delivery.public_id]
    assert shown(f"trigger={queue.public_id}&state=failed") == [other.public_id]
    for text in ("a@x", delivery.public_id, delivery.message.public_id):
        assert shown(f"q={text}") == [delivery.public_id]
    assert shown("trigger=nobody") == []
    assert "There is no trigger nobody." in _words(browser(), "/deliveries/?trigger=nobody")
    assert browser().get("/deliveries/?q=%00&state=x&trigger=%00&cursor=zz").status_code == 200


# --- messages ---


def test_a_message_s_page_shows_its_applications_and_what_became_of_it(partner: PartnerSide, queue: Trigger) -> None:
    (delivery,) = doubtful(queue, partner, "a@x")
    page = _page(browser(), f"/messages/{delivery.message.public_id}/")
    row = " ".join(page.xpath("//*[@data-testid='deliveries']")[0].text_content().split())
    assert "Warehouse" in row and "In doubt" in row and "Begun, never finished" in row
    assert page.xpath(f"//a[@href='{_delivery(delivery)}']")
    assert "In doubt whether Warehouse has processed it" in page.get_element_by_id("main").text_content()


def test_a_message_that_no_trigger_wanted_says_so(scene: World) -> None:
    assert "No trigger wanted it." in _words(browser(), f"/messages/{scene.inbound.public_id}/")


def test_an_outbound_message_is_settled_from_its_page(time: FrozenClock) -> None:
    (message,) = lost(time)
    client = browser(Role.OPERATOR, "olga")
    url = f"/messages/{message.public_id}/"
    assert _page(client, url).get_element_by_id("choice-delivered").get("href") == f"{url}settle/delivered/"
    assert "counts as delivered" in _words(client, f"{url}settle/delivered/")
    assert client.post(f"{url}settle/delivered/", {"reason": ""}).status_code == 422
    assert client.post(f"{url}settle/delivered/", {"reason": "confirmed by telephone"}).status_code == 303
    assert Message.objects.get(pk=message.pk).state == "delivered"
    assert client.post(f"{url}settle/resubmit/", {"reason": "once more, please"}).status_code == 409
    assert "is not possible now" in _words(client, f"{url}settle/resubmit/")
    assert not _page(client, url).xpath("//*[starts-with(@id, 'choice-')]")


def test_a_settled_message_says_who_settled_it_and_not_what_must_not_be_done(time: FrozenClock) -> None:
    (message,) = lost(time)
    client = browser(Role.OPERATOR, "olga")
    url = f"/messages/{message.public_id}/"
    assert "it must not be sent again" in _words(client, url)
    client.post(f"{url}settle/delivered/", {"reason": "confirmed by telephone"})
    time.move(120)
    for page in (url, f"{url}peek/"):
        said = _words(client, page)
        assert "Settled by olga" in said and "the partner has it. “confirmed by telephone”" in said, page
        assert "it must not be sent again" not in said and "Ask the partner" not in said
        assert "acknowledged after" not in said, "nobody acknowledged it"
    row = _page(client, "/messages/?state=delivered&window=all").xpath("//td[@data-label='Acknowledged after']")
    assert [cell.text_content().strip() for cell in row] == ["—"]


# --- jobs ---


def _job(trigger: Trigger, decision: str = "duplicate") -> BulkJob:
    return jobs.job_create(
        action="settle_deliveries",
        parameters={"decision": decision},
        filter={"trigger": trigger.public_id, "doubt": STARTED},
        what="Warehouse: all",
        actor=ANA,
        reason="all are in the ERP",
    )


def test_a_job_s_page_shows_how_far_it_is_and_what_came_of_each(
    partner: PartnerSide, queue: Trigger, time: FrozenClock
) -> None:
    one, *_ = doubtful(queue, partner, "a@x", "b@x", "c@x")
    job = _job(queue)
    settling.delivery_settle(delivery_id=one.pk, decision="resubmit", actor=ANA, reason="I was faster")
    url = f"/jobs/{job.public_id}/"
    page = _page(browser(), url)
    assert page.get_element_by_id("live-job").get("hx-get") == url
    assert page.xpath("//progress[@class='job-progress']")[0].attrib["max"] == "3"
    jobs.run_due()
    page = _page(browser(), url)
    assert page.get_element_by_id("live-job").get("hx-get") is None, "it has ended: nothing changes any more"
    assert "3 of 3, 1 refused" in page.get_element_by_id("diagnosis").text_content()
    refused = _page(browser(), f"{url}?show=refused").xpath("//section[@aria-label='Results']//tbody/tr")
    assert len(refused) == 1
    words = " ".join(cell.text_content().strip() for cell in refused[0])
    assert words.startswith("Refused a@x This delivery was resubmitted by ana")
    assert len(_page(browser(), f"{url}?show=done").xpath("//section[@aria-label='Results']//tbody/tr")) == 2
    assert "Mark as processed" in _words(browser(), "/jobs/")
    assert browser().get("/jobs/job_00/").status_code == 404


def test_a_job_is_cancelled_from_its_page(partner: PartnerSide, queue: Trigger) -> None:
    doubtful(queue, partner, "a@x", "b@x")
    job = _job(queue)
    client = browser(Role.OPERATOR, "olga")
    url = f"/jobs/{job.public_id}/"
    assert client.post(f"{url}cancel/", {"reason": ""}).status_code == 422
    assert client.post(f"{url}cancel/", {"reason": "wrong group"}).status_code == 303
    jobs.run_due()
    assert Delivery.objects.filter(state="in_doubt").count() == 2
    assert set(BulkJobItem.objects.values_list("state", flat=True)) == {"cancelled"}
    assert "It was cancelled: 0 were done before" in _words(client, url)
    assert client.post(f"{url}cancel/", {"reason": "again"}).status_code == 409
    assert "olga" in _words(client, url)


# --- dashboard, incidents, search ---


def test_the_dashboard_names_suspended_triggers_and_what_is_in_doubt(scene: World) -> None:
    page = _page(browser(), "/")
    assert (
        "Trigger ERP orders is suspended; 4 documents wait for it."
        in page.xpath("//*[@data-testid='verdict']")[0].text_content()
    )
    (stopped,) = page.xpath("//*[@data-testid='stopped-trigger']")
    assert "Suspended ERP orders" in " ".join(stopped.text_content().split())
    doubts = [" ".join(one.text_content().split()) for one in page.xpath("//*[@data-testid='doubt-line']")]
    assert doubts[0].startswith("In doubt 3 of Warehouse")
    assert doubts[1].startswith(f"In doubt 1 on {scene.lost.pair.code}")


def test_documents_in_doubt_alone_are_something_to_watch(partner: PartnerSide, queue: Trigger) -> None:
    doubtful(queue, partner, "a@x")
    verdict = _page(browser(), "/").xpath("//*[@data-testid='verdict']")[0]
    assert verdict.get("data-state") == "watch"
    assert "1 document in doubt: a person decides." in verdict.text_content()


def test_an_incident_of_a_trigger_leads_to_it(scene: World) -> None:
    incident = scene.stopped.incidents.get()
    assert "ERP orders" in _words(browser(), "/incidents/")
    words = _words(browser(), f"/incidents/{incident}/")
    assert "The trigger now" in words and "Suspended for" in words
    assert "Resume ERP orders" in words
    assert "ERP orders stays suspended" in _words(browser(), f"/incidents/{incident}/resolve/")


def test_ids_and_names_of_the_new_things_jump(scene: World) -> None:
    for text, url in (
        (scene.stopped.public_id, f"/triggers/{scene.stopped.public_id}/"),
        ("erp ORDERS", f"/triggers/{scene.stopped.public_id}/"),
        (scene.doubtful.public_id, f"/deliveries/{scene.doubtful.public_id}/"),
        (scene.job.public_id, f"/jobs/{scene.job.public_id}/"),
    ):
        answer = browser().get("/go", {"q": text})
        assert (answer.status_code, answer["Location"]) == (303, url), text
    assert "Warehouse" in _words(browser(), "/go?q=wareh")
