"""What came in and was refused."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from messaging.access.selectors.reach import read_id
from messaging.causes import REFUSALS
from messaging.console.access import requires
from messaging.console.rendering import keyset_page, page
from messaging.overview.selectors import records


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
    return page(request, "console/overview/rejections.html", context)


@requires("messages:read")
def rejection_page(request: HttpRequest, reference: str) -> HttpResponse:
    """What is known of one refusal, without its bytes."""
    context = {"rejection": records.rejection(read_id("rej", reference))}
    return page(request, "console/overview/rejection.html", context)


def _filters(request: HttpRequest, names: tuple[str, ...]) -> dict[str, str]:
    return {name: request.GET.get(name, "").strip()[:255].replace("\x00", "") for name in names}
