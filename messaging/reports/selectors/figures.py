"""What the rows of a report amount to: the figures that its page and the list of reports put into sentences."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, Sum

from messaging.models import (
    ArchiveDay,
    AuditFinding,
    AuditPair,
    ReconciliationSummary,
    RepeatHistogram,
    ServiceLevel,
    TimingAdvice,
    TimingFailure,
    TimingLatency,
    WindowAdvice,
)
from messaging.report_choices import Grain, TimingOption, Verdict

# The risk that windows are judged by in sentences: one repeat in a million taken for a new message.
RISK = 1_000_000
_MOST = 4000


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


@dataclass(frozen=True, slots=True)
class Archived:
    """Sums of a run of archive and retention."""

    days: int
    messages: int
    payloads: int
    bytes: int
    purged: int
    held: int
    differing: int


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


def archived(run_id: uuid.UUID) -> Archived:
    """What a run of archive and retention did in all."""
    names = ("messages", "payloads", "bytes", "purged", "held", "differing")
    sums = {f"sum_{name}": Sum(name) for name in names}
    found = ArchiveDay.objects.filter(run_id=run_id).aggregate(days=Count("id"), **sums)
    return Archived(found["days"], *(found[f"sum_{name}"] or 0 for name in names))


def _parameters(one: TimingAdvice) -> tuple[int, int, int]:
    return one.timeout, one.retries, one.retry_interval
