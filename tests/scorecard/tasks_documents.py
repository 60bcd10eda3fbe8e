"""Tasks about documents: T5 to T8, T11."""

from __future__ import annotations

import re
from datetime import datetime

from playwright.sync_api import expect

from tests.browser.axe import AXE, RULES
from tests.scorecard.player import Failed, Player, logged_in, until
from tests.scorecard.stage import World


def third_attempt(player: Player, world: World) -> None:
    """T5: find the document with this id, and tell when and with which answer attempt 3 ended."""
    player.key("/")
    player.type("#search", world.facts["third_time"])
    player.enter()
    player.press("a:has-text('Attempt 3'), [data-testid=attempt-3]")
    text = player.sees("#main").inner_text()
    if "204" not in text:
        raise Failed(f"the answer is not shown on {player.page.url}")


def failures_as_team_view(player: Player, world: World) -> None:
    """T6: all failures of yesterday 14:00 to 15:00 for partner Y, saved as a view of the team."""
    start = datetime.fromisoformat(world.facts["failures"]["from"])
    player.key("g")
    player.key("m")
    player.page.wait_for_url("**/messages/**")
    player.type("#filter-q", f'state:failed partner:"{world.facts["partners"]["failures"]}"')
    player.press("filters-open")
    player.type("#filter-since", f"{start:%Y-%m-%dT%H:%M}")
    player.type("#filter-before", f"{start.replace(hour=start.hour + 1):%Y-%m-%dT%H:%M}")
    player.press("search-do")
    expect(player.page.locator("#live-messages tbody tr")).to_have_count(world.facts["failures"]["count"])
    player.press("views-open")
    player.type("view-name", "Failures at Ostara")
    player.tick("view-shared")
    player.press("view-save")
    player.sees("text=Failures at Ostara")
    player.stop()
    browser = player.page.context.browser
    assert browser is not None
    with logged_in(browser, world.hub.url, "ines", world.facts["password"]) as (_, page):
        page.goto("/messages/")
        page.get_by_test_id("views-open").click()
        page.get_by_text("Failures at Ostara").click()
        expect(page.locator("#live-messages tbody tr")).to_have_count(world.facts["failures"]["count"])


def _in_doubt(world: World) -> list[dict[str, object]]:
    found: list[dict[str, object]] = world.api("GET", "/messages?state=in_doubt&limit=200")["data"]
    return found


def settle_by_evidence(player: Player, world: World) -> None:
    """T8: 44 in doubt: settle all that evidence allows, leave the rest."""
    facts = world.facts["doubts"]
    before = _in_doubt(world)
    player.key("g")
    player.key("i")
    player.press("ask-all")
    for answer in ("processed", "not_recognized"):
        player.sees(f"[data-testid=settle-{answer}]:has-text('({facts[answer]})')")
        player.press(f"settle-{answer}")
        player.type("dialog[open] [name=reason]", "As the partner's status says")
        if (typed := player.find("dialog[open] [name=confirm]")).count():
            typed.fill(str(facts[answer]))
        player.press("dialog[open] [data-testid=plan-do]")
        player.sees(".alert-success")
    until(lambda: len(_in_doubt(world)) == facts["no_answer"], "the rest is left")
    player.stop()
    _settled_once(world, before)


def _settled_once(world: World, before: list[dict[str, object]]) -> None:
    """Jobs are finished; what the partner has is not sent again, what it does not know is sent once. Raises Failed."""
    facts = world.facts["doubts"]
    jobs = [one for one in world.api("GET", "/bulk-operations")["data"] if one["action"] == "settle_messages"]
    if [one["state"] for one in jobs] != ["finished", "finished"]:
        raise Failed(f"jobs: {[(one['action'], one['state']) for one in jobs]}")
    known = {str(one["id"]): str(one["message_id"]) for one in before}
    now = {one: world.api("GET", f"/messages/{one}") for one in known}
    delivered = [known[one] for one, message in now.items() if message["state"] == "delivered"]
    if len(delivered) != facts["processed"] or not all(one.startswith("processed-") for one in delivered):
        raise Failed(f"{len(delivered)} are delivered, not the {facts['processed']} that the partner has")
    until(lambda: len(_at_corvid(world)) >= facts["not_recognized"], "those sent as new arrive")
    sent = _at_corvid(world)
    if len(sent) != facts["not_recognized"] or len(set(sent)) != len(sent):
        raise Failed(f"{len(sent)} were sent: {sent}")


def _at_corvid(world: World) -> list[str]:
    return [one["message_id"] for one in world.partners("/seen") if one["partner"] == "corvid"]


def ask_and_decide(player: Player, world: World) -> None:
    """T7: one in doubt: ask the partner, decide from the answer."""
    world.partners("/control", {"undecided": "processed"})
    doubtful = next(one for one in _in_doubt(world) if str(one["message_id"]).startswith("silent-"))
    player.key("/")
    player.type("#search", str(doubtful["message_id"]))
    player.enter()
    player.press("ask-partner")
    player.sees("[data-testid=inquiry][data-state=processed]")
    player.press("choice-delivered")
    player.type("dialog[open] [name=reason]", "The partner says: processed")
    player.press("dialog[open] [data-testid=settle-do]")
    expect(player.page.locator("dialog[open]")).to_have_count(0)
    player.sees(".alert-success")
    player.stop()
    if (state := world.api("GET", f"/messages/{doubtful['id']}")["state"]) != "delivered":
        raise Failed(f"it is {state}")
    asked = world.api("GET", f"/messages/{doubtful['id']}/inquiries")["data"]
    if not any(one["answer"] == "processed" for one in asked):
        raise Failed("the partner's answer is not stored")
    entry = world.api("GET", f"/audit-log?object={doubtful['id']}")["data"][0]
    if entry["actor"] != "operator" or "processed" not in str(entry["before"].get("evidence")):
        raise Failed(f"the evidence is not in the audit log: {entry}")


def by_keyboard(player: Player, world: World) -> None:
    """T11: keyboard only: acknowledge the newest incident, have it assigned, open its diagram, read attempt 2."""
    page = player.page
    player.key("g")
    player.key("n")
    page.wait_for_url("**/incidents/**")
    player.key("j")
    _focus_is_seen(player)
    newest = page.evaluate("document.activeElement.textContent").strip()
    player.key("Enter")
    page.wait_for_url("**/incidents/INC-*/")
    player.key("e")
    player.sees(".alert-success")
    player.key("d")
    page.wait_for_url("**/pairs/**")
    for _ in range(120):
        player.key("Tab")
        _focus_is_seen(player)
        link = page.evaluate("document.activeElement.closest('a') ? document.activeElement.textContent : ''")
        if re.search(r"(try|attempt) 2", str(link), re.IGNORECASE):
            break
    else:
        raise Failed("attempt 2 is not reached by Tab")
    player.key("Enter")
    page.wait_for_url("**/transmissions/**")
    player.stop()
    if "Attempt 2" not in player.read("main h1"):
        raise Failed(f"this is {player.read('h1')}")
    page.evaluate(AXE.read_text())  # as a script of the page, its policy would not let it in
    if found := page.evaluate("rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})", RULES)[
        "violations"
    ]:
        raise Failed(f"axe: {found[0]['id']}")
    incident = world.api("GET", f"/incidents/{newest}")
    if incident["state"] != "acknowledged" or incident["owner"] != "operator":
        raise Failed(f"{newest} is {incident['state']}, owner {incident['owner']!r}")
    if player.pointer:
        raise Failed("the pointer was used")


def _focus_is_seen(player: Player) -> None:
    """What has the focus is on the screen, with a mark around it. Raises Failed."""
    seen = player.page.evaluate(
        """() => { const one = document.activeElement, box = one.getBoundingClientRect(), style = getComputedStyle(one);
        const marked = style.outlineStyle !== "none" || style.boxShadow !== "none";
        return one === document.body || (marked && box.bottom > 0 && box.top < innerHeight); }"""
    )
    if not seen:
        raise Failed(f"the focus is not visible: {player.page.evaluate('document.activeElement.outerHTML')[:150]}")
