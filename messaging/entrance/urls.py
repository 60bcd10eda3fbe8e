"""The paths of all entrances of partners: messages of each profile, and the services beside them."""

from __future__ import annotations

from django.urls import include, path, re_path

from messaging.entrance import partner_views, views

ebxml = [
    path("msh", views.ebxml, name="msh"),
    path("errors", views.ebxml, name="errors"),
    # A hub may have several messaging service URIs; which of them an agreement means is checked by its ReceiverURI.
    re_path(r"^(?:msh|errors)/[A-Za-z0-9._~-]{1,64}$", views.ebxml),
]
exchange = [
    re_path(r"^exchange/(?P<path>[\s\S]+)$", views.exchange, name="exchange"),
    path(".well-known/reliable-messaging", views.well_known, name="well-known"),
    path("problems/", views.problems, name="problems"),
    path("problems/<slug:code>", views.problems, name="problem"),
]
# Which of the hub's stream URIs an agreement means is checked by the message's `to`.
streams = [re_path(r"^stream/(?P<path>[\s\S]+)$", views.stream, name="stream")]
coordination = [re_path(r"^ws-tx/(?P<service>[a-z-]{1,40})/?$", views.coordination, name="service")]

urlpatterns = [
    path("ebxml/", include((ebxml, "inbound"))),
    path("", include((exchange, "exchange"))),
    path("", include((streams, "streams"))),
    path("", include((coordination, "ws-tx"))),
    path("partner/status", partner_views.status, name="partner-status"),
    path("partner/echo", partner_views.echo, name="partner-echo"),
]
