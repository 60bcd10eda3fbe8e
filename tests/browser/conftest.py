"""A real Chromium against a real web server. Without a Chromium on the machine these tests are skipped, and say so.

Debian: `apt-get install --no-install-recommends chromium`. `RMHUB_CHROMIUM` names another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from messaging import dispatch
from rmhub.roles import Role
from tests.browser.chromium import ARGUMENTS, CHROMIUM

expect.set_options(timeout=60_000)  # a busy machine is slow; what is there already costs no time

PASSWORD = "correct horse battery"
Open = Callable[..., Page]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks what is in this folder, and skips it where there is nothing to drive."""
    item.add_marker(pytest.mark.browser)
    if not CHROMIUM:
        item.add_marker(pytest.mark.skip(reason="NO CHROMIUM: browser tests skipped"))


@pytest.fixture(scope="session", autouse=True)
def static_folder() -> None:
    """WhiteNoise warns when it is missing, and nobody has collected static files for a test run."""
    from django.conf import settings

    Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    # Playwright runs an event loop in this thread, and Django would refuse to talk to the database beside one.
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No wake-ups are published, and no log-in of a test before is remembered."""
    monkeypatch.setattr(dispatch, "wake", lambda task: None)
    cache.clear()
    yield


@pytest.fixture
def person(transactional_db: None) -> Callable[..., User]:
    """`person(Role.OPERATOR, "olga")`: somebody who can log in."""

    def made(role: Role = Role.ADMIN, name: str = "ana") -> User:
        user = User.objects.create_user(username=name, password=PASSWORD)
        user.groups.add(Group.objects.get_or_create(name=role)[0])
        return user

    return made


@pytest.fixture
def complaints() -> list[str]:
    """What browsers said against our pages. Must be empty at the end; a test that provokes some clears it."""
    return []


@pytest.fixture
def open_console(
    chromium: Browser, live_server: object, person: Callable[..., User], complaints: list[str]
) -> Iterator[Open]:
    """`open_console("/pairs/", role=..., javascript=False, color_scheme="dark")`: logged in, through the real form.

    `page.clock.run_for(3000)` makes three seconds of polling pass at once. At the end: no script failed, the CSP had
    nothing to forbid, and nothing was asked of another site.
    """
    base = str(live_server)
    contexts: list[BrowserContext] = []

    def opened(
        path: str = "/", *, role: Role = Role.ADMIN, name: str = "ana", javascript: bool = True, **options: object
    ) -> Page:
        if not User.objects.filter(username=name).exists():
            person(role, name)
        context = chromium.new_context(
            base_url=base,
            java_script_enabled=javascript,
            viewport=options.pop("viewport", {"width": 1366, "height": 768}),  # type: ignore[arg-type]
            reduced_motion="reduce",
            **options,  # type: ignore[arg-type]
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        if javascript:
            page.clock.install()
        page.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: _at_home(request, base, complaints))
        page.goto("/login/")
        page.fill("#username", name)
        page.fill("#password", PASSWORD)
        page.click("[data-testid=log-in]")
        page.wait_for_url("**/")
        if path != "/":
            page.goto(path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not [text for text in complaints if "status of 4" not in text], complaints


def _at_home(request: Request, base: str, complaints: list[str]) -> None:
    if not request.url.startswith((base, "data:", "blob:")):
        complaints.append(f"asked another site: {request.url}")
