"""The reports as people see them: which tables a job's results are in. Titles and descriptions are those of the models.

Plain data for screens, API, downloads and publishing; a test compares it with what the jobs declare.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import models

from messaging.models import (
    ArchiveDay,
    AuditFinding,
    AuditPair,
    DoubtOutcome,
    ReconciliationFinding,
    ReconciliationSummary,
    RepeatDelay,
    RepeatHistogram,
    ServiceError,
    ServiceLevel,
    SlaAttainment,
    TimingAdvice,
    TimingFailure,
    TimingLatency,
    WindowAdvice,
)
from messaging.report_choices import PipelineJob
from rmhub.language import gettext_lazy as _


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a report: its name in URLs and files, its model, and the order in which rows are shown."""

    name: str
    title: str
    model: type[models.Model]
    order: tuple[str, ...]
    filters: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[models.Field, ...]:
        """What a row shows: every column but the keys."""
        return tuple(field for field in self.model._meta.concrete_fields if field.name not in ("id", "run"))


@dataclass(frozen=True, slots=True)
class Report:
    """One report. `question` is what it answers. `of_lake`: made of the lake alone, by the module of
    `messaging.pipeline.jobs` that has the job's name.
    """

    job: PipelineJob
    title: str
    question: str
    tables: tuple[Table, ...]
    of_lake: bool = True

    def table(self, name: str) -> Table:
        """Raises KeyError."""
        return {table.name: table for table in self.tables}[name]


REPORTS: dict[str, Report] = {
    report.job.value: report
    for report in (
        Report(
            PipelineJob.AUDIT,
            _("Exactly-once audit"),
            _("Did every message arrive exactly once, and in order?"),
            (
                Table(
                    "findings", _("Findings"), AuditFinding, ("-violation", "kind", "id"), ("kind", "pair", "partner")
                ),
                Table("pairs", _("Pairs"), AuditPair, ("pair",), ("pair", "partner", "direction")),
            ),
        ),
        Report(
            PipelineJob.RECONCILE,
            _("Reconciliation"),
            _("Does the partner's log agree with ours?"),
            (
                Table("summary", _("Summary"), ReconciliationSummary, ("direction", "verdict")),
                Table(
                    "findings",
                    _("Findings"),
                    ReconciliationFinding,
                    ("verdict", "id"),
                    ("verdict", "direction", "pair", "message_id"),
                ),
            ),
            of_lake=False,
        ),
        Report(
            PipelineJob.WINDOW,
            _("Memory window"),
            _("How long must message ids be remembered?"),
            (
                Table(
                    "advice",
                    _("Windows by accepted risk"),
                    WindowAdvice,
                    ("partner", "profile", "one_in"),
                    ("partner", "profile"),
                ),
                Table("delays", _("Repeat delays"), RepeatDelay, ("partner", "profile"), ("partner", "profile")),
                Table(
                    "histogram",
                    _("Repeats by delay"),
                    RepeatHistogram,
                    ("partner", "profile", "upper"),
                    ("partner", "profile"),
                ),
            ),
        ),
        Report(
            PipelineJob.TIMING,
            _("Timing advice"),
            _("Which Timeout, RetryInterval and Retries fit this partner?"),
            (
                Table(
                    "advice",
                    _("What would have happened"),
                    TimingAdvice,
                    ("agreement", "option"),
                    ("agreement", "partner"),
                ),
                Table(
                    "latencies", _("Acknowledgement latencies"), TimingLatency, ("agreement",), ("agreement", "partner")
                ),
                Table(
                    "failures",
                    _("Why attempts failed"),
                    TimingFailure,
                    ("agreement", "-attempts"),
                    ("agreement", "partner"),
                ),
            ),
        ),
        Report(
            PipelineJob.LEVELS,
            _("Service levels"),
            _("How much, how well, how fast?"),
            (
                Table(
                    "levels",
                    _("Levels"),
                    ServiceLevel,
                    ("grain", "at", "partner", "direction"),
                    ("grain", "partner", "direction"),
                ),
                Table(
                    "errors",
                    _("Errors by cause"),
                    ServiceError,
                    ("partner", "-count", "kind", "cause"),
                    ("partner", "kind"),
                ),
                Table(
                    "doubts",
                    _("What became of doubts"),
                    DoubtOutcome,
                    ("partner", "what", "doubt", "outcome"),
                    ("partner", "what"),
                ),
            ),
        ),
        Report(
            PipelineJob.SLA,
            _("SLA attainment"),
            _("Were agreed times kept?"),
            (
                Table(
                    "months",
                    _("Months"),
                    SlaAttainment,
                    ("-month", "agreement", "target"),
                    ("agreement", "partner", "target"),
                ),
            ),
        ),
        Report(
            PipelineJob.ARCHIVE,
            _("Archive and retention"),
            _("What has left the store, and is it all there?"),
            (Table("days", _("Days"), ArchiveDay, ("day",)),),
            of_lake=False,
        ),
    )
}
