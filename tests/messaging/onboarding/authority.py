"""Certificates that tests make: an authority, what it issues, and TLS servers that show it."""

from __future__ import annotations

import socket
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.messaging.http_server import Handler

# A server's own one, 2026 to 2046, where pages are compared to the letter.
FIXED = """\
-----BEGIN CERTIFICATE-----
MIIBKjCB0KADAgECAgISZzAKBggqhkjOPQQDAjAeMRwwGgYDVQQDDBNtc2gucGFy
dG5lci5leGFtcGxlMB4XDTI2MDEwMTAwMDAwMFoXDTQ2MDEwMTAwMDAwMFowHjEc
MBoGA1UEAwwTbXNoLnBhcnRuZXIuZXhhbXBsZTBZMBMGByqGSM49AgEGCCqGSM49
AwEHA0IABIZomGX7BpX9xFJH+46ef0VpvpPnI5y9N8sROGLu9N8cv9uw+C2y/DOj
yUeFRQ/kToqFEdxREcKmTY4Ar3vPa74wCgYIKoZIzj0EAwIDSQAwRgIhAMq+FP8o
YammgqLvUG/5CCUplrzhyFOsH+COGAxP2lExAiEAhDt3uhp9gfOyrwWX1nz3Crp9
FA8XhoBnkTYc6WIUEeM=
-----END CERTIFICATE-----
"""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its key. Both PEM."""

    certificate: str
    key: str


class Authority:
    """Issues certificates for 127.0.0.1."""

    def __init__(self, name: str = "Test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        made = _builder(self._name, self._name, self._key, days=3650, is_authority=True).sign(
            self._key, hashes.SHA256()
        )
        self.certificate = made.public_bytes(Encoding.PEM).decode()

    def issue(self, name: str = "127.0.0.1", *, days: float = 90) -> Issued:
        """`days` below zero: one that has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _builder(_name(name), self._name, key, days=days).sign(self._key, hashes.SHA256())
        return Issued(made.public_bytes(Encoding.PEM).decode(), _pem(key))


def self_signed(*, days: float = 90) -> Issued:
    """A server's own certificate with no authority behind it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("127.0.0.1")
    made = _builder(name, name, key, days=days).sign(key, hashes.SHA256())
    return Issued(made.public_bytes(Encoding.PEM).decode(), _pem(key))


def over_tls(shown: Issued, handler: Handler, *, clients: str = "") -> Handler:
    """A handler behind TLS. `clients`: the authority whose client certificates it asks for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.pem"
        path.write_text(shown.key + shown.certificate)
        context.load_cert_chain(path)
    if clients:
        context.load_verify_locations(cadata=clients)
        context.verify_mode = ssl.CERT_REQUIRED

    def handle(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            handler(wrapped)

    return handle


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: float, is_authority: bool = False
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if is_authority:
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        return builder.add_extension(usage, critical=True)
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))]
    uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    return builder.add_extension(x509.SubjectAlternativeName(names), critical=False).add_extension(uses, critical=False)
