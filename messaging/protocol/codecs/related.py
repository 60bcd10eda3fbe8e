"""One root document and its payload parts as multipart/related, read and written (RFC 2387; wire-ebxml 1.1 and 3.1).

What the profiles that send XML with attachments have in common. What a profile has of its own (media types, boundary)
is its `Packaging`. A body may be larger than memory: its payloads then are pieces of it (`envelope.Sought`), and only
the root document is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from messaging.protocol import document_ids
from messaging.protocol.codecs.mime import (
    DEFAULT_CONTENT_TYPE,
    Part,
    bare_content_id,
    choose_boundary,
    content_id_keys,
    content_id_of,
    decode_header_value,
    encode_multipart,
    encode_part_head,
    is_content_id,
    is_header_value,
    parts_of,
    refers_to,
)
from messaging.protocol.codecs.xml import Findings
from messaging.protocol.envelope import DEFAULT_LIMITS, DocumentReference, Limits, PayloadPart, Sought, Wire
from messaging.protocol.errors import EncodeError, ErrorCode, NotAMessage


class Packaging(NamedTuple):
    """How a profile packs its messages.

    `root`: what people call the root document. `media_type`: of the root document as it is written; `readable`: all
    under which it is read. `version`: of the media type, if it has one. `boundary`: how boundaries begin.
    """

    root: str
    media_type: str
    readable: frozenset[str]
    boundary: str
    version: str = ""

    @property
    def parameters(self) -> str:
        """What follows the media type, in the Content-Type of the message and of its root part."""
        return f'; version="{self.version}"' if self.version else ""

    @property
    def root_type(self) -> str:
        """Content-Type of the root part, or of a root document that is sent alone."""
        return f'{self.media_type}{self.parameters}; charset="UTF-8"'


class Containers(NamedTuple):
    """The root document and the payload parts; RM-Document-ID of the root part, as it came."""

    document: bytes
    parts: Sequence[Part]
    document_id: str = ""


def containers(content_type: str, body: bytes | Sought, packaging: Packaging, limits: Limits) -> Containers:
    """What one transport entity holds; a root document may also come alone. Raises NotAMessage, MustBeHeld."""
    if len(body) > limits.body:
        raise NotAMessage("body_too_large", f"body of {len(body)} bytes; {limits.body} allowed")
    if len(content_type) > limits.part_headers:
        raise NotAMessage("not_mime", "the Content-Type is too long")
    media_type, parameters = decode_header_value(content_type)
    if not media_type.startswith("multipart/"):
        if media_type not in packaging.readable:
            problem = f"Content-Type {media_type[:80]!r} is neither multipart nor that of the {packaging.root}"
            raise NotAMessage("not_mime", problem)
        return Containers(_in_utf8(_held(body, limits), parameters), [])
    parts = parts_of(body, parameters, limits)
    root = parts.pop(_root_index(parts, parameters.get("start", "")))
    if root.damage:
        raise NotAMessage("bad_transfer_encoding", f"{packaging.root}: {root.damage}")
    media_type, parameters = decode_header_value(root.content_type)
    if media_type and media_type not in packaging.readable:
        raise NotAMessage("no_header_part", f"the root part is {media_type[:80]!r} and not the {packaging.root}")
    document = _in_utf8(_held(root.content, limits), parameters)
    return Containers(document, parts, root.headers.get("rm-document-id", ""))


def _held(content: bytes | Sought, limits: Limits) -> bytes:
    """The octets of a root document, in memory; of one that is too large enough for a parser to see that."""
    return content if isinstance(content, bytes) else content[: limits.header_document + 1]


def _root_index(parts: Sequence[Part], start: str) -> int:
    """RFC 2387: the part that `start` names, else the first (also when senders name one that is not there)."""
    if start:
        wanted = bare_content_id(start)
        for index, part in enumerate(parts):
            if refers_to(wanted, content_id_keys((part.content_id,))):
                return index
    return 0


def _in_utf8(document: bytes, parameters: dict[str, str]) -> bytes:
    """The root document, transcoded when only the Content-Type tells its 8-bit charset (RFC 3023)."""
    charset = parameters.get("charset", "").lower()
    if charset.startswith(("iso-8859-", "windows-125")) and b"encoding" not in document[:200]:
        try:
            return document.decode(charset).encode()
        except (LookupError, ValueError):
            return document
    return document


def payloads(parts: Sequence[Part], normal: bool, findings: Findings) -> tuple[PayloadPart, ...]:
    """The payload parts in their order. Those of an acknowledgement or error are tolerated, whatever they are."""
    found = []
    seen: set[str] = set()
    for part in parts:
        content_id = findings.identifier(part.content_id, "Content-ID")
        problem = part.damage
        if content_id and not is_content_id(content_id):
            problem = "the Content-ID is not printable ASCII without angle brackets"
        elif content_id in seen:
            problem = "the Content-ID occurs twice"
        if problem and normal:
            findings.add(ErrorCode.MIME_PROBLEM, problem, content_id)
        if content_id:
            seen.add(content_id)
        found.append(payload_of(content_id, part, findings.limits.identifier))
    return tuple(found)


def payload_of(content_id: str, part: Part, longest: int) -> PayloadPart:
    """The payload that a part is; file name and Content-Type have at most `longest` characters."""
    content_type = _content_type(part.content_type, longest)
    return PayloadPart(content_id, content_type, part.content, part.filename[:longest], part.offset)


def _content_type(value: str, longest: int) -> str:
    """A payload's Content-Type as a header can carry it: names in parameters are often neither ASCII nor short."""
    if len(value) > longest:
        value = value.partition(";")[0].strip()[:longest].strip()
    if not is_header_value(value):
        value = value.encode("ascii", "replace").decode().strip() or DEFAULT_CONTENT_TYPE
    return value


def check_parts(
    payloads: Sequence[PayloadPart], manifest: Sequence[DocumentReference], *, relayed: bool = False
) -> None:
    """Raises EncodeError when payloads and Manifest do not fit together.

    `relayed`: a payload may be without Content-ID, as when the message came from elsewhere.
    """
    if not payloads and not manifest:
        return
    if len(payloads) >= DEFAULT_LIMITS.parts:
        raise EncodeError(f"{len(payloads)} payloads; {DEFAULT_LIMITS.parts - 1} allowed beside the header")
    ids: set[str] = set()
    for payload in payloads:
        if not payload.content_id:
            if not relayed:
                raise EncodeError("a payload needs a Content-ID")
            continue
        if len(payload.content_id) > DEFAULT_LIMITS.identifier or len(payload.content_type) > DEFAULT_LIMITS.identifier:
            raise EncodeError("a payload's Content-ID or Content-Type is too long")
        if payload.content_id in ids:
            raise EncodeError(f"Content-ID {payload.content_id!r} is there twice")
        ids.add(payload.content_id)
    keys = content_id_keys(ids)
    for reference in manifest:
        if reference.document_id[:4].lower() == "cid:" and not refers_to(reference.document_id, keys):
            raise EncodeError(f"the Manifest names {reference.document_id!r}, and no payload has that Content-ID")


def enclose(
    packaging: Packaging,
    document: bytes,
    payloads: Sequence[PayloadPart],
    message_id: str,
    *,
    document_id: str = "",
    first_copy: bytes | None = None,
) -> Wire:
    """The multipart/related message around a root document in UTF-8.

    `first_copy`: the document from which the boundary is chosen, where a later copy has another one. Raises EncodeError
    for a document that is too large, and for what a part's header cannot carry.
    """
    _check_size(packaging, document)
    root_id = content_id_of(message_id)
    ids = {payload.content_id for payload in payloads}
    while root_id in ids:
        root_id = f"hdr.{root_id}"
    named = document_ids.header_value(document_id)
    heads = [encode_part_head(root_id, packaging.root_type, len(document), document_id=named)]
    for payload in payloads:
        heads.append(encode_part_head(payload.content_id, payload.content_type, len(payload.content), payload.filename))
    contents = [payload.content for payload in payloads]
    boundary = choose_boundary(packaging.boundary, message_id, [first_copy or document, *contents])
    first, second, *rest = encode_multipart(boundary, heads)
    content_type = (
        f'multipart/related; type="{packaging.media_type}"{packaging.parameters}; '
        f'start="<{root_id}>"; boundary="{boundary}"'
    )
    return Wire(content_type, (first + document + second, *rest))


def alone(packaging: Packaging, document: bytes) -> Wire:
    """The message that is a root document in UTF-8 and nothing else. Raises EncodeError when it is too large."""
    _check_size(packaging, document)
    return Wire(packaging.root_type, (document,))


def _check_size(packaging: Packaging, document: bytes) -> None:
    if len(document) > DEFAULT_LIMITS.header_document:
        raise EncodeError(f"{packaging.root} of {len(document)} bytes; {DEFAULT_LIMITS.header_document} allowed")
