"""Where the broker is: one server, or the one of several that Sentinel says is the master now.

`REDIS_URL` has the forms that redis-py and Celery share, and one for Sentinel that says everything in one URL:
`sentinel://user:password@host1:26379,host2:26379,host3:26379/0?master_name=rmhub`. Celery takes that apart: its
addresses in the broker's URL, the rest in options.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import redis
from redis.sentinel import Sentinel

SCHEMES = ("sentinel", "sentinels")  # the second: by TLS, to Sentinel and to the servers that it names
PORT = 26379
_PARAMETERS = ("master_name", "sentinel_username", "sentinel_password", "ssl_ca_certs")


@dataclass(frozen=True, slots=True)
class Sentinels:
    """What a `sentinel://` URL says. User and password are the servers'; Sentinel has its own, or none."""

    addresses: tuple[tuple[str, int], ...]
    master_name: str
    database: int
    username: str
    password: str
    sentinel_username: str
    sentinel_password: str
    tls: bool
    ssl_ca_certs: str

    def server(self) -> dict[str, Any]:
        """How redis-py connects to the master."""
        return {**_login(self.username, self.password), "db": self.database, **self._tls()}

    def sentinel(self) -> dict[str, Any]:
        """How redis-py connects to Sentinel."""
        return {**_login(self.sentinel_username, self.sentinel_password), **self._tls()}

    def _tls(self) -> dict[str, Any]:
        authorities = {"ssl_ca_certs": self.ssl_ca_certs} if self.ssl_ca_certs else {}
        return {"ssl": True, **authorities} if self.tls else {}


def _login(username: str, password: str) -> dict[str, str]:
    return {name: text for name, text in (("username", username), ("password", password)) if text}


def is_sentinel(url: str) -> bool:
    """Whether the URL names Sentinel, and not the server itself."""
    return url.partition("://")[0] in SCHEMES


def sentinels(url: str) -> Sentinels:
    """Read a `sentinel://` URL. Raises ValueError with one sentence that shows no password."""
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    database = parts.path.strip("/") or "0"
    if not database.isascii() or not database.isdigit():
        raise ValueError("what follows the hosts is the number of a database, such as /0")
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(given)
    if unknown := sorted(options.keys() - set(_PARAMETERS)):
        raise ValueError(f"{unknown[0]} is not a parameter; there are {', '.join(_PARAMETERS)}")
    if len(given) != len(options) or not options.get("master_name"):
        raise ValueError("one master_name has to say whose master is meant, such as ?master_name=rmhub")
    return Sentinels(
        addresses=tuple(_address(text) for text in hosts.split(",")),
        master_name=options["master_name"],
        database=int(database),
        username=unquote(username),
        password=unquote(password),
        sentinel_username=options.get("sentinel_username", ""),
        sentinel_password=options.get("sentinel_password", ""),
        tls=parts.scheme == "sentinels",
        ssl_ca_certs=options.get("ssl_ca_certs", ""),
    )


def _address(text: str) -> tuple[str, int]:
    """A host with or without its port; an IPv6 address stands in brackets."""
    one = urlsplit(f"//{text}")
    try:
        port = one.port
    except ValueError:
        port = 0
    if not one.hostname or port == 0 or one.path:
        raise ValueError("its hosts are separated by commas, each with its port: host1:26379,host2:26379")
    return one.hostname, port or PORT


def client(url: str, **options: Any) -> redis.Redis:
    """A client of the broker; with Sentinel each connection asks it anew who the master is.

    `options` are redis-py's (timeouts, retry), and hold for the questions to Sentinel too.
    """
    if not is_sentinel(url):
        return redis.Redis.from_url(url, **options)
    known = sentinels(url)
    looks = {**known.sentinel(), **options}
    asked = Sentinel(known.addresses, sentinel_kwargs=looks, **known.server(), **options)  # type: ignore[no-untyped-call]
    found: redis.Redis = asked.master_for(known.master_name)  # type: ignore[no-untyped-call]
    return found


def celery_url(url: str) -> str:
    """The broker's URL as Celery has it: with Sentinel one for each address (kombu.transport.redis)."""
    if not is_sentinel(url):
        return url
    known = sentinels(url)
    login = f"{quote(known.username, safe='')}:{quote(known.password, safe='')}@" if known.password else ""
    return ";".join(
        f"sentinel://{login}{f'[{host}]' if ':' in host else host}:{port}/{known.database}"
        for host, port in known.addresses
    )


def celery_options(url: str, timeouts: Mapping[str, float]) -> dict[str, Any]:
    """Celery's transport options: what its URL cannot say of Sentinel. `timeouts`: of the questions to it."""
    if not is_sentinel(url):
        return {}
    known = sentinels(url)
    return {"master_name": known.master_name, "sentinel_kwargs": {**known.sentinel(), **timeouts}}


def celery_tls(url: str) -> dict[str, Any]:
    """Celery's `broker_use_ssl`; empty where its URL says it, or there is no TLS."""
    if not is_sentinel(url) or not (known := sentinels(url)).tls:
        return {}
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED, **({"ssl_ca_certs": known.ssl_ca_certs} if known.ssl_ca_certs else {})}


def said(error: Exception) -> str:
    """What a client of the broker says, without the list of all settings that Sentinel's adds."""
    return str(error).partition(" : <")[0]
