"""Pairs and their verbs: what is the matter, and what a person does about it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection

from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Pair
from messaging.pairs.services import operating
from rmhub.roles import Role
from tests.messaging.api.client import REASON, Answer, Api, in_flight, make_token, make_user, suspended
from tests.messaging.factories import PartnerSide, link, partner_side, submit, work
from tests.messaging.status_service import messages_in_doubt

pytestmark = pytest.mark.django_db

VERBS = (
    *("resume", "retry-now", "skip-head", "restart-sequence", "pause", "release", "hand-on", "clear-resync"),
    "expect-sequence",
)


def path_of(pair: Pair) -> str:
    return f"/pairs/{pair.public_id}"


def body_for(verb: str) -> dict[str, Any]:
    return {**REASON, "expected": 5} if verb == "expect-sequence" else dict(REASON)


def test_a_pair_says_what_is_the_matter(admin: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    submit(partner)
    answer = admin.get(path_of(pair))
    assert answer.status == 200
    found = answer.json
    assert (found["state"], found["flow"], found["gate"]) == ("suspended", "suspended", "open")
    assert (found["queued"], found["last_sequence"]) == (1, 1)
    assert found["head"]["id"] == f"msg_{pair.in_flight_id.hex}"  # type: ignore[union-attr]
    assert found["cause"] and found["diagnosis"]["cause"]["code"] == found["cause"]
    assert found["diagnosis"]["blocked"] == 2
    assert found["diagnosis"]["sentence"].startswith("Suspended")
    assert found["diagnosis"]["next_attempt_at"] is None and found["diagnosis"]["since"]
    assert set(found["allowed_actions"]) == {"resume", "skip-head", "restart-sequence", "pause"}
    assert admin.get(f"/pairs/{pair.code}").json["id"] == found["id"]


def test_a_pair_with_messages_in_doubt_says_so_like_its_page(admin: Api) -> None:
    far = partner_side(profile="repeatable")
    messages_in_doubt(far, 2)
    pair = far.outbound
    (row,) = admin.get("/pairs", {"q": pair.code}).json["data"]
    for said in (row["diagnosis"], admin.get(path_of(pair)).json["diagnosis"]):
        assert said["headline"] == "Nothing is on the way; 2 documents are in doubt."
        assert said["cause"]["code"] == "outcome_unknown"
    assert admin.get(f"{path_of(pair)}/diagnosis").json["headline"] == row["diagnosis"]["headline"]


def test_who_paused_a_pair_is_in_its_diagnosis(admin: Api, partner: PartnerSide) -> None:
    operating.pair_pause(pair_id=partner.outbound.pk, actor=Actor("olga"), reason="their maintenance")
    said = admin.get(path_of(partner.outbound)).json["diagnosis"]["sentence"]
    assert "olga" in said and "their maintenance" in said


def test_the_list_is_filtered_and_costs_the_same_for_any_number(
    admin: Api, partner: PartnerSide, django_assert_num_queries: Any
) -> None:
    bad = suspended(partner)
    sides = [partner_side() for _ in range(3)]
    for side in sides:
        submit(side)
    for query, expected in (
        ({"state": "suspended"}, [bad.public_id]),
        ({"q": bad.code.lower()}, [bad.public_id]),
        ({"partner": f"par_{bad.partner_id.hex}", "direction": "out"}, [bad.public_id]),
        ({"direction": "in", "state": "suspended"}, []),
    ):
        assert [row["id"] for row in admin.get("/pairs", query).json["data"]] == expected, query
    assert admin.get("/pairs", {"sort": "severity"}).json["data"][0]["id"] == bad.public_id
    assert admin.get("/pairs", {"state": "broken"}).code == "invalid_parameter"
    with django_assert_num_queries(6):  # five are about what is newer than the causes of all of them
        assert len(admin.get("/pairs").json["data"]) == 4


@pytest.mark.parametrize("reference", ["pair_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7", "NO>PAIR", "%00", "pair_"])
def test_unknown_pairs_are_not_found(admin: Api, reference: str) -> None:
    assert admin.get(f"/pairs/{reference}").code == "not_found"
    for verb in VERBS:
        assert admin.post(f"/pairs/{reference}/{verb}", body_for(verb), If_Match='"1"').code == "not_found"


def test_the_etag_tells_every_change_but_only_people_move_its_revision(admin: Api, partner: PartnerSide) -> None:
    pair = in_flight(partner)
    first = admin.get(path_of(pair))
    assert first.etag.startswith(f'"{pair.version}.')
    assert admin.get(path_of(pair), If_None_Match=first.etag).status == 304
    submit(partner)
    second = admin.get(path_of(pair), If_None_Match=first.etag)
    assert (second.status, second.json["queued"]) == (200, 1)
    # Traffic alone does not refuse the operator, who decided upon the first.
    answer = admin.post(f"{path_of(pair)}/pause", REASON, If_Match=first.etag)
    assert (answer.status, answer.json["gate"]) == (200, "paused")
    assert answer.etag == admin.get(path_of(pair)).etag
    assert answer.etag.partition(".")[0] != first.etag.partition(".")[0]


def test_resume_retry_skip_and_restart(admin: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    path = path_of(pair)

    def act(verb: str) -> Answer:
        answer = admin.post(f"{path}/{verb}", body_for(verb), If_Match=admin.get(path).etag)
        assert answer.status == 200, answer.json
        return answer

    assert act("resume").json["flow"] == "resend_wait"
    with link() as wire:
        work()
        assert act("retry-now").json["flow"] == "resend_wait"
        work()
        partner.send(partner.error(wire.last))
    assert act("restart-sequence").json["last_sequence"] == 0
    with link():
        work()
    skipped = act("skip-head").json
    assert (skipped["head"], skipped["last_sequence"], skipped["flow"]) == (None, 0, "idle")
    assert act("pause").json["state"] == "paused"
    assert act("release").json["state"] == "active"
    entries = AuditEntry.objects.filter(object_id=pair.public_id).order_by("id")
    assert [entry.verb for entry in entries] == [
        "pair.resume",
        "pair.retry_now",
        "pair.restart_sequence",
        "pair.skip_head",
        "pair.pause",
        "pair.release",
    ]
    assert {(entry.interface, entry.reason, entry.address) for entry in entries} == {
        ("api", REASON["reason"], "127.0.0.1")
    }
    assert entries[0].actor.endswith("(token test)")


def test_the_number_that_is_expected_next(admin: Api, partner: PartnerSide) -> None:
    partner.send(partner.message(1))
    pair = partner.inbound
    assert admin.get(path_of(pair)).json["allowed_actions"] == ["expect-sequence"]
    answer = admin.post(f"{path_of(pair)}/expect-sequence", {**REASON, "expected": 8}, If_Match=f'"{pair.version}"')
    assert (answer.status, answer.json["last_sequence"]) == (200, 7)
    assert partner.send(partner.message(8)) == 204
    assert partner.inbound.last_sequence == 8


@pytest.mark.parametrize("expected", [0, -1, 1_000_000_000, 10**400, "8", 8.5, True, None, [8]])
def test_a_number_that_cannot_be_expected(admin: Api, partner: PartnerSide, expected: Any) -> None:
    partner.send(partner.message(1))
    path = f"{path_of(partner.inbound)}/expect-sequence"
    answer = admin.post(path, {**REASON, "expected": expected}, If_Match='"1"')
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "#/expected")


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_need_what_was_decided_upon(admin: Api, partner: PartnerSide, verb: str) -> None:
    pair = suspended(partner)
    path = f"{path_of(pair)}/{verb}"
    body = body_for(verb)
    missing = admin.post(path, body)
    assert (missing.status, missing.code) == (428, "precondition_required")
    for stale in (f'"{pair.version - 1}"', f'"{pair.version + 1}.abc"', '"x"', f'"{"9" * 40}"', f'W/"{pair.version}"'):
        answer = admin.post(path, body, If_Match=stale)
        assert (answer.status, answer.code) == (412, "stale"), stale
    for bad in ("57", '"1", "2"', '"'):
        assert admin.post(path, body, If_Match=bad).code == "invalid_header"
    assert Pair.objects.get(pk=pair.pk).version == pair.version


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_need_a_reason_and_take_nothing_else(admin: Api, partner: PartnerSide, verb: str) -> None:
    pair = suspended(partner)
    path = f"{path_of(pair)}/{verb}"
    for body in ({}, {"reason": ""}, {"reason": " x "}, {"reason": 7}, {"reason": None}, [], "x", None):
        answer = admin.post(path, body, If_Match="*")
        assert (answer.status, answer.code) == (422, "invalid_submission"), body
    answer = admin.post(path, {**body_for(verb), "speed": "slow"}, If_Match="*")
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "#/speed")
    assert Pair.objects.get(pk=pair.pk).version == pair.version


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        ("resume", "idle"),
        ("retry-now", "idle"),
        ("skip-head", "idle"),
        ("release", "open"),
        ("expect-sequence", "idle"),
    ],
)
def test_a_wrong_state_says_what_is_possible(admin: Api, partner: PartnerSide, verb: str, state: str) -> None:
    submit(partner)
    pair = partner.outbound
    answer = admin.post(f"{path_of(pair)}/{verb}", body_for(verb), If_Match=f'"{pair.version}"')
    assert (answer.status, answer.code, answer.json["current_state"]) == (409, "wrong_state", state)
    if verb != "expect-sequence":
        assert answer.json["allowed_actions"] == ["restart-sequence", "pause"]
    assert not AuditEntry.objects.filter(object_id=pair.public_id).exists()


def test_inbound_pairs_are_the_partners(admin: Api, partner: PartnerSide) -> None:
    partner.send(partner.message(1))
    for verb in VERBS[:-1]:
        answer = admin.post(f"{path_of(partner.inbound)}/{verb}", REASON, If_Match="*")
        assert (answer.status, answer.code) == (409, "wrong_state")


def test_an_operator_may_not_skip(operator: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    for verb in ("skip-head", "restart-sequence", "expect-sequence"):
        answer = operator.post(f"{path_of(pair)}/{verb}", body_for(verb), If_Match="*")
        assert (answer.status, answer.json["required_scope"]) == (403, "pairs:skip")
    assert operator.post(f"{path_of(pair)}/resume", REASON, If_Match="*").status == 200


@pytest.mark.django_db(transaction=True)
def test_of_two_who_resume_at_the_same_moment_one_is_told_to_look_again() -> None:
    partner = partner_side()
    pair = suspended(partner)
    token = make_token(make_user(Role.OPERATOR))
    start = threading.Barrier(4)
    answers: list[Answer] = []

    def resume() -> None:
        start.wait()
        try:
            answers.append(Api(token).post(f"{path_of(pair)}/resume", REASON, If_Match=f'"{pair.version}"'))
        finally:
            connection.close()

    threads = [threading.Thread(target=resume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status for answer in answers) == [200, 412, 412, 412]
    assert AuditEntry.objects.filter(verb="pair.resume").count() == 1


def test_the_console_and_the_api_do_the_same(admin: Api, partner: PartnerSide) -> None:
    """Whatever the services can do to a pair has a path here."""
    assert {*operating.VERBS, "expect-sequence"} == set(VERBS)
    pair = suspended(partner)
    operating.pair_resume(pair_id=pair.pk, actor=Actor("olga"), reason="by hand")
    answer = admin.post(f"{path_of(pair)}/resume", REASON, If_Match=f'"{pair.version}"')
    assert answer.code == "stale"
