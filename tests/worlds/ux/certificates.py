"""Certificates of the partner whose old one has expired: made on the spot, for 127.0.0.1 only."""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "edi.halden.example"


def der(folder: Path, label: str) -> bytes:
    """What the server shows: `old` or `new`."""
    return x509.load_pem_x509_certificate((folder / f"halden-{label}.pem").read_bytes()).public_bytes(
        serialization.Encoding.DER
    )


def write(folder: Path, now: datetime, ended: datetime) -> None:
    """halden-old.pem (ended at `ended`), halden-new.pem, and a key beside each."""
    folder.mkdir(parents=True, exist_ok=True)
    for label, start, end in (
        ("old", ended - timedelta(days=365), ended),
        ("new", now - timedelta(hours=1), now + timedelta(days=365)),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName(NAME), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        (folder / f"halden-{label}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        private = folder / f"halden-{label}.key"
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        private.chmod(0o600)
