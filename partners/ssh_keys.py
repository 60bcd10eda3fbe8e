"""SSH private keys as they are entered: read once to see that they can be used, and kept in one form (OpenSSH)."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

MAX_KEY = 16 * 1024  # characters
MIN_RSA_BITS = 2048


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A key that can be used. `pem`: the private key in OpenSSH's form. `fingerprint`: as `ssh-keygen -l` prints it."""

    pem: str = field(repr=False)
    fingerprint: str


@sensitive_variables("text", "key", "pem")
def read_private_key(text: str) -> PrivateKey:
    """The key in `text` (PEM: OpenSSH, PKCS #8 or PKCS #1). Raises ValueError with a sentence that holds none of it."""
    if not text.isascii() or len(text) > MAX_KEY:
        raise ValueError(_("A private key is PEM text of at most {most} ASCII characters.").format(most=MAX_KEY))
    # Forms and pipes change line ends, and OpenSSH's own reader wants the last one.
    data = ("\n".join(text.strip().splitlines()) + "\n").encode()
    load = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in data else load_pem_private_key
    try:
        key = load(data, password=None)
    except TypeError:
        raise ValueError(_("The private key is encrypted: store it without a passphrase (ssh-keygen -p).")) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(
            _("This is not a private key that can be read: paste all of the file, from its BEGIN to its END line.")
        ) from None
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size < MIN_RSA_BITS:
        raise ValueError(
            _("An RSA key of {size} bits is too weak: make a new one, Ed25519 for instance.").format(size=key.key_size)
        )
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        raise ValueError(_("Keys of this kind are not used: make an Ed25519, ECDSA or RSA key."))
    try:
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(_("SSH has no keys of this kind: make an Ed25519, ECDSA or RSA key.")) from None
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    return PrivateKey(pem, "SHA256:" + base64.b64encode(digest).decode().rstrip("="))
