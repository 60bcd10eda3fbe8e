"""The onboarding wizard: six steps, saved as one goes, free to go back, and nothing in force before the last one."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from messaging.console.access import actor, requires
from messaging.console.naming import agreement_key, posted_key
from messaging.console.rendering import page, see_other
from messaging.exceptions import InvalidSubmission, Stale
from messaging.journal.audit import Actor
from messaging.models import BenchReport, OnboardingDraft
from messaging.onboarding import selectors
from messaging.onboarding.pages import steps, tables
from messaging.onboarding.pages.changing import Subject, act, partners_crumb
from messaging.onboarding.pages.forms import INVALID, REFUSED, Errors, reason_of, refusals
from messaging.onboarding.pages.parties import SCOPE
from messaging.onboarding.services import bench, bundle_format
from messaging.onboarding.services import drafts as onboarding_drafts
from messaging.onboarding.services.drafts import STEPS
from messaging.onboarding.services.making import Check, step_of, values_of
from messaging.resource import Verb
from messaging.resource import number as seen
from partners.models import AgreementVersion
from rmhub.language import gettext_lazy

LAST = len(STEPS)
TITLES = (
    gettext_lazy("Start"),
    gettext_lazy("Identity"),
    gettext_lazy("Transport"),
    gettext_lazy("Agreement"),
    gettext_lazy("Test"),
    gettext_lazy("Review and activate"),
)
_TYPED = {2: "identity", 3: "transport", 4: "agreement"}


def _discard(*, draft_id: uuid.UUID, actor: Actor, reason: str, expected: str) -> None:
    onboarding_drafts.draft_discard(draft_id=draft_id, actor=actor, reason=reason, expected=seen(expected))


DISCARD = Verb(
    "discard",
    gettext_lazy("Discard"),
    "x",
    "danger",
    _discard,
    (gettext_lazy("The draft is deleted, and so is what it has created, as far as nothing else uses it."),),
    gettext_lazy("What was typed is gone. Nothing of it was in force."),
    (gettext_lazy("Not needed"), gettext_lazy("Started by mistake")),
    gettext_lazy("is discarded"),
    scope=SCOPE,
)


@dataclass(frozen=True, slots=True)
class Place:
    """One entry of the progress list."""

    number: int
    title: str
    href: str
    current: bool
    done: bool


@sensitive_post_parameters("bundle")
@requires(SCOPE, methods=("GET", "POST"))
def onboarding_new(request: HttpRequest) -> HttpResponse:
    """Step 1: blank, as an agreement that there is, or from a bundle; and the drafts that wait to be gone on with."""
    errors: Errors = {}
    if request.method == "POST":
        try:
            draft = _start(request)
        except (*INVALID, *REFUSED) as error:
            errors = refusals(error)
        else:
            return see_other("console:onboarding-step", draft.public_id, 2)
    drafts = selectors.drafts()[:50]
    context = {
        "drafts": drafts,
        "table": tables.drafts(drafts),
        "given": request.POST,
        "errors": [
            (field if field in ("bundle", "clone_of") else "", text)
            for field, texts in errors.items()
            for text in texts
        ],
        "places": [Place(n, title, "", n == 1, False) for n, title in enumerate(TITLES, 1)],
    }
    return page(request, "console/onboarding/onboarding_new.html", context, status=422 if errors else 200)


def _start(request: HttpRequest) -> OnboardingDraft:
    source = request.POST.get("source", "blank")
    if source == "bundle":
        file = request.FILES.get("bundle_file")
        if file is not None and (file.size or 0) > bundle_format.MAX_BYTES:
            raise InvalidSubmission({"bundle": [_("The file is too large for a bundle.")]})
        text = file.read() if file is not None else request.POST.get("bundle", "").encode()
        return onboarding_drafts.draft_from_bundle(bundle=bundle_format.read(text), actor=actor(request))
    clone_of = posted_key(request, "clone_of", agreement_key) if source == "clone" else None
    if source == "clone" and clone_of is None:
        raise InvalidSubmission({"clone_of": [_("Choose the agreement whose terms are taken over.")]})
    return onboarding_drafts.draft_create(actor=actor(request), source=source, clone_of=clone_of)


@sensitive_post_parameters("secret")
@requires(SCOPE, methods=("GET", "POST"))
def onboarding_step(request: HttpRequest, reference: str, number: int) -> HttpResponse:
    """Steps 2 to 6 of a draft."""
    draft = selectors.draft(reference)
    if number in _TYPED:
        return _typed(request, draft, number)
    if number == 5:
        return _test(request, draft)
    if number == LAST:
        return _review(request, draft)
    raise Http404(_("The wizard has no step {number} here.").format(number=number))


@sensitive_variables("texts", "secret")
def _typed(request: HttpRequest, draft: OnboardingDraft, number: int) -> HttpResponse:
    """A step with fields. POST keeps them: by htmx as one goes, and when one goes on."""
    step = _TYPED[number]
    if request.method == "GET":
        check = onboarding_drafts.draft_check(draft_id=draft.pk) if draft.step > number else Check()
        known = check.errors.get(step, {})
        return _form(request, draft, number, steps.kept(draft, step), known, check, status=200)
    texts, values, unread, unreadable = steps.read(step, request.POST, request.FILES, request.POST.get("preset", ""))
    errors: Errors = {}
    go_on = "go_on" in request.POST
    try:
        draft = onboarding_drafts.draft_save(
            draft_id=draft.pk,
            step=step,
            values=values,
            unread=unread,
            secret=request.POST.get("secret", "").replace("\x00", "").strip("\r\n"),
            actor=actor(request),
            expected=seen(request.POST.get("version", "")),
            # What is kept as one types may come after the Continue that it was typed before: then it is the older one.
            over_own=not _by_htmx(request),
        )
    except Stale as error:
        draft = selectors.draft(draft.public_id)
        if _by_htmx(request):
            return _not_kept(request, draft, error)
        return _form(request, draft, number, texts, {"": [error.detail]}, Check(), status=409)
    except INVALID as error:
        errors = refusals(error)
    check = onboarding_drafts.draft_check(draft_id=draft.pk)
    wrong = check.errors.get(step, {}) | unreadable | errors
    if _by_htmx(request):
        return _checked(request, draft, check, list(dict.fromkeys(text for one in wrong.values() for text in one)))
    if go_on and not wrong:
        onboarding_drafts.draft_reach(draft_id=draft.pk, step=number + 1)
        return see_other("console:onboarding-step", draft.public_id, number + 1)
    if request.POST.get("leave"):
        notices.success(request, _("The draft is saved. You can continue it at any time."))
        return see_other("console:onboarding-new")
    return _form(request, draft, number, texts, wrong if go_on else {}, check)


def _by_htmx(request: HttpRequest) -> bool:
    return request.headers.get("HX-Request") == "true"


def _checked(request: HttpRequest, draft: OnboardingDraft, check: Check, wrong: list[str]) -> HttpResponse:
    """What stands under the form: saved when, what it amounts to, what is wrong so far."""
    context = {"draft": draft, "check": check, "wrong": wrong, "saved": True}
    return page(request, "console/onboarding/onboarding_check.html", context)


def _not_kept(request: HttpRequest, draft: OnboardingDraft, error: Stale) -> HttpResponse:
    """Says so under the form, which still has everything. Of one's own changes it knows from now on; of those of
    somebody else not before the page is loaded again.
    """
    own = draft.updated_by == request.user.get_username()
    said = error.detail
    if own:
        said = _("Not kept yet: you have saved this draft in another window since. Continue saves what is typed here.")
    return page(request, "console/onboarding/onboarding_check.html", {"draft": draft, "wrong": [said], "known": own})


def _form(
    request: HttpRequest,
    draft: OnboardingDraft,
    number: int,
    given: Mapping[str, Any],
    errors: Errors,
    check: Check,
    *,
    status: int = 0,
) -> HttpResponse:
    step = _TYPED[number]
    form = steps.shown(step, given, errors)
    context: dict[str, Any] = _around(draft, number) | {
        "form": form,
        "errors": form.wrong(),
        "check": check,
        "presets": steps.PRESETS if step == "agreement" else (),
        "secret_kept": "secret" in draft.data.get(step, {}) or "credential" in draft.data.get("made", {}),
    }
    return page(request, "console/onboarding/onboarding_step.html", context, status=status or (422 if errors else 200))


def _around(draft: OnboardingDraft, number: int) -> dict[str, Any]:
    """What all steps show: the draft and the progress list."""
    places = [
        Place(
            n,
            title,
            resolve_url("console:onboarding-step", draft.public_id, n) if 1 < n <= draft.step and n != number else "",
            n == number,
            n < draft.step,
        )
        for n, title in enumerate(TITLES, 1)
    ]
    back = resolve_url("console:onboarding-step", draft.public_id, number - 1) if number > 2 else ""
    title = TITLES[number - 1]
    return {"draft": draft, "places": places, "number": number, "title": title, "back": back}


def _test(request: HttpRequest, draft: OnboardingDraft) -> HttpResponse:
    """Step 5: makes what was typed, as drafts, and tests it. The report is kept."""
    errors: Errors = {}
    if request.method == "POST":
        try:
            draft = onboarding_drafts.draft_make(draft_id=draft.pk, actor=actor(request))
        except (*INVALID, *REFUSED) as error:
            errors = refusals(error)
        else:
            assert draft.agreement_id is not None
            version = AgreementVersion.objects.filter(agreement=draft.agreement_id).order_by("-number")[0]
            bench.run(agreement_id=draft.agreement_id, number=version.number, actor=actor(request), draft_id=draft.pk)
            onboarding_drafts.draft_reach(draft_id=draft.pk, step=LAST)
            return see_other("console:onboarding-step", draft.public_id, 5)
    check = onboarding_drafts.draft_check(draft_id=draft.pk)
    report = BenchReport.objects.filter(draft=draft).order_by("-id").first()
    context = _around(draft, 5) | {
        "errors": [("", text) for texts in errors.values() for text in texts],
        "check": check,
        "wrong": _all_wrong(check),
        "report": report,
        "steps": tables.bench(report) if report is not None else None,
        "forward": resolve_url("console:onboarding-step", draft.public_id, LAST),
    }
    return page(request, "console/onboarding/onboarding_test.html", context, status=422 if errors else 200)


def _all_wrong(check: Check) -> list[tuple[int, str]]:
    """(number of the step, sentence) of everything that is in the way."""
    numbers = {name: number for number, name in _TYPED.items()}
    found = [
        (numbers[step], text) for step, errors in check.errors.items() for texts in errors.values() for text in texts
    ]
    return found + [(numbers[step_of(one)], one.sentence) for one in check.problems if one.level == "error"]


@sensitive_variables("done")
def _review(request: HttpRequest, draft: OnboardingDraft) -> HttpResponse:
    """Step 6: all of it once more, and the verb that puts it in force."""
    errors: Errors = {}
    status = 200
    if request.method == "POST":
        try:
            done = onboarding_drafts.draft_activate(
                draft_id=draft.pk,
                actor=actor(request),
                reason=reason_of(request),
                expected=seen(request.POST.get("version", "")),
            )
        except REFUSED as error:
            errors, status = refusals(error), 409
            draft = selectors.draft(draft.public_id)
        except INVALID as error:
            errors, status = refusals(error), 422
            draft = selectors.draft(draft.public_id)
        else:
            partner = done.version.agreement.partner
            activated = urlencode({"activated": done.version.agreement.tpa_id})
            leave = f"{resolve_url('console:partner', partner.public_id)}?{activated}"
            if done.shown_once:
                context = {"credential": done.credential, "party": partner, "secret": done.shown_once, "leave": leave}
                return page(request, "console/onboarding/credential_made.html", context | {"activated": done.version})
            notices.success(
                request, _("{partner} is set up: {version} is active.").format(partner=partner, version=done.version)
            )
            return see_other(leave)
    check = onboarding_drafts.draft_check(draft_id=draft.pk)
    wish = values_of(draft, "transport")
    context = _around(draft, LAST) | {
        "errors": [("reason" if name == "reason" else "", text) for name, texts in errors.items() for text in texts],
        "given": request.POST,
        "check": check,
        "wrong": _all_wrong(check),
        "facts": [(TITLES[n - 1], n, steps.facts(draft, step)) for n, step in _TYPED.items()],
        "inbound": wish.get("inbound_kind", ""),
        "report": BenchReport.objects.filter(draft=draft).order_by("-id").first(),
        "presets": (_("Tested with the partner"), _("Go-live")),
    }
    return page(request, "console/onboarding/onboarding_review.html", context, status=status)


@requires(SCOPE, methods=("GET", "POST"))
def onboarding_discard(request: HttpRequest, reference: str) -> HttpResponse:
    """Forgets a draft."""

    def subject() -> Subject:
        draft = selectors.draft(reference)
        href = resolve_url("console:onboarding-step", draft.public_id, min(max(draft.step, 2), LAST))
        crumbs = (partners_crumb(), (_("New partner"), resolve_url("console:onboarding-new")))
        return Subject({"draft_id": draft.pk}, draft.called, href, str(draft.version), crumbs)

    return act(request, DISCARD, subject, to=lambda: resolve_url("console:onboarding-new"))
