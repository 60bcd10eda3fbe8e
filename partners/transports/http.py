"""HTTP and HTTPS: to the address itself, with an Authorization header or our certificate."""

from __future__ import annotations

from django.utils.translation import gettext as _

from partners.transports.base import Fault, Transport, url_fault

_PORTS = {"http": 80, "https": 443}


def _uri_fault(uri: str) -> Fault | None:
    fault = url_fault(uri)
    readable = fault is None or fault[0] != "uri_malformed"
    if readable and uri.partition(":")[0].lower() not in _PORTS:
        return "uri_scheme", _("The HTTP transport needs a URI that begins with http:// or https://.")
    return fault


HTTP = Transport(
    name="http", label="HTTP", uri_fault=_uri_fault, ports=_PORTS, fields=frozenset({"trusted_certificates"})
)
