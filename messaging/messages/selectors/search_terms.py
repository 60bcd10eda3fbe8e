"""The grammar of the search box: terms such as `state:failed` or `size>100k`, and what is left is an id.

A term is a key, a sign and a value, without blanks; a value with blanks stands in quotes: `partner:"Globex Ltd"`. A
word with a colon whose key is unknown is part of the id, for MessageIds have colons too; `Search.doubtful` names those
that may have been meant as a term. Pure functions of texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from functools import cache

from django.utils.translation import gettext as _

from rmhub.language import gettext_lazy

# key -> (the operators that it takes, what it is about)
KEYS: dict[str, tuple[str, str]] = {
    "state": (":", "state:failed,in_doubt"),
    "partner": (":", 'partner:"Globex Ltd"'),
    "dir": (":", gettext_lazy("dir:in or dir:out")),
    "pair": (":", "pair:ACME>GLOBEX"),
    "agreement": (":", "agreement:tpa:acme-globex"),
    "service": (":", "service:urn:orders"),
    "action": (":", "action:NewOrder"),
    "conv": (":", gettext_lazy("conv:c-77, a whole ConversationId")),
    "document": (":", gettext_lazy("document:order-4711, a whole document id")),
    "ref": (":", gettext_lazy("ref:m-1@acme, the MessageId that it answers")),
    "schema": (":", gettext_lazy("schema:misfit, or the name of a schema that documents do not fit")),
    "size": ("<>", "size>100k"),
    "attempts": ("<>", "attempts>1"),
    "error": (":", gettext_lazy("error:ack_timeout, a cause's code")),
    "after": (":", gettext_lazy("after:2026-11-20, after:yesterday-14:00 or after:24h")),
    "before": (":", "before:yesterday-15:00"),
}
ATTRIBUTE = (":", gettext_lazy("invoice:4711, an attribute with its whole value"))


@cache
def _term(names: frozenset[str]) -> re.Pattern[str]:
    keys = "|".join(re.escape(key) for key in sorted({*KEYS, *names}, key=len, reverse=True))
    return re.compile(
        rf'(?P<key>{keys})(?P<sign>:|>=|<=|>|<)(?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s"]*))(?=\s|$)'
        r'|"(?P<exact>[^"]*)"|(?P<word>\S+)',
        re.IGNORECASE,
    )


# Looks like a term and is none. With these in front, ids are written: nobody takes them for terms.
_TERM_LIKE = re.compile(r"(?P<key>[a-z][a-z_-]{0,29})(?::(?!//)|[<>]=?)", re.IGNORECASE | re.ASCII)
_SCHEMES = frozenset({"urn", "uuid", "http", "https", "mid", "cid", "mailto", "oid"})
_SIZE = re.compile(r"([0-9]{1,12})([kmg]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_AGO = re.compile(r"([0-9]{1,4})(m|h|d|w)", re.ASCII)
_SPANS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DAY = re.compile(r"(today|yesterday)(?:[-T ]([0-9]{1,2}):([0-9]{2}))?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a search. `sign`: `:`, `<`, `>`, `<=` or `>=`."""

    key: str
    sign: str
    value: str

    def __str__(self) -> str:
        value = f'"{self.value}"' if not self.value or re.search(r"\s", self.value) else self.value
        return f"{self.key}{self.sign}{value}"


@dataclass(frozen=True, slots=True)
class Search:
    """What a text asks for: terms in their order, the id that is left, and what could not be understood.

    `doubtful`: the words of the id that look like a term whose key there is not.
    """

    terms: tuple[Term, ...] = ()
    text: str = ""
    problems: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()

    def without(self, term: Term) -> str:
        """The search as a text, without one term."""
        return write([one for one in self.terms if one is not term], self.text)

    def other(self, term: Term, value: str) -> str:
        """The search as a text, with another value of one term."""
        return write([replace(one, value=value) if one is term else one for one in self.terms], self.text)


def read(text: str, names: frozenset[str] = frozenset()) -> Search:
    """Takes a text apart. A term with a sign that its key does not take is a problem, and is left out.

    `names`: attributes of messages, which are keys, too.
    """
    terms: list[Term] = []
    words: list[str] = []
    problems: list[str] = []
    doubtful: list[str] = []
    for match in _term(names).finditer(text):
        key = (match["key"] or "").lower()
        if not key:
            words.append(match["exact"] if match["exact"] is not None else match["word"])
            like = _TERM_LIKE.match(match["word"] or "")
            if like and like["key"].lower() not in _SCHEMES:
                doubtful.append(match["word"])
            continue
        value = match["quoted"] if match["quoted"] is not None else match["bare"]
        takes, example = KEYS.get(key, ATTRIBUTE)
        if match["sign"][0] not in takes or not value.strip():
            problems.append(_("“{term}” was left out: write it as {example}.").format(term=match[0], example=example))
        else:
            terms.append(Term(key, match["sign"], value.strip()))
    return Search(tuple(terms), " ".join(words), tuple(problems), tuple(doubtful))


def write(terms: Sequence[Term], text: str = "") -> str:
    """The text that `read` takes apart so."""
    looks_like_term = _term(frozenset()).match(text)
    quoted = f'"{text}"' if text and looks_like_term and looks_like_term["key"] else text
    return " ".join([*(str(term) for term in terms), *([quoted] if quoted else [])])


def exactly(text: str) -> str:
    """An id as it is written so that no part of it is taken for a term."""
    words = text.split()
    odd = len(words) > 1 or any(_TERM_LIKE.match(word) for word in words)
    return f'"{text}"' if odd and '"' not in text else text


def read_size(text: str) -> int:
    """Bytes: `812`, `100k`, `2M`. Raises ValueError."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(_("a size is a number of bytes, such as 812, 100k or 2M"))
    return int(match[1]) * _UNITS[match[2].lower()]


def read_number(text: str) -> int:
    """A whole number. Raises ValueError."""
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise ValueError(_("a whole number, please"))
    return int(text)


def read_time(text: str, zone: tzinfo, now: datetime) -> datetime:
    """A date, a date with time (of `zone` unless it has an offset), `today`, `yesterday-14:00`, `14:00`, `24h` ago.

    Raises ValueError.
    """
    local = now.astimezone(zone)
    if match := _AGO.fullmatch(text.lower().lstrip("-")):
        return now - timedelta(seconds=int(match[1]) * _SPANS[match[2]])
    if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}", text, re.ASCII):
        text = f"today-{text}"
    if match := _DAY.fullmatch(text):
        day = local - timedelta(days=match[1].lower() == "yesterday")
        return day.replace(hour=int(match[2] or 0), minute=int(match[3] or 0), second=0, microsecond=0)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(_("a time such as 2026-11-20, 2026-11-20T14:00, yesterday-14:00 or 24h (ago)")) from None
    return found if found.tzinfo else found.replace(tzinfo=zone)


def above(sign: str, number: int) -> dict[str, int]:
    """Which bound a comparison sets: {"gt": ...} or {"lt": ...}, both without the number itself."""
    if sign.startswith(">"):
        return {"gt": number - 1 if sign == ">=" else number}
    return {"lt": number + 1 if sign == "<=" else number}
