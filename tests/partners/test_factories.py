"""What the factories write without the services is what the services write."""

from __future__ import annotations

from typing import Any

import pytest

from partners import registry
from partners.models import AgreementVersion
from tests.partners import factories
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db
NAMED = {"tpa_id", "uri", "error_uri", "name", "value"}


def rows(version: AgreementVersion) -> list[dict[str, Any]]:
    """All rows of one agreement without what is another in each: ids, names, times."""
    version = AgreementVersion.objects.get(pk=version.pk)
    agreement = version.agreement
    found = [version, agreement, version.own_endpoint, version.partner_endpoint, *version.services.all()]
    for party in (agreement.own_party, agreement.partner):
        found += [party, *party.identifiers.all()]
    return [
        {
            field.name: getattr(row, field.attname)
            for field in row._meta.concrete_fields
            if not (field.primary_key or field.is_relation or field.name in NAMED or field.name.endswith("_at"))
        }
        for row in found
    ]


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"activate": False},
        {"profile": "repeatable", "max_in_flight": 2},
        {"profile": "stream"},
        {"profile": "wsat"},
        {"timeout": 30, "retries": 1, "retry_interval": 10},
    ],
)
def test_a_copy_is_what_the_services_make(terms: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factories, "_made", {})
    first, second, third = (make_agreement(**terms) for _ in range(3))
    assert rows(first) == rows(second) == rows(third)
    assert (first.activated_at is None) == (second.activated_at is None) == (terms.get("activate") is False)
    for endpoint in (end for one in (first, second, third) for end in (one.own_endpoint, one.partner_endpoint)):
        assert endpoint.error_uri == endpoint.uri
    known = registry.current()
    for one, other in ((first, second), (second, third)):
        assert one.own_endpoint.party_id == one.agreement.own_party_id != other.agreement.own_party_id
        assert one.partner_endpoint.party_id == one.agreement.partner_id != other.agreement.partner_id
        assert one.own_endpoint.uri != other.own_endpoint.uri
        if one.activated_at:
            assert known.version(one.pk).tpa_id == one.agreement.tpa_id
