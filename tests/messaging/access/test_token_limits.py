"""Tokens that may be used from some networks only, or for the partners of some groups only."""

from __future__ import annotations

import pytest

from messaging.access.services import tokens
from messaging.models import ApiToken, AuditEntry
from partners.models import PartnerGroup
from rmhub.ids import uuid7
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.factories import PartnerSide

pytestmark = pytest.mark.django_db


def made(admin: Api, **fields: object) -> tuple[Api, dict[str, object]]:
    answer = admin.post("/tokens", {"name": "ERP", "scopes": ["pairs:read"], **fields})
    assert answer.status == 201, answer.json
    return Api(answer.json["secret"]), answer.json


@pytest.mark.parametrize(
    ("networks", "address", "status"),
    [
        ([], "198.51.100.7", 200),
        (["127.0.0.1"], "127.0.0.1", 200),
        (["10.0.0.0/8", "192.0.2.0/24"], "192.0.2.200", 200),
        (["10.0.0.0/8"], "192.0.2.200", 403),
        (["10.0.0.0/8"], "::ffff:10.1.2.3", 200),
        (["2001:db8::/32"], "2001:db8::1", 200),
        (["2001:db8::/32"], "10.0.0.1", 403),
        (["10.0.0.0/8"], "", 403),
    ],
)
def test_a_token_is_good_in_its_networks_only(admin: Api, networks: list[str], address: str, status: int) -> None:
    api, _ = made(admin, networks=networks)
    api.client.defaults["REMOTE_ADDR"] = address
    answer = api.get("/pairs")
    assert answer.status == status
    if status == 403:
        assert answer.code == "address_not_allowed"
        token = ApiToken.objects.order_by("-id").first()
        assert token is not None and token.last_used_at is None


def test_networks_are_kept_in_their_usual_form_and_audited(admin: Api) -> None:
    _, shown = made(admin, networks=["10.1.2.3/8", " 192.0.2.7 ", "10.0.0.0/8"])
    assert shown["networks"] == ["10.0.0.0/8", "192.0.2.7/32"]
    assert AuditEntry.objects.get(verb="token.create", object_name="ERP").after["networks"] == shown["networks"]
    assert admin.get(f"/tokens/{shown['id']}").json["networks"] == shown["networks"]


@pytest.mark.parametrize("fields", [{"networks": ["home"]}, {"networks": ["10.0.0.0/33"]}, {"groups": ["x"]}])
def test_what_is_no_network_or_group_is_refused(admin: Api, fields: dict[str, object]) -> None:
    answer = admin.post("/tokens", {"name": "ERP", "scopes": ["pairs:read"], **fields})
    assert (answer.status, answer.code) == (422, "invalid_submission")
    assert next(iter(fields)) in answer.json["errors"][0]["pointer"]


def test_a_group_that_does_not_exist_is_refused(admin: Api) -> None:
    answer = admin.post("/tokens", {"name": "ERP", "scopes": ["pairs:read"], "groups": [f"grp_{uuid7().hex}"]})
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "#/groups")


def test_a_token_of_a_group_sees_its_partners_only(admin: Api, partner: PartnerSide) -> None:
    inside = PartnerGroup.objects.create(name="Inside")
    outside = PartnerGroup.objects.create(name="Outside")
    inside.partners.add(partner.outbound.partner)
    mine, shown = made(admin, groups=[inside.public_id])
    theirs, _ = made(admin, groups=[outside.public_id])
    assert shown["groups"] == [{"id": inside.public_id, "name": "Inside"}]
    assert [row["id"] for row in mine.get("/pairs").json["data"]] == [partner.outbound.public_id]
    assert theirs.get("/pairs").json["data"] == []
    assert theirs.get(f"/pairs/{partner.outbound.public_id}").status == 404


def test_a_token_without_networks_is_not_asked_from_where() -> None:
    assert tokens.authenticate(make_token(make_user())).token.networks == []
