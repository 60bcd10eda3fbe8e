"""Routes on screens: what is in the way, what was passed on, and what people change."""

from __future__ import annotations

import pytest
from django.test import Client
from lxml import html

from messaging.engine import pairs
from messaging.models import AuditEntry, Message, Route
from partners.models import Agreement
from rmhub.ids import uuid7
from rmhub.roles import Role
from tests.messaging.console.scenes import World, browser
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db


def text(response: object) -> str:
    return " ".join(html.fromstring(response.content).text_content().split())  # type: ignore[attr-defined]


def posted(agreement: Agreement, **changes: str) -> dict[str, str]:
    return {
        "name": "By the harbour",
        "party_context": "DUNS",
        "party_value": "987654321",
        "service": "",
        "onward": agreement.public_id,
        "mode": "confirm_through",
        "max_hops": "4",
        "min_retry_secs": "2 m",
        "reason": "go-live",
        **changes,
    }


def new(client: Client, agreement: Agreement, **changes: str) -> object:
    form = html.fromstring(client.get("/routes/new/").content)
    (once,) = form.xpath("//input[@name='once']/@value")
    return client.post("/routes/new/", posted(agreement, once=once, **changes))


def test_a_route_is_made_with_the_form_once() -> None:
    client, agreement = browser(), make_agreement().agreement
    assert "No route yet" in text(client.get("/routes/"))
    answer = new(client, agreement)
    route = Route.objects.get()
    assert (answer.status_code, answer["Location"]) == (303, f"/routes/{route.public_id}/")  # type: ignore[attr-defined,index]
    assert (route.mode, route.max_hops, route.min_retry_secs, route.onward) == ("confirm_through", 4, 120, agreement)
    entry = AuditEntry.objects.get(verb="route.create")
    assert (entry.reason, entry.interface) == ("go-live", "console")
    again = client.post("/routes/new/", posted(agreement, once="used"))
    assert again["Location"] == "/routes/" and Route.objects.count() == 1
    listed = text(client.get("/routes/"))
    assert "By the harbour" in listed and "987654321" in listed and agreement.tpa_id in listed


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"name": ""}, "name", "cannot be blank"),
        ({"onward": ""}, "onward", "Choose the agreement"),
        ({"onward": "agr_x"}, "onward", ""),
        ({"max_hops": "eleven"}, "max_hops", "whole number"),
        ({"max_hops": "11"}, "max_hops", ""),
        ({"min_retry_secs": "soon"}, "min_retry_secs", "is not a time"),
        ({"mode": "guess"}, "mode", ""),
        ({"reason": ""}, "", "Say why"),
    ],
)
def test_what_is_wrong_stands_beside_its_field(changes: dict[str, str], field: str, words: str) -> None:
    answer = new(browser(), make_agreement().agreement, **changes)
    assert answer.status_code == 422  # type: ignore[attr-defined]
    page = html.fromstring(answer.content)  # type: ignore[attr-defined]
    (summary,) = page.xpath("//*[@id='form-errors']")
    assert words in summary.text_content()
    if field:
        assert page.xpath(f"//*[@id='field-{field}_error']"), "said at the field"
        assert page.xpath(f"//*[@id='form-errors']//a[@href='#field-{field}']")
    assert page.xpath("//*[@name='party_value']/@value") == ["987654321"], "what was typed stays"
    assert not Route.objects.exists()


def test_it_is_changed_unless_somebody_was_faster() -> None:
    client, agreement = browser(), make_agreement().agreement
    new(client, agreement)
    route = Route.objects.get()
    path = f"/routes/{route.public_id}/edit/"
    form = html.fromstring(client.get(path).content)
    assert form.xpath("//input[@name='min_retry_secs']/@value") == ["2 m"]
    (version,) = form.xpath("//input[@name='version']/@value")
    assert client.post(path, posted(agreement, version=version, name="Overland")).status_code == 303
    late = client.post(path, posted(agreement, version=version, name="By air"))
    assert late.status_code == 409 and "changed since you looked" in text(late)
    assert Route.objects.get().name == "Overland"


def test_it_is_switched_off_on_and_deleted_with_a_reason() -> None:
    client, agreement = browser(), make_agreement().agreement
    new(client, agreement)
    route = Route.objects.get()
    path = f"/routes/{route.public_id}/actions/"
    assert client.post(f"{path}disable/", {"reason": "", "version": "1"}).status_code == 422
    assert client.post(f"{path}disable/", {"reason": "not now", "version": "1"}).status_code == 303
    page = text(client.get(f"/routes/{route.public_id}/"))
    assert "Switched off" in page and "not now" in page
    assert "not possible now" in text(client.get(f"{path}disable/"))
    assert client.post(f"{path}enable/", {"reason": "again", "version": "1"}).status_code == 409
    assert client.post(f"{path}enable/", {"reason": "again", "version": "2"}).status_code == 303
    assert client.post(f"{path}nothing/", {"reason": "again", "version": "3"}).status_code == 404
    gone = client.post(f"{path}delete/", {"reason": "replaced", "version": "3"})
    assert gone["Location"] == "/routes/"
    assert not Route.objects.exists()
    assert client.get(f"/routes/{route.public_id}/").status_code == 404


def test_its_page_says_what_is_in_the_way_and_what_waits(scene: World) -> None:
    page = browser(Role.VIEWER).get(f"/routes/{scene.route.public_id}/")
    words = text(page)
    assert "1 message passed on and not delivered yet." in words
    assert "Needs the role admin." in words
    (row,) = html.fromstring(page.content).xpath("//tr[@data-testid='passed-on']")
    assert row.xpath(f".//a[@href='/messages/{scene.passed_on.public_id}/']")
    assert row.xpath(f".//a[@href='/messages/{scene.came.public_id}/']"), "what it came from"
    Agreement.objects.get(pk=scene.route.onward_id).versions.update(state="disabled")
    pairs.registry.reset()
    assert "is not in force" in text(browser(Role.VIEWER).get(f"/routes/{scene.route.public_id}/"))


def test_a_message_page_shows_both_sides_of_the_hop(scene: World) -> None:
    client = browser(Role.VIEWER)
    came, went = scene.came, scene.passed_on
    for message, other in ((came, went), (went, came)):
        page = html.fromstring(client.get(f"/messages/{message.public_id}/").content)
        (journey,) = page.xpath("//*[@data-testid='journey']")
        assert journey.xpath(f".//a[@href='/messages/{other.public_id}/']")
        assert "until the next hop has acknowledged" in " ".join(journey.text_content().split())
    assert html.fromstring(client.get(f"/messages/{scene.outbound.public_id}/").content).xpath(
        "not(//*[@data-testid='journey'])"
    )
    Message.objects.filter(pk=went.pk).update(forwarded_from=uuid7())  # as purging leaves it
    page = text(client.get(f"/messages/{went.public_id}/"))
    assert "has left the store" in page


def test_the_search_finds_a_route_by_its_id_and_by_its_name(scene: World) -> None:
    client = browser(Role.VIEWER)
    path = f"/routes/{scene.route.public_id}/"
    assert client.get("/go", {"q": scene.route.public_id})["Location"] == path
    assert path.encode() in client.get("/go", {"q": "the harb"}).content
