"""Signs a message (ebXML Messaging 2.0, section 4.1.3)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import lru_cache

import xmlsec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from lxml import etree

from messaging.profiles.ebms2.signatures.names import (
    C14N,
    DS,
    ENVELOPED,
    SIGNATURE,
    SOAP,
    XPATH,
    CannotSign,
    DigestMethod,
    SignatureMethod,
    SignatureRefused,
    exclusion,
)
from messaging.profiles.ebms2.signatures.parts import Part, uri_of, with_parts
from messaging.profiles.ebms2.signatures.reading import header_of, read_tree


def sign(
    document: bytes,
    parts: Mapping[str, Part],
    key: bytes,
    certificate: bytes,
    method: SignatureMethod = SignatureMethod.RSA_SHA256,
    digest: DigestMethod = DigestMethod.SHA256,
) -> bytes:
    """The document in UTF-8 with a signature over itself and its parts, as last element of the SOAP header.

    `parts`: payloads by Content-ID without angle brackets, read piece by piece. `key`: PEM without a passphrase;
    `certificate`: DER, it goes with the message. Raises CannotSign, and what reading parts raises.
    """
    library_key = _library_key(key, certificate, method)
    try:
        root = read_tree(document)
        header = header_of(root)
    except SignatureRefused as refused:
        raise CannotSign(refused.detail) from None
    if next(root.iter(SIGNATURE), None) is not None:
        raise CannotSign("The message is signed already.")
    uris = {uri_of(cid): part for cid, part in parts.items()}
    signature = _template(header, list(uris), certificate, method, digest)
    context = xmlsec.SignatureContext()
    context.key = library_key
    try:
        with_parts(uris, lambda: context.sign(signature))
    except xmlsec.Error as error:
        raise CannotSign(f"The signature cannot be made: {error}.") from None
    return etree.tostring(root, encoding="UTF-8", xml_declaration=True)


def check(key: bytes, certificate: bytes, method: SignatureMethod) -> None:
    """Raises CannotSign where `sign` would because of key and certificate."""
    _library_key(key, certificate, method)


@lru_cache(maxsize=64)
def _library_key(pem: bytes, certificate: bytes, method: SignatureMethod) -> xmlsec.Key:
    """The private key, if it is that of the certificate and of the right kind. To read one takes ten times as long as
    to sign with it, so those that are in use are kept.
    """
    try:
        key = load_pem_private_key(pem, password=None)
        public = x509.load_der_x509_certificate(certificate).public_key()
    except (TypeError, ValueError, UnsupportedAlgorithm):
        raise CannotSign("The key or the certificate cannot be read, or the key has a passphrase.") from None
    wanted = ec.EllipticCurvePrivateKey if method is SignatureMethod.ECDSA_SHA256 else rsa.RSAPrivateKey
    if not isinstance(key, wanted):
        raise CannotSign(f"{method} needs another kind of key.")
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if key.public_key().public_bytes(*form) != public.public_bytes(*form):
        raise CannotSign("The key belongs to another certificate.")
    alone = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return xmlsec.Key.from_memory(alone, xmlsec.constants.KeyDataFormatPem)


def _template(
    header: etree._Element, uris: list[str], certificate: bytes, method: SignatureMethod, digest: DigestMethod
) -> etree._Element:
    """The signature without its values, which the library fills in."""
    signature = etree.SubElement(header, SIGNATURE, nsmap={"ds": DS})
    info = _add(signature, "SignedInfo")
    _add(info, "CanonicalizationMethod", Algorithm=C14N)
    _add(info, "SignatureMethod", Algorithm=method)
    for uri in ["", *uris]:
        reference = _add(info, "Reference", URI=uri)
        if not uri:
            _transforms(reference)
        _add(reference, "DigestMethod", Algorithm=digest)
        _add(reference, "DigestValue")
    _add(signature, "SignatureValue")
    data = _add(_add(signature, "KeyInfo"), "X509Data")
    _add(data, "X509Certificate").text = base64.b64encode(certificate).decode()
    return signature


def _transforms(reference: etree._Element) -> None:
    transforms = _add(reference, "Transforms")
    _add(transforms, "Transform", Algorithm=ENVELOPED)
    step = _add(transforms, "Transform", Algorithm=XPATH)
    # The prefix is declared here, so that a copy of the reference in an acknowledgement means the same.
    xpath = etree.SubElement(step, f"{{{DS}}}XPath", nsmap={"SOAP-ENV": SOAP})
    xpath.text = exclusion("SOAP-ENV")
    _add(transforms, "Transform", Algorithm=C14N)


def _add(parent: etree._Element, name: str, **attributes: str) -> etree._Element:
    return etree.SubElement(parent, f"{{{DS}}}{name}", {key: str(value) for key, value in attributes.items()})
