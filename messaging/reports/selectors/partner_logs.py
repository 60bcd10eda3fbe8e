"""Logs that partners sent, with what their comparison found, as screens and the API read them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from messaging.exceptions import NotFound
from messaging.models import PartnerLog, PipelineRun, PublishedReport, ReconciliationSummary
from messaging.report_choices import PipelineJob, RunState, Verdict
from partners.visibility import limit
from rmhub.ids import public_id, read_public_id

_OPEN = (RunState.QUEUED, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class LogRow:
    """A log with its newest run, the run whose findings are shown, and how many messages have which verdict."""

    log: PartnerLog
    latest: PipelineRun | None
    published: PipelineRun | None
    verdicts: dict[str, int]

    @property
    def active(self) -> bool:
        return self.latest is not None and self.latest.state in _OPEN

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
