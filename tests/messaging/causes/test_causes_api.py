"""What the codes mean, by the API: the list, one of them, and the link beside each code."""

from __future__ import annotations

import pytest

from messaging.causes import CAUSES
from messaging.models import Message
from rmhub import clock
from tests.messaging.api.client import Api, make_incident
from tests.messaging.console.scenes import suspended

pytestmark = pytest.mark.django_db


def test_the_list_has_every_cause_and_where_it_is_explained(viewer: Api) -> None:
    listed = {one["code"]: one for one in viewer.get("/causes").json["data"]}
    assert set(listed) == set(CAUSES)
    assert listed["cert_expired"] == viewer.get("/causes/cert_expired").json
    assert listed["cert_expired"]["documentation"] == "/causes/#cause-cert_expired"
    assert (listed["cert_expired"]["group"], listed["cert_expired"]["retryable"]) == ("Network", False)
    assert listed["cert_expired"]["action"] == CAUSES["cert_expired"].action
    assert viewer.get("/causes/nonsense").code == "not_found"


def test_beside_each_code_stands_where_it_is_explained(viewer: Api) -> None:
    with clock.frozen(clock.now()) as time:
        pair = suspended(time).outbound
    where = f"/causes/#cause-{pair.cause}"
    assert viewer.get(f"/pairs/{pair.public_id}").json["diagnosis"]["cause"]["documentation"] == where
    message = Message.objects.get(pk=pair.in_flight_id)
    assert viewer.get(f"/messages/{message.public_id}").json["cause_documentation"] == where
    (attempt, *_) = viewer.get(f"/messages/{message.public_id}/transmissions").json["data"]
    assert (attempt["cause"], attempt["cause_documentation"]) == ("cert_expired", "/causes/#cause-cert_expired")
    incident = make_incident()
    shown = viewer.get(f"/incidents/{incident}").json
    assert shown["cause_documentation"] == f"/causes/#cause-{shown['cause']}"
    servers = viewer.get("/circuits").json["data"]
    assert [(one["cause"], one["cause_documentation"]) for one in servers] == [
        ("cert_expired", attempt["cause_documentation"])
    ]
    waits = viewer.get("/messages", {"state": "queued"}).json["data"]
    assert [one["cause_documentation"] for one in waits] == ["", ""]
