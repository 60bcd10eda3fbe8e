"""The dashboard, and the jump to whatever an id names."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from messaging.console.access import requires
from messaging.console.rendering import page, see_other
from messaging.selectors import finding, screens
from rmhub import clock


@requires("pairs:read")
def dashboard(request: HttpRequest) -> HttpResponse:
    """Is anything broken right now, and what needs somebody?"""
    context = {"overview": screens.overview(clock.now())}
    return page(request, "console/dashboard.html", context, fragments={"live-dashboard": "console/dashboard_live.html"})


@requires("pairs:read")
def go(request: HttpRequest) -> HttpResponse:
    """`?q=`: one exact hit goes straight there, several are listed."""
    text = request.GET.get("q", "").strip()
    found = finding.find(text)
    if found.only is not None:
        return see_other(f"console:{found.only.page}", *found.only.arguments)
    return page(request, "console/go.html", {"q": text, "found": found})
