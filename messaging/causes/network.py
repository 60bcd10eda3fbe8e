"""Cause codes of connections and of HTTP answers: rows of `messaging.causes`."""

from __future__ import annotations

from messaging.causes.cause import Row

NETWORK: tuple[Row, ...] = (
    (
        "dns_error",
        "Host name unknown",
        "The partner's host name could not be resolved.",
        "Check the endpoint's address for a typing error, then the hub's name server.",
        True,
    ),
    (
        "connect_refused",
        "Connection refused",
        "The partner's server refused the connection: nothing listens at that address and port.",
        "Ask the partner whether their messaging service is up. Let it go out again when they say so.",
        True,
    ),
    (
        "connect_timeout",
        "No connection in time",
        "The partner's server did not answer the connection attempt in time.",
        "Usually a firewall or a server that is down: ask the partner, and check our own outbound network.",
        True,
    ),
    (
        "tls_handshake",
        "TLS handshake failed",
        "The encrypted connection could not be set up.",
        "Compare TLS versions and client certificate with the partner, then retry.",
        False,
    ),
    (
        "cert_expired",
        "Partner certificate expired",
        "The partner's server shows a certificate that is past its date.",
        "Ask the partner to renew it. Let the message go out again when the new certificate is in place.",
        False,
    ),
    (
        "cert_untrusted",
        "Partner certificate not trusted",
        "The partner's server shows a certificate that the hub does not trust.",
        "Check who issued it and whether the host name fits; ask the partner for the whole chain.",
        False,
    ),
    (
        "read_timeout",
        "No answer in time",
        "The partner's server took the request and gave no answer in time.",
        "The message may have arrived; sending it again is safe. If it goes on, ask the partner about their load.",
        True,
    ),
    (
        "connection_reset",
        "Connection lost",
        "The connection broke before an answer came.",
        "The message may have arrived; sending it again is safe. If it goes on, look at proxies and firewalls between.",
        True,
    ),
    (
        "proxy_error",
        "Proxy failed",
        "Our outbound proxy could not reach the partner.",
        "Check the proxy's address and its rules for this host.",
        True,
    ),
    (
        "circuit_open",
        "Circuit open",
        "The partner's server could not be reached several times in a row, so sending to it was stopped for a while, "
        "and this attempt was not made.",
        "It is tried again by itself, and counts like any failed attempt. “Try now” on the dashboard does not wait.",
        True,
    ),
    (
        "server_unreachable",
        "Partner's server is down",
        "The partner's server has not been reached for minutes, whatever was sent to it.",
        "Ask the partner. If several servers are down at once, check our own network connection. This closes "
        "itself when the server answers.",
        True,
    ),
    (
        "not_begun",
        "Not begun",
        "The hub's worker stopped before it came to this attempt, so nothing was sent.",
        "Nothing to do: another worker takes it over at once.",
        True,
    ),
)

HTTP: tuple[Row, ...] = (
    (
        "http_3xx",
        "Redirected",
        "The partner's server sent us to another address; the hub does not follow redirects.",
        "Ask the partner for the right address and correct the endpoint.",
        False,
    ),
    (
        "http_401_403",
        "Access refused",
        "The partner's server does not accept our credential (HTTP 401 or 403).",
        "Compare the outbound credential with the one that the partner has for us, replace it, then retry.",
        False,
    ),
    (
        "http_404",
        "Address unknown",
        "The partner's server does not know this address (HTTP 404).",
        "Check the endpoint's path with the partner, then retry.",
        False,
    ),
    (
        "http_413",
        "Too large for the partner",
        "The partner's server does not take messages of this size (HTTP 413).",
        "Agree on a size with the partner. Until then this message can only be skipped.",
        False,
    ),
    (
        "http_429",
        "Partner asks us to slow down",
        "The partner's server gets too many requests from us (HTTP 429).",
        "It is retried by itself. If it goes on, ask the partner for a higher limit.",
        True,
    ),
    (
        "http_4xx",
        "Request refused",
        "The partner's server refuses the request (HTTP 4xx).",
        "Read the partner's answer on the attempt's page and ask them what is wrong.",
        False,
    ),
    (
        "http_5xx",
        "Partner's server failed",
        "The partner's server has an error of its own (HTTP 5xx).",
        "It is retried by itself. If it goes on, ask the partner.",
        True,
    ),
    (
        "answer_unreadable",
        "Answer not understood",
        "The partner's status service answered something that is not what was asked for.",
        "Check the address of the partner's test services at its endpoint, and show the partner what came.",
        False,
    ),
)
