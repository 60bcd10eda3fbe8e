from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from django.db import connection, transaction

from partners import selectors, services
from partners.exceptions import InvalidInput, WrongState
from partners.models import Agreement, AgreementVersion, Party, PartyIdentifier, Revision
from rmhub import clock
from tests.partners.factories import (
    make_agreement,
    make_credential,
    make_endpoint,
    make_party,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

pytestmark = pytest.mark.django_db


def revision() -> int:
    return Revision.objects.get().number


# --- parties and endpoints ---


def test_a_party_has_its_identifiers_in_order_and_trimmed():
    party = services.party_create(name="  Seller ", identifiers=[(" DUNS", "123 "), ("GLN", "4012345000009")])
    assert party.name == "Seller"
    assert [str(identifier) for identifier in party.identifiers.all()] == ["DUNS:123", "GLN:4012345000009"]


def test_identifiers_are_replaced_as_a_whole_and_may_swap_places():
    party = services.party_create(name="Seller", identifiers=[("DUNS", "1"), ("GLN", "2")])
    services.party_update(party=party, identifiers=[("GLN", "2"), ("DUNS", "1")], contact="Call Ann\nUTC+1")
    party = selectors.party(party.id)
    assert [str(identifier) for identifier in party.identifiers.all()] == ["GLN:2", "DUNS:1"]
    assert party.contact == "Call Ann\nUTC+1"


def test_a_refused_party_leaves_nothing_behind():
    services.party_create(name="Seller", identifiers=[("DUNS", "1")])
    before = revision()
    with pytest.raises(InvalidInput) as caught:
        services.party_create(name="Buyer", identifiers=[("GLN", "5"), ("DUNS", "1"), ("", "x")])
    assert [sentence[:13] for sentence in caught.value.errors["identifiers"]] == ["Identifier 2:", "Identifier 3:"]
    assert not Party.objects.filter(name="Buyer").exists() and PartyIdentifier.objects.count() == 1
    assert revision() == before


@pytest.mark.parametrize("name", ["", "  ", "x" * 121, "a\x00b", "a\nb", "Taken", None])
def test_bad_party_names_are_named_as_such(name):
    make_party("Taken")
    with pytest.raises(InvalidInput) as caught:
        services.party_create(name=name)
    assert set(caught.value.errors) == {"name"}


def test_whether_a_party_is_ours_is_fixed_once_an_agreement_names_it():
    party = make_party()
    assert services.party_update(party=party, is_own=True).is_own
    services.party_update(party=party, is_own=False)
    make_agreement(partner=party, activate=False)
    with pytest.raises(WrongState):
        services.party_update(party=party, is_own=True)


def test_a_party_in_force_keeps_an_identifier():
    version = make_agreement()
    partner = version.agreement.partner
    with pytest.raises(WrongState):
        services.party_update(party=partner, identifiers=[])
    services.party_update(party=partner, identifiers=[("GLN", "7")])
    assert [str(identifier) for identifier in partner.identifiers.all()] == ["GLN:7"]


def test_an_endpoint_takes_its_uri_for_errors_too():
    endpoint = services.endpoint_create(party=make_party(), uri=" https://a.example/ ")
    assert (endpoint.uri, endpoint.error_uri) == ("https://a.example/", "https://a.example/")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"uri": "ftp://a.example"}, {"uri", "error_uri"}),
        ({"uri": "https://b.example", "error_uri": "mailto:x@y"}, {"error_uri"}),
        (
            {"uri": "https://b.example", "address": "https://u:p@b.example", "error_address": "b"},
            {"address", "error_address"},
        ),
        ({"uri": "HTTPS://A.example/x"}, {"uri"}),
        ({"uri": "https://b.example", "connect_timeout": 0, "read_timeout": 0}, {"connect_timeout", "read_timeout"}),
        ({"uri": "https://b.example", "transport": "pigeon"}, {"transport"}),
        ({"uri": "https://b.example/" + "x" * 500}, {"uri", "error_uri"}),
    ],
)
def test_bad_endpoints_are_refused_by_field(fields, wrong):
    make_endpoint(make_party(), "https://a.example/x")
    with pytest.raises(InvalidInput) as caught:
        services.endpoint_create(party=make_party(), **fields)
    assert set(caught.value.errors) == wrong


def test_uris_differ_by_path_case():
    make_endpoint(make_party(), "https://a.example/x")
    assert make_endpoint(make_party(), "https://a.example/X")


@pytest.mark.parametrize("change", [{"uri": "https://new.example/"}, {"error_uri": "https://new.example/"}])
def test_an_endpoint_in_force_keeps_its_uris(change):
    version = make_agreement()
    endpoint = version.partner_endpoint
    with pytest.raises(WrongState) as caught:
        services.endpoint_update(endpoint=endpoint, **change)
    assert caught.value.state == "active" and str(version) in caught.value.why
    services.agreement_disable(agreement=version.agreement)
    with pytest.raises(WrongState):
        services.endpoint_update(endpoint=endpoint, **change)


def test_an_endpoint_in_force_may_move_and_slow_down():
    endpoint = make_agreement().partner_endpoint
    changed = services.endpoint_update(
        endpoint=endpoint,
        address="http://proxy.example:3128/x",
        read_timeout=90,
        name="proxied",
        uri=endpoint.uri + " ",
    )
    assert (changed.address, changed.read_timeout, changed.uri) == ("http://proxy.example:3128/x", 90, endpoint.uri)
    assert services.endpoint_update(endpoint=endpoint, address="").address == ""


def test_an_endpoint_of_drafts_and_retired_versions_may_change_its_uri():
    version = make_agreement(activate=False)
    services.endpoint_update(endpoint=version.partner_endpoint, uri="https://moved.example/")
    services.version_activate(version=version)
    other = make_endpoint(version.agreement.partner)
    second = services.version_new(agreement=version.agreement)
    services.version_edit(version=second, partner_endpoint=other)
    services.version_activate(version=second)
    assert services.endpoint_update(endpoint=version.partner_endpoint, uri="https://again.example/").uri


# --- agreements and versions ---


def test_an_agreement_begins_as_a_draft_with_its_services():
    version = make_agreement(
        activate=False, timeout=30, note="first", allowed=[("urn:a", "Order", "send"), ("urn:a", "*", "receive")]
    )
    assert (version.number, version.state, version.timeout, version.note) == (1, "draft", 30, "first")
    assert set(version.services.values_list("service", "action", "direction")) == {
        ("urn:a", "Order", "send"),
        ("urn:a", "*", "receive"),
    }


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"timeout": -1}, "timeout"),
        ({"retries": 1001}, "retries"),
        ({"semantics": "Maybe"}, "semantics"),
        ({"profile": "edifact"}, "profile"),
        ({"max_message_bytes": 10}, "max_message_bytes"),
        ({"memory_window": 3_000_000_000}, "memory_window"),
        ({"tpa_id": "a\x1fb"}, "tpa_id"),
        ({"allowed": [("", "x", "both")]}, "services"),
        ({"allowed": [("urn:a", "x", "sideways")]}, "services"),
        ({"allowed": [("urn:a", "x", "send"), ("urn:a", "x", "receive")]}, "services"),
    ],
)
def test_values_out_of_range_are_refused_and_nothing_is_kept(terms, field):
    with pytest.raises(InvalidInput) as caught:
        make_agreement(**terms)
    assert set(caught.value.errors) == {field}
    assert not Agreement.objects.exists() and not AgreementVersion.objects.exists()


def test_an_unknown_setting_is_a_programming_error():
    with pytest.raises(TypeError, match="tiemout"):
        make_agreement(tiemout=5)
    with pytest.raises(TypeError, match="state"):
        services.version_edit(version=make_agreement(activate=False), state="active")


def test_an_agreement_is_between_ours_and_another():
    own, partner = make_party(own=True), make_party()
    with pytest.raises(InvalidInput) as caught:
        make_agreement(own_party=partner, partner=own)
    assert set(caught.value.errors) == {"own_party"}
    with pytest.raises(InvalidInput) as caught:
        make_agreement(own_party=own, partner=own)
    assert set(caught.value.errors) == {"partner"}


def test_two_agreements_cannot_have_one_tpa_id():
    make_agreement(tpa_id="tpa:1")
    with pytest.raises(InvalidInput) as caught:
        make_agreement(tpa_id=" tpa:1 ")
    assert set(caught.value.errors) == {"tpa_id"}


def test_a_draft_can_be_edited_and_an_active_version_cannot():
    version = make_agreement(activate=False)
    edited = services.version_edit(version=version, timeout=90, services=[("urn:b", "*", "send")])
    assert edited.timeout == 90
    assert list(edited.services.values_list("service", flat=True)) == ["urn:b"]
    services.version_activate(version=version)
    with pytest.raises(WrongState) as caught:
        services.version_edit(version=version, timeout=10, services=[])
    assert (caught.value.state, caught.value.verb) == ("active", "edit")
    version.refresh_from_db()
    assert version.timeout == 90 and version.services.count() == 1


@pytest.mark.parametrize("leave", ["retired", "disabled"])
def test_what_was_active_once_stays_frozen(leave):
    version = make_agreement()
    if leave == "retired":
        services.version_activate(version=services.version_new(agreement=version.agreement))
    else:
        services.agreement_disable(agreement=version.agreement)
    version.refresh_from_db()
    assert version.state == leave
    for act in (services.version_edit, services.version_activate, services.version_discard):
        with pytest.raises(WrongState):
            act(version=version)


def test_a_stale_object_does_not_overwrite_what_another_wrote():
    version = make_agreement(activate=False)
    stale = AgreementVersion.objects.get(pk=version.pk)
    services.version_edit(version=version, timeout=90)
    services.version_edit(version=stale, retries=3)
    version.refresh_from_db()
    assert (version.timeout, version.retries) == (90, 3)


def test_a_new_version_is_a_copy_of_the_latest_as_a_draft():
    first = make_agreement(
        timeout=77, retries=2, write_namespace=False, allowed=[("urn:a", "Order", "send")], note="one"
    )
    second = services.version_new(agreement=first.agreement, note="two")
    assert (second.number, second.state, second.note, second.activated_at) == (2, "draft", "two", None)
    assert (second.timeout, second.retries, second.write_namespace) == (77, 2, False)
    assert (second.own_endpoint_id, second.partner_endpoint_id) == (first.own_endpoint_id, first.partner_endpoint_id)
    assert list(second.services.values_list("service", "action", "direction")) == [("urn:a", "Order", "send")]
    with pytest.raises(WrongState, match="Version 2 is still a draft"):
        services.version_new(agreement=first.agreement)


def test_activation_retires_the_version_before():
    with clock.frozen(NOON) as time:
        first = make_agreement()
        second = services.version_new(agreement=first.agreement)
        later = time.move(60)
        second = services.version_activate(version=second)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, first.activated_at, first.ended_at) == ("retired", NOON, later)
    assert (second.state, second.activated_at, second.ended_at) == ("active", later, None)


def test_a_refused_activation_leaves_the_active_version_in_force():
    first = make_agreement()
    second = services.version_new(agreement=first.agreement)
    services.version_edit(version=second, timeout=0)
    with pytest.raises(InvalidInput):
        services.version_activate(version=second)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, second.state) == ("active", "draft")


def test_disable_and_enable():
    with clock.frozen(NOON):
        version = make_agreement()
        agreement = version.agreement
        assert services.agreement_disable(agreement=agreement).ended_at == NOON
    with pytest.raises(WrongState):
        services.agreement_disable(agreement=agreement)
    enabled = services.agreement_enable(agreement=agreement)
    assert (enabled.pk, enabled.state, enabled.ended_at, enabled.activated_at) == (version.pk, "active", None, NOON)
    with pytest.raises(WrongState):
        services.agreement_enable(agreement=agreement)


def test_a_disabled_version_that_became_invalid_is_not_enabled():
    version = make_agreement()
    services.agreement_disable(agreement=version.agreement)
    PartyIdentifier.objects.filter(party=version.agreement.partner_id).delete()
    with pytest.raises(InvalidInput):
        services.agreement_enable(agreement=version.agreement)


def test_activating_a_draft_puts_a_disabled_agreement_back_in_force():
    with clock.frozen(NOON) as time:
        version = make_agreement()
        services.agreement_disable(agreement=version.agreement)
        time.move(60)
        services.version_activate(version=services.version_new(agreement=version.agreement))
    version.refresh_from_db()
    assert (version.state, version.ended_at) == ("retired", NOON)
    with pytest.raises(WrongState):
        services.agreement_enable(agreement=version.agreement)


def test_a_draft_can_be_discarded_and_the_first_takes_its_agreement_along():
    version = make_agreement()
    services.version_discard(version=services.version_new(agreement=version.agreement))
    assert list(version.agreement.versions.values_list("number", flat=True)) == [1]
    draft = make_agreement(activate=False)
    services.version_discard(version=draft)
    assert not Agreement.objects.filter(pk=draft.agreement_id).exists()


def test_the_tpa_id_is_fixed_once_a_version_was_active():
    draft = make_agreement(activate=False)
    assert services.agreement_update(agreement=draft.agreement, tpa_id="tpa:right").tpa_id == "tpa:right"
    services.version_activate(version=draft)
    assert services.agreement_update(agreement=draft.agreement, tpa_id="tpa:right", name="Orders").name == "Orders"
    with pytest.raises(WrongState):
        services.agreement_update(agreement=draft.agreement, tpa_id="tpa:other")


# --- the revision, and writers at the same time ---


def test_every_writer_bumps_the_revision_and_readers_do_not():
    own, partner = make_party(own=True), make_party()
    version = make_agreement(own_party=own, partner=partner, activate=False)
    agreement, endpoint = version.agreement, version.partner_endpoint
    credential, _ = make_credential(partner)
    writers = [
        lambda: services.party_create(name="New"),
        lambda: services.party_update(party=partner, contact="x"),
        lambda: services.endpoint_create(party=partner, uri="https://new.example/"),
        lambda: services.endpoint_update(endpoint=endpoint, read_timeout=31),
        lambda: services.agreement_update(agreement=agreement, name="x"),
        lambda: services.version_edit(version=version, timeout=61),
        lambda: services.version_activate(version=version),
        lambda: services.agreement_disable(agreement=agreement),
        lambda: services.agreement_enable(agreement=agreement),
        lambda: services.version_discard(version=services.version_new(agreement=agreement)),
        lambda: services.credential_issue(party=partner, kind="bearer"),
        lambda: services.credential_store_outbound(party=partner, kind="bearer", secret="x"),
        lambda: services.credential_revoke(credential=credential),
        lambda: services.credentials_reencrypt(),
        lambda: make_agreement(own_party=own, partner=partner, own_endpoint=version.own_endpoint),
    ]
    for write in writers:
        before = revision()
        write()
        assert revision() > before
    before = revision()
    services.version_validate(version=version)
    assert revision() == before


def test_the_revision_does_not_come_back_after_a_rollback():
    make_party()
    seen = set()
    for _ in range(5):
        with transaction.atomic():
            services.party_create(name="Never")
            seen.add(revision())
            transaction.set_rollback(True)
    assert len(seen) == 5


def at_once(*calls):
    """Runs the calls in threads of their own, from one starting line; results or exceptions, in order."""
    line = threading.Barrier(len(calls))

    def run(call):
        try:
            line.wait(120)
            return call()
        except Exception as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@pytest.mark.django_db(transaction=True)
def test_two_activations_at_once_leave_one_active_version():
    first = make_agreement()
    second = services.version_new(agreement=first.agreement)
    third = AgreementVersion(
        agreement=first.agreement,
        number=3,
        own_endpoint=first.own_endpoint,
        partner_endpoint=first.partner_endpoint,
    )
    third.save()
    third.services.create(service="urn:a")
    results = at_once(
        *(lambda version=version: services.version_activate(version=version) for version in (second, third))
    )
    assert [type(result) for result in results] == [AgreementVersion, AgreementVersion], results
    states = sorted(first.agreement.versions.values_list("state", flat=True))
    assert states == ["active", "retired", "retired"]


@pytest.mark.django_db(transaction=True)
def test_activating_one_draft_twice_at_once_works_once():
    draft = make_agreement(activate=False)
    results = at_once(*[lambda: services.version_activate(version=draft)] * 3)
    assert sorted(type(result).__name__ for result in results) == ["AgreementVersion", "WrongState", "WrongState"]


@pytest.mark.django_db(transaction=True)
def test_an_edit_and_an_activation_at_once_never_edit_an_active_version():
    draft = make_agreement(activate=False, timeout=60)
    edited, activated = at_once(
        lambda: services.version_edit(version=draft, timeout=0), lambda: services.version_activate(version=draft)
    )
    draft.refresh_from_db()
    if draft.state == "active":
        assert isinstance(edited, WrongState) and draft.timeout == 60
    else:
        assert isinstance(activated, InvalidInput) and draft.timeout == 0


@pytest.mark.django_db(transaction=True)
def test_the_first_writers_of_an_empty_database_do_not_disturb_each_other():
    assert not Revision.objects.exists()
    results = at_once(*(lambda n=n: services.party_create(name=f"Party {n}") for n in range(4)))
    assert all(isinstance(result, Party) for result in results), results
    assert Revision.objects.count() == 1
