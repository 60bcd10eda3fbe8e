from __future__ import annotations

from django.urls import path, re_path

from messaging.entrance import exchange_view as exchange

app_name = "exchange"
urlpatterns = [
    re_path(r"^exchange/(?P<path>[\s\S]+)$", exchange.exchange, name="exchange"),
    path(".well-known/reliable-messaging", exchange.well_known, name="well-known"),
    path("problems/", exchange.problems, name="problems"),
    path("problems/<slug:code>", exchange.problems, name="problem"),
]
