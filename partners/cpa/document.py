"""XML documents of agreements: parsed with nothing allowed that a stranger could harm the hub with, and validated.

No DTD, no entities, no network, bounded size, depth and number of elements. The schema is that of the standard, kept
beside this module.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from lxml import etree

from partners.cpa.channels import NOWHERE, Place

TP = "http://www.oasis-open.org/committees/ebxml-cppa/schema/cpp-cpa-2_0.xsd"
DS = "http://www.w3.org/2000/09/xmldsig#"
XLINK = "http://www.w3.org/1999/xlink"
XML = "http://www.w3.org/XML/1998/namespace"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
PREFIXES = {TP: "tp", DS: "ds", XLINK: "xlink", XML: "xml", XSI: "xsi"}
ROOT = f"{{{TP}}}CollaborationProtocolAgreement"

MAX_OCTETS = 4 * 1024 * 1024  # the largest known has 160 KB
MAX_DEPTH = 64
MAX_ELEMENTS = 50_000
MAX_FAULTS = 20
_SCHEMA = Path(__file__).parent / "schemas" / "cpp-cpa-2_0.xsd"
_VALIDATING = threading.Lock()  # a schema keeps the faults of its last document


class Unreadable(StrEnum):
    """Why a document is no agreement that can be read."""

    TOO_LARGE = "too_large"
    NOT_XML = "not_xml"
    DTD = "dtd"
    TOO_DEEP = "too_deep"
    TOO_MANY_ELEMENTS = "too_many_elements"
    WRONG_ROOT = "wrong_root"
    NOT_VALID = "not_valid"
    DUPLICATE_ID = "duplicate_id"
    UNKNOWN_ID = "unknown_id"
    OUT_OF_RANGE = "out_of_range"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, as a sentence, and where."""

    text: str
    place: Place = NOWHERE


class CpaUnreadable(Exception):
    """A document is no CPA 2.0. `what` says why, `faults` the first things that are wrong, at most 20."""

    def __init__(self, what: Unreadable, faults: Sequence[Fault]) -> None:
        self.what = what
        self.faults = tuple(faults[:MAX_FAULTS])
        super().__init__(f"{what}: " + "; ".join(_located(fault) for fault in self.faults))

    @property
    def place(self) -> Place:
        """Where the first fault is."""
        return self.faults[0].place


def _located(fault: Fault) -> str:
    where = f" (line {fault.place.line}: {fault.place.path})" if fault.place.line else ""
    return fault.text + where


def parse(octets: bytes) -> etree._Element:
    """The root element of a document; comments are left out. Raises CpaUnreadable."""
    root = _parse(octets)
    if root.tag != ROOT:
        raise CpaUnreadable(
            Unreadable.WRONG_ROOT,
            [Fault(f"The document is a {root.tag}, and a CPA 2.0 is a {ROOT}.", Place("/*", line_of(root)))],
        )
    return root


def validate(root: etree._Element) -> None:
    """Raises CpaUnreadable: the document is not valid by the schema."""
    if faults := _invalid(root):
        raise CpaUnreadable(Unreadable.NOT_VALID, faults)


def _parse(octets: bytes) -> etree._Element:
    if len(octets) > MAX_OCTETS:
        raise _refused(
            Unreadable.TOO_LARGE, f"The document has {len(octets):,} bytes, and an agreement at most {MAX_OCTETS:,}."
        )
    try:
        # A first pass that keeps nothing: what is too much, or has a DTD, is never built.
        etree.fromstring(octets, _parser(target=_Sieve()))
        return etree.fromstring(octets, _parser())
    except etree.XMLSyntaxError as error:
        text = " ".join(str(error.msg).split())[:300] or "it is empty"
        if "xcessive depth" in text:
            raise _refused(Unreadable.TOO_DEEP, f"Elements nest deeper than {MAX_DEPTH}.") from None
        fault = Fault(f"The document is not XML: {text}", Place("/", error.lineno or 1))
        raise CpaUnreadable(Unreadable.NOT_XML, [fault]) from None
    except (ValueError, LookupError) as error:
        raise _refused(Unreadable.NOT_XML, f"The document is not XML: {' '.join(str(error).split())[:300]}") from None


def _parser(**more: Any) -> etree.XMLParser:
    return etree.XMLParser(
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        attribute_defaults=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        collect_ids=False,
        **more,
    )


class _Sieve:
    """Receives the parts of a document one after the other, and refuses it at the first that is too much."""

    def __init__(self) -> None:
        self._depth = 0
        self._elements = 0

    def doctype(self, *_parts: str | None) -> None:
        raise _refused(Unreadable.DTD, "The document has a DOCTYPE: an agreement needs none, and it could do harm.")

    def start(self, _tag: str, _attributes: object) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > MAX_DEPTH:
            raise _refused(Unreadable.TOO_DEEP, f"Elements nest deeper than {MAX_DEPTH}.")
        if self._elements > MAX_ELEMENTS:
            raise _refused(Unreadable.TOO_MANY_ELEMENTS, f"The document has more than {MAX_ELEMENTS:,} elements.")

    def end(self, _tag: str) -> None:
        self._depth -= 1

    def close(self) -> None:
        """What parsers ask for at the end."""


def _refused(what: Unreadable, text: str) -> CpaUnreadable:
    return CpaUnreadable(what, [Fault(text, Place("/", 1))])


@lru_cache(maxsize=1)
def _schema() -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(_SCHEMA, etree.XMLParser(no_network=True, resolve_entities=False)))


def _invalid(root: etree._Element) -> list[Fault]:
    schema = _schema()
    with _VALIDATING:
        if schema.validate(root):
            return []
        errors = list(schema.error_log)[:MAX_FAULTS]  # type: ignore[call-overload]
    found = [(str(one.message), str(one.path or "/"), int(one.line)) for one in errors]
    return [Fault(_short(message), Place(path, line)) for message, path, line in found]


def _short(message: str) -> str:
    """A fault that libxml2 found, with the prefixes that people know instead of namespaces."""
    for namespace, prefix in PREFIXES.items():
        message = message.replace(f"{{{namespace}}}", f"{prefix}:")
    return " ".join(message.split())[:300]


def line_of(element: etree._Element) -> int:
    """The line of an element in its document, from 1."""
    return cast("int | None", element.sourceline) or 0
