"""Run-books: Markdown that people write, as HTML that cannot do harm: no raw HTML, no images, plain links."""

from __future__ import annotations

from functools import lru_cache

from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

# Below the page's own headings, whatever level was written.
_LEVEL = "h3"


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "linkify": False})
    made.enable("table")
    # Pictures would be fetched from wherever the text says.
    made.disable("image")
    return made


def rendered(text: str) -> SafeString:
    """The HTML of a run-book. Links go to http, https and mailto addresses only, and say nothing of this page."""
    parser = _parser()
    tokens = parser.parse(text)
    _tame(tokens)
    # Everything that came from the text was escaped by the renderer; raw HTML is switched off.
    text = str(parser.renderer.render(tokens, parser.options, {}))
    return mark_safe(text)  # noqa: S308


def _tame(tokens: list[Token]) -> None:
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = _LEVEL
        for key in [key for key in token.attrs if key == "style"]:
            del token.attrs[key]  # of table cells; the page's policy takes no style attributes
        if token.type == "link_open":
            href = str(token.attrs.get("href", ""))
            if not href.lower().startswith(("http://", "https://", "mailto:", "/")) or href.startswith("//"):
                token.attrs["href"] = "#"
            token.attrs["rel"] = "noopener noreferrer"
        _tame(token.children or [])
