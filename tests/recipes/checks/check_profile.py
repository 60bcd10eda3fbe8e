"""A made-up profile is offered, agreements have it, and its messages go and come."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from messaging import profile
from messaging.models import Message
from messaging.protocol.envelope import Semantics
from tests.messaging.api.client import REASON, Api
from tests.messaging.factories import link, partner_side, submit, work
from tests.partners.factories import make_endpoint, make_party

pytestmark = pytest.mark.django_db


def test_it_is_offered(browser: Client, openapi: dict[str, Any]) -> None:
    form = browser.get(reverse("console:agreement-new"), {"partner": make_party().name}).content.decode()
    assert 'value="letter"' in form and "Letters" in form
    names = openapi["components"]["schemas"]["AgreementBodyRequest"]["properties"]["profile"]["enum"]
    assert names == ["ebxml", "repeatable", "stream", "wsat", "ebms2", "letter"]


def test_an_agreement_has_it(admin: Api) -> None:
    own, partner = make_party(own=True), make_party()
    body = {
        "tpa_id": "tpa:letters",
        "profile": "letter",
        "own_party": own.public_id,
        "partner": partner.public_id,
        "own_endpoint": make_endpoint(own).public_id,
        "partner_endpoint": make_endpoint(partner).public_id,
        "services": [{"service": "urn:orders"}],
    }
    made = admin.post("/agreements", {**body, **REASON})
    assert made.status == 201, made.json
    path = f"/agreements/{made.json['id']}/versions/1"
    version = admin.get(path)
    assert version.json["problems"] == []
    active = admin.post(f"{path}/activate", REASON, If_Match=version.etag)
    assert (active.status, active.json["state"], active.json["profile"]) == (200, "active", "letter")


def test_messages_go_and_come() -> None:
    side = partner_side(profile="letter")
    speaks = profile.named("letter")
    assert speaks.numbered and not speaks.cancellable_states(Semantics.ONCE_AND_ONLY_ONCE)
    with link() as wire:
        message = submit(side)
        work()
        side.send(side.acknowledgement(wire.last))
    assert Message.objects.get(pk=message.pk).state == "delivered"
    assert side.send(side.message(1)) == 204
