"""Services for partners beside the messages themselves."""

from __future__ import annotations

from django.urls import path

from messaging.entrance import echo_view as echo
from messaging.entrance import partner_view as partner_services

urlpatterns = [
    path("status", partner_services.status, name="partner-status"),
    path("echo", echo.echo, name="partner-echo"),
]
