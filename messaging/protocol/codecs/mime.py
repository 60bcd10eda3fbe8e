"""Multipart bodies, read and written on bytes (RFC 2045, 2046, 2387 and 2392; wire-ebxml 1.1 and 3.4).

Reading is tolerant of what real partners send and exact about content: a part
is the bytes between its blank line and the line break that belongs to the next
delimiter, nothing added, nothing lost. Work is done by bytes.find, so the cost
of a large payload is that of a memory scan. What is written is strict: CRLF,
one Content-Length for each part, a boundary that occurs nowhere else.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from messaging.protocol.envelope import DEFAULT_LIMITS, Limits, Sought
from messaging.protocol.errors import EncodeError, NotAMessage

DEFAULT_CONTENT_TYPE = "application/octet-stream"

_IDENTITY = frozenset(("", "7bit", "8bit", "binary"))
_PARAMETER = re.compile(r';\s*([^=;\s]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;]*)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_FOLD = re.compile(r"\r?\n[ \t]+")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
# Padding at line ends is no content (RFC 2045, 6.7 rule 3). The look-behind keeps the search linear.
_LINE_PADDING = re.compile(rb"(?<![ \t])[ \t]++(?=\r?\n|\Z)")
_TOKEN = re.compile(r"[A-Za-z0-9]+")
_PRINTABLE = re.compile(r"[ -~]+")
_CONTENT_ID = re.compile(r"[!-;=?-~](?:[ -;=?-~]*[!-;=?-~])?")
_CONTENT_ID_SAFE = "!#$&'*+-/=?^_`{|}~@.:,;()[]"  # beside letters and digits; needs no escape in a quoted string

# Lines that look like a delimiter but are none cost a step each; so many occur only on purpose.
_CANDIDATES_PER_PART = 20
_LONGEST_PADDING = 1000


class MustBeHeld(Exception):
    """A part has a transfer encoding: such a body is read when all of it is in memory."""


@dataclass(frozen=True, slots=True)
class Part:
    """One body part. Header names are lower-case, values unfolded and free of control characters.

    `content` is decoded; `offset` is where it lies in the body when its encoding
    is identity, else None. `damage` says why the content could not be decoded;
    `content` then holds the raw bytes.
    """

    headers: dict[str, str]
    content: bytes | Sought
    offset: int | None
    damage: str = ""

    @property
    def octets(self) -> bytes:
        """The content in memory."""
        return self.content[:]

    @property
    def content_id(self) -> str:
        """Content-ID without its angle brackets; empty when there is none."""
        return bare_content_id(self.headers.get("content-id", ""))

    @property
    def content_type(self) -> str:
        """The Content-Type header as it came; empty when there is none."""
        return self.headers.get("content-type", "")

    @property
    def filename(self) -> str:
        """File name of the Content-Disposition (RFC 2183; RFC 2231 form too). Advisory: it may hold a path."""
        disposition = self.headers.get("content-disposition")
        if disposition is None:
            return ""
        parameters = decode_header_value(disposition)[1]
        extended = parameters.get("filename*", "")
        if extended.count("'") >= 2:
            charset, _language, encoded = extended.split("'", 2)
            charset = "latin-1" if charset.lower() == "iso-8859-1" else "utf-8"
            return _CONTROL.sub("", unquote(encoded, charset, "replace"))
        return parameters.get("filename", "")


def decode_header_value(value: str) -> tuple[str, dict[str, str]]:
    """`type/subtype; name=value ...` as (lower-case type, parameters by lower-case name).

    Values may be quoted or not, and an unquoted one may hold `=` (`boundary=----=_Part_1`).
    The first of equal names counts. Never raises.
    """
    media_type, semicolon, _rest = value.partition(";")
    parameters: dict[str, str] = {}
    if semicolon:
        for name, text in _PARAMETER.findall(value, len(media_type)):
            if len(text) > 1 and text[0] == text[-1] == '"':
                text = text[1:-1]
                if "\\" in text:
                    text = _ESCAPED.sub(r"\1", text)
            else:
                text = text.strip().strip('"')
            parameters.setdefault(name.lower(), text)
    return media_type.strip().lower(), parameters


def bare_content_id(value: str) -> str:
    """A Content-ID or `start` value without white space and angle brackets (senders omit them, wire-ebxml 3.4)."""
    return value.strip().removeprefix("<").removesuffix(">").strip()


def content_id_keys(content_ids: Iterable[str]) -> set[str]:
    """All spellings under which `refers_to` finds these Content-IDs: as they are, and percent-decoded."""
    keys = set()
    for content_id in content_ids:
        keys.add(content_id)
        if "%" in content_id:
            keys.add(unquote(content_id))
    return keys


def refers_to(reference: str, keys: set[str]) -> bool:
    """Whether a `cid:` URL names one of the parts of `content_id_keys` (RFC 2392: compared decoded)."""
    bare = bare_content_id(reference[4:] if reference[:4].lower() == "cid:" else reference)
    return bare in keys or ("%" in bare and unquote(bare) in keys)


def decode_multipart(body: bytes | Sought, boundary: str, limits: Limits = DEFAULT_LIMITS) -> list[Part]:
    """The parts of a multipart body in their order; preamble and epilogue are dropped. Those of a body that is not in
    memory are not, either.

    Lines end with CRLF or LF. A part's own Content-Length is ignored: boundaries
    decide (wire-ebxml 1.1). Raises NotAMessage with reason not_mime (no delimiter
    line), truncated (no closing delimiter, so that a payload that was cut short
    is never taken for a whole one), too_many_parts or part_headers_too_large; and MustBeHeld.
    """
    return [_part(body, begin, end, limits) for begin, end in _spans(body, boundary, limits)]


def parts_of(body: bytes | Sought, parameters: Mapping[str, str], limits: Limits) -> list[Part]:
    """The parts of a message, of which there is one at least. `parameters`: of its Content-Type. Raises NotAMessage."""
    boundary = parameters.get("boundary", "")
    if not boundary:
        raise NotAMessage("not_mime", "the multipart Content-Type has no boundary")
    parts = decode_multipart(body, boundary, limits)
    if not parts:
        raise NotAMessage("no_header_part", "the multipart body has no parts")
    return parts


def _spans(body: bytes | Sought, boundary: str, limits: Limits) -> list[tuple[int, int]]:
    """(begin, end) of each part: from behind its delimiter line to the start of the next one."""
    delimiter = b"--" + boundary.encode("latin-1", "replace")
    needle = b"\n" + delimiter
    spans: list[tuple[int, int]] = []
    begin = -1
    candidates = 0
    position = 0 if body[: len(delimiter)] == delimiter else body.find(needle) + 1 or -1
    while position >= 0:
        candidates += 1
        tail = position + len(delimiter)
        closing = body[tail : tail + 2] == b"--"
        after = _end_of_line(body, tail + 2 if closing else tail)
        if after >= 0:
            if begin >= 0:
                spans.append((begin, position))
            if closing:
                return spans
            begin = after
        if len(spans) >= limits.parts or candidates > limits.parts * _CANDIDATES_PER_PART:
            raise NotAMessage("too_many_parts", f"more than {limits.parts} MIME parts")
        # One byte back: the line break of this delimiter line may lead the next one.
        position = body.find(needle, tail if after < 0 else after - 1) + 1 or -1
    if begin < 0:
        raise NotAMessage("not_mime", "no line of the body is a delimiter with the boundary of the Content-Type")
    raise NotAMessage("truncated", "the closing MIME boundary is missing")


def _end_of_line(body: bytes | Sought, position: int) -> int:
    """Where the next line begins, when only padding is left on this one; else -1."""
    if body[position : position + 2] == b"\r\n":
        return position + 2
    end = body.find(b"\n", position, position + _LONGEST_PADDING)
    if end < 0:
        end = len(body)
        if end - position > _LONGEST_PADDING:
            return -1
    return -1 if body[position:end].strip(b" \t\r") else min(end + 1, len(body))


def _part(body: bytes | Sought, begin: int, end: int, limits: Limits) -> Part:
    headers, start, crlf = _head(body, begin, end, limits)
    # The line break before a delimiter is the delimiter's (RFC 2046, 5.1.1). In a body with bare LF
    # a CR before it is content, so the part's own blank line tells which kind of line break it is.
    stop = max(end - 1, start)
    if crlf and stop > start and body[stop - 1 : stop] == b"\r":
        stop -= 1
    content = body[start:stop] if isinstance(body, bytes) else body.part(start, stop)
    encoding = headers.get("content-transfer-encoding")
    if encoding is None:
        return Part(headers, content, start)
    encoding = encoding.partition(";")[0].strip().lower()
    if encoding in _IDENTITY:
        return Part(headers, content, start)
    if not isinstance(content, bytes):
        raise MustBeHeld
    try:
        return Part(headers, decode_transfer_encoding(encoding, content), None)
    except ValueError as error:
        return Part(headers, content, None, str(error))


def _head(body: bytes | Sought, begin: int, end: int, limits: Limits) -> tuple[dict[str, str], int, bool]:
    """Headers of the entity at `begin`, where its content starts, and whether its blank line is a CRLF."""
    if body[begin : begin + 2] == b"\r\n":
        return {}, begin + 2, True
    if body[begin : begin + 1] == b"\n":
        return {}, begin + 1, False
    window = min(end, begin + limits.part_headers)
    crlf = body.find(b"\n\r\n", begin, window)
    bare = body.find(b"\n\n", begin, window if crlf < 0 else crlf + 1)
    if bare >= 0:
        return _headers(body[begin:bare]), bare + 2, False
    if crlf >= 0:
        return _headers(body[begin:crlf]), crlf + 3, True
    if end > window:
        raise NotAMessage("part_headers_too_large", f"MIME headers of more than {limits.part_headers} bytes")
    return _headers(body[begin:end]), end, True


def _headers(block: bytes) -> dict[str, str]:
    try:
        text = block.decode()
    except UnicodeDecodeError:
        text = block.decode("latin-1")
    if "\n " in text or "\n\t" in text:
        text = _FOLD.sub(" ", text)
    headers: dict[str, str] = {}
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            value = value.strip()
            if not value.isprintable():
                value = _CONTROL.sub("", value)
            headers.setdefault(name.strip().lower(), value)
    return headers


def decode_entity_head(entity: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[dict[str, str], int]:
    """Headers of a stored MIME entity (a mail, a file of a drop folder) and the offset of its body.

    Raises NotAMessage with reason part_headers_too_large.
    """
    headers, start, _crlf = _head(entity, 0, len(entity), limits)
    return headers, start


def decode_transfer_encoding(encoding: str, data: bytes) -> bytes:
    """`data` without its Content-Transfer-Encoding (RFC 2045, section 6; any case).

    Raises ValueError when the encoding is unknown or the data does not follow it. Base64 is read
    strictly, apart from white space: what a relay damaged must not become a document of other bytes.
    """
    encoding = encoding.strip().lower()
    if encoding in _IDENTITY:
        return data
    if encoding == "base64":
        try:
            return binascii.a2b_base64(data.translate(None, b" \t\r\n"), strict_mode=True)
        except binascii.Error as error:
            raise ValueError(f"base64 content is damaged ({error})") from None
    if encoding == "quoted-printable":
        return binascii.a2b_qp(_LINE_PADDING.sub(b"", data))
    raise ValueError(f"Content-Transfer-Encoding {encoding[:40]!r} is unknown")


def is_content_id(value: str) -> bool:
    """Whether `value` can stand between the angle brackets of a Content-ID header."""
    return _CONTENT_ID.fullmatch(value) is not None


def is_header_value(value: str) -> bool:
    """Whether `value` can be written as a MIME header's value: printable ASCII, trimmed, not empty."""
    return _PRINTABLE.fullmatch(value) is not None and value == value.strip()


def content_id_of(message_id: str) -> str:
    """Content-ID of the header container: `hdr.` and the message id, escaped where a header could not carry it."""
    return "hdr." + quote(message_id, safe=_CONTENT_ID_SAFE)


def choose_boundary(prefix: str, message_id: str, contents: Sequence[bytes | Sought]) -> str:
    """A boundary that follows from its arguments alone and occurs in none of `contents`.

    It is `prefix` and the last run of letters and digits of the message id's
    local part. When a content holds that, a digest of all contents is added: no
    content can hold its own digest, so the search ends at once, whoever wrote them.
    """
    tokens: list[str] = _TOKEN.findall(message_id.rpartition("@")[0] or message_id) or ["0"]
    plain = boundary = prefix + tokens[-1][-40:]
    delimiter = b"--" + boundary.encode("ascii")
    count = 0
    while any(delimiter in content for content in contents):
        digest = hashlib.sha256(f"{message_id}\n{count}\n".encode("utf-8", "surrogatepass"))
        for content in contents:
            for piece in (content,) if isinstance(content, bytes) else content:
                digest.update(piece)
        boundary = f"{plain}.{digest.hexdigest()[:20]}"
        delimiter = b"--" + boundary.encode("ascii")
        count += 1
    return boundary


def encode_part_head(content_id: str, content_type: str, length: int, filename: str = "", document_id: str = "") -> str:
    """Header lines of one part, each with its CRLF (wire-ebxml 1.1). An empty `content_id` is left out.

    `document_id`: the value of RM-Document-ID, which readers that do not know it pass over (RFC 2045, 5.1).

    Raises EncodeError for a value that a MIME header cannot carry.
    """
    if content_id and not is_content_id(content_id):
        raise EncodeError(f"Content-ID {content_id!r} is not printable ASCII without angle brackets")
    if not is_header_value(content_type):
        raise EncodeError(f"Content-Type {content_type!r} is not printable ASCII")
    head = f"Content-ID: <{content_id}>\r\n" if content_id else ""
    head += f"Content-Type: {content_type}\r\n"
    if filename:
        head += f"Content-Disposition: attachment; {_filename_parameter(filename)}\r\n"
    if document_id:
        head += f"RM-Document-ID: {document_id}\r\n"
    return f"{head}Content-Length: {length}\r\n"


def _filename_parameter(filename: str) -> str:
    if _CONTROL.search(filename):
        raise EncodeError(f"file name {filename!r} has control characters")
    if is_header_value(filename):
        return 'filename="' + filename.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "filename*=UTF-8''" + quote(filename, safe="")


def encode_multipart(boundary: str, heads: Sequence[str]) -> list[bytes]:
    """The octets around the contents of a multipart body: one literal more than heads, CRLF throughout.

    Each head is header lines that end with CRLF, as `encode_part_head` gives them.
    """
    literals = []
    lead = ""
    for head in heads:
        literals.append(f"{lead}--{boundary}\r\n{head}\r\n".encode("ascii"))
        lead = "\r\n"
    literals.append(f"{lead}--{boundary}--\r\n".encode("ascii"))
    return literals


def encode_base64_parts(body: bytes, boundary: str, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The same multipart body with every part in base64, for mail (wire-ebxml 1.10 and 2.6).

    Same boundary, so the Content-Type stays valid; part headers are kept but for
    Content-Length and Content-Transfer-Encoding. Raises NotAMessage like `decode_multipart`.
    """
    pieces = []
    for part in decode_multipart(body, boundary, limits):
        pieces.append(f"--{boundary}\r\n".encode("ascii"))
        for name, title in _MAIL_HEADERS.items():
            if name in part.headers:
                pieces.append(f"{title}: {part.headers[name]}\r\n".encode())
        pieces.append(b"Content-Transfer-Encoding: base64\r\n\r\n")
        pieces.append(encode_base64(part.octets) or b"\r\n")
    pieces.append(f"--{boundary}--\r\n".encode("ascii"))
    return b"".join(pieces)


def encode_base64(content: bytes) -> bytes:
    """Base64 in lines of 76 characters, each with its CRLF."""
    encoded = binascii.b2a_base64(content, newline=False)
    return b"".join(encoded[at : at + 76] + b"\r\n" for at in range(0, len(encoded), 76))


_MAIL_HEADERS = {
    "content-id": "Content-ID",
    "content-type": "Content-Type",
    "content-disposition": "Content-Disposition",
    "rm-document-id": "RM-Document-ID",
}
