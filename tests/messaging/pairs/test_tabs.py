"""A pair's page beyond the diagnosis: tabs, sequence, ping, settings, run-book, resume modes, export; the list."""

from __future__ import annotations

import csv
import io
import zipfile
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from lxml import html

from messaging.journal import incidents
from messaging.models import AuditEntry, Incident, Message, Pair, ProbeReport
from messaging.pairs.pages.pairs import rendered
from messaging.pairs.services import silence
from messaging.pairs.services.silence import pair_update
from messaging.transports.probe import certificate_step
from partners.models import AgreementVersion, Endpoint
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import ANA, browser, delivered, suspended
from tests.messaging.factories import PartnerSide, partner_side, submit
from tests.worlds.ux import certificates
from tests.worlds.ux.directory import Lane
from tests.worlds.ux.troubles import looked_at

pytestmark = pytest.mark.django_db
TABS = ("overview", "queue", "attempts", "incidents", "agreement", "audit", "settings")


def _url(pair: Pair, rest: str = "") -> str:
    return f"/pairs/{pair.code.replace('>', '%3E')}/{rest}"


def _words(content: bytes) -> str:
    return " ".join(html.fromstring(content).get_element_by_id("main").text_content().split())


@pytest.mark.parametrize("tab", TABS)
def test_each_tab_has_its_address_and_marks_itself(time: FrozenClock, tab: str) -> None:
    pair = suspended(time).outbound
    page = html.fromstring(browser().get(_url(pair, f"?tab={tab}")).content)
    (current,) = page.xpath("//nav[@aria-label='Parts of this page']//a[@aria-current='page']")
    assert current.get("href") == f"?tab={tab}"
    assert page.xpath("//*[@data-testid='diagnosis']")  # stands above all of them
    live = page.get_element_by_id("live-pair").get("hx-get")
    # A form that somebody fills in is not swapped away under their hands.
    assert live is None if tab == "settings" else live.endswith(f"?tab={tab}")


def test_a_tab_that_does_not_exist_is_the_overview(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    page = html.fromstring(browser().get(_url(pair, "?tab=nonsense")).content)
    assert page.xpath("//a[@data-testid='tab-overview']/@aria-current") == ["page"]


def test_the_page_costs_a_bounded_number_of_queries(time: FrozenClock) -> None:
    pair = suspended(time, waiting=2).outbound
    client = browser()
    counts: dict[str, int] = {}
    for tab in TABS:
        client.get(_url(pair, f"?tab={tab}"))
        with CaptureQueriesContext(connection) as queries:
            client.get(_url(pair, f"?tab={tab}"))
        counts[tab] = len(queries)
    assert max(counts.values()) <= 40, counts


def test_the_strip_names_what_blocks_and_what_waits(time: FrozenClock) -> None:
    side = partner_side(retries=1, timeout=60, retry_interval=60, transport_retries=0)
    delivered(side, 3)
    stuck = suspended(time, waiting=2)
    cells = html.fromstring(browser().get(_url(stuck.outbound)).content).xpath("//*[@data-testid='strip']/li")
    assert [(cell.get("data-state"), cell.xpath(".//*[@class='cell-number']")[0].text) for cell in cells] == [
        ("blocking", "1"),
        ("waiting", "2"),
        ("waiting", "3"),
    ]
    assert [cell.get("aria-current") for cell in cells] == ["true", None, None]
    flowing = html.fromstring(browser().get(_url(side.outbound)).content)
    assert flowing.xpath("//*[@data-testid='strip']/li/@data-state") == ["delivered"] * 3
    assert flowing.xpath("//*[@data-testid='gaps']")[0].text.strip() == "none"


def test_gaps_of_what_came_are_named(time: FrozenClock) -> None:
    side = partner_side()
    for number in (1, 2):
        assert side.send(side.message(number)) == 204
    Pair.objects.filter(pk=side.inbound.pk).update(last_sequence=5)
    assert side.send(side.message(6)) == 204
    page = html.fromstring(browser().get(_url(side.inbound)).content)
    assert page.xpath("//*[@data-testid='gaps']")[0].text.strip() == "3–5"


def test_resuming_offers_one_message_first(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    client = browser(Role.OPERATOR)
    form = html.fromstring(client.get(_url(pair, "actions/resume/")).content)
    assert form.xpath("//input[@name='mode'][@checked]/@value") == ["probe"]
    given = {"version": pair.version, "reason": "partner fixed firewall", "mode": "probe"}
    assert client.post(_url(pair, "actions/resume/"), given).status_code == 303
    assert Pair.objects.get(pk=pair.pk).probing
    assert "the first failure suspends the pair again" in _words(client.get(_url(pair)).content)
    assert AuditEntry.objects.get(verb="pair.resume").after["mode"] == "probe"


def test_a_mode_that_does_not_exist_is_refused(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    given = {"version": pair.version, "reason": "partner fixed firewall", "mode": "slowly"}
    assert browser().post(_url(pair, "actions/resume/"), given).status_code == 422
    assert Pair.objects.get(pk=pair.pk).flow == "suspended"


def test_skipping_wants_a_reason_that_says_something_and_offers_a_copy(time: FrozenClock) -> None:
    pair = suspended(time, waiting=1).outbound
    client = browser()
    page = html.fromstring(client.get(_url(pair, "actions/skip-head/")).content)
    (copy,) = page.xpath("//a[@data-testid='export-head']/@href")
    answer = client.get(copy)
    assert answer["Content-Type"] == "application/zip"
    archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))  # type: ignore[arg-type]
    assert len(archive.namelist()) == 2
    given = {"version": pair.version, "reason": "poison", "confirm": pair.code}
    answer = client.post(_url(pair, "actions/skip-head/"), given)
    assert answer.status_code == 422
    assert "at least 10 characters" in answer.content.decode()
    given["reason"] = "They cannot read this document."
    assert client.post(_url(pair, "actions/skip-head/"), given).status_code == 303
    entry = AuditEntry.objects.get(verb="pair.skip_head")
    assert entry.reason == "They cannot read this document."
    assert AuditEntry.objects.filter(verb="pair.export").exists()


def test_nothing_to_export_leads_back(time: FrozenClock) -> None:
    side = partner_side()
    client = browser()
    answer = client.get(_url(side.outbound, "waiting.zip"))
    assert answer.status_code == 303
    assert "nothing to export" in client.get(answer["Location"]).content.decode()


def test_a_ping_shows_its_steps_on_the_page(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    client = browser(Role.OPERATOR)
    answer = client.post(_url(pair, "ping/"))
    report = ProbeReport.objects.get(pair=pair)
    assert answer.status_code == 303
    assert f"pinged={report.public_id}" in answer["Location"]
    page = html.fromstring(client.get(answer["Location"].partition("#")[0]).content)
    (shown,) = page.xpath("//section[@data-testid='probe']")
    assert shown.get("data-state") == "failed"
    assert page.xpath("//tr[@data-testid='probe-dns']/@data-state") == ["failed"]
    assert "Check the endpoint's address for a typing error" in shown.text_content()


def test_a_viewer_is_told_why_they_cannot_ping(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    page = html.fromstring(browser(Role.VIEWER).get(_url(pair)).content)
    assert page.get_element_by_id("ping").get("aria-disabled") == "true"
    assert page.get_element_by_id("why-ping").text == "Needs the role operator."


def test_an_expired_certificate_leads_to_its_replacement(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    version = AgreementVersion.objects.get(pk=Message.objects.get(pk=pair.in_flight_id).agreement_version_id)
    endpoint = Endpoint.objects.get(pk=version.partner_endpoint_id)
    page = html.fromstring(browser().get(_url(pair)).content)
    href = page.get_element_by_id("replace-certificate").get("href")
    assert href.startswith(f"/endpoints/{endpoint.public_id}/certificates/?next=/pairs/")
    assert not html.fromstring(browser(Role.OPERATOR).get(_url(pair)).content).xpath("//*[@id='replace-certificate']")


def test_what_changed_since_the_last_success_is_listed(time: FrozenClock) -> None:
    side = partner_side(retries=0, timeout=60, transport_retries=0)
    delivered(side, 1)
    time.move(60)
    _audit_of_endpoint(side)
    stuck_at(side, time)
    page = html.fromstring(browser().get(_url(side.outbound)).content)
    words = " ".join(page.xpath("//*[@data-testid='changed']")[0].text_content().split())
    assert "read timeout" in words and "by ana" in words and "they are slow" in words


def _audit_of_endpoint(side: PartnerSide) -> None:
    version = AgreementVersion.objects.get(pk=side.terms.version_id)
    endpoint = Endpoint.objects.get(pk=version.partner_endpoint_id)
    AuditEntry.objects.create(
        at=clock.now(),
        actor="ana",
        interface="console",
        verb="endpoint.update",
        object_type="endpoint",
        object_id=endpoint.public_id,
        object_name=endpoint.name,
        reason="they are slow",
        before={"read_timeout": 30},
        after={"read_timeout": 60},
    )


def stuck_at(side: PartnerSide, time: FrozenClock) -> None:
    Message.objects.get(pk=submit(side).pk)
    Pair.objects.filter(pk=side.outbound.pk).update(flow="suspended", cause="connect_refused", changed_at=clock.now())


def test_settings_are_changed_with_a_reason(time: FrozenClock) -> None:
    pair = partner_side().outbound
    client = browser(Role.OPERATOR)
    given = {"version": pair.version, "every": "2", "every_unit": "3600", "grace": "15", "grace_unit": "60"}
    given |= {"runbook": "# Call *Bob*", "reason": "from their manual"}
    answer = client.post(_url(pair, "settings/"), given)
    assert answer.status_code == 303 and answer["Location"].endswith("?tab=settings")
    changed = Pair.objects.get(pk=pair.pk)
    assert (changed.expected_every, changed.silence_grace, changed.runbook) == (7200, 900, "# Call *Bob*")
    form = html.fromstring(client.get(answer["Location"]).content)
    assert form.get_element_by_id("field-every").get("value") == "2"
    assert form.xpath("//select[@name='every_unit']/option[@selected]/@value") == ["3600"]
    assert AuditEntry.objects.get(verb="pair.update").reason == "from their manual"
    stale = client.post(_url(pair, "settings/"), {**given, "every": "3"})
    assert stale.status_code == 409
    assert 'value="3"' in stale.content.decode()  # what was typed is still there


@pytest.mark.parametrize(
    "wrong",
    [
        {"every": "x"},
        {"every": "0.5"},
        {"reason": ""},
        {"version": ""},
        {"every_unit": "7"},
        {"every": "400", "every_unit": "86400"},
    ],
)
def test_settings_that_cannot_be_read_are_asked_again(time: FrozenClock, wrong: dict[str, str]) -> None:
    pair = partner_side().outbound
    given = {"version": str(pair.version), "every": "2", "every_unit": "3600", "reason": "from their manual"}
    answer = browser().post(_url(pair, "settings/"), {**given, **wrong})
    assert answer.status_code == 422
    assert Pair.objects.get(pk=pair.pk).expected_every == 0


def test_a_viewer_reads_the_settings_only(time: FrozenClock) -> None:
    pair = partner_side().outbound
    content = browser(Role.VIEWER).get(_url(pair, "?tab=settings")).content.decode()
    assert "settings-form" not in content and "needs the role operator" in content


def test_a_silent_pair_says_so_and_the_run_book_stands_there(time: FrozenClock) -> None:
    side = partner_side()
    pair = side.outbound
    pair_update(pair_id=pair.pk, actor=ANA, reason="hourly", expected_every=3600, runbook="Call **Bob**")
    client = browser()
    assert "runbook" not in client.get(_url(pair)).content.decode()  # no trouble, no run-book
    time.move(7200)
    silence.look(clock.now())
    words = _words(client.get(_url(pair)).content)
    assert "Silent for 1 h." in words and "A document is expected every 1 h." in words
    assert "Call Bob" in words
    rows = html.fromstring(client.get("/pairs/?state=silent").content).xpath("//tr[@data-testid='pair-row']")
    assert [row.get("data-state") for row in rows] == ["silent"]


@pytest.mark.parametrize(
    ("text", "never"),
    [
        ("<script>alert(1)</script>", "<script"),
        ("<img src=x onerror=alert(1)>", "<img"),
        ("![pixel](https://evil.example/p.gif)", "<img"),
        ("[x](javascript:alert(1))", 'href="javascript'),
        ("[x](data:text/html,hi)", 'href="data'),
        ("[x](//evil.example/)", 'href="//'),
        ("| a |\n|:-:|\n| b |", "style="),
    ],
)
def test_a_run_book_can_do_no_harm(text: str, never: str) -> None:
    assert never not in rendered(text)


def test_a_run_books_headings_stand_below_the_pages() -> None:
    assert rendered("# One\n\n[two](https://wiki.example/)") == (
        '<h3>One</h3>\n<p><a href="https://wiki.example/" rel="noopener noreferrer">two</a></p>\n'
    )


def test_the_list_names_owner_and_agreement(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    incident = Incident.objects.get(pair=pair)
    incidents.incident_acknowledge(incident_id=incident.pk, actor=ANA)
    client = browser()
    (row,) = html.fromstring(client.get("/pairs/?state=suspended").content).xpath("//tr[@data-testid='pair-row']")
    assert row.xpath(".//td[@data-label='Owner']/a/text()") == ["ana"]
    answer = client.get("/pairs/?state=suspended&format=csv")
    (line,) = csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode()))  # type: ignore[arg-type]
    assert (line["owner"], line["incident"], line["reason"]) == ("ana", str(incident), "cert_expired")
    assert line["agreement"].startswith("tpa:") and line["code"] == pair.code


def test_buttons_say_until_when_an_attempt_is_on_the_wire(time: FrozenClock) -> None:
    from messaging.engine.claiming import claim_due

    side = partner_side()
    submit(side)
    claim_due(limit=1)
    page = html.fromstring(browser().get(_url(side.outbound)).content)
    why = page.get_element_by_id("why-verb-skip-head")
    assert why.text_content().startswith("An attempt is on the wire; wait for its outcome. At the latest in 5")


def test_what_changed_since_the_last_success_stands_on_the_page(time: FrozenClock, tmp_path: Path) -> None:
    partner = suspended(time)
    pair = partner.outbound
    now = clock.now()
    certificates.write(tmp_path, now, now - timedelta(hours=3))
    lane = Lane("halden", "tpa", pair.partner, partner.terms.version_id, pair, partner.inbound, None)
    Pair.objects.filter(pk=pair.pk).update(last_success_at=now - timedelta(hours=4))
    with clock.frozen(now - timedelta(days=12)):
        looked_at(tmp_path, lane)

    def changed() -> list[str]:
        page = html.fromstring(browser().get(_url(pair)).content)
        return [" ".join(one.text_content().split()) for one in page.xpath("//*[@data-testid='changed']//li")]

    assert changed() == ["The certificate that the server showed last has run out 3 h ago"]
    old = ProbeReport.objects.get()
    new = certificate_step(certificates.der(tmp_path, "new"), now)
    ProbeReport.objects.create(
        endpoint=old.endpoint, address=old.address, ok=False, steps=[new.as_dict()], actor="mona", at=now
    )
    until = (now + timedelta(days=365)).date()
    assert changed() == [f"The server shows another certificate, valid until {until} 0 s ago"]
    Pair.objects.filter(pk=pair.pk).update(last_success_at=now)
    assert changed() == []
