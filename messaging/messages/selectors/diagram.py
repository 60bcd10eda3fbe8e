"""What a sequence diagram of a message or a pair shows, as rows in the order of time: App, Hub, Partner.

The same rows are the table below the diagram, and the API's timeline. How they are drawn is `pages.diagram`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby

from messaging.choices import MessageState
from messaging.keyset import floor_id
from messaging.messages.selectors.diagram_steps import MOST, Step, steps_of
from messaging.models import Message, Pair, Transmission

SCOPES: dict[str, timedelta | None] = {"document": None, "hour": timedelta(hours=1), "day": timedelta(days=1)}
FOLD_ABOVE = 100  # arrows; more than that are folded where they say the same
_FLYING = (MessageState.SENDING, MessageState.AWAITING_ACK, MessageState.RETRYING)


@dataclass(frozen=True, slots=True)
class Diagram:
    """`cut`: there was more than is shown; `folded`: arrows that say the same stand together. `about`: one message."""

    steps: list[Step]
    scope: str
    failed_only: bool = False
    cut: bool = False
    folded: bool = False
    about: Message | None = None
    lanes: tuple[str, str, str] = ("App", "Hub", "Partner")
    scopes: tuple[str, ...] = field(default=())


def diagram_of_message(message: Message, *, failed_only: bool = False) -> Diagram:
    """The life of one message that `messages` read. At most seven queries."""
    ended = message.completed_at
    span_of_it = (message.created_at, ended)
    steps, cut = steps_of([message], message.pair, span_of_it, alone=True)
    return _finished(steps, "document", failed_only=failed_only, cut=cut, about=message, pair=message.pair)


def diagram_of_pair(pair: Pair, *, now: datetime, scope: str = "document", failed_only: bool = False) -> Diagram:
    """A pair's last hour or day, or (`document`) the message that is first in line, else its newest one.

    A fixed number of queries. Raises KeyError for another scope.
    """
    length = SCOPES[scope]
    scopes = tuple(SCOPES)
    if length is None:
        message = _first_in_line(pair)
        if message is None:
            return replace(_finished([], scope, failed_only=failed_only, pair=pair), scopes=scopes)
        return replace(diagram_of_message(message, failed_only=failed_only), scopes=scopes)
    since = now - length
    newest = Transmission.objects.filter(pair=pair, message__isnull=False, id__gte=floor_id(since))
    attempted = list(newest.order_by("-id").values_list("message_id", flat=True)[:MOST])
    submitted = Message.objects.filter(pair=pair, id__gte=floor_id(since)).order_by("-id")
    keys = set(attempted) | set(submitted.values_list("id", flat=True)[:MOST])
    messages = list(Message.objects.filter(pk__in=keys).defer("wire_frame").order_by("id"))
    steps, cut = steps_of(messages, pair, (since, None), alone=False)
    cut = cut or len(attempted) == MOST
    return replace(_finished(steps, scope, failed_only=failed_only, cut=cut, pair=pair), scopes=scopes)


def _first_in_line(pair: Pair) -> Message | None:
    found = Message.objects.select_related("pair", "pair__partner").defer("wire_frame")
    if pair.in_flight_id is not None:
        return found.filter(pk=pair.in_flight_id).first()
    if pair.out_now:
        # Repeatable requests, or a stream: many are on their way, and the first of them holds up the others.
        return found.filter(pair=pair, state__in=_FLYING).order_by("position").first()
    return found.filter(pair=pair).order_by("-id").first()


def _finished(
    steps: Iterable[Step],
    scope: str,
    *,
    failed_only: bool,
    pair: Pair,
    cut: bool = False,
    about: Message | None = None,
) -> Diagram:
    ordered = sorted(steps, key=lambda step: (step.at, step.rank))
    if failed_only:
        ordered = [step for step in ordered if step.failed or (step.kind == "mark")]
    folded = sum(step.is_arrow for step in ordered) > FOLD_ABOVE
    if folded:
        ordered = fold(ordered)
    most = FOLD_ABOVE * 2
    if len(ordered) > most:
        ordered, cut = ordered[-most:], True
    lanes = ("App", "Hub", pair.partner.name)
    return Diagram(ordered, scope, failed_only, cut, folded, about, lanes)


def fold(steps: Sequence[Step]) -> list[Step]:
    """The same rows with repeats together: failures of one message that are alike, and exchanges that went alike.

    A message whose attempts fail alike one after the other becomes one arrow for all of them, and what went through
    without trouble becomes one exchange for all that went so in a row.
    """
    shaped: list[tuple[object, list[Step]]] = []
    at: dict[str, int] = {}
    for step in steps:
        if step.kind == "wait" or not step.message or step.kind == "mark":
            if step.kind == "mark":
                shaped.append((("mark", len(shaped)), [step]))
                at.clear()  # nothing is folded across a line
            continue
        if step.message not in at:
            at[step.message] = len(shaped)
            shaped.append((None, []))
        shaped[at[step.message]][1].append(step)
    exchanges = [(key or _shape(rows), _alike(rows)) for key, rows in shaped]
    found: list[Step] = []
    for _, run in groupby(exchanges, key=lambda one: one[0]):
        alike = [rows for _, rows in run]
        found += alike[0] if len(alike) == 1 else _together(alike)
    return sorted(found, key=lambda step: (step.at, step.rank))


def _shape(rows: Sequence[Step]) -> object:
    return tuple((step.kind, step.source, step.target, step.outcome, step.result) for step in _alike(rows))


def _alike(rows: Sequence[Step]) -> list[Step]:
    """Attempts of one message that failed alike, as one."""
    found: list[Step] = []
    for step in rows:
        before = found[-1] if found else None
        same = before is not None and (before.kind, before.outcome, before.result, before.target) == (
            step.kind,
            step.outcome,
            step.result,
            step.target,
        )
        if before is None or not same or not step.failed:
            found.append(step)
            continue
        found[-1] = replace(
            before,
            repeated=before.repeated + 1,
            until=step.at,
            label=before.label.partition(" try ")[0] + f" try {before.number}–{step.number}",
        )
    return found


def _together(alike: Sequence[list[Step]]) -> list[Step]:
    found = []
    for place, step in enumerate(alike[0]):
        last = alike[-1][place]
        count = sum(rows[place].repeated for rows in alike)
        seconds = [rows[place].seconds for rows in alike]
        known = [value for value in seconds if value is not None]
        found.append(
            replace(
                step,
                repeated=count,
                until=last.until or last.at,
                seconds=sum(known) / len(known) if known else None,
                size=None,
            )
        )
    return found
