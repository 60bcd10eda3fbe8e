from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from partners import registry, services
from partners.exceptions import InvalidInput
from partners.models import AgreementVersion, Endpoint, Revision
from partners.terms import Presented
from rmhub import remembered
from tests.partners.factories import (
    basic,
    make_agreement,
    make_credential,
    make_endpoint,
    make_outbound_credential,
    make_party,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECONDS = remembered.SECONDS  # tests that share one transaction never look again otherwise

pytestmark = pytest.mark.django_db


@pytest.fixture
def monotonic(monkeypatch):
    """The registry's clock, in seconds."""
    at = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(registry, "time", SimpleNamespace(monotonic=lambda: at.seconds))
    monkeypatch.setattr(remembered, "SECONDS", SECONDS)
    return at


def test_an_empty_hub_has_an_empty_registry():
    snapshot = registry.current()
    assert snapshot.active() == () and snapshot.by_tpa_id("x") is None
    assert snapshot.by_hop(uuid.uuid4()) == () and snapshot.by_uri_pair("a", "b") == ()


def test_terms_hold_the_whole_agreement():
    own = make_party("Us", own=True, identifiers=[("DUNS", "2"), ("GLN", "1")])
    partner = make_party("Them", identifiers=[("URI", "urn:them")])
    own_endpoint = make_endpoint(own, "https://us.example/msh", error_uri="https://us.example/err")
    router = make_party("Router")
    partner_endpoint = make_endpoint(router, "https://them.example/msh", connect_timeout=4, read_timeout=5)
    Endpoint.objects.filter(pk=partner_endpoint.pk).update(
        server="smtps://mail.example", host_key="x", trusted_certificates="PEM"
    )
    version = make_agreement(
        partner=partner,
        own_endpoint=own_endpoint,
        partner_endpoint=partner_endpoint,
        tpa_id="tpa:1",
        allowed=[("urn:a", "Order", "send"), ("urn:b", "*", "receive")],
        timeout=61,
        retries=6,
        retry_interval=301,
        transport_retries=3,
        transport_retry_interval=11,
        transient_ceiling=7200,
        detect_repeats=True,
        strict_sequence=True,
        memory_window=99_999,
        max_message_bytes=4096,
        write_namespace=False,
        write_padded_numbers=False,
        partner_window=7200,
        clock_skew=61,
        exchange_mode="synchronous",
        exchange_identity="key",
        repeat_interval=7,
        repeat_interval_max=77,
        ordered=True,
        max_in_flight=3,
        stream_concurrency=5,
        resend_schedule="7,77",
        order_ack_timeout=501,
        max_order_ack_delay=9_999,
        time_to_live=3600,
        final_receipt=True,
        final_receipt_within=3601,
        inbound_quota=99,
        coordination_version="2004/10",
        addressing_profile="oasis",
        addressing_strict=True,
        other_servers="https://a.example http://b.example:81",
        soap_version="1.2",
        sync_reply="none",
        message_order=False,
        own_role="",
        partner_role="",
        signatures="none",
        signature_algorithm="rsa-sha256",
        encryption="none",
        acknowledged_within=901,
        acknowledged_percent=99.5,
        processed_within=3602,
        processed_percent=95.0,
    )
    terms = registry.current().by_tpa_id("tpa:1")
    assert {name: getattr(terms, name) for name in terms.__slots__} == {
        "version_id": version.id,
        "agreement_id": version.agreement_id,
        "tpa_id": "tpa:1",
        "number": 1,
        "state": "active",
        "profile": "ebxml",
        "transport": "http",
        "own_party_id": own.id,
        "own_party_name": "Us",
        "own_identifiers": (("DUNS", "2"), ("GLN", "1")),
        "partner_id": partner.id,
        "partner_name": "Them",
        "partner_identifiers": (("URI", "urn:them"),),
        "own_uri": "https://us.example/msh",
        "own_error_uri": "https://us.example/err",
        "partner_uri": "https://them.example/msh",
        "partner_error_uri": "https://them.example/msh",
        "hop_party_id": router.id,
        "hop_party_name": "Router",
        "server": "smtps://mail.example",
        "host_key": "x",
        "trusted_certificates": "PEM",
        "partner_address": "https://them.example/msh",
        "partner_error_address": "https://them.example/msh",
        "connect_timeout": 4,
        "read_timeout": 5,
        "semantics": "OnceAndOnlyOnce",
        "timeout": 61,
        "retries": 6,
        "retry_interval": 301,
        "transport_retries": 3,
        "transport_retry_interval": 11,
        "transient_ceiling": 7200,
        "detect_repeats": True,
        "strict_sequence": True,
        "memory_window": 99_999,
        "max_message_bytes": 4096,
        "write_namespace": False,
        "write_padded_numbers": False,
        "partner_window": 7200,
        "clock_skew": 61,
        "exchange_mode": "synchronous",
        "exchange_identity": "key",
        "repeat_interval": 7,
        "repeat_interval_max": 77,
        "ordered": True,
        "max_in_flight": 3,
        "stream_concurrency": 5,
        "resend_schedule": (7, 77),
        "order_ack_timeout": 501,
        "max_order_ack_delay": 9_999,
        "time_to_live": 3600,
        "final_receipt": True,
        "final_receipt_within": 3601,
        "inbound_quota": 99,
        "coordination_version": "2004/10",
        "addressing_profile": "oasis",
        "addressing_strict": True,
        "other_servers": ("https://a.example", "http://b.example:81"),
        "soap_version": "1.2",
        "sync_reply": "none",
        "message_order": False,
        "own_role": "",
        "partner_role": "",
        "signatures": "none",
        "signature_algorithm": "rsa-sha256",
        "encryption": "none",
        "acknowledged_within": 901,
        "acknowledged_percent": 99.5,
        "processed_within": 3602,
        "processed_percent": 95.0,
        "services": (("urn:a", "Order", "send"), ("urn:b", "*", "receive")),
    }


@pytest.mark.parametrize(
    ("endpoint", "addresses"),
    [
        ({}, ("https://them.example/msh", "https://them.example/msh")),
        ({"address": "http://proxy.example/"}, ("http://proxy.example/", "http://proxy.example/")),
        ({"error_uri": "https://them.example/err"}, ("https://them.example/msh", "https://them.example/err")),
        (
            {"error_uri": "https://them.example/err", "address": "http://proxy.example/"},
            ("http://proxy.example/", "https://them.example/err"),
        ),
        (
            {"address": "http://proxy.example/", "error_address": "http://errors.example/"},
            ("http://proxy.example/", "http://errors.example/"),
        ),
    ],
)
def test_where_bytes_really_go(endpoint, addresses):
    version = make_agreement(partner_endpoint=make_endpoint(make_party(), "https://them.example/msh", **endpoint))
    terms = registry.current().version(version.id)
    assert (terms.partner_address, terms.partner_error_address) == addresses


def test_only_the_active_version_counts_and_older_ones_can_still_be_looked_up():
    first = make_agreement(timeout=60)
    tpa_id, partner_id = first.agreement.tpa_id, first.agreement.partner_id
    second = services.version_new(agreement=first.agreement)
    services.version_edit(version=second, timeout=90)
    registry.reset()
    assert registry.current().by_tpa_id(tpa_id).timeout == 60
    assert registry.current().version(second.id).state == "draft"
    services.version_activate(version=second)
    registry.reset()
    snapshot = registry.current()
    assert [terms.timeout for terms in snapshot.active()] == [90]
    assert snapshot.by_tpa_id(tpa_id).timeout == snapshot.by_hop(partner_id)[0].timeout == 90
    old = snapshot.version(first.id)
    assert (old.timeout, old.state, old.number, old.services) == (60, "retired", 1, (("urn:orders", "*", "both"),))
    with pytest.raises(KeyError):
        snapshot.version(uuid.uuid4())
    services.agreement_disable(agreement=first.agreement)
    registry.reset()
    assert registry.current().by_tpa_id(tpa_id) is None and registry.current().active() == ()
    assert registry.current().version(second.id).state == "disabled"


def test_a_version_in_flight_follows_the_partner_to_a_new_address():
    first = make_agreement()
    services.version_activate(version=services.version_new(agreement=first.agreement))
    registry.reset()
    assert registry.current().version(first.id).partner_address == first.partner_endpoint.uri
    services.endpoint_update(endpoint=first.partner_endpoint, address="http://moved.example/")
    registry.recheck()
    assert registry.current().version(first.id).partner_address == "http://moved.example/"


def test_lookup_by_the_uris_of_a_message_that_comes_in():
    one = make_agreement(tpa_id="tpa:1", own_uri="https://us.example/MSH", partner_uri="https://them.example/msh")
    two = make_agreement(
        tpa_id="tpa:2",
        own_party=one.agreement.own_party,
        partner=one.agreement.partner,
        own_endpoint=one.own_endpoint,
        partner_endpoint=one.partner_endpoint,
    )
    make_agreement()
    snapshot = registry.current()
    found = snapshot.by_uri_pair(" HTTPS://Them.Example/msh\n", "https://US.example/MSH")
    assert [terms.version_id for terms in found] == [one.id, two.id]
    assert snapshot.by_uri_pair("https://us.example/MSH", "https://them.example/msh") == ()
    assert snapshot.by_uri_pair("https://them.example/msh", "https://us.example/msh") == ()
    assert [terms.tpa_id for terms in snapshot.by_hop(one.agreement.partner_id)] == ["tpa:1", "tpa:2"]


def test_reads_touch_no_database(django_assert_num_queries):
    version = make_agreement()
    _, password = make_credential(version.agreement.partner, username="seller")
    make_outbound_credential(version.agreement.partner)
    snapshot = registry.current()
    draft = make_agreement(activate=False)
    snapshot.version(draft.id)
    with django_assert_num_queries(0):
        (terms,) = snapshot.active()
        assert snapshot.by_tpa_id(terms.tpa_id) is snapshot.version(version.id) is terms
        assert snapshot.by_hop(terms.partner_id) == (terms,)
        assert snapshot.by_uri_pair(terms.partner_uri, terms.own_uri) == (terms,)
        assert snapshot.authenticate(Presented(basic("seller", password)), NOON)
        assert snapshot.authenticate(Presented(basic("seller", "wrong-password")), NOON) is None
        assert snapshot.outbound_authorization(terms.partner_id, NOON)
        assert snapshot.version(draft.id).state == "draft"


def test_the_revision_is_looked_up_once_a_second_and_a_snapshot_kept_while_it_stands(
    monotonic, django_assert_num_queries
):
    make_agreement()
    first = registry.current()
    with django_assert_num_queries(0):
        monotonic.seconds += 0.99
        assert registry.current() is first
    with django_assert_num_queries(1):
        monotonic.seconds += 0.02
        assert registry.current() is first
        assert registry.current() is first
    make_party()  # resets; what follows is a write that nobody told us about
    second = registry.current()
    services.party_create(name="Silent")
    assert registry.current() is second
    monotonic.seconds += 1.0
    assert registry.current() is not second


def test_loading_takes_the_same_number_of_queries_however_many_agreements():
    def queries():
        registry.reset()
        with CaptureQueriesContext(connection) as captured:
            registry.current()
        return len(captured)

    make_credential(make_agreement().agreement.partner)
    few = queries()
    for _ in range(3):
        make_credential(make_agreement().agreement.partner)
    assert queries() == few == 6


def test_a_write_while_loading_makes_it_load_again(monkeypatch):
    make_agreement(tpa_id="tpa:1")
    real, writes = registry._credentials, []

    def interrupted():
        if not writes:
            writes.append(1)
            AgreementVersion.objects.filter(agreement__tpa_id="tpa:1").update(timeout=99)
            services.party_create(name="Bumps")
        return real()

    monkeypatch.setattr(registry, "_credentials", interrupted)
    snapshot = registry.current()
    assert snapshot.by_tpa_id("tpa:1").timeout == 99
    assert snapshot.revision == Revision.objects.get().number


def test_writes_without_end_do_not_keep_it_from_answering(monkeypatch, monotonic):
    make_agreement(tpa_id="tpa:1")
    real = registry._credentials

    def interrupted():
        services.party_update(party=party, contact="again")
        return real()

    party = make_party()
    monkeypatch.setattr(registry, "_credentials", interrupted)
    snapshot = registry.current()
    assert snapshot.by_tpa_id("tpa:1")
    monkeypatch.setattr(registry, "_credentials", real)
    monotonic.seconds += 1
    assert registry.current() is not snapshot


def test_a_failing_look_is_raised_once_and_the_snapshot_lives_on(monkeypatch, monotonic):
    make_agreement(tpa_id="tpa:1")
    snapshot = registry.current()
    real = registry._revision

    def broken():
        raise OperationalError("the database is away")

    monkeypatch.setattr(registry, "_revision", broken)
    monotonic.seconds += 1
    with pytest.raises(OperationalError):
        registry.current()
    assert registry.current() is snapshot
    monkeypatch.setattr(registry, "_revision", real)
    monotonic.seconds += 1
    assert registry.current() is snapshot


def test_one_thread_reloads_and_the_others_go_on_with_the_old_snapshot(monkeypatch, monotonic):
    make_agreement()
    old = registry.current()
    loading, go_on = threading.Event(), threading.Event()
    new = registry.Registry(revision=-1, active=(), credentials=())

    def slow_load(number):
        loading.set()
        assert go_on.wait(120)
        return new

    monkeypatch.setattr(registry, "_load", slow_load)
    monkeypatch.setattr(registry, "_revision", lambda: -1)
    monotonic.seconds += 1
    with ThreadPoolExecutor(1) as pool:
        reload = pool.submit(registry.current)
        assert loading.wait(120)
        monotonic.seconds += 1
        assert registry.current() is old
        go_on.set()
        assert reload.result(120) is new
    assert registry.current() is new


def test_before_the_first_snapshot_threads_wait_for_one_load(monkeypatch):
    loads, line = [], threading.Barrier(4)
    empty = registry.Registry(revision=7, active=(), credentials=())
    monkeypatch.setattr(registry, "_revision", lambda: 7)
    monkeypatch.setattr(registry, "_load", lambda number: loads.append(number) or empty)

    def call(_):
        line.wait(120)
        return registry.current()

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(call, range(4))) == {empty}
    assert loads == [7]


@pytest.mark.django_db(transaction=True)
def test_a_commit_in_this_process_is_seen_at_once_and_a_rollback_never(monotonic):
    version = make_agreement(timeout=60)
    registry.current()
    second = services.version_new(agreement=version.agreement)
    services.version_edit(version=second, timeout=90)
    services.version_activate(version=second)
    assert registry.current().by_tpa_id(version.agreement.tpa_id).timeout == 90
    before = registry.current()
    with pytest.raises(InvalidInput):
        services.party_create(name="")
    monotonic.seconds += 1
    assert registry.current() is before
