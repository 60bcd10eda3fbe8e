"""Services for partners beside the messages themselves."""

from __future__ import annotations

from django.urls import path

from messaging.inbound import echo, partner_services

urlpatterns = [
    path("status", partner_services.status, name="partner-status"),
    path("echo", echo.echo, name="partner-echo"),
]
