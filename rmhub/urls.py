"""Where everything hangs: partner-facing entrance, API, console."""

from __future__ import annotations

from django.urls import include, path, re_path
from django.views.decorators.csrf import csrf_exempt

from messaging.overview.api.hub import Metrics, not_found

_metrics = Metrics.as_view()

urlpatterns = [
    path("", include("messaging.entrance.urls")),
    # Where Prometheus looks by itself; in the API's description it stands once, below /api/v1.
    path("metrics", lambda request: _metrics(request)),
    path("api/v1/", include("messaging.urls.api")),
    re_path(r"^api/", csrf_exempt(not_found)),
    path("", include("messaging.urls.console")),
]

# They answer JSON below /api/ and Django's pages elsewhere.
handler400 = "messaging.overview.api.hub.handler400"
handler500 = "messaging.overview.api.hub.handler500"
