"""What was refused, and what people did."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from messaging.causes import REFUSALS
from messaging.console.access import requires
from messaging.console.rendering import keyset_page, page
from messaging.selectors import records
from rmhub.ids import read_public_id

_AUDIT_FILTERS = ("actor", "verb", "object_type", "object_id")


@requires("messages:read")
def rejection_list(request: HttpRequest) -> HttpResponse:
    """Newest first, by reason and party."""
    filters = _filters(request, ("reason", "party"))
    found = records.rejections(reason=filters["reason"], party=filters["party"])
    context = keyset_page(request, "console.rejections", found, order=("-id",), filters=filters)
    context |= {
        "given": filters,
        "filtered": any(filters.values()),
        "reasons": sorted(REFUSALS.items(), key=lambda r: r[1]),
    }
    return page(request, "console/rejections.html", context)


@requires("messages:read")
def rejection_page(request: HttpRequest, reference: str) -> HttpResponse:
    """What is known of one refusal, without its bytes."""
    context = {"rejection": records.rejection(read_public_id("rej", reference))}
    return page(request, "console/rejection.html", context)


@requires("audit:read")
def audit_list(request: HttpRequest) -> HttpResponse:
    """Newest first: who, when, what, why, before and after."""
    filters = _filters(request, _AUDIT_FILTERS)
    found = records.audit_entries(
        actor=filters["actor"],
        verb=filters["verb"],
        object_type=filters["object_type"],
        object_id=filters["object_id"],
    )
    context = keyset_page(request, "console.audit", found, order=("-id",), filters=filters)
    return page(request, "console/audit.html", {**context, "given": filters, "filtered": any(filters.values())})


def _filters(request: HttpRequest, names: tuple[str, ...]) -> dict[str, str]:
    return {name: request.GET.get(name, "").strip()[:255].replace("\x00", "") for name in names}
