"""Elements of a document as readers take them: what is taken is entered in a ledger, which knows then what was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

from lxml import etree

from partners.cpa.channels import Place
from partners.cpa.document import DS, PREFIXES, TP, XLINK, XML, XSI, CpaUnreadable, Fault, Unreadable, line_of
from partners.cpa.findings import REASONS, Finding, Kind, Matter

_T = TypeVar("_T")
_MAX_SAID = 200  # characters of a value in a finding
_MAX_NAME = 80  # characters of a name in a path


def _tp(*names: str) -> Iterator[str]:
    return (f"{{{TP}}}{name}" for name in names)


# What is not read, with all that is in it.
_IGNORED_ELEMENTS = {
    **dict.fromkeys(_tp("Signature"), Matter.DOCUMENT_SIGNATURE),
    **dict.fromkeys(_tp("ActionContext"), Matter.BUSINESS_PROCESS),
    **dict.fromkeys(_tp("SecurityPolicy"), Matter.SECURITY_POLICY),
    **dict.fromkeys(_tp("SignatureTransforms", "EncryptionTransforms"), Matter.TRANSFORMS),
    f"{{{DS}}}Reference": Matter.BUSINESS_PROCESS,  # of a process specification
    **{
        f"{{{DS}}}{name}": Matter.SAID_BY_CERTIFICATE
        for name in ("KeyValue", "X509SubjectName", "X509IssuerSerial", "X509SKI")
    },
    **{
        f"{{{DS}}}{name}": Matter.KEY_ALONE
        for name in ("KeyName", "RetrievalMethod", "PGPData", "SPKIData", "MgmtData")
    },
    f"{{{DS}}}X509CRL": Matter.REVOCATION,
}
_IGNORED_ATTRIBUTES = {
    f"{{{XLINK}}}type": Matter.FOR_XML_TOOLS,
    f"{{{XLINK}}}href": Matter.BUSINESS_PROCESS,  # of an action; all others are read
    **dict.fromkeys(_tp("type", "schemaLocation"), Matter.ABOUT_PARTY),  # of a PartyRef; all others are read
    **dict.fromkeys(
        _tp(
            "isAuthenticated",
            "isTamperProof",
            "isAuthorizationRequired",
            "isIntelligibleCheckRequired",
            "timeToAcknowledgeReceipt",
            "timeToAcknowledgeAcceptance",
            "timeToPerform",
            "retryCount",
        ),
        Matter.BUSINESS_PROCESS,
    ),
    "Id": Matter.FOR_XML_TOOLS,
}


class Ledger:
    """Where everything in a document is, and what was taken of it."""

    def __init__(self, root: etree._Element) -> None:
        self._root = root
        self._steps: dict[etree._Element, str] = {}
        self._taken: dict[tuple[etree._Element, str], str] = {}
        self._left: dict[etree._Element, Matter] = {}
        self.noted: list[Finding] = []
        for element in root.iter():
            self._number(element)

    def _number(self, above: etree._Element) -> None:
        """Finds the steps to all children of an element. Paths are made when they are asked for: all would be large."""
        count = Counter(child.tag for child in above)
        seen: Counter[object] = Counter()
        for child in above:
            seen[child.tag] += 1
            number = f"[{seen[child.tag]}]" if count[child.tag] > 1 else ""
            self._steps[child] = f"{_step(str(child.tag))}{number}"

    def place(self, element: etree._Element, attribute: str = "") -> Place:
        steps = [f"@{_name(attribute)}"] if attribute else []
        below: etree._Element | None = element
        while below is not None:
            steps.append(self._steps.get(below) or _step(str(below.tag)))
            below = below.getparent()
        return Place("/" + "/".join(reversed(steps)), line_of(element))

    def take(self, element: etree._Element, attribute: str, value: str) -> None:
        self._taken[element, attribute] = value if len(value) <= _MAX_SAID else value[: _MAX_SAID - 1] + "…"

    def leave(self, element: etree._Element, matter: Matter) -> None:
        """Enters why an element is not read, with all that is in it."""
        self._left[element] = matter

    def findings(self) -> list[Finding]:
        """What became of each element and attribute, in the order of the document; then what was noted."""
        return [*self._followed(self._root, None), *self.noted]

    def _followed(self, element: etree._Element, above: Matter | None) -> Iterator[Finding]:
        taken = (element, "") in self._taken
        matter = None if taken else above or self._left.get(element) or _IGNORED_ELEMENTS.get(str(element.tag))
        if not taken and matter is None:
            matter = Matter.EXTENSION
        yield self._finding(element, "", matter)
        for attribute in element.attrib:
            name = str(attribute)
            if (element, name) in self._taken:
                yield self._finding(element, name, None)
            else:
                yield self._finding(element, name, matter or _why(name))
        for child in element:
            yield from self._followed(child, matter)

    def _finding(self, element: etree._Element, attribute: str, matter: Matter | None) -> Finding:
        place = self.place(element, attribute)
        if matter is None:
            return Finding(Kind.MAPPED, place.path, place.line, self._taken[element, attribute])
        return Finding(Kind.IGNORED, place.path, place.line, REASONS[matter], matter)


def _why(attribute: str) -> Matter:
    if attribute.startswith((f"{{{XSI}}}", f"{{{XML}}}")):
        return Matter.FOR_XML_TOOLS
    return _IGNORED_ATTRIBUTES.get(attribute, Matter.EXTENSION)


def _name(qualified: str) -> str:
    """A name as it is written with the known prefixes."""
    namespace, brace, local = qualified[1:].rpartition("}") if qualified.startswith("{") else ("", "", qualified)
    return f"{PREFIXES[namespace]}:{local}" if brace and namespace in PREFIXES else local


def _step(tag: str) -> str:
    """An element's name as a step of an XPath. Long names are cut: each step is in the path of all that is below it."""
    namespace = tag[1:].rpartition("}")[0] if tag.startswith("{") else ""
    name = _name(tag)
    if (namespace in PREFIXES or not namespace) and len(name) <= _MAX_NAME:
        return name
    return f"*[{_is('local-name()', name)} and {_is('namespace-uri()', namespace)}]"


def _is(function: str, text: str) -> str:
    return f"{function}='{text}'" if len(text) <= _MAX_NAME else f"starts-with({function}, '{text[:_MAX_NAME]}')"


class Node:
    """One element that is read. All that its methods return counts as taken."""

    __slots__ = ("element", "ledger", "place")

    def __init__(self, element: etree._Element, ledger: Ledger) -> None:
        self.element = element
        self.ledger = ledger
        self.place = ledger.place(element)
        ledger.take(element, "", "")

    @property
    def name(self) -> str:
        """The local name."""
        return str(self.element.tag).rpartition("}")[2]

    def children(self, *names: str, namespace: str = TP) -> list[Node]:
        """The children of these names, in the order of the document."""
        return [Node(one, self.ledger) for one in self.element.iterchildren(*(f"{{{namespace}}}{it}" for it in names))]

    def used(self, name: str, attribute: str, ids: set[str]) -> list[Node]:
        """The children whose id somebody refers to; the others are left."""
        found = []
        for child in self.element.iterchildren(f"{{{TP}}}{name}"):
            if str(child.get(f"{{{TP}}}{attribute}")).strip() in ids:
                found.append(Node(child, self.ledger))
            else:
                self.ledger.leave(child, Matter.UNUSED)
        return found

    def child(self, name: str) -> Node | None:
        """The first child of this name, or None."""
        return next(iter(self.children(name)), None)

    def one(self, name: str) -> Node:
        """The child that the schema demands."""
        found = self.child(name)
        assert found is not None
        return found

    def text(self) -> str:
        """The text, without white space at its ends."""
        text = str(self.element.text or "").strip()
        self.ledger.take(self.element, "", text)
        return text

    def attribute(self, name: str, namespace: str = TP) -> str:
        """An attribute's value, without white space at its ends; "" if there is none."""
        key = f"{{{namespace}}}{name}"
        value = self.element.get(key)
        if value is None:
            return ""
        value = str(value).strip()
        self.ledger.take(self.element, key, value)
        return value

    def needed_text(self) -> str:
        """The text, which the schema lets be blank and the agreement cannot do without."""
        return self._read(_not_blank, self.text(), "")

    def needed(self, name: str) -> str:
        """An attribute, which the schema lets be blank and the agreement cannot do without."""
        return self._read(_not_blank, self.attribute(name), f"{{{TP}}}{name}")

    def read_text(self, read: Callable[[str], _T]) -> _T:
        return self._read(read, self.text(), "")

    def read_attribute(self, name: str, read: Callable[[str], _T]) -> _T | None:
        """An attribute as a value; None if there is none."""
        value = self.attribute(name)
        return self._read(read, value, f"{{{TP}}}{name}") if value else None

    def _read(self, read: Callable[[str], _T], text: str, attribute: str) -> _T:
        try:
            return read(text)
        except ValueError as error:
            place = self.ledger.place(self.element, attribute)
            raise CpaUnreadable(Unreadable.OUT_OF_RANGE, [Fault(str(error), place)]) from None

    def note(self, kind: Kind, matter: Matter, text: str) -> None:
        """Adds a finding about this element."""
        self.ledger.noted.append(Finding(kind, self.place.path, self.place.line, text, matter))


def _not_blank(text: str) -> str:
    if not text:
        raise ValueError("There is nothing but white space.")
    return text
