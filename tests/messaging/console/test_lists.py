"""What every list offers: saved views, columns, a CSV file, itself as a call of the API; and what people prefer."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from lxml import html

from messaging.console import lists
from messaging.deliveries.pages.deliveries import DELIVERIES
from messaging.keyset import Page, Place
from messaging.models import AuditEntry, Delivery, Preference, SavedView
from messaging.onboarding.pages.partners import PARTNERS
from partners.models import Agreement, Party, PartyIdentifier
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import browser, documents, failed, trigger_for
from tests.messaging.factories import PartnerSide, partner_side

pytestmark = pytest.mark.django_db


@dataclass(frozen=True, slots=True)
class Shop:
    """A partner whose documents go to one queue: two wait, one failed."""

    partner: PartnerSide
    waiting: Delivery
    failed: Delivery


@pytest.fixture
def shop(db: None, time: FrozenClock) -> Shop:
    partner = partner_side()
    queue = trigger_for(partner, "Warehouse", ordered=False)
    waiting = documents(partner, "W-1@apps.example", "W-2@apps.example")
    return Shop(partner, waiting[0], failed(queue, partner, "W-3@apps.example"))


def _save(client: Client, **given: str) -> HttpResponse:
    body = {"page": "deliveries", "name": "Failed", "query": "state=failed&cursor=abc&view=x", **given}
    return client.post("/views/", body)  # type: ignore[return-value]


def _rows(answer: HttpResponse) -> list[dict[str, str]]:
    text = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    return list(csv.DictReader(io.StringIO(text)))


def test_a_view_keeps_the_filters_and_not_the_place(shop: Shop) -> None:
    client = browser(Role.VIEWER)
    where = _save(client)["Location"]
    view = SavedView.objects.get(name="Failed")
    assert (view.query, view.shared, view.is_default) == ("state=failed", False, False)
    assert where == f"/deliveries/?state=failed&view={view.public_id}"
    page = html.fromstring(client.get(where).content)
    assert page.xpath("//*[@data-testid='views-open']")[0].text_content().strip() == "Failed"
    links = page.xpath("//a[@data-testid='view' and @aria-current]/@href")
    assert links == [where]


def test_a_view_of_the_team_is_seen_by_all_and_needs_an_operator(shop: Shop) -> None:
    viewer, operator = browser(Role.VIEWER), browser(Role.OPERATOR, "olga")
    _save(viewer, shared="1")
    assert not SavedView.objects.filter(name="Failed").exists()
    assert _save(operator, shared="1").status_code == 303
    seen = html.fromstring(viewer.get("/deliveries/").content).xpath("//a[@data-testid='view']/text()")
    assert "Failed" in seen
    entry = AuditEntry.objects.get(verb="view.share")
    assert (entry.actor, entry.after["query"]) == ("olga", "state=failed")
    private = _save(operator, name="Mine")
    assert "Mine" not in viewer.get("/deliveries/").content.decode()
    assert private.status_code == 303


def test_the_default_view_opens_the_bare_list_and_can_be_left(shop: Shop) -> None:
    client = browser(Role.VIEWER)
    _save(client, is_default="1")
    first = SavedView.objects.get(name="Failed")
    answer = client.get("/deliveries/")
    assert (answer.status_code, answer["Location"]) == (303, f"/deliveries/?state=failed&view={first.public_id}")
    assert client.get("/deliveries/?view=all").status_code == 200
    assert client.get("/deliveries/?state=completed").status_code == 200
    assert browser(Role.VIEWER).get("/deliveries/").status_code == 200, "it is nobody else's default"
    _save(client, name="Other", query="", is_default="1")
    first.refresh_from_db()
    assert not first.is_default, "there is one default a list"


def test_views_are_renamed_and_deleted_by_those_who_may(shop: Shop) -> None:
    operator, viewer = browser(Role.OPERATOR, "olga"), browser(Role.VIEWER)
    _save(operator, shared="1")
    view = SavedView.objects.get(name="Failed")
    version = html.fromstring(operator.get(f"/views/{view.public_id}/edit/").content).xpath("//input[@name='version']")
    given = {"version": version[0].get("value"), "name": "Failures", "shared": "1"}
    assert viewer.post(f"/views/{view.public_id}/edit/", given).status_code == 422
    assert operator.post(f"/views/{view.public_id}/edit/", given).status_code == 303
    assert operator.post(f"/views/{view.public_id}/edit/", given).status_code in (303, 409)
    view.refresh_from_db()
    assert view.name == "Failures"
    assert operator.post(f"/views/{view.public_id}/delete/", {"version": "1"}).status_code == 409
    private = SavedView.objects.create(
        page="pairs",
        name="p",
        owner=User.objects.get(username="olga"),
        created_at=view.created_at,
        updated_at=view.updated_at,
    )
    assert viewer.get(f"/views/{private.public_id}/edit/").status_code == 404


@pytest.mark.parametrize(
    ("field", "value"),
    [("page", "nowhere"), ("name", ""), ("name", "x" * 81), ("name", "a\x00b"), ("query", "x=" + "y" * 3000)],
)
def test_a_view_that_cannot_be_is_refused_with_a_sentence(shop: Shop, field: str, value: str) -> None:
    client = browser(Role.OPERATOR)
    answer = _save(client, **{field: value})
    assert answer.status_code == 303
    assert not SavedView.objects.exists()
    assert b"The view was not saved." in client.get("/deliveries/").content


def test_columns_are_left_out_for_whoever_hides_them(shop: Shop) -> None:
    client = browser(Role.VIEWER, "vera")

    def heads(who: Client) -> list[str]:
        page = html.fromstring(who.get("/deliveries/").content)
        return [cell.text_content().split()[0] for cell in page.xpath("//table[@data-list]//th")]

    assert {"Trigger", "Runs"} <= set(heads(client))
    offered = [column.name for column in DELIVERIES.choice]
    shown = [name for name in offered if name not in ("trigger", "runs")]
    answer = client.post(
        "/preferences/columns/deliveries/", {"offered": offered, "shown": shown, "next": "/deliveries/"}
    )
    assert (answer.status_code, answer["Location"]) == (303, "/deliveries/")
    assert not {"Trigger", "Runs"} & set(heads(client))
    assert {"Trigger", "Runs"} <= set(heads(browser(Role.VIEWER)))
    row = html.fromstring(client.get("/deliveries/").content).xpath("//table[@data-list]/tbody/tr")[0]
    assert not row.xpath("./td[@data-label='Runs']")
    client.post("/preferences/columns/deliveries/", {"reset": "1"})
    assert {"Trigger", "Runs"} <= set(heads(client))


def test_the_file_has_every_row_and_every_column_of_the_filtered_list(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "_CSV_PAGE", 2)
    answer = browser(Role.VIEWER).get("/deliveries/?format=csv")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert "attachment" in answer["Content-Disposition"]
    rows = _rows(answer)  # type: ignore[arg-type]
    assert [row["id"] for row in rows] == [one.public_id for one in Delivery.objects.order_by("-id")]
    assert set(rows[0]) == {column.name for column in DELIVERIES.columns}
    assert rows[0]["stored"].endswith("Z")
    failed = _rows(browser(Role.VIEWER).get("/deliveries/?format=csv&state=failed"))  # type: ignore[arg-type]
    assert {row["state"] for row in failed} == {"failed"}


def test_a_file_that_is_cut_says_so(monkeypatch: pytest.MonkeyPatch, rf: object) -> None:
    monkeypatch.setattr(lists, "CSV_ROWS", 3)
    page = lists.ListPage("x", "console:pairs", (lists.Column("a", "A", lambda row: row),))
    seen: list[int] = []

    def fetch(place: Place | None, limit: int) -> Page:  # type: ignore[type-arg]
        seen.append(limit)
        return Page([f"={limit}"] * min(2, limit), Place((1,)), None)  # type: ignore[arg-type]

    lines = b"".join(lists.csv(None, page, fetch).streaming_content).decode().splitlines()  # type: ignore[arg-type]
    assert lines[:4] == ["a", "'=3", "'=3", "'=1"], "no text is a formula"
    assert lines[4].startswith('"Cut after 3 rows') or lines[4].startswith("Cut after 3 rows")
    assert seen == [3, 1]


def test_the_list_as_a_call_of_the_api(shop: Shop) -> None:
    page = html.fromstring(browser(Role.VIEWER).get("/deliveries/?state=failed&q=a'b").content)
    call = page.get_element_by_id("api-call").text_content()
    assert call.startswith('curl -H "Authorization: Bearer $RMHUB_TOKEN" ')
    url = urlsplit(call.split(" ")[-1].strip("'"))
    assert url.path == "/api/v1/deliveries"
    assert parse_qs(url.query) == {"state": ["failed"], "q": ["a'b"]}


def test_partners_and_agreements_are_lists_like_the_others(shop: Shop) -> None:
    client = browser(Role.VIEWER)
    party, gone = shop.partner.outbound.partner, partner_side().outbound.partner
    Party.objects.filter(pk=gone.pk).update(archived_at=clock.now())
    PartyIdentifier.objects.create(party=party, context="GLN", value="4000001000005", rank=9)
    rows = {row["name"]: row for row in _rows(client.get("/partners/?format=csv"))}  # type: ignore[arg-type]
    assert party.name in rows and gone.name not in rows
    assert "GLN:4000001000005" in rows[party.name]["identifiers"]
    archived = _rows(client.get("/partners/?format=csv&archived=1"))  # type: ignore[arg-type]
    assert [row["name"] for row in archived] == [gone.name] and archived[0]["archived"]
    tpa_id = Agreement.objects.get(partner=party).tpa_id
    lines = _rows(client.get(f"/agreements/?format=csv&q={quote(tpa_id)}&state=active"))  # type: ignore[arg-type]
    assert [(row["tpa_id"], row["state"], row["version"], row["between"]) for row in lines] == [
        (tpa_id, "active", "1", party.name)
    ]
    assert lines[0]["unanswered"] and lines[0]["profile"] == "ebxml"
    for name, query, call in (
        ("partners", "archived=1", "/api/v1/parties?archived=true"),
        ("agreements", "state=draft", "/api/v1/agreements?state=draft"),
    ):
        where = _save(client, page=name, name="Mine", query=query, is_default="1")["Location"]
        assert where.startswith(f"/{name}/?{query}&view=")
        assert client.get(f"/{name}/")["Location"] == where
        page = html.fromstring(client.get(where).content)
        assert page.xpath("//*[@data-testid='views-open']")[0].text_content().strip() == "Mine"
        assert call in page.get_element_by_id("api-call").text_content()
        assert len(page.xpath("//a[@data-testid='view']/@href")) == 1
        assert b"Mine" in client.get(f"/views/?page={name}").content
    offered = [column.name for column in PARTNERS.choice]
    client.post("/preferences/columns/partners/", {"offered": offered, "shown": ["groups"]})
    heads = html.fromstring(client.get("/partners/?view=all").content).xpath("//table[@data-list]//th")
    assert [cell.text_content() for cell in heads] == ["Name", "Groups"]


# ---- preferences ----


def test_times_are_written_in_the_zone_that_one_prefers(shop: Shop, time: FrozenClock) -> None:
    client = browser(Role.VIEWER)
    time.move(3 * 86_400)

    def first(who: Client) -> tuple[str, str, str]:
        page = html.fromstring(who.get("/deliveries/").content)
        cell = page.xpath("//table[@data-list]/tbody/tr[1]/td[@data-label='Stored']//time")[0]
        head = page.xpath("//table[@data-list]/thead//abbr")[0]
        return cell.text_content(), cell.get("datetime"), head.text_content()

    in_utc, instant, head = first(client)
    assert head == "UTC"
    assert client.post("/zone/", {"zone": "Asia/Kolkata", "next": "/deliveries/"})["Location"] == "/deliveries/"
    there, same, head = first(client)
    assert (head, same) == ("IST", instant)
    moved = datetime.fromisoformat(there) - datetime.fromisoformat(in_utc)
    assert moved.total_seconds() == 5.5 * 3600
    client.cookies["rmhub_zone"] = "America/New_York"
    client.post("/zone/", {"zone": "local"})
    assert first(client)[2] == "EST"
    client.cookies["rmhub_zone"] = "'><script>"
    assert first(client)[2] == "UTC", "what is no zone is passed over"


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "x" * 70])
def test_a_zone_that_there_is_not_is_refused(name: str) -> None:
    client = browser(Role.VIEWER)
    assert client.post("/preferences/", {"zone": name}).status_code == 422
    assert not Preference.objects.exists()


def test_shortcuts_are_switched_off(shop: Shop) -> None:
    client = browser(Role.VIEWER)
    assert "data-shortcuts" not in html.fromstring(client.get("/").content).find("body").attrib
    client.post("/preferences/", {"zone": "UTC"})
    assert html.fromstring(client.get("/").content).find("body").get("data-shortcuts") == "off"
    assert "switched off in your preferences" in client.get("/keys/").content.decode()


def test_the_partners_own_zone_is_offered_on_its_pages(shop: Shop) -> None:
    party = shop.partner.outbound.partner
    party.time_zone = "Europe/Lisbon"
    party.save()
    client = browser(Role.VIEWER)
    for url in (f"/partners/{party.public_id}/", f"/pairs/{shop.partner.outbound.code}/"):
        buttons = html.fromstring(client.get(url).content).xpath("//*[@data-testid='zone-partner']/@value")
        assert buttons == ["Europe/Lisbon"], url
    assert not html.fromstring(client.get("/").content).xpath("//*[@data-testid='zone-partner']")


def test_where_the_palette_leads_is_what_one_may_open(shop: Shop) -> None:
    viewer, admin = browser(Role.VIEWER), browser(Role.ADMIN)

    def ways(who: Client, text: str) -> list[str]:
        answer = who.get("/palette/", {"q": text}, headers={"HX-Request": "true", "HX-Target": "palette-results"})
        return list(html.fromstring(answer.content).xpath("//a[@class='way']/@href"))

    assert "/incidents/" in ways(viewer, "incid")
    assert "/tokens/" in ways(admin, "token")
    assert "/tokens/" not in ways(viewer, "token")
    code, message = shop.partner.inbound.code, shop.waiting.message
    assert f"/pairs/{code}/".replace(">", "%3E") in ways(viewer, code)
    assert f"/messages/{message.public_id}/" in ways(viewer, message.message_id)
    for text in ("", "%", "x" * 600, "\x00", "nothing at all"):
        assert viewer.get("/palette/", {"q": text}).status_code == 200


def test_a_fragment_that_says_what_is_there_already_is_not_sent_again(shop: Shop, time: FrozenClock) -> None:
    client = browser(Role.OPERATOR)
    asked = {"HX-Request": "true", "HX-Target": "live-deliveries"}
    first = client.get("/deliveries/", headers=asked)
    assert first.status_code == 200
    time.move(7)
    again = client.get("/deliveries/", headers={**asked, "X-Fragment": first["X-Fragment"]})
    assert (again.status_code, again.content) == (204, b""), "only ages are other, and the browser runs those itself"
    Delivery.objects.filter(pk=shop.waiting.pk).update(executions=7)
    changed = client.get("/deliveries/", headers={**asked, "X-Fragment": first["X-Fragment"]})
    assert changed.status_code == 200
    assert changed["X-Fragment"] != first["X-Fragment"]


def test_the_wall_clock_says_its_offset_where_it_shows_a_time_twice() -> None:
    from django.utils import timezone

    from messaging.console import zones
    from messaging.templatetags import hub

    berlin = zones.named("Europe/Berlin")
    twice = datetime(2025, 10, 26, 0, 30, tzinfo=UTC), datetime(2025, 10, 26, 1, 30, tzinfo=UTC)
    with clock.frozen(datetime(2026, 1, 5, tzinfo=UTC)), timezone.override(berlin):
        assert [">2025-10-26 02:30 +02:00<" in hub.ago(twice[0]), ">2025-10-26 02:30 +01:00<" in hub.ago(twice[1])] == [
            True,
            True,
        ]
        assert ">2025-12-24 13:00<" in hub.ago(datetime(2025, 12, 24, 12, tzinfo=UTC))
        assert ">2025-07-01 14:00 +02:00<" in hub.ago(datetime(2025, 7, 1, 12, tzinfo=UTC)), "another season"
        assert hub.zone() == '<abbr title="Europe/Berlin">CET</abbr>'


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-07-01T14:00", "2026-07-01T12:00:00+00:00"),
        ("2026-01-01", "2025-12-31T23:00:00+00:00"),
        ("2026-07-01T14:00Z", "2026-07-01T14:00:00+00:00"),
        ("2026-07-01T14:00+05:30", "2026-07-01T08:30:00+00:00"),
        ("9999-12-31T23:59", None),
        ("0001-01-01", None),
        ("nonsense", None),
        ("", None),
    ],
)
def test_times_that_people_write_are_read_in_their_zone(text: str, instant: str | None) -> None:
    from messaging.console import zones

    found = zones.read_local(text, zones.named("Europe/Berlin"))
    assert (found.isoformat() if found else None) == instant
