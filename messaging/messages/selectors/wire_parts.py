"""A message on the wire without its documents: its header as fields, its MIME parts as a list, its attempts compared.

Payload octets are not read here: the frame of a message holds all the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _
from lxml import etree

from messaging import storage
from messaging.models import Message, Payload, Transmission
from messaging.protocol.codecs import mime
from messaging.protocol.envelope import Wire
from messaging.protocol.errors import NotAMessage

_MOST_FIELDS = 400


@dataclass(frozen=True, slots=True)
class WirePart:
    """One part of a message. `payload`: the document that it holds."""

    depth: int
    content_type: str
    content_id: str
    size: int | None
    payload: Payload | None = None

    @property
    def media(self) -> str:
        """The content type without its parameters."""
        return self.content_type.partition(";")[0].strip() or _("no content type")


@dataclass(frozen=True, slots=True)
class HeaderField:
    """One value of a header: the path of its element or attribute, by local names; and its namespace."""

    path: str
    value: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class WireShape:
    """`document`: the header as it is, b"" for a body that is one document and nothing else."""

    parts: list[WirePart]
    document: bytes
    fields: list[HeaderField]
    note: str = ""


def shape(message: Message, payloads: list[Payload]) -> WireShape:
    """Of a message that was sent or received; without parts and fields, and with a note, for any other."""
    if message.wire_frame is None:
        note = _("It was not sent yet, so it has no header: that is made when it is first sent.")
        return WireShape([], b"", [], note)
    whole = [WirePart(0, message.content_type, "", None)]
    kind, parameters = mime.decode_header_value(message.content_type)
    if not kind.startswith("multipart/"):
        alone = payloads[0] if len(payloads) == 1 and not payloads[0].in_frame else None
        whole = [WirePart(0, message.content_type, "", alone.size if alone else None, alone)]
        if alone is not None:
            return WireShape(whole, b"", [])
        body = _frame(message, payloads)
        return WireShape(whole, body, _fields(body)) if body else WireShape(whole, b"", [])
    try:
        found = mime.decode_multipart(_frame(message, payloads), parameters.get("boundary", ""))
    except NotAMessage as error:
        return WireShape(whole, b"", [], _("The parts cannot be told apart: {error}").format(error=error))
    by_id = {payload.content_id: payload for payload in payloads}
    parts = list(whole)
    for number, part in enumerate(found):
        payload = by_id.get(part.content_id)
        if payload is None and number and number <= len(payloads):
            payload = payloads[number - 1]
        size = payload.size if payload is not None and not payload.in_frame else len(part.content)
        parts.append(WirePart(1, part.content_type, part.content_id, size, payload))
    document = found[0].octets if found and parts[1].payload is None else b""
    return WireShape(parts, document, _fields(document))


def _frame(message: Message, payloads: list[Payload]) -> bytes:
    """The body with nothing where the documents are."""
    literals = storage.unpack_frame(message.wire_frame or b"")
    try:
        return Wire(message.content_type, literals).join([b""] * (len(literals) - 1))
    except ValueError:
        return b""


def _fields(document: bytes) -> list[HeaderField]:
    """All values of a header, those of unknown extensions too, in the order of the document."""
    if not document.strip() or b"<!DOCTYPE" in document.upper():
        return []
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)
    try:
        root = etree.fromstring(document.strip(), parser)
    except (etree.XMLSyntaxError, ValueError):
        return []
    found: list[HeaderField] = []
    waiting: list[tuple[etree._Element, str]] = [(root, "")]
    while waiting and len(found) < _MOST_FIELDS:
        element, above = waiting.pop()
        if not isinstance(element.tag, str):
            continue
        name = etree.QName(element)
        path = f"{above}/{name.localname}" if above else name.localname
        text = (element.text or "").strip()
        if text or (len(element) == 0 and not element.attrib):
            found.append(HeaderField(path, text, name.namespace or ""))
        for key, value in element.attrib.items():
            found.append(HeaderField(f"{path}@{etree.QName(str(key)).localname}", str(value), name.namespace or ""))
        waiting += [(child, path) for child in reversed(element)]
    return found


def compare_answers(attempt: Transmission, previous: Transmission | None) -> str:
    """How the answer to an attempt differs from that to the one before it, as a sentence; "" without one before."""
    if previous is None:
        return ""
    ours, theirs = bytes(attempt.response or b""), bytes(previous.response or b"")
    if attempt.outcome != previous.outcome or attempt.cause != previous.cause:
        how = previous.cause or previous.get_outcome_display()
        return _("It ended otherwise than attempt {number}: {how}.").format(number=previous.number, how=how)
    if attempt.http_status != previous.http_status:
        if not previous.http_status:
            return _("Attempt {number} got no HTTP status.").format(number=previous.number)
        return _("Attempt {number} was answered with HTTP {status}.").format(
            number=previous.number, status=previous.http_status
        )
    if ours == theirs:
        same = _("The same as to attempt {number}.") if ours else _("None, as to attempt {number}.")
        return same.format(number=previous.number)
    head, __, body = ours.partition(b"\r\n\r\n")
    other_head, __, other_body = theirs.partition(b"\r\n\r\n")
    if body == other_body:
        mine, others = _header_lines(head), _header_lines(other_head)
        names = sorted(name for name in mine | others if mine.get(name) != others.get(name))
        if not names:
            return _("As to attempt {number}; only its head differs.").format(number=previous.number)
        return _("As to attempt {number}; only {names} differ.").format(number=previous.number, names=", ".join(names))
    return _("Its content differs from that to attempt {number}.").format(number=previous.number)


def _header_lines(head: bytes) -> dict[str, bytes]:
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return {name.decode("latin-1").strip().lower(): value.strip() for name, _, value in lines if name.strip()}


def previous_attempt(attempt: Transmission) -> Transmission | None:
    """The attempt before this one, of the same message or signal, with its answer."""
    same = Transmission.objects.filter(message=attempt.message_id) if attempt.message_id else None
    if same is None:
        same = Transmission.objects.filter(signal=attempt.signal_id)
    return same.filter(pk__lt=attempt.pk).order_by("-id").first()
