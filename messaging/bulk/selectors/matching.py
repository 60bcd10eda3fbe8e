"""What "all that match" means: the filters of a list, as its page and the API write them, as rows for a bulk job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo
from typing import Any

from django.db.models import QuerySet

from messaging.choices import DeliveryState, Direction, IncidentState
from messaging.deliveries.selectors import deliveries, triggers
from messaging.exceptions import InvalidSubmission, NotFound
from messaging.messages.selectors import finding, searching
from messaging.overview.selectors import records
from messaging.pairs.selectors import pairs
from rmhub import clock
from rmhub.ids import BadPublicId, read_public_id

# Of the page, not of what it lists.
PLACE = ("cursor", "at", "view", "format", "tab", "csrfmiddlewaretoken", "kiosk")
MAX_TEXT = 512
_UNRESOLVED = (IncidentState.OPEN, IncidentState.ACKNOWLEDGED)


def matching(prefix: str, given: Mapping[str, str], zone: tzinfo = UTC) -> QuerySet[Any]:
    """The rows of one kind (`pair`, `msg`, `inc`, `del`) that a list with these parameters shows; not ordered.

    `zone`: in which times without an offset are meant. Raises InvalidSubmission for a parameter that cannot be read.
    """
    kept = _kept(given)
    names, read = READERS[prefix]
    unknown = sorted(set(kept) - set(names))
    if unknown:
        raise _refused(f"Unknown: {', '.join(unknown)}. Known: {', '.join(sorted(names))}.")
    return read(kept, zone)


def described(prefix: str, given: Mapping[str, str], zone: tzinfo = UTC) -> dict[str, str]:
    """The same parameters for people who read a plan: with the window of time that is meant when none is named."""
    kept = _kept(given)
    if prefix == "msg" and "window" not in kept:
        window = searching.of_list(kept, now=clock.now(), zone=zone).window
        kept |= {"window": window} if window not in ("", "all") else {}
    return kept


def pairs_matching(given: Mapping[str, str], zone: tzinfo) -> QuerySet[Any]:
    """`state`, `direction`, `partner`, `resync` and `q`, as the list of pairs has them."""
    partner = given.get("partner", "")
    return pairs.pairs(
        states=_among(given, "state", pairs.STATE_NAMES),
        direction="".join(_among(given, "direction", Direction.values)),
        partner_id=_id("par", "partner", partner) if partner else None,
        search=given.get("q", ""),
        resync={"true": True, "false": False}.get("".join(_among(given, "resync", ("true", "false")))),
    )


def messages_matching(given: Mapping[str, str], zone: tzinfo) -> QuerySet[Any]:
    """The list's parameters: the search box's `q`, `window`, and those of GET /messages (`selectors.searching`).

    Like the page, those of the newest 24 hours when nothing says more: so a filter that forgets the time stays small.
    """
    if (window := given.get("window", "")) and window not in searching.WINDOWS:
        raise _refused(f"window: {window!r} is none of {', '.join(searching.WINDOWS)}.")
    found = searching.of_list(given, now=clock.now(), zone=zone)
    if found.filters.backwards:
        begin, end = (
            next((name for name, key in searching.NAMES.items() if key == bound and given.get(name)), f"{bound}:")
            for bound in ("after", "before")
        )
        raise _refused(f"{end} must be later than {begin}: the time range runs backwards.")
    if found.problems:
        raise _refused(" ".join(found.problems))
    return finding.matching(found.filters)


def incidents_matching(given: Mapping[str, str], zone: tzinfo) -> QuerySet[Any]:
    """`state` and `snoozed` (or the page's `show`; `open` when nothing is said), `pair`, `partner`, `trigger`, `cause`
    and `owner` (`nobody`: those without one), as the list of incidents has them.
    """
    pair, partner, trigger = given.get("pair", ""), given.get("partner", ""), given.get("trigger", "")
    states = _among(given, "state", IncidentState.values)
    snoozed = {"true": True, "false": False}.get("".join(_among(given, "snoozed", ("true", "false"))))
    shown = given.get("show", "open")
    if not states and shown != "all":
        states = (IncidentState.RESOLVED,) if shown == "resolved" else _UNRESOLVED
        if snoozed is None and shown != "resolved":
            snoozed = shown == "snoozed"
    owner = given.get("owner", "")
    return records.incidents(
        states=states,
        pair_id=_known(lambda: pairs.pair(pair)).pk if pair else None,
        partner_id=_id("par", "partner", partner) if partner else None,
        trigger_id=_known(lambda: triggers.trigger(trigger)).pk if trigger else None,
        cause=given.get("cause", ""),
        owner=("" if owner == "nobody" else owner) if owner else None,
        snoozed=snoozed,
    )


def incidents_of(rows: QuerySet[Any]) -> QuerySet[Any]:
    """The unresolved incidents of these pairs; not ordered. Raises InvalidSubmission when there is none."""
    found = records.incidents(states=_UNRESOLVED).filter(pair__in=rows.order_by().values("pk"))
    if not found.exists():
        raise _refused("None of these pairs has an unresolved incident.")
    return found


def deliveries_matching(given: Mapping[str, str], zone: tzinfo) -> QuerySet[Any]:
    """`state`, `trigger`, `doubt` and the exact id `q`, as the list of deliveries has them."""
    trigger = given.get("trigger", "")
    found = deliveries.deliveries(
        states=_among(given, "state", DeliveryState.values),
        trigger_id=_known(lambda: triggers.trigger(trigger)).pk if trigger else None,
        q=given.get("q", ""),
    )
    doubt = given.get("doubt", "")
    return found.filter(doubt=doubt) if doubt else found


Reader = Callable[[Mapping[str, str], tzinfo], QuerySet[Any]]
# Prefix of the ids -> the parameters that its list has, and what reads them.
READERS: Mapping[str, tuple[tuple[str, ...], Reader]] = {
    "pair": (("state", "direction", "partner", "resync", "q"), pairs_matching),
    "msg": (searching.PARAMETERS, messages_matching),
    "inc": (("state", "snoozed", "show", "pair", "partner", "trigger", "cause", "owner"), incidents_matching),
    "del": (("state", "trigger", "doubt", "q"), deliveries_matching),
}


def _kept(given: Mapping[str, str]) -> dict[str, str]:
    return {name: text.replace("\x00", "")[:MAX_TEXT] for name, text in given.items() if name not in PLACE and text}


def _refused(sentence: str) -> InvalidSubmission:
    return InvalidSubmission({"filter": [sentence]})


def _among(given: Mapping[str, str], name: str, allowed: Any) -> tuple[str, ...]:
    texts = tuple(text for text in given.get(name, "").split(",") if text)
    if strange := [text for text in texts if text not in allowed]:
        raise _refused(f"{name}: {strange[0]!r} is none of {', '.join(allowed)}.")
    return texts


def _known(look: Callable[[], Any]) -> Any:
    try:
        return look()
    except (NotFound, BadPublicId) as error:
        raise _refused(str(error)) from error


def _id(prefix: str, name: str, text: str) -> Any:
    try:
        return read_public_id(prefix, text)
    except BadPublicId as error:
        raise _refused(f"{name}: an id of the form {prefix}_… is needed.") from error
