"""The peer's own views; the receiving one is /pyas2/as2receive."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("pyas2/", include("pyas2.urls")), path("admin/", admin.site.urls)]
