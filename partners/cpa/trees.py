"""How elements of an agreement are put into a tree."""

from __future__ import annotations

from lxml import etree

from partners.cpa.document import TP


def add(
    parent: etree._Element, name: str, text: str | None = None, /, *, namespace: str = TP, **attributes: str
) -> etree._Element:
    """A new last child. An attribute that is "" is left out. Raises ValueError: characters that XML cannot carry."""
    element = etree.SubElement(parent, f"{{{namespace}}}{name}")
    for attribute, value in attributes.items():
        if value:
            element.set(f"{{{TP}}}{attribute}", value)
    element.text = text
    return element
