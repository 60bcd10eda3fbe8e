"""Runs of the data pipeline, the lake's state, partners' logs with what was found, and the live watch's last hour."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from django.conf import settings
from django.db.models import Case, Count, Exists, IntegerField, Max, Min, OuterRef, Q, QuerySet, Sum, Value, When
from django.utils.translation import gettext as _

from messaging import anomalies
from messaging.anomalies import Usual
from messaging.choices import Direction, IncidentState
from messaging.exceptions import NotFound
from messaging.journal.wording import span
from messaging.models import (
    Incident,
    LakeFile,
    LakeState,
    LiveMinute,
    LiveState,
    Pair,
    PartnerLog,
    PipelineRun,
    PublishedReport,
    ReconciliationSummary,
)
from messaging.models.base import existing
from messaging.models.pipeline import pasts, window_of
from messaging.report_choices import OPEN, PipelineJob, RunState, Verdict
from messaging.reports.services.live_watch import STALE, USUAL_KEPT
from partners.visibility import limit
from rmhub.ids import read_public_id

# A run that is due waits so long at most while a pipeline process is up and free.
_UNCLAIMED = timedelta(seconds=30)
# What can be asked for by itself; the others need an object, and are started from its page.
STARTABLE = tuple(
    job for job in PipelineJob if job not in (PipelineJob.RECONCILE, PipelineJob.EXPORT, PipelineJob.RESTORE)
)


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is. `percent` is of its present step, None when that cannot be told; `seconds` since it began.

    `unclaimed`: it is due for a while, nothing else runs, and nobody takes it.
    """

    run: PipelineRun
    percent: int | None
    seconds: float | None
    unclaimed: bool

    @property
    def open(self) -> bool:
        return self.run.state in OPEN


@dataclass(frozen=True, slots=True)
class LakeEntity:
    """What the lake holds of one kind of row."""

    entity: str
    files: int
    rows: int
    bytes: int
    first_day: date | None
    last_day: date | None


@dataclass(frozen=True, slots=True)
class Lake:
    """How far the lake is, and what is in it. `state` is None before the first extract."""

    state: LakeState | None
    entities: Sequence[LakeEntity]

    @property
    def files(self) -> int:
        return sum(one.files for one in self.entities)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.entities)

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.entities)


def runs(*, jobs: Sequence[str] = (), states: Sequence[str] = (), scope: str | None = None) -> QuerySet[PipelineRun]:
    """Runs. Not ordered; pages by ("-id",)."""
    found = PipelineRun.objects.all()
    if jobs:
        found = found.filter(job__in=jobs)
    if states:
        found = found.filter(state__in=states)
    return found if scope is None else found.filter(scope=scope)


def run(reference: str | uuid.UUID) -> PipelineRun:
    """One run, by id (`run_...`). Raises NotFound, BadPublicId."""
    key = read_public_id("run", reference) if isinstance(reference, str) else reference
    return existing(PipelineRun.objects, key)


def progress(one: PipelineRun, now: datetime, *, busy: bool = False) -> RunProgress:
    """How far a run is; `busy`: another run is in work, so that this one has to wait."""
    percent = None
    if one.state == RunState.RUNNING and one.total > 0:
        percent = min(100, max(0, 100 * one.done // one.total))
    ended = one.finished_at or (now if one.state == RunState.RUNNING else None)
    seconds = (ended - one.started_at).total_seconds() if one.started_at and ended else None
    due = one.due_at or one.created_at
    unclaimed = one.state == RunState.QUEUED and not busy and now - due > _UNCLAIMED
    return RunProgress(one, percent, seconds, unclaimed)


def busy() -> bool:
    """Whether a run is in work."""
    return PipelineRun.objects.filter(state=RunState.RUNNING, due_at__isnull=False).exists()


def lake() -> Lake:
    """The lake's state and what it holds now; two queries."""
    state = LakeState.objects.filter(pk=1).first()
    if state is None:
        return Lake(None, ())
    current = LakeFile.objects.filter(generation=state.generation, replaced_at__isnull=True)
    counted = (
        current.values_list("entity")
        .annotate(Count("id"), Sum("rows"), Sum("bytes"), Min("day"), Max("day"))
        .order_by("entity")
    )
    return Lake(state, [LakeEntity(*one) for one in counted])


def artifact(one: PipelineRun, name: str) -> Path:
    """The file behind an entry of `artifacts`, which is below the lake's folder. Raises NotFound."""
    entry = next((entry for entry in one.artifacts if entry.get("name") == name), None)
    if entry is None:
        raise NotFound(_("{run} has no file {name}.").format(run=one.public_id, name=repr(name[:120])))
    folder = Path(settings.RMHUB_LAKE_DIR).resolve()
    path = (folder / str(entry.get("path", ""))).resolve()
    if not path.is_relative_to(folder) or not path.is_file():
        raise NotFound(
            _(
                "The file {name} is not there any more: files of earlier runs are cleared away. Run the job again."
            ).format(name=name[:120])
        )
    return path


@dataclass(frozen=True, slots=True)
class LogRow:
    """A log with its newest run, the run whose findings are shown, and how many messages have which verdict."""

    log: PartnerLog
    latest: PipelineRun | None
    published: PipelineRun | None
    verdicts: dict[str, int]

    @property
    def active(self) -> bool:
        return self.latest is not None and self.latest.state in OPEN

    @property
    def findings(self) -> int:
        return sum(count for verdict, count in self.verdicts.items() if verdict != Verdict.AGREED)


def logs(
    *, party_id: uuid.UUID | None = None, agreement_id: uuid.UUID | None = None, states: Sequence[str] = ()
) -> QuerySet[PartnerLog]:
    """Logs with party and agreement. Not ordered; pages by ("-id",)."""
    found = limit(PartnerLog.objects.select_related("party", "agreement"), "party")
    if party_id is not None:
        found = found.filter(party=party_id)
    if agreement_id is not None:
        found = found.filter(agreement=agreement_id)
    return found.filter(state__in=states) if states else found


def log(reference: str | uuid.UUID) -> PartnerLog:
    """One log, by id (`plog_...`). Raises NotFound, BadPublicId."""
    key = read_public_id("plog", reference) if isinstance(reference, str) else reference
    return existing(logs(), key)


def log_rows(found: Sequence[PartnerLog]) -> list[LogRow]:
    """The logs with what their comparisons found; three queries for all of them."""
    scopes = [one.public_id for one in found]
    latest: dict[str, PipelineRun] = {}
    for run in (
        PipelineRun.objects.filter(job=PipelineJob.RECONCILE, scope__in=scopes)
        .order_by("scope", "-id")
        .distinct("scope")
    ):
        latest[run.scope] = run
    shown = PublishedReport.objects.select_related("run").filter(job=PipelineJob.RECONCILE, scope__in=scopes)
    published = {one.scope: one.run for one in shown}
    verdicts: dict[uuid.UUID, dict[str, int]] = {}
    for run_id, verdict, count in ReconciliationSummary.objects.filter(
        run__in=[run.pk for run in published.values()]
    ).values_list("run", "verdict", "messages"):
        kept = verdicts.setdefault(run_id, {})
        kept[verdict] = kept.get(verdict, 0) + count
    return [
        LogRow(
            one,
            latest.get(one.public_id),
            published.get(one.public_id),
            verdicts.get(published[one.public_id].pk, {}) if one.public_id in published else {},
        )
        for one in found
    ]


# --- The last hour as the live watch counted it: by pair, beside what is usual, and whether the counts are current.

HOUR = timedelta(hours=1)
_usual: dict[uuid.UUID, tuple[datetime, Usual]] = {}

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    class _Calm(TypedDict):
        calm: int

    WatchedPair = WithAnnotations[Pair, _Calm]


class WatchState(StrEnum):
    """What to think of the counts."""

    LIVE = "live"
    STALE = "stale"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Watch:
    """Whether the live watch counts. `as_of`: all that was committed before is counted (None: it never ran).

    `begin` and `end`: the hour that is shown, the minute of `as_of` included.
    """

    state: WatchState
    sentence: str
    as_of: datetime | None
    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class MinuteCount:
    """One minute of a pair. `volume`: messages that were delivered (outbound), or that came (inbound)."""

    at: datetime
    volume: int = 0
    failures: int = 0
    acks: int = 0
    ack_seconds: float = 0.0

    @property
    def latency(self) -> float | None:
        """Mean seconds to an acknowledgement; None without one."""
        return self.ack_seconds / self.acks if self.acks else None


@dataclass(frozen=True, slots=True)
class PairHour:
    """One pair's last hour: every minute of it, the sums, what is usual, and the watch's incidents."""

    pair: Pair
    minutes: tuple[MinuteCount, ...]
    accepted: int
    volume: int
    failures: int
    acks: int
    latency: float | None
    longest: float | None
    usual: Usual
    incidents: list[Incident] = field(default_factory=list)

    @property
    def failure_rate(self) -> float | None:
        """Share of what failed among what ended; None when nothing ended."""
        # What is refused on an inbound pair is no part of its volume.
        ended = self.volume + self.failures
        return self.failures / ended if ended else None


def live_watch(now: datetime) -> Watch:
    """Whether the counts are current."""
    as_of = LiveState.objects.order_by("-applied_at").values_list("applied_at", flat=True).first()
    edge = (as_of or now).replace(second=0, microsecond=0) + timedelta(minutes=1)
    if as_of is not None and as_of >= now - STALE:
        state, sentence = WatchState.LIVE, _("Every event is counted within seconds.")
    elif settings.RMHUB_PIPELINE_LIVE:
        state = WatchState.STALE
        sentence = (
            _("The live watch is switched on, but has counted nothing yet: it starts, or it cannot. See the hub's log.")
            if as_of is None
            else _(
                "The live watch is {time} behind: it starts, or catches up, or has stopped, or a transaction is open "
                "for so long. No anomaly is raised meanwhile. See the hub's log."
            ).format(time=span((now - as_of).total_seconds()))
        )
    else:
        state = WatchState.OFF
        sentence = _(
            "The live watch is off, so nobody looks for anomalies. To switch it on, set RMHUB_PIPELINE_LIVE=1 and "
            "start the hub again, or run manage.py pipeline live."
        )
    return Watch(state, sentence, as_of, edge - HOUR, edge)


def watched_pairs(shown: Watch) -> QuerySet[WatchedPair]:
    """Pairs with traffic in the hour, or with an anomaly. Pages by ("calm", "code"): anomalies first."""
    minutes = LiveMinute.objects.filter(pair=OuterRef("pk"), minute__gte=shown.begin, minute__lt=shown.end)
    alarms = Incident.objects.filter(pair=OuterRef("pk"), cause__in=anomalies.CAUSES).exclude(
        state=IncidentState.RESOLVED
    )
    found = limit(Pair.objects.select_related("partner"), "partner").filter(Q(Exists(minutes)) | Q(Exists(alarms)))
    return found.annotate(calm=Case(When(Exists(alarms), then=Value(0)), default=Value(1), output_field=IntegerField()))


def last_hours(chosen: Sequence[Pair], shown: Watch) -> list[PairHour]:
    """The last hour of these pairs, in their order."""
    keys = [pair.pk for pair in chosen]
    rows: dict[uuid.UUID, dict[datetime, LiveMinute]] = {}
    for row in LiveMinute.objects.filter(pair__in=keys, minute__gte=shown.begin, minute__lt=shown.end):
        rows.setdefault(row.pair_id, {})[row.minute] = row
    raised: dict[uuid.UUID | None, list[Incident]] = {}
    unresolved = Incident.objects.filter(pair__in=keys, cause__in=anomalies.CAUSES).exclude(
        state=IncidentState.RESOLVED
    )
    for incident in unresolved.order_by("number"):
        raised.setdefault(incident.pair_id, []).append(incident)
    usual = _usual_of(keys, window_of(shown.end) - anomalies.WINDOW)
    return [
        _hour(pair, shown, rows.get(pair.pk, {}), usual.get(pair.pk, anomalies.UNKNOWN), raised.get(pair.pk, []))
        for pair in chosen
    ]


def _hour(pair: Pair, shown: Watch, rows: dict[datetime, LiveMinute], usual: Usual, raised: list[Incident]) -> PairHour:
    minutes = []
    for number in range(60):
        at = shown.begin + timedelta(minutes=number)
        row = rows.get(at)
        if row is None:
            minutes.append(MinuteCount(at))
            continue
        volume = row.delivered if pair.direction == Direction.OUT else row.received
        failures = row.failed + row.retried + row.rejected
        minutes.append(MinuteCount(at, volume, failures, row.acks, row.ack_seconds))
    acks = sum(minute.acks for minute in minutes)
    return PairHour(
        pair=pair,
        minutes=tuple(minutes),
        accepted=sum(row.accepted for row in rows.values()),
        volume=sum(minute.volume for minute in minutes),
        failures=sum(minute.failures for minute in minutes),
        acks=acks,
        latency=sum(minute.ack_seconds for minute in minutes) / acks if acks else None,
        longest=max((row.ack_longest for row in rows.values() if row.acks), default=None),
        usual=usual,
        incidents=raised,
    )


def _usual_of(keys: Sequence[uuid.UUID], before: datetime) -> dict[uuid.UUID, Usual]:
    """What is usual, read anew every ten minutes: a week of minutes is much for a page that refreshes itself."""
    old = [key for key in keys if key not in _usual or not timedelta() <= before - _usual[key][0] < USUAL_KEPT]
    if old:
        found = pasts(old, before)
        if len(_usual) > 10_000:
            _usual.clear()
        _usual.update({key: (before, found.get(key, anomalies.UNKNOWN)) for key in old})
    return {key: _usual[key][1] for key in keys if key in _usual}
