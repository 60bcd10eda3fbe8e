"""Where service levels are shown: pages of partner and agreement, the list of partners with its file, and the API."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from lxml import html

from messaging.models import Event, Pair, SlaMonth, SlaSpan, TrafficCursor, TrafficHour
from messaging.models.traffic import no_latencies
from messaging.onboarding.services import bundle, bundle_format
from messaging.sla import selectors as sla
from messaging.sla.services import watching
from partners.models import AgreementVersion
from partners.selectors import agreement as agreement_of
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.scenes import browser
from tests.messaging.factories import PartnerSide, partner_side
from tests.messaging.sla.test_watching import documents

pytestmark = pytest.mark.django_db


@pytest.fixture
def partner(time: FrozenClock) -> PartnerSide:
    """A partner with 1,000 documents this month, of which 8 were late; and with traffic of two days."""
    side = partner_side(acknowledged_within=900, acknowledged_percent=99)
    TrafficCursor.objects.update_or_create(pk=1, defaults={"through": clock.now()})
    documents(side, 1000, 992, ago=600)
    documents(side, 5, 0, ago=-30)
    latencies = no_latencies()
    latencies[3] = 100
    for days, delivered, failed in ((1, 90, 10), (0, 60, 0)):
        TrafficHour.objects.create(
            pair=side.outbound,
            hour=clock.now() - timedelta(days=days, hours=1),
            delivered=delivered,
            failed=failed,
            latencies=latencies,
        )
    TrafficHour.objects.create(pair=side.inbound, hour=clock.now() - timedelta(hours=3), received=7)
    Pair.objects.filter(pk=side.outbound.pk).update(last_success_at=clock.now() - timedelta(minutes=5))
    Pair.objects.filter(pk=side.inbound.pk).update(last_success_at=clock.now() - timedelta(hours=3))
    return side


def page(path: str) -> html.HtmlElement:
    answer = browser(Role.VIEWER).get(path)
    assert answer.status_code == 200
    return html.fromstring(answer.content)


def text(element: html.HtmlElement) -> str:
    return " ".join(element.text_content().split())


def test_the_partners_page_has_its_numbers_and_draws_the_budget(partner: PartnerSide) -> None:
    watching.watch(clock.now())
    found = page(f"/partners/par_{partner.terms.partner_id.hex}/")
    (lately,) = found.xpath("//dl[@data-testid='lately']")
    said = text(lately)
    assert "157 150 delivered, 7 received" in said and "93.75 %" in said and "10 failed" in said
    assert "median" in said and "95 %" in said
    (row,) = found.xpath("//tr[@data-testid='service-level']")
    assert row.get("data-state") == "watch"
    assert "within 15 m, 99 %" in text(row) and "99.20 %" in text(row) and "8 of 10 allowed" in text(row)
    (meter,) = row.xpath(".//meter")
    assert (meter.get("value"), meter.get("max")) == ("80", "100") and meter.get("aria-label")
    assert "Documents by day (UTC)" in found.text_content()
    assert not found.xpath("//*[@style]")


def test_the_agreements_page_has_targets_and_months(partner: PartnerSide) -> None:
    SlaMonth.objects.create(
        agreement_id=partner.terms.agreement_id,
        target="acknowledged",
        month=date(2026, 2, 1),
        due=200,
        met=197,
        percent=99,
    )
    found = page(f"/agreements/agr_{partner.terms.agreement_id.hex}/")
    rows = found.xpath("//tr[@data-testid='service-level']")
    assert [(text(row)[:7], row.get("data-state")) for row in rows] == [("2026-03", "watch"), ("2026-02", "missed")]
    assert "3 of 2 allowed, 1 too many" in text(rows[1])
    (section,) = found.xpath("//section[@aria-labelledby='service-level']")
    assert "within 15 m 99 % of a month" in text(section)


def test_the_list_of_partners_has_the_worst_target_and_the_last_traffic(partner: PartnerSide) -> None:
    found = page("/partners/")
    (row,) = found.xpath(f"//tr[@id='row-par_{partner.terms.partner_id.hex}']")
    assert "99.20 %" in text(row) and "2 of 10 misses left" in text(row)
    answer = browser(Role.VIEWER).get("/partners/?format=csv")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))  # type: ignore[attr-defined]
    ours = next(one for one in rows if one["id"] == f"par_{partner.terms.partner_id.hex}")
    assert (ours["service_level"], ours["target"], ours["budget_left"]) == ("99.2", "99.0", "2")
    assert ours["last_traffic"].startswith("2026-03-10")


def test_the_list_costs_as_many_queries_for_many_partners(partner: PartnerSide) -> None:
    client = browser(Role.VIEWER)
    client.get("/partners/?view=all")
    with CaptureQueriesContext(connection) as one:
        client.get("/partners/?view=all")
    for _ in range(3):
        documents(partner_side(acknowledged_within=900), 50, 50)
    with CaptureQueriesContext(connection) as many:
        client.get("/partners/?view=all")
    assert len(many) == len(one)


def test_the_api_says_the_same(partner: PartnerSide) -> None:
    api = Api(make_token(make_user(Role.VIEWER)))
    answer = api.get(f"/agreements/agr_{partner.terms.agreement_id.hex}/service-levels").json
    (now,) = answer["now"]
    assert now == answer["months"][0]
    assert {name: now[name] for name in ("target", "month", "within", "percent", "due", "met", "missed", "open")} == {
        "target": "acknowledged",
        "month": "2026-03-01",
        "within": 900,
        "percent": 99.0,
        "due": 1005,
        "met": 992,
        "missed": 8,
        "open": 5,
    }
    assert (now["budget_allowed"], now["budget_left"], now["budget_used_percent"], now["state"]) == (
        10,
        2,
        80.0,
        "watch",
    )
    health = api.get(f"/parties/par_{partner.terms.partner_id.hex}/health").json
    assert health["service_levels"] == [now]
    traffic = health["traffic"]
    assert (traffic["delivered"], traffic["received"], traffic["success_percent"]) == (150, 7, 93.75)
    assert len(traffic["days"]) == 14 and traffic["days"][-1]["delivered"] == 60
    assert traffic["last_at"] == f"{clock.now() - timedelta(minutes=5):%Y-%m-%dT%H:%M:%S}Z"


def test_an_incident_leads_to_its_agreement(partner: PartnerSide) -> None:
    documents(partner, 100, 0)
    watching.watch(clock.now())
    incident = Event.objects.get(type="incident.opened").data["number"]
    found = page(f"/incidents/INC-{incident}/")
    assert found.get_element_by_id("incident-agreement").get("href").endswith(f"agr_{partner.terms.agreement_id.hex}/")
    api = Api(make_token(make_user(Role.VIEWER)))
    assert api.get(f"/incidents/INC-{incident}").json["agreement"] == f"agr_{partner.terms.agreement_id.hex}"


def test_a_target_nobody_has_any_more_is_only_history(partner: PartnerSide) -> None:
    AgreementVersion.objects.update(acknowledged_within=0)
    assert sla.by_partner([partner.terms.partner_id], clock.now()) == {}
    rows = sla.history(agreement_of(partner.terms.agreement_id), clock.now())
    assert [row.within for row in rows] == [0]


def test_targets_go_with_a_bundle(partner: PartnerSide) -> None:
    AgreementVersion.objects.update(processed_percent=95.5)
    exported = bundle.bundle_export()
    terms = exported["agreements"][0]["terms"]
    assert (terms["acknowledged_within"], terms["processed_percent"]) == (900, 95.5)
    terms["processed_percent"] = 96
    assert bundle_format.read_document(exported).agreements[0].terms["processed_percent"] == 96
    terms["processed_percent"] = "96"
    with pytest.raises(Exception, match="a number is needed here"):
        bundle_format.read_document(exported)


@pytest.mark.parametrize("value", [49, 99.999, 100, "nan", "much"])
def test_a_share_is_a_number_that_leaves_a_budget(partner: PartnerSide, value: object) -> None:
    api = Api(make_token(make_user(Role.ADMIN)))
    place = f"/agreements/agr_{partner.terms.agreement_id.hex}/versions"
    api.post(place, {})
    etag = api.get(f"{place}/2").etag
    answer = api.patch(f"{place}/2", {"acknowledged_percent": value}, If_Match=etag)
    assert answer.code == "invalid_submission"
    assert answer.json["errors"][0]["pointer"] == "#/acknowledged_percent"
    assert AgreementVersion.objects.filter(number=2, acknowledged_percent=99).exists()
    assert api.patch(f"{place}/2", {"acknowledged_percent": 99.95}, If_Match=etag).json["acknowledged_percent"] == 99.95


def test_every_page_needs_a_range_of_an_index_only(partner: PartnerSide) -> None:
    """The spans that are ahead and those of a window are found by their index, however many there are."""
    place = {"agreement_id": partner.terms.agreement_id, "target": "processed"}
    begin = datetime(2025, 1, 1, tzinfo=UTC)
    SlaSpan.objects.bulk_create(SlaSpan(**place, at=begin + timedelta(minutes=5 * one)) for one in range(20_000))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE messaging_slaspan")
        rows = SlaSpan.objects.filter(agreement=partner.terms.agreement_id, target="acknowledged", at__gte=clock.now())
        sql, parameters = rows.query.sql_with_params()
        cursor.execute(f"EXPLAIN {sql}", parameters)
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "Index" in plan and "Seq Scan" not in plan, plan
    assert Pair.objects.exists()
