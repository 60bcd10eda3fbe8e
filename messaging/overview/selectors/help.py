"""The documentation, as pages of the console: the files of `docs/`, rendered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from django.conf import settings
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from messaging.exceptions import NotFound

_NAME = re.compile(r"[a-z][a-z-]{0,40}", re.ASCII)
# What people who operate and connect a hub look for first.
_FIRST = ("console", "onboarding", "users", "notifications", "triggers", "api", "tutorial")


@dataclass(frozen=True, slots=True)
class HelpPage:
    """One document. `contents`: (anchor, heading) of its sections."""

    name: str
    title: str
    lead: str
    contents: tuple[tuple[str, str], ...]
    html: SafeString


def help_pages() -> list[HelpPage]:
    """All documents: those that most people look for in front, the others by title. Empty: none is installed."""
    names = [path.stem for path in sorted(_folder().glob("*.md"))]
    first = [name for name in _FIRST if name in names]
    others = sorted((help_page(name) for name in names if name not in first), key=lambda one: one.title.casefold())
    return [*map(help_page, first), *others]


def help_page(name: str) -> HelpPage:
    """One document. Raises NotFound."""
    path = _folder() / f"{name}.md"
    if not _NAME.fullmatch(name) or not path.is_file():
        raise NotFound(f"There is no help page {name[:40]}.")
    return _rendered(path, path.stat().st_mtime_ns)


def _folder() -> Path:
    return Path(settings.BASE_DIR) / "docs"


@lru_cache(maxsize=100)
def _rendered(path: Path, changed: int) -> HelpPage:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False})
    parser.enable("table")
    tokens = parser.parse(path.read_text(encoding="utf-8"))
    title, lead = path.stem, ""
    if tokens and tokens[0].tag == "h1":
        title, tokens = tokens[1].content, tokens[3:]
    if tokens and tokens[0].type == "paragraph_open":
        lead = _plain(tokens[1])
    contents = tuple(_anchored(tokens))
    for token in _all(tokens):
        _tame(token)
    tokens = list(_captioned(tokens, title))
    # Everything that came from the text was escaped by the renderer; raw HTML is switched off.
    html = mark_safe(str(parser.renderer.render(tokens, parser.options, {})))  # noqa: S308
    return HelpPage(path.stem, title, lead, contents, html)


def _all(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _all(token.children or ())


def _plain(token: Token) -> str:
    texts = ("text", "code_inline", "softbreak")
    return "".join(child.content or " " for child in token.children or () if child.type in texts)


def _anchored(tokens: Sequence[Token]) -> Iterator[tuple[str, str]]:
    """Gives each heading the anchor that links to it have; yields those of the second level."""
    seen: Counter[str] = Counter()
    for token, content in pairwise(tokens):
        if token.type != "heading_open":
            continue
        text = _plain(content)
        slug = re.sub(r"[^\w\- ]", "", text.casefold()).strip().replace(" ", "-")
        anchor = f"{slug}-{seen[slug]}" if seen[slug] else slug
        seen[slug] += 1
        token.attrs["id"] = anchor
        if token.tag == "h2":
            yield anchor, text


def _captioned(tokens: Sequence[Token], heading: str) -> Iterator[Token]:
    """Each table with the heading that it stands below, for those who do not see it there."""
    for at, token in enumerate(tokens):
        yield token
        if token.type == "heading_open":
            heading = _plain(tokens[at + 1])
        if token.type == "table_open":
            caption = format_html('<caption class="visually-hidden">{}</caption>', heading)
            yield Token("html_block", "", 0, content=str(caption))


def _tame(token: Token) -> None:
    if token.type == "image":  # pictures are not among what the hub serves
        token.type, token.tag = "text", ""
    if token.type == "th_open":
        token.attrs["scope"] = "col"
    token.attrs.pop("style", None)  # of table cells; the page's policy takes no style attributes
    if token.type == "link_open":
        href = str(token.attrs.get("href", ""))
        token.attrs["href"] = _href(href)
        if href.startswith(("http://", "https://")):
            token.attrs["rel"] = "noopener noreferrer"


def _href(href: str) -> str:
    """Where a link of a document leads here. What the hub has no page for leads to the list of all."""
    if href.startswith(("#", "http://", "https://", "mailto:", "/")):
        return href
    name, _, anchor = href.partition("#")
    if name.endswith(".md") and "/" not in name:
        return f"/help/{name.removesuffix('.md')}/{f'#{anchor}' if anchor else ''}"
    return "/api/v1/docs" if name == "openapi.yaml" else "/help/"
