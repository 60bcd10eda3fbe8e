"""What no rule can decide: listed by evidence group, settled one by one or by a job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from messaging.bulk.services import jobs
from messaging.deliveries.services import pulling, settling, triggering
from messaging.journal.audit import Actor
from messaging.models import (
    AuditEntry,
    BulkJob,
    BulkJobItem,
    Coordination,
    Delivery,
    DocumentCompleted,
    Enlistment,
    Incident,
    Message,
    Trigger,
)
from partners.models import PartnerGroup
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.api.client import REASON, Api, make_token, make_user
from tests.messaging.deliveries.documents import documents_from, make_queue
from tests.messaging.factories import PartnerSide, partner_side, submit
from tests.messaging.profiles.wsat import scenes

pytestmark = pytest.mark.django_db

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def time() -> Iterator[FrozenClock]:
    with clock.frozen(AT) as frozen:
        yield frozen


def in_doubt(partner: PartnerSide, time: FrozenClock, *, count: int = 1, **values: Any) -> list[Delivery]:
    """Documents of a new pull queue that a consumer took and never spoke of again, the oldest first."""
    trigger = make_queue(ordered=False, concurrency=64, **values)
    documents_from(partner, *["NewOrder"] * count)
    pulling.lease(trigger.pk, limit=64, consumer="lost")
    time.move(trigger.lease_seconds + 1)
    assert pulling.lease(trigger.pk, limit=64, consumer="next") == []
    found = list(Delivery.objects.filter(trigger=trigger).order_by("id"))
    assert {delivery.state for delivery in found} == {"in_doubt"}
    return found


def failed(partner: PartnerSide) -> Delivery:
    trigger = make_queue()
    documents_from(partner, "NewOrder")
    (leased,) = pulling.lease(trigger.pk, limit=1, consumer="x")
    return pulling.fail(leased.delivery.pk, leased.claim, "No such article.")


def unknown(partner: PartnerSide) -> Message:
    """An outbound message of the repeatable profile whose outcome is unknown."""
    message = submit(partner)
    Message.objects.filter(pk=message.pk).update(
        state="in_doubt", cause="outcome_unknown", first_sent_at=clock.now(), expires_at=None, due_at=None
    )
    message.pair.queued, message.pair.out_now = 0, 0
    message.pair.save(update_fields=["queued", "out_now"])
    return Message.objects.get(pk=message.pk)


def settle(api: Api, delivery: Delivery, decision: str, **more: Any) -> Any:
    path = f"/deliveries/{delivery.public_id}"
    body = {**REASON, "decision": decision, **more}
    return api.post(f"{path}/settle", body, If_Match=api.get(path).etag)


# ---- one by one


def test_a_document_that_was_processed(operator: Api, partner: PartnerSide, time: FrozenClock) -> None:
    (delivery,) = in_doubt(partner, time)
    path = f"/deliveries/{delivery.public_id}"
    read = operator.get(path)
    assert read.json["doubt"] == "started_not_completed"
    assert read.json["allowed_decisions"] == ["duplicate", "resubmit", "later"]
    body = {"decision": "duplicate", "reason": "It is in the ERP."}
    assert operator.post(f"{path}/settle", body).code == "precondition_required"
    done = operator.post(f"{path}/settle", body, If_Match=read.etag)
    assert (done.status, done.json["state"], done.json["decision"]) == (200, "settled", "duplicate")
    assert done.etag == operator.get(path).etag
    assert done.json["decided_by"].startswith("operator") and done.json["decided_at"]
    assert done.json["evidence"][-1]["step"] == "operator"
    assert done.json["evidence"][-1]["by"] == done.json["decided_by"]
    assert done.json["allowed_decisions"] == []
    assert DocumentCompleted.objects.get().outcome == "operator"
    assert operator.post(f"{path}/settle", body, If_Match=read.etag).code == "stale"
    again = settle(operator, delivery, "resubmit")
    assert (again.status, again.code, again.json["current_state"]) == (409, "already_settled", "settled")
    assert AuditEntry.objects.get(verb="delivery.mark_processed").reason == "It is in the ERP."
    assert Incident.objects.get(cause="documents_in_doubt").state == "resolved"


def test_a_document_that_was_not_processed(operator: Api, partner: PartnerSide, time: FrozenClock) -> None:
    (delivery,) = in_doubt(partner, time)
    done = settle(operator, delivery, "resubmit")
    assert (done.status, done.json["decision"]) == (200, "resubmit")
    made = operator.get(f"/deliveries/{done.json['resubmitted_as']}").json
    assert (made["state"], made["resubmission_of"], made["redelivery_count"]) == ("waiting", delivery.public_id, 0)
    assert made["resubmitted_as"] is None
    assert settle(operator, delivery, "resubmit").code == "already_settled"
    assert Delivery.objects.count() == 2


def test_later_and_not_for_ever(operator: Api, partner: PartnerSide, time: FrozenClock) -> None:
    (delivery,) = in_doubt(partner, time)
    for more in ({}, {"remind_in": 59}, {"remind_in": "60"}, {"remind_in": 90 * 86_400 + 1}):
        assert settle(operator, delivery, "later", **more).json["errors"][0]["pointer"] == "#/remind_in", more
    assert settle(operator, delivery, "duplicate", remind_in=60).json["errors"][0]["pointer"] == "#/remind_in"
    done = settle(operator, delivery, "later", remind_in=3600)
    assert (done.status, done.json["state"]) == (200, "in_doubt")
    assert done.json["remind_at"] == (clock.now() + timedelta(hours=1)).isoformat().replace("+00:00", "Z")


def test_the_resolver_is_asked_once_more(operator: Api, partner: PartnerSide, time: FrozenClock) -> None:
    (delivery,) = in_doubt(partner, time)
    refused = settle(operator, delivery, "ask")
    assert (refused.status, refused.code) == (409, "wrong_state")
    assert refused.json["allowed_actions"] == ["duplicate", "resubmit", "later"]
    Trigger.objects.update(resolver="http", resolver_url="http://erp.internal:8080/resolve")
    done = settle(operator, delivery, "ask")
    assert (done.status, done.json["state"], done.json["redelivery_count"]) == (200, "waiting", 2)


def test_a_failed_document_is_resubmitted(operator: Api, partner: PartnerSide) -> None:
    delivery = failed(partner)
    done = settle(operator, delivery, "resubmit")
    assert (done.status, done.json["state"]) == (200, "settled")
    assert Delivery.objects.get(resubmission_of=delivery).state == "waiting"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#/decision"),
        ({"decision": "new"}, "#/decision"),
        ({"decision": ["duplicate"]}, "#/decision"),
        ({"decision": "duplicate", "reason": "x"}, "#/reason"),
        ({"decision": "duplicate", "reason": "a\u0000bc"}, "#/reason"),
        ({"decision": "duplicate", "state": "x"}, "#/state"),
    ],
)
def test_decisions_that_cannot_be(
    operator: Api, partner: PartnerSide, time: FrozenClock, body: dict[str, Any], pointer: str
) -> None:
    (delivery,) = in_doubt(partner, time)
    message = unknown(partner_side(profile="repeatable"))
    for path in (f"/deliveries/{delivery.public_id}/settle", f"/messages/{message.public_id}/settle"):
        answer = operator.post(path, {**REASON, **body}, If_Match="*")
        assert answer.status == 422
        assert pointer in {error["pointer"] for error in answer.json["errors"]}
    delivery.refresh_from_db()
    assert delivery.state == "in_doubt"


def test_what_is_not_in_doubt_is_not_settled(operator: Api, partner: PartnerSide) -> None:
    make_queue()
    documents_from(partner, "A")
    delivery = Delivery.objects.get()
    for decision in settling.Decision:
        more = {"remind_in": 60} if decision == "later" else {}
        answer = settle(operator, delivery, decision, **more)
        assert (answer.status, answer.code, answer.json["current_state"]) == (409, "wrong_state", "waiting")


def test_outbound_messages_are_settled(operator: Api) -> None:
    partner = partner_side(profile="repeatable")
    first, second, third = (unknown(partner) for _ in range(3))
    read = operator.get(f"/messages/{first.public_id}")
    assert read.json["allowed_actions"] == ["settle"] and read.json["deliveries"] is None
    body = {"decision": "delivered", "reason": "They have it."}
    stale = operator.post(f"/messages/{first.public_id}/settle", body, If_Match='"old"')
    assert stale.code == "stale"
    done = operator.post(f"/messages/{first.public_id}/settle", body, If_Match=read.etag)
    assert (done.status, done.json["state"], done.json["allowed_actions"]) == (200, "delivered", ["resubmit"])
    assert operator.post(f"/messages/{first.public_id}/settle", body).code == "already_settled"
    again = operator.post(f"/messages/{second.message_id}/settle", {**REASON, "decision": "resubmit"})
    assert (again.status, again.json["state"]) == (200, "skipped")
    made = Message.objects.exclude(pk__in=(first.pk, second.pk, third.pk)).get()
    assert made.message_id != second.message_id and made.conversation_id == second.conversation_id
    later = operator.post(f"/messages/{third.public_id}/settle", {**REASON, "decision": "later", "remind_in": 60})
    assert (later.json["state"], later.json["remind_at"]) == ("in_doubt", "2026-03-01T12:01:00Z")
    assert later.etag == operator.get(f"/messages/{third.public_id}").etag
    waiting = submit(partner)
    refused = operator.post(f"/messages/{waiting.public_id}/settle", body)
    assert (refused.status, refused.code) == (409, "wrong_state")


# ---- groups and jobs


def test_groups_tell_what_is_likely_to_be_true_of_all(viewer: Api, partner: PartnerSide, time: FrozenClock) -> None:
    started = in_doubt(partner, time, count=3, name="Started")
    in_doubt(partner, time, count=1, name="Blind", use_history=False)
    Delivery.objects.filter(pk=started[0].pk).update(remind_at=clock.now() + timedelta(hours=1))
    message = unknown(partner_side(profile="repeatable"))
    found = viewer.get("/in-doubt").json
    # The first trigger took the later document too, so that its copy waits there.
    by_trigger = {group["trigger"]["name"]: group for group in found["deliveries"]}
    group = by_trigger["Started"]
    assert (group["doubt"], group["count"], group["later"]) == ("started_not_completed", 3, 1)
    assert group["filter"] == {"trigger": started[0].trigger.public_id, "doubt": "started_not_completed"}
    assert group["allowed_decisions"] == ["duplicate", "resubmit", "later"]
    assert group["reason"]["sentence"] and group["reason"]["advice"]
    assert by_trigger["Blind"]["doubt"] == "redelivered_without_memory"
    (outbound,) = found["messages"]
    assert (outbound["pair"]["code"], outbound["cause"], outbound["count"]) == (message.pair.code, "outcome_unknown", 1)
    assert outbound["filter"] == {"pair": message.pair.public_id, "cause": "outcome_unknown"}
    assert outbound["allowed_decisions"] == ["delivered", "resubmit", "later"]
    listed = viewer.get("/deliveries", {**group["filter"], "state": "in_doubt"}).json["data"]
    assert {row["id"] for row in listed} == {delivery.public_id for delivery in started}
    only = viewer.get("/in-doubt", {"trigger": "Blind"}).json
    assert ([one["trigger"]["name"] for one in only["deliveries"]], only["messages"]) == (["Blind"], [])
    only = viewer.get("/in-doubt", {"pair": message.pair.code}).json
    assert (only["deliveries"], len(only["messages"])) == ([], 1)
    for query in ({"trigger": "x"}, {"pair": "x"}, {"doubt": "x"}):
        assert viewer.get("/in-doubt", query).status == 400


def test_transactions_are_groups_by_partner_and_reason(viewer: Api, operator: Api, time: FrozenClock) -> None:
    first, taker = scenes.doubtful("Stock", "Freight")
    assert taker.party is not None
    second = Coordination.objects.create(
        identifier="urn:x", doubtful_since=AT, created_at=AT, changed_at=AT, phase="committing"
    )
    same = Enlistment.objects.create(
        coordination=second, party=taker.party, pair=taker.pair, protocol="Durable2PC", doubt=taker.doubt, created_at=AT
    )
    Enlistment.objects.create(
        coordination=second, party=taker.party, pair=taker.pair, protocol="Durable2PC", doubt=taker.doubt, created_at=AT
    )
    silent = Enlistment.objects.create(
        coordination=second,
        party=first.enlistments.exclude(pk=taker.pk).get(protocol="Durable2PC").party,
        protocol="Durable2PC",
        seat="committing",
        doubt="transaction_peer_silent",
        doubt_detail="Commit was sent 3 times.",
        created_at=AT,
    )
    found = viewer.get("/in-doubt").json
    assert (found["deliveries"], found["messages"]) == ([], [])
    stock, freight = found["transactions"]
    assert (stock["partner"]["name"], stock["doubt"], stock["count"]) == ("Stock", "heuristic_outcome", 2)
    assert stock["oldest_at"] == "2026-03-01T11:55:00Z", "five minutes before the other one"
    assert stock["oldest"]["transaction"] == first.public_id and stock["oldest"]["id"] == taker.public_id
    assert stock["oldest"]["detail"].startswith("It rolled back")
    assert (freight["partner"]["name"], freight["doubt"], freight["count"]) == ("Freight", silent.doubt, 1)
    assert freight["oldest"]["allowed_settlements"] == ["forget"]
    assert freight["reason"]["label"] == "Transaction: no answer" and freight["reason"]["advice"]
    for group, wanted in ((stock, {first.public_id, second.public_id}), (freight, {second.public_id})):
        assert {row["id"] for row in viewer.get("/transactions", group["filter"]).json["data"]} == wanted
    path = f"/transactions/{stock['oldest']['transaction']}/participants/{stock['oldest']['id']}/settle"
    (outcome,) = stock["oldest"]["allowed_settlements"]
    settled = operator.post(path, {"outcome": outcome, "reason": "Fixed by hand over there"}, If_Match="*")
    assert settled.status == 200, settled.json
    (stock, freight) = viewer.get("/in-doubt").json["transactions"]
    assert (stock["count"], stock["oldest"]["id"]) == (1, same.public_id)

    assert same.pair is not None
    assert [one["count"] for one in viewer.get("/in-doubt", {"pair": same.pair.code}).json["transactions"]] == [1]
    make_queue(name="Blind")
    assert viewer.get("/in-doubt", {"trigger": "Blind"}).json["transactions"] == []


def test_whoever_is_limited_sees_no_other_partner_in_doubt(time: FrozenClock) -> None:
    one, taker = scenes.doubtful("Stock", "Freight")
    freight = one.enlistments.exclude(pk=taker.pk).get(protocol="Durable2PC")

    near, nobody = (PartnerGroup.objects.create(name=name) for name in ("near", "nobody"))
    near.partners.add(freight.party_id)
    limited, stranger = (Api(make_token(make_user(Role.OPERATOR), groups=[group.pk])) for group in (near, nobody))
    (group,) = limited.get("/in-doubt").json["transactions"]
    assert (group["partner"], group["doubt"], group["oldest"], group["count"]) == (None, "", None, 1)
    assert group["filter"] == {"doubtful": "true"}
    assert [row["id"] for row in limited.get("/transactions", group["filter"]).json["data"]] == [one.public_id]
    assert limited.get("/transactions", {"doubt": taker.doubt}).json["data"] == []
    assert stranger.get("/in-doubt").json["transactions"] == []


def test_a_group_is_settled_by_a_job(operator: Api, viewer: Api, partner: PartnerSide, time: FrozenClock) -> None:
    rows = in_doubt(partner, time, count=3)
    (group,) = operator.get("/in-doubt").json["deliveries"]
    body = {"action": "settle_deliveries", "decision": "duplicate", "filter": group["filter"], **REASON}
    wrong = operator.post("/bulk-operations", {**body, "expected": 4})
    assert (wrong.status, wrong.code) == (412, "stale")
    made = operator.post("/bulk-operations", {**body, "expected": group["count"]})
    assert made.status == 202
    path = made.headers["location"].removeprefix("/api/v1")
    read = viewer.get(path)
    assert read.json == made.json and read.etag == made.etag
    assert (read.json["state"], read.json["total"], read.json["done"]) == ("queued", 3, 0)
    assert (read.json["decision"], read.json["allowed_actions"]) == ("duplicate", ["cancel"])
    settling.delivery_settle(delivery_id=rows[1].pk, decision="resubmit", actor=Actor("olga"), reason="done by hand")
    assert jobs.run_due() == 3
    done = viewer.get(path).json
    assert (done["state"], done["done"], done["refused"]) == ("finished", 2, 1)
    assert done["finished_at"] and done["allowed_actions"] == ["retry"]
    items = viewer.get(f"{path}/items").json["data"]
    assert [(item["object"], item["state"]) for item in items] == [
        (rows[0].public_id, "done"),
        (rows[1].public_id, "refused"),
        (rows[2].public_id, "done"),
    ]
    assert "olga" in items[1]["detail"]
    (refused,) = viewer.get(f"{path}/items", {"state": "refused"}).json["data"]
    assert refused == items[1]
    assert [job["id"] for job in viewer.get("/bulk-operations", {"state": "finished"}).json["data"]] == [done["id"]]
    assert viewer.get("/bulk-operations", {"state": "queued"}).json["data"] == []
    entry = AuditEntry.objects.get(verb="delivery.mark_processed", object_id=rows[0].public_id)
    assert (entry.reason, entry.interface, entry.actor) == (REASON["reason"], "api", done["actor"])
    nothing = operator.post("/bulk-operations", body)
    assert (nothing.status, nothing.json["errors"][0]["pointer"]) == (422, "#/filter")


def test_chosen_ones_messages_and_failed_ones(operator: Api, partner: PartnerSide, time: FrozenClock) -> None:
    rows = in_doubt(partner, time, count=3)
    chosen = [rows[2].public_id, rows[0].public_id]
    body = {"action": "settle_deliveries", "decision": "later", "remind_in": 3600, "ids": chosen, **REASON}
    first = operator.post("/bulk-operations", body)
    assert (first.status, first.json["total"], first.json["remind_in"]) == (202, 2, 3600)
    message = unknown(partner_side(profile="repeatable"))
    filter = {"pair": message.pair.public_id, "cause": "outcome_unknown"}
    second = operator.post(
        "/bulk-operations", {"action": "settle_messages", "decision": "delivered", "filter": filter, **REASON}
    )
    wreck = failed(partner_side())
    filter = {"trigger": wreck.trigger.public_id}
    third = operator.post("/bulk-operations", {"action": "redeliver_failed", "filter": filter, **REASON})
    assert (third.status, third.json["decision"], third.json["remind_in"]) == (202, "", None)
    assert jobs.run_due() == 4
    for row in rows:
        row.refresh_from_db()
    assert [row.remind_at is not None for row in rows] == [True, False, True]
    message.refresh_from_db()
    assert message.state == "delivered"
    (item,) = operator.get(f"/bulk-operations/{second.json['id']}/items").json["data"]
    assert item == {"object": message.public_id, "state": "done", "detail": "", "not_before": None}
    assert Delivery.objects.get(resubmission_of=wreck).state == "waiting"


def test_a_job_is_cancelled(operator: Api, viewer: Api, partner: PartnerSide, time: FrozenClock) -> None:
    (delivery,) = in_doubt(partner, time)
    body = {"action": "settle_deliveries", "decision": "resubmit", "ids": [delivery.public_id], **REASON}
    path = operator.post("/bulk-operations", body).headers["location"].removeprefix("/api/v1")
    assert viewer.post(f"{path}/cancel", REASON).json["required_scope"] == "indoubt:resolve"
    assert operator.post(f"{path}/cancel", {}).json["errors"][0]["pointer"] == "#/reason"
    ended = operator.post(f"{path}/cancel", REASON)
    assert (ended.status, ended.json["state"], ended.json["allowed_actions"]) == (200, "cancelled", [])
    again = operator.post(f"{path}/cancel", REASON)
    assert (again.status, again.code, again.json["current_state"]) == (409, "wrong_state", "cancelled")
    assert jobs.run_due() == 0
    assert BulkJobItem.objects.get().state == "cancelled"
    delivery.refresh_from_db()
    assert delivery.state == "in_doubt"


ID = "del_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"
DOUBT = {"trigger": "trg_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7", "doubt": "x"}


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"action": "delete_all"}, "#/action"),
        ({"action": None}, "#/action"),
        ({"decision": "delivered"}, "#/decision"),
        ({"decision": None}, "#/decision"),
        ({"remind_in": 60}, "#/remind_in"),
        ({"action": "redeliver_failed", "filter": {"trigger": DOUBT["trigger"]}}, "#/decision"),
        ({"action": "redeliver_failed", "filter": DOUBT}, "#/decision"),
        ({"filter": {}}, "#/filter"),
        ({"filter": {"trigger": DOUBT["trigger"]}}, "#/filter"),
        ({"filter": {"trigger": "x", "doubt": "y"}}, "#/filter"),
        ({"filter": {"pair": "x"}}, "#/filter"),
        ({"filter": {"state": "x"}}, "#/filter"),
        ({"filter": [DOUBT]}, "#/filter"),
        ({"filter": DOUBT}, "#/filter"),  # nothing is in it
        ({"ids": [ID]}, "#/filter"),  # both
        ({"filter": None}, "#/filter"),
        ({"expected": 0}, "#/expected"),
        ({"expected": "3"}, "#/expected"),
        ({"reason": "x"}, "#/reason"),
        ({"what": "x"}, "#/what"),
    ],
)
def test_jobs_that_cannot_be(operator: Api, changes: dict[str, Any], pointer: str) -> None:
    body = {"action": "settle_deliveries", "decision": "duplicate", "filter": DOUBT, **REASON, **changes}
    answer = operator.post("/bulk-operations", body)
    assert (answer.status, answer.code) == (422, "invalid_submission")
    assert pointer in {error["pointer"] for error in answer.json["errors"]}, answer.json["errors"]
    assert not BulkJob.objects.exists()


@pytest.mark.parametrize(
    ("ids", "pointer"),
    [
        ([], "#/ids"),
        (ID, "#/ids"),
        ([7], "#/ids/0"),
        ([ID, "del_1"], "#/ids/1"),
        (["msg_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"], "#/ids/0"),
        ([ID], "#/ids"),  # there is no such delivery
        ([ID] * 10_001, "#/ids"),
    ],
)
def test_ids_that_cannot_be(operator: Api, ids: Any, pointer: str) -> None:
    answer = operator.post(
        "/bulk-operations", {"action": "settle_deliveries", "decision": "duplicate", "ids": ids, **REASON}
    )
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, pointer)


def test_one_job_is_one_evidence_group(operator: Api, partner: PartnerSide, time: FrozenClock) -> None:
    first, second = in_doubt(partner, time)[0], in_doubt(partner_side(), time, use_history=False)[0]
    body = {"action": "settle_deliveries", "decision": "duplicate", "ids": [first.public_id, second.public_id]}
    answer = operator.post("/bulk-operations", {**body, **REASON})
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "#/ids")


@pytest.mark.parametrize("reference", [f"job_{'0' * 32}", "x", "%00"])
def test_jobs_that_are_not_there(admin: Api, reference: str) -> None:
    for path in ("", "/items"):
        assert admin.get(f"/bulk-operations/{reference}{path}").code == "not_found"
    assert admin.post(f"/bulk-operations/{reference}/cancel", REASON).code == "not_found"


def test_a_viewer_looks_and_does_not_decide(viewer: Api, partner: PartnerSide, time: FrozenClock) -> None:
    (delivery,) = in_doubt(partner, time)
    for path, body in (
        (f"/deliveries/{delivery.public_id}/settle", {"decision": "duplicate"}),
        ("/messages/x/settle", {"decision": "delivered"}),
        ("/bulk-operations", {}),
        ("/bulk-operations/x/cancel", {}),
    ):
        answer = viewer.post(path, {**REASON, **body}, If_Match="*")
        assert (answer.status, answer.json["required_scope"]) == (403, "indoubt:resolve")


def test_the_console_and_the_api_do_the_same(operator: Api, partner: PartnerSide, time: FrozenClock) -> None:
    """Whatever a person can decide in the console, a script can decide, and both are told when the other was faster."""
    from messaging.bulk import serializers as job_shapes
    from messaging.deliveries import serializers as deliveries
    from messaging.deliveries.pages import decisions
    from messaging.messages.api import verbs

    known = {
        choice: set(field.choices)
        for choice, field in (
            ("delivery", deliveries.SettleBody().fields["decision"]),
            ("message", verbs.MessageSettleBody().fields["decision"]),
            ("action", job_shapes.PlanBody().fields["action"]),
        )
    }
    assert known["delivery"] == set(decisions.DELIVERY) == set(settling.Decision)
    assert known["message"] == set(decisions.MESSAGE) == set(settling.MessageDecision)
    assert known["action"] == set(jobs.ACTIONS)
    (delivery,) = in_doubt(partner, time)
    read = operator.get(f"/deliveries/{delivery.public_id}")
    settling.delivery_settle(delivery_id=delivery.pk, decision="duplicate", actor=Actor("olga"), reason="done by hand")
    body = {**REASON, "decision": "resubmit"}
    assert operator.post(f"/deliveries/{delivery.public_id}/settle", body, If_Match=read.etag).code == "stale"


def test_a_disabled_trigger_processes_nothing(operator: Api, partner: PartnerSide, time: FrozenClock) -> None:
    (delivery,) = in_doubt(partner, time)
    triggering.trigger_disable(trigger_id=delivery.trigger_id, actor=Actor("olga"), reason="done by hand")
    answer = settle(operator, delivery, "resubmit")
    assert (answer.code, answer.json["allowed_actions"]) == ("wrong_state", ["duplicate", "later"])
    (group,) = operator.get("/in-doubt").json["deliveries"]
    assert group["allowed_decisions"] == ["duplicate", "later"]
