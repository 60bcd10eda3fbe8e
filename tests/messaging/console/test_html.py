"""What holds for every page: the CSP has nothing to forbid, and screen readers find their way."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest
from django.test import Client
from lxml import html

from messaging.models import Incident
from partners.models import Party
from tests.messaging.console.pages import DOWNLOADS, PAGES
from tests.messaging.console.scenes import World, browser

pytestmark = pytest.mark.django_db
# These lists are laid out in cells: a name outside of one stands beside its value, in any column.
TORN = "//dl[contains(concat(' ', @class, ' '), ' grid-of-facts ') or starts-with(@class, 'facts')]/dt"


def _pages(scene: World) -> dict[str, html.HtmlElement]:
    client = browser()
    found = {"login": html.fromstring(Client().get("/login/").content)}
    for page in PAGES:
        if page.get and page.name not in (*DOWNLOADS, "login"):
            answer = client.get(page.url(scene))
            if "html" in answer["Content-Type"] and not 300 <= answer.status_code < 400:
                found[page.url(scene)] = html.fromstring(answer.content)
    found["nothing found"] = html.fromstring(client.get("/messages/?q=nothing").content)
    found["404"] = html.fromstring(client.get("/pairs/NOPE/").content)
    found["403"] = html.fromstring(browser(None).get("/").content)
    return found


def test_pages_are_fit_for_a_strict_csp_and_for_assistive_technology(scene: World) -> None:
    for name, page in _pages(scene).items():
        for element in page.iter():
            if not isinstance(element.tag, str):
                continue
            assert "style" not in element.attrib, (name, element.tag)
            assert not [key for key in element.attrib if key.startswith("on") or key.startswith("hx-on")], name
            assert element.tag != "style", name
            assert element.tag != "script" or element.get("src", "").startswith("/static/"), name
        assert page.xpath("/html/@lang") == ["en-gb"], name
        assert page.xpath("//title/text()")[0].strip().endswith("RM Hub"), name
        assert len(page.xpath("//h1")) == 1, name
        assert len(page.xpath("//main")) == 1, name
        assert not page.xpath("//table[not(caption)]"), name
        assert not page.xpath("//th[not(@scope)]"), name
        doubled = [key for key, count in Counter(page.xpath("//@id")).items() if count > 1]
        assert not doubled, (name, doubled)
        labelled = set(page.xpath("//label/@for"))
        for field in page.xpath("//input[not(@type='hidden')] | //select | //textarea"):
            assert field.get("id") in labelled or field.getparent().tag == "label", (name, field.get("name"))
        assert not page.xpath("//img[not(@alt)]"), name
        ids = set(page.xpath("//@id"))
        for reference in page.xpath("//@aria-labelledby | //@aria-describedby"):
            assert set(reference.split()) <= ids, (name, reference)
        for form in page.xpath("//form[@method='post']"):
            assert form.xpath(".//input[@name='csrfmiddlewaretoken']"), name


def test_a_fact_and_its_name_are_one_cell(scene: World) -> None:
    for name, page in _pages(scene).items():
        assert not page.xpath(TORN), name


def test_no_form_lists_partners_or_agreements(scene: World) -> None:
    """There may be thousands: they are named in fields that complete themselves. Our own parties are few."""
    ours = {party.public_id for party in Party.objects.filter(is_own=True)}
    fixed = {"partner"}  # of a new agreement: the one that was named before
    for name, page in _pages(scene).items():
        for option in page.xpath("//select/option[starts-with(@value, 'par_') or starts-with(@value, 'agr_')]"):
            of = option.getparent().get("name")
            assert option.get("value") in ours or of in fixed, (name, of)
        names = set(Party.objects.filter(is_own=False).values_list("name", flat=True))
        assert not names & {option.text_content() for option in page.xpath("//select[not(@name='partner')]/option")}


def test_nothing_but_three_style_sheets_delays_the_first_paint(scene: World) -> None:
    """How soon it comes is measured by `make bench-console`."""
    sheets = {tuple(page.xpath("//link[@rel='stylesheet']/@href")) for page in _pages(scene).values()}
    assert [tuple(name.rpartition("/")[2] for name in names) for names in sheets] == [
        ("tabler.min.css", "tabler-auto.css", "console.css")
    ]
    for name, page in _pages(scene).items():
        assert not page.xpath("//script[not(@defer)]"), name
        assert not page.xpath("//link[not(@rel='stylesheet' or @rel='icon')]"), name


def test_the_csp_of_a_page_allows_only_this_site(scene: World) -> None:
    policy = browser().get("/")["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_pages_stay_out_of_every_cache(scene: World) -> None:
    assert "no-store" in browser().get("/pairs/")["Cache-Control"]


def test_the_fragment_that_htmx_asks_for_is_the_one_in_the_page(scene: World, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: free)  # others write to this disk in between
    client = browser()
    urls = {
        "live-dashboard": "/",
        "live-pairs": "/pairs/",
        "live-pair": f"/pairs/{scene.pair.code}/",
        "live-messages": "/messages/",
        "live-message": f"/messages/{scene.outbound.public_id}/",
        "live-incidents": "/incidents/",
        "live-incident": f"/incidents/{scene.incident}/",
        "live-in-doubt": "/in-doubt/?tab=outbound",
        "live-doubt": f"/in-doubt/{scene.queue.public_id}/started_not_completed/",
        "live-triggers": "/triggers/",
        "live-trigger": f"/triggers/{scene.stopped.public_id}/",
        "live-deliveries": "/deliveries/",
        "live-delivery": f"/deliveries/{scene.doubtful.public_id}/",
        "live-jobs": "/jobs/",
        "live-runs": "/pipeline/",
        "live-run": f"/pipeline/{scene.waiting.public_id}/",
    }
    for target, url in urls.items():
        whole = html.fromstring(client.get(url).content)
        answer = client.get(url, headers={"HX-Request": "true", "HX-Target": target})
        assert "HX-Request" in answer["Vary"]
        assert b"<html" not in answer.content
        part = html.fragment_fromstring(answer.content.decode(), create_parent="div")
        for extra in part.xpath("./template | ./*[@hx-swap-oob]"):
            part.remove(extra)
        region = whole.get_element_by_id(target)
        assert region.get("hx-get") == url.replace(">", "%3E"), target
        assert region.text_content().split() == part.text_content().split(), target


def test_the_counters_of_the_navigation_come_with_every_fragment(scene: World) -> None:
    answer = browser().get("/pairs/", headers={"HX-Request": "true", "HX-Target": "live-pairs"})
    part = html.fragment_fromstring(answer.content.decode(), create_parent="div")
    counters = {element.get("id"): element.text for element in part.xpath(".//*[@hx-swap-oob='true']")}
    assert counters["nav-count-side-suspended"] == "1"
    assert counters["nav-count-sheet-incidents"] == str(Incident.objects.exclude(state="resolved").count())
    assert counters["nav-count-side-triggers"] == "1"
    assert counters["nav-count-sheet-in_doubt"] == "4", "three documents, one put off; a message, a transaction"
