"""Pollers, servers of endpoints and SSH keys: what is kept, and what is refused with words."""

from __future__ import annotations

import io

import paramiko
import pytest
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_ssh_private_key,
)

from partners import registry, secrets, selectors, services
from partners.exceptions import InvalidInput
from partners.models import Credential, Endpoint, Poller
from partners.ssh_keys import read_private_key
from partners.transports import uri_fault
from rmhub import clock
from tests.partners.factories import make_agreement, make_endpoint, make_outbound_credential, make_party

KEY = "SHA256:" + "a" * 43

# 1024 bits are of no use to anybody and quick to make; so is a DSA key, which SSH has given up.
WEAK = rsa.generate_private_key(65537, 1024)
GONE = dsa.generate_private_key(1024)
ED25519 = Ed25519PrivateKey.generate()


def pem(key, form: PrivateFormat = PrivateFormat.PKCS8, password: bytes = b"") -> str:
    lock = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, form, lock).decode()


def folder(**changes: object) -> Poller:
    values: dict[str, object] = {
        "name": "Globex",
        "kind": "sftp",
        "url": "sftp://files.globex.example/to-us/",
        "username": "hub",
        "secret": "their password",
        "host_key": KEY,
        **changes,
    }
    if "endpoint" not in values:
        values["endpoint"] = make_endpoint(make_party(own=True))
    if "partner" not in values:
        values["partner"] = make_party()
    return services.poller_create(**values)  # type: ignore[arg-type]


def mailbox(**changes: object) -> Poller:
    values: dict[str, object] = {
        "kind": "imap",
        "url": "imaps://mail.us.example/INBOX",
        "trusted_checker": "mx.us.example",
        "partner": None,
        "host_key": "",
    }
    return folder(**{**values, **changes})


@pytest.mark.django_db
class TestPollers:
    def test_the_secret_is_kept_encrypted_and_read_by_no_list(self) -> None:
        made = folder()
        stored = Poller.objects.get()
        assert b"their password" not in bytes(stored.secret_encrypted)
        assert secrets.decrypt(stored.secret_encrypted) == "their password"
        assert "secret_encrypted" in selectors.poller(made.pk).get_deferred_fields()
        assert mailbox(name="Mail").partner is None

    @pytest.mark.parametrize(
        ("make", "changes", "field"),
        [
            (folder, {"partner": None}, "partner"),
            (folder, {"url": "sftp://files.example/a/../b/"}, "url"),
            (folder, {"url": "sftp://files.example/a"}, "url"),
            (folder, {"url": "sftp://hub:secret@files.example/a/"}, "url"),
            (folder, {"url": "ftp://files.example/a/"}, "url"),
            (folder, {"url": "sftp://files.example/a%00b/"}, "url"),
            (folder, {"host_key": ""}, "host_key"),
            (folder, {"host_key": "aa:bb:cc"}, "host_key"),
            (folder, {"host_key": f"{KEY} MD5:00"}, "host_key"),
            (folder, {"username": ""}, "username"),
            (folder, {"secret": ""}, "secret"),
            (folder, {"secret": "two\nlines"}, "secret"),
            (folder, {"secret_kind": "bearer"}, "secret_kind"),
            (folder, {"secret_kind": "ssh_key", "secret": "no key"}, "secret"),
            (folder, {"trusted_checker": "mx.us.example"}, "trusted_checker"),
            (folder, {"interval": 1}, "interval"),
            (folder, {"name": ""}, "name"),
            (folder, {"name": "Taken"}, "name"),
            (folder, {"kind": "ftp"}, "kind"),
            (mailbox, {"trusted_checker": ""}, "trusted_checker"),
            (mailbox, {"trusted_checker": "two words"}, "trusted_checker"),
            (mailbox, {"url": "imap://mail.us.example/INBOX"}, "url"),
            (mailbox, {"url": "imaps:///INBOX"}, "url"),
            (mailbox, {"secret_kind": "ssh_key"}, "secret_kind"),
            (mailbox, {"host_key": KEY}, "host_key"),
        ],
    )
    def test_what_cannot_be(self, make, changes: dict[str, object], field: str) -> None:
        folder(name="Taken", url="sftp://files.globex.example/other/")
        with pytest.raises(InvalidInput) as caught:
            make(**changes)
        assert field in caught.value.errors, caught.value.errors
        assert "their password" not in str(caught.value)
        assert Poller.objects.count() == 1

    def test_whose_it_is(self) -> None:
        ours, theirs = make_party(own=True), make_party()
        with pytest.raises(InvalidInput) as caught:
            folder(endpoint=make_endpoint(theirs))
        assert "endpoint" in caught.value.errors
        with pytest.raises(InvalidInput) as caught:
            folder(partner=ours)
        assert "partner" in caught.value.errors
        with pytest.raises(InvalidInput) as caught:
            mailbox(partner=theirs)
        assert "partner" in caught.value.errors

    def test_a_change_keeps_the_secret_and_never_sends_it_elsewhere(self) -> None:
        """Whoever may change a poller could have the stored password sent to a server of their own."""
        made = folder()
        services.poller_update(poller=made, interval=60, url="sftp://files.globex.example/elsewhere/")
        assert secrets.decrypt(Poller.objects.get().secret_encrypted) == "their password"
        elsewhere = ({"url": "sftp://files.evil.example/to-us/"}, {"host_key": "SHA256:" + "b" * 43})
        for change in (*elsewhere, {"username": "other"}, {"url": "sftp://files.globex.example:2222/to-us/"}):
            with pytest.raises(InvalidInput) as caught:
                services.poller_update(poller=made, **change)  # type: ignore[arg-type]
            assert list(caught.value.errors) == ["secret"]
        changed = services.poller_update(poller=made, url="sftp://files.new.example/to-us/", secret="new password")
        assert secrets.decrypt(changed.secret_encrypted) == "new password"

    def test_a_folder_can_become_a_mailbox(self) -> None:
        made = folder()
        services.poller_update(
            poller=made,
            without_partner=True,
            kind="imap",
            url="imaps://mail.us.example/INBOX",
            trusted_checker="mx.us.example",
            host_key="",
            secret="mail password",
        )
        assert (Poller.objects.get().partner, Poller.objects.get().kind) == (None, "imap")

    def test_new_keys_reencrypt_pollers_too(self, settings: object) -> None:
        made = folder()
        old = list(settings.RMHUB_SECRET_KEYS)  # type: ignore[attr-defined]
        new = Fernet.generate_key().decode()
        settings.RMHUB_SECRET_KEYS = [new, *old]  # type: ignore[attr-defined]
        assert services.credentials_reencrypt() == 1
        settings.RMHUB_SECRET_KEYS = [new]  # type: ignore[attr-defined]
        assert secrets.decrypt(Poller.objects.get(pk=made.pk).secret_encrypted) == "their password"

    def test_delete(self) -> None:
        services.poller_delete(poller=folder())
        assert not Poller.objects.exists()


@pytest.mark.django_db
class TestEndpoints:
    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"server": "sftp://files.example"}, "server"),  # of an HTTP endpoint
            ({"host_key": KEY}, "host_key"),
            ({"transport": "sftp", "uri": "https://a.example/"}, "uri"),
            ({"transport": "sftp", "uri": "sftp://a.example/in/", "error_uri": "sftp://a.example/err"}, "error_uri"),
            ({"transport": "sftp", "uri": "sftp://a.example/in/", "server": "sftp://b.example/path/"}, "server"),
            ({"transport": "sftp", "uri": "sftp://a.example/in/", "server": "b.example"}, "server"),
            ({"transport": "sftp", "uri": "sftp://a.example/in/", "host_key": "SHA256:short"}, "host_key"),
            ({"transport": "smtp", "uri": "mailto:a@b.example", "host_key": KEY}, "host_key"),
            ({"transport": "smtp", "uri": "mailto:a@b.example", "server": "sftp://b.example"}, "server"),
        ],
    )
    def test_what_cannot_be(self, values: dict[str, str], field: str) -> None:
        party = make_party()
        with pytest.raises(InvalidInput) as caught:
            services.endpoint_create(party=party, **{"uri": "https://a.example/", **values})  # type: ignore[arg-type]
        assert field in caught.value.errors, caught.value.errors
        assert not Endpoint.objects.exists()

    def test_server_and_host_key_reach_the_terms_and_may_change_under_an_agreement(self) -> None:
        endpoint = make_endpoint(make_party(), "sftp://files.globex.example/in/", transport="sftp", host_key=KEY)
        version = make_agreement(partner_endpoint=endpoint)
        services.endpoint_update(endpoint=endpoint, server="sftp://10.0.0.1:2222", host_key=f"{KEY}, SHA256:{'b' * 43}")
        registry.reset()
        terms = registry.current().version(version.pk)
        assert (terms.server, terms.host_key) == ("sftp://10.0.0.1:2222", f"{KEY} SHA256:{'b' * 43}")

    def test_a_transport_that_is_changed_takes_what_it_does_not_have(self) -> None:
        endpoint = make_endpoint(make_party(), "sftp://files.globex.example/in/", transport="sftp", host_key=KEY)
        with pytest.raises(InvalidInput) as caught:
            services.endpoint_update(
                endpoint=endpoint, transport="http", uri="https://a.example/", error_uri="https://a.example/"
            )
        assert "host_key" in caught.value.errors


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("sftp://files.example/in/", ""),
        ("sftp://files.example:2222/~/in/", ""),
        ("sftp://files.example/", ""),
        ("sftp://files.example", "uri_folder"),
        ("sftp://files.example/in", "uri_folder"),
        ("sftp://files.example/in//x/", "uri_folder"),
        ("sftp://files.example/./in/", "uri_folder"),
        ("sftp://files.example/%2e%2e/in/", "uri_folder"),
        ("sftp://files.example/in/?x=1", "uri_folder"),
        ("sftp://files.example/in%0a/", "uri_folder"),
        ("sftp://files.example/in/#x", "uri_fragment"),
        ("sftp://u:p@files.example/in/", "uri_userinfo"),
        ("sftp:///in/", "uri_host"),
        ("https://files.example/in/", "uri_scheme"),
    ],
)
def test_uris_of_folders(uri: str, code: str) -> None:
    fault = uri_fault(uri, "sftp")
    assert (fault[0] if fault else "") == code


class TestKeys:
    @pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.OpenSSH])
    @pytest.mark.parametrize("key", [ED25519, ec.generate_private_key(ec.SECP256R1())], ids=["ed25519", "ecdsa"])
    def test_every_form_becomes_one_that_ssh_reads(self, key, form: PrivateFormat) -> None:
        read = read_private_key(pem(key, form).replace("\n", "\r\n"))  # as browsers post it
        assert load_ssh_private_key(read.pem.encode(), None).public_key() == key.public_key()
        kinds = {"ssh-ed25519": paramiko.Ed25519Key, "ecdsa-sha2-nistp256": paramiko.ECDSAKey}
        for kind in kinds.values():
            try:
                found = kind.from_private_key(io.StringIO(read.pem))
            except paramiko.SSHException:
                continue
            assert found.fingerprint == read.fingerprint  # paramiko's own way to it

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            (pem(WEAK), "too weak"),
            (pem(GONE), "Keys of this kind"),
            (pem(ED25519, PrivateFormat.PKCS8, b"phrase"), "without a passphrase"),
            (pem(ED25519, PrivateFormat.OpenSSH, b"phrase"), "without a passphrase"),
            (pem(ED25519)[:-40], "can be read"),
            ("", "can be read"),
            ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB hub@us", "can be read"),
            ("é", "ASCII"),
            ("x" * 20_000, "at most"),
        ],
        ids=["weak", "kind", "encrypted", "encrypted-openssh", "cut", "empty", "public", "not-ascii", "long"],
    )
    def test_what_is_no_key_to_use(self, text: str, says: str) -> None:
        with pytest.raises(ValueError, match=says) as caught:
            read_private_key(text)
        assert "PRIVATE KEY" not in str(caught.value) and caught.value.__cause__ is None

    @pytest.mark.django_db
    def test_a_key_is_a_log_in_and_never_a_header(self) -> None:
        party = make_party()
        make_outbound_credential(party, username="web", secret="web password")
        made = services.credential_store_outbound(party=party, kind="ssh_key", username="hub", secret=pem(ED25519))
        registry.reset()
        known, now = registry.current(), clock.now()
        assert known.outbound_authorization(party.pk, now).startswith("Basic ")
        login = known.outbound_login(party.pk, now, "basic", "ssh_key")
        assert login is not None and (login[0], login[2]) == ("hub", True)
        assert load_ssh_private_key(login[1].encode(), None).public_key() == ED25519.public_key()
        assert known.outbound_login(party.pk, now, "basic") == ("web", "web password", False)
        stored = Credential.objects.get(pk=made.pk)
        assert b"PRIVATE" not in bytes(stored.secret_encrypted)
        assert stored.fingerprint.startswith("SHA256:")

    @pytest.mark.django_db
    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"username": "hub", "secret": "no key"}, "secret"),
            ({"username": "", "secret": pem(ED25519)}, "username"),
        ],
    )
    def test_a_key_that_cannot_be_stored(self, values: dict[str, str], field: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            services.credential_store_outbound(party=make_party(), kind="ssh_key", **values)
        assert list(caught.value.errors) == [field]
        assert "PRIVATE" not in str(caught.value)

    @pytest.mark.django_db
    def test_nobody_shows_us_a_private_key(self) -> None:
        with pytest.raises(InvalidInput) as caught:
            services.credential_issue(party=make_party(), kind="ssh_key", username="x", secret=pem(ED25519))
        assert "kind" in caught.value.errors
