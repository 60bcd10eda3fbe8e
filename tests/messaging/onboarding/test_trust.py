"""Which certificates a partner's server may show: at the transport, in the terms, and as people enter them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from lxml import html

from messaging.claim import parcel
from messaging.journal.audit import Actor
from messaging.pairs.services.probing import probe
from messaging.transports import Parcel, Receipt, http
from partners import certificates, registry, services
from partners.certificates import read_upload
from partners.exceptions import InvalidInput
from rmhub import clock
from rmhub.roles import Role
from tests.messaging.console.scenes import browser
from tests.messaging.http_server import answering, serving
from tests.messaging.onboarding.authority import Authority, Issued, over_tls, self_signed
from tests.partners.factories import make_agreement, make_endpoint, make_party

TAKEN = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
AUTHORITY = Authority()


@pytest.fixture(autouse=True)
def no_old_connections() -> Iterator[None]:
    yield
    http._pool.clear()


def post(shown: Issued, *, trusted: str, clients: str = "", client: str = "") -> Receipt:
    with serving(over_tls(shown, answering(TAKEN), clients=clients)) as server:
        return http.send(
            Parcel(
                server.url.replace("http:", "https:"),
                "text/plain",
                b"x",
                connect_timeout=5,
                read_timeout=5,
                trusted_certificates=trusted,
                client_certificate=client,
            )
        )


def test_an_authority_vouches_for_what_it_issued_and_for_nothing_else() -> None:
    good, strange = AUTHORITY.issue(), Authority("Somebody").issue()
    assert post(good, trusted=AUTHORITY.certificate).status == 204
    refused = post(strange, trusted=AUTHORITY.certificate)
    assert (refused.cause, refused.permanent) == ("cert_untrusted", True)


def test_a_servers_own_certificate_may_be_all_that_is_trusted() -> None:
    pinned, issued = self_signed(), AUTHORITY.issue()
    assert post(pinned, trusted=pinned.certificate).status == 204
    assert post(issued, trusted=issued.certificate).status == 204
    assert post(self_signed(), trusted=pinned.certificate).cause == "cert_untrusted"


def test_one_that_has_expired_is_refused_although_it_is_trusted() -> None:
    old = AUTHORITY.issue(days=-1)
    assert post(old, trusted=AUTHORITY.certificate).cause == "cert_expired"
    assert post(old, trusted=old.certificate).cause == "cert_expired"


def test_our_certificate_is_shown_to_a_server_that_asks_for_one() -> None:
    ours, server = AUTHORITY.issue("hub"), AUTHORITY.issue()
    with_key = ours.key + ours.certificate
    assert post(server, trusted=AUTHORITY.certificate, clients=AUTHORITY.certificate, client=with_key).status == 204
    assert not post(server, trusted=AUTHORITY.certificate, clients=AUTHORITY.certificate).ok


def test_other_trust_is_another_connection() -> None:
    """A kept-alive connection that was trusted once must not carry what trusts somebody else now."""
    shown = AUTHORITY.issue()
    keep = b"HTTP/1.1 204 No Content\r\n\r\n"
    with serving(over_tls(shown, answering(keep, keep, keep))) as server:
        url = server.url.replace("http:", "https:")

        def ask(trusted: str) -> Receipt:
            return http.send(Parcel(url, "text/plain", b"x", trusted_certificates=trusted))

        assert [ask(AUTHORITY.certificate).status, ask(shown.certificate).status] == [204, 204]
        assert len(server.connections) == 2
        assert ask(Authority().certificate).cause == "cert_untrusted"
        http._pool.clear()  # or the server waits for the next request


@pytest.mark.django_db
def test_a_change_of_trust_reaches_the_next_parcel() -> None:
    version = make_agreement()
    terms = registry.current().version(version.pk)
    assert parcel(terms, "https://x/", "text/plain", b"", clock.now()).trusted_certificates == ""
    services.endpoint_update(endpoint=version.partner_endpoint, trusted_certificates=AUTHORITY.certificate)
    registry.reset()
    terms = registry.current().version(version.pk)
    sent = parcel(terms, "https://x/", "text/plain", b"", clock.now())
    assert sent.trusted_certificates == AUTHORITY.certificate.strip()


@pytest.mark.django_db
def test_our_certificate_is_stored_encrypted_and_goes_out_with_its_key() -> None:
    version = make_agreement()
    ours = AUTHORITY.issue("hub", days=20)
    party = version.agreement.partner
    stored = services.credential_store_outbound(party=party, kind="certificate", secret=ours.certificate + ours.key)
    assert b"PRIVATE" not in stored.secret_encrypted and "PRIVATE" not in stored.certificate
    assert stored.valid_until is not None and stored.valid_until - datetime.now(UTC) < timedelta(days=21)
    registry.reset()
    sent = parcel(registry.current().version(version.pk), "https://x/", "text/plain", b"", clock.now())
    assert "PRIVATE KEY" in sent.client_certificate and "PRIVATE KEY" not in repr(sent)
    services.credential_revoke(credential=stored)
    registry.reset()
    assert registry.current().outbound_certificate(party.pk, clock.now()) == ""


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        (AUTHORITY.issue().certificate, "private key is missing"),
        (AUTHORITY.issue().key, "certificate is missing"),
        (AUTHORITY.issue().key + AUTHORITY.issue().certificate, "another certificate"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" + AUTHORITY.certificate, "cannot be read"),
    ],
    ids=["no key", "no certificate", "of another key", "unreadable"],
)
@pytest.mark.django_db
def test_a_certificate_of_ours_that_cannot_be_used_is_refused(secret: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        services.credential_store_outbound(party=make_party(), kind="certificate", secret=secret)
    assert said in " ".join(refused.value.errors["secret"])


@pytest.mark.parametrize(
    ("pem", "said"),
    [
        ("no certificate", "no certificate"),
        (AUTHORITY.issue().key + AUTHORITY.certificate, "private key"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "cannot be read"),
        (AUTHORITY.certificate * 60, "20 are the most"),
    ],
    ids=["text", "with its key", "unreadable", "sixty"],
)
@pytest.mark.django_db
def test_text_that_is_no_certificate_is_refused_with_what_to_do(pem: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        make_endpoint(make_party(), trusted_certificates=pem)
    assert said in " ".join(refused.value.errors["trusted_certificates"])


@pytest.mark.django_db
def test_only_servers_that_show_certificates_have_trusted_ones() -> None:
    party = make_party()
    for fields in (
        {"uri": "sftp://files.example/in/", "transport": "sftp", "host_key": "SHA256:" + "b" * 43},
        {"uri": "mailto:orders@partner.example", "transport": "smtp"},
    ):
        with pytest.raises(InvalidInput) as refused:
            make_endpoint(party, trusted_certificates=AUTHORITY.certificate, **fields)
        assert "trusted_certificates" in refused.value.errors


def test_what_a_certificate_says() -> None:
    issued = AUTHORITY.issue("globex.example", days=10)
    (facts,) = certificates.read(f"some words\n{issued.certificate}")
    now = datetime.now(UTC)
    assert (facts.title, facts.issuer, facts.names) == ("globex.example", "CN=Test CA", ("localhost", "127.0.0.1"))
    assert (facts.key, facts.is_authority, facts.self_signed) == ("EC secp256r1", False, False)
    assert "server authentication" in facts.key_use and len(facts.fingerprint) == 64
    assert facts.days_left(now) == 9 and not facts.expired(now)
    (authority,) = certificates.read(AUTHORITY.certificate)
    assert (authority.is_authority, authority.self_signed) == (True, True)
    assert (
        certificates.tidy(issued.certificate * 2 + AUTHORITY.certificate) == issued.certificate + AUTHORITY.certificate
    )


def test_files_may_be_pem_or_der() -> None:
    (facts,) = certificates.read(AUTHORITY.certificate)
    der = certificates.x509.load_pem_x509_certificate(AUTHORITY.certificate.encode()).public_bytes(
        certificates.Encoding.DER
    )
    assert read_upload(der) == facts.pem
    assert certificates.read(read_upload(b"\xef\xbb\xbf" + AUTHORITY.certificate.encode()))[0] == facts
    with pytest.raises(ValueError, match="neither PEM"):
        read_upload(b"\x89PNG\xff")


@pytest.mark.django_db(transaction=True)
def test_the_certificate_that_a_ping_found_is_trusted_after_a_look_at_its_fingerprint() -> None:
    shown = self_signed()
    with serving(over_tls(shown, answering(TAKEN, TAKEN))) as server:
        address = server.url.replace("http:", "https:")
        endpoint = make_endpoint(make_party("Globex"), uri="https://partner.example/msh", address=address)
        found = probe(endpoint_id=endpoint.pk, actor=Actor("ada"))
        assert found.cause == "cert_untrusted"
        page = browser(Role.ADMIN)
        looked_at = html.fromstring(page.get(f"/endpoints/{endpoint.public_id}/").content)
        [link] = looked_at.xpath("//a[@data-testid='trust-shown']/@href")
        dialog = html.fromstring(page.get(link).content)
        [fact] = certificates.read(shown.certificate)
        assert fact.fingerprint in dialog.xpath("//*[@data-testid='shown']")[0].text_content()
        given = {
            "version": dialog.xpath("//input[@name='version']/@value")[0],
            "certificates": dialog.xpath("//textarea[@name='certificates']")[0].text,
            "reason": "compared by telephone",
        }
        assert page.post(link.partition("?")[0], given).status_code == 303
        endpoint.refresh_from_db()
        assert [one.fingerprint for one in certificates.read(endpoint.trusted_certificates)] == [fact.fingerprint]
        assert probe(endpoint_id=endpoint.pk, actor=Actor("ada")).cause != "cert_untrusted"
    other = make_endpoint(make_party("Initech"), uri="https://other.example/msh")
    strange = page.get(f"/endpoints/{other.public_id}/certificates/?report={found.public_id}")
    assert 'data-testid="shown"' not in strange.content.decode()
