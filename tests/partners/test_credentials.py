from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from partners import registry, secrets, services
from partners.choices import CredentialKind
from partners.exceptions import InvalidInput, WrongState
from partners.models import Credential
from partners.secrets import SecretUnreadable
from partners.terms import Presented
from rmhub import clock
from tests.messaging.profiles.ebms2.signed import signer
from tests.partners.factories import basic, make_credential, make_outbound_credential, make_party

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
PRINT = "ab" * 32

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def noon():
    with clock.frozen(NOON) as frozen:
        yield frozen


def who(authorization: str = "", fingerprint: str = "", now: datetime = NOON):
    return registry.current().authenticate(Presented(authorization, fingerprint), now)


def test_made_up_secrets_are_long_and_different():
    party = make_party()
    texts = {make_credential(party)[1] for _ in range(3)}
    assert len(texts) == 3 and all(len(text) >= 43 for text in texts)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"kind": "basic"}, "username"),
        ({"kind": "basic", "username": "a:b"}, "username"),
        ({"kind": "basic", "username": "a\nb"}, "username"),
        ({"kind": "basic", "username": "x" * 121}, "username"),
        ({"kind": "basic", "username": "a", "secret": "short"}, "secret"),
        ({"kind": "basic", "username": "a", "secret": "x" * 1025}, "secret"),
        ({"kind": "basic", "username": "a", "secret": "line\r\nbreak"}, "secret"),
        ({"kind": "bearer", "secret": "with some space"}, "secret"),
        ({"kind": "bearer", "secret": "wörd-wörd"}, "secret"),
        ({"kind": "certificate"}, "fingerprint"),
        ({"kind": "certificate", "fingerprint": "ab:cd"}, "fingerprint"),
        ({"kind": "signing"}, "certificate"),
        ({"kind": "signing", "fingerprint": "ab" * 32}, "certificate"),
        ({"kind": "kerberos"}, "kind"),
        ({"kind": "bearer", "valid_from": NOON, "valid_until": NOON}, "valid_until"),
        ({"kind": "bearer", "valid_until": datetime(2026, 1, 1)}, "valid_until"),
    ],
)
def test_bad_credentials_are_refused_by_field(fields, wrong):
    with pytest.raises(InvalidInput) as caught:
        services.credential_issue(party=make_party(), **fields)
    assert set(caught.value.errors) == {wrong}
    assert str(fields.get("secret")) not in str(caught.value)
    assert not Credential.objects.exists()


def test_a_user_name_belongs_to_one_party():
    one, other = make_party(), make_party()
    credential, _ = make_credential(one, username="edi")
    with pytest.raises(InvalidInput) as caught:
        make_credential(other, username=" edi ")
    assert set(caught.value.errors) == {"username"}
    services.credential_revoke(credential=credential)
    make_credential(other, username="edi")


def test_a_user_name_has_a_handful_of_passwords_at_most():
    party = make_party()
    issued = [make_credential(party, username="edi")[0] for _ in range(4)]
    with pytest.raises(InvalidInput):
        make_credential(party, username="edi")
    services.credential_revoke(credential=issued[0])
    make_credential(party, username="edi")


def test_a_certificate_belongs_to_one_party():
    credential, _ = make_credential(make_party(), kind="certificate", fingerprint=PRINT)
    with pytest.raises(InvalidInput):
        make_credential(make_party(), kind="certificate", fingerprint=PRINT.upper())
    services.credential_revoke(credential=credential)
    make_credential(make_party(), kind="certificate", fingerprint=PRINT)


def test_revoking_is_final():
    credential, _ = make_credential(make_party())
    assert services.credential_revoke(credential=credential).revoked_at == NOON
    with pytest.raises(WrongState):
        services.credential_revoke(credential=credential)


# --- outbound ---


def outbound(party, now=NOON):
    return registry.current().outbound_authorization(party.id, now)


def test_what_we_show_a_partner():
    one, other, third = make_party(), make_party(), make_party()
    make_outbound_credential(one, username="hüb", secret="pa:ss")
    make_outbound_credential(other, kind="bearer", secret="their.token")
    assert outbound(one) == "Basic " + base64.b64encode("hüb:pa:ss".encode()).decode()
    assert outbound(other) == "Bearer their.token"
    assert outbound(third) == ""


def test_the_newest_valid_credential_is_shown(noon):
    party = make_party()
    make_outbound_credential(party, kind="bearer", secret="first")
    noon.move(1)
    second = make_outbound_credential(party, kind="bearer", secret="second")
    noon.move(1)
    make_outbound_credential(party, kind="bearer", secret="planned", valid_from=NOON + HOUR)
    assert outbound(party) == "Bearer second"
    assert outbound(party, NOON + HOUR) == "Bearer planned"
    services.credential_revoke(credential=second)
    registry.recheck()
    assert outbound(party, clock.now()) == "Bearer first"


def test_an_inbound_credential_is_never_shown_and_an_outbound_one_opens_nothing():
    party = make_party()
    make_credential(party, username="seller")
    assert outbound(party) == ""
    make_outbound_credential(party, username="hub", secret="outbound-secret")
    assert who(basic("hub", "outbound-secret")) is None
    assert who(basic("hub", "")) is None


def test_a_secret_is_decrypted_once_for_a_snapshot(monkeypatch):
    party = make_party()
    make_outbound_credential(party)
    decrypted = []
    real = secrets.decrypt
    monkeypatch.setattr(secrets, "decrypt", lambda data: decrypted.append(1) or real(data))
    assert outbound(party) == outbound(party) != ""
    assert len(decrypted) == 1


def test_a_secret_that_no_key_can_read_is_said_so(settings):
    party = make_party()
    make_outbound_credential(party)
    settings.RMHUB_SECRET_KEYS = [Fernet.generate_key().decode()]
    with pytest.raises(SecretUnreadable):
        outbound(party)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"kind": "bearer", "secret": "to ken"}, "secret"),
        ({"kind": "bearer", "secret": "token\r\nX-Evil: 1"}, "secret"),
        ({"kind": "bearer", "secret": ""}, "secret"),
        ({"kind": "basic", "secret": "x"}, "username"),
        ({"kind": "certificate", "secret": "x"}, "secret"),
        ({"kind": "signing", "secret": "x"}, "secret"),
    ],
)
def test_bad_outbound_credentials_are_refused_by_field(fields, wrong):
    with pytest.raises(InvalidInput) as caught:
        services.credential_store_outbound(party=make_party(), **fields)
    assert set(caught.value.errors) == {wrong}


def test_what_signs_is_kept_apart_from_what_lets_in():
    """All that are valid count of a partner, and the newest one of ours; one certificate may be for both uses."""
    party, now = make_party(), datetime(2026, 7, 1, tzinfo=UTC)
    first, second = (
        x509.load_der_x509_certificate(signer(name).certificate).public_bytes(Encoding.PEM).decode()
        for name in ("first", "second")
    )
    services.credential_issue(party=party, kind="certificate", certificate=first)
    services.credential_issue(party=party, kind="signing", certificate=first)
    newer, _ = services.credential_issue(party=party, kind="signing", certificate=second)
    with pytest.raises(InvalidInput, match="has this certificate already"):
        services.credential_issue(party=make_party(), kind="signing", certificate=second)
    for name, pem in (("first", first), ("second", second)):
        services.credential_store_outbound(party=party, kind="signing", secret=signer(name).key.decode() + pem)
    registry.reset()
    known = registry.current()
    assert known.certificates(CredentialKind.SIGNING, party.id, now) == [
        signer("second").certificate,
        signer("first").certificate,
    ]
    assert registry.der_of(known.signing_certificate(party.id, now)) == signer("second").certificate
    assert known.certificates(CredentialKind.SIGNING, party.id, datetime(2027, 7, 1, tzinfo=UTC)) == []
    assert known.signing_certificate(party.id, datetime(2027, 7, 1, tzinfo=UTC)) == ""
    assert known.outbound_authorization(party.id, now) == known.outbound_certificate(party.id, now) == ""
    services.credential_revoke(credential=newer)
    registry.reset()
    assert registry.current().certificates(CredentialKind.SIGNING, party.id, now) == [signer("first").certificate]


def test_reencryption_lets_the_old_key_go(settings):
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.RMHUB_SECRET_KEYS = [old]
    party = make_party()
    make_outbound_credential(party, kind="bearer", secret="token")
    make_credential(party)
    settings.RMHUB_SECRET_KEYS = [new, old]
    assert services.credentials_reencrypt() == 1
    settings.RMHUB_SECRET_KEYS = [new]
    registry.reset()
    assert outbound(party) == "Bearer token"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (rsa.generate_private_key(65537, 1024), "RSA 1024"),
        (ec.generate_private_key(ec.SECP256K1()), "EC secp256k1"),
        (ed25519.Ed25519PrivateKey.generate(), "Ed25519"),
        (rsa.generate_private_key(65537, 2048), ""),
        (ec.generate_private_key(ec.SECP521R1()), ""),
    ],
    ids=["short", "curve", "ed25519", "rsa", "ec"],
)
def test_a_key_that_signs_no_message_is_refused(db: None, key: Any, said: str) -> None:
    """Its certificate would be the newest, and nothing could be signed or verified with it."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "signer")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(clock.now() - timedelta(days=1))
    made = made.not_valid_after(clock.now() + timedelta(days=9))
    certificate = made.sign(key, None if said == "Ed25519" else hashes.SHA256())
    text = certificate.public_bytes(Encoding.PEM).decode()
    secret = text + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    party = make_party("Them")
    for store in (
        lambda: services.credential_issue(party=party, kind="signing", certificate=text),
        lambda: services.credential_store_outbound(party=party, kind="signing", secret=secret),
    ):
        if not said:
            store()
            continue
        with pytest.raises(InvalidInput, match=f"this one is {said}: use another"):
            store()
