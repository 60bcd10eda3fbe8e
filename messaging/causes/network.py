"""Cause codes of connections and of HTTP answers: rows of `messaging.causes`."""

from __future__ import annotations

from messaging.causes.cause import Row
from rmhub.language import gettext_lazy as _

NETWORK: tuple[Row, ...] = (
    (
        "dns_error",
        _("Host name unknown"),
        _("The partner's host name could not be resolved."),
        _("Check the endpoint's address for a typing error, then the hub's name server."),
        True,
    ),
    (
        "connect_refused",
        _("Connection refused"),
        _("The partner's server refused the connection: nothing listens at that address and port."),
        _("Ask the partner whether their messaging service is up. Let it go out again when they say so."),
        True,
    ),
    (
        "connect_timeout",
        _("No connection in time"),
        _("The partner's server did not answer the connection attempt in time."),
        _("Usually a firewall or a server that is down: ask the partner, and check our own outbound network."),
        True,
    ),
    (
        "tls_handshake",
        _("TLS handshake failed"),
        _("The encrypted connection could not be set up."),
        _("Compare TLS versions and client certificate with the partner, then retry."),
        False,
    ),
    (
        "cert_expired",
        _("Partner certificate expired"),
        _("The partner's server shows a certificate that is past its date."),
        _("Ask the partner to renew it. Let the message go out again when the new certificate is in place."),
        False,
    ),
    (
        "cert_untrusted",
        _("Partner certificate not trusted"),
        _("The partner's server shows a certificate that the hub does not trust."),
        _("Check who issued it and whether the host name fits; ask the partner for the whole chain."),
        False,
    ),
    (
        "read_timeout",
        _("No answer in time"),
        _("The partner's server took the request and gave no answer in time."),
        _("The message may have arrived; sending it again is safe. If it goes on, ask the partner about their load."),
        True,
    ),
    (
        "connection_reset",
        _("Connection lost"),
        _("The connection broke before an answer came."),
        _(
            "The message may have arrived; sending it again is safe. If it goes on, look at proxies and firewalls "
            "between."
        ),
        True,
    ),
    (
        "proxy_error",
        _("Proxy failed"),
        _("Our outbound proxy could not reach the partner."),
        _("Check the proxy's address and its rules for this host."),
        True,
    ),
    (
        "circuit_open",
        _("Circuit open"),
        _(
            "The partner's server could not be reached several times in a row, so sending to it was stopped for a "
            "while, and this attempt was not made."
        ),
        _("It is tried again by itself, and counts like any failed attempt. “Try now” on the dashboard does not wait."),
        True,
    ),
    (
        "server_unreachable",
        _("Partner's server is down"),
        _("The partner's server has not been reached for minutes, whatever was sent to it."),
        _(
            "Ask the partner. If several servers are down at once, check our own network connection. This closes "
            "itself when the server answers."
        ),
        True,
    ),
    (
        "not_begun",
        _("Not begun"),
        _("The hub's worker stopped before it came to this attempt, so nothing was sent."),
        _("Nothing to do: another worker takes it over at once."),
        True,
    ),
)

HTTP: tuple[Row, ...] = (
    (
        "http_3xx",
        _("Redirected"),
        _("The partner's server sent us to another address; the hub does not follow redirects."),
        _("Ask the partner for the right address and correct the endpoint."),
        False,
    ),
    (
        "http_401_403",
        _("Access refused"),
        _("The partner's server does not accept our credential (HTTP 401 or 403)."),
        _("Compare the outbound credential with the one that the partner has for us, replace it, then retry."),
        False,
    ),
    (
        "http_404",
        _("Address unknown"),
        _("The partner's server does not know this address (HTTP 404)."),
        _("Check the endpoint's path with the partner, then retry."),
        False,
    ),
    (
        "http_413",
        _("Too large for the partner"),
        _("The partner's server does not take messages of this size (HTTP 413)."),
        _("Agree on a size with the partner. Until then this message can only be skipped."),
        False,
    ),
    (
        "http_429",
        _("Partner asks us to slow down"),
        _("The partner's server gets too many requests from us (HTTP 429)."),
        _("It is retried by itself. If it goes on, ask the partner for a higher limit."),
        True,
    ),
    (
        "http_4xx",
        _("Request refused"),
        _("The partner's server refuses the request (HTTP 4xx)."),
        _("Read the partner's answer on the attempt's page and ask them what is wrong."),
        False,
    ),
    (
        "http_5xx",
        _("Partner's server failed"),
        _("The partner's server has an error of its own (HTTP 5xx)."),
        _("It is retried by itself. If it goes on, ask the partner."),
        True,
    ),
    (
        "answer_unreadable",
        _("Answer not understood"),
        _("The partner's status service answered something that is not what was asked for."),
        _("Check the address of the partner's test services at its endpoint, and show the partner what came."),
        False,
    ),
)
