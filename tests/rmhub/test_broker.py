"""Where `REDIS_URL` says that the broker is: for the hub's own clients, and for Celery."""

from __future__ import annotations

import kombu
import pytest
from redis.sentinel import MasterNotFoundError, SentinelConnectionPool, SentinelManagedSSLConnection

from rmhub import broker
from rmhub.hubs import free_ports

URL = (
    "sentinels://rm%40hub:p%3Bw@one:26379,[2001:db8::1]:26380,three/3"
    "?master_name=rmhub&sentinel_username=looker&sentinel_password=s%26w&ssl_ca_certs=/etc/ca.pem"
)


def test_one_url_says_all_of_sentinel() -> None:
    made = broker.client(URL, socket_timeout=1, socket_connect_timeout=2)
    pool = made.connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "rmhub" and pool.is_master
    assert pool.connection_class is SentinelManagedSSLConnection
    known = pool.connection_kwargs
    assert (known["username"], known["password"], known["db"]) == ("rm@hub", "p;w", 3)
    assert (known["ssl_ca_certs"], known["socket_timeout"]) == ("/etc/ca.pem", 1)
    asked = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"]) for one in asked] == [("one", 26379), ("2001:db8::1", 26380), ("three", 26379)]
    assert {(one["username"], one["password"], one["socket_connect_timeout"]) for one in asked} == {
        ("looker", "s&w", 2)
    }


def test_celery_is_told_the_same() -> None:
    made = kombu.Connection(
        broker.celery_url(URL),
        transport_options=broker.celery_options(URL, {"socket_timeout": 10}),
        ssl=broker.celery_tls(URL),
    )
    assert made.alt == [
        "sentinel://rm%40hub:p%3Bw@one:26379/3",
        "sentinel://rm%40hub:p%3Bw@[2001:db8::1]:26380/3",
        "sentinel://rm%40hub:p%3Bw@three:26379/3",
    ]
    assert (made.userid, made.password, made.virtual_host) == ("rm@hub", "p;w", "3")
    assert made.ssl["ssl_ca_certs"] == "/etc/ca.pem"
    assert made.transport_options["master_name"] == "rmhub"
    told = made.transport_options["sentinel_kwargs"]
    assert told == {
        "username": "looker",
        "password": "s&w",
        "ssl": True,
        "ssl_ca_certs": "/etc/ca.pem",
        "socket_timeout": 10,
    }


def test_a_plain_server_stays_as_it_was() -> None:
    url = "rediss://:secret@host:6380/2?ssl_cert_reqs=required"
    assert (broker.celery_url(url), broker.celery_options(url, {}), broker.celery_tls(url)) == (url, {}, {})
    known = broker.client(url).connection_pool.connection_kwargs
    assert (known["host"], known["port"], known["db"], known["password"]) == ("host", 6380, 2, "secret")


def test_without_a_sentinel_it_is_away_like_any_broker() -> None:
    ports = free_ports(2)
    addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
    with pytest.raises(MasterNotFoundError) as away:  # a redis.ConnectionError, as everybody expects
        broker.client(f"sentinel://:very-secret@{addresses}/0?master_name=rmhub", socket_connect_timeout=1).ping()
    assert broker.said(away.value) == "No master found for 'rmhub'"
