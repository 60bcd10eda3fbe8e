"""An operator at the console: a real Chromium, whose presses are counted and whose time is taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Locator, Page

VIEWPORT = {"width": 1366, "height": 768}


class Failed(Exception):
    """The task did not come to its end state; the text says what was missing."""


@dataclass(slots=True)
class Player:
    """One person at one browser. A press is a pointer press or Enter; typing is time only."""

    page: Page
    presses: int = 0
    pointer: int = 0
    began: float = field(default_factory=time.monotonic)
    _stopped: float | None = None

    def begin(self) -> None:
        """The world is as the task needs it: the person's time begins."""
        self.began = time.monotonic()

    def stop(self) -> None:
        """The person is done; what follows is only looked up from outside."""
        self._stopped = self._stopped or time.monotonic()

    @property
    def seconds(self) -> float:
        """The person's time so far."""
        return (self._stopped or time.monotonic()) - self.began

    def find(self, what: str) -> Locator:
        """By test id, or by a selector (one with a sign that no test id has)."""
        if all(sign.isalnum() or sign in "-_" for sign in what):
            return self.page.get_by_test_id(what).first
        return self.page.locator(what).first

    def press(self, what: str) -> None:
        """A click on something that is seen."""
        self.presses += 1
        self.pointer += 1
        self.find(what).click()

    def reach(self, what: str) -> None:
        """A click on an action of a page, which may be in the menu of further ones."""
        if not self.find(what).is_visible():
            self.press("more-open")
        self.press(what)

    def go(self, section: str) -> None:
        """A click on an entry of the navigation."""
        self.press(f"a.nav-entry:visible:has-text('{section}')")

    def enter(self) -> None:
        """Enter, where the focus is."""
        self.presses += 1
        self.page.keyboard.press("Enter")

    def key(self, name: str) -> None:
        """Any other key: typing."""
        self.page.keyboard.press(name)

    def type(self, what: str, text: str) -> None:
        """Into a field, which has the focus already or gets it by Tab: no press is counted for it."""
        self.find(what).fill(text)

    def choose(self, what: str, value: str) -> None:
        """An option of a select, by keyboard."""
        self.find(what).select_option(value)

    def tick(self, what: str) -> None:
        """A press on a box or radio button."""
        self.presses += 1
        self.pointer += 1
        self.find(what).check()

    def give(self, what: str, path: Path) -> None:
        """A file: one press opens the chooser, and its name is typed there."""
        self.presses += 1
        self.pointer += 1
        self.find(what).set_input_files(path)

    def read(self, what: str) -> str:
        """Text on the page."""
        return self.find(what).inner_text().strip()

    def sees(self, what: str) -> Locator:
        """Waits until it is there. Raises Failed."""
        found = self.find(what)
        try:
            found.wait_for(state="visible")
        except Exception as error:
            raise Failed(f"{what} is not on {self.page.url}") from error
        return found


def until(holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Waits for a condition of the world outside. Raises Failed."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise Failed(f"it did not come to: {what}")
        time.sleep(0.1)


@contextmanager
def logged_in(
    browser: Browser, base: str, name: str, password: str, *, javascript: bool = True
) -> Iterator[tuple[BrowserContext, Page]]:
    """A browser of its own in which somebody has logged in and stands on the dashboard."""
    context = browser.new_context(
        base_url=base, viewport=VIEWPORT, reduced_motion="reduce", java_script_enabled=javascript, accept_downloads=True
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.set_default_navigation_timeout(120_000)  # a busy machine makes a task late, which its seconds tell
    page.goto("/login/")
    page.fill("#username", name)
    page.fill("#password", password)
    page.press("#password", "Enter")
    page.wait_for_url(lambda url: "/login/" not in url)
    try:
        yield context, page
    finally:
        context.close()
