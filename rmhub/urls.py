"""Where everything hangs: partner-facing entrance, API, console."""

from __future__ import annotations

from django.urls import include, path, re_path
from django.views.decorators.csrf import csrf_exempt

from messaging.api.views.hub import not_found

urlpatterns = [
    path("ebxml/", include("messaging.inbound.urls")),
    path("", include("messaging.inbound.exchange_urls")),
    path("", include("messaging.inbound.stream_urls")),
    path("", include("messaging.inbound.ws_tx_urls")),
    path("partner/", include("messaging.inbound.partner_urls")),
    path("api/v1/", include("messaging.api.urls")),
    re_path(r"^api/", csrf_exempt(not_found)),
    path("", include("messaging.console.urls")),
]

# They answer JSON below /api/ and Django's pages elsewhere.
handler400 = "messaging.api.views.hub.handler400"
handler500 = "messaging.api.views.hub.handler500"
