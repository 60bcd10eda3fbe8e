"""Partners, endpoints, certificates and agreements as pages show them, what can be done about each, and bundles."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable

from django.contrib import messages as notices
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.translation import gettext as _

from messaging import differences, keyset
from messaging.choices import IncidentState, OfferState
from messaging.console import cells, filters, lists, naming
from messaging.console.access import actor, person, requires
from messaging.console.filters import Filter
from messaging.console.lists import Column, ListPage
from messaging.console.rendering import keyset_page, page, posted, see_other
from messaging.console.resource import table
from messaging.exceptions import InvalidSubmission
from messaging.keyset import Page, Place
from messaging.messages.selectors.sendable import sendable
from messaging.models import BenchReport, Incident, ProbeReport
from messaging.onboarding import selectors as onboarding
from messaging.onboarding.pages import agreements, parties, tables
from messaging.onboarding.pages.changing import button, why_not
from messaging.onboarding.pages.forms import INVALID, Errors, reason_of, refusals
from messaging.onboarding.pages.tables import AgreementRow, PartnerRow
from messaging.onboarding.services import bundle, bundle_format, partner_csv
from messaging.onboarding.services import changing as onboarding_content
from messaging.onboarding.services.bundle import ImportReport
from messaging.overview.selectors import records
from messaging.overview.selectors.traffic import PartnerTraffic, last_traffic, of_partner
from messaging.pairs.selectors import pairs, screens
from messaging.protocol import selecting
from messaging.reports.pages import charts
from messaging.sla import selectors as sla
from messaging.templatetags.hub import octets
from partners import selectors, services
from partners.certificates import read as read_certificates
from partners.choices import VersionState
from partners.models import TERMS, Agreement, AgreementVersion, Endpoint, Party
from partners.rules import BY_PROFILE
from partners.validation import resend_words
from partners.visibility import limit
from rmhub import clock
from rmhub.language import gettext_lazy

_NAMES = 20  # that a field offers at once
CERTIFICATE_FILTERS = (
    Filter("partner", gettext_lazy("Partner"), kind="partner"),
    Filter(
        "within",
        gettext_lazy("Expires"),
        choices=[
            ("7", gettext_lazy("Within 7 days")),
            ("30", gettext_lazy("Within 30 days")),
            ("90", gettext_lazy("Within 90 days")),
            ("365", gettext_lazy("Within 365 days")),
        ],
    ),
)

PARTNERS = ListPage(
    name="partners",
    view="console:partners",
    columns=(
        Column("id", "Id", lambda row: row.public_id, only_csv=True),
        Column("name", gettext_lazy("Name"), lambda row: row.party.name, tables.NAME, fixed=True, sort="name"),
        Column("whose", gettext_lazy("Whose"), lambda row: "ours" if row.party.is_own else "partner", tables.WHOSE),
        Column(
            "identifiers",
            gettext_lazy("Identifiers"),
            lambda row: [str(one) for one in row.party.identifiers.all()],
            tables.IDENTIFIERS,
        ),
        Column(
            "service_level",
            gettext_lazy("Service level this month, %"),
            lambda row: _of_worst(row, "attained"),
            tables.MONTH,
        ),
        Column("target", "Target, %", lambda row: _of_worst(row, "percent"), only_csv=True),
        Column("budget_left", "Misses left", lambda row: _of_worst(row, "left"), only_csv=True),
        Column("last_traffic", gettext_lazy("Last traffic"), lambda row: row.last_traffic, tables.LAST_TRAFFIC),
        Column(
            "groups",
            gettext_lazy("Groups"),
            lambda row: [one.name for one in row.party.groups.all()],
            tables.GROUPS,
            hidden=True,
        ),
        Column(
            "hours",
            gettext_lazy("Zone and hours"),
            lambda row: f"{row.party.time_zone} {row.party.hours}".strip(),
            tables.HOURS,
        ),
        Column("contact", gettext_lazy("Contact"), lambda row: row.party.contact, tables.CONTACT),
        Column("archived", "Archived", lambda row: row.party.archived_at, only_csv=True),
        Column(
            "created",
            gettext_lazy("Created"),
            lambda row: row.party.created_at,
            tables.CREATED,
            hidden=True,
            sort="created_at",
        ),
    ),
    api="/api/v1/parties",
    api_query=lambda given: {"q": given["q"], "archived": "true" if given["archived"] else "false"},
    orders=selectors.PARTY_ORDERS,
)
PARTNER_FILTERS = (
    Filter("q", gettext_lazy("Name or identifier contains"), kind="search"),
    Filter("archived", gettext_lazy("Archived"), kind="check"),
)
AGREEMENTS = ListPage(
    name="agreements",
    view="console:agreements",
    columns=(
        Column("id", "Id", lambda row: row[0].public_id, only_csv=True),
        Column(
            "tpa_id",
            gettext_lazy("Agreement (TPAId)"),
            lambda row: row[0].tpa_id,
            tables.AGREEMENT,
            fixed=True,
            sort="tpa_id",
        ),
        Column("name", "Name", lambda row: row[0].name, only_csv=True),
        Column(
            "state",
            gettext_lazy("State"),
            lambda row: row[1].state if row[1] is not None else "",
            tables.VERSION,
            fixed=True,
        ),
        Column("version", "Version", lambda row: row[1].number if row[1] is not None else None, only_csv=True),
        Column("profile", "Profile", lambda row: row[1].profile if row[1] is not None else "", only_csv=True),
        Column("own_party", "We", lambda row: row[0].own_party.name, only_csv=True),
        Column("between", gettext_lazy("Between"), lambda row: row[0].partner.name, tables.BETWEEN),
        Column("delivery", gettext_lazy("Delivery"), tables.DELIVERY.cell, tables.DELIVERY),
        Column("unanswered", gettext_lazy("What happens without an answer"), lambda row: row[2], tables.UNANSWERED),
        Column(
            "created",
            gettext_lazy("Created"),
            lambda row: row[0].created_at,
            tables.MADE,
            hidden=True,
            sort="created_at",
        ),
        Column(
            "activated",
            "In force since",
            lambda row: getattr(row[1], "activated_at", None),
            only_csv=True,
        ),
    ),
    api="/api/v1/agreements",
    api_query=lambda given: {"q": given["q"], "state": given["state"], "party": given["partner"]},
    orders=selectors.AGREEMENT_ORDERS,
)
AGREEMENT_FILTERS = (
    Filter("q", gettext_lazy("TPAId, name or party contains"), kind="search"),
    Filter("partner", gettext_lazy("Partner"), kind="partner"),
    Filter("state", gettext_lazy("State"), choices=VersionState.choices),
)


@requires("partners:read")
def partner_list(request: HttpRequest) -> HttpResponseBase:
    """Parties by name, ours among them; archived ones only for whoever asks for them."""
    if (other := lists.opened(request, PARTNERS)) is not None:
        return other
    given = {"q": _search(request), "archived": "1" if request.GET.get("archived") == "1" else ""}
    __, order = lists.order(request, PARTNERS)
    found = selectors.parties(search=given["q"], archived=bool(given["archived"]))
    if lists.csv_wanted(request):

        def fetch(place: Place | None, limit: int) -> Page[PartnerRow]:
            rows = keyset.page(found, order=order, limit=limit, place=place)
            return Page(_partner_rows(rows.rows), rows.following, rows.previous)

        return lists.csv(request, PARTNERS, fetch)
    context = keyset_page(request, "console.partners", found, order=order, filters=given)
    context |= {"why_not": why_not(person(request), parties.SCOPE), "filtered": any(given.values())}
    context |= lists.tools(request, PARTNERS, given)
    context["bar"] = filters.bar(request, "partners", PARTNER_FILTERS, given)
    context["rows"] = _partner_rows(context["rows"])
    shown = PARTNERS.shown(context["hide"], context["sorts"])
    context["table"] = table(_("Parties"), shown, context["rows"], about=cells.row_id, keys=True)
    return page(request, "console/onboarding/partners.html", context)


def _partner_rows(parties: Iterable[Party]) -> list[PartnerRow]:
    """Each party with its service level and its last traffic: a fixed number of queries."""
    shown = list(parties)
    keys = [party.pk for party in shown if not party.is_own]
    months, seen = sla.by_partner(keys, clock.now()), last_traffic(keys)
    return [PartnerRow(one, sla.worst(months.get(one.pk, ())), seen.get(one.pk)) for one in shown]


def _of_worst(row: PartnerRow, name: str) -> float | int | None:
    value: float | int | None = getattr(row.worst, name) if row.worst is not None else None
    return round(value, 2) if value is not None else None


@requires("partners:read")
def partner_names(request: HttpRequest) -> HttpResponse:
    """Names of partners that contain what was typed into a field, as the choices of that field."""
    found = selectors.parties(is_own=False, archived=False, search=_typed(request))
    names = found.prefetch_related(None).values_list("name", flat=True)[:_NAMES]
    return HttpResponse(format_html_join("", '<option value="{}"></option>', ((name,) for name in names)))


@requires("agreements:read")
def agreement_names(request: HttpRequest) -> HttpResponse:
    """TPAIds of agreements of which something contains what was typed into a field, as the choices of that field."""
    found = selectors.agreements(search=_typed(request)).prefetch_related(None)
    names = found.values_list("tpa_id", "partner__name")[:_NAMES]
    return HttpResponse(format_html_join("", '<option value="{}">{}</option>', names))


def _typed(request: HttpRequest) -> str:
    """What was typed, whatever the field is called."""
    return next((str(text) for text in request.GET.values() if text), "").strip()[:120].replace("\x00", "")


@requires("partners:read")
def partner_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One party: how it goes, pairs, agreements, endpoints, credentials (never a secret), contacts, changes."""
    party = parties.party_of(reference)
    found = pairs.pairs(partner_id=party.pk).order_by("severity", "code")[:50]
    verb = parties.RESTORE if party.archived_at else parties.ARCHIVE
    with_versions = _with_versions(list(selectors.agreements(party_id=party.pk)[:50]))
    now = clock.now()
    rows, missing = screens.pair_rows(found, now), why_not(person(request), parties.SCOPE)
    months = [] if party.is_own else sla.by_partner([party.pk], now).get(party.pk, [])
    lately = None if party.is_own else of_partner(party.pk, now)
    sends = sendable(party.pk)
    context = {
        "party": party,
        "sends": sends,
        # The end of the wizard leads here, with what it has put in force.
        "activated": next((one for one in sends if one.tpa_id == request.GET.get("activated")), None),
        "health": None if party.is_own else onboarding.health_of(party.pk),
        "lately": lately,
        "trend": _trend(lately) if lately is not None and lately.volume + lately.failed else None,
        "level_table": tables.levels(months) if months else None,
        "incidents": [] if party.is_own else list(_unresolved(party)),
        "agreements": with_versions,
        "agreement_table": tables.agreements(with_versions),
        "rows": rows,
        "pairs": table(_("Pairs with this partner"), tables.PAIRS, rows),
        "credentials": tables.credentials(party.credentials.all(), revokes=not missing),
        "audit": screens.audit_of(party),
        "why_not": missing,
        "buttons": [button(verb, reverse("console:party-verb", args=[party.public_id, verb.slug]), person(request))],
    }
    return page(request, "console/onboarding/partner.html", context)


def _trend(lately: PartnerTraffic) -> charts.Chart:
    """Documents by day, and what of them failed."""
    series = (
        charts.Series(_("delivered"), "tone-main", [day.delivered for day in lately.days]),
        charts.Series(_("received"), "tone-azure", [day.received for day in lately.days]),
        charts.Series(_("failed"), "tone-bad", [day.failed for day in lately.days]),
    )
    return charts.columns("trend", _("Documents by day (UTC)"), [day.at for day in lately.days], series)


def _unresolved(party: Party) -> QuerySet[Incident]:
    found = records.incidents(partner_id=party.pk, parts=False).exclude(state=IncidentState.RESOLVED)
    return found.order_by("-number")[:5]


@requires("partners:read")
def certificate_list(request: HttpRequest) -> HttpResponse:
    """All certificates and credentials that end, the first ones in front."""
    within = request.GET.get("within", "")
    days = int(within) if within.isascii() and within.isdigit() and len(within) < 5 else None
    partner = filters.partner_of(request)
    rows = [] if partner.missing else onboarding.certificates(within_days=days, party_id=partner.key)
    given = {"within": "" if days is None else str(days), "partner": partner.text}
    context = {
        "rows": rows,
        "table": table(
            _("Certificates and credentials by expiry"),
            tables.CERTIFICATES,
            rows,
            about=lambda row: {"data-testid": "certificate-row", "data-state": row.state},
        ),
        "filtered": any(given.values()),
        "bar": filters.bar(request, "certificates", CERTIFICATE_FILTERS, given, partner=partner),
        "offered": onboarding.offers(state=OfferState.WAITING).count(),
    }
    return page(request, "console/onboarding/certificates.html", context)


@requires("partners:read")
def endpoint_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One endpoint: where its bytes go, what its server may show, and what the last looks at it found."""
    endpoint = parties.endpoint_of(reference)
    context = {
        "endpoint": endpoint,
        "party": endpoint.party,
        "trusted": read_certificates(endpoint.trusted_certificates),
        "now": clock.now(),
        "reports": [
            (report, tables.probed(report))
            for report in ProbeReport.objects.filter(endpoint=endpoint).order_by("-id")[:10]
        ],
        "agreements": _agreements_of(endpoint),
        "audit": screens.audit_of(endpoint),
        "why_not": why_not(person(request), parties.SCOPE),
    }
    return page(request, "console/onboarding/endpoint.html", context)


@requires("agreements:read")
def agreement_list(request: HttpRequest) -> HttpResponseBase:
    """Agreements by TPAId, each with the version that counts."""
    if (other := lists.opened(request, AGREEMENTS)) is not None:
        return other
    search = _search(request)
    state = request.GET.get("state", "")
    state = state if state in VersionState.values else ""
    partner = filters.partner_of(request)
    __, order = lists.order(request, AGREEMENTS)
    found = selectors.agreements(search=search, state=state, party_id=partner.key)
    if partner.missing:
        found = found.none()
    given = {"q": search, "state": state, "partner": partner.reference}
    if lists.csv_wanted(request):

        def fetch(place: Place | None, limit: int) -> Page[AgreementRow]:
            rows = keyset.page(found, order=order, limit=limit, place=place)
            return Page(_with_versions(rows.rows), rows.following, rows.previous)

        return lists.csv(request, AGREEMENTS, fetch)
    context = keyset_page(request, "console.agreements", found, order=order, filters=given)
    context |= lists.tools(request, AGREEMENTS, given, partner.meant())
    context |= {
        "filtered": any(given.values()),
        "bar": filters.bar(request, "agreements", AGREEMENT_FILTERS, given, partner=partner),
    }
    context["rows"] = _with_versions(context["rows"])
    context["table"] = tables.agreements(context["rows"], AGREEMENTS.shown(context["hide"], context["sorts"]))
    context["why_not"] = why_not(person(request), agreements.SCOPE)
    return page(request, "console/onboarding/agreements.html", context)


@requires("agreements:read")
def agreement_page(request: HttpRequest, reference: str, number: int | None = None) -> HttpResponse:
    """One version of an agreement (the one that counts, unless a number says which), with what it amounts to."""
    agreement = agreements.agreement_of(reference)
    chosen = _version(agreement, number)
    if chosen is None:
        raise Http404(_("{agreement} has no version {number}.").format(agreement=agreement.tpa_id, number=number))
    version = selectors.version(chosen)
    versions = sorted(agreement.versions.all(), key=lambda one: -one.number)
    before = next((one for one in versions if one.number < version.number), None)
    changed = _changes(before, version)
    context = {
        "agreement": agreement,
        "version": version,
        "sends": version.state == VersionState.ACTIVE
        and any(one.tpa_id == agreement.tpa_id for one in sendable(agreement.partner_id)),
        "sentence": services.gives_up_sentence(version),
        "waits": resend_words(version.resend_schedule),
        "terms": _terms(version),
        "problems": services.version_validate(version=version),
        "versions": versions,
        "before": before,
        "changes": changed,
        "change_table": table(
            _("What is different"), tables.CHANGES, changed, about=lambda change: {"data-testid": "change"}
        ),
        "level_table": tables.level_months(months) if (months := sla.history(agreement, clock.now())) else None,
        "services": table(_("What may be sent under this version"), tables.SERVICES, version.services.all()),
        "buttons": agreements.buttons(version, agreement, person(request)),
        "why_not": why_not(person(request), agreements.SCOPE),
        "reports": list(BenchReport.objects.filter(agreement=agreement, number=version.number).order_by("-id")[:5]),
        "audit": screens.audit_of_agreement(agreement),
    }
    return page(request, "console/onboarding/agreement.html", context)


def _agreements_of(endpoint: Endpoint) -> list[Agreement]:
    """The agreements of which some version names the endpoint; ten at most."""
    found = Agreement.objects.filter(versions__partner_endpoint=endpoint) | Agreement.objects.filter(
        versions__own_endpoint=endpoint
    )
    shown = limit(found.distinct(), "partner")  # an endpoint of ours serves partners out of reach as well
    return list(shown.select_related("partner", "own_party").order_by("tpa_id")[:10])


# What the page of a version shows elsewhere.
_APART = (
    *("semantics", "services", "acknowledged_within", "acknowledged_percent"),
    *("processed_within", "processed_percent"),
)


def _terms(version: AgreementVersion) -> list[tuple[str, str]]:
    """The settings that its profile has, each with its name, as people read them."""
    found = []
    for name in TERMS:
        if name in BY_PROFILE[version.profile].names and name not in _APART:
            value = getattr(version, name)
            shown = getattr(version, f"get_{name}_display", None)
            text = str(shown()) if shown else octets(value) if name == "max_message_bytes" else ""
            found.append((differences.label(name), text or differences.said(name, value) or "—"))
    return found


def _changes(before: AgreementVersion | None, version: AgreementVersion) -> list[differences.Change]:
    """What the version before it had otherwise."""
    if before is None:
        return []
    return differences.changes(
        onboarding_content.describe(selectors.version(before.pk)), onboarding_content.describe(version)
    )


def _version(agreement: Agreement, number: int | None) -> uuid.UUID | None:
    if number is None:
        current = selectors.current_version(agreement)
        return current.pk if current is not None else None
    return next((version.pk for version in agreement.versions.all() if version.number == number), None)


def _with_versions(found: Iterable[Agreement]) -> list[AgreementRow]:
    """Each agreement with the version that counts and the sentence that says when it gives up."""
    rows: list[AgreementRow] = []
    for agreement in found:
        version = selectors.current_version(agreement)
        rows.append((agreement, version, services.gives_up_sentence(version) if version is not None else ""))
    return rows


def _search(request: HttpRequest) -> str:
    return request.GET.get("q", "").strip()[:120].replace("\x00", "")


# --- Bundles: the whole set-up as one JSON document, out of this hub and into it; first as a dry run that says what
# would change.

SCOPE = "agreements:write"


@requires(SCOPE, methods=("GET", "POST"))
def bundle_page(request: HttpRequest) -> HttpResponse:
    """GET: what can be done. POST: the dry run of a bundle or of a CSV file, or (`do`) the import of what the dry run
    showed.
    """
    errors: Errors = {}
    report: ImportReport | None = None
    text, activate = "", request.POST.get("activate") == "on"
    kind = "csv" if "csv" in request.POST or "csv_file" in request.FILES else "bundle"
    template = posted(request, "template")
    if request.method == "POST":
        try:
            text = _text(request, kind)
            found = partner_csv.read(text, template) if kind == "csv" else bundle_format.read(text)
            report = bundle.bundle_import(bundle=found, actor=actor(request), reason="", dry_run=True)
            if "do" in request.POST and not report.problems:
                done = bundle.bundle_import(
                    bundle=found, actor=actor(request), reason=reason_of(request), activate=activate
                )
                made, changed = done.count("create"), done.count("change")
                notices.success(
                    request,
                    _("The import is done: {made} created, {changed} changed.").format(made=made, changed=changed),
                )
                return see_other("console:agreements" if found.agreements else "console:partners")
        except INVALID as error:
            errors = refusals(error)
    context = {
        "report": report,
        "table": tables.bundle(report) if report is not None else None,
        "text": text if report is not None else "",
        "kind": kind,
        "template": template,
        "columns": partner_csv.COLUMNS,
        "activate": activate,
        "errors": [(field if field == "reason" else "", one) for field, texts in errors.items() for one in texts],
        "given": request.POST,
        "presets": (_("New set-up"), _("Copied from another hub")),
    }
    return page(request, "console/onboarding/bundle.html", context, status=422 if errors else 200)


def _text(request: HttpRequest, kind: str) -> str:
    file = request.FILES.get(f"{kind}_file")
    if file is None:
        return request.POST.get(kind, "").replace("\x00", "")
    if (file.size or 0) > bundle_format.MAX_BYTES:
        raise InvalidSubmission({"bundle": [_("The file is too large for a bundle.")]})
    content = file.read()
    if kind == "csv":  # spreadsheets write it in many ways
        return (selecting.text_of(content, "") or "").replace("\x00", "")
    try:
        return str(content, "utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidSubmission({"bundle": [_("The file is not JSON in UTF-8.")]}) from None


@requires("agreements:read")
def bundle_download(request: HttpRequest) -> HttpResponse:
    """The bundle of one partner (`partner`), or of all, as a file."""
    chosen, name = None, "all"
    partner = filters.partner_of(request)
    if partner.missing:
        notices.error(request, naming.with_alike(partner.missing, partner.alike))
        return see_other("console:bundle")
    if partner.party is not None:
        chosen, name = [partner.party.pk], partner.party.public_id
    content = json.dumps(bundle.bundle_export(party_ids=chosen), indent=2, ensure_ascii=False)
    answer = HttpResponse(content, content_type="application/json")
    answer["Content-Disposition"] = f'attachment; filename="bundle-{name}-{clock.now():%Y%m%d}.json"'
    return answer
