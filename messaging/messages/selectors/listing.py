"""The parameters of the console's list of messages, as one search; jobs about "all that match" read the same ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, tzinfo

from messaging.messages.selectors import searching
from messaging.messages.selectors.messages import MessageFilters
from messaging.messages.selectors.search_terms import Term
from messaging.messages.selectors.searching import Found

# Parameters of the list -> keys of the box's grammar. The API's names for the same things are taken as well.
NAMES: Mapping[str, str] = {
    "state": "state",
    "direction": "dir",
    "pair": "pair",
    "partner": "partner",
    "agreement": "agreement",
    "service": "service",
    "action": "action",
    "conversation": "conv",
    "document": "document",
    "ref": "ref",
    "error": "error",
    "since": "after",
    "created_gte": "after",
    "before": "before",
    "created_lt": "before",
}
PARAMETERS = ("q", *NAMES, "window")
MOST = 512


def read(given: Mapping[str, str], *, now: datetime, zone: tzinfo) -> Found:
    """What the list shows for these parameters; names that are none of `PARAMETERS` are left alone.

    Without a word about time the newest 24 hours are meant, unless an index leads to just what is searched. What
    cannot be read is left out and said in `problems`.
    """
    filters, problems, nothing = MessageFilters(), [], False
    for name, key in NAMES.items():
        text = given.get(name, "").strip()[:MOST].replace("\x00", "")
        if not text:
            continue
        try:
            filters = replace(filters, **searching.values(Term(key, ":", text), now, zone))
        except searching.Wrong as wrong:
            nothing = nothing or wrong.missing
            problems.append(f"“{text[:60]}” as {name}: {wrong}")
    text = given.get("q", "").strip()[:MOST].replace("\x00", "")
    found = searching.read(text, now=now, zone=zone, more=filters)
    window = given.get("window", "")
    if window not in searching.WINDOWS:
        window = "all" if searching.is_narrow(found.filters) else next(iter(searching.WINDOWS))
    found = searching.within(found, window, now=now)
    if found.filters.backwards:
        problems.append("The time range runs backwards: its end must be later than its beginning.")
        nothing = True
    return replace(found, problems=[*problems, *found.problems], nothing=nothing or found.nothing)
