from __future__ import annotations

from django.urls import path, re_path

from messaging.entrance import ebxml_view as views

app_name = "inbound"
urlpatterns = [
    path("msh", views.ebxml, name="msh"),
    path("errors", views.ebxml, name="errors"),
    # A hub may have several messaging service URIs; which of them an agreement means is checked by its ReceiverURI.
    re_path(r"^(?:msh|errors)/[A-Za-z0-9._~-]{1,64}$", views.ebxml),
]
