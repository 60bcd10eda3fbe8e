"""Bulk jobs as people look at them: how far they are, what came of each object; and what "all that match" means.

The latter: the filters of a list, as its page and the API write them, as rows for a job.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from django.db.models import Count, QuerySet, Sum
from django.utils.translation import gettext as _

from messaging import causes
from messaging.access.selectors import reach
from messaging.bulk.services.endings import ENDED, OPEN
from messaging.choices import DeliveryState, Direction, IncidentState, ItemState, JobState, PartnerAnswer
from messaging.deliveries.selectors import deliveries, in_doubt, triggers
from messaging.exceptions import InvalidSubmission, NotFound
from messaging.messages.selectors import finding, searching
from messaging.models import BulkJob, BulkJobItem, Delivery, Incident, Message, Pair
from messaging.models.base import existing
from messaging.overview.selectors import records
from messaging.pairs.selectors import pairs
from rmhub import clock
from rmhub.ids import BadPublicId, public_id, read_public_id
from rmhub.language import gettext_lazy

# Of the page, not of what it lists.
PLACE = ("cursor", "at", "view", "format", "tab", "sort", "csrfmiddlewaretoken", "kiosk")
MAX_TEXT = 512
_UNRESOLVED = (IncidentState.OPEN, IncidentState.ACKNOWLEDGED)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is. `left` is an estimate from its pace so far, in seconds; None while there is none."""

    job: BulkJob
    ended: int
    percent: int
    left: float | None

    @property
    def open(self) -> bool:
        return self.job.state in OPEN


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One object of a job with its name, and its page as view and reference; no name when it is gone."""

    item: BulkJobItem
    name: str
    page: str
    reference: str


def jobs(*, states: tuple[str, ...] = (), action: str = "") -> QuerySet[BulkJob]:
    """Jobs. Not ordered; pages by ("-id",)."""
    found = reach.jobs(BulkJob.objects.filter(action=action) if action else BulkJob.objects.all())
    return found.filter(state__in=states) if states else found


def job(reference: str | uuid.UUID) -> BulkJob:
    """One job, by id (`job_...`). Raises NotFound, BadPublicId."""
    key = read_public_id("job", reference) if isinstance(reference, str) else reference
    return existing(reach.jobs(BulkJob.objects.all()), key)


def items(job_id: uuid.UUID, *, states: tuple[str, ...] = ()) -> QuerySet[BulkJobItem]:
    """A job's objects. Not ordered; pages by ("id",)."""
    found = BulkJobItem.objects.filter(job=job_id)
    return found.filter(state__in=states) if states else found


def progress(job: BulkJob, now: datetime) -> Progress:
    """Done and refused of all, and about how long the rest takes."""
    ended = job.done + job.refused
    spent = (now - job.created_at) / timedelta(seconds=1)
    left = None
    if job.state == JobState.RUNNING and ended >= 5 and spent > 0:
        left = spent / ended * (job.total - ended)
    return Progress(job, ended, 100 * ended // job.total if job.total else 100, left)


def item_rows(job: BulkJob, rows: list[BulkJobItem]) -> list[ItemRow]:
    """Rows with the names of their objects; one query for all of them."""
    return [
        ItemRow(row, name, page, reference)
        for row, (name, page, reference) in zip(
            rows, named(prefix_of(job.action), [row.object_id for row in rows]), strict=True
        )
    ]


def csv_lines(job: BulkJob) -> Iterator[str]:
    """What came of each object, as the lines of a CSV file (RFC 4180). A query or two for a thousand of them."""
    yield "id,name,result,detail\r\n"
    after = 0
    while rows := list(items(job.pk).filter(id__gt=after).order_by("id")[:1000]):
        after = rows[-1].pk
        for row in item_rows(job, rows):
            key = public_id(prefix_of(job.action), row.item.object_id)
            yield ",".join(_cell(text) for text in (key, row.name, row.item.state, row.item.detail)) + "\r\n"


def _cell(text: str) -> str:
    if text.startswith(("=", "+", "-", "@", "\t", "\r")):  # a spreadsheet takes it for a formula
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if any(character in text for character in ',"\r\n') else text


def named(prefix: str, keys: list[uuid.UUID]) -> list[tuple[str, str, str]]:
    """(name, page, the page's reference) of each object, in their order; no name for one that is gone. One query."""
    if prefix == "pair":
        codes = dict(Pair.objects.filter(pk__in=keys).values_list("pk", "code"))
        return [(codes.get(key, ""), "pair", codes.get(key, public_id("pair", key))) for key in keys]
    if prefix == "inc":
        numbers = dict(Incident.objects.filter(pk__in=keys).values_list("pk", "number"))
        names = {key: f"INC-{number}" for key, number in numbers.items()}
        return [(names.get(key, ""), "incident", names.get(key, public_id("inc", key))) for key in keys]
    if prefix == "msg":
        names = dict(Message.objects.filter(pk__in=keys).values_list("pk", "message_id"))
        return [(names.get(key, ""), "message", public_id("msg", key)) for key in keys]
    names = dict(Delivery.objects.filter(pk__in=keys).values_list("pk", "message__message_id"))
    return [(names.get(key, ""), "delivery", public_id("del", key)) for key in keys]


def prefix_of(action: str) -> str:
    """Of the ids of a job's objects: the first word of its action says which they are."""
    kind = action.partition("_")[0]
    if kind in ("pairs", "incidents", "messages"):
        return {"pairs": "pair", "incidents": "inc", "messages": "msg"}[kind]
    return "msg" if action in ("settle_messages", "ask_partner") else "del"


@dataclass(frozen=True, slots=True)
class PlanGroup:
    """Some of a plan's objects that have these values in common."""

    words: str
    count: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a planned job would do. `left_out`: chosen, but not in a state in which it can be done.

    `waiting`: how many documents are in the queues of the pairs that it is about (0 for other jobs).
    """

    groups: list[PlanGroup]
    sample: list[tuple[str, str, str]]
    left_out: int
    waiting: int
    origin: str
    expired: bool


def plan(job: BulkJob, now: datetime) -> Plan:
    """A plan as people read it. Two queries at most."""
    stored: Mapping[str, Any] = job.plan
    prefix = prefix_of(job.action)
    waiting = 0
    if prefix == "pair":
        its_pairs = Pair.objects.filter(pk__in=BulkJobItem.objects.filter(job=job).values("object_id"))
        sums = its_pairs.aggregate(waiting=Sum("queued"), flying=Sum("out_now"), first=Count("in_flight"))
        waiting = sum(number or 0 for number in sums.values())
    return Plan(
        groups=[PlanGroup(_words(group["values"]), group["count"]) for group in stored.get("groups", [])],
        sample=named(prefix, [read_public_id(prefix, text) for text in stored.get("sample", [])]),
        left_out=stored.get("left_out", 0),
        waiting=waiting,
        origin=str(stored.get("origin", "")),
        expired=job.expires_at is not None and job.expires_at <= now,
    )


def _words(values: Mapping[str, str]) -> str:
    found = []
    for name, value in values.items():
        if name == "answer":
            found.append(PartnerAnswer(value).label if value in PartnerAnswer.values else _("not asked yet"))
        elif name == "cause":
            found.append(causes.lookup(value).label if value else _("no cause"))
        elif name == "doubt":
            found.append(in_doubt.reason(value).label)
        else:
            found.append(value.replace("_", " "))
    return " · ".join(map(str, found))


_ACTIONS: Mapping[tuple[str, str], str] = {
    ("settle_deliveries", "duplicate"): gettext_lazy("Mark as processed"),
    ("settle_deliveries", "resubmit"): gettext_lazy("Resubmit"),
    ("settle_deliveries", "later"): gettext_lazy("Put off"),
    ("settle_deliveries", "ask"): gettext_lazy("Ask the resolver again"),
    ("settle_messages", "delivered"): gettext_lazy("Mark as delivered"),
    ("settle_messages", "resubmit"): gettext_lazy("Send as new messages"),
    ("settle_messages", "later"): gettext_lazy("Put off"),
    ("redeliver_failed", ""): gettext_lazy("Resubmit what failed"),
    ("ask_partner", ""): gettext_lazy("Ask the partner"),
    ("ask_application", ""): gettext_lazy("Ask the application"),
    ("messages_resubmit", ""): gettext_lazy("Resubmit as new messages"),
    ("messages_cancel", ""): gettext_lazy("Cancel messages"),
    ("messages_export", ""): gettext_lazy("Export messages"),
    ("messages_attributes", ""): gettext_lazy("Take attributes of messages again"),
    ("pairs_pause", ""): gettext_lazy("Pause pairs"),
    ("pairs_resume", ""): gettext_lazy("Resume pairs"),
    ("pairs_release", ""): gettext_lazy("Release pairs"),
    ("pairs_clear_resync", ""): gettext_lazy("Clear resync of pairs"),
    ("incidents_acknowledge", ""): gettext_lazy("Acknowledge incidents"),
    ("incidents_assign", ""): gettext_lazy("Assign incidents"),
    ("incidents_resolve", ""): gettext_lazy("Resolve incidents"),
}


def title(job: BulkJob) -> str:
    """What a job does, in words."""
    decision = str(job.parameters.get("decision", ""))
    kind, __, verb = job.action.partition("_")
    return str(_ACTIONS.get((job.action, decision), f"{verb.capitalize()} {kind}"))


def ended_for(names: Collection[str], since: datetime) -> list[BulkJob]:
    """Jobs that these actors began and that ended since then, the newest first; 20 at most."""
    found = BulkJob.objects.filter(finished_at__gte=since, actor__in=names, state__in=ENDED)
    return list(found.order_by("-finished_at")[:20])


def asking(now: datetime) -> Progress | None:
    """The job that is asking partners right now, if there is one; the newest."""
    found = reach.jobs(BulkJob.objects.filter(due_at__isnull=False, action="ask_partner")).order_by("-id").first()
    return progress(found, now) if found is not None else None


def refused(job_id: uuid.UUID) -> QuerySet[BulkJobItem]:
    """What could not be done. Pages by ("id",)."""
    return items(job_id, states=(ItemState.REFUSED,))


# --- all that match ---


def matching(prefix: str, given: Mapping[str, str], zone: tzinfo = UTC) -> QuerySet[Any]:
    """The rows of one kind (`pair`, `msg`, `inc`, `del`) that a list with these parameters shows; not ordered.

    `zone`: in which times without an offset are meant. Raises InvalidSubmission for a parameter that cannot be read.
    """
    kept = _kept(given)
    names, read = READERS[prefix]
    unknown = sorted(set(kept) - set(names))
    if unknown:
        raise _refused(
            _("Unknown: {names}. Known: {known}.").format(names=", ".join(unknown), known=", ".join(sorted(names)))
        )
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
        raise _refused(_not_among("window", window, searching.WINDOWS))
    found = searching.of_list(given, now=clock.now(), zone=zone)
    if found.filters.backwards:
        begin, end = (
            next((name for name, key in searching.NAMES.items() if key == bound and given.get(name)), f"{bound}:")
            for bound in ("after", "before")
        )
        raise _refused(
            _("{end} must be later than {begin}: the time range runs backwards.").format(end=end, begin=begin)
        )
    if found.problems:
        raise _refused(" ".join(map(str, found.problems)))
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
        raise _refused(_("None of these pairs has an unresolved incident."))
    return found


def deliveries_matching(given: Mapping[str, str], zone: tzinfo) -> QuerySet[Any]:
    """`state`, `trigger`, `partner`, `doubt` and the exact id `q`, as the list of deliveries has them."""
    trigger, partner = given.get("trigger", ""), given.get("partner", "")
    found = deliveries.deliveries(
        states=_among(given, "state", DeliveryState.values),
        trigger_id=_known(lambda: triggers.trigger(trigger)).pk if trigger else None,
        partner_id=_id("par", "partner", partner) if partner else None,
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


def _not_among(name: str, text: str, allowed: Iterable[str]) -> str:
    return _("{name}: {text} is not one of {known}.").format(name=name, text=repr(text), known=", ".join(allowed))


def _among(given: Mapping[str, str], name: str, allowed: Any) -> tuple[str, ...]:
    texts = tuple(text for text in given.get(name, "").split(",") if text)
    if strange := [text for text in texts if text not in allowed]:
        raise _refused(_not_among(name, strange[0], allowed))
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
        raise _refused(
            _("{name}: an id of the form {form} is needed.").format(name=name, form=f"{prefix}_…")
        ) from error
