"""A made-up verb has its button, its dialog, its operation and its audit entry."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Route
from messaging.routing.services.routes import route_create
from tests.messaging.api.client import REASON, Api
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db


@pytest.fixture
def route(db: None) -> Route:
    """A route of several hops."""
    values = {"name": "Harbour", "party_context": "DUNS", "party_value": "987654321", "max_hops": 4}
    return route_create(actor=Actor("ann"), reason="go-live", onward=make_agreement().agreement.pk, **values)


def test_people_press_it(browser: Client, route: Route) -> None:
    page = browser.get(reverse("console:route", args=[route.public_id])).content.decode()
    dialog = reverse("console:route-verb", args=[route.public_id, "shorten"])
    assert dialog in page
    shown = browser.get(dialog).content.decode()
    assert "Messages that came over another hub do not take it any more." in shown
    assert "Messages went in a circle" in shown
    done = browser.post(dialog, {"reason": "a circle", "version": str(route.version)})
    assert done.status_code == 303, done.content.decode()[-2000:]
    entry = AuditEntry.objects.get(verb="route.shorten")
    assert (entry.before, entry.after, entry.interface) == ({"max_hops": 4}, {"max_hops": 1}, "console")


def test_programs_call_it(admin: Api, route: Route, openapi: dict[str, Any]) -> None:
    described = openapi["paths"]["/api/v1/routes/{route}/shorten"]["post"]
    assert (described["operationId"], described["summary"]) == (
        "routes_shorten",
        "Let only the hub before ours use a route",
    )
    etag = admin.get(f"/routes/{route.public_id}").etag
    done = admin.post(f"/routes/{route.public_id}/shorten", REASON, If_Match=etag)
    assert (done.status, done.json["max_hops"]) == (200, 1)
    assert AuditEntry.objects.get(verb="route.shorten").interface == "api"
    assert admin.post(f"/routes/{route.public_id}/shorten", REASON, If_Match=etag).code == "stale"
