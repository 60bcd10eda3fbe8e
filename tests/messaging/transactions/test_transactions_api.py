"""Atomic transactions through the API: begin, enlist, commit, roll back, wait, look, settle."""

from __future__ import annotations

import threading
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from lxml import etree

from messaging.api import long_poll
from messaging.models import AuditEntry, Coordination, Enlistment, Event
from messaging.profiles.wsat.opening import coordination_open
from messaging.protocol.atomic.words import Note, Protocol
from messaging.protocol.ws.messages import EndpointReference
from messaging.protocol.ws.reading import read_context
from messaging.transactions.selectors import coordinations
from partners.choices import VersionState
from partners.models import AgreementVersion, PartnerGroup, Party
from rmhub import clock
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.deliveries.stage import arrive, make_trigger
from tests.messaging.factories import partner_side
from tests.messaging.profiles.wsat import scenes
from tests.messaging.profiles.wsat.kit import Peer, Place, party_of, peer

pytestmark = pytest.mark.django_db
WHY = {"reason": "because the test says so"}


@pytest.fixture
def api(db: None) -> Api:
    return Api(make_token(make_user(Role.OPERATOR, "erp")))


def begin(api: Api, **body: Any) -> dict[str, Any]:
    answer = api.post("/transactions", body, Idempotency_Key=str(uuid4()))
    assert answer.status == 201, answer.json
    found: dict[str, Any] = answer.json
    return found


def enlist(api: Api, txn: str, shop: Peer, protocol: str = "Durable2PC") -> Place:
    """The peer takes part by its endpoint reference; the place from which it answers."""
    own = shop.place()
    body = {
        "agreement": shop.terms.tpa_id,
        "protocol": protocol,
        "address": own.address,
        "parameters": list(own.parameters),
    }
    answer = api.post(f"/transactions/{txn}/participants", body)
    assert answer.status == 201, answer.json
    hub = answer.json["coordinator"]
    return Place(shop, own, EndpointReference(hub["address"], tuple(hub["parameters"])), Protocol(protocol))


def test_an_application_begins_enlists_and_commits(api: Api) -> None:
    begun = begin(api, expires_ms=60_000)
    assert (begun["phase"], begun["outcome"], begun["role"], begun["begun_by"]) == (
        "active",
        None,
        "coordinator",
        "erp",
    )
    assert begun["allowed_actions"] == ["commit", "rollback"]
    assert begun["diagnosis"]["situation"] == "nobody"
    path = f"/transactions/{begun['id']}"
    stock, freight = (enlist(api, begun["id"], one) for one in (peer("Stock"), peer("Freight")))
    asked = api.post(f"{path}/commit", {}, If_Match="*")
    assert (asked.status, asked.json["phase"]) == (200, "preparing")
    assert asked.json["diagnosis"]["headline"] == "Waits for the vote of Stock and Freight."
    assert asked.json["allowed_actions"] == ["rollback"]
    assert (stock.heard(), freight.heard()) == (["Prepare"], ["Prepare"])
    stock.say(Note.PREPARED)
    freight.say(Note.PREPARED)
    decided = api.get(path).json
    assert (decided["phase"], decided["outcome"]) == ("committing", "committed")
    stock.say(Note.COMMITTED)
    freight.say(Note.COMMITTED)
    done = api.get(path).json
    assert (done["phase"], done["outcome"], done["diagnosis"]["situation"]) == ("committed", "committed", "committed")
    assert [one["seat"] for one in done["participants"]] == ["none", "none"]
    kinds = [(one["direction"], one["kind"]) for one in api.get(f"{path}/messages").json["data"]]
    assert kinds.count(("out", "Prepare")) == kinds.count(("in", "Committed")) == 2
    assert AuditEntry.objects.get(verb="transaction.commit").actor.startswith("erp")
    assert Event.objects.filter(type="transaction.committed").count() == 1


def test_a_repeat_begins_nothing_new(api: Api) -> None:
    first = api.post("/transactions", {"expires_ms": 5000}, Idempotency_Key='"k-1"')
    again = api.post("/transactions", {"expires_ms": 9000}, Idempotency_Key='"k-1"')
    assert (first.status, again.status, again.json["id"]) == (201, 201, first.json["id"])
    assert (again.headers["idempotent-replayed"], "idempotent-replayed" in first.headers) == ("true", False)
    assert first.headers["location"] == f"/api/v1/transactions/{first.json['id']}"
    assert api.post("/transactions", {"version": "2004/10"}, Idempotency_Key='"k-1"').code == "idempotency_key_reused"
    assert api.post("/transactions", {}).code == "idempotency_key_missing"
    other = Api(make_token(make_user(Role.OPERATOR)))
    assert other.post("/transactions", {}, Idempotency_Key='"k-1"').json["id"] != first.json["id"]
    assert Coordination.objects.count() == 2


def test_a_user_begins_no_more_than_it_may_have_open(api: Api, settings: Any) -> None:
    settings.RMHUB_TRANSACTIONS_OPEN = 2
    first, _ = (api.post("/transactions", {}, Idempotency_Key=f'"k-{number}"') for number in range(2))
    refused = api.post("/transactions", {}, Idempotency_Key='"k-2"')
    assert (refused.status, refused.code, refused.json["retryable"]) == (409, "too_many_transactions", True)
    assert "has begun 2 transactions that have not ended" in refused.json["detail"]
    assert Coordination.objects.count() == 2
    again = api.post("/transactions", {}, Idempotency_Key='"k-0"')
    assert (again.status, again.json["id"]) == (201, first.json["id"]), "a repeat begins nothing"
    other = Api(make_token(make_user(Role.OPERATOR)))
    assert other.post("/transactions", {}, Idempotency_Key='"k-2"').status == 201, "each user has a share"
    body = {"reason": "The order was cancelled"}
    assert api.post(f"/transactions/{first.json['id']}/rollback", body, If_Match="*").status == 200
    assert api.post("/transactions", {}, Idempotency_Key='"k-2"').status == 201


def test_a_participant_is_enlisted_once_however_often_it_is_asked_for(api: Api) -> None:
    begun, shop = begin(api), peer()
    own = shop.place()
    body = {"agreement": shop.terms.tpa_id, "protocol": "Durable2PC", "address": own.address}
    parameter = '<n:Seat  xmlns:n="urn:peer" >7</n:Seat>'
    path = f"/transactions/{begun['id']}/participants"
    made = [api.post(path, {**body, "parameters": [parameter]}) for _ in range(2)]
    assert [one.status for one in made] == [201, 201]
    assert made[0].json["id"] == made[1].json["id"]
    assert Enlistment.objects.count() == 1
    listed = api.get(path).json["data"]
    assert [(one["role"], one["party"]["name"]) for one in listed] == [("participant", shop.terms.partner_name)]

    # Neither a new version of the agreement nor its end makes it another participant.
    old = AgreementVersion.objects.get(pk=shop.terms.version_id)
    old.pk, old.number, old.state = uuid4(), old.number + 1, VersionState.RETIRED
    old.save(force_insert=True)
    Enlistment.objects.update(agreement_version=old, seat="none", ended_at=clock.now())
    again = api.post(path, {**body, "parameters": [parameter]})
    assert (again.status, again.json["id"]) == (201, made[0].json["id"])
    assert Enlistment.objects.count() == 1


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"agreement": "no such"}, "#/agreement"),
        ({"protocol": "Completion"}, "#/protocol"),
        ({"address": "https://elsewhere.example/tx"}, "#/address"),
        ({"address": "http://www.w3.org/2005/08/addressing/anonymous"}, "#/address"),
        ({"parameters": ["no element"]}, "#/parameters"),
        ({"parameters": ["<a/>", 7]}, "#/parameters/1"),
    ],
)
def test_a_participant_that_cannot_be(api: Api, changes: dict[str, Any], pointer: str) -> None:
    begun, shop = begin(api), peer()
    body = {"agreement": shop.terms.tpa_id, "protocol": "Durable2PC", "address": shop.place().address, **changes}
    answer = api.post(f"/transactions/{begun['id']}/participants", body)
    assert (answer.status, answer.code) == (422, "invalid_submission")
    assert pointer in [error["pointer"] for error in answer.json["errors"]]
    assert not Enlistment.objects.exists()


def test_nobody_joins_when_durable_participants_were_asked(api: Api) -> None:
    begun = begin(api)
    enlist(api, begun["id"], peer())
    api.post(f"/transactions/{begun['id']}/commit", {}, If_Match="*")
    late = peer()
    body = {"agreement": late.terms.tpa_id, "protocol": "Durable2PC", "address": late.place().address}
    answer = api.post(f"/transactions/{begun['id']}/participants", body)
    assert (answer.status, answer.code) == (409, "wrong_state")
    assert (answer.json["current_state"], answer.json["allowed_actions"]) == ("preparing", ["rollback"])


def test_verbs_compare_the_tag_and_say_what_is_possible(api: Api) -> None:
    begun = begin(api)
    path = f"/transactions/{begun['id']}"
    assert api.post(f"{path}/rollback", WHY).code == "precondition_required"
    seen = api.get(path).etag
    assert api.get(path, If_None_Match=seen).status == 304
    enlist(api, begun["id"], peer())
    assert api.post(f"{path}/rollback", WHY, If_Match=seen).code == "stale"
    assert api.post(f"{path}/rollback", {}, If_Match="*").code == "invalid_submission"
    done = api.post(f"{path}/rollback", WHY, If_Match=api.get(path).etag)
    assert (done.status, done.json["outcome"], done.json["cause"]) == (200, "aborted", "transaction_rolled_back")
    refused = api.post(f"{path}/commit", {}, If_Match="*")
    assert (refused.status, refused.code, refused.json["allowed_actions"]) == (409, "wrong_state", [])


def test_a_partners_transaction_is_rolled_back_here_but_not_committed(api: Api) -> None:
    app = peer("Shop")
    context = app.create()
    app.register(context, Protocol.COMPLETION)
    (listed,) = api.get("/transactions").json["data"]
    assert (listed["begun_by"], listed["allowed_actions"]) == ("Shop", ["rollback"])
    refused = api.post(f"/transactions/{listed['id']}/commit", {}, If_Match="*")
    assert (refused.code, refused.json["allowed_actions"]) == ("wrong_state", ["rollback"])
    assert api.post(f"/transactions/{listed['id']}/rollback", WHY, If_Match="*").json["outcome"] == "aborted"


def test_the_context_is_what_a_participant_registers_with(api: Api) -> None:
    begun, shop = begin(api, expires_ms=60_000), peer("Stock")
    path = f"/transactions/{begun['id']}/context"
    given = api.get(path, {"agreement": shop.terms.tpa_id}).json
    context, _ = read_context(given["context_xml"].encode())
    assert (context.identifier, context.registration.address) == (begun["identifier"], given["registration"]["address"])
    assert etree.fromstring(given["registration"]["parameters"][0]).text == begun["id"]
    shop.register(context, Protocol.DURABLE)
    (listed,) = api.get(f"/transactions/{begun['id']}/participants").json["data"]
    assert (listed["party"]["name"], listed["seat"]) == ("Stock", "active")
    assert listed["last_heard_at"] is not None
    assert api.get(path).code == "invalid_parameter"
    assert api.get(path, {"agreement": "none"}).code == "invalid_submission"


def test_the_list_is_narrowed_by_each_filter(api: Api) -> None:
    doubted, taker = scenes.doubtful("Stock", "Freight")
    done, gone = scenes.committed("Stock B"), scenes.rolled_back()
    mine = begin(api)

    def listed(**query: str) -> set[str]:
        answer = api.get("/transactions", query)
        assert answer.status == 200, answer.json
        return {one["id"] for one in answer.json["data"]}

    assert listed() == {doubted.public_id, done.public_id, gone.public_id, mine["id"]}
    assert listed(phase="committed") == {done.public_id}
    assert listed(phase="aborted,active") == {gone.public_id, mine["id"]}
    assert listed(doubtful="true") == {doubted.public_id}
    assert doubted.public_id not in listed(doubtful="false")
    assert taker.party is not None
    other = doubted.enlistments.exclude(pk=taker.pk).filter(protocol="Durable2PC").get().party
    assert other is not None
    assert listed(doubt="heuristic_outcome") == {doubted.public_id}
    assert listed(doubt="heuristic_outcome", party=taker.party.public_id) == {doubted.public_id}
    assert listed(doubt="heuristic_outcome", party=other.public_id) == set(), "that one is not in doubt"
    assert listed(doubt="transaction_peer_silent") == set()
    assert listed(party=taker.party.public_id) == {doubted.public_id}
    beginner = doubted.agreement_version.agreement.partner  # type: ignore[union-attr]
    assert listed(party=beginner.public_id) == {doubted.public_id}
    assert listed(role="participant") == set()
    assert listed(q=done.identifier) == listed(q=done.public_id) == {done.public_id}
    message = doubted.messages.order_by("at").first()
    assert message is not None
    assert listed(q=message.message.message_id) == listed(q=message.message.public_id) == {doubted.public_id}
    assert listed(q=taker.public_id) == {doubted.public_id}
    assert listed(q="nothing") == set()
    assert listed(begun_gte="2200-01-01T00:00:00Z") == set()
    assert mine["id"] in listed(begun_gte="2020-01-01T00:00:00Z", begun_lt="2200-01-01T00:00:00Z")
    page = api.get("/transactions", {"limit": "3"}).json
    assert (len(page["data"]), page["has_more"]) == (3, True)
    rest = api.get("/transactions", {"limit": "3", "cursor": page["next_cursor"]}).json
    assert {one["id"] for one in (*page["data"], *rest["data"])} == listed()


def test_a_participant_in_doubt_is_settled_once_and_with_a_reason(api: Api) -> None:
    one, taker = scenes.doubtful("Stock", "Freight")
    path = f"/transactions/{one.public_id}"
    shown = api.get(path).json
    assert (shown["diagnosis"]["situation"], shown["in_doubt_since"] is None) == ("contradiction", False)
    (row,) = [row for row in shown["participants"] if row["doubt"]]
    assert (row["id"], row["allowed_settlements"]) == (taker.public_id, ["forget"])
    settle = f"{path}/participants/{taker.public_id}/settle"
    body = {"outcome": "forget", "reason": "Their operator fixed the stock by hand"}
    assert api.post(settle, body).code == "precondition_required"
    assert api.post(settle, {**body, "reason": "too short"}, If_Match="*").code == "invalid_submission"
    refused = api.post(settle, {**body, "outcome": "commit"}, If_Match="*")
    assert (refused.code, refused.json["allowed_actions"]) == ("wrong_state", ["forget"])
    assert api.post(f"{path}/participants/{scenes.doubtful('X')[1].public_id}/settle", body, If_Match="*").status == 404
    done = api.post(settle, body, If_Match=api.get(path).etag)
    assert (done.status, done.json["in_doubt_since"]) == (200, None)
    assert AuditEntry.objects.get(verb="transaction.settle_forget").reason == body["reason"]
    assert Event.objects.filter(type="transaction.settled").exists()


def test_who_may_see_what(api: Api) -> None:
    app = peer("App")
    one, _ = scenes.doubtful("Near", "Far", app=app)
    other = scenes.committed("Elsewhere")
    own = begin(api)
    group = PartnerGroup.objects.create(name="near")
    group.partners.set(Party.objects.filter(name="Near"))
    limited = Api(make_token(make_user(Role.OPERATOR, "lim"), groups=[group.pk]))
    assert [row["id"] for row in limited.get("/transactions").json["data"]] == [one.public_id]
    shown = limited.get(f"/transactions/{one.public_id}")
    assert [row["party"]["name"] for row in shown.json["participants"]] == ["Near"]
    assert shown.json["hidden_participants"] == 2
    assert (shown.json["begun_by"], b"Far" in shown.content) == ("another partner", False)
    messages = limited.get(f"/transactions/{one.public_id}/messages").json["data"]
    assert {row["party"]["name"] for row in messages} == {"Near"}
    for hidden in (other.public_id, own["id"]):
        assert limited.get(f"/transactions/{hidden}").status == 404
        assert limited.post(f"/transactions/{hidden}/rollback", WHY, If_Match="*").status == 404
    assert limited.post(f"/transactions/{one.public_id}/rollback", WHY, If_Match="*").code == "limited_access"
    settle = f"/transactions/{one.public_id}/participants/{shown.json['participants'][0]['id']}/settle"
    answer = limited.post(settle, {"outcome": "forget", "reason": "fixed by hand, they say"}, If_Match="*")
    assert answer.code == "limited_access"
    asked = limited.get(f"/transactions/{one.public_id}/context?agreement=tpa:any")
    assert asked.code == "limited_access", "who gets the context can bring in participants"
    mine = begin(limited)
    assert limited.get(f"/transactions/{mine['id']}").status == 200
    body = {"agreement": app.terms.tpa_id, "protocol": "Durable2PC", "address": app.place().address}
    refused = limited.post(f"/transactions/{mine['id']}/participants", body)
    assert (refused.status, refused.code) == (422, "invalid_submission")
    group.partners.add(party_of(app))


def test_a_trigger_of_somebodys_name_begins_nothing_for_them() -> None:
    make_trigger(name="lim", kind="atomic")
    (delivery,) = arrive(partner_side(), "m1@partner.example")
    one = coordination_open(terms=None, begun_by="lim", now=clock.now(), delivery=delivery, claim=uuid4())
    group = PartnerGroup.objects.create(name="nobody")
    limited = Api(make_token(make_user(Role.OPERATOR, "lim"), groups=[group.pk]))
    assert limited.get(f"/transactions/{one.public_id}").status == 404
    assert limited.get("/transactions").json["data"] == []


def test_without_the_scope_nothing_is_begun() -> None:
    reader = Api(make_token(make_user(Role.VIEWER)))
    refused = reader.post("/transactions", {}, Idempotency_Key="k")
    assert (refused.code, refused.json["required_scope"]) == ("missing_scope", "transactions:write")
    assert reader.get("/transactions").status == 200


@pytest.mark.django_db(transaction=True)
def test_waiting_ends_with_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(make_token(make_user(Role.OPERATOR, "erp")))
    begun = begin(api)
    path = f"/transactions/{begun['id']}"
    looked, answers = threading.Event(), []
    monkeypatch.setattr(long_poll, "_LOOK_EVERY", 0.02)
    original = coordinations.outcome

    def seen(one: Coordination) -> str:
        looked.set()
        return original(one)

    monkeypatch.setattr(coordinations, "outcome", seen)

    def wait() -> None:
        try:
            answers.append(api.get(path, {"wait": "30"}))
        finally:
            connection.close()

    thread = threading.Thread(target=wait)
    thread.start()
    assert looked.wait(120)
    assert Api(api.token).post(f"{path}/rollback", WHY, If_Match="*").status == 200
    thread.join(120)
    assert [one.json["outcome"] for one in answers] == ["aborted"]
    assert api.get(path, {"wait": "31"}).code == "invalid_parameter"
