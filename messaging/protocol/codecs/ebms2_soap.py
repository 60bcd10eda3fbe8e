"""The SOAP side of the ebms2 reader: which blocks of an envelope are ours to read, and which refuse it (SOAP 1.1, 4.2).

Only what is addressed to us counts. A block for another actor, or one that lies elsewhere in the document, may be what
a signature covers while another one is read ("wrapping"): both refuse the message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lxml import etree

from messaging.protocol.codecs.ebms2_lexical import DS, EB, NEXT, OUR_ACTORS, SOAP
from messaging.protocol.codecs.ebms2_parts import Notes, actor, check_version, eb_name
from messaging.protocol.codecs.xml import XML_SPACE
from messaging.protocol.envelope import Actor
from messaging.protocol.errors import ErrorCode

HEADER = "/Envelope/Header"
BODY = "/Envelope/Body"

HEADER_ELEMENTS = ("MessageHeader", "AckRequested", "Acknowledgment", "ErrorList", "MessageOrder", "SyncReply")
BODY_ELEMENTS = ("Manifest", "StatusRequest", "StatusResponse")
_FOR_ANY = ("", *OUR_ACTORS)
_FOR: Mapping[str, Sequence[str]] = {
    "SyncReply": ("", NEXT),
    "AckRequested": ("", *Actor),
    "Acknowledgment": ("", *Actor),
}
_ONE_FOR_EACH_ACTOR = ("AckRequested", "Acknowledgment")
_MUST_UNDERSTAND = f"{{{SOAP}}}mustUnderstand"

Blocks = Mapping[str, list[etree._Element]]


def section(root: etree._Element, name: str, notes: Notes) -> etree._Element:
    """The SOAP Header or Body; an empty one for what is not there."""
    found = list(root.iterchildren(f"{{{SOAP}}}{name}"))
    if len(found) > 1:
        notes.add(ErrorCode.INCONSISTENT, f"{name} occurs twice", "/Envelope")
    return found[0] if found else etree.Element(f"{{{SOAP}}}{name}")


def check_places(root: etree._Element, header: etree._Element, body: etree._Element, notes: Notes) -> None:
    """Finds elements of ours that do not lie where they belong."""
    for names, parent in ((HEADER_ELEMENTS, header), (BODY_ELEMENTS, body)):
        for element in root.iter(*(f"{{{EB}}}{name}" for name in names)):
            if element.getparent() is not parent:
                notes.add(ErrorCode.INCONSISTENT, f"{eb_name(element)} does not lie where it belongs", "/Envelope")


def check_foreign_blocks(header: etree._Element, notes: Notes) -> bool:
    """What has to be understood and is not refuses the message. Returns whether the message is signed."""
    signed = False
    for child in header:
        ours = actor(child) in _FOR_ANY
        if child.tag == f"{{{DS}}}Signature":
            if ours:
                signed = True
            else:
                problem = "the Signature is not for this messaging service"
                notes.add(ErrorCode.SECURITY_FAILURE, problem, f"{HEADER}/Signature")
        elif not eb_name(child) and ours and (child.get(_MUST_UNDERSTAND) or "").strip(XML_SPACE) in ("1", "true"):
            name = etree.QName(child).localname
            notes.add(ErrorCode.NOT_SUPPORTED, "it has to be understood and is not", f"{HEADER}/{name[:80]}")
    return signed


def own_blocks(section: etree._Element, known: Sequence[str], location: str, notes: Notes) -> Blocks:
    """Our elements of the Header or Body that are addressed to us, by name. Most may occur once.

    MessageHeader is among them whomever it is addressed to: it says who gets the Error.
    """
    found: dict[str, list[etree._Element]] = {}
    for child in section:
        name = eb_name(child)
        if name and name not in known:
            notes.minor(ErrorCode.OTHER_XML, f"{name[:80]} does not belong here", location)
        if name not in known:
            continue
        check_version(child, f"{location}/{name}", notes)
        if actor(child) not in _FOR.get(name, _FOR_ANY):
            problem = f"actor {actor(child)[:80]!r}: it is not for this messaging service"
            notes.add(ErrorCode.VALUE_NOT_RECOGNIZED, problem, f"{location}/{name}/@actor")
            if name != "MessageHeader":
                continue
        found.setdefault(name, []).append(child)
    for name, elements in found.items():
        actors = {actor(element) or Actor.TO_PARTY_MSH for element in elements}
        if len(elements) > (len(actors) if name in _ONE_FOR_EACH_ACTOR else 1):
            notes.add(ErrorCode.INCONSISTENT, f"{name} occurs twice", f"{location}/{name}")
    return found
