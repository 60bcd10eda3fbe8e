"""Downloads of stored bytes: always an attachment, never interpreted, in whole or by one range (RFC 9110, 14)."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence

from django.http import FileResponse, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header
from rest_framework.request import Request

from messaging import storage
from messaging.api.endpoint import OCTETS, AnyOctets, Endpoint, operation
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.messages.services.disclosing import Octets

_RANGE = re.compile(r"bytes\s*=\s*(\d{0,15})-(\d{0,15})", re.ASCII)
_SAFE_TYPE = re.compile(r"[\x20-\x7e]{1,1000}")
_UNSAFE_NAME = re.compile(r'[\x00-\x1f\x7f/\\"\ud800-\udfff]')


def download(
    id: str,
    scope: str,
    summary: str,
    read: Callable[..., Octets],
    *,
    path: Mapping[str, str],
    tag: str = "messages",
    description: str = "",
    parameters: Sequence[Param] = (),
    problems: Sequence[str] = (),
) -> type[Endpoint]:
    """Return the view of stored bytes. `read` takes the request, what the path names, and the values of parameters."""

    class Download(Endpoint):
        content_negotiation_class = AnyOctets

        @operation(
            id=id,
            tag=tag,
            scope=scope,
            summary=summary,
            description=description,
            path=path,
            parameters=parameters,
            responses=OCTETS,
            problems=(*problems, "range_not_satisfiable"),
        )
        def get(self, request: Request, **named: str) -> HttpResponseBase:
            values = read_parameters(request, parameters)
            return attachment(request, read(request, **named, **values))

    return Download


def attachment(request: Request, octets: Octets) -> HttpResponseBase:
    """The bytes, or the range of them that was asked for. Raises Problem (416)."""
    content = octets.content
    size = len(content) if octets.large is None else len(octets.large)
    digest = bytes.fromhex(octets.sha256 or storage.digest(content if octets.large is None else octets.large))
    encoded = base64.b64encode(digest).decode()
    etag = f'"{digest.hex()[:32]}"'
    answer: HttpResponseBase
    if etag in request.headers.get("If-None-Match", ""):
        answer = HttpResponse(status=304)
    else:
        wanted = _range(request, size, etag)
        begin, end = wanted or (0, size)
        status = 206 if wanted else 200
        if octets.large is None:
            answer = HttpResponse(content[begin:end], status=status)
        else:
            answer = FileResponse(octets.large.part(begin, end).opened(), status=status)
        if wanted:
            answer["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        answer["Content-Length"] = str(end - begin)
    kind = octets.content_type
    answer["Content-Type"] = kind if _SAFE_TYPE.fullmatch(kind) else "application/octet-stream"
    name = _UNSAFE_NAME.sub("_", octets.filename) or "octets"
    answer["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    answer["Accept-Ranges"] = "bytes"
    # Of the whole, also when a range is sent: RFC 3230's name, and RFC 9530's.
    answer["Digest"] = f"sha-256={encoded}"
    answer["Repr-Digest"] = f"sha-256=:{encoded}:"
    answer["ETag"] = etag
    answer["Cache-Control"] = "private, no-cache"
    answer["X-Content-Type-Options"] = "nosniff"
    # Whatever a partner sent, a browser that opens it may run nothing and load nothing.
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return answer


def _range(request: Request, size: int, etag: str) -> tuple[int, int] | None:
    """(begin, end) of a single range, end excluded; None for the whole: no range, several, or another version's."""
    match = _RANGE.fullmatch(request.headers.get("Range", "").strip())
    if match is None or request.headers.get("If-Range", etag) != etag:
        return None
    first, last = match.groups()
    if first:
        begin, end = int(first), min(int(last) + 1 if last else size, size)
        if last and int(last) < int(first):
            return None  # not a range at all, so the header is ignored
    elif last and int(last):
        begin, end = max(0, size - int(last)), size
    else:
        begin = end = size if last else 0
        if not last:
            return None
    if begin >= size:
        raise Problem(
            "range_not_satisfiable",
            f"There are {size} octets, and the range begins behind them.",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return begin, end
