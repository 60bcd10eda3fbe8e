"""How soon people see something: the first contentful paint of every kind of page in Chromium, and its script.

Every kind of page is one address of the console for each view to which links lead, from the dashboard as an
administrator and from the portal as a partner. `cold`: in a browser that has nothing of the hub but its session;
`warm`: the second time in the same browser. The paint's time begins with the navigation, so that the server's is in it.
"""

from __future__ import annotations

import itertools
import os
import statistics
from dataclasses import dataclass
from urllib.parse import urlsplit

import django
from django.urls import Resolver404, resolve
from playwright.sync_api import Browser, Error, Page, StorageState, sync_playwright

from tests.browser.chromium import ARGUMENTS, CHROMIUM
from tests.scorecard.player import VIEWPORT, logged_in

PAINT_MS, SCRIPT_KB = 1000, 150
VISITS = 3
# Who begins where.
READERS = {"admin": "/", "pia": "/portal/"}
_PAINTED = """() => new Promise(done => new PerformanceObserver(list => {
    for (const entry of list.getEntriesByName('first-contentful-paint')) done(entry.startTime);
}).observe({type: 'paint', buffered: true}))"""
# What the scripts are unpacked: more than what is transferred.
_SCRIPT = """() => performance.getEntriesByType('resource').filter(entry => entry.initiatorType === 'script')
    .reduce((sum, entry) => sum + entry.decodedBodySize, 0)"""
_LINKS = (
    "() => [...document.querySelectorAll('a[href]')].map(link => new URL(link.getAttribute('href'), location).href)"
)


@dataclass(frozen=True, slots=True)
class Paint:
    """One kind of page: milliseconds until it is painted, the median of `VISITS`, and bytes of script."""

    name: str
    path: str
    cold: float
    warm: float
    script: int

    @property
    def kept(self) -> bool:
        return max(self.cold, self.warm) < PAINT_MS and self.script <= SCRIPT_KB * 1000


def paints(base: str, password: str) -> list[Paint]:
    """Those of every kind of page of the hub at `base`; none where there is no Chromium."""
    if not CHROMIUM:
        return []
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmhub.settings")
    django.setup()
    found: list[Paint] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for who, start in READERS.items():
            with logged_in(browser, base, who, password) as (context, page):
                kinds = _walked(page, base, start)
                session = context.storage_state()
            found += [_painted(browser, base, session, name, path) for name, path in sorted(kinds.items())]
        browser.close()
    return found


def _walked(page: Page, base: str, start: str) -> dict[str, str]:
    """View -> address of a page of it: all to which links lead, and the links of those."""
    kinds, waiting = dict[str, str](), [start]
    while waiting:
        path = waiting.pop(0)
        name = _kind(path)
        if not name or name in kinds:
            continue
        try:
            answer = page.goto(path)
        except Error:
            continue  # a file to download
        if answer is None or answer.status != 200 or _kind(urlsplit(page.url).path) != name:
            continue
        kinds[name] = path
        waiting += [link.removeprefix(base) for link in page.evaluate(_LINKS) if link.startswith(base + "/")]
    return kinds


def _kind(path: str) -> str:
    """The name of the console's view at an address; "" for what is none of its pages."""
    try:
        found = resolve(urlsplit(path).path)
    except Resolver404:
        return ""
    return (found.url_name or "") if found.namespace == "console" else ""


def _painted(browser: Browser, base: str, session: StorageState, name: str, path: str) -> Paint:
    cold, warm, script = list[float](), list[float](), 0
    for _ in range(VISITS):
        context = browser.new_context(base_url=base, viewport=VIEWPORT, storage_state=session)
        page = context.new_page()
        for times in (cold, warm):
            page.goto(path)
            times.append(page.evaluate(_PAINTED))
            script = max(script, page.evaluate(_SCRIPT))
        context.close()
    return Paint(name, path, statistics.median(cold), statistics.median(warm), script)


def table(found: list[Paint]) -> str:
    """Markdown, the slowest first."""
    head = [f"| first paint (budget {PAINT_MS} ms) | cold ms | warm ms | script kB |", "| --- | ---: | ---: | ---: |"]
    rows = [
        f"| {one.name} | {one.cold:.0f} | {one.warm:.0f} | {one.script / 1000:.0f} |"
        for one in sorted(found, key=lambda one: -one.cold)
    ]
    return "\n".join(itertools.chain(head, rows))
