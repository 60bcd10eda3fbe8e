"""An ASGI request as the environ of WSGI (PEP 3333), without what its sender may not say; addresses behind proxies."""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

from rmhub.ids import request_id

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
X_FORWARDED_FOR = "X-FORWARDED-FOR"
FORWARDED = "FORWARDED"

# Said by proxies about whom they speak for: from anybody else they are dropped.
_OF_PROXIES = ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port", "Forwarded")
_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s]*)', re.IGNORECASE)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|,')


@dataclass(frozen=True, slots=True)
class Peers:
    """The proxies that are believed, and the headers in which they speak.

    `chain`: the one header with the addresses on the way, X-Forwarded-For or Forwarded. Only one: a proxy that keeps
    the one hands on what strangers wrote into the other.
    """

    trusted: tuple[Network, ...] = ()
    chain: str = X_FORWARDED_FOR
    fingerprint_header: str = ""
    _guarded: frozenset[str] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        names = (*_OF_PROXIES, *([self.fingerprint_header] if self.fingerprint_header else []))
        object.__setattr__(self, "_guarded", frozenset(wsgi_key(name.lower()) for name in names))

    @property
    def guarded(self) -> frozenset[str]:
        """WSGI keys of the headers that only trusted peers may send."""
        return self._guarded

    def trusts(self, address: str) -> bool:
        """Whether this address is one of the proxies."""
        parsed = _address(address)
        return parsed is not None and any(parsed in network for network in self.trusted)

    def client(self, peer: str, said: str) -> str:
        """The client's address, when trusted `peer` says `said` in the chain's header.

        Read from the right: each address was written by the hop to its right, so the first one that is not trusted is
        the last one that a trusted hop has seen. What stands left of it anybody may have made up.
        """
        found = peer
        for text in reversed(_hops(self.chain, said)):
            parsed = _address(text)
            if parsed is None:
                break
            found = str(parsed)
            if not self.trusts(found):
                break
        return found


@lru_cache(maxsize=512)
def wsgi_key(name: str) -> str:
    """The WSGI key of a header with this lower-case name."""
    key = name.upper().replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


def bucket(address: str) -> str:
    """What is counted as one guesser: an IPv4 address, or the /64 of an IPv6 one, which is a single customer's."""
    parsed = _address(address)
    if parsed is None or parsed.version == 4:
        return str(parsed) if parsed else address
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def _hops(chain: str, said: str) -> Sequence[str]:
    """Addresses in the order in which the header has them."""
    if chain != FORWARDED:
        return [part.strip() for part in said.split(",")] if said else []
    found = []
    for element in _elements(said):
        named = _FOR.search(element)
        found.append(named[1].strip('"') if named else "")
    return found


def _elements(said: str) -> list[str]:
    """Splits at the commas that stand outside of quotes."""
    parts, start = [], 0
    for token in _QUOTED.finditer(said):
        if token[0] == ",":
            parts.append(said[start : token.start()])
            start = token.end()
    last = said[start:]
    return [part.strip() for part in (*parts, last)] if said else []


@lru_cache(maxsize=1024)
def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Of `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` and `[2001:db8::1]:80`; None for all else."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        parsed = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (parsed.ipv4_mapped or parsed) if parsed.version == 6 else parsed


# Keys of our own.
LIMIT = "rmhub.body_limit"  # a view sets it before it reads a body of unknown length
IN_MEMORY = "rmhub.body_in_memory"  # a view that reads its body piece by piece sets how many bytes it holds at once
PARTIAL = "rmhub.body_partial"  # a view sets it that keeps what came of a body, should it break off
TOO_LARGE = "rmhub.body_too_large"  # such a body had more than that
TRUSTED = "rmhub.trusted_peer"  # the connection comes from a proxy that is believed
PATIENCE = "rmhub.patience"  # until when (monotonic) whoever finds no place may raise `Later` instead of an answer
REQUEST_ID = "rmhub.request_id"
CALLER = "rmhub.caller"  # whoever knows the caller sets it, for the access log
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
    environ[REQUEST_ID] = request_id(environ.get("HTTP_X_REQUEST_ID", ""))
    return environ
