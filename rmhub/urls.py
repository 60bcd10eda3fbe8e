"""Where everything hangs: partner-facing entrance, API, console."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [
    path("ebxml/", include("messaging.inbound.urls")),
    path("api/v1/", include("messaging.api.urls")),
    path("", include("messaging.console.urls")),
]
