"""Transactional streams on screens and in the API: how far both sides are, and what the verbs do to a stream."""

from __future__ import annotations

from datetime import timedelta

import pytest
from lxml import html
from pytest_django import DjangoAssertNumQueries

from messaging.models import IncomingStream, Message, OutgoingStream, Pair
from messaging.pairs.selectors import pairs, screens
from messaging.pairs.selectors.sequence import stream_state
from rmhub import clock
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.scenes import World, browser, in_stream
from tests.messaging.factories import PartnerSide, partner_side

pytestmark = pytest.mark.django_db


def sid() -> str:
    """The outgoing stream's, as people see it."""
    return f"{OutgoingStream.objects.get().tx_sequence_id:f}"


@pytest.fixture
def lane() -> PartnerSide:
    made = partner_side(profile="stream", max_in_flight=32, resend_schedule="30,300")
    in_stream(made, 3)
    return made


def test_an_outbound_pair_shows_its_stream(lane: PartnerSide) -> None:
    page = html.fromstring(browser(Role.VIEWER).get(f"/pairs/{lane.outbound.code}/").content)

    def said(name: str) -> str:
        (element,) = page.xpath(f"//*[@data-testid='{name}']")
        return " ".join(element.text_content().split())

    assert (said("stream-next"), said("stream-acked"), said("stream-resends")) == ("4", "none yet", "1")
    assert said("stream-flight") == "3 of a window of 32"
    assert sid() in page.text_content(), "the whole number, whatever a float would make of it"
    rows = page.xpath("//tr[@data-testid='flying']")
    assert [row.xpath("./td")[0].text_content() for row in rows] == ["1", "2", "3"]
    assert [row.xpath("./td")[1].text_content() for row in rows] == ["0", "1", "2"]


def test_an_inbound_pair_shows_each_sender(lane: PartnerSide) -> None:
    page = html.fromstring(browser(Role.VIEWER).get(f"/pairs/{lane.inbound.code}/").content)
    (row,) = page.xpath("//tr[@data-testid='stream-in']")
    words = " ".join(row.text_content().split())
    assert "2744e4e1-2b48-43e8-b441-42745f280d53" in words and "4839986701558349830" in words
    assert [row.xpath("./td")[column].text_content().strip() for column in (1, 2)] == ["7", "2"]


def test_the_next_resend_follows_the_schedule_and_its_last_wait_repeats(lane: PartnerSide) -> None:
    stream = OutgoingStream.objects.get()
    for index, wait in ((0, 30), (1, 300), (7, 300)):
        OutgoingStream.objects.update(resend_index=index)
        found = stream_state(lane.outbound, lane.terms).outgoing
        assert found is not None and found.next_resend_at == stream.last_ack_at + timedelta(seconds=wait)
    Pair.objects.update(flow="suspended")
    found = stream_state(lane.outbound, lane.terms).outgoing
    assert found is not None and (found.in_flight, found.next_resend_at) == (3, None), "nothing goes out by itself"
    Pair.objects.update(flow="idle")
    Message.objects.update(state="delivered")
    found = stream_state(lane.outbound, lane.terms).outgoing
    assert found is not None and (found.in_flight, found.next_resend_at) == (0, None)


def test_pairs_of_other_profiles_have_none_and_ask_nothing(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    plain = partner_side()
    both = (plain.outbound, plain.inbound)
    with django_assert_num_queries(0):
        assert not any(stream_state(pair, plain.terms).applies for pair in both)


def test_a_messages_page_names_its_place(lane: PartnerSide) -> None:
    message = Message.objects.get(sequence_number=3)
    words = " ".join(html.fromstring(browser().get(f"/messages/{message.public_id}/").content).text_content().split())
    assert sid() in words and "3 after 2" in words and "Expires" in words


def test_messages_that_wait_for_their_final_receipt_are_found(lane: PartnerSide) -> None:
    Message.objects.filter(sequence_number=1).update(state="confirming")
    page = html.fromstring(browser().get("/messages/?state=confirming").content)
    assert page.xpath("//option[@value='confirming'][@selected]")
    assert len(page.xpath("//tbody/tr")) == 1
    message = Message.objects.get(sequence_number=1)
    words = " ".join(html.fromstring(browser().get(f"/messages/{message.public_id}/").content).text_content().split())
    assert "whether it took it" in words, "and why it cannot be cancelled"


def test_the_dialogs_say_what_they_do_to_a_stream(lane: PartnerSide) -> None:
    from messaging.pairs.resource import VERBS

    screen = screens.pair_screen(pairs.pair(lane.outbound.code), clock.now())
    said = {slug: " ".join(VERBS[slug].effects(screen)) for slug in VERBS if slug != "expect-sequence"}
    assert "Sends the 3 that are not acknowledged again" in said["resume"]
    assert "Of the 3 in flight" in said["retry-now"]
    assert "Message #1 (NewOrder) is given up" in said["skip-head"]
    assert "A new stream begins" in said["restart-sequence"]


def test_the_agreements_page_shows_the_terms_of_streams(scene: World) -> None:
    agreement = scene.in_stream.agreement_version.agreement
    words = " ".join(
        html.fromstring(browser().get(f"/agreements/{agreement.public_id}/").content).text_content().split()
    )
    assert "3 × 30 s, 3 × 5 m, 3 × 30 m, then every 6 h" in words
    assert "64 messages sent and not acknowledged" in words
    assert "10 resends without progress" in words


def test_the_api_shows_both_directions(lane: PartnerSide) -> None:
    api = Api(make_token(make_user(Role.VIEWER)))
    out = api.get(f"/pairs/{lane.outbound.public_id}").json["stream"]
    assert out["incoming"] == []
    assert out["outgoing"]["tx_sequence_id"] == sid(), "a string: it is beyond what JavaScript's numbers hold"
    wanted = {"next_number": 4, "acked_number": 0, "in_flight": 3, "window": 32, "concurrency": 16, "resend_index": 1}
    assert {name: out["outgoing"][name] for name in wanted} == wanted
    inbound = api.get(f"/pairs/{lane.inbound.public_id}").json["stream"]
    assert inbound["outgoing"] is None
    (sender,) = inbound["incoming"]
    row = IncomingStream.objects.get()
    assert (sender["guid"], sender["tx_sequence_id"], sender["number"]) == (row.source, "4839986701558349830", 7)
    assert sender["order_ack_due_at"]
    assert api.get(f"/pairs/{partner_side().outbound.public_id}").json["stream"] is None


def test_the_api_names_a_messages_place_and_its_other_side(scene: World) -> None:
    api = Api(make_token(make_user(Role.VIEWER)))
    found = api.get(f"/messages/{scene.in_stream.public_id}").json
    assert (found["tx_sequence_id"], found["sequence_number"], found["previous_number"]) == (sid(), 1, 0)
    assert (found["forwarded_from"], found["forwarded_to"]) == (None, [])
    came = api.get(f"/messages/{scene.came.public_id}").json
    assert came["forwarded_to"] == [scene.passed_on.public_id]
    assert api.get(f"/messages/{scene.passed_on.public_id}").json["forwarded_from"] == scene.came.public_id
