from __future__ import annotations

from django.urls import re_path

from messaging.entrance import stream_view as streams

app_name = "streams"
urlpatterns = [
    # Which of the hub's stream URIs an agreement means is checked by the message's `to`.
    re_path(r"^stream/(?P<path>[\s\S]+)$", streams.stream, name="stream"),
]
