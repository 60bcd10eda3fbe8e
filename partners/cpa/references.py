"""The ids of an agreement: each exists once, and whatever refers to one finds an object of the right kind.

The schema declares ids and references to them, which libxml2 does not follow; CPPA 2.0 says of what kind the object is,
and that a party refers to its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree

from partners.cpa.document import TP, CpaUnreadable, Fault, Unreadable
from partners.cpa.nodes import Ledger

_ID_ATTRIBUTES = {
    f"{{{TP}}}{name}" for name in ("id", "certId", "securityId", "channelId", "transportId", "docExchangeId")
}
# Attributes that refer, and the elements where an attribute of that name is an id and no reference.
_REFERRING = {
    "certId": ("Certificate",),
    "securityId": ("SecurityDetails",),
    "channelId": ("DeliveryChannel",),
    "defaultMshChannelId": ("DeliveryChannel",),
    "transportId": ("Transport",),
    "docExchangeId": ("DocExchange",),
    "packageId": ("Packaging",),
    "defaultMshPackageId": ("Packaging",),
    "idref": ("SimplePart", "Encapsulation", "Composite"),
}
_SHARED = {"Packaging", "SimplePart", "Encapsulation", "Composite"}  # not of one party


def ids(root: etree._Element, ledger: Ledger) -> dict[str, etree._Element]:
    """The objects of the document by their ids. Raises CpaUnreadable: an id exists twice."""
    known: dict[str, etree._Element] = {}
    twice: list[Fault] = []
    for element, attribute in _ids(root):
        name = str(element.get(attribute)).strip()
        if name in known:
            first = ledger.place(known[name])
            text = f"The id {name!r} exists already, in line {first.line}: {first.path}."
            twice.append(Fault(text, ledger.place(element, attribute)))
        known.setdefault(name, element)
    if twice:
        raise CpaUnreadable(Unreadable.DUPLICATE_ID, twice)
    return known


def check(root: etree._Element, ledger: Ledger, known: dict[str, etree._Element]) -> None:
    """Raises CpaUnreadable: a reference finds nothing of its kind among the known ids."""
    if unknown := list(_unknown(root, ledger, known)):
        raise CpaUnreadable(Unreadable.UNKNOWN_ID, unknown)


def _ids(root: etree._Element) -> Iterator[tuple[etree._Element, str]]:
    for element in root.iter(f"{{{TP}}}*"):
        for key in element.attrib:
            attribute = str(key)
            kinds = _REFERRING.get(_local(attribute), ())
            if attribute in _ID_ATTRIBUTES and (not kinds or _local(str(element.tag)) in kinds):
                yield element, attribute


def _unknown(root: etree._Element, ledger: Ledger, known: dict[str, etree._Element]) -> Iterator[Fault]:
    for element in root.iter(f"{{{TP}}}*"):
        tag = _local(str(element.tag))
        for key, value in element.attrib.items():
            kinds = _REFERRING.get(_local(str(key)), ())
            if str(key).startswith(f"{{{TP}}}") and kinds and tag not in kinds:
                yield from _fault(str(value), kinds, element, str(key), ledger, known)
        if tag == "ChannelId":
            yield from _fault(element.text or "", ("DeliveryChannel",), element, "", ledger, known)
        elif tag == "OtherPartyActionBinding":
            yield from _fault(element.text or "", ("ThisPartyActionBinding",), element, "", ledger, known)


def _fault(
    reference: str,
    kinds: tuple[str, ...],
    element: etree._Element,
    attribute: str,
    ledger: Ledger,
    known: dict[str, etree._Element],
) -> Iterator[Fault]:
    wanted = " or ".join(kinds)
    name = reference.strip()
    place = ledger.place(element, attribute)
    found = known.get(name)
    if found is None:
        yield Fault(f"It refers to {name!r}, and the document has no {wanted} of this id.", place)
    elif _local(str(found.tag)) not in kinds:
        yield Fault(f"It refers to {name!r}, which is a {_local(str(found.tag))} and no {wanted}.", place)
    elif not _SHARED & set(kinds) and kinds != ("ThisPartyActionBinding",) and _party(found) is not _party(element):
        yield Fault(f"It refers to {name!r}, the other party's {wanted}; it needs one of its own party.", place)


def _party(element: etree._Element) -> etree._Element | None:
    if _local(str(element.tag)) == "PartyInfo":
        return element
    return next(element.iterancestors(f"{{{TP}}}PartyInfo"), None)


def _local(name: str) -> str:
    return name.rpartition("}")[2]
