"""What is the matter with a trigger, in sentences: each knows since when, and what is newer decides."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from messaging import causes
from messaging.causes import Cause
from messaging.choices import Consult, ServiceKind, TriggerState
from messaging.journal.wording import lasting, span
from messaging.models import Trigger
from messaging.overview.selectors.health import OVERDUE_SECONDS
from messaging.pairs.selectors.diagnosis_parts import workers_behind

# A queue may be long: nobody reads an exact number beyond this, and counting further would cost.
MOST = 10_000
# Suspended for these, it is as it was until a person says so: no document that came through since disproves it.
_ONLY_PEOPLE_KNOW = frozenset({"suspended_by_user", "service_error"})


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a trigger has to do, and what people have to look at. `oldest_at`: when the oldest that waits was stored."""

    waiting: int = 0
    running: int = 0
    joined: int = 0
    in_doubt: int = 0
    failed: int = 0
    oldest_at: datetime | None = None
    due_at: datetime | None = None  # when the first that waits was, or is, due

    @property
    def held(self) -> int:
        """Documents that do not go on while the trigger is suspended or disabled."""
        return self.waiting + self.running


@dataclass(frozen=True, slots=True)
class TriggerDiagnosis:
    """What is the matter, in sentences. `next_look`: when its monitor is asked next, if that may resume it."""

    state: str
    headline: str
    why: str = ""
    outlook: str = ""
    advice: str = ""
    short: str = ""
    cause: Cause | None = None
    next_look: datetime | None = None

    @property
    def sentence(self) -> str:
        """All of it in a row, for the API and for screen readers."""
        return " ".join(part for part in (self.headline, self.why, self.outlook) if part)


def diagnose(
    trigger: Trigger, backlog: Backlog, now: datetime, *, changed_at: datetime | None = None
) -> TriggerDiagnosis:
    """What is the matter with a trigger, from its row and its backlog; no queries of its own.

    `changed_at`: when a person last entered something else. What is newer than the suspension decides what is said.
    """
    since = lasting(trigger.changed_at, now)
    if trigger.state == TriggerState.SUSPENDED:
        return _suspended(trigger, backlog, since, now, changed_at)
    if trigger.state == TriggerState.DISABLED:
        return TriggerDiagnosis(
            trigger.state,
            f"Disabled{since}.",
            why="Documents that come now make no delivery to it.",
            outlook=_waits(backlog, "wait until it is enabled"),
            advice="Enable it to take documents again; those that came meanwhile are not handed over later.",
            short="Takes no documents",
        )
    return _active(trigger, backlog, now)


def _suspended(
    trigger: Trigger, backlog: Backlog, since: str, now: datetime, changed_at: datetime | None
) -> TriggerDiagnosis:
    cause = causes.lookup(trigger.cause)
    why, advice = _newer(trigger, cause, now, changed_at) or (cause.sentence, cause.action)
    asked = trigger.monitor_due_at if trigger.monitor != Consult.NONE else None
    if asked is not None:
        outlook = "Its resource monitor is asked again, and resumes it when it says that the resources are there."
        late = (now - asked).total_seconds()
        if late > OVERDUE_SECONDS:
            outlook, advice = workers_behind(late)
    else:
        outlook = "Nothing is handed over until somebody resumes it."
    return TriggerDiagnosis(
        trigger.state,
        f"Suspended{since}.",
        why=why,
        outlook=f"{_waits(backlog, 'wait; those that come now wait behind them')} {outlook}",
        advice=advice,
        short=cause.label,
        cause=cause,
        next_look=asked,
    )


def _newer(trigger: Trigger, cause: Cause, now: datetime, changed_at: datetime | None) -> tuple[str, str] | None:
    """What is known since the suspension, and what to do then; None when it is still as its cause says, or when only a
    person can say so.
    """
    suspended = trigger.changed_at
    if suspended is None or trigger.cause in _ONLY_PEOPLE_KNOW:
        return None
    before = f"It was suspended for “{cause.label}”."
    worked = trigger.last_success_at
    if worked is not None and suspended < worked <= now and (changed_at is None or changed_at <= worked):
        return f"A document was processed {span((now - worked).total_seconds())} ago. {before}", "Resume it."
    if changed_at is not None and suspended < changed_at <= now:
        ago = span((now - changed_at).total_seconds())
        said = f"Its settings were changed {ago} ago, and nothing was handed over since. {before}"
        return said, "Resume it to see whether it works now."
    return None


def _active(trigger: Trigger, backlog: Backlog, now: datetime) -> TriggerDiagnosis:
    if not backlog.held:
        return TriggerDiagnosis(trigger.state, "Nothing waits.", outlook=_people(backlog), short="Nothing waits")
    parts = []
    if backlog.running:
        verb = "taken" if trigger.kind == ServiceKind.PULL else "in work"
        parts.append(f"{_number(backlog.running)} {verb}")
    if backlog.waiting:
        parts.append(f"{_number(backlog.waiting)} waiting")
    short = ", ".join(parts)
    why, advice = [], ""
    if backlog.waiting and backlog.oldest_at is not None:
        why.append(f"The oldest has waited{lasting(backlog.oldest_at, now)}.")
    if trigger.failing_since is not None:
        ago = span((now - trigger.failing_since).total_seconds())
        why.append(f"Handing over failed {ago} ago, and has not succeeded since.")
    elif late := _late(trigger, backlog, now):
        why.append(f"It was due {span(late)} ago, and no worker has taken it up.")
        advice = workers_behind(late)[1]
    return TriggerDiagnosis(
        trigger.state, f"{short.capitalize()}.", " ".join(why), outlook=_people(backlog), advice=advice, short=short
    )


def _late(trigger: Trigger, backlog: Backlog, now: datetime) -> float:
    """Seconds by which the hub is late with what waits; 0 where its turn may not have come, or a consumer takes it."""
    if trigger.kind == ServiceKind.PULL or backlog.running or backlog.due_at is None:
        return 0
    late = (now - max(backlog.due_at, trigger.changed_at or backlog.due_at)).total_seconds()
    return late if late > OVERDUE_SECONDS else 0


def _people(backlog: Backlog) -> str:
    """What no machine goes on with."""
    parts = []
    if backlog.in_doubt:
        parts.append(f"{_number(backlog.in_doubt)} in doubt")
    if backlog.failed:
        parts.append(f"{_number(backlog.failed)} failed")
    return f"{' and '.join(parts)}: a person decides." if parts else ""


def _waits(backlog: Backlog, how: str) -> str:
    count = backlog.held
    if not count:
        return "Nothing waits."
    if count == 1:
        return f"1 document {how.replace('wait', 'waits', 1)}."
    return f"{_number(count)} documents {how}."


def _number(count: int) -> str:
    return f"{count:,}" if count < MOST else f"{MOST:,} or more"
