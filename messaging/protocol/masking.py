"""Covers parts of a document: the same document with other text where a rule says so. Pure functions of bytes.

What cannot be read cannot be covered: `cover` raises then, and nobody who must not see the parts is shown any of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from lxml import etree

from messaging.protocol import selecting
from messaging.protocol.selecting import MAX_BYTES, Unreadable, split

COVER = "‹covered›"

# Without one of these, there is nothing of the kind in a text.
_SIGNS = {"xml": re.compile(r"[<&]"), "json": re.compile(r"[{\[]"), "edi": re.compile(r"UN[ABGHZ]|ISA|GS|ST")}
_PREDICATE = re.compile(r"\[[^\[\]]*\]|\[.*\]")


def may_hide(kind: str, content: bytes, content_type: str) -> bool:
    """Whether something of this kind may lie in a document that is of no kind: so also where nobody can tell."""
    text = selecting.text_of(content, content_type)
    return text is None or _SIGNS[kind].search(text) is not None


def cover(content: bytes, kind: str, paths: Sequence[str], *, text: str) -> tuple[bytes, int]:
    """(the document in UTF-8 with everything covered that one of the paths names, how many places that were).

    `text`: the decoded document, which EDI is read from. Raises Unreadable.
    """
    if len(content) > MAX_BYTES:
        raise Unreadable(f"it is larger than {MAX_BYTES // 1024**2} MiB")
    if kind not in _KINDS:
        raise Unreadable("its format cannot be recognised")
    return _KINDS[kind](content, paths, text)


def _xml(content: bytes, paths: Sequence[str], text: str) -> tuple[bytes, int]:
    root, plain = selecting.xml(content), selecting.xml(content)
    # The same elements without their namespaces, in the same order.
    own = dict(zip(plain.iter(), root.iter(), strict=True))
    names = {element: selecting.without_namespaces(element) for element in list(own)}
    same = any(len(one) > 1 for attributes in names.values() for one in attributes.values())
    if same and any("@" in predicate for path in paths for predicate in _PREDICATE.findall(path)):
        raise Unreadable("an element has two attributes of one name, and a rule selects by the values of attributes")
    count = sum(_cover_node(one, own, names) for path in paths for one in selecting.xpath(plain, path))
    return etree.tostring(root.getroottree(), encoding="UTF-8", xml_declaration=True), count


def _cover_node(one: Any, own: dict[Any, Any], names: dict[Any, dict[str, list[str]]]) -> int:
    if isinstance(one, etree._Element):
        for element in own[one].iter():
            if isinstance(element.tag, str):
                for name in element.attrib:
                    element.attrib[name] = COVER
            if (element.text or "").strip() or (len(element) == 0 and isinstance(element.tag, str)):
                element.text = COVER  # of comments and instructions too
            if element is not own[one] and (element.tail or "").strip():
                element.tail = COVER
        return 1
    parent = one.getparent() if hasattr(one, "getparent") else None
    if parent is None:
        return 0
    element = own[parent]
    if one.is_attribute:
        for name in names[parent].get(one.attrname, [one.attrname]):
            element.attrib[name] = COVER
    elif one.is_tail:
        element.tail = COVER
    else:
        element.text = COVER
    return 1


def _json(content: bytes, paths: Sequence[str], text: str) -> tuple[bytes, int]:
    """Only what is covered is written anew: all else stays as the document has it."""
    document = selecting.json_document(content)
    spans = list(selecting.json_spans(document, paths))
    made, at = [], 0
    for begin, end in spans:
        made += [document[at:begin], json.dumps(COVER, ensure_ascii=False)]
        at = end
    return "".join([*made, document[at:]]).encode(), len(spans)


def _edi(content: bytes, paths: Sequence[str], text: str) -> tuple[bytes, int]:
    syntax = selecting.edi(text)
    component, release = syntax.component, syntax.release
    wanted = [one for path in paths if (one := selecting.segment(path)) is not None]
    count, made = 0, []
    for own, parts in selecting.segments(syntax):
        for tag, number, place in wanted:
            if own != tag or number >= len(parts) or not parts[number]:
                continue
            inner = split(parts[number], component, release)
            if place == 0:
                parts[number] = COVER
            elif place <= len(inner) and inner[place - 1]:
                inner[place - 1] = COVER
                parts[number] = component.join(inner)
            else:
                continue
            count += 1
        made.append(syntax.element.join(parts))
    return (syntax.head + syntax.terminator.join(made)).encode(), count


_KINDS: dict[str, Callable[[bytes, Sequence[str], str], tuple[bytes, int]]] = {"xml": _xml, "json": _json, "edi": _edi}
