"""Filters of lists, partners by their names, and the orders that a list has."""

from __future__ import annotations

import csv
import io
import json

import pytest
from django.db import connection
from django.test import Client
from lxml import html

from messaging import keyset
from messaging.access.pages.audit_log import AUDIT
from messaging.api.openapi import document
from messaging.console.lists import ListPage
from messaging.deliveries.pages.deliveries import DELIVERIES
from messaging.deliveries.selectors import deliveries
from messaging.incidents.pages import INCIDENTS
from messaging.messages.pages.listing import MESSAGES
from messaging.messages.selectors import finding
from messaging.messages.selectors.finding import MessageFilters
from messaging.onboarding.pages.partners import AGREEMENTS, PARTNERS
from messaging.overview.selectors import records
from messaging.pairs.pages.pairs import PAIRS
from messaging.pairs.selectors import pairs
from messaging.transactions.pages import TRANSACTIONS
from messaging.transactions.selectors import coordinations
from partners import selectors as partners
from partners.models import Party
from rmhub.ids import uuid7
from tests.messaging.console.scenes import browser
from tests.messaging.factories import partner_side, submit

pytestmark = pytest.mark.django_db


def _named(*names: str) -> list[Party]:
    found = []
    for name in names:
        party = partner_side().outbound.partner
        Party.objects.filter(pk=party.pk).update(name=name)
        found.append(party)
    return found


def _page(client: Client, url: str, **given: str) -> html.HtmlElement:
    return html.fromstring(client.get(url, given).content)


def _codes(page: html.HtmlElement) -> list[str]:
    return [str(one) for one in page.xpath("//tr[@data-testid='pair-row']//a[starts-with(@id, 'pair-')]/text()")]


def test_filters_that_are_on_are_chips_that_take_them_away() -> None:
    _named("Ostara")
    page = _page(browser(), "/pairs/", partner="Ostara", direction="out", q="OWN", sort="-code")
    chips = {one.xpath("string(span)"): one.xpath("string(a/@href)") for one in page.xpath("//li[@class='chip']")}
    assert chips == {
        "“OWN”": "?partner=Ostara&direction=out&sort=-code",
        "Partner: Ostara": "?direction=out&q=OWN&sort=-code",
        "Direction: Outbound": "?partner=Ostara&q=OWN&sort=-code",
    }
    assert page.xpath("string(//summary[@data-testid='filters-open']/span/text())").strip() == "2"
    assert page.xpath("//form[@class='filters']/input[@type='hidden']/@name") == ["sort"]


@pytest.mark.parametrize(
    "url", ["/pairs/", "/incidents/", "/deliveries/", "/agreements/", "/certificates/", "/archive/"]
)
def test_a_partner_who_is_nobody_is_said_to_be_so_with_those_that_may_be_meant(url: str) -> None:
    _named("Ostara", "Austerlitz")
    page = _page(browser(), url, partner="Ostra")
    (said,) = page.xpath("//*[@data-testid='no-partner']")
    assert " ".join(said.text_content().split()) == "No partner is called Ostra. Did you mean Ostara?"
    assert said.xpath(".//a/@href") == ["?partner=Ostara"]
    assert not page.xpath("//main//tbody/tr")


def test_a_partner_is_found_by_name_identifier_and_id_in_any_case() -> None:
    party, _ = _named("Müller & Söhne", "Ostara")
    identifier = party.identifiers.get()
    client = browser()
    wanted = _codes(_page(client, "/pairs/", partner=party.public_id))
    assert len(wanted) == 1
    for text in ("müller & söhne", identifier.value, f"{identifier.context}:{identifier.value}"):
        page = _page(client, "/pairs/", partner=text)
        assert _codes(page) == wanted, text
        # What is done about all of the list goes by the id, whatever the partner is called tomorrow.
        assert f"partner={party.public_id}" in page.xpath("//form[@id='bulk']/input[@name='filter']/@value")[0]
    assert _codes(_page(client, "/pairs/", q="söhne")) == wanted


def test_the_search_box_says_whom_a_term_may_mean() -> None:
    _named("Ostara")
    page = _page(browser(), "/messages/", q="partner:Ostra state:failed")
    assert "No partner is called Ostra." in page.text_content()
    (link,) = page.xpath("//*[@data-testid='instead']/a")
    assert (link.text, link.get("href")) == ("Ostara", "?q=partner%3AOstara+state%3Afailed")


def test_names_are_completed_by_the_server_for_those_who_may_see_them() -> None:
    _named("Ostara", "Nostromo <&>", "Austerlitz")
    answer = browser().get("/partners/names/", {"partner": "ost"}).content.decode()
    assert html.fromstring(f"<div>{answer}</div>").xpath("//option/@value") == ["Nostromo <&>", "Ostara"]


def test_columns_with_an_index_sort_and_pages_go_on_in_that_order() -> None:
    pair = partner_side().outbound
    for number in range(60):
        pair.pk, pair.code, pair.sender_uri = uuid7(), f"MANY>{number:02d}", f"urn:many:{number}"
        pair.save(force_insert=True)
    client = browser()
    page = _page(client, "/pairs/", sort="-code")
    (head,) = page.xpath("//th[@aria-sort]")
    assert (head.get("aria-sort"), head.text_content().strip()) == ("descending", "Pair")
    assert head.xpath("a/@href") == ["?sort=code"]
    (following,) = page.xpath("//a[@rel='next']/@href")
    rest = html.fromstring(client.get(f"/pairs/{following}").content)
    seen = _codes(page) + _codes(rest)
    assert seen == sorted(seen, reverse=True) and len(seen) == 61
    other = html.fromstring(client.get(f"/pairs/{following.replace('sort=-code', 'sort=code')}").content)
    assert _codes(other) == sorted(seen)[:50], "a cursor of another order starts at the top"
    assert "sort=-code" in page.get_element_by_id("api-call").text_content()
    lines = b"".join(client.get("/pairs/?sort=-code&format=csv").streaming_content).decode()  # type: ignore[attr-defined]
    assert [row["code"] for row in csv.DictReader(io.StringIO(lines))] == seen


def test_messages_go_both_ways_in_time() -> None:
    partner = partner_side()
    ids = [submit(partner).message_id for _ in range(3)]
    client = browser()
    for sort, wanted in (("created_at", ids), ("-created_at", ids[::-1]), ("nonsense", ids[::-1])):
        page = _page(client, "/messages/", sort=sort)
        assert page.xpath("//span[starts-with(@id, 'id-')]/text()") == wanted, sort
    lines = b"".join(client.get("/messages/?sort=created_at&format=csv").streaming_content).decode()  # type: ignore[attr-defined]
    assert [row["message_id"] for row in csv.DictReader(io.StringIO(lines))] == ids


@pytest.mark.parametrize(
    "page",
    [MESSAGES, PAIRS, INCIDENTS, DELIVERIES, TRANSACTIONS, PARTNERS, AGREEMENTS, AUDIT],
    ids=lambda one: one.name,
)
def test_each_order_of_a_list_is_one_of_the_api_and_of_a_column(page: ListPage) -> None:
    described = document()["paths"][page.api]["get"]["parameters"]
    (sort,) = [one for one in described if one["name"] == "sort"]
    assert sort["schema"]["enum"] == list(page.orders) and sort["schema"]["default"] == next(iter(page.orders))
    columns = {column.sort for column in page.columns if column.sort}
    assert columns and columns <= {name.lstrip("-") for name in page.orders}


ORDERED = {
    "messages": lambda: (finding.matching(MessageFilters()), finding.ORDERS),
    "pairs": lambda: (pairs.pairs(), {name: order for name, order in pairs.ORDERS.items() if name != "severity"}),
    "incidents": lambda: (records.incidents(), records.INCIDENT_ORDERS),
    "deliveries": lambda: (deliveries.deliveries(), deliveries.ORDERS),
    "transactions": lambda: (coordinations.coordinations(), coordinations.ORDERS),
    "audit": lambda: (records.audit_entries(), records.AUDIT_ORDERS),
    "partners": lambda: (partners.parties(), partners.PARTY_ORDERS),
    "agreements": lambda: (partners.agreements(), partners.AGREEMENT_ORDERS),
}


@pytest.mark.parametrize("name", ORDERED)
def test_no_order_of_a_list_is_sorted_by_hand(name: str) -> None:
    submit(partner_side())
    found, orders = ORDERED[name]()
    # On tables with a few rows everything is cheap: what is left is what there is no other way for.
    avoided = ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort", "incremental_sort")
    with connection.cursor() as cursor:
        cursor.execute("; ".join(f"SET LOCAL enable_{name} = off" for name in avoided))
    for order in orders.values():
        plan = json.dumps(json.loads(found.order_by(*order)[:50].explain(format="json")))
        assert '"Index' in plan and '"Sort"' not in plan, (order, plan)


def test_an_order_with_a_column_that_is_not_unique_is_no_order() -> None:
    for page in (MESSAGES, PAIRS, INCIDENTS, DELIVERIES, TRANSACTIONS, PARTNERS, AGREEMENTS, AUDIT):
        for order in page.orders.values():
            assert order[-1].lstrip("-") in ("id", "code", "name", "tpa_id", "number"), (page.name, order)
    assert keyset.fingerprint("x", {}, "id") != keyset.fingerprint("x", {}, "-id")
