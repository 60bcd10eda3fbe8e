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

from messaging.console import cells
from messaging.console.resource import Column, table
from messaging.models import BenchReport, OnboardingDraft
from messaging.onboarding.services.bundle import ImportReport
from messaging.sla.selectors import Attainment
from messaging.templatetags.hub import ago, at, icon, middle, state
from partners.fields import duration
from partners.models import Agreement, AgreementVersion, Credential, Party
from rmhub import clock

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
    return cells.span("chip", "ours") if row.party.is_own else cells.span("text-soft", "partner")


def _identifiers(row: PartnerRow) -> object:
    said = '<span class="mono nowrap"><span class="text-faint">{}</span> {}</span>'
    found = ((one.context, one.value) for one in row.party.identifiers.all())
    return format_html_join(", ", said, found) or "—"


def _groups(row: PartnerRow) -> object:
    return format_html_join("", '<span class="chip">{}</span> ', ((one.name,) for one in row.party.groups.all())) or "—"


NAME = Column(
    "Name", lambda row: cells.link(cells.to("partner", row.public_id), row.party.name, "strong", data_open=True)
)
WHOSE = Column("Whose", _whose)
IDENTIFIERS = Column("Identifiers", _identifiers)
GROUPS = Column("Groups", _groups)
HOURS = Column(
    "Zone and hours",
    lambda row: f"{row.party.time_zone} {row.party.hours}" if row.party.time_zone or row.party.hours else "—",
    "text-soft",
    narrow="Hours",
)
CREATED = Column("Created", lambda row: ago(row.party.created_at), "nowrap", zoned=True)
MADE = Column("Created", lambda row: ago(row[0].created_at), "nowrap", zoned=True)
CONTACT = Column("Contact", lambda row: Truncator(row.party.contact).chars(80) or "—", "text-soft")


# --- service levels ---

_LEVELS = {
    "none": ("text-faint", "nothing due yet"),
    "good": ("text-good", "kept"),
    "watch": ("age-watch", "budget nearly used up"),
    "missed": ("text-bad", "missed"),
}

_BUDGET = "Error budget used, in per cent"


def _share(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f} %"


def budget(one: Attainment) -> SafeString:
    """Return how much of the error budget is used: drawn, and in words."""
    used = one.used if one.used is not None else 100.0
    said = f"{one.missed:,} of {one.allowed:,} allowed"
    over = f", {-one.left:,} too many" if one.left < 0 else ""
    drawn = (
        '<meter class="budget" min="0" max="100" low="75" high="99.9" optimum="0" value="{}" aria-label="{}">{}</meter>'
    )
    return format_html(drawn + ' <span class="nowrap">{}{}</span>', min(100, round(used)), _BUDGET, said, said, over)


def _target(one: Attainment) -> SafeString:
    promised = f"within {duration(one.within)}, {one.percent:g} %" if one.within else f"{one.percent:g} %, not any more"
    return cells.joined(cells.span("strong", one.target.label), cells.below(promised))


def _kept(one: Attainment) -> SafeString:
    return cells.joined(
        cells.span("strong", _share(one.attained)), cells.below(_LEVELS[one.state][1], _LEVELS[one.state][0])
    )


def _of(one: Attainment) -> SafeString:
    href = cells.to("agreement", one.agreement.public_id)
    return cells.link(href, middle(one.agreement.tpa_id, 30), "mono")


_COUNTS = (
    Column("Due", lambda one: cells.number(one.due), "num"),
    Column("Missed", lambda one: cells.bad(one.missed), "num"),
    Column("Open", lambda one: cells.number(one.open), "num"),
)


def levels(found: Iterable[Attainment]) -> dict[str, Any]:
    """Return the table of a partner's targets in the running month."""
    columns = (
        Column("Agreement", _of),
        Column("Target", _target),
        Column("Attained", _kept, "nowrap"),
        Column("Error budget", budget),
        *_COUNTS,
    )
    return table("Targets of this month", columns, found, about=_level_row)


def level_months(found: Iterable[Attainment]) -> dict[str, Any]:
    """Return the table of an agreement's months."""
    columns = (
        Column("Month", lambda one: f"{one.month:%Y-%m}", "nowrap"),
        Column("Target", _target),
        Column("Attained", _kept, "nowrap"),
        Column("Error budget", budget),
        *_COUNTS,
    )
    return table("Targets by month (UTC)", columns, found, about=_level_row)


def _level_row(one: Attainment) -> dict[str, str]:
    return {"data-testid": "service-level", "data-state": one.state}


def _month(row: PartnerRow) -> object:
    one = row.worst
    if one is None:
        return cells.NONE
    left = f"{one.left:,} of {one.allowed:,} misses left" if one.left >= 0 else f"{-one.left:,} misses too many"
    return cells.joined(cells.span(_LEVELS[one.state][0], _share(one.attained)), cells.below(left))


MONTH = Column("Service level this month", _month, "nowrap", narrow="Service level")
LAST_TRAFFIC = Column("Last traffic", lambda row: ago(row.last_traffic, "—"), "nowrap")


# --- pairs and credentials of a partner ---


def _pair(row: Any) -> SafeString:
    return format_html("{} {}", cells.arrow(row.pair.direction, spoken=False), cells.pair(row.pair, "strong"))


PAIRS = (
    Column("Pair", _pair, "nowrap"),
    Column("State", lambda row: state("pair", row.diagnosis.state), "nowrap"),
    Column("Problem", lambda row: row.diagnosis.headline, narrow="What"),
    Column("Last success", lambda row: ago(row.pair.last_success_at, "never"), "nowrap"),
)


def credentials(found: Iterable[Credential], *, revokes: bool) -> dict[str, Any]:
    """Return the table of a party's credentials. `revokes`: whether the person may end one."""

    def name(one: Credential) -> SafeString:
        called = one.label or one.username or one.get_kind_display()
        mark = format_html('<div class="mono text-faint wrap">{}</div>', one.fingerprint) if one.fingerprint else ""
        return cells.joined(cells.span("strong", called), mark)

    def standing(one: Credential) -> SafeString:
        if one.revoked_at:
            return format_html('<span class="text-bad">{}</span> {}', "revoked", ago(one.revoked_at))
        ended = one.valid_until is not None and one.valid_until < clock.now()
        said = cells.span("text-bad", "ended") if ended else "in force"
        if not revokes:
            return cells.joined(said)
        href = cells.to("credential-revoke", one.public_id)
        revoke = cells.link(
            href, "Revoke…", data_dialog=True, data_testid="credential-revoke", aria_label=f"Revoke {one}"
        )
        return format_html("{}<div>{}</div>", said, revoke)

    columns = (
        Column("Name", name),
        Column("Who shows it", lambda one: one.get_direction_display(), narrow="Shown by"),
        Column("Kind", lambda one: one.get_kind_display()),
        Column("Valid from", lambda one: ago(one.valid_from, "always"), "nowrap", narrow="From"),
        Column(
            "Valid until", lambda one: at(one.valid_until) if one.valid_until else "no expiry", "nowrap", narrow="Until"
        ),
        Column("State", standing, "nowrap"),
    )
    return table("Credentials of this party", columns, found)


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
    return format_html("{} and {}", one.own_party, partner)


AGREEMENT = Column("Agreement (TPAId)", _agreement, narrow="Agreement")
VERSION = Column("State", _version, "nowrap")
BETWEEN = Column("Between", _between)
DELIVERY = Column("Delivery", lambda row: row[1].get_semantics_display() if row[1] is not None else "")
UNANSWERED = Column("What happens without an answer", lambda row: row[2], "text-soft", narrow="Without answer")


def agreements(
    rows: Iterable[AgreementRow], columns: Sequence[Column] = (AGREEMENT, VERSION, BETWEEN, DELIVERY, UNANSWERED)
) -> dict[str, Any]:
    """Return the table of agreements."""
    return table("Agreements by TPAId", columns, rows, about=lambda row: cells.row_id(row[0]), keys=True)


SERVICES = (
    Column("Service", lambda one: one.service, "mono wrap"),
    Column("Action", lambda one: cells.span("text-soft", "every action") if one.action == "*" else one.action, "mono"),
    Column("Direction", lambda one: one.get_direction_display()),
)


CHANGES = (
    Column("What", lambda change: change.label),
    Column("Before", lambda change: change.before or "—", "text-soft wrap"),
    Column("After", lambda change: change.after or "—", "wrap"),
)


# --- tests of an agreement ---


def _verdict(step: dict[str, Any]) -> SafeString:
    if step["verdict"] == "ok":
        return cells.joined(icon("circle-check"), "passed")
    if step["verdict"] == "failed":
        return cells.span("text-bad", cells.joined(icon("alert-triangle"), "failed"))
    if step["verdict"] == "warning":
        return cells.joined(icon("info-circle"), "check this")
    return cells.span("text-faint", cells.joined(icon("minus"), "not run"))


_STEPS = (
    Column("Step", lambda step: capfirst(step["name"]), "strong nowrap"),
    Column("Verdict", _verdict, "nowrap"),
    Column("What was found", lambda step: step["detail"], "wrap", narrow="Found"),
    Column("Took", lambda step: f"{floatformat(step.get('seconds'), 3)} s", "num text-faint"),
)


def bench(report: BenchReport) -> dict[str, Any]:
    """Return the table of the steps of a test."""
    return table(
        "Steps of the test",
        _STEPS,
        report.steps,
        about=lambda step: {"data-testid": f"step-{slugify(step['name'])}", "data-state": step["verdict"]},
    )


# --- certificates ---


def _ends(row: Any) -> SafeString:
    css = "text-faint" if row.state == "valid" else "text-bad"
    days = f"{row.days_left} day{'s' if row.days_left != 1 else ''} left"
    left = cells.joined(icon("alert-triangle"), "expired") if row.days_left < 0 else days
    return format_html('{}<div class="{}">{}</div>', at(row.ends_at), css, left)


def _certificate(row: Any) -> SafeString:
    mark = '<div class="mono text-faint wrap">{}</div>'
    return cells.joined(
        cells.span("strong wrap", row.title), format_html(mark, middle(row.facts.fingerprint, 24)) if row.facts else ""
    )


def _use(row: Any) -> SafeString:
    if row.endpoint:
        href = cells.to("endpoint", row.endpoint.public_id)
        return format_html("{} may show it", cells.link(href, f"their server {row.endpoint.name}"))
    said = '{} <span class="text-faint">{}</span>'
    return format_html(said, row.credential.get_direction_display(), row.credential.get_kind_display())


def _issuer(row: Any) -> str:
    if not row.facts:
        return "—"
    return "itself" if row.facts.self_signed else str(row.facts.issuer)


CERTIFICATES = (
    Column("Ends", _ends, "nowrap", zoned=True),
    Column("Certificate", _certificate),
    Column("Partner", lambda row: cells.link(cells.to("partner", row.party.public_id), row.party)),
    Column("Use", _use),
    Column("Issuer", _issuer, "text-soft wrap"),
    Column("Key", lambda row: row.facts.key if row.facts else "—"),
)


# --- bundles and drafts ---


def _would_be(item: Any) -> SafeString:
    known = {"create": ("plus", "made"), "change": ("pencil", "changed")}
    if item.action in known:
        sign, said = known[item.action]
        return cells.joined(icon(sign), said)
    if item.action == "same":
        return cells.span("text-faint", cells.joined(icon("equal"), "as it is"))
    return cells.span("text-bad", cells.joined(icon("alert-triangle"), "problem"))


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


_ITEMS = (
    Column("What", lambda item: capfirst(item.kind)),
    Column("Name", lambda item: item.name, "wrap strong"),
    Column("Would be", _would_be, "nowrap"),
    Column("Fields", _fields, "wrap"),
)


def bundle(report: ImportReport) -> dict[str, Any]:
    """Return the table of what an import would do."""
    return table(
        "Everything in the bundle",
        _ITEMS,
        report.items,
        about=lambda item: {"data-testid": "bundle-item", "data-state": item.action},
    )


def _discard(draft: OnboardingDraft) -> SafeString:
    href = cells.to("onboarding-discard", draft.public_id)
    return cells.link(href, "Discard…", data_dialog=True, aria_label=f"Discard {draft}")


_DRAFTS = (
    Column("Draft", lambda one: cells.link(cells.to("onboarding-step", one.public_id, one.step), one, "strong")),
    Column("Step", lambda draft: f"{draft.step} of 6"),
    Column("Last changed", lambda draft: ago(draft.updated_at), "nowrap", narrow="Changed"),
    Column("By", lambda draft: draft.updated_by),
    Column("Verbs", _discard, head=cells.hidden("Verbs"), narrow=" "),
)


def drafts(found: Iterable[OnboardingDraft]) -> dict[str, Any]:
    """Return the table of partners that are being set up."""
    return table("Partners that are being set up", _DRAFTS, found, about=lambda draft: {"data-testid": "draft"})
