"""The console as people meet it: with a pointer, with the keyboard, with and without JavaScript, in both themes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, User
from playwright.sync_api import Error, Page, Request, Route, expect

from messaging.journal.audit import Actor
from messaging.models import Access, AuditEntry, OnboardingDraft, Pair, SecondFactor
from messaging.pairs.services import operating
from partners.models import PartnerGroup
from rmhub import clock
from rmhub.roles import Role
from tests import sizes
from tests.browser.axe import AXE, RULES
from tests.browser.conftest import PASSWORD, Open
from tests.messaging.console.pages import DOWNLOADS, PAGES, PORTAL_PAGES
from tests.messaging.console.scenes import delivered, suspended, world
from tests.messaging.factories import partner_side, submit
from tests.rmhub.conditions import eventually

# `make screenshots` sets it to a folder; every page that is looked at leaves a picture there.
PICTURES = os.environ.get("RMHUB_SCREENSHOTS", "")
_taken: set[Path] = set()
ANA = Actor("ana", "console")


def _suspended() -> Pair:
    with clock.frozen(clock.now()) as time:
        return suspended(time).outbound


def _url(pair: Pair) -> str:
    return f"/pairs/{pair.code.replace('>', '%3E')}/"


def _of_region(request: Request) -> bool:
    """Whether a page's live region asks for itself."""
    return request.headers.get("hx-target", "").startswith("live-")


def _polled(page: Page) -> list[str]:
    """Addresses of which live regions are asked from now on."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if _of_region(request) else None)
    return asked


def _live(page: Page, times: int) -> None:
    """Lets a page ask for news so many times; each waits for the answer."""
    for _ in range(times):
        with page.expect_response(lambda answer: _of_region(answer.request)):
            page.clock.run_for(3000)


def test_new_messages_are_counted_and_come_when_they_are_wanted(open_console: Open) -> None:
    partner = partner_side()
    submit(partner)
    page = open_console("/messages/")
    rows, news = page.locator("#live-messages tbody tr"), page.get_by_test_id("new-rows")
    expect(rows).to_have_count(1)
    expect(page.locator("#live-sign")).to_have_attribute("data-state", "live")
    submit(partner)
    page.clock.run_for(3000)
    expect(news).to_have_text("1 new, press . to load")
    expect(rows).to_have_count(1)
    page.keyboard.press(".")
    expect(rows).to_have_count(2)
    page.click("#live-pause")
    expect(page.locator("#live-pause")).to_have_attribute("aria-pressed", "true")
    submit(partner)
    asked = _polled(page)
    page.clock.run_for(30_000)
    expect(page.locator("#live-text")).to_have_text("Paused 30 s")
    assert asked == []
    expect(news).to_have_count(0)
    page.click("#live-pause")
    page.clock.run_for(3000)
    expect(news).to_have_text("1 new, press . to load")
    news.click()
    expect(rows).to_have_count(3)


def test_the_sign_turns_stale_when_the_server_is_gone(open_console: Open, complaints: list[str]) -> None:
    page = open_console("/pairs/")
    page.route("**/pairs/", lambda route: route.abort())
    page.clock.run_for(15_000)
    expect(page.locator("#live-sign")).to_have_attribute("data-state", "stale")
    expect(page.locator("#live-text")).to_contain_text("Stale")
    page.unroute("**/pairs/")
    page.clock.run_for(3000)
    expect(page.locator("#live-sign")).to_have_attribute("data-state", "live")
    complaints.clear()


def test_a_suspension_is_told_to_screen_readers(open_console: Open) -> None:
    partner = partner_side()
    page = open_console(_url(partner.outbound))
    operating.pair_pause(pair_id=partner.outbound.pk, actor=ANA, reason="maintenance")
    page.clock.run_for(3000)
    expect(page.locator("#announce[role=status]")).to_contain_text("Paused by ana")


def test_resuming_takes_three_clicks_in_a_dialog_that_can_be_left(open_console: Open) -> None:
    pair = _suspended()
    page = open_console("/", role=Role.OPERATOR)
    page.click(f"#needs-{pair.public_id}")
    page.click("[data-testid=verb-resume]")
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("Sends message #1 (NewOrder) again at once")
    expect(dialog.locator("#field-reason")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.locator("#verb-resume")).to_be_focused()
    page.click("[data-testid=verb-resume]")
    dialog.locator("a[data-close]").click()
    expect(dialog).to_have_count(0)
    assert Pair.objects.get(pk=pair.pk).flow == "suspended"
    page.click("[data-testid=verb-resume]")
    dialog.locator("#field-reason").fill("Partner fixed firewall")
    page.click("[data-testid=submit]")
    expect(page.locator(".alert-success")).to_contain_text("is resumed.")
    assert AuditEntry.objects.get(verb="pair.resume").reason == "Partner fixed firewall"


def test_a_double_click_resumes_once(open_console: Open) -> None:
    pair = _suspended()
    page = open_console(_url(pair) + "actions/resume/")
    page.fill("#field-reason", "twice")
    page.dblclick("[data-testid=submit]")
    expect(page.locator(".alert-success")).to_be_visible()
    assert AuditEntry.objects.filter(verb="pair.resume").count() == 1


def test_a_dialog_that_is_refused_stays_and_says_why(open_console: Open, complaints: list[str]) -> None:
    pair = _suspended()
    page = open_console(_url(pair))
    page.click("[data-testid=verb-resume]")
    dialog = page.locator("dialog[open]")
    dialog.locator("[data-testid=submit]").click()
    expect(dialog.locator("#form-errors")).to_be_focused()
    expect(page.locator("h1")).to_have_text(pair.code)
    dialog.locator("#field-reason").fill("Certificate replaced")
    dialog.locator("[data-testid=submit]").click()
    expect(page.locator(".alert-success")).to_contain_text("is resumed.")
    complaints.clear()  # the answer 422, which Chromium notes


def test_a_stale_dialog_says_who_was_faster(open_console: Open) -> None:
    pair = _suspended()
    page = open_console(_url(pair), name="slow")
    page.click("[data-testid=verb-resume]")
    page.fill("#field-reason", "me too")
    operating.pair_resume(pair_id=pair.pk, actor=ANA, reason="I was first")
    page.click("[data-testid=submit]")
    expect(page.locator("#form-errors")).to_contain_text("ana was faster: resume")
    expect(page.locator("#form-errors")).to_be_focused()


def test_without_javascript_a_pair_is_repaired_all_the_same(open_console: Open) -> None:
    pair = _suspended()
    page = open_console("/", javascript=False, role=Role.OPERATOR)
    expect(page.locator("#live-sign")).to_be_hidden()
    page.click(f"#needs-{pair.public_id}")
    page.click("[data-testid=verb-resume]")
    expect(page.locator("h1")).to_have_text(f"Resume {pair.code}")
    page.fill("#field-reason", "Partner fixed firewall")
    page.click("[data-testid=submit]")
    expect(page.locator(".alert-success")).to_contain_text("is resumed.")
    assert Pair.objects.get(pk=pair.pk).flow != "suspended"
    page.click(".menu:not(.zone-menu) > summary")
    page.click("text=Dark")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    page.click(".menu:not(.zone-menu) > summary")
    page.click("[data-testid=log-out]")
    expect(page.locator("h1")).to_have_text("Log in")


def test_without_javascript_an_id_is_found_and_its_attempt_opened(open_console: Open) -> None:
    message = delivered(partner_side())[0]
    page = open_console("/", javascript=False)
    page.fill("#search", message.message_id)
    page.keyboard.press("Enter")
    page.click("text=Attempt 1 handed over")
    expect(page.locator("h1")).to_have_text("Attempt 1")


def test_without_javascript_the_audit_log_of_a_pair_says_who_resumed_it(open_console: Open) -> None:
    with clock.frozen(clock.now() - timedelta(days=7)) as time:
        pair = suspended(time).outbound
        operating.pair_resume(pair_id=pair.pk, actor=Actor("mona", "console"), reason="Their firewall is open again")
    page = open_console("/", javascript=False, role=Role.VIEWER)
    page.fill("#search", pair.code)
    page.keyboard.press("Enter")
    page.click("[data-testid=tab-audit]")
    expect(page.locator("main li", has_text="Their firewall is open again")).to_contain_text("mona")


def test_a_session_that_ends_in_the_wizard_leaves_the_draft(open_console: Open) -> None:
    page = open_console("/partners/new/")
    page.click("[data-testid=start]")
    page.fill("[name=name]", "Zephyr Aviation")
    page.click("[data-testid=go-on]")
    page.fill("[name=uri]", "http://msh.zephyr.example/ebxml")
    page.locator("[name=uri]").blur()
    page.clock.run_for(1000)
    expect(page.locator("[data-testid=saved]")).to_be_visible()
    page.context.clear_cookies(name="sessionid")
    page.click("[data-testid=go-on]")
    page.wait_for_url("**/login/**")
    page.fill("#username", "ana")
    page.fill("#password", PASSWORD)
    page.click("[data-testid=log-in]")
    page.goto("/partners/new/")
    page.click("[data-testid=draft] a")
    expect(page.locator("[name=uri]")).to_have_value("http://msh.zephyr.example/ebxml")


def test_what_one_has_just_typed_in_the_wizard_does_not_conflict_with_continue(open_console: Open) -> None:
    """The server has kept what was typed, and the page has not heard of it when Continue is pressed."""
    page = open_console("/partners/new/")
    page.click("[data-testid=start]")
    page.fill("[name=name]", "Zephyr Aviation")
    held: list[Route] = []

    def kept_unheard(route: Route) -> None:
        if route.request.headers.get("hx-request") != "true":
            return route.continue_()
        route.fetch()
        held.append(route)
        return None

    page.route("**/step/2/", kept_unheard)
    page.keyboard.press("Tab")
    page.clock.run_for(400)
    eventually(lambda: page.evaluate("true") and held)
    assert OnboardingDraft.objects.get().version > 1
    page.click("[data-testid=go-on]")
    page.wait_for_url("**/step/3/")
    assert held and OnboardingDraft.objects.get().title == "Zephyr Aviation"


@pytest.mark.long
def test_a_live_page_costs_no_memory_and_no_focus(open_console: Open) -> None:
    partner = partner_side()
    page = open_console(_url(partner.outbound))
    page.focus("#ping")
    session = page.context.new_cdp_session(page)

    def heap() -> float:
        session.send("HeapProfiler.collectGarbage")
        return float(session.send("Runtime.getHeapUsage")["usedSize"])

    asked = _polled(page)
    _live(page, 20)
    before = heap()
    for _ in range(4):
        submit(partner)
        _live(page, 15)
    assert len(asked) >= 75
    assert heap() < 1.1 * before
    expect(page.locator("#ping")).to_be_focused()


def test_the_page_follows_the_systems_theme_without_javascript(open_console: Open) -> None:
    shades = {}
    for scheme in ("light", "dark"):
        page = open_console("/", javascript=False, color_scheme=scheme)
        shades[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        other = "light" if scheme == "dark" else "dark"
        page.click(".menu:not(.zone-menu) > summary")
        page.click(f".menu button[value={other}]")
        shades[f"{scheme}, but {other}"] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert shades["light"] == shades["dark, but light"] == "rgb(245, 246, 248)"
    assert shades["dark"] == shades["light, but dark"] == "rgb(20, 23, 27)"


def test_the_keyboard_reaches_everything(open_console: Open) -> None:
    pair = _suspended()
    page = open_console("/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip-link")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type(pair.code)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(pair.code)
    page.focus("#verb-resume")
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open] #field-reason")).to_be_focused()
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    expect(page.locator(".alert-success")).to_be_visible()


def test_focus_survives_a_live_update(open_console: Open) -> None:
    partner = partner_side()
    submit(partner)
    page = open_console(_url(partner.outbound))
    page.focus("#ping")
    message = submit(partner)
    page.clock.run_for(3000)
    expect(page.locator(f"[data-testid=strip] a[href='/messages/{message.public_id}/']")).to_be_visible()
    expect(page.locator("#ping")).to_be_focused()


@pytest.mark.parametrize("javascript", [True, False])
def test_filters_fold_and_what_is_done_about_many_comes_with_a_selection(open_console: Open, javascript: bool) -> None:
    partner = partner_side()
    submit(partner)
    page = open_console("/messages/", javascript=javascript)
    expect(page.locator("#filter-state")).to_be_hidden()
    page.get_by_test_id("filters-open").click()
    page.locator("#filter-partner").fill(partner.terms.partner_name)
    page.get_by_test_id("filter").click()
    expect(page.locator(".chips")).to_contain_text(f"partner: {partner.terms.partner_name}")
    expect(page.get_by_test_id("bulk-messages_export")).to_be_hidden()
    page.get_by_test_id("select").check()
    expect(page.get_by_test_id("bulk-messages_export")).to_be_visible()
    page.locator(".chips a").click()
    expect(page.locator(".chips")).to_have_count(0)


def test_a_filter_completes_the_names_of_partners(open_console: Open) -> None:
    name = partner_side().outbound.partner.name
    page = open_console("/pairs/")
    page.get_by_test_id("filters-open").click()
    page.locator("#filter-partner").focus()
    expect(page.locator(f"#filter-partner-names option[value='{name}']")).to_have_count(1)
    page.keyboard.type("nobody of this name")
    page.clock.run_for(300)
    expect(page.locator("#filter-partner-names option")).to_have_count(0)


@pytest.mark.parametrize("javascript", [True, False])
def test_a_partner_joins_a_group_by_name(open_console: Open, javascript: bool) -> None:
    first, second = (partner_side().outbound.partner for _ in range(2))
    page = open_console("/partner-groups/new/", javascript=javascript)
    page.get_by_test_id("name").fill("North")
    adding, lines = page.get_by_test_id("adding"), page.get_by_test_id("partners")
    adding.fill(first.name)
    if javascript:
        expect(page.locator(f"#field-adding-names option[value='{first.name}']")).to_have_count(1)
        adding.press("Enter")  # adds; in any other field it saves
    else:
        page.get_by_test_id("add").click()
    expect(lines).to_have_value(first.name)
    expect(adding).to_be_focused()
    adding.fill(second.name)
    page.get_by_test_id("add").click()
    expect(lines).to_have_value(f"{first.name}\n{second.name}")
    assert not PartnerGroup.objects.exists()
    lines.fill(second.name)
    page.get_by_test_id("name").press("Enter")
    expect(page.locator(".alert-success")).to_contain_text("The group North is saved.")
    assert list(PartnerGroup.objects.get().partners.all()) == [second]


def test_groups_of_the_navigation_stay_folded(open_console: Open) -> None:
    page = open_console("/pairs/")
    records = page.locator(".shell-nav [data-group=records]")
    records.locator("summary").press("Enter")
    # The page hears of it a moment after it is folded.
    page.wait_for_function("document.cookie.includes('rmhub_nav=records')")
    expect(records.locator("a").first).to_be_hidden()
    page.goto("/partners/")
    expect(records.locator("a").first).to_be_hidden()
    page.goto("/audit/")
    expect(records.locator("a[aria-current]")).to_be_visible()


def test_the_navigation_stays_and_no_heading_hides_behind_the_header(open_console: Open) -> None:
    page = open_console("/glossary/#term-pair")
    edge = page.evaluate("document.querySelector('.shell-top').getBoundingClientRect().bottom")
    assert page.evaluate("scrollY") > 0
    assert page.evaluate("document.querySelector('#term-pair').getBoundingClientRect().top") >= edge
    expect(page.locator(".shell-nav a").first).to_be_in_viewport()


def test_what_else_can_be_done_to_a_pair_is_in_a_menu_that_the_keyboard_opens(open_console: Open) -> None:
    pair = _suspended()
    page = open_console(_url(pair))
    expect(page.locator(".verbs > .btn-primary")).to_have_count(1)
    expect(page.locator("#verb-skip-head")).to_be_hidden()
    page.focus("#more")
    page.keyboard.press("Enter")
    shown = page.locator(".verbs .menu-item")
    assert shown.last.evaluate("one => one.classList.contains('text-bad') || Boolean(one.closest('.menu-apart'))")
    page.locator("#verb-skip-head").click(trial=True)  # the card does not cut the menu off
    page.focus("#verb-skip-head")
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open] #field-reason")).to_be_focused()


def test_rows_do_not_move_under_the_pointer(open_console: Open) -> None:
    pair = partner_side().outbound
    page = open_console("/pairs/")
    row = page.locator("#live-pairs tbody tr", has_text=pair.code)
    operating.pair_pause(pair_id=pair.pk, actor=ANA, reason="maintenance")
    asked = _polled(page)
    for step in range(6):
        row.hover(position={"x": 20 + step, "y": 8})
        page.clock.run_for(2000)
    expect(page.locator("#live-text")).to_have_text(re.compile("^Held while you point"))
    assert asked == []
    expect(row).not_to_contain_text("Paused")
    page.mouse.move(5, 5)
    page.clock.run_for(8000)
    expect(row).to_contain_text("Paused")


def test_an_ended_session_leads_to_the_log_in(open_console: Open) -> None:
    page = open_console("/pairs/")
    page.context.clear_cookies(name="sessionid")
    page.clock.run_for(3000)
    page.wait_for_url("**/login/")


ALL = {"type": "tag", "values": RULES}
COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
SIZES = {"type": "rule", "values": ["target-size", "scrollable-region-focusable"]}


def _violations(page: Page, rules: dict[str, object]) -> list[str]:
    # What passes is not listed: to name each of its elements takes most of the time.
    options = "{runOnly: rules, resultTypes: ['violations'], performanceTimer: false}"
    found = page.evaluate(f"async rules => (await axe.run(document, {options})).violations", rules)
    if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
        found.append({"id": "wider than the window", "nodes": [{"html": ""}]})
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]


def test_axe_finds_nothing_on_any_page_in_either_theme_wide_and_narrow(
    open_console: Open, person: Callable[..., User]
) -> None:
    with clock.frozen(clock.now()) as time:
        scene = world(time)
    page = open_console("/", bypass_csp=True)
    page.route("**/axe.js", lambda route: route.fulfill(path=AXE))
    problems = {}

    def look(name: str, url: str, status: int = 0) -> None:
        page.set_viewport_size({"width": 1366, "height": 768})
        page.emulate_media(color_scheme="light")
        try:
            answer = page.goto(url)
        except Error as error:
            problems[name] = [f"is no page: {error.message.splitlines()[0]}"]
            return
        if PICTURES:
            _picture(page, name)
            return
        page.add_script_tag(url="/axe.js")
        found = [f"answered {answer.status}"] if answer and status and answer.status != status else []
        found += _violations(page, ALL)
        page.emulate_media(color_scheme="dark")
        found += [f"dark: {text}" for text in _violations(page, COLOURS)]
        # WCAG 1.4.10: 1280 pixels at 400 % are 320.
        page.set_viewport_size({"width": 320, "height": 800})
        found += [f"narrow: {text}" for text in _violations(page, SIZES)]
        if found:
            problems[name] = found
            print(name, *found, sep="\n    ")  # a failed assertion shows only the first of many

    shown = [entry for entry in PAGES if entry.get and entry.name not in (*DOWNLOADS, "login", "login-code")]
    for entry in shown if sizes.ALL or PICTURES else shown[::16]:
        look(entry.name, entry.url(scene))
    look("not-found", "/pairs/NOPE/", 404)
    Access.objects.create(user=person(Role.PARTNER, "pia"), limited=True, partner=scene.partner)
    ours, page = page, open_console("/portal/", role=Role.PARTNER, name="pia", bypass_csp=True)
    page.route("**/axe.js", lambda route: route.fulfill(path=AXE))
    for entry in PORTAL_PAGES if sizes.ALL or PICTURES else PORTAL_PAGES[::3]:
        if entry.get and entry.name not in DOWNLOADS:
            look(entry.name, entry.url(scene))
    page = ours
    Group.objects.get(name=Role.ADMIN).user_set.clear()
    look("not-allowed", "/", 403)
    page.context.clear_cookies(name="sessionid")
    look("login", "/login/", 200)
    ana = User.objects.get(username="ana")
    factor = {"secret_encrypted": b"", "confirmed_at": clock.now(), "created_at": clock.now()}
    SecondFactor.objects.update_or_create(user=ana, defaults=factor)
    page.fill("#username", "ana")
    page.fill("#password", PASSWORD)
    page.press("#password", "Enter")
    page.wait_for_url("**/login/code/")
    look("login-code", "/login/code/", 200)
    assert not problems


def _picture(page: Page, name: str) -> None:
    """One picture a page; `make screenshots` asks for them. The first of several with one name is kept."""
    place = Path(PICTURES) / f"{name}.jpg"
    if place not in _taken:
        _taken.add(place)
        page.screenshot(path=place, type="jpeg", quality=60, animations="disabled")
