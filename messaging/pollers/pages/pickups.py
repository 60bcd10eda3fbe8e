"""Pickups: the list, the page, and the dialogs that look now, switch one on or off, or delete it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse

from messaging.access.selectors.reach import read_id
from messaging.console.access import Person, actor, person, requires
from messaging.console.rendering import keyset_page, page, problems, see_other
from messaging.exceptions import InvalidSubmission, Stale, WrongState
from messaging.pairs.selectors import screens
from messaging.pollers import selectors
from messaging.pollers.services import changes as services
from partners.choices import PickupKind
from partners.models import Pickup
from rmhub import clock

SCOPE = "partners:write"


@dataclass(frozen=True, slots=True)
class PickupVerb:
    """One verb of `services.changes`. `effects` say what it does."""

    slug: str
    label: str
    icon: str
    colour: str
    scope: str
    service: Callable[..., Pickup | None]
    effects: tuple[str, ...]
    forever: str
    presets: tuple[str, ...]
    done: str


VERBS: dict[str, PickupVerb] = {
    verb.slug: verb
    for verb in (
        PickupVerb(
            "look",
            "Look now",
            "refresh",
            "primary",
            "pairs:operate",
            services.pickup_look,
            ("The hub looks into it at once, or right after the look that is under way.",),
            "What is taken from there is stored here; it cannot be put back.",
            ("The partner says that something lies there", "Mended"),
            "is looked into",
        ),
        PickupVerb(
            "enable",
            "Switch on",
            "power",
            "primary",
            SCOPE,
            services.pickup_enable,
            ("The hub looks into it at once, and from then on at its interval.",),
            "What is taken from there is stored here; it cannot be put back.",
            ("Used again",),
            "is on",
        ),
        PickupVerb(
            "disable",
            "Switch off",
            "power",
            "danger",
            SCOPE,
            services.pickup_disable,
            ("The hub looks into it no more.", "What partners leave there waits, and is not acknowledged meanwhile."),
            "Nothing here is final: switch it on and it goes on.",
            ("Maintenance of the server", "Investigation"),
            "is off",
        ),
        PickupVerb(
            "delete",
            "Delete",
            "x",
            "danger",
            SCOPE,
            services.pickup_delete,
            ("The hub looks into it no more and forgets its secret.", "What lies there stays there."),
            "The pickup is gone for good; the audit log keeps what it was.",
            ("Not used any more",),
            "is deleted",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class PickupButton:
    """A verb on a pickup's page. `why_not` says which role is missing."""

    verb: PickupVerb
    why_not: str


@requires("partners:read")
def pickup_list(request: HttpRequest) -> HttpResponse:
    """All mailboxes and folders, by name."""
    kind = request.GET.get("kind", "")
    filters = {
        "kind": kind if kind in PickupKind.values else "",
        "q": request.GET.get("q", "").strip()[:120].replace("\x00", ""),
    }
    found = selectors.pickups(search=filters["q"], kind=filters["kind"])
    context = keyset_page(request, "console.pickups", found, order=("name",), filters=filters)
    now = clock.now()
    context["rows"] = [selectors.row(pickup, now) for pickup in context["rows"]]
    context |= {"filters": filters, "filtered": any(filters.values()), "kinds": PickupKind.choices}
    return page(
        request,
        "console/pollers/pickups.html",
        context,
        fragments={"live-pickups": "console/pollers/pickups_live.html"},
    )


@requires("partners:read")
def pickup_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One mailbox or folder: how far the hub is with it, and how it is set."""
    pickup = selectors.pickup(read_id("pick", reference))
    row = selectors.row(pickup, clock.now())
    context = {
        "row": row,
        "pickup": pickup,
        "buttons": _buttons(pickup, person(request)),
        "audit": screens.audit_of(pickup),
    }
    return page(
        request, "console/pollers/pickup.html", context, fragments={"live-pickup": "console/pollers/pickup_live.html"}
    )


def _scope(parameters: dict[str, Any]) -> str:
    verb = VERBS.get(parameters["verb"])
    # An unknown verb is answered 404 to whoever may see pickups at all.
    return verb.scope if verb else "partners:read"


@requires(_scope, methods=("GET", "POST"))
def pickup_verb(request: HttpRequest, reference: str, verb: str) -> HttpResponse:
    """GET: the dialog, as a page or in a frame of the pickup's page. POST: does it, or says why not."""
    chosen = VERBS.get(verb)
    pickup = selectors.pickup(read_id("pick", reference))
    if chosen is None:
        raise Http404(f"There is no verb {verb} for pickups.")
    if request.method == "GET":
        return _dialog(request, pickup, chosen)
    version = request.POST.get("version", "")
    if not version:
        errors = [("", "This form is not complete: open it again from the pickup's page.")]
        return _dialog(request, pickup, chosen, errors=errors, status=422)
    try:
        chosen.service(
            pickup_id=pickup.pk,
            actor=actor(request),
            reason=request.POST.get("reason", "").strip().replace("\x00", ""),
            expected=version,
        )
    except (Stale, WrongState) as error:
        return _dialog(request, selectors.pickup(pickup.pk), chosen, errors=problems(error), status=409)
    except InvalidSubmission as error:
        return _dialog(request, pickup, chosen, errors=problems(error), status=422)
    notices.success(request, f"{pickup.name} {chosen.done}.")
    return see_other("console:pickups") if verb == "delete" else see_other("console:pickup", pickup.public_id)


def _possible(pickup: Pickup) -> tuple[str, ...]:
    return ("look", "disable", "delete") if pickup.enabled else ("enable", "delete")


def _buttons(pickup: Pickup, who: Person) -> list[PickupButton]:
    found = []
    for slug in _possible(pickup):
        missing = who.lacks(VERBS[slug].scope)
        found.append(PickupButton(VERBS[slug], f"Needs the role {missing}." if missing else ""))
    return found


def _dialog(
    request: HttpRequest,
    pickup: Pickup,
    verb: PickupVerb,
    *,
    errors: list[tuple[str, str]] | None = None,
    status: int = 200,
) -> HttpResponse:
    possible = verb.slug in _possible(pickup)
    context: dict[str, Any] = {
        "row": selectors.row(pickup, clock.now()),
        "pickup": pickup,
        "version": services.revision(pickup),
        "verb": verb,
        "possible": possible,
        "why_not": "" if possible else f"The pickup is {'on' if pickup.enabled else 'off'} now.",
        "errors": errors or [],
        "given": request.POST,
    }
    fragments = {"dialog": "console/pollers/pickup_verb_form.html"}
    return page(request, "console/pollers/pickup_verb.html", context, fragments=fragments, status=status)
