"""ETag, If-None-Match and If-Match (RFC 9110, 13).

A tag is `"<revision>.<digest>"`. The revision counts what people do to an item, and is what If-Match compares: an
acknowledgement that comes in between must not refuse an operator's action. The digest is of the representation, so
that If-None-Match notices every change.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.problems import Problem

IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, required=True, description="ETag of what you decided upon."
)
CONDITIONAL = ("stale", "precondition_required", "invalid_header")  # the problems of an operation that has it
_TAG = re.compile(r'\s*(W/)?"([\x21\x23-\x7e]*)"\s*(?:,|$)')


def tag(data: Any, revision: object = "") -> str:
    """The strong ETag of a representation, without its quotes."""
    rendered = json.dumps(data, sort_keys=True, default=str).encode()
    digest = hashlib.sha256(rendered).hexdigest()[:16]
    return f"{revision}.{digest}" if revision != "" else digest


def item(
    request: Request, data: Any, *, revision: object = "", digest_of: Any = None, status: int = 200, **headers: str
) -> Response:
    """A representation with its ETag; 304 without a body when the caller has it already.

    `digest_of`: what the tag is made from, when the representation also says how long ago something was.
    """
    etag = tag(data if digest_of is None else digest_of, revision)
    answer_headers = {"ETag": f'"{etag}"', "Cache-Control": "private, no-cache", **headers}
    if request.method in ("GET", "HEAD"):
        known = request.headers.get("If-None-Match", "")
        if known.strip() == "*" or etag in [name for _, name in _tags(known)]:
            return Response(None, status=304, headers=answer_headers)
    return Response(data, status=status, headers=answer_headers)


def expected_revision(request: Request) -> str | None:
    """The revision that the caller acts upon, from If-Match; None for `*` (the caller does not mind).

    Raises Problem: 428 without the header, 400 for a malformed one, 412 for weak tags alone.
    """
    header = request.headers.get("If-Match", "").strip()
    if not header:
        raise Problem("precondition_required")
    if header == "*":
        return None
    tags = _tags(header)
    if not tags:
        raise Problem("invalid_header", 'If-Match holds an ETag in double quotes, such as "57.0f3a...".')
    strong = [name for weak, name in tags if not weak]
    if len(tags) > 1:
        raise Problem("invalid_header", "If-Match holds one ETag here: that of the representation you decided upon.")
    if not strong:
        raise Problem("stale", "If-Match compares strongly, so that a weak ETag (W/...) never matches.")
    return strong[0].partition(".")[0]


def expected_version(request: Request) -> int | None:
    """The same for items whose revision is a number."""
    revision = expected_revision(request)
    if revision is None:
        return None
    # A tag that is none of ours cannot be that of the present representation.
    return int(revision) if revision.isascii() and revision.isdigit() and len(revision) < 19 else -1


def check_unchanged(request: Request, data: Any) -> None:
    """For verbs that do not require If-Match: evaluates one that is given all the same. Raises Problem (412)."""
    header = request.headers.get("If-Match", "").strip()
    if header and header != "*" and tag(data) not in [name for weak, name in _tags(header) if not weak]:
        raise Problem("stale")


def _tags(header: str) -> list[tuple[bool, str]]:
    """(weak, tag) of each in a list; empty when any of it is malformed."""
    found, at = [], 0
    while at < len(header):
        match = _TAG.match(header, at)
        if match is None:
            return []
        found.append((bool(match[1]), match[2]))
        at = match.end()
    return found
