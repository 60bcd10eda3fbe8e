"""The documentation in the console: every page, and no link on it that leads nowhere."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.urls import resolve
from lxml import html

from messaging.console.context import _HELP, NAVIGATION, help_of
from messaging.exceptions import NotFound
from messaging.overview.selectors.help import help_page, help_pages
from rmhub.roles import Role
from tests import ROOT
from tests.messaging.console.scenes import browser

DOCUMENTS = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))


def anchors(name: str) -> set[str]:
    return set(html.fromstring(f"<div>{help_page(name).html}</div>").xpath("//@id"))


def test_all_documents_are_there_with_titles() -> None:
    pages = help_pages()
    assert sorted(one.name for one in pages) == DOCUMENTS
    assert pages[0].name == "console"
    assert all(one.title != one.name for one in pages)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_link_of_a_document_leads_nowhere(name: str) -> None:
    page = help_page(name)
    own = anchors(name)
    assert {anchor for anchor, _ in page.contents} <= own
    links = html.fromstring(f"<div>{page.html}</div>").xpath("//a/@href")
    for link in links:
        path, _, anchor = str(link).partition("#")
        if path.startswith("/"):
            found = resolve(path)
            known = anchors(found.kwargs["name"]) if anchor and found.url_name == "help-page" else {anchor}
        else:
            known = own if not path else {anchor}
        assert not anchor or anchor in known, link


def test_every_section_is_explained() -> None:
    sections = {item.section for _, items in NAVIGATION for item in items}
    for section in sections | _HELP.keys():
        path, _, anchor = help_of(section).partition("#")
        name = resolve(path).kwargs["name"]
        assert not anchor or anchor in anchors(name), section


@pytest.mark.parametrize("name", ["none", "../README", "console.md", "x" * 80])
def test_there_is_nothing_but_documents(name: str) -> None:
    with pytest.raises(NotFound):
        help_page(name)


def test_what_a_document_writes_is_text() -> None:
    for one in help_pages():
        tree = html.fromstring(f"<div>{one.html}</div>")
        assert not tree.xpath("//script|//img|//iframe|//*[@style]|//@*[starts-with(name(), 'on')]")
        assert not re.search(r"javascript:", one.html)


@pytest.mark.django_db
def test_pages_lead_to_what_explains_them(settings: Any) -> None:
    page = browser(Role.VIEWER)
    header = html.fromstring(page.get("/messages/").content)
    [link] = header.xpath("//a[@data-testid='help-here']/@href")
    assert link == "/help/console/#messages"
    shown = html.fromstring(page.get("/help/console/").content)
    assert shown.xpath("//h1")[0].text_content().strip() == help_page("console").title
    assert shown.xpath("//article//h2[@id='messages']")
    listed = html.fromstring(page.get("/help/").content)
    assert "/help/triggers/" in listed.xpath("//ul[@data-testid='help-pages']//a/@href")
    assert page.get("/help/none/").status_code == 404
    settings.BASE_DIR = ROOT / "tests"
    assert "is not installed" in page.get("/help/").content.decode()
