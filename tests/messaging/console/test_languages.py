"""No text of a page is left untranslated: each is looked up in a catalog that marks what it is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urljoin

import pytest
from django.apps import apps
from django.db import models, transaction
from django.urls import reverse
from django.utils.translation import trans_real
from lxml import html

from messaging.models import Preference
from tests import sizes
from tests.messaging.console.pages import DOWNLOADS, PAGES
from tests.messaging.console.scenes import World, browser

pytestmark = pytest.mark.django_db

# Names of things, the same in every language: of standards, protocols, products, units and codes.
_NAMES = """
RM Hub XML JSON EDIFACT HTTP HTTPS SMTP IMAP POP SFTP FTPS FTP TLS SSL SHA PEM CSV API URL URI UTC SQL XSD DTD DNS TCP
TPA SLA ebXML ebMS MessageId Message-ID Spark Slack Mattermost Rocket Chat Teams Microsoft PagerDuty Opsgenie Webhook
OpenID TOTP Deutsch English Français curl Bearer KiB MiB GiB Ctrl Esc Enter UsernameToken PKCS Parquet PostgreSQL
Valkey WS-AtomicTransaction WS-Addressing SOAP MIME GET POST PUT Europe Berlin bundle
"""
NAMES = frozenset(_NAMES.split())
_WORD = re.compile(r"(?<![\w@./:<>{}#_=&?-])[A-Za-z][a-z]{2,}(?:-[a-z]+)*(?![\w@/:<>{}=_-]|\.\w)")
_PIECES = re.compile(r"[“”()·—…]|: ")  # what is put together of several data
_APART = ("script", "style", "code", "pre", "kbd", "samp", "textarea", "template", "time", "abbr")
_SPOKEN = ("title", "aria-label", "placeholder", "alt", "data-label")


class Marking(trans_real.DjangoTranslation):
    """A catalog that has everything, between brackets."""

    def gettext(self, message: str) -> str:
        return f"⟦{message.rpartition(trans_real.CONTEXT_SEPARATOR)[2]}⟧" if message else ""

    def ngettext(self, singular: str, plural: str, number: int) -> str:
        return self.gettext(singular if number == 1 else plural)


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """German says all in brackets."""
    monkeypatch.setitem(trans_real._translations, "de", Marking("de"))  # type: ignore[attr-defined]


def outside(text: str, depth: int = 0) -> tuple[str, int]:
    """What no catalog was asked for, and how many brackets are open after it: `depth` were before."""
    kept = []
    for sign in text:
        depth = max(0, depth + {"⟦": 1, "⟧": -1}.get(sign, 0))
        kept.append(sign if depth == 0 and sign != "⟧" else "·")
    return " ".join(re.sub("·+", "·", "".join(kept)).split()), depth


def stored() -> set[str]:
    """Every text in the database: what people and partners have written."""
    found: set[str] = set()

    def take(value: Any) -> None:
        if isinstance(value, str):
            found.add(" ".join(value.split()))
        elif isinstance(value, dict):
            for key, one in value.items():
                take(key)
                take(one)
        elif isinstance(value, list | tuple):
            for one in value:
                take(one)

    for model in apps.get_models():
        names = [
            one.attname
            for one in model._meta.concrete_fields
            if not isinstance(one, models.BinaryField | models.BooleanField | models.IntegerField)
        ]
        for row in model._base_manager.values_list(*names):
            for value in row:
                if not isinstance(value, datetime):
                    take(value)
    return found


def left(page: html.HtmlElement, data: set[str]) -> list[str]:
    """The texts of a page with words that no catalog was asked for and nobody has stored.

    A translated text may have elements within it, so that its brackets are in different ones.
    """
    # The documentation is English, and names the page that shows it.
    data = data | {" ".join(text.split()) for text in page.xpath("//h1//*[@lang]/text()")}
    long = "\n".join(text for text in data if len(text) > 25)
    found: list[str] = []
    depth = 0

    def plain(rest: str) -> bool:
        return any(not known(part) and any(map(untold, _PIECES.split(part))) for part in rest.split("·"))

    def known(text: str) -> bool:
        text = text.strip()
        return text in data or text.strip(" .:") in data or (len(text) > 12 and text in long)

    def untold(piece: str) -> bool:
        words = [word for word in _WORD.findall(piece) if word not in NAMES]
        return not known(piece) and any(word not in data for word in words)

    def take(tag: str, text: str | None, apart: bool) -> None:
        nonlocal depth
        rest, depth = outside(text or "", depth)
        if not apart and plain(rest):
            found.append(f"{tag}: {' '.join((text or '').split())}")

    def walk(element: html.HtmlElement, apart: bool) -> None:
        if not isinstance(element.tag, str):
            return
        css = element.get("class", "").split()
        # The page has a language, too.
        foreign = element.get("lang") and element.tag != "html"
        kept_apart = element.tag in _APART or element.get("translate") == "no" or foreign or "mono" in css
        inside = apart or bool(kept_apart)
        if not apart:
            for name in _SPOKEN:
                rest, _ = outside(element.get(name, ""))
                if plain(rest):
                    found.append(f"{element.tag} {name}: {element.get(name)}")
        take(element.tag, element.text, inside)
        for child in element:
            walk(child, inside)
            take(element.tag, child.tail, inside)

    walk(page, False)
    return found


def test_no_text_of_a_page_is_left_untranslated(scene: World, marked: None) -> None:
    client = browser()
    user = client.session["_auth_user_id"]
    Preference.objects.update_or_create(user_id=user, defaults={"language": "de"})
    urls = {page.name: page.url(scene) for page in PAGES if page.get and page.name not in DOWNLOADS}
    data, found = stored(), []
    for name, url in urls.items():
        answer = client.get(url)
        if "html" in answer["Content-Type"] and answer.content:
            found += [f"{name}: {text}" for text in dict.fromkeys(left(html.fromstring(answer.content), data))]
    assert found == [], f"{len(found)} texts:\n" + "\n".join(found)


# What the core and `rmhub.ids`, which know no languages, say of a value: still to be said by their callers.
# Fields that are posted as they are: they say which form it is, and from where.
_KEPT = ("csrfmiddlewaretoken", "next", "once", "version")
_APART_FORMS = ("logout", "own-sessions-end", "theme", "zone")


@dataclass
class _Form:
    """What a form that is posted holds by field, and the fields into which people type."""

    fields: dict[str, list[str]] = field(default_factory=dict)
    typed: set[str] = field(default_factory=set)

    def wrong(self) -> Iterator[dict[str, Any]]:
        """Ways to fill it that most refuse. What is wrong has no words: pages say it again."""
        kept = {name: values for name, values in self.fields.items() if name in _KEPT}
        yield {**dict.fromkeys(self.fields, ""), **kept}
        yield {**dict.fromkeys(self.fields, "?!"), **kept}
        good = {**self.fields, "reason": ["?!?!?!"]}
        yield {**good, "version": ["0"]}
        # What is checked only where all the rest is right.
        for name in sorted(self.typed) if sizes.ALL else ():
            yield {**good, name: "?!"}
            yield {**good, name: "-1"}


def _forms(page: html.HtmlElement, url: str) -> Iterator[tuple[str, _Form]]:
    """Address and content of each form that a page posts."""
    for form in page.xpath("//form[@method='post']"):
        found = _Form()
        for name, value in form.form_values():
            found.fields.setdefault(name, []).append(value or "")
        for name in form.xpath(".//input[@type!='hidden']/@name | .//select/@name | .//textarea/@name"):
            found.fields.setdefault(name, [])
        for button in form.xpath(".//button[@name]"):
            found.fields.setdefault(button.get("name"), [button.get("value", "")])
        choices = "@type='hidden' or @type='checkbox' or @type='radio' or @type='file'"
        found.typed.update(form.xpath(f".//input[not({choices})]/@name | .//textarea/@name"))
        yield urljoin(url, form.get("action") or url), found


@contextmanager
def _undone() -> Iterator[None]:
    """What is written meanwhile is taken back. Blocks that must be the outermost may be inside, as in a test."""
    block = transaction.atomic()
    block._from_testcase = True  # type: ignore[attr-defined]
    with block:
        yield
        transaction.set_rollback(True)


def test_no_text_of_a_refused_form_is_left_untranslated(scene: World, marked: None) -> None:
    client = browser()
    Preference.objects.update_or_create(user_id=client.session["_auth_user_id"], defaults={"language": "de"})
    apart = {reverse(f"console:{name}") for name in _APART_FORMS}
    posted: dict[str, _Form] = {}
    for entry in PAGES:
        url = entry.url(scene)
        if entry.get and entry.name not in DOWNLOADS:
            answer = client.get(url)
            if "html" in answer["Content-Type"] and answer.content:
                posted |= dict(_forms(html.fromstring(answer.content), url))
        if entry.post is not None:
            posted.setdefault(url, _Form({name: [value] for name, value in entry.post.items()}))
    data, found, refused = stored(), [], 0
    for url, form in posted.items():
        if url in apart:
            continue
        for values in form.wrong():
            with _undone():
                answer = client.post(url, values)
                if answer.status_code in (409, 422):
                    refused += 1
                    page = html.fromstring(answer.content)
                    # What the form itself has stored is read only where something is left without it.
                    texts = left(page, data) and left(page, data | stored())
                    found += [f"{url}: {text}" for text in dict.fromkeys(texts)]
    assert refused > 100
    assert found == [], f"{len(found)} texts:\n" + "\n".join(found)


def test_the_browser_chooses_until_the_person_does_and_the_api_stays_english(scene: World) -> None:
    client, german = browser(), {"Accept-Language": "de-CH,fr;q=0.5"}
    assert b'<html lang="de"' in client.get("/pairs/", headers=german).content
    assert b'<html lang="de"' in client.get("/pairs/NOPE/", headers=german).content, "an error page too"
    assert b'<html lang="en-gb"' in client.get("/pairs/").content, "of the request before nothing is left"
    Preference.objects.update_or_create(user_id=client.session["_auth_user_id"], defaults={"language": "fr"})
    assert b'<html lang="fr"' in client.get("/pairs/", headers=german).content
    told = client.get("/api/v1/pairs/NOPE", headers=german).json()
    assert (told["status"], told["detail"]) == (404, "There is no pair NOPE.")
