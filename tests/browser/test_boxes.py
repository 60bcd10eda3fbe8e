"""The boxes of every page, wide and narrow: nothing beside the window, nothing cut without a sign, nothing on top of
anything else, whatever the partners are called.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.contrib.auth.models import User
from playwright.sync_api import Page

from messaging.models import Access, Pair, Trigger
from partners.models import Agreement, PartnerGroup, Party
from rmhub import clock
from rmhub.roles import Role
from tests import sizes
from tests.browser.conftest import Open
from tests.messaging.console.pages import DOWNLOADS, PAGES, PORTAL_PAGES
from tests.messaging.console.scenes import World, world
from tests.partners.factories import make_credential

WIDTHS = (1440, 1024, 400)
FIRST_ROW = 300  # px from the top of a window of 1440 x 900
LONG = "Großhändlerverband für Präzisionsmeßgeräte und Zubehör KG "  # with the number behind it, 60 characters
# Lists, whose boxes are always measured.
LISTS = frozenset(
    [
        "pairs",
        "messages",
        "incidents",
        "deliveries",
        "triggers",
        "transactions",
        "partners",
        "agreements",
        "certificates",
        "audit",
        "users",
        "tokens",
        "jobs",
        "pollers",
        "routes",
        "rejections",
        "webhooks",
        "portal-messages",
    ]
)

# Pages with rows that are no lists: of one object, or of several things, or with a chart above the rows.
NO_LISTS = frozenset(
    [
        *("dashboard", "account", "login-code", "help-page", "message-edit", "live", "report"),
        *("pair", "message", "incident", "trigger", "delivery", "transaction", "partner", "endpoint", "agreement"),
        *("agreement-version", "route", "schema", "webhook", "job", "partner-log", "pipeline-run", "onboarding-step"),
        *("doubt", "doubt-outbound", "doubt-answer", "notification-rule", "bench-report", "portal-message"),
    ]
)
# Those that have rows in the test's world, small ones too: a list that loses its rows is not measured by mistake.
WITH_ROWS = (LISTS - {"portal-messages"}) | {
    *("attributes", "schemas", "masks", "notifications", "notification-rules", "groups", "holds", "in-doubt"),
    *("archive", "circuits", "saved-views", "pipeline-runs", "partner-logs", "offered-certificates"),
}

# What is wrong with the boxes of a page, as sentences.
BOXES = """() => {
  const found = [], root = document.documentElement;
  const name = (one) => one.tagName.toLowerCase() + (one.id ? "#" + one.id : "." + one.className) + " " +
    JSON.stringify((one.textContent || one.name || "").trim().replace(/\\s+/g, " ").slice(0, 40));
  if (root.scrollWidth > root.clientWidth) found.push("wider than the window: " + root.scrollWidth);
  const unseen = ".visually-hidden, .tool-name";
  const hidden = (one) => !one.checkVisibility({ visibilityProperty: true }) || one.closest(unseen);
  for (const one of document.body.querySelectorAll("*")) {
    if (one.clientWidth <= 1 || one.scrollWidth <= one.clientWidth + 1) continue;
    if (one.matches("svg, svg *, input, select")) continue;
    const look = getComputedStyle(one);
    if (!["hidden", "clip"].includes(look.overflowX) || hidden(one)) continue;
    const told = one.closest("[title]") || one.querySelector("[title]");
    if (look.textOverflow !== "ellipsis" || !told) found.push("cut: " + name(one));
  }
  const limits = new Map(); // what of an element's children can be seen at all
  const limit = (one) => {
    if (!one || one === document.body) return { left: 0, right: 1e6, top: 0, bottom: 1e6 };
    if (!limits.has(one)) {
      const outer = limit(one.parentElement), look = getComputedStyle(one), box = one.getBoundingClientRect();
      limits.set(one, look.overflowX === "visible" && look.overflowY === "visible" ? outer : within(box, outer));
    }
    return limits.get(one);
  };
  const within = (box, outer) => ({
    left: Math.max(box.left, outer.left), right: Math.min(box.right, outer.right),
    top: Math.max(box.top, outer.top), bottom: Math.min(box.bottom, outer.bottom),
  });
  const pressed = "a[href], button, input:not([type=hidden]), select, textarea, summary";
  const boxes = [...document.querySelectorAll(":is(main, header) :is(" + pressed + ")")]
    .filter((one) => !hidden(one))
    .flatMap((one) => [...one.getClientRects()].map((box) => ({ one, ...within(box, limit(one.parentElement)) })))
    .filter((box) => box.right - box.left > 2 && box.bottom - box.top > 2)
    .sort((a, b) => a.top - b.top);
  for (let i = 0; i < boxes.length; i++) {
    for (let j = i + 1; j < boxes.length && boxes[j].top < boxes[i].bottom - 2; j++) {
      const [a, b] = [boxes[i], boxes[j]];
      if (a.one.contains(b.one) || b.one.contains(a.one)) continue;
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - b.top > 2)
        found.push("on top of each other: " + name(a.one) + " and " + name(b.one));
    }
  }
  return found.slice(0, 4);
}"""
ROW = """() => {
  const row = document.querySelector("main table > tbody > tr");
  return row && row.getBoundingClientRect().top;
}"""


def _renamed() -> None:
    """Names as long as some are, on what pages show by name."""
    for ordinal, party in enumerate(Party.objects.order_by("pk")):
        party.name = f"{LONG}{ordinal:02}"
        party.save(update_fields=["name"])
    for ordinal, pair in enumerate(Pair.objects.order_by("pk")):
        Pair.objects.filter(pk=pair.pk).update(
            code=f"GROSSHAENDLERVERBAND-FUER-PRAEZISION>NORDISCHE-HANDELSHAEUSER-{ordinal}"
        )
    for ordinal, agreement in enumerate(Agreement.objects.order_by("pk")):
        Agreement.objects.filter(pk=agreement.pk).update(tpa_id=f"urn:tpa:{'grosshaendler' * 4}-{ordinal}")
    for ordinal, trigger in enumerate(Trigger.objects.order_by("pk")):
        Trigger.objects.filter(pk=trigger.pk).update(
            name=f"Übergabe an das Warenwirtschaftssystem der Außenstelle Süd {ordinal}"[:60]
        )


def _wrong(page: Page, url: str) -> list[str]:
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    page.emulate_media(color_scheme="light")
    page.goto(url)
    found = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            found += [f"{width} {scheme}: {text}" for text in page.evaluate(BOXES)]
    return found


def test_boxes_of_pages_fit_whatever_partners_are_called(open_console: Open, person: Callable[..., User]) -> None:
    with clock.frozen(clock.now()) as time:
        scene: World = world(time)
    _renamed()
    scene.pair.refresh_from_db()
    page, german = open_console("/"), open_console("/", name="otto", locale="de")
    shown = [entry for entry in PAGES if entry.get and entry.name not in (*DOWNLOADS, "login", "logout")]
    chosen = shown if sizes.ALL else [one for at, one in enumerate(shown) if one.name in LISTS or at % 9 == 0]
    Access.objects.create(user=person(Role.PARTNER, "pia"), limited=True, partner=scene.partner)
    portal = open_console("/portal/", role=Role.PARTNER, name="pia")
    problems = {}
    # German words are the longest: every second page, each in both languages with RMHUB_TESTS=all.
    both = [(shows, one) for one in chosen for shows in (page, german)] if sizes.ALL else []
    each = both or [((page, german)[at % 2], one) for at, one in enumerate(chosen)]
    for shows, entry in each + [(portal, one) for one in PORTAL_PAGES if one.get]:
        if found := _wrong(shows, entry.url(scene)):
            problems[entry.name] = found
            print(entry.name, *found, sep="\n    ")  # a failed assertion shows only the first of many
    assert not problems


def test_every_list_begins_with_its_rows(open_console: Open, person: Callable[..., User]) -> None:
    """Filters and introduction leave room for rows: German words are the longest."""
    with clock.frozen(clock.now()) as time:
        scene: World = world(time)
        PartnerGroup.objects.create(name="North")
        make_credential(scene.partner, kind="basic", valid_until=clock.now() + timedelta(days=20))
    _renamed()
    size = {"width": WIDTHS[0], "height": 900}
    page = open_console("/", name="otto", locale="de", viewport=size)
    Access.objects.create(user=person(Role.PARTNER, "pia"), limited=True, partner=scene.partner)
    portal = open_console("/portal/", role=Role.PARTNER, name="pia", locale="de", viewport=size)
    lists = [(page, one) for one in PAGES if one.get and one.name not in (*DOWNLOADS, *NO_LISTS, "login", "logout")]
    lists += [(portal, one) for one in PORTAL_PAGES if one.get and one.name not in NO_LISTS]
    tops = {}
    for shows, entry in lists:
        shows.goto(entry.url(scene))
        row = shows.evaluate(ROW)
        if row is not None:
            tops[entry.name] = max(row, tops.get(entry.name, 0))
    assert not {name: top for name, top in tops.items() if top >= FIRST_ROW}
    assert tops.keys() >= WITH_ROWS, WITH_ROWS - tops.keys()
