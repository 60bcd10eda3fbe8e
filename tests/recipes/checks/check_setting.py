"""A setting that does nothing is wherever a setting of an agreement is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from messaging.journal.audit import Actor
from messaging.models import Pair
from messaging.onboarding.services import bundle, bundle_format
from partners import registry
from partners.models import Agreement, AgreementVersion, Party
from tests.messaging.api.client import Api
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db


def test_it_is_described(openapi: dict[str, Any]) -> None:
    schemas = openapi["components"]["schemas"]
    having = {name for name, schema in schemas.items() if "greeting_pause" in schema.get("properties", {})}
    assert having >= {"AgreementBodyRequest", "VersionChangesRequest", "Version", "VersionDetail"}


def test_it_is_changed_shown_and_told_apart(admin: Api, browser: Client) -> None:
    agreement = make_agreement().agreement
    form = browser.get(reverse("console:agreement-new"), {"partner": agreement.partner.name}).content.decode()
    assert "Pause before a greeting" in form and "It does nothing." in form and 'name="greeting_pause"' in form
    admin.post(f"/agreements/{agreement.public_id}/versions", {"reason": "a greeting"})
    path = f"/agreements/{agreement.public_id}/versions/2"
    draft = admin.get(path)
    assert draft.json["greeting_pause"] == 0
    changed = admin.patch(path, {"greeting_pause": 90, "reason": "more time"}, If_Match=draft.etag)
    assert (changed.status, changed.json["greeting_pause"]) == (200, 90)
    page = browser.get(reverse("console:agreement-version", args=[agreement.public_id, 2])).content.decode()
    assert "Pause before a greeting" in page and "1 m 30 s" in page
    wrong = admin.patch(path, {"greeting_pause": -1, "reason": "less time"}, If_Match=changed.etag)
    assert [one["pointer"] for one in wrong.json["errors"]] == ["#/greeting_pause"]


def test_the_engine_reads_it_and_bundles_carry_it() -> None:
    version = make_agreement(greeting_pause=7)
    assert registry.current().version(version.pk).greeting_pause == 7
    document = json.loads(json.dumps(bundle.bundle_export()))
    for model in (Pair, Agreement, Party):
        model.objects.all().delete()
    bundle.bundle_import(bundle=bundle_format.read_document(document), actor=Actor("ann"), reason="moved here")
    assert AgreementVersion.objects.get().greeting_pause == 7
