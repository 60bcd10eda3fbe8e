"""How agreements keep their service levels: this month, and the months before it. From counts, never from the store."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from django.db.models import F, QuerySet, Sum
from django.db.models.functions import TruncMonth

from messaging.choices import SlaTarget
from messaging.models import SlaMonth, SlaSpan, TrafficCursor
from messaging.sla.budget import Tally, allowed
from messaging.sla.services.counting import month_of, span_of
from partners import selectors
from partners.choices import Profile, VersionState
from partners.models import Agreement, AgreementVersion
from partners.visibility import limit

MONTHS = 12
NEARLY = 75.0  # per cent of the budget used from which one should look


@dataclass(frozen=True, slots=True)
class Attainment:
    """One target of an agreement in one calendar month (UTC). `within`: seconds, of the version that counts now; 0: it
    has no such target any more. `expected`: the documents that the budget is of.
    """

    agreement: Agreement
    target: SlaTarget
    month: date
    within: int
    percent: float
    due: int = 0
    met: int = 0
    open: int = 0
    expected: int = 0

    @property
    def missed(self) -> int:
        """Documents that were late, or whose limit is past."""
        return max(0, self.due - self.met - self.open)

    @property
    def decided(self) -> int:
        return self.met + self.missed

    @property
    def attained(self) -> float | None:
        """Per cent of what is decided; None when nothing is."""
        return 100 * self.met / self.decided if self.decided else None

    @property
    def allowed(self) -> int:
        """The error budget: misses that the target allows."""
        return allowed(self.expected, self.percent)

    @property
    def left(self) -> int:
        """What of the budget is left; below 0: so many misses too many."""
        return self.allowed - self.missed

    @property
    def used(self) -> float | None:
        """Per cent of the budget; None when not one miss is allowed and there was one."""
        if not self.allowed:
            return None if self.missed else 0.0
        return 100 * self.missed / self.allowed

    @property
    def state(self) -> str:
        """The state in a word: none (nothing decided), good, watch (the budget is nearly used), missed."""
        if not self.decided:
            return "none"
        if self.left < 0:
            return "missed"
        return "watch" if self.used is not None and self.used >= NEARLY else "good"


def counted_through() -> datetime | None:
    """Return up to when limits are judged: the end of the last five minutes of which all is counted. None: not yet."""
    through = TrafficCursor.objects.filter(pk=1).values_list("through", flat=True).first()
    return span_of(through) if through is not None else None


def targets(version: AgreementVersion | None) -> dict[SlaTarget, tuple[int, float]]:
    """Return the targets of a version: seconds and per cent."""
    if version is None:
        return {}
    found = {one: (getattr(version, f"{one}_within"), getattr(version, f"{one}_percent")) for one in SlaTarget}
    return {one: said for one, said in found.items() if said[0]}


def in_force() -> QuerySet[AgreementVersion]:
    """Versions in force that have a target, with their agreements."""
    found = AgreementVersion.objects.filter(state=VersionState.ACTIVE).select_related("agreement__partner")
    return (found.filter(acknowledged_within__gt=0) | found.filter(processed_within__gt=0)).order_by("pk")


def attainments(agreements: Collection[Agreement], now: datetime) -> list[Attainment]:
    """Return how the running month goes, by agreement and target: those that count now, and others with documents.

    `agreements` have their versions prefetched (`partners.selectors`). Three queries for all of them.
    """
    months = _months(agreements, month_of(now))
    found = []
    for agreement in agreements:
        promised = targets(selectors.current_version(agreement))
        for target in SlaTarget:
            known = months.get((agreement.pk, target))
            if target in promised:
                within, percent = promised[target]
                blank = Attainment(agreement, target, month_of(now), within, percent)
                found.append(replace(known, within=within) if known is not None else blank)
            elif known is not None and known.due:
                found.append(known)
    return found


def history(agreement: Agreement, now: datetime, *, most: int = MONTHS) -> list[Attainment]:
    """Return the months of an agreement that had documents, newest first, then by target; the running one too."""
    rows = SlaMonth.objects.filter(agreement=agreement).order_by("-month", "target")[: 2 * (most + 1)]
    kept = list(rows)
    before = {(row.target, row.month): row.due - row.withdrawn for row in kept}
    promised = targets(selectors.current_version(agreement))
    ahead = _ahead([agreement.pk])
    found = []
    for row in kept:
        within = promised.get(SlaTarget(row.target), (0, 0.0))[0]
        last = before.get((row.target, _month_before(row.month)), 0)
        found.append(_attainment(agreement, row, last, ahead, within))
    return [one for one in found if one.due][: 2 * most]


def tallies(now: datetime, longest: timedelta) -> dict[tuple[uuid.UUID, str], list[tuple[datetime, Tally]]]:
    """Return what was decided in the time that ended at `now`, by agreement, target and five minutes. One query."""
    rows = SlaSpan.objects.filter(at__gte=now - longest, at__lt=now)
    found: dict[tuple[uuid.UUID, str], list[tuple[datetime, Tally]]] = {}
    for agreement_id, target, at, due, met, withdrawn in rows.values_list(
        "agreement_id", "target", "at", "due", "met", "withdrawn"
    ):
        decided = max(due - withdrawn, met)
        found.setdefault((agreement_id, target), []).append((at, Tally(decided, decided - met)))
    return found


def worst(found: Iterable[Attainment]) -> Attainment | None:
    """Return the one whose budget is nearest to its end: what a list shows of a partner."""
    with_documents = [one for one in found if one.decided]
    return min(with_documents, key=_left_share, default=None)


def _left_share(one: Attainment) -> tuple[bool, float]:
    return one.left >= 0, -(one.used if one.used is not None else float("inf"))


def by_partner(party_ids: Collection[uuid.UUID], now: datetime) -> dict[uuid.UUID, list[Attainment]]:
    """Return how the running month goes, by partner. A fixed number of queries."""
    known = Agreement.objects.filter(partner__in=list(party_ids), pk__in=in_force().order_by().values("agreement"))
    known = limit(known, "partner")
    found: dict[uuid.UUID, list[Attainment]] = {}
    for one in attainments(list(known.select_related("partner").prefetch_related("versions").order_by("tpa_id")), now):
        found.setdefault(one.agreement.partner_id, []).append(one)
    return found


def measures_sending(version: AgreementVersion) -> bool:
    """Return whether `processed` is about what we send: final receipts say when it was."""
    return version.profile == Profile.STREAM and version.final_receipt


def _months(agreements: Collection[Agreement], month: date) -> dict[tuple[uuid.UUID, str], Attainment]:
    by_id = {agreement.pk: agreement for agreement in agreements}
    rows = list(SlaMonth.objects.filter(agreement__in=by_id, month__in=(month, _month_before(month))))
    before = {(row.agreement_id, row.target): row.due - row.withdrawn for row in rows if row.month != month}
    ahead = _ahead(by_id) if rows else {}
    return {
        (row.agreement_id, row.target): _attainment(
            by_id[row.agreement_id], row, before.get((row.agreement_id, row.target), 0), ahead, 0
        )
        for row in rows
        if row.month == month
    }


_Ahead = dict[tuple[uuid.UUID, str, date], int]


def _ahead(agreement_ids: Collection[uuid.UUID]) -> _Ahead:
    """What is neither met nor past its limit, by the month in which that limit ends."""
    through = counted_through()
    rows = SlaSpan.objects.filter(agreement__in=list(agreement_ids), **({"at__gte": through} if through else {}))
    sums = rows.annotate(month=TruncMonth("at", tzinfo=UTC)).values("agreement_id", "target", "month")
    return {
        (row["agreement_id"], row["target"], row["month"].date()): max(0, row["left"])
        for row in sums.annotate(left=Sum(F("due") - F("met") - F("withdrawn"))).order_by()
    }


def _attainment(agreement: Agreement, row: SlaMonth, before: int, ahead: _Ahead, within: int) -> Attainment:
    due = row.due - row.withdrawn
    return Attainment(
        agreement=agreement,
        target=SlaTarget(row.target),
        month=row.month,
        within=within,
        percent=row.percent,
        due=due,
        met=row.met,
        open=ahead.get((agreement.pk, row.target, row.month), 0),
        expected=max(due, before),
    )


def _month_before(month: date) -> date:
    return (month - timedelta(days=1)).replace(day=1)
