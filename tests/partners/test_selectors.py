from __future__ import annotations

import pytest

from partners import selectors, services
from partners.models import Endpoint, Party
from tests.partners.factories import (
    make_agreement,
    make_credential,
    make_endpoint,
    make_outbound_credential,
    make_party,
)

pytestmark = pytest.mark.django_db


def test_lists_page_by_key_and_search():
    names = [make_party(name).name for name in ("Beta", "Alpha", "Gamma")]
    assert [party.name for party in selectors.parties()] == sorted(names)
    assert [party.name for party in selectors.parties(after="Alpha")[:1]] == ["Beta"]
    value = Party.objects.get(name="Gamma").identifiers.get().value
    assert [party.name for party in selectors.parties(search=value)] == ["Gamma"]
    assert [party.name for party in selectors.parties(search="lph", is_own=False)] == ["Alpha"]
    assert not selectors.parties(is_own=True)


def test_agreements_are_found_by_party_state_and_text():
    active, draft = make_agreement(tpa_id="tpa:b"), make_agreement(tpa_id="tpa:a", activate=False)
    found = [agreement.tpa_id for agreement in selectors.agreements()]
    assert found == ["tpa:a", "tpa:b"]
    assert [agreement.tpa_id for agreement in selectors.agreements(after="tpa:a")] == ["tpa:b"]
    assert [agreement.tpa_id for agreement in selectors.agreements(state="draft")] == ["tpa:a"]
    assert [agreement.tpa_id for agreement in selectors.agreements(party_id=active.agreement.partner_id)] == ["tpa:b"]
    assert [a.tpa_id for a in selectors.agreements(search=draft.agreement.partner.name)] == ["tpa:a"]


def test_the_version_that_counts():
    first = make_agreement()
    second = services.version_new(agreement=first.agreement)

    def counts():
        return selectors.current_version(selectors.agreement(first.agreement_id)).number

    assert counts() == 1
    services.agreement_disable(agreement=first.agreement)
    assert counts() == 1
    services.version_activate(version=second)
    assert counts() == 2
    assert selectors.current_version(make_agreement(activate=False).agreement).number == 1


def test_lists_cost_the_same_number_of_queries_however_long(django_assert_num_queries):
    for _ in range(3):
        version = make_agreement()
        make_credential(version.agreement.partner)
        services.version_new(agreement=version.agreement)
    with django_assert_num_queries(3):
        for agreement in selectors.agreements():
            assert agreement.partner.name
            for each in agreement.versions.all():
                assert each.partner_endpoint.party.name and list(each.services.all())
    with django_assert_num_queries(3):
        for party in selectors.parties():
            assert list(party.identifiers.all())
    with django_assert_num_queries(1):
        assert {endpoint.party.name for endpoint in selectors.endpoints()}
    with django_assert_num_queries(1):
        assert {str(credential) for credential in selectors.credentials()}
    with django_assert_num_queries(5):
        party = selectors.party(version.agreement.partner_id)
        assert len(party.endpoints.all()) == len(party.credentials.all()) == len(party.identifiers.all()) == 1


def test_credentials_are_listed_without_secrets_newest_first():
    party = make_party()
    first, _ = make_credential(party)
    second = make_outbound_credential(party)
    make_credential(make_party())
    listed = list(selectors.credentials(party_id=party.id))
    assert [credential.id for credential in listed] == [second.id, first.id]
    for credential in [*listed, selectors.credential(first.id), *selectors.party(party.id).credentials.all()]:
        assert {"secret_hash", "secret_encrypted"} <= credential.get_deferred_fields()
    assert [credential.id for credential in selectors.credentials(party_id=party.id, after=second.id)] == [first.id]


def test_endpoints_page_by_id():
    party = make_party()
    first, second = make_endpoint(party), make_endpoint(party)
    assert list(selectors.endpoints(party_id=party.id)) == [first, second]
    assert list(selectors.endpoints(after=first.id)) == [second]
    assert selectors.endpoint(second.id) == second
    with pytest.raises(Endpoint.DoesNotExist):
        selectors.endpoint(party.id)
