from __future__ import annotations

import base64
import hmac
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from partners import authentication, registry, services
from partners.models import Credential
from partners.terms import Presented
from rmhub import clock
from tests.partners.factories import basic, make_credential, make_outbound_credential, make_party

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
PRINT = "ab" * 32

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def noon():
    with clock.frozen(NOON) as frozen:
        yield frozen


@pytest.fixture
def hashes(monkeypatch):
    """The slow hashes that were computed, as (secret, hash)."""
    computed = []

    def counted(secret, encoded):
        computed.append((secret, encoded))
        return real(secret, encoded)

    real = authentication.check_password
    monkeypatch.setattr(authentication, "check_password", counted)
    return computed


def who(authorization: str = "", fingerprint: str = "", now: datetime = NOON):
    return registry.current().authenticate(Presented(authorization, fingerprint), now)


def test_basic_names_the_partner_and_the_credential():
    party = make_party("Seller")
    credential, password = make_credential(party, username="seller")
    principal = who(basic("seller", password))
    assert (principal.party_id, principal.party_name, principal.credential_id) == (party.id, "Seller", credential.id)
    assert who(basic("seller", password + "x")) is None
    assert who(basic("seller", "")) is None
    assert who(basic("Seller", password)) is None
    assert who(basic("buyer", password)) is None


def test_a_partner_that_is_archived_is_nobody_until_it_is_in_use_again():
    party = make_party("Seller")
    _, password = make_credential(party, username="seller")
    assert who(basic("seller", password)).party_id == party.id
    services.party_archive(party=party)
    registry.recheck()
    assert who(basic("seller", password)) is None
    services.party_restore(party=party)
    registry.recheck()
    assert who(basic("seller", password)).party_id == party.id


def test_a_password_may_be_chosen_and_holds_colons_and_any_letter():
    make_credential(make_party(), username="jürgen", secret="pa:ss:wörd ✓")
    assert who(basic("jürgen", "pa:ss:wörd ✓"))
    assert who("bAsIc   " + basic("jürgen", "pa:ss:wörd ✓")[6:] + " ")


def test_latin_1_is_understood():
    make_credential(make_party(), username="jürgen", secret="wörd-wörd")
    assert who("Basic " + base64.b64encode("jürgen:wörd-wörd".encode("latin-1")).decode())


def test_a_bearer_token_names_its_credential():
    party = make_party()
    credential, token = make_credential(party, kind="bearer")
    assert token.startswith(credential.id.hex + ".")
    assert who(f"Bearer {token}").party_id == party.id
    assert who(f"bearer {token}").credential_id == credential.id
    assert who(f"Bearer {token}x") is None
    other, other_token = make_credential(make_party(), kind="bearer")
    assert who(f"Bearer {other.id.hex}.{token.partition('.')[2]}") is None
    assert who(f"Bearer {other_token}").credential_id == other.id


def test_a_token_is_no_password_and_a_password_no_token():
    party = make_party()
    token_credential, token = make_credential(party, kind="bearer")
    credential, password = make_credential(party, username="seller")
    assert who(basic(token_credential.id.hex, token.partition(".")[2])) is None
    assert who(f"Bearer {credential.id.hex}.{password}") is None


def test_a_certificate_is_known_by_its_fingerprint_however_it_is_written():
    party = make_party()
    credential, text = make_credential(party, kind="certificate", fingerprint=":".join(["AB"] * 32))
    assert (credential.fingerprint, text) == (PRINT, "")
    assert who(fingerprint=PRINT).party_id == party.id
    assert who(fingerprint=":".join(["AB"] * 32)).credential_id == credential.id
    assert who(fingerprint="cd" * 32) is None
    assert who(fingerprint="nonsense") is None


def test_header_and_certificate_must_not_contradict_each_other():
    one, other = make_party(), make_party()
    make_credential(one, kind="certificate", fingerprint=PRINT)
    _, mine = make_credential(one, username="one")
    _, theirs = make_credential(other, username="other")
    assert who(basic("one", mine), PRINT).party_id == one.id
    assert who(basic("other", theirs), PRINT) is None
    assert who(basic("one", "wrong-password"), PRINT) is None
    assert who(basic("other", theirs), "cd" * 32).party_id == other.id  # a certificate that we know nothing about


def test_without_anything_there_is_nobody():
    make_credential(make_party())
    assert who() is None


@pytest.mark.parametrize(
    "header",
    [
        "Basic",
        "Basic ",
        "Basic !!!!",
        "Basic YQ",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Basic " + base64.b64encode(b":").decode(),
        "Basic " + base64.b64encode(b"\xff\x00:\x00").decode(),
        "Basic " + "QUFB" * 10_000,
        "Basic ключ",
        "Bearer",
        "Bearer .",
        "Bearer x.y",
        "Bearer " + "0" * 32 + ".x",
        "Bearer " + "0" * 32,
        "Bearer \ud800.\ud800",
        "Digest username=x",
        "Negotiate abcdef",
        " ",
        "\x00",
        "nonsense",
    ],
)
def test_malformed_headers_are_nobody_and_never_an_exception(header):
    make_credential(make_party())
    assert who(header) is None
    assert who(header, "\ud800" * 64) is None


def test_a_header_beyond_all_measure_is_not_read():
    _, password = make_credential(make_party(), username="seller")
    header = basic("seller", password)
    assert who(header + " " * 100)
    assert who(header + " " * 8192) is None


def test_old_and_new_password_both_work_until_the_old_one_is_revoked(noon):
    party = make_party()
    old, old_password = make_credential(party, username="seller")
    noon.move(60)
    new, new_password = make_credential(party, username="seller")
    assert who(basic("seller", old_password)).credential_id == old.id
    assert who(basic("seller", new_password)).credential_id == new.id
    services.credential_revoke(credential=old)
    registry.recheck()
    assert who(basic("seller", old_password)) is None
    assert who(basic("seller", new_password)).credential_id == new.id
    services.credential_revoke(credential=new)
    registry.recheck()
    assert who(basic("seller", new_password)) is None


@pytest.mark.parametrize("kind", ["basic", "bearer", "certificate"])
def test_a_credential_counts_within_its_time_only(kind):
    _, text = make_credential(
        make_party(),
        kind=kind,
        username="seller" if kind == "basic" else "",
        fingerprint=PRINT if kind == "certificate" else "",
        valid_from=NOON - HOUR,
        valid_until=NOON + HOUR,
    )
    header = {"basic": basic("seller", text), "bearer": f"Bearer {text}", "certificate": ""}[kind]
    fingerprint = PRINT if kind == "certificate" else ""
    second = timedelta(seconds=1)
    inside = [NOON - HOUR, NOON, NOON + HOUR - second]
    outside = [NOON - HOUR - second, NOON + HOUR, NOON + 2 * HOUR]
    assert all(who(header, fingerprint, now) for now in inside)
    assert not any(who(header, fingerprint, now) for now in outside)


def test_a_planned_revocation_counts_from_its_time_on():
    credential, password = make_credential(make_party(), username="seller")
    Credential.objects.filter(pk=credential.pk).update(revoked_at=NOON + HOUR)
    registry.reset()
    assert who(basic("seller", password))
    assert who(basic("seller", password), now=NOON + HOUR) is None


def test_the_slow_hash_runs_once_for_a_good_password(hashes):
    party = make_party()
    _, password = make_credential(party, username="seller")
    for _ in range(5):
        assert who(basic("seller", password))
    assert len(hashes) == 1
    services.party_update(party=party, contact="a new snapshot")
    registry.recheck()
    assert who(basic("seller", password))
    assert len(hashes) == 1


def test_a_changed_hash_is_checked_anew(hashes):
    credential, password = make_credential(make_party(), username="seller")
    other, other_password = make_credential(make_party(), username="other")
    assert who(basic("seller", password))
    Credential.objects.filter(pk=credential.pk).update(secret_hash=Credential.objects.get(pk=other.pk).secret_hash)
    services.party_create(name="Bumps the revision")
    registry.recheck()
    assert who(basic("seller", password)) is None
    assert who(basic("seller", other_password))


def test_while_a_password_is_replaced_neither_pays_for_the_other(hashes):
    party = make_party()
    passwords = [make_credential(party, username="seller")[1] for _ in range(3)]
    for _ in range(3):
        assert all(who(basic("seller", password)) for password in passwords)
    first_round = len(hashes)
    assert first_round <= 6
    assert all(who(basic("seller", password)) for password in passwords)
    assert len(hashes) == first_round


def test_failures_cost_as_many_hashes_for_unknown_names_as_for_known_ones(hashes):
    party = make_party()
    make_credential(party, username="seller")
    make_credential(party, username="seller")
    make_credential(make_party(), username="buyer")
    _, token = make_credential(make_party(), kind="bearer")
    make_credential(make_party(), username="expired", valid_until=NOON + HOUR)
    costs = []
    for header in (
        basic("seller", "wrong-password"),
        basic("buyer", "wrong-password"),
        basic("nobody", "wrong-password"),
    ):
        for _ in range(2):  # and the second time as many as the first
            del hashes[:]
            assert who(header) is None
            costs.append(len(hashes))
    del hashes[:]
    assert who(basic("expired", "wrong-password"), now=NOON + HOUR) is None
    assert {*costs, len(hashes)} == {2}
    for header in (f"Bearer {token}x", "Bearer " + "0" * 32 + ".wrong"):
        del hashes[:]
        assert who(header) is None
        assert len(hashes) == 1
    assert {encoded.partition("$")[0] for _, encoded in hashes} == {"md5"}


def test_one_password_on_many_connections_is_hashed_once(monkeypatch):
    _, password = make_credential(make_party(), username="seller")
    snapshot, computed, arrived, all_here = registry.current(), [], [], threading.Event()
    real = authentication.check_password

    def digest(*args):
        arrived.append(1)
        if len(arrived) == 8:
            all_here.set()
        return hmac.digest(*args)

    def slow(secret, encoded):
        computed.append(secret)
        assert all_here.wait(120)
        return real(secret, encoded)

    monkeypatch.setattr(authentication, "hmac", SimpleNamespace(digest=digest))
    monkeypatch.setattr(authentication, "check_password", slow)

    def call(_):
        return snapshot.authenticate(Presented(basic("seller", password)), NOON)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(8)))
    assert len(computed) == 1


def test_the_memory_of_checked_passwords_is_bounded(monkeypatch, hashes):
    monkeypatch.setattr(authentication, "MAX_REMEMBERED", 2)
    headers = [basic(f"user-{n}", make_credential(make_party(), username=f"user-{n}")[1]) for n in range(3)]
    for header in headers:
        assert who(header)
    assert len(authentication._remembered) == 2
    del hashes[:]
    assert who(headers[2]) and who(headers[1])
    assert hashes == []
    assert who(headers[0])
    assert len(hashes) == 1


def test_nothing_of_a_secret_is_kept_in_clear_or_shown(caplog):
    caplog.set_level(logging.DEBUG)
    party = make_party()
    inbound, password = make_credential(party, username="seller")
    outbound = make_outbound_credential(party, secret="outbound-secret")
    assert who(basic("seller", password))
    assert registry.current().outbound_authorization(party.id, NOON)
    stored = list(Credential.objects.values())
    header = base64.b64encode(b"hub:outbound-secret").decode()
    for text in (str(stored), repr([inbound, outbound]), str(inbound), repr(registry.current())):
        assert password not in text and "outbound-secret" not in text and header not in text
    assert b"outbound-secret" not in bytes(Credential.objects.get(pk=outbound.pk).secret_encrypted)
    held = [each for known in registry.current()._inbound._by_username.values() for each in known]
    hashed = Credential.objects.get(pk=inbound.pk).secret_hash
    assert held and hashed not in repr(held)
    shown = [record.getMessage() for record in caplog.records if record.name != "django.db.backends"]
    assert password not in "\n".join(shown)
