"""What is limited cannot make what is wider; and the hub calls no address of the house, however it is written."""

from __future__ import annotations

from datetime import timedelta

import pytest

from messaging.transports.bounded import is_public
from rmhub import clock
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("networks", "says"),
    [
        ([], "could be used from anywhere"),
        (["0.0.0.0/0"], "0.0.0.0/0 is outside"),
        (["127.0.0.0/7"], "is outside"),
        (["127.0.0.1", "192.0.2.1"], "192.0.2.1/32 is outside"),
        (["::ffff:127.0.0.1"], "is outside"),
    ],
)
def test_a_token_of_some_networks_makes_none_of_others(networks: list[str], says: str) -> None:
    api = Api(make_token(make_user(), networks=["127.0.0.0/8", "2001:db8::/32"]))
    answer = api.post("/tokens", {"name": "wider", "scopes": ["pairs:read"], "networks": networks})
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "#/networks")
    assert says in answer.json["errors"][0]["detail"]
    assert "127.0.0.0/8" in answer.json["errors"][0]["detail"]
    made = api.post("/tokens", {"name": "same", "scopes": ["pairs:read"], "networks": ["127.0.0.1"]})
    assert (made.status, made.json["networks"]) == (201, ["127.0.0.1/32"])


@pytest.mark.django_db
def test_a_token_makes_none_that_outlives_it() -> None:
    end = clock.now() + timedelta(hours=1)
    api = Api(make_token(make_user(), expires_at=end))
    body = {"name": "longer", "scopes": ["pairs:read"]}
    refused = api.post("/tokens", {**body, "expires_at": (end + timedelta(seconds=1)).isoformat()})
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "#/expires_at")
    made = api.post("/tokens", body)
    assert made.status == 201 and made.json["expires_at"].startswith(f"{end:%Y-%m-%dT%H:%M:%S}")


@pytest.mark.django_db
def test_a_token_gives_away_no_scope_that_its_maker_or_its_owner_has_not() -> None:
    narrow = Api(make_token(make_user(), scopes=["tokens:manage", "pairs:read"]))
    refused = narrow.post("/tokens", {"name": "wider", "scopes": ["pairs:read", "messages:write"]})
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "#/scopes")
    assert refused.json["errors"][0]["detail"] == "You do not have messages:write, so you cannot grant it."
    assert narrow.post("/tokens", {"name": "same", "scopes": ["pairs:read"]}).status == 201
    viewer = make_user(Role.VIEWER)
    body = {"name": "theirs", "owner": viewer.username, "scopes": ["messages:write"]}
    refused = Api(make_token(make_user())).post("/tokens", body)
    assert refused.json["errors"][0]["detail"] == "The owner's role does not have messages:write."


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
        ),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "2001:db8::1", "100::1"),
        # An IPv4 address of the house, in IPv6: mapped, compatible, translated, NAT64, 6to4, Teredo.
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b::7f00:1"),
        *("64:ff9b::10.0.0.1", "64:ff9b:1::10.0.0.1", "2002:7f00:1::1", "2002:c0a8:101::", "2001:0:4136:e378::1"),
        *("", "localhost", "127.1", "0x7f000001", "2130706433"),
    ],
)
def test_no_address_of_the_house_counts_as_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2001:4860:4860::8888", "64:ff9b::8.8.8.8", "2002:808:808::1", "::ffff:8.8.8.8"]
)
def test_public_addresses_are_public_by_every_road(address: str) -> None:
    assert is_public(address)
