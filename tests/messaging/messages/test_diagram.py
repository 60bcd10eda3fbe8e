"""The sequence diagram: what is on it, how it is drawn, and that its table says the same."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext
from lxml import html

from messaging.messages.pages import diagram
from messaging.messages.selectors import messages
from messaging.messages.selectors.history import Step
from messaging.messages.selectors.timeline import FOLD_ABOVE, diagram_of_message, diagram_of_pair, fold
from messaging.models import Message, Pair, Transmission
from messaging.pairs.services import operating, probing
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.console.scenes import ANA, browser, delivered, documents, refused, suspended, trigger_for
from tests.messaging.factories import LOST, answered, link, partner_side, submit, work

pytestmark = pytest.mark.django_db


def of(message: Message, **more: bool) -> list[Step]:
    return diagram_of_message(messages.message(message.pk), **more).steps


def brief(steps: list[Step]) -> list[tuple[str, str, str]]:
    return [(step.kind, f"{step.source}>{step.target}" if step.is_arrow else "", step.outcome) for step in steps]


def test_a_delivered_message_goes_from_app_to_partner_and_its_answer_back(time: FrozenClock) -> None:
    (message,) = delivered(partner_side())
    steps = of(message)
    assert brief(steps) == [
        ("message", "app>hub", "arrived"),
        ("message", "hub>partner", "arrived"),
        ("answer", "partner>hub", "arrived"),
    ]
    sent, answer = steps[1:]
    assert (sent.label, sent.number, sent.most, sent.http_status) == ("#1 NewOrder try 1/6", 1, 6, 204)
    assert sent.transmission == Transmission.objects.get(message=message).public_id
    assert answer.signal and answer.result == "taken"


def test_failures_waits_and_the_suspension_stand_in_their_order(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    message = Message.objects.get(pk=pair.in_flight_id)
    steps = of(message)
    assert brief(steps) == [
        ("message", "app>hub", "arrived"),
        ("message", "hub>partner", "lost"),
        ("wait", "", ""),
        ("message", "hub>partner", "lost"),
        ("mark", "", ""),
    ]
    assert (steps[2].label, steps[2].seconds) == ("1 m 1 s", 61.0)
    assert (steps[4].label, steps[4].by, steps[4].result) == ("Suspended", "the hub", "Partner certificate expired")
    assert [step.kind for step in of(message, failed_only=True)] == ["message", "message", "mark"]


def test_what_people_do_is_a_line_with_their_name(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    message = Message.objects.get(pk=pair.in_flight_id)
    time.move(5)
    operating.pair_resume(pair_id=pair.pk, actor=ANA, reason="partner fixed firewall")
    time.move(5)
    probing.ping(pair_id=pair.pk, actor=ANA)
    steps = of(message)
    resumed, ping = steps[-2:]
    assert (resumed.kind, resumed.label, resumed.by) == ("mark", "Resumed", "ana")
    assert resumed.result == "partner fixed firewall"
    assert (ping.kind, ping.outcome, ping.by) == ("probe", "lost", "ana")


def test_an_error_message_is_a_refusal(time: FrozenClock) -> None:
    side = refused(partner_side())
    message = Message.objects.get(pk=side.outbound.in_flight_id)
    answer = next(step for step in of(message) if step.kind == "answer")
    assert (answer.outcome, answer.tone) == ("refused", "bad")
    assert "InvalidSequenceNumber" in answer.label
    assert "so there" in answer.result


def test_the_answer_of_a_request_is_its_acknowledgement(time: FrozenClock) -> None:
    side = partner_side(profile="repeatable")
    message = submit(side)
    with link(answered()):
        work()
    assert brief(of(message))[1:] == [("message", "hub>partner", "arrived"), ("answer", "partner>hub", "arrived")]


def test_of_requests_it_is_about_the_first_on_its_way(time: FrozenClock) -> None:
    side = partner_side(profile="repeatable", max_in_flight=2)
    first, second = submit(side), submit(side)
    with link(LOST):
        work()
    pair = Pair.objects.select_related("partner", "in_flight").get(pk=side.outbound.pk)
    assert diagram_of_pair(pair, now=clock.now()).about == first != second


def test_what_comes_in_goes_on_to_the_application(time: FrozenClock) -> None:
    from messaging.deliveries.services import pulling

    side = partner_side()
    trigger = trigger_for(side, "Warehouse")
    (delivery,) = documents(side, "in-1@partner")
    with link():
        work()
    pulling.lease(trigger.pk, limit=1, consumer="w-1")
    steps = of(delivery.message)
    assert brief(steps) == [
        ("message", "partner>hub", "arrived"),
        ("answer", "hub>partner", "arrived"),
        ("message", "hub>app", "open"),
    ]
    assert steps[2].delivery == delivery.public_id


def test_a_pairs_scopes(time: FrozenClock) -> None:
    side = partner_side()
    first, second = delivered(side, 2)
    now = clock.now()
    assert diagram_of_pair(side.outbound, now=now).about == second  # nothing is in flight: the newest
    assert len([s for s in diagram_of_pair(side.outbound, now=now, scope="hour").steps if s.kind == "answer"]) == 2
    later = now + timedelta(hours=2)
    assert diagram_of_pair(side.outbound, now=later, scope="hour").steps == []
    assert len(diagram_of_pair(side.outbound, now=later, scope="day").steps) == 6
    with pytest.raises(KeyError):
        diagram_of_pair(side.outbound, now=now, scope="year")
    assert first != second


def test_a_pair_without_a_message_has_an_empty_diagram(time: FrozenClock) -> None:
    side = partner_side()
    assert diagram_of_pair(side.outbound, now=clock.now()).steps == []
    assert "Nothing happened in this time." in browser().get(_url(side.outbound)).content.decode()


def test_it_costs_the_same_however_much_there_is(time: FrozenClock) -> None:
    counts = []
    for number in (1, 8):
        side = partner_side()
        delivered(side, number)
        pair = Pair.objects.select_related("partner", "in_flight").get(pk=side.outbound.pk)
        with CaptureQueriesContext(connection) as queries:
            diagram_of_pair(pair, now=clock.now(), scope="hour")
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 10


def _failures(count: int, message: str = "msg_1") -> list[Step]:
    at = clock.now()
    return [
        Step(
            at + timedelta(seconds=number),
            "message",
            "hub",
            "partner",
            "lost",
            f"#5 Order try {number + 1}/40",
            "TLS handshake failed",
            tone="bad",
            number=number + 1,
            message=message,
            what="#5 Order",
            transmission=f"att_{number}",
        )
        for number in range(count)
    ]


def test_repeats_that_failed_alike_are_folded(time: FrozenClock) -> None:
    (one,) = fold(_failures(37))
    assert (one.repeated, one.number, one.label) == (37, 1, "#5 Order try 1–37")
    assert one.until == one.at + timedelta(seconds=36)
    mark = Step(clock.now() + timedelta(seconds=10, milliseconds=500), "mark", label="Resumed", by="ana")
    both = fold(sorted([*_failures(37), mark], key=lambda step: step.at))
    assert [step.repeated for step in both] == [11, 1, 26]  # nothing is folded across what a person did


def test_exchanges_that_went_alike_are_folded_and_the_odd_one_is_not(time: FrozenClock) -> None:
    at = clock.now()
    steps = []
    for number in range(60):
        key = f"msg_{number}"
        outcome = "refused" if number == 30 else "arrived"
        steps.append(Step(at + timedelta(seconds=number), "message", "app", "hub", "arrived", message=key))
        steps.append(Step(at + timedelta(seconds=number), "message", "hub", "partner", outcome, message=key))
    assert [step.repeated for step in fold(steps)] == [30, 30, 1, 1, 29, 29]


def test_more_than_a_hundred_arrows_are_folded(time: FrozenClock) -> None:
    side = partner_side()
    delivered(side, FOLD_ABOVE // 3 + 1)
    found = diagram_of_pair(side.outbound, now=clock.now(), scope="hour")
    assert found.folded
    assert [step.repeated for step in found.steps] == [FOLD_ABOVE // 3 + 1] * 3
    assert "folded into one" in browser().get(_url(side.outbound, "?scope=hour")).content.decode()


def _url(pair: Pair, rest: str = "") -> str:
    return f"/pairs/{pair.code.replace('>', '%3E')}/{rest}"


def test_the_drawing_and_its_table_say_the_same_and_lead_to_the_attempts(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    page = html.fromstring(browser().get(_url(pair)).content)
    svg = page.xpath("//*[@data-testid='diagram']")[0]
    assert svg.get("aria-describedby") == "diagram-table" == page.get_element_by_id("diagram-table").get("id")
    rows = page.xpath("//table[@id='diagram-table']/tbody/tr")
    drawing = diagram.shown(diagram_of_pair(pair, now=clock.now()), QueryDict())["drawing"]
    assert len(rows) == len(drawing.shapes) == 5
    attempts = list(Transmission.objects.filter(pair=pair).order_by("id"))
    wanted = [f"/transmissions/{attempt.public_id}/" for attempt in attempts]
    assert [href for href in svg.xpath(".//a/@href") if "transmissions" in href] == wanted
    assert [href for href in page.xpath("//table[@id='diagram-table']//a/@href") if "transmissions" in href] == wanted
    assert svg.xpath(".//*[@data-testid='arrow-2']/@href") == [wanted[1]]
    assert not page.xpath("//svg//@style")


def test_outcomes_differ_in_shape_and_not_by_colour_alone(time: FrozenClock) -> None:
    at = clock.now()
    places, shapes = {"app": 150, "hub": 400, "partner": 650}, {}
    for outcome in ("arrived", "lost", "refused", "open", "unknown"):
        step = Step(at, "message", "hub", "partner", outcome)
        shapes[outcome] = diagram.shape(diagram.OF_PAIRS, places, step, None, (72, 40))
    assert shapes["arrived"].head and not shapes["arrived"].cross and shapes["arrived"].bar is None
    assert shapes["lost"].cross and not shapes["lost"].head
    assert shapes["refused"].bar is not None and shapes["refused"].head != shapes["arrived"].head
    assert shapes["open"].line[1] < shapes["arrived"].line[1]
    assert not shapes["unknown"].head and not shapes["unknown"].cross


def test_its_links_keep_the_rest_of_the_address(time: FrozenClock) -> None:
    side = partner_side()
    delivered(side)
    found = diagram_of_pair(side.outbound, now=clock.now(), scope="day", failed_only=True)
    drawn = diagram.shown(found, QueryDict("tab=overview&failed=1&scope=day"))
    assert drawn["failed_query"] == "?tab=overview&scope=day"
    assert ("hour", "Last hour", "?tab=overview&failed=1&scope=hour") in drawn["scopes"]
    assert diagram.wants_failed(QueryDict("failed=1")) and not diagram.wants_failed(QueryDict("failed="))
