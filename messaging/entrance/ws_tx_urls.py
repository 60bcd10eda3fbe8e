from __future__ import annotations

from django.urls import re_path

from messaging.entrance import ws_tx_view as ws_tx

app_name = "ws-tx"
urlpatterns = [
    re_path(r"^ws-tx/(?P<service>[a-z-]{1,40})/?$", ws_tx.coordination, name="service"),
]
