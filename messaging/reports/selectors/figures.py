"""What the rows of a report amount to: figures for its page and for the list of reports, service levels for charts.

Only what may be added up is added up. Percentiles are not: a bucket has its own, and the whole range has its own row.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta

from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum

from messaging.models import (
    ArchiveDay,
    AuditFinding,
    AuditPair,
    DoubtOutcome,
    PipelineRun,
    ReconciliationSummary,
    RepeatHistogram,
    ServiceError,
    ServiceLevel,
    SlaAttainment,
    TimingAdvice,
    TimingFailure,
    TimingLatency,
    WindowAdvice,
)
from messaging.report_choices import Grain, TimingOption, Verdict

# The risk that windows are judged by in sentences: one repeat in a million taken for a new message.
RISK = 1_000_000
_MOST = 4000
STEP = {Grain.HOUR.value: timedelta(hours=1), Grain.DAY.value: timedelta(days=1)}


@dataclass(frozen=True, slots=True)
class Choice:
    """An agreement's parameters in force beside the proposed ones, both replayed over the same messages."""

    agreement_id: uuid.UUID
    now: TimingAdvice
    then: TimingAdvice

    @property
    def fits(self) -> bool:
        """Whether what is in force is what is proposed."""
        return _parameters(self.now) == _parameters(self.then)


@dataclass(slots=True)
class Bucket:
    """An hour, a day or more of them together, both directions unless one was chosen. Percentiles in seconds."""

    at: datetime | None = None
    messages: int = 0
    bytes: int = 0
    succeeded: int = 0
    failed: int = 0
    in_doubt: int = 0
    under_way: int = 0
    attempts: int = 0
    duplicates: int = 0
    suspensions: int = 0
    resumed: int = 0
    seconds_to_resume: float = 0.0
    ack_p50: float | None = None
    ack_p95: float | None = None
    ack_p99: float | None = None

    @property
    def ended(self) -> int:
        """Messages whose end is known."""
        return self.succeeded + self.failed + self.in_doubt

    @property
    def success(self) -> float | None:
        """Share of those that ended well, 0 to 1."""
        return self.succeeded / self.ended if self.ended else None

    @property
    def failed_share(self) -> float | None:
        return self.failed / self.messages if self.messages else None

    @property
    def mean_to_resume(self) -> float | None:
        return self.seconds_to_resume / self.resumed if self.resumed else None


_SUMS = tuple(
    one.name for one in fields(Bucket) if one.name not in ("at", "seconds_to_resume") and "ack" not in one.name
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time in buckets without a hole, and the sums of it."""

    begin: datetime
    end: datetime
    buckets: Sequence[Bucket]
    total: Bucket


def audited(run_id: uuid.UUID) -> tuple[int, int]:
    """(messages, pairs) that the audit looked at."""
    found = AuditPair.objects.filter(run_id=run_id).aggregate(messages=Sum("messages"), pairs=Count("id"))
    return found["messages"] or 0, found["pairs"]


def violations(run_id: uuid.UUID) -> int:
    """Findings that break a promise."""
    return AuditFinding.objects.filter(run_id=run_id, violation=True).count()


def window_advice(run_id: uuid.UUID) -> list[WindowAdvice]:
    """By partner, profile and risk."""
    return list(WindowAdvice.objects.filter(run_id=run_id).order_by("partner", "profile", "one_in")[:_MOST])


def targets_missed(run_id: uuid.UUID) -> tuple[datetime | None, int, list[SlaAttainment]]:
    """(newest month, its targets, those of which more documents were late than they allow), by agreement."""
    found = SlaAttainment.objects.filter(run_id=run_id)
    month = found.aggregate(last=Max("month"))["last"]
    newest = found.filter(month=month)
    missed = newest.filter(missed__gt=F("allowed")).order_by("agreement", "target")[:_MOST]
    return month, newest.count(), list(missed)


def windows_judged(run_id: uuid.UUID) -> tuple[int, int]:
    """(windows in force whose risk is known, those too short for `RISK`)."""
    found = WindowAdvice.objects.filter(run_id=run_id, one_in=RISK, suffices__isnull=False)
    counted = found.aggregate(judged=Count("id"), short=Count("id", filter=Q(suffices=False)))
    return counted["judged"], counted["short"]


def repeats(run_id: uuid.UUID, partner: str, profile: str) -> dict[int, int]:
    """Repeats by delay: upper limit in seconds (a power of two) -> count."""
    found = RepeatHistogram.objects.filter(run_id=run_id, partner=partner, profile=profile)
    return dict(found.values_list("upper", "repeats"))


def timing_unadvised(run_id: uuid.UUID) -> int:
    """Agreements that were looked at, and had too little to propose anything."""
    advised = TimingAdvice.objects.filter(run_id=run_id).aggregate(
        all=Count("agreement_id", distinct=True),
        some=Count("agreement_id", distinct=True, filter=Q(option=TimingOption.PROPOSED)),
    )
    return int(advised["all"] - advised["some"])


def timing_choices(run_id: uuid.UUID) -> list[Choice]:
    """Every agreement that has a proposal, by TPAId."""
    options: dict[uuid.UUID, dict[str, TimingAdvice]] = {}
    for one in TimingAdvice.objects.filter(run_id=run_id).order_by("agreement", "agreement_id", "option")[:_MOST]:
        options.setdefault(one.agreement_id, {})[one.option] = one
    return [
        Choice(key, both[TimingOption.IN_FORCE], both[TimingOption.PROPOSED])
        for key, both in options.items()
        if len(both) == len(TimingOption.values)
    ]


def timing_latency(run_id: uuid.UUID, agreement_id: uuid.UUID) -> TimingLatency | None:
    return TimingLatency.objects.filter(run_id=run_id, agreement_id=agreement_id).first()


def timing_failures(run_id: uuid.UUID, agreement_id: uuid.UUID, limit: int = 10) -> list[TimingFailure]:
    """Why attempts failed, the most frequent cause first."""
    found = TimingFailure.objects.filter(run_id=run_id, agreement_id=agreement_id)
    return list(found.order_by("-attempts", "cause")[:limit])


def verdicts(run_id: uuid.UUID) -> dict[tuple[str, str], int]:
    """(direction, verdict) -> messages."""
    found = ReconciliationSummary.objects.filter(run_id=run_id).order_by("direction", "verdict")
    return {(one.direction, one.verdict): one.messages for one in found}


def apart(counts: dict[tuple[str, str], int]) -> int:
    """How many of `verdicts` are not agreed."""
    return sum(number for (_, verdict), number in counts.items() if verdict != Verdict.AGREED)


def levels_total(run_id: uuid.UUID) -> tuple[int, int, int]:
    """(messages, those whose end is known, those that ended well) of all partners in the whole range."""
    found = ServiceLevel.objects.filter(run_id=run_id, grain=Grain.TOTAL, partner="")
    rows: Sequence[tuple[int, ...]] = list(found.values_list("messages", "succeeded", "failed", "in_doubt"))
    return sum(row[0] for row in rows), sum(sum(row[1:]) for row in rows), sum(row[1] for row in rows)


def archived(run_id: uuid.UUID) -> dict[str, int]:
    """What a run of archive and retention did in all: days, messages, payloads, bytes, purged, held, differing."""
    names = ("messages", "payloads", "bytes", "purged", "held", "differing")
    sums = {f"sum_{name}": Sum(name) for name in names}
    found = ArchiveDay.objects.filter(run_id=run_id).aggregate(days=Count("id"), **sums)
    return {"days": found["days"], **{name: found[f"sum_{name}"] or 0 for name in names}}


def _parameters(one: TimingAdvice) -> tuple[int, int, int]:
    return one.timeout, one.retries, one.retry_interval


def extent(run: PipelineRun) -> tuple[datetime, datetime] | None:
    """Begin of the first and end of the last day that the run has numbers of; None without any."""
    found = _levels(run.pk, Grain.DAY, "").aggregate(first=Min("at"), last=Max("at"))
    if found["first"] is None:
        return None
    return found["first"], found["last"] + STEP[Grain.DAY]


def has_partner(run_id: uuid.UUID, name: str) -> bool:
    """Whether the run has numbers of the partner."""
    return ServiceLevel.objects.filter(run_id=run_id, grain=Grain.TOTAL, partner=name).exists()


def stretches(
    run_id: uuid.UUID, *, grain: str, partner: str, direction: str, begin: datetime, end: datetime
) -> tuple[Stretch, Stretch]:
    """The stretch from `begin` to `end` and the equally long one before it, in one query."""
    before = begin - (end - begin)
    found = _levels(run_id, grain, partner).filter(at__gte=before, at__lt=end)
    if direction:
        found = found.filter(direction=direction)
    by_time: dict[datetime, Bucket] = {}
    for row in found:
        assert row.at is not None  # the whole range has none, and was not asked for
        bucket = by_time.setdefault(row.at, Bucket(row.at))
        _add(bucket, row)
        for name in ("ack_p50", "ack_p95", "ack_p99"):
            # Only what we sent is acknowledged to us: of two directions one has percentiles.
            if getattr(row, name) is not None:
                setattr(bucket, name, getattr(row, name))
    return _stretch(by_time, begin, end, STEP[grain]), _stretch(by_time, before, begin, STEP[grain])


def whole(run_id: uuid.UUID, *, partner: str, direction: str) -> Bucket:
    """The run's whole range; its percentiles are exact."""
    found = _levels(run_id, Grain.TOTAL, partner)
    total = Bucket()
    for row in found.filter(direction=direction) if direction else found:
        _add(total, row)
        for name in ("ack_p50", "ack_p95", "ack_p99"):
            if getattr(row, name) is not None:
                setattr(total, name, getattr(row, name))
    return total


def causes(run_id: uuid.UUID, partner: str, limit: int = 12) -> list[ServiceError]:
    """Errors by cause, the most frequent first."""
    found = ServiceError.objects.filter(run_id=run_id, partner=partner)
    return list(found.order_by("-count", "kind", "cause")[:limit])


def doubts(run_id: uuid.UUID, partner: str) -> list[DoubtOutcome]:
    """What became of what was in doubt."""
    found = DoubtOutcome.objects.filter(run_id=run_id, partner=partner)
    return list(found.order_by("what", "doubt", "outcome")[:200])


def by_weekday(buckets: Sequence[Bucket]) -> list[list[Bucket]]:
    """Hours added up by day of the week (Monday first) and hour of the day, in UTC."""
    week = [[Bucket() for _ in range(24)] for _ in range(7)]
    for one in buckets:
        if one.at is not None:
            moment = one.at.astimezone(UTC)
            _add(week[moment.weekday()][moment.hour], one)
    return week


def _levels(run_id: uuid.UUID, grain: str, partner: str) -> QuerySet[ServiceLevel]:
    return ServiceLevel.objects.filter(run_id=run_id, grain=grain, partner=partner)


def _stretch(by_time: dict[datetime, Bucket], begin: datetime, end: datetime, step: timedelta) -> Stretch:
    buckets, total, at = [], Bucket(), begin
    while at < end:
        bucket = by_time.get(at) or Bucket(at)
        buckets.append(bucket)
        _add(total, bucket)
        at += step
    return Stretch(begin, end, buckets, total)


def _add(bucket: Bucket, row: ServiceLevel | Bucket) -> None:
    for name in _SUMS:
        setattr(bucket, name, getattr(bucket, name) + getattr(row, name))
    if isinstance(row, Bucket):
        bucket.seconds_to_resume += row.seconds_to_resume
    elif row.mean_seconds_to_resume is not None:
        bucket.seconds_to_resume += row.mean_seconds_to_resume * row.resumed
