"""Tables of partners, agreements, certificates, tests of agreements, and bundles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.template.defaultfilters import floatformat, slugify
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator, capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from messaging.console import cells
from messaging.console.resource import Column, table
from messaging.models import BenchReport, OnboardingDraft, ProbeReport
from messaging.onboarding.services.bundle import ImportReport
from messaging.sla.selectors import Attainment
from messaging.templatetags.hub import ago, at, icon, middle, state
from partners.cpa.findings import Finding
from partners.fields import duration
from partners.models import Agreement, AgreementVersion, Credential, Party
from rmhub import clock
from rmhub.language import gettext_lazy, number, pgettext_lazy

# --- partners ---


@dataclass(frozen=True, slots=True)
class PartnerRow:
    """A party in the list, with the target that is nearest to being missed, and when a document last got through."""

    party: Party
    worst: Attainment | None = None
    last_traffic: datetime | None = None

    @property
    def public_id(self) -> str:
        return self.party.public_id


def _whose(row: PartnerRow) -> SafeString:
    return cells.span("chip", _("ours")) if row.party.is_own else cells.span("text-soft", _("partner"))


def _identifiers(row: PartnerRow) -> object:
    said = '<span class="mono nowrap"><span class="text-faint">{}</span> {}</span>'
    found = ((one.context, one.value) for one in row.party.identifiers.all())
    return format_html_join(", ", said, found) or "—"


def _groups(row: PartnerRow) -> object:
    return format_html_join("", '<span class="chip">{}</span> ', ((one.name,) for one in row.party.groups.all())) or "—"


NAME = Column(
    gettext_lazy("Name"),
    lambda row: cells.link(cells.to("partner", row.public_id), row.party.name, "strong", data_open=True),
)
WHOSE = Column(gettext_lazy("Whose"), _whose)
IDENTIFIERS = Column(gettext_lazy("Identifiers"), _identifiers)
GROUPS = Column(gettext_lazy("Groups"), _groups)
HOURS = Column(
    gettext_lazy("Zone and hours"),
    lambda row: f"{row.party.time_zone} {row.party.hours}" if row.party.time_zone or row.party.hours else "—",
    "text-soft",
    narrow=gettext_lazy("Hours"),
)
CREATED = Column(gettext_lazy("Created"), lambda row: ago(row.party.created_at), "nowrap", zoned=True)
MADE = Column(gettext_lazy("Created"), lambda row: ago(row[0].created_at), "nowrap", zoned=True)
CONTACT = Column(gettext_lazy("Contact"), lambda row: Truncator(row.party.contact).chars(80) or "—", "text-soft")


# --- service levels ---

_LEVELS = {
    "none": ("text-faint", gettext_lazy("nothing due yet")),
    "good": ("text-good", gettext_lazy("kept")),
    "watch": ("age-watch", gettext_lazy("budget nearly used up")),
    "missed": ("text-bad", gettext_lazy("missed")),
}

_BUDGET = gettext_lazy("Error budget used, in per cent")


def _share(value: float | None) -> str:
    return "—" if value is None else f"{number(round(value, 2), 2)} %"


def budget(one: Attainment) -> SafeString:
    """Return how much of the error budget is used: drawn, and in words."""
    used = one.used if one.used is not None else 100.0
    counts = {"missed": number(one.missed), "allowed": number(one.allowed)}
    said = whole = _("{missed} of {allowed} allowed").format(**counts)
    if one.left < 0:
        whole = _("{missed} of {allowed} allowed, {over} too many").format(**counts, over=number(-one.left))
    drawn = (
        '<meter class="budget" min="0" max="100" low="75" high="99.9" optimum="0" value="{}" aria-label="{}">{}</meter>'
    )
    return format_html(drawn + ' <span class="nowrap">{}</span>', min(100, round(used)), _BUDGET, said, whole)


def _target(one: Attainment) -> SafeString:
    percent = number(int(one.percent) if one.percent == int(one.percent) else one.percent)
    promised = (
        _("within {time}, {percent} %").format(time=duration(one.within), percent=percent)
        if one.within
        else _("{percent} %, not any more").format(percent=percent)
    )
    return cells.joined(cells.span("strong", one.target.label), cells.below(promised))


def _kept(one: Attainment) -> SafeString:
    return cells.joined(
        cells.span("strong", _share(one.attained)), cells.below(_LEVELS[one.state][1], _LEVELS[one.state][0])
    )


def _of(one: Attainment) -> SafeString:
    href = cells.to("agreement", one.agreement.public_id)
    return cells.link(href, middle(one.agreement.tpa_id, 30), "mono")


_COUNTS = (
    Column(gettext_lazy("Due"), lambda one: cells.number(one.due), "num"),
    Column(gettext_lazy("Missed"), lambda one: cells.bad(one.missed), "num"),
    Column(gettext_lazy("Open"), lambda one: cells.number(one.open), "num"),
)


def levels(found: Iterable[Attainment]) -> dict[str, Any]:
    """Return the table of a partner's targets in the running month."""
    columns = (
        Column(_("Agreement"), _of),
        Column(_("Target"), _target),
        Column(_("Attained"), _kept, "nowrap"),
        Column(_("Error budget"), budget),
        *_COUNTS,
    )
    return table(_("Targets of this month"), columns, found, about=_level_row)


def level_months(found: Iterable[Attainment]) -> dict[str, Any]:
    """Return the table of an agreement's months."""
    columns = (
        Column(_("Month"), lambda one: f"{one.month:%Y-%m}", "nowrap"),
        Column(_("Target"), _target),
        Column(_("Attained"), _kept, "nowrap"),
        Column(_("Error budget"), budget),
        *_COUNTS,
    )
    return table(_("Targets by month (UTC)"), columns, found, about=_level_row)


def _level_row(one: Attainment) -> dict[str, str]:
    return {"data-testid": "service-level", "data-state": one.state}


def _month(row: PartnerRow) -> object:
    one = row.worst
    if one is None:
        return cells.NONE
    left = (
        _("{left} of {allowed} misses left").format(left=number(one.left), allowed=number(one.allowed))
        if one.left >= 0
        else ngettext("{count} miss too many", "{count} misses too many", -one.left).format(count=number(-one.left))
    )
    return cells.joined(cells.span(_LEVELS[one.state][0], _share(one.attained)), cells.below(left))


MONTH = Column(gettext_lazy("Service level this month"), _month, "nowrap", narrow=gettext_lazy("Service level"))
LAST_TRAFFIC = Column(gettext_lazy("Last traffic"), lambda row: ago(row.last_traffic, "—"), "nowrap")


# --- pairs and credentials of a partner ---


def _pair(row: Any) -> SafeString:
    return format_html("{} {}", cells.arrow(row.pair.direction, spoken=False), cells.pair(row.pair, "strong"))


PAIRS = (
    Column(gettext_lazy("Pair"), _pair, "nowrap"),
    Column(gettext_lazy("State"), lambda row: state("pair", row.diagnosis.state), "nowrap"),
    Column(gettext_lazy("Problem"), lambda row: row.diagnosis.headline, narrow=gettext_lazy("What")),
    Column(gettext_lazy("Last success"), lambda row: ago(row.pair.last_success_at, _("never")), "nowrap"),
)


def credentials(found: Iterable[Credential], *, revokes: bool) -> dict[str, Any]:
    """Return the table of a party's credentials. `revokes`: whether the person may end one."""

    def name(one: Credential) -> SafeString:
        called = one.label or one.username or one.get_kind_display()
        mark = format_html('<div class="mono text-faint wrap">{}</div>', one.fingerprint) if one.fingerprint else ""
        return cells.joined(cells.span("strong", called), mark)

    def standing(one: Credential) -> SafeString:
        if one.revoked_at:
            return format_html('<span class="text-bad">{}</span> {}', _("revoked"), ago(one.revoked_at))
        ended = one.valid_until is not None and one.valid_until < clock.now()
        said = cells.span("text-bad", _("ended")) if ended else _("in force")
        if not revokes:
            return cells.joined(said)
        href = cells.to("credential-revoke", one.public_id)
        revoke = cells.link(
            href,
            _("Revoke…"),
            data_dialog=True,
            data_testid="credential-revoke",
            aria_label=_("Revoke {name}").format(name=one),
        )
        return format_html("{}<div>{}</div>", said, revoke)

    columns = (
        Column(_("Name"), name),
        Column(_("Who shows it"), lambda one: one.get_direction_display(), narrow=_("Shown by")),
        Column(_("Kind"), lambda one: one.get_kind_display()),
        Column(_("Valid from"), lambda one: ago(one.valid_from, _("always")), "nowrap", narrow=_("From")),
        Column(
            _("Valid until"),
            lambda one: at(one.valid_until) if one.valid_until else _("no expiry"),
            "nowrap",
            narrow=_("Until"),
        ),
        Column(_("State"), standing, "nowrap"),
    )
    return table(_("Credentials of this party"), columns, found)


# --- agreements ---

AgreementRow = tuple[Agreement, AgreementVersion | None, str]


def _agreement(row: AgreementRow) -> SafeString:
    href = cells.to("agreement", row[0].public_id)
    return cells.joined(
        cells.link(href, middle(row[0].tpa_id, 44), "strong mono", data_open=True), cells.below(row[0].name)
    )


def _version(row: AgreementRow) -> object:
    version, said = row[1], '{} <span class="text-faint">v{}</span>'
    return format_html(said, state("version", version.state), version.number) if version is not None else ""


def _between(row: AgreementRow) -> SafeString:
    one = row[0]
    partner = cells.link(cells.to("partner", one.partner.public_id), one.partner)
    return format_html(_("{own_party} and {partner}"), own_party=one.own_party, partner=partner)


AGREEMENT = Column(gettext_lazy("Agreement (TPAId)"), _agreement, narrow=gettext_lazy("Agreement"))
VERSION = Column(gettext_lazy("State"), _version, "nowrap")
BETWEEN = Column(gettext_lazy("Between"), _between)
DELIVERY = Column(gettext_lazy("Delivery"), lambda row: row[1].get_semantics_display() if row[1] is not None else "")
UNANSWERED = Column(
    gettext_lazy("What happens without an answer"),
    lambda row: row[2],
    "text-soft",
    narrow=gettext_lazy("Without answer"),
)


def agreements(
    rows: Iterable[AgreementRow], columns: Sequence[Column] = (AGREEMENT, VERSION, BETWEEN, DELIVERY, UNANSWERED)
) -> dict[str, Any]:
    """Return the table of agreements."""
    return table(_("Agreements by TPAId"), columns, rows, about=lambda row: cells.row_id(row[0]), keys=True)


SERVICES = (
    Column(gettext_lazy("Service"), lambda one: one.service, "mono wrap"),
    Column(
        gettext_lazy("Action"),
        lambda one: cells.span("text-soft", _("every action")) if one.action == "*" else one.action,
        "mono",
    ),
    Column(gettext_lazy("Direction"), lambda one: one.get_direction_display()),
)


CHANGES = (
    Column(gettext_lazy("What"), lambda change: change.label),
    Column(pgettext_lazy("value", "Before"), lambda change: change.before or "—", "text-soft wrap"),
    Column(pgettext_lazy("value", "After"), lambda change: change.after or "—", "wrap"),
)


# --- tests of an agreement ---


def step_name(name: str) -> str:
    """Return the word for a step of a test or of a ping; protocols have their names."""
    known = {
        "terms": pgettext("step of a test", "terms"),
        "credentials": pgettext("step of a test", "credentials"),
        "connection": pgettext("step of a test", "connection"),
        "certificate": pgettext("step of a test", "certificate"),
        "host_key": pgettext("step of a test", "host key"),
        "round trip": pgettext("step of a test", "round trip"),
        "repeat": pgettext("step of a test", "repeat"),
        "order": pgettext("step of a test", "order"),
        "echo": pgettext("step of a test", "echo"),
    }
    return known.get(name, name)


def probed(report: ProbeReport) -> list[tuple[dict[str, Any], str, str]]:
    """Return the steps of a ping, each with its name and its verdict as people read them."""
    verdicts = {
        "ok": pgettext("step of a test", "ok"),
        "warning": pgettext("step of a test", "warning"),
        "failed": pgettext("step of a test", "failed"),
        "skipped": pgettext("step of a test", "skipped"),
    }
    return [(step, step_name(step["name"]), verdicts.get(step["verdict"], step["verdict"])) for step in report.steps]


def _verdict(step: dict[str, Any]) -> SafeString:
    if step["verdict"] == "ok":
        return cells.joined(icon("circle-check"), _("passed"), by=" ")
    if step["verdict"] == "failed":
        return cells.span("text-bad", cells.joined(icon("alert-triangle"), _("failed"), by=" "))
    if step["verdict"] == "warning":
        return cells.joined(icon("info-circle"), _("check this"), by=" ")
    return cells.span("text-faint", cells.joined(icon("minus"), _("not run"), by=" "))


_STEPS = (
    Column(gettext_lazy("Step"), lambda step: capfirst(step_name(step["name"])), "strong nowrap"),
    Column(gettext_lazy("Verdict"), _verdict, "nowrap"),
    Column(
        gettext_lazy("What was found"),
        lambda step: format_html('<span lang="en">{}</span>', step["detail"]),
        "wrap",
        narrow=gettext_lazy("Found"),
    ),
    Column(gettext_lazy("Took"), lambda step: f"{floatformat(step.get('seconds'), 3)} s", "num text-faint"),
)


def bench(report: BenchReport) -> dict[str, Any]:
    """Return the table of the steps of a test."""
    return table(
        _("Steps of the test"),
        _STEPS,
        report.steps,
        about=lambda step: {"data-testid": f"step-{slugify(step['name'])}", "data-state": step["verdict"]},
    )


# --- certificates ---


def _ends(row: Any) -> SafeString:
    css = "text-faint" if row.state == "valid" else "text-bad"
    days = ngettext("{count} day left", "{count} days left", row.days_left).format(count=row.days_left)
    left = cells.joined(icon("alert-triangle"), _("expired")) if row.days_left < 0 else days
    return format_html('{}<div class="{}">{}</div>', at(row.ends_at), css, left)


def _certificate(row: Any) -> SafeString:
    mark = '<div class="mono text-faint wrap">{}</div>'
    return cells.joined(
        cells.span("strong wrap", row.title), format_html(mark, middle(row.facts.fingerprint, 24)) if row.facts else ""
    )


def _use(row: Any) -> SafeString:
    if row.endpoint:
        href = cells.to("endpoint", row.endpoint.public_id)
        server = cells.link(href, _("their server {name}").format(name=row.endpoint.name))
        return format_html(_("{server} may show it"), server=server)
    said = '{} <span class="text-faint">{}</span>'
    return format_html(said, row.credential.get_direction_display(), row.credential.get_kind_display())


def _issuer(row: Any) -> str:
    if not row.facts:
        return "—"
    return _("itself") if row.facts.self_signed else str(row.facts.issuer)


CERTIFICATES = (
    Column(gettext_lazy("Ends"), _ends, "nowrap", zoned=True),
    Column(gettext_lazy("Certificate"), _certificate),
    Column(gettext_lazy("Partner"), lambda row: cells.link(cells.to("partner", row.party.public_id), row.party)),
    Column(gettext_lazy("Use"), _use),
    Column(gettext_lazy("Issuer"), _issuer, "text-soft wrap"),
    Column(gettext_lazy("Key"), lambda row: row.facts.key if row.facts else "—"),
)


# --- bundles and drafts ---


def _would_be(item: Any) -> SafeString:
    known = {"create": ("plus", _("made")), "change": ("pencil", pgettext("bundle", "changed"))}
    if item.action in known:
        sign, said = known[item.action]
        return cells.joined(icon(sign), said)
    if item.action == "same":
        return cells.span("text-faint", cells.joined(icon("equal"), _("as it is")))
    return cells.span("text-bad", cells.joined(icon("alert-triangle"), _("problem")))


def _fields(item: Any) -> object:
    if item.problem:
        return cells.span("text-bad", item.problem)
    if item.action != "change":
        return ""
    said = '<li>{}: <span class="text-soft">{}</span> → {}</li>'
    rows = (
        (one.label, Truncator(one.before).chars(80) or "—", Truncator(one.after).chars(80) or "—")
        for one in item.changes
    )
    return format_html("<ul>{}</ul>", format_html_join("", said, rows))


def _kind(item: Any) -> str:
    known = {"party": _("Party"), "endpoint": _("Endpoint"), "agreement": _("Agreement"), "credential": _("Credential")}
    return known[item.kind]


_ITEMS = (
    Column(gettext_lazy("What"), _kind),
    Column(gettext_lazy("Name"), lambda item: item.name, "wrap strong"),
    Column(gettext_lazy("Would be"), _would_be, "nowrap"),
    Column(gettext_lazy("Fields"), _fields, "wrap"),
)


def bundle(report: ImportReport) -> dict[str, Any]:
    """Return the table of what an import would do."""
    return table(
        _("Everything in the bundle"),
        _ITEMS,
        report.items,
        about=lambda item: {"data-testid": "bundle-item", "data-state": item.action},
    )


_FINDINGS = (
    Column(gettext_lazy("Line"), lambda one: one.line, "num"),
    Column(
        gettext_lazy("Place"), lambda one: format_html('<span class="mono" translate="no">{}</span>', one.path), "wrap"
    ),
    Column(gettext_lazy("What becomes of it"), lambda one: format_html('<span lang="en">{}</span>', one.text), "wrap"),
)


def findings(title: str, found: Iterable[Finding]) -> dict[str, Any]:
    """Return the table of what became of places of a CPA."""
    return table(title, _FINDINGS, found, about=lambda one: {"data-testid": "finding", "data-state": one.kind})


def _discard(draft: OnboardingDraft) -> SafeString:
    href = cells.to("onboarding-discard", draft.public_id)
    return cells.link(href, _("Discard…"), data_dialog=True, aria_label=_("Discard {name}").format(name=draft.called))


_DRAFTS = (
    Column(
        gettext_lazy("Draft"),
        lambda one: cells.link(cells.to("onboarding-step", one.public_id, one.step), one.called, "strong"),
    ),
    Column(gettext_lazy("Step"), lambda draft: _("{step} of 6").format(step=draft.step)),
    Column(gettext_lazy("Last changed"), lambda draft: ago(draft.updated_at), "nowrap", narrow=gettext_lazy("Changed")),
    Column(gettext_lazy("By"), lambda draft: draft.updated_by),
)


def drafts(found: Iterable[OnboardingDraft]) -> dict[str, Any]:
    """Return the table of partners that are being set up."""
    verbs = Column(_("Verbs"), _discard, head=cells.hidden(_("Verbs")), narrow=" ")
    columns = (*_DRAFTS, verbs)
    return table(_("Partners that are being set up"), columns, found, about=lambda draft: {"data-testid": "draft"})
