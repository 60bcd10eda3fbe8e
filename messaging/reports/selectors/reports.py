"""Reports as screens, the API and downloads read them: which run is shown, what its columns mean, and its rows.

What readers see is decided by one row, `PublishedReport`: it is read once, and everything else by the run's id. So a
page, a file and an answer of the API are always of one run, whatever is published meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import models
from django.db.models import Case, Count, QuerySet, Sum, Value, When
from django.utils.translation import gettext as _

from messaging import keyset
from messaging.exceptions import InvalidSubmission, NotFound
from messaging.models import PipelineRun, PublishedReport
from messaging.report_choices import OPEN, RunState
from messaging.reports.catalogue import REPORTS, Report, Table
from messaging.reports.services.publishing import RUNS_KEPT
from messaging.spreadsheet import line
from rmhub.ids import public_id, read_public_id
from rmhub.language import gettext_lazy

_LOOK_BACK = 60
_SECONDS = frozenset(
    {
        *("p50", "p90", "p99", "p999", "longest", "longest_outage", "upper"),
        *("ack_p50", "ack_p95", "ack_p99", "mean_seconds", "p95_seconds", "mean_seconds_to_resume"),
        *("window", "in_force", "gives_up_after", "timeout", "retry_interval"),
    }
)
_SHARES = frozenset({"share", "cumulative"})
# What a column is called whose field says nothing but its name.
_TITLES = {
    "ack_p50": gettext_lazy("Ack p50"),
    "ack_p95": gettext_lazy("Ack p95"),
    "ack_p99": gettext_lazy("Ack p99"),
    "agreement": gettext_lazy("Agreement"),
    "agreement_id": gettext_lazy("Agreement's id"),
    "at": gettext_lazy("At"),
    "attempts": gettext_lazy("Attempts"),
    "basis": gettext_lazy("Basis"),
    "bytes": gettext_lazy("Bytes"),
    "cause": gettext_lazy("Cause"),
    "cost": gettext_lazy("Cost"),
    "count": gettext_lazy("Count"),
    "cumulative": gettext_lazy("Cumulative"),
    "day": gettext_lazy("Day"),
    "detail": gettext_lazy("Detail"),
    "differing": gettext_lazy("Differing"),
    "direction": gettext_lazy("Direction"),
    "doubt": gettext_lazy("Doubt"),
    "due": gettext_lazy("Due"),
    "duplicates": gettext_lazy("Duplicates"),
    "failed": gettext_lazy("Failed"),
    "first_at": gettext_lazy("First at"),
    "first_number": gettext_lazy("First number"),
    "given_up": gettext_lazy("Given up"),
    "gives_up_after": gettext_lazy("Gives up after"),
    "grain": gettext_lazy("Grain"),
    "held": gettext_lazy("Held"),
    "in_doubt": gettext_lazy("In doubt"),
    "kind": gettext_lazy("Kind"),
    "last_at": gettext_lazy("Last at"),
    "last_number": gettext_lazy("Last number"),
    "longest": gettext_lazy("Longest"),
    "longest_outage": gettext_lazy("Longest outage"),
    "mean_seconds": gettext_lazy("Mean time"),
    "mean_seconds_to_resume": gettext_lazy("Mean time to resume"),
    "messages": gettext_lazy("Messages"),
    "met": gettext_lazy("Met"),
    "missed": gettext_lazy("Missed"),
    "month": gettext_lazy("Month"),
    "open": gettext_lazy("Open"),
    "option": gettext_lazy("Option"),
    "our_at": gettext_lazy("Our at"),
    "our_copies": gettext_lazy("Our copies"),
    "our_digest": gettext_lazy("Our digest"),
    "our_state": gettext_lazy("Our state"),
    "outcome": gettext_lazy("Outcome"),
    "p95_seconds": gettext_lazy("p95 time"),
    "pair": gettext_lazy("Pair"),
    "pair_id": gettext_lazy("Pair's id"),
    "partner": gettext_lazy("Partner"),
    "payloads": gettext_lazy("Payloads"),
    "profile": gettext_lazy("Profile"),
    "purged": gettext_lazy("Purged"),
    "repeats": gettext_lazy("Repeats"),
    "resets": gettext_lazy("Resets"),
    "resumed": gettext_lazy("Resumed"),
    "retries": gettext_lazy("Retries"),
    "retries_per_message": gettext_lazy("Retries per message"),
    "retry_interval": gettext_lazy("Retry interval"),
    "sequence_number": gettext_lazy("Sequence number"),
    "share": gettext_lazy("Share"),
    "succeeded": gettext_lazy("Succeeded"),
    "suspensions": gettext_lazy("Suspensions"),
    "target": gettext_lazy("Target"),
    "their_at": gettext_lazy("Their at"),
    "their_copies": gettext_lazy("Their copies"),
    "their_digest": gettext_lazy("Their digest"),
    "timeout": gettext_lazy("Timeout"),
    "unanswered": gettext_lazy("Unanswered"),
    "under_way": gettext_lazy("Under way"),
    "upper": gettext_lazy("Upper"),
    "verdict": gettext_lazy("Verdict"),
    "what": gettext_lazy("What"),
    "window": gettext_lazy("Window"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a report table.

    `kind`: text, integer, number, time, date, boolean, ids (a list of MessageIds), uuid. `unit`: s, bytes, share (0 to
    1) or nothing. `choices`: value -> words.
    """

    name: str
    title: str
    kind: str
    unit: str
    description: str
    nullable: bool
    choices: Mapping[str, str] = field(default_factory=dict)

    @property
    def sortable(self) -> bool:
        return self.kind != "ids"

    @property
    def numeric(self) -> bool:
        return self.kind in ("integer", "number")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a reader of a report is shown. `run` is None when there is nothing yet.

    `current` is the published run, which `run` differs from when an earlier one was asked for. `failed` is the newest
    run that failed after it, `active` one that waits or works now. `earlier` are runs whose rows are
    kept, newest first.
    """

    report: Report
    scope: str
    run: PipelineRun | None
    current: PipelineRun | None
    failed: PipelineRun | None
    active: PipelineRun | None
    earlier: Sequence[PipelineRun]

    @property
    def is_current(self) -> bool:
        return self.run is not None and self.current is not None and self.run.pk == self.current.pk


def report(job: str) -> Report:
    """The report of a job. Raises NotFound."""
    found = REPORTS.get(job)
    if found is None:
        raise NotFound(
            _("There is no report {name}; there are {names}.").format(name=repr(job[:60]), names=", ".join(REPORTS))
        )
    return found


def table(of: Report, name: str) -> Table:
    """A table of a report. Raises NotFound."""
    try:
        return of.table(name)
    except KeyError:
        names = ", ".join(one.name for one in of.tables)
        raise NotFound(
            _("The report {report} has no table {name}; it has {names}.").format(
                report=of.job.value, name=repr(name[:60]), names=names
            )
        ) from None


def published(job: str, scope: str = "") -> PublishedReport | None:
    """Which run readers of a report see, with the run; one query."""
    return PublishedReport.objects.select_related("run").filter(job=job, scope=scope).first()


def published_of(job: str) -> QuerySet[PublishedReport]:
    """All published results of a job, one a scope, with their runs. Not ordered; pages by ("-id",)."""
    return PublishedReport.objects.select_related("run").filter(job=job)


def shown(job: str, *, scope: str = "", run: str = "") -> Shown:
    """The report as it is to be shown now, or as a kept run (`run_...`) left it; two queries.

    Raises NotFound for an unknown report and for a run whose rows are not there, BadPublicId.
    """
    of = report(job)
    current = published(job, scope)
    runs = list(PipelineRun.objects.filter(job=job, scope=scope).order_by("-id")[:_LOOK_BACK])
    kept = [one for one in runs if one.state == RunState.SUCCEEDED and one.rows is not None][:RUNS_KEPT]
    chosen = current.run if current else None
    if run:
        key = read_public_id("run", run)
        chosen = next((one for one in kept if one.pk == key), None)
        if chosen is None:
            raise NotFound(
                _("{run} is not a run of this report whose results are kept.").format(run=public_id("run", key))
            )
    return _shown(of, scope, current, runs, chosen, kept)


def overview() -> list[Shown]:
    """All reports as they are shown now, in their order; of reconciliations the newest. Two queries."""
    current: dict[str, PublishedReport] = {}
    for one in PublishedReport.objects.select_related("run").order_by("run_id"):
        current[one.job] = one
    runs: dict[str, list[PipelineRun]] = {}
    for run in PipelineRun.objects.filter(job__in=list(REPORTS)).order_by("-id")[: _LOOK_BACK * len(REPORTS)]:
        runs.setdefault(run.job, []).append(run)
    found = []
    for job, of in REPORTS.items():
        newest = current.get(job)
        scope, chosen = (newest.scope, newest.run) if newest else ("", None)
        found.append(_shown(of, scope, newest, runs.get(job, []), chosen, ()))
    return found


def _shown(
    of: Report,
    scope: str,
    current: PublishedReport | None,
    runs: Sequence[PipelineRun],
    chosen: PipelineRun | None,
    earlier: Sequence[PipelineRun],
) -> Shown:
    since = [one for one in runs if current is None or one.pk > current.run_id]
    return Shown(
        report=of,
        scope=scope,
        run=chosen,
        current=current.run if current else None,
        failed=next((one for one in since if one.state == RunState.FAILED), None),
        active=next((one for one in runs if one.state in OPEN), None),
        earlier=earlier,
    )


def columns(of: Table) -> tuple[Column, ...]:
    """What a table's rows hold, in the order of files and screens."""
    return tuple(_column(one) for one in of.columns)


def _column(one: models.Field[Any, Any]) -> Column:
    title = str(one.verbose_name)
    if title == one.name.replace("_", " "):
        title = str(_TITLES.get(one.name, title))
    return Column(
        name=one.name,
        title=title if title[:2].lower() in ("p5", "p9") else title[:1].upper() + title[1:],
        kind=_kind(one),
        unit="s" if one.name in _SECONDS else "share" if one.name in _SHARES else "bytes" * (one.name == "bytes"),
        description=str(one.help_text),
        nullable=bool(one.null),
        choices={str(value): str(label) for value, label in (one.flatchoices or ())},
    )


def _kind(one: models.Field[Any, Any]) -> str:
    # A date-time is a DateField too, so it is asked first.
    for kind, classes in (
        ("time", models.DateTimeField),
        ("date", models.DateField),
        ("boolean", models.BooleanField),
        ("integer", models.IntegerField),
        ("number", models.FloatField),
        ("ids", models.JSONField),
        ("uuid", models.UUIDField),
    ):
        if isinstance(one, classes):
            return kind
    return "text"


def order_of(of: Table, sort: str = "") -> tuple[str, ...]:
    """The sort keys of a list: `sort` is a column, with "-" in front from the greatest; "" = the table's own order.

    Nothing of a value comes last, whichever way a column is sorted. Raises InvalidSubmission.
    """
    wanted = (sort,) if sort else of.order
    known = {one.name: one for one in columns(of)}
    keys: list[str] = []
    for key in (*wanted, "id"):
        name = key.removeprefix("-")
        if name == "id":
            keys.append(key)
            break
        if name not in known or not known[name].sortable:
            names = ", ".join(one.name for one in known.values() if one.sortable)
            raise InvalidSubmission(
                {"sort": [_("{name} is not a column to sort by: {names}.").format(name=repr(name[:60]), names=names)]}
            )
        if known[name].nullable:
            keys.append(f"{name}_none")
        keys.append(key)
    return tuple(keys)


def rows(run_id: uuid.UUID, of: Table, filters: Mapping[str, object] | None = None) -> QuerySet[Any]:
    """Rows that a run left in a table and that are equal to the filters; keys are columns. Not ordered.

    Raises InvalidSubmission for a filter that the table does not have.
    """
    given = dict(filters or {})
    allowed = {*of.filters, *(one.name for one in columns(of) if one.kind == "boolean")}
    unknown = [name for name in given if name not in allowed]
    if unknown:
        said = _("There is no such filter; there are {names}.").format(names=", ".join(sorted(allowed)))
        raise InvalidSubmission({name: [said] for name in unknown})
    if any("\x00" in value for value in given.values() if isinstance(value, str)):
        return of.model._default_manager.none()
    return of.model._default_manager.filter(run_id=run_id, **given)


def mark(run_id: uuid.UUID, of: Table, filters: Mapping[str, object], sort: str) -> str:
    """The name of a list for its cursors: a cursor of one run is none of another."""
    return keyset.fingerprint(f"report.{run_id}.{of.name}", dict(filters), sort)


def row_page(
    found: QuerySet[Any], of: Table, *, sort: str = "", limit: int = 50, place: keyset.Place | None = None
) -> keyset.Page[Any]:
    """One page of `rows`, in one query. Raises InvalidSubmission for a sort that there is not."""
    order = order_of(of, sort)
    return keyset.page(_with_none_last(found, order), order=order, limit=limit, place=place)


def _with_none_last(found: QuerySet[Any], order: Sequence[str]) -> QuerySet[Any]:
    for key in order:
        if key.endswith("_none"):
            is_none = When(**{f"{key.removesuffix('_none')}__isnull": True, "then": Value(1)})
            found = found.annotate(**{key: Case(is_none, default=Value(0))})
    return found


def csv_lines(run_id: uuid.UUID, of: Table, filters: Mapping[str, object], sort: str = "") -> Iterator[str]:
    """The rows as CSV (RFC 4180, UTF-8), header first, a line at a time and never all of them in memory.

    Times are ISO 8601 in UTC, lists are JSON. A text that a spreadsheet would take for a formula gets an apostrophe in
    front; Parquet files have it as it is. Raises what `rows` and `order_of` raise before the first line.
    """
    order = order_of(of, sort)
    names = [one.name for one in of.columns]
    found = _with_none_last(rows(run_id, of, filters), order).order_by(*order).values_list(*names)
    return _csv(names, found)


def _csv(names: Sequence[str], found: QuerySet[Any, tuple[Any, ...]]) -> Iterator[str]:
    yield line(names)
    for row in found.iterator(chunk_size=2000):
        yield line(row)


def finding_counts(run_id: uuid.UUID, of: Table, key: str, amount: str = "") -> dict[str, tuple[int, int]]:
    """Value of a column -> (rows, sum of `amount`, 0 without one); one query."""
    total = Sum(amount) if amount else Value(0)
    counted = rows(run_id, of).order_by().values_list(key).annotate(rows_counted=Count("id"), amount_summed=total)
    return {str(value): (count, int(summed or 0)) for value, count, summed in counted}


def values_of(run_id: uuid.UUID, of: Table, name: str, limit: int = 500) -> list[str]:
    """What a column holds, each once, in order: for the choice of a filter."""
    found = rows(run_id, of).order_by(name).values_list(name, flat=True).distinct()[:limit]
    return [str(value) for value in found]


def previous(shown_run: PipelineRun, runs: Sequence[PipelineRun]) -> PipelineRun | None:
    """The kept run that is of the range right before this one's and as long: what it can be compared with, or None."""
    begin, end = shown_run.range_from, shown_run.range_to
    if begin is None or end is None:
        return None
    length = end - begin
    for one in runs:
        if one.range_from is not None and one.range_to == begin and one.range_to - one.range_from == length:
            return one
    return None
