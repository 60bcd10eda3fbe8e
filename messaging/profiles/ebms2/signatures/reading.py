"""The one signature of a message, taken apart and checked for everything but its cryptography.

Whoever can change a message on its way can move what was signed, add what was not, and name what to compute. So only
one structure is accepted: one signature in the one SOAP header, over the whole document and over each part, with the
transforms of ebXML Messaging 2.0 section 4.1.3.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lxml import etree

from messaging.profiles.ebms2.signatures.names import (
    ACTOR,
    BODY,
    C14N,
    DS,
    EB,
    ENVELOPE,
    ENVELOPED,
    HEADER,
    NEXT,
    NEXT_MSH,
    SIGNATURE,
    SOAP,
    XPATH,
    DigestMethod,
    Reason,
    SignatureMethod,
    SignatureRefused,
    exclusion,
)
from messaging.profiles.ebms2.signatures.parts import cid_of
from messaging.protocol.codecs.xml import parse_document
from messaging.protocol.errors import NotAMessage

NO_URI = "#"  # a reference without a URI; nothing is signed by its id, so this means no more than that
# The time that a signature's XPath takes grows with the square of the nodes: 0.4 s for so many.
MAX_NODES = 10_000
# Header elements that may be for the next hop, and are left out then; none of them says what the message is.
_FOR_NEXT = {f"{{{EB}}}{name}" for name in ("SyncReply", "AckRequested", "Acknowledgment")}
_SOAP_PREFIX = re.compile(r"@([A-Za-z_][\w.-]*):actor")
# Comments and processing instructions are signed or not as the standard says, so they stay.
_PARSER = etree.XMLParser(
    resolve_entities=False,
    load_dtd=False,
    attribute_defaults=False,
    no_network=True,
    huge_tree=False,
    collect_ids=False,
)


@dataclass(frozen=True, slots=True)
class Reference:
    """What was signed: the document (`uri` "") or a part ("cid:…"), and its digest. `method`: URI of the algorithm."""

    uri: str
    method: str
    digest: bytes

    @property
    def cid(self) -> str | None:
        """The Content-ID of the part; None for the document."""
        return cid_of(self.uri)


@dataclass(frozen=True, slots=True)
class Signed:
    """A message with its signature. `uncovered`: names of header elements that the signature leaves out."""

    root: etree._Element
    signature: etree._Element
    method: SignatureMethod
    references: tuple[Reference, ...]
    certificates: tuple[bytes, ...]  # in DER, as KeyInfo has them: a hint, and never trusted
    uncovered: tuple[str, ...]


def read_tree(document: bytes) -> etree._Element:
    """The root of a message, with its comments. Raises SignatureRefused: unreadable, too_complex."""
    try:
        parse_document(document)
    except NotAMessage as error:
        raise SignatureRefused(Reason.UNREADABLE, error.detail) from None
    root = etree.fromstring(document.lstrip(b" \t\r\n"), _PARSER)
    nodes = 0
    for element in root.iter():
        nodes += 2 + (len(element.attrib) + len(element.nsmap) if isinstance(element.tag, str) else 0)
        if nodes > MAX_NODES:
            raise SignatureRefused(
                Reason.TOO_COMPLEX,
                f"The message has more than {MAX_NODES:,} elements, attributes and namespaces to sign.",
            )
    return root


def header_of(root: etree._Element) -> etree._Element:
    """The SOAP header of an envelope that has one header and one body. Raises SignatureRefused: wrong_place."""
    children = [child for child in root if isinstance(child.tag, str)]
    if root.tag != ENVELOPE or [child.tag for child in children] != [HEADER, BODY]:
        raise SignatureRefused(
            Reason.WRONG_PLACE, "The document is no SOAP 1.1 envelope with one header, one body, and nothing else."
        )
    return children[0]


def read_signed(document: bytes, cids: Collection[str], allowed: Collection[str]) -> Signed:
    """A message whose signature covers the document and exactly these parts. Raises SignatureRefused."""
    root = read_tree(document)
    header = header_of(root)
    signature = _only(root, header)
    info, value, key_info = _shape(signature)
    method = _method(info, allowed)
    if not "".join((value.text or "").split()):
        raise SignatureRefused(Reason.MALFORMED, "The signature has no value.")
    references: list[Reference] = []
    filtered = False
    for element in info.findall(f"{{{DS}}}Reference"):
        if len(references) > len(cids):
            break
        reference = _reference(element, cids, allowed)
        filtered = _transforms(element, reference) or filtered
        references.append(reference)
    _complete(info, references, cids)
    uncovered = tuple(_uncovered(root, header)) if filtered else ()
    return Signed(root, signature, method, tuple(references), tuple(_certificates(key_info)), uncovered)


def _only(root: etree._Element, header: etree._Element) -> etree._Element:
    found = list(root.iter(SIGNATURE))
    if not found:
        raise SignatureRefused(Reason.UNSIGNED, "The message has no signature.")
    if len(found) > 1:
        raise SignatureRefused(Reason.SEVERAL_SIGNATURES, f"The message has {len(found)} signatures.")
    if found[0].getparent() is not header:
        raise SignatureRefused(Reason.WRONG_PLACE, "The signature is not an element of the SOAP header.")
    return found[0]


def _shape(signature: etree._Element) -> tuple[etree._Element, etree._Element, etree._Element | None]:
    """SignedInfo, SignatureValue and KeyInfo, of which each part is what it must be."""
    if any(not isinstance(node.tag, str) for node in signature.iter()):
        raise SignatureRefused(Reason.MALFORMED, "There are comments or processing instructions in the signature.")
    # libxmlsec1 finds attributes by their local names.
    if any("{" in str(name) for node in signature.iter() for name in node.attrib):
        raise SignatureRefused(Reason.MALFORMED, "There are attributes of other namespaces in the signature.")
    names = [child.tag for child in signature]
    wanted = [f"{{{DS}}}{name}" for name in ("SignedInfo", "SignatureValue", "KeyInfo")]
    if names not in (wanted, wanted[:2]):
        raise SignatureRefused(Reason.MALFORMED, "A signature has SignedInfo, SignatureValue, KeyInfo, and no more.")
    info = signature[0]
    inner = [child.tag for child in info]
    start = [f"{{{DS}}}CanonicalizationMethod", f"{{{DS}}}SignatureMethod"]
    if inner[:2] != start or not inner[2:] or set(inner[2:]) != {f"{{{DS}}}Reference"}:
        raise SignatureRefused(Reason.MALFORMED, "SignedInfo has two methods, then references, and no more.")
    return info, signature[1], signature[2] if len(signature) > 2 else None


def _method(info: etree._Element, allowed: Collection[str]) -> SignatureMethod:
    canonical, method = info[0], info[1]
    if canonical.get("Algorithm") != C14N or len(canonical):
        raise SignatureRefused(
            Reason.FORBIDDEN_TRANSFORM, f"SignedInfo has the canonical form {canonical.get('Algorithm')}, not {C14N}."
        )
    return SignatureMethod(_algorithm(method, allowed, set(SignatureMethod)))


def _algorithm(element: etree._Element, allowed: Collection[str], known: Collection[str]) -> str:
    name = element.get("Algorithm", "")
    if name not in allowed or name not in known or len(element):
        raise SignatureRefused(Reason.WEAK_ALGORITHM, f"The agreement does not allow the algorithm {name[:100]}.")
    return name


def _reference(element: etree._Element, cids: Collection[str], allowed: Collection[str]) -> Reference:
    names = [child.tag for child in element]
    wanted = [f"{{{DS}}}{name}" for name in ("Transforms", "DigestMethod", "DigestValue")]
    if names not in (wanted, wanted[1:]):
        raise SignatureRefused(Reason.MALFORMED, "A reference has transforms, a digest method and a digest value.")
    uri = element.get("URI", NO_URI)
    if uri and cid_of(uri) not in cids:
        raise SignatureRefused(Reason.FOREIGN_REFERENCE, f"{uri[:100]} is signed, which is no part of the message.")
    return Reference(uri, _algorithm(element[-2], allowed, set(DigestMethod)), digest_in(element))


def digest_in(reference: etree._Element) -> bytes:
    """The digest of a ds:Reference. Raises SignatureRefused: malformed."""
    text = "".join((reference.findtext(f"{{{DS}}}DigestValue") or "").split())
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise SignatureRefused(Reason.MALFORMED, "The digest of a reference is not Base64.") from None


def _transforms(element: etree._Element, reference: Reference) -> bool:
    """Checks what is done with what is referred to, and tells whether that leaves something out."""
    steps = element.findall(f"{{{DS}}}Transforms/*")[:4]
    names = [step.get("Algorithm", "") for step in steps]
    if reference.uri:
        if steps or element.find(f"{{{DS}}}Transforms") is not None:
            raise SignatureRefused(Reason.FORBIDDEN_TRANSFORM, f"{reference.uri[:100]} is transformed: {names}.")
        return False
    if names not in ([ENVELOPED], [ENVELOPED, C14N], [ENVELOPED, XPATH], [ENVELOPED, XPATH, C14N]):
        raise SignatureRefused(
            Reason.FORBIDDEN_TRANSFORM, f"The document is transformed by {', '.join(names)[:300] or 'nothing'}."
        )
    for step in steps:
        if step.tag != f"{{{DS}}}Transform" or (len(step) and step.get("Algorithm") != XPATH):
            raise SignatureRefused(Reason.FORBIDDEN_TRANSFORM, "A transform has parameters that it does not need.")
    if XPATH not in names:
        return False
    _only_exclusion(steps[1])
    return True


def _only_exclusion(step: etree._Element) -> None:
    if [child.tag for child in step] != [f"{{{DS}}}XPath"] or len(step[0]):
        raise SignatureRefused(Reason.FORBIDDEN_TRANSFORM, "The XPath transform has not one XPath.")
    text = "".join((step[0].text or "").split()).replace("'", '"')
    found = _SOAP_PREFIX.search(text)
    prefix = found[1] if found else ""
    if text != "".join(exclusion(prefix).split()) or step[0].nsmap.get(prefix) != SOAP:
        raise SignatureRefused(
            Reason.FORBIDDEN_TRANSFORM, "The XPath is not the one of ebXML Messaging 2.0, section 4.1.3."
        )


def _complete(info: etree._Element, references: list[Reference], cids: Collection[str]) -> None:
    """One reference for the document, one for each part, and no other."""
    known = [one.cid for one in references]
    for one in references:
        if known.count(one.cid) > 1:
            raise SignatureRefused(Reason.FOREIGN_REFERENCE, f"{one.uri[:100] or 'The document'} is signed twice.")
    if None not in known:
        raise SignatureRefused(Reason.DOCUMENT_NOT_REFERENCED, "The document itself is not signed.")
    for cid in cids:
        if cid not in known:
            raise SignatureRefused(Reason.PART_NOT_REFERENCED, f"The part {cid[:100]} is not signed.")
    if len(info) - 2 != len(references):
        raise SignatureRefused(Reason.FOREIGN_REFERENCE, "More is signed than the message has.")


def _uncovered(root: etree._Element, header: etree._Element) -> Iterator[str]:
    """Names of what the XPath leaves out. Raises SignatureRefused: it would hide what says what the message is."""
    for element in root.iter(etree.Element):
        if element.get(ACTOR) not in (NEXT, NEXT_MSH):
            continue
        name = str(element.tag)
        ours = name.startswith((f"{{{EB}}}", f"{{{SOAP}}}", f"{{{DS}}}")) or not name.startswith("{")
        if element.getparent() is not header or (ours and name not in _FOR_NEXT):
            raise SignatureRefused(
                Reason.UNSIGNED_CONTENT, f"{name[:100]} is addressed to the next hop, so that nobody signed it."
            )
        yield name


def _certificates(key_info: etree._Element | None) -> Iterator[bytes]:
    if key_info is None:
        return
    for one in key_info.findall(f"{{{DS}}}X509Data/{{{DS}}}X509Certificate"):
        try:
            yield base64.b64decode("".join((one.text or "").split()), validate=True)
        except ValueError:
            raise SignatureRefused(Reason.MALFORMED, "A certificate in the signature is not Base64.") from None
