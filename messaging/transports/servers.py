"""Which server an attempt goes to: what circuits are kept for, and what shares its threads.

Not the URI: several URIs of one host are dead together. Not the host alone: its ports are different programs.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit

from django.conf import settings

from partners.addresses import PORTS

MAX_LENGTH = 500


def server_of(address: str, server: str = "") -> str:
    """`scheme://host:port`, in lower case, of the server that a parcel for `address` is handed to.

    `server`: the endpoint's own mail or file server. Mail without one goes to the hub's relay. Never raises.
    """
    if address[:7].lower() == "mailto:":
        return _normal(server or settings.RMHUB_SMTP_RELAY or "smtp://")
    return _normal(server or address)


@lru_cache(maxsize=8192)
def _normal(url: str) -> str:
    """Without user name and password, which are nobody's business, and with the port that the scheme stands for."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return url.rpartition("@")[2].lower()[:MAX_LENGTH]
    scheme = parts.scheme or "http"
    named = f"[{host}]" if ":" in host else host
    return f"{scheme}://{named}:{port or PORTS.get(scheme, 0)}"[:MAX_LENGTH]
