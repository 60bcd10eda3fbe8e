"""One attempt: what its list shows, what it put on the wire, and the way to the octets."""

from __future__ import annotations

import pytest

from messaging.models import Transmission
from tests.messaging.api.client import Api, suspended
from tests.messaging.factories import PartnerSide, link, work

pytestmark = pytest.mark.django_db


def test_an_attempt_is_what_the_list_shows_and_leads_to_its_octets(admin: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    message = f"msg_{pair.in_flight_id.hex}"  # type: ignore[union-attr]
    (listed,) = admin.get(f"/messages/{message}/transmissions").json["data"]
    one = admin.get(f"/transmissions/{listed['id']}")
    assert one.status == 200
    assert one.json == {
        **listed,
        "pair": {"id": pair.public_id, "code": pair.code},
        "message": message,
        "signal": None,
        "wire": f"/api/v1/messages/{message}/wire",
        "response": f"/api/v1/transmissions/{listed['id']}/response",
    }
    for path in (one.json["wire"], one.json["response"]):
        assert admin.get(path.removeprefix("/api/v1")).status == 200, path
    assert admin.get(f"/transmissions/{listed['id']}", If_None_Match=one.headers["etag"]).status == 304


def test_the_attempt_of_an_acknowledgement_leads_to_the_acknowledgement(admin: Api, partner: PartnerSide) -> None:
    partner.send(partner.message(1))
    with link():
        work()
    attempt = Transmission.objects.get(signal__isnull=False)
    one = admin.get(f"/transmissions/{attempt.public_id}")
    signal = f"sig_{attempt.signal_id.hex}"  # type: ignore[union-attr]
    assert (one.json["message"], one.json["signal"]) == (None, signal)
    assert one.json["wire"] == f"/api/v1/signals/{signal}/wire"
    assert admin.get(one.json["wire"].removeprefix("/api/v1")).status == 200


@pytest.mark.parametrize("reference", ["att_x", "att_" + "0" * 32, "msg_" + "0" * 32])
def test_an_attempt_that_is_not_there_is_not_found(admin: Api, reference: str) -> None:
    assert admin.get(f"/transmissions/{reference}").code == "not_found"
