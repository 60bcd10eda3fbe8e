"""What signatures and encryption cost: ebXML Messaging 2.0 between our hubs and AS2 between the peer's parties.

In the same run, one after the other, on the same servers. Signed: RSA with 2,048 bits and SHA-256, of every message and
of every acknowledgement or receipt, which come in the HTTP response. Encrypted: that too, and the document with AES-128
for the same key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
from cryptography.x509.oid import NameOID

from rmhub import clock
from tests.benchmarks import arena, hub_runs, peer
from tests.benchmarks.arena import RECEIVER, SENDER, Say, Servers
from tests.benchmarks.hub_runs import Window

PAIRS = 10
SENDERS = 4
PASSWORD = b"bench"
PROTECTIONS = ("unsigned", "signed", "encrypted")


@dataclass(frozen=True)
class Signer:
    """A key with a certificate that is signed by itself, in the forms that the two sides want."""

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate

    @property
    def public(self) -> str:
        """The certificate alone, PEM."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def pem(self) -> str:
        """The key and the certificate."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode() + self.public

    @property
    def pkcs12(self) -> bytes:
        """The same, as the peer reads it."""
        form = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(2048)
        old = form.key_cert_algorithm(pkcs12.PBES.PBESv1SHA1And3KeyTripleDESCBC).hmac_hash(hashes.SHA1())
        return pkcs12.serialize_key_and_certificates(b"bench", self.key, self.certificate, None, old.build(PASSWORD))


def signer(name: str) -> Signer:
    """A new one, for a day."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = clock.now()
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    return Signer(key, made.sign(key, hashes.SHA256()))


def run(
    servers: Servers, var: Path, window: Window, rounds: int, environment: Path | None, say: Say
) -> Iterator[dict[str, Any]]:
    """Measures each of them; the peer only where it is installed (`environment`)."""
    signers = {side: signer(side) for side in (SENDER, RECEIVER)}
    for number in range(1, rounds + 1):
        for protection in PROTECTIONS:
            for who, measure in (("ours", _ours), ("peer", _peer)):
                if who == "peer" and environment is None:
                    continue
                known = {} if protection == "unsigned" else signers
                found = measure(servers, var, window, environment, known, protection == "encrypted", say)
                say(f"round {number} of {rounds}: {who}, {protection}: {found['messages_per_second']} messages/s")
                yield {**found, "who": who, "protection": protection}


def _ours(
    servers: Servers,
    var: Path,
    window: Window,
    environment: Path | None,
    signers: dict[str, Signer],
    encrypted: bool,
    say: Say,
) -> dict[str, Any]:
    folder = var / "signers"
    folder.mkdir(parents=True, exist_ok=True)
    for side, other in ((SENDER, RECEIVER), (RECEIVER, SENDER)):
        known: dict[str, Any] = {"own": signers[side].pem, "partner": signers[other].public} if signers else {}
        if encrypted:
            known["encryption"] = "smime-aes128"
        (folder / f"{side}.json").write_text(json.dumps(known))
    hubs = arena.build(servers, var, PAIRS, say, ebms2=folder)
    with hubs.running() as roots:
        hub_runs.first_message(hubs)
        return hub_runs.steady(hubs, servers, roots, pairs=PAIRS, window=window)


def _peer(
    servers: Servers,
    var: Path,
    window: Window,
    environment: Path | None,
    signers: dict[str, Signer],
    encrypted: bool,
    say: Say,
) -> dict[str, Any]:
    assert environment is not None
    keys = {side: (one.pkcs12, one.public) for side, one in signers.items()}
    other = peer.build(servers, environment, var, say, keys=keys, encrypted=encrypted)
    with other.running() as roots:
        found = peer.steady(other, servers, roots, senders=SENDERS, window=window)
    return {**found, "first_transmission_to_ack": found["message"]}
