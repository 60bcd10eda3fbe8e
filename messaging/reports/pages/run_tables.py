"""Tables of runs, of what they read and wrote, of the lake, and of partners' logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator, capfirst

from messaging.console import cells
from messaging.console.resource import Column, table
from messaging.models import PartnerLog, PipelineRun
from messaging.report_choices import Verdict
from messaging.templatetags.hub import ago, instant, middle, octets, run_range, state, took

# --- runs ---


def _job(row: Any) -> SafeString:
    run = row.run
    href = cells.to("pipeline-run", run.public_id)
    scope = format_html('<div class="mono text-faint">{}</div>', middle(run.scope, 24)) if run.scope else ""
    return cells.joined(cells.link(href, run.get_job_display(), "strong", id=f"open-{run.public_id}"), scope)


def _progress(row: Any) -> object:
    run = row.run
    if run.state == "running":
        bar = '<progress value="{}" max="100" aria-label="Progress of {}">{} %</progress> '
        percent = row.percent
        return cells.joined(
            format_html(bar, percent, run.get_job_display(), percent) if percent is not None else "",
            run.step,
            format_html(' <span class="text-bad">{}</span>', "being cancelled") if run.cancel_requested else "",
        )
    if run.state == "failed":
        return cells.span("text-bad", Truncator(run.error).chars(160))
    if run.state == "queued" and row.unclaimed:
        return cells.span("text-bad", "nobody takes it")
    return f"{run.rows:,} row{'s' if run.rows != 1 else ''}" if run.rows is not None else cells.NONE


_RUNS = (
    Column("Requested", lambda row: ago(row.run.created_at), "nowrap", zoned=True),
    Column("State", lambda row: state("run", row.run.state), "nowrap"),
    Column("Job", _job),
    Column("Progress, result", _progress, narrow="Progress"),
    Column("Range", lambda row: run_range(row.run)),
    Column("Took", lambda row: took(row.seconds) or "—", "num nowrap"),
    Column("By", lambda row: row.run.requested_by),
)


def runs(rows: list[Any]) -> dict[str, Any]:
    """Return the table of runs with their progress."""
    about = lambda row: {"data-state": row.run.state, "data-testid": "run-row"}  # noqa: E731
    return table("Runs, newest first", _RUNS, rows, about=about)


LAKE = (
    Column("Rows of", lambda one: capfirst(one.entity)),
    Column("Rows", lambda one: cells.number(one.rows), "num"),
    Column("Files", lambda one: cells.number(one.files), "num"),
    Column("Size", lambda one: octets(one.bytes), "num"),
    Column(
        "First day", lambda one: one.first_day.isoformat() if one.first_day else cells.span("text-faint", "whole list")
    ),
    Column("Last day", lambda one: one.last_day.isoformat() if one.last_day else "—"),
)


INPUTS = (
    Column("Rows of", lambda one: capfirst(one[0])),
    Column("Files", lambda one: cells.number(one[1].get("files")), "num"),
    Column("Rows, all versions", lambda one: cells.number(one[1].get("rows")), "num", narrow="Rows"),
    Column("Size", lambda one: "—" if one[1].get("bytes") is None else octets(one[1]["bytes"]), "num"),
)


def files(run: PipelineRun) -> dict[str, Any]:
    """Return the table of what a run wrote."""

    def name(one: Mapping[str, Any]) -> SafeString:
        return cells.link(cells.to("pipeline-file", run.public_id, one["name"]), one["name"], "strong")

    columns = (
        Column("Name", name),
        Column("Rows", lambda one: cells.number(one.get("rows")), "num"),
        Column("Size", lambda one: octets(one["bytes"]), "num"),
        Column("SHA-256", lambda one: middle(one["sha256"], 17), "mono", title=lambda one: one["sha256"]),
    )
    return table("Files that the run wrote", columns, run.artifacts)


# --- partners' logs ---


def _log_state(row: Any) -> SafeString:
    if row.active:
        return state("run", row.latest.state)
    if row.latest is not None and row.latest.state == "failed" and row.log.state != "failed":
        return state("run", "failed")
    return state("log", row.log.state)


def _partner(row: Any) -> SafeString:
    agreement = row.log.agreement
    return cells.joined(row.log.party, cells.below(agreement.tpa_id if agreement else "", "text-faint wrap"))


def _file(row: Any) -> SafeString:
    log = row.log
    link = cells.link(cells.to("partner-log", log.public_id), log.filename, "strong wrap")
    return cells.joined(link, cells.below(octets(log.size)))


def _covers(row: Any) -> object:
    begin, end = row.log.range_from, row.log.range_to
    if begin is None and end is None:
        return cells.span("text-faint", "not read yet")
    return f"{instant(begin)} to {instant(end)} UTC"


_LOGS = (
    Column("State", _log_state, "nowrap"),
    Column("Partner", _partner),
    Column("Log", _file),
    Column("Covers", _covers, "nowrap"),
    Column("Rows", lambda row: cells.number(row.log.rows), "num"),
    Column("Agreed", lambda row: cells.number(row.verdicts.get("agreed", 0) if row.published else None), "num"),
    Column("Differences", lambda row: cells.bad(row.findings) if row.published else "—", "num"),
    Column("Received", lambda row: ago(row.log.created_at), "nowrap"),
)


def logs(rows: list[Any]) -> dict[str, Any]:
    """Return the table of partners' logs."""
    about = lambda row: {"data-testid": "log-row", "data-state": row.log.state}  # noqa: E731
    return table("Logs of partners, the newest first", _LOGS, rows, about=about)


def verdicts(log: PartnerLog, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return the table of messages by verdict."""

    def name(verdict: Verdict) -> object:
        href = f"{cells.to('report', 'reconcile')}?scope={log.public_id}&table=findings&verdict={verdict.value}#rows"
        return verdict.label if verdict == Verdict.AGREED else cells.link(href, verdict.label)

    columns = (Column("Verdict", name), Column("Messages", lambda verdict: cells.number(counts[verdict]), "num"))
    found = [verdict for verdict in Verdict if verdict in counts]
    return table(
        "Messages by verdict", columns, found, about=lambda verdict: {"data-testid": f"verdict-{verdict.value}"}
    )
