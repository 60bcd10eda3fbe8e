"""What each report's page says beside its tables: the sentence that answers the question, key figures, charts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging.choices import Direction
from messaging.console import cells
from messaging.console.resource import Column, table
from messaging.models import PipelineRun, TimingAdvice
from messaging.report_choices import NOTICES, AuditKind, PipelineJob, Verdict
from messaging.reports.pages import chart_scales as scales
from messaging.reports.pages import charts
from messaging.reports.pages.levels import levels
from messaging.reports.pages.tables import cause_label, sheet, word
from messaging.reports.selectors import figures as report_figures
from messaging.reports.selectors import reports
from messaging.reports.selectors.figures import RISK, Choice
from messaging.reports.selectors.reports import Shown
from messaging.templatetags.hub import span, took
from rmhub.ids import public_id
from rmhub.language import gettext_lazy, number

_BODY = Callable[[HttpRequest, Shown], dict[str, Any]]
_TONES = {
    Verdict.AGREED: "tone-good",
    Verdict.LOST: "tone-bad",
    Verdict.UNKNOWN_HERE: "tone-orange",
    Verdict.DOUBLED: "tone-purple",
    Verdict.DIFFERS: "tone-bad-2",
    Verdict.IN_DOUBT: "tone-watch",
    Verdict.IN_DOUBT_ARRIVED: "tone-azure",
}


def audit(request: HttpRequest, shown: Shown) -> dict[str, Any]:
    """Violations first; notices (what explains itself) are folded until they are asked for."""
    assert shown.run is not None
    findings = shown.report.table("findings")
    kinds = reports.finding_counts(shown.run.pk, findings, "kind", "count")
    notices = {kind.value for kind in NOTICES}
    violations = sum(rows for kind, (rows, _amount) in kinds.items() if kind not in notices)
    noticed = sum(rows for kind, (rows, _amount) in kinds.items() if kind in notices)
    looked_at, pairs = report_figures.audited(shown.run.pk)
    known = [kind for kind in AuditKind.values if kind in kinds]
    context: dict[str, Any] = {
        "violations": violations,
        "noticed": noticed,
        "looked_at": looked_at,
        "pairs": pairs,
        "incidents": reverse("console:audit-incidents") if violations and shown.is_current else "",
        "kinds": known,
        "kinds_table": _kinds(shown.run, [(kind, *kinds[kind]) for kind in known], notices),
        "table_shown": "pairs" if request.GET.get("table") == "pairs" else "findings",
    }
    only = request.GET.get("kind", "")
    if context["table_shown"] == "findings":
        context["all_notices"] = request.GET.get("notices") == "all" or only in notices
        context["notices_title"] = _("Notices") if context["all_notices"] else ""
        if noticed and not context["all_notices"] and not request.GET.get("cursor"):
            context["notices"] = sheet(
                request, shown, findings, filters={}, fixed={"violation": False}, limit=20, sortable=False
            )
        context["fixed"] = {} if only else {"violation": not context["all_notices"]}
    return context


def _kinds(run: PipelineRun, rows: list[tuple[str, int, int]], notices: set[str]) -> dict[str, Any]:
    def name(row: tuple[str, int, int]) -> SafeString:
        href = f"?run={run.public_id}&table=findings&kind={row[0]}#rows"
        chip = format_html(' <span class="chip">{}</span>', _("notice")) if row[0] in notices else ""
        return cells.joined(cells.link(href, AuditKind(row[0]).label, "strong"), chip)

    columns = (
        Column(_("Kind"), name),
        Column(_("Findings"), lambda row: cells.number(row[1]), "num"),
        Column(_("Numbers, messages or deliveries"), lambda row: cells.number(row[2]), "num", narrow=_("Concern")),
    )
    return table(_("Findings by kind"), columns, rows)


def window(request: HttpRequest, shown: Shown) -> dict[str, Any]:
    """Whether the windows in force suffice, and how late repeats come."""
    assert shown.run is not None
    advice = report_figures.window_advice(shown.run.pk)
    judged = [one for one in advice if one.one_in == RISK and one.suffices is not None]
    groups = sorted({(one.partner, one.profile) for one in advice})
    chosen = _chosen(request.GET.get("of", ""), groups)
    histogram = None
    if chosen is not None:
        buckets = report_figures.repeats(shown.run.pk, *chosen)
        mine = [one for one in advice if (one.partner, one.profile) == chosen]
        needed = _("Needed for 1 in {count}:").format(count=number(RISK))
        marks = [(needed, "tone-purple", float(one.window)) for one in mine if one.one_in == RISK]
        marks += [(_("In force:"), "tone-orange", float(one.in_force)) for one in mine[:1] if one.in_force]
        title = _("How late copies come: {partner}, {profile}").format(partner=chosen[0], profile=chosen[1])
        histogram = charts.histogram("delays", title, buckets, marks=marks) if buckets else None
    return {
        "judged": len(judged),
        "too_short": [one for one in judged if not one.suffices],
        "groups": [(f"{partner} · {profile}", f"{partner}|{profile}") for partner, profile in groups],
        "of": "|".join(chosen) if chosen else "",
        "histogram": histogram,
    }


def _chosen(text: str, groups: list[tuple[str, str]]) -> tuple[str, str] | None:
    partner, _bar, profile = text.rpartition("|")
    if (partner, profile) in groups:
        return partner, profile
    return groups[0] if groups else None


def timing(request: HttpRequest, shown: Shown) -> dict[str, Any]:
    """One agreement's before and after; the table has all of them."""
    assert shown.run is not None
    choices = report_figures.timing_choices(shown.run.pk)
    better = [one for one in choices if not one.fits]
    of, only = request.GET.get("of", ""), bool(better) and request.GET.get("better") == "1"
    offered = better if only else choices
    chosen = next((one for one in offered if public_id("agr", one.agreement_id) == of), None)
    chosen = chosen or next(iter(better or choices), None)
    context: dict[str, Any] = {
        "agreements": len(choices),
        "unadvised": report_figures.timing_unadvised(shown.run.pk),
        "changed": len(better),
        "only": only,
        "choices": [
            (public_id("agr", one.agreement_id), f"{one.now.agreement} · {one.now.partner}") for one in offered
        ],
    }
    return context | _proposal(shown.run, chosen) if chosen is not None else context


def _proposal(run: PipelineRun, chosen: Choice) -> dict[str, Any]:
    cumulated, caused = 0.0, []
    for failure in report_figures.timing_failures(run.pk, chosen.agreement_id):
        cumulated = min(1.0, cumulated + failure.share)
        caused.append((cause_label("attempt", failure.cause), failure.attempts, cumulated))
    agreement = public_id("agr", chosen.agreement_id)
    return {
        "of": agreement,
        "now": chosen.now,
        "options": table(
            _("Parameters in force and proposed"),
            _OPTIONS,
            [(_("In force"), chosen.now), (_("Proposed"), chosen.then)],
        ),
        "fits": chosen.fits,
        "comparison": _before_and_after(chosen.now, chosen.then),
        "latency": report_figures.timing_latency(run.pk, chosen.agreement_id),
        "failures": charts.pareto("failures", _("Failed attempts by cause"), caused, counted=_("Attempts"))
        if caused
        else None,
        "draft": f"{reverse('console:timing-draft', args=[agreement])}?run={run.public_id}",
    }


_OPTIONS = (
    Column(gettext_lazy("Choice"), lambda row: row[0], "strong"),
    Column(gettext_lazy("Timeout"), lambda row: span(row[1].timeout), "num"),
    Column(gettext_lazy("Retries"), lambda row: row[1].retries, "num"),
    Column(gettext_lazy("RetryInterval"), lambda row: span(row[1].retry_interval), "num"),
    Column(gettext_lazy("Attempts"), lambda row: cells.number(row[1].attempts), "num"),
    Column(
        gettext_lazy("Needless repeats"),
        lambda row: cells.number(row[1].needless),
        "num",
        narrow=gettext_lazy("Needless"),
    ),
    Column(gettext_lazy("Given up"), lambda row: cells.number(row[1].given_up), "num"),
    Column(gettext_lazy("Mean time"), lambda row: took(row[1].mean_seconds) or "—", "num"),
    Column(gettext_lazy("p95 time"), lambda row: took(row[1].p95_seconds) or "—", "num"),
    Column(gettext_lazy("Gives up after"), lambda row: span(row[1].gives_up_after), "num"),
)


def _before_and_after(now: TimingAdvice, then: TimingAdvice) -> charts.Chart:
    def bar(label: str, name: str, unit: str) -> charts.Bar:
        pair = (getattr(now, name), getattr(then, name))
        parts = [
            (when, tone, float(value or 0), scales.amount(value, unit))
            for when, tone, value in zip(
                (_("In force"), _("Proposed")), ("tone-before", "tone-main"), pair, strict=True
            )
        ]
        return charts.Bar(label, parts)

    rows = [
        bar(_("Attempts"), "attempts", ""),
        bar(_("Needless repeats"), "needless", ""),
        bar(_("Given up (suspended)"), "given_up", ""),
        bar(_("Mean time to ack"), "mean_seconds", "s"),
        bar(_("p95 time to ack"), "p95_seconds", "s"),
        bar(_("Gives up after"), "gives_up_after", "s"),
    ]
    return charts.bars("comparison", _("The same messages under both choices"), rows, each=True)


def reconcile(request: HttpRequest, shown: Shown) -> dict[str, Any]:
    """How many messages have which verdict."""
    assert shown.run is not None
    counts = report_figures.verdicts(shown.run.pk)
    seen = [verdict for verdict in Verdict.values if any(known == verdict for _direction, known in counts)]
    rows = []
    for direction, label in ((Direction.OUT, _("We sent")), (Direction.IN, _("They sent"))):
        if any(known == direction for known, _verdict in counts):
            numbers = [(verdict, counts.get((direction, verdict), 0)) for verdict in seen]
            parts = [
                (word("verdict", verdict)[0], _TONES[Verdict(verdict)], float(count), scales.number(count))
                for verdict, count in numbers
            ]
            rows.append(charts.Bar(label, parts))
    return {
        "total": sum(counts.values()),
        "apart": report_figures.apart(counts),
        "verdicts": charts.bars("verdicts", _("Verdicts by direction"), rows) if rows else None,
        "log": reverse("console:partner-log", args=[shown.scope]) if shown.scope.startswith("plog_") else "",
    }


def sla(request: HttpRequest, shown: Shown) -> dict[str, Any]:
    """Which targets of the newest month are missed."""
    assert shown.run is not None
    month, judged, missed = report_figures.targets_missed(shown.run.pk)
    return {"month": month, "judged": judged, "missed": missed}


def archive(request: HttpRequest, shown: Shown) -> dict[str, Any]:
    """What has left the store."""
    assert shown.run is not None
    return {"total": report_figures.archived(shown.run.pk)}


BODIES: dict[str, _BODY] = {
    PipelineJob.AUDIT: audit,
    PipelineJob.RECONCILE: reconcile,
    PipelineJob.WINDOW: window,
    PipelineJob.TIMING: timing,
    PipelineJob.LEVELS: levels,
    PipelineJob.SLA: sla,
    PipelineJob.ARCHIVE: archive,
}


def headline(shown: Shown) -> tuple[str, str]:
    """(words, colour) of what a report says, for the list of reports; empty words before its first run."""
    making = _HEADLINES.get(shown.report.job)
    return making(shown.run) if making and shown.run is not None else ("", "")


def _audit_words(run: PipelineRun) -> tuple[str, str]:
    count = report_figures.violations(run.pk)
    if count:
        return ngettext("{count} violation", "{count} violations", count).format(count=number(count)), "red"
    return _("No violation"), "green"


def _window_words(run: PipelineRun) -> tuple[str, str]:
    judged, short = report_figures.windows_judged(run.pk)
    if short:
        said = ngettext("{count} window too short for 1 in {risk}", "{count} windows too short for 1 in {risk}", short)
        return said.format(count=number(short), risk=number(RISK)), "yellow"
    return (_("All windows suffice for 1 in {risk}").format(risk=number(RISK)), "green") if judged else ("", "")


def _timing_words(run: PipelineRun) -> tuple[str, str]:
    choices = report_figures.timing_choices(run.pk)
    count = sum(not one.fits for one in choices)
    if count:
        said = ngettext("{count} agreement could do better", "{count} agreements could do better", count)
        return said.format(count=number(count)), "azure"
    return (_("All parameters fit"), "green") if choices else ("", "")


def _levels_words(run: PipelineRun) -> tuple[str, str]:
    messages, ended, well = report_figures.levels_total(run.pk)
    if ended:
        said = ngettext("{count} message, {share} succeeded", "{count} messages, {share} succeeded", messages)
        return said.format(count=number(messages), share=scales.share(well / ended)), "azure"
    return ngettext("{count} message", "{count} messages", messages).format(count=number(messages)), "azure"


def _sla_words(run: PipelineRun) -> tuple[str, str]:
    month, judged, missed = report_figures.targets_missed(run.pk)
    if month is None:
        return "", ""
    if missed:
        said = ngettext(
            "{missed} of {count} target missed in {month}", "{missed} of {count} targets missed in {month}", judged
        )
        return said.format(missed=number(len(missed)), count=number(judged), month=scales.month(month)), "red"
    return _("All targets kept in {month}").format(month=scales.month(month)), "green"


def _reconcile_words(run: PipelineRun) -> tuple[str, str]:
    counts = report_figures.verdicts(run.pk)
    differing, total = report_figures.apart(counts), sum(counts.values())
    if differing:
        said = ngettext("{differing} of {count} message differs", "{differing} of {count} messages differ", total)
        return said.format(differing=number(differing), count=number(total)), "red"
    return ngettext("{count} message agrees", "{count} messages agree", total).format(count=number(total)), "green"


def _archive_words(run: PipelineRun) -> tuple[str, str]:
    total = report_figures.archived(run.pk)
    if total["differing"]:
        count = total["differing"]
        said = ngettext("{count} message differs from the store", "{count} messages differ from the store", count)
        return said.format(count=number(count)), "red"
    count = total["messages"]
    said = ngettext("{count} message archived and verified", "{count} messages archived and verified", count)
    return said.format(count=number(count)), "green"


_HEADLINES: dict[str, Callable[[PipelineRun], tuple[str, str]]] = {
    PipelineJob.AUDIT: _audit_words,
    PipelineJob.RECONCILE: _reconcile_words,
    PipelineJob.WINDOW: _window_words,
    PipelineJob.TIMING: _timing_words,
    PipelineJob.LEVELS: _levels_words,
    PipelineJob.SLA: _sla_words,
    PipelineJob.ARCHIVE: _archive_words,
}
