"""Runs of the data pipeline, the lake's state, and partners' logs with what was found, for screens and the API."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import Count, Max, Min, QuerySet, Sum

from messaging.exceptions import NotFound
from messaging.models import LakeFile, LakeState, PartnerLog, PipelineRun, PublishedReport, ReconciliationSummary
from messaging.report_choices import PipelineJob, RunState, Verdict
from messaging.reports.catalogue import REPORTS
from partners.visibility import limit
from rmhub.ids import public_id, read_public_id

OPEN = (RunState.QUEUED, RunState.RUNNING)
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
    found = PipelineRun.objects.filter(pk=key).first()
    if found is None:
        raise NotFound(f"There is no run {public_id('run', key)}.")
    return found


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


def has_report(one: PipelineRun) -> bool:
    """Whether the run's results are a report's."""
    return one.job in REPORTS


def artifact(one: PipelineRun, name: str) -> Path:
    """The file behind an entry of `artifacts`, which is below the lake's folder. Raises NotFound."""
    entry = next((entry for entry in one.artifacts if entry.get("name") == name), None)
    if entry is None:
        raise NotFound(f"{one.public_id} has no file {name[:120]!r}.")
    folder = Path(settings.RMHUB_LAKE_DIR).resolve()
    path = (folder / str(entry.get("path", ""))).resolve()
    if not path.is_relative_to(folder) or not path.is_file():
        raise NotFound(
            f"The file {name[:120]} is not there any more: files of earlier runs are cleared away. Run the job again."
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
    found = logs().filter(pk=key).first()
    if found is None:
        raise NotFound(f"There is no partner's log {public_id('plog', key)}.")
    return found


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
