"""An ASGI request as the environ of WSGI (PEP 3333), without what its sender may not say."""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import unquote_to_bytes

from rmhub.front.peers import Peers, wsgi_key

# Keys of our own.
LIMIT = "rmhub.body_limit"  # a view sets it before it reads a body of unknown length
TOO_LARGE = "rmhub.body_too_large"  # such a body had more than that
TRUSTED = "rmhub.trusted_peer"  # the connection comes from a proxy that is believed
PATIENCE = "rmhub.patience"  # until when (monotonic) whoever finds no place may raise `Later` instead of an answer
PEER = "rmhub.peer"  # the other end of the connection; REMOTE_ADDR is the client's

Environ = dict[str, Any]


def environ_of(scope: dict[str, Any], peers: Peers, file_wrapper: Any) -> Environ:
    """The environ, but for `wsgi.input`.

    Headers with an underscore are dropped: WSGI cannot tell `X_Client` from `X-Client`. So are, but from trusted
    proxies, the headers in which proxies speak. REMOTE_ADDR is the client's address behind such proxies.
    """
    server, client = scope.get("server") or ("", None), scope.get("client") or ("", 0)
    peer = client[0]
    trusted = bool(peers.trusted) and peers.trusts(peer)
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope.get("raw_path") or scope["path"]).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1] or 0),
        "REMOTE_ADDR": peer,
        PEER: peer,
        TRUSTED: trusted,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
        "wsgi.file_wrapper": file_wrapper,
    }
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1")
        if "_" in name:
            continue
        key = wsgi_key(name)
        if key in peers.guarded and not trusted:
            continue
        text = value.decode("latin-1")
        if key in environ:
            text = f"{environ[key]}{'; ' if key == 'HTTP_COOKIE' else ','}{text}"
        environ[key] = text
    if trusted:
        environ["REMOTE_ADDR"] = peers.client(peer, environ.get(wsgi_key(peers.chain.lower()), ""))
    return environ
