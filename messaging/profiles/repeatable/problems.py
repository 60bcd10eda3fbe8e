"""Every error that the entrance of repeatable requests (spec 2) answers: one row a code.

docs/repeatable-requests.md and GET /problems/ are this table; the API has one of its own (`messaging.api.catalogue`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


def _(title: str) -> str:
    """Marks a title for the catalogs."""
    return title


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem. `code` is stable; `meaning` says what happened and what to do.

    Both go out as English; pages show titles in the reader's language (`messaging.causes.refusals`).
    `retryable`: the same request, with the same id, may fare better later.
    """

    code: str
    status: int
    title: str
    meaning: str
    retryable: bool = False

    @property
    def type(self) -> str:
        """The `type` member: a reference, relative to the hub, to this row."""
        return f"/problems/{self.code}"

    @property
    def reason(self) -> str:
        """The reason of the `Rejection`."""
        return self.code.replace("-", "_")


_ROWS = (
    Kind("unauthenticated", 401, _("No credential"), "Show a credential of a partner of this hub."),
    Kind(
        "too-many-attempts",
        429,
        _("Too many wrong credentials"),
        "Too many wrong credentials came from your address. Wait for as long as Retry-After says.",
        retryable=True,
    ),
    Kind(
        "too-many-requests",
        429,
        _("Too many requests"),
        "The hub takes only so many requests of one partner in a minute. Wait for as long as Retry-After says.",
        retryable=True,
    ),
    Kind(
        "repeated-too-fast",
        429,
        _("Repeated too fast"),
        "The hub looks at only so many copies of one request in a minute. The answers to earlier copies stay valid;"
        " repeat it, with the same id, after Retry-After.",
        retryable=True,
    ),
    Kind(
        "busy",
        503,
        _("Too many requests at once"),
        "Too many credentials that the hub has not checked yet came at once. Repeat the request, with the same id, "
        "after Retry-After.",
        retryable=True,
    ),
    Kind(
        "agreement-not-in-force",
        403,
        _("Agreement not in force"),
        "The agreement was disabled, or never activated. Ask the hub's operators.",
    ),
    Kind("unknown-agreement", 404, _("No such agreement"), "The path names no agreement for requests of this kind."),
    Kind("unknown-path", 404, _("No such path"), "Requests go to /exchange/<agreement>/."),
    Kind("unknown-problem", 404, _("No such problem"), "GET /problems/ lists all that there are."),
    Kind("method-not-allowed", 405, _("Method not allowed"), "The Allow header names the methods of this path."),
    Kind(
        "body-too-slow",
        408,
        _("Body too slow"),
        "The body came more slowly than the hub waits for. Repeat the request, with the same id.",
        retryable=True,
    ),
    Kind("body-too-large", 413, _("Body too large"), "The body is larger than this hub takes."),
    Kind("message-too-large", 413, _("Larger than agreed"), "The body is larger than the agreement allows."),
    Kind(
        "header-missing",
        400,
        _("Request not identified"),
        "Give the headers that identify the request, the same ones with every copy of it.",
    ),
    Kind(
        "malformed-body", 400, _("Body cannot be read"), "The body ended early, or its chunks are not as HTTP has them."
    ),
    Kind("malformed-id", 400, _("Id not valid"), "An id is 1 to 96 printable ASCII characters."),
    Kind(
        "malformed-date", 400, _("First-instance time not valid"), "It is written as `Tue, 26 Mar 2019 16:06:51 GMT`."
    ),
    Kind("repeated-header", 400, _("Identified twice"), "Each header that identifies the request may come once."),
    Kind(
        "malformed-idempotency-key",
        400,
        _("Idempotency-Key not valid"),
        "It is one string in double quotes (RFC 8941), of 1 to 96 printable ASCII characters.",
    ),
    Kind("malformed-header", 400, _("Header not valid"), "One of the RM- headers is too long or cannot be read."),
    Kind(
        "service-not-named",
        400,
        _("Service not named"),
        "The agreement covers several services or actions: name one with RM-Service and RM-Action.",
    ),
    Kind("outside-agreement", 400, _("Outside the agreement"), "The agreement does not cover this service and action."),
    Kind(
        "first-sent-differs",
        400,
        _("Other first-instance time"),
        "The id was used before with another first-instance time. A repeat carries the same one as the first copy.",
    ),
    Kind(
        "content-differs",
        400,
        _("Other content under the same id"),
        "The id was used before for another request. Give every new request a new id.",
    ),
    Kind("batch-not-repeatable", 400, _("Batches are not repeatable"), "Send each request by itself, with its own id."),
    Kind(
        "in-work",
        409,
        _("Still in progress"),
        "The first copy is still being worked on. Repeat the request after Retry-After.",
        retryable=True,
    ),
    Kind(
        "outside-memory-window",
        412,
        _("Outside the memory window"),
        "The first-instance time is before the time from which ids are remembered, so nobody can say whether the"
        " request was executed. Find that out by other means before you send it under a new id.",
    ),
    Kind(
        "first-sent-in-future",
        412,
        _("First-instance time in the future"),
        "The first-instance time is further ahead of this hub's clock than the agreement allows. Compare the clocks.",
    ),
    Kind(
        "in-doubt",
        412,
        _("In doubt"),
        "Whether the first copy was executed is not known, and it is not executed again before a person has found out.",
    ),
    Kind(
        "forgotten-by-request",
        412,
        _("Answer deleted"),
        "You had the answer to this request deleted. It was executed, and is not executed again.",
    ),
    Kind("application-failed", 500, _("Application failed"), "The application failed and undid what it had done."),
    Kind(
        "not-repeatable",
        501,
        _("Not repeatable"),
        "This operation cannot be repeated safely here, and was not executed. Leave the headers off, or change it.",
    ),
    Kind(
        "no-application",
        503,
        _("No application"),
        "No application is there to answer this request. Nothing was stored.",
        retryable=True,
    ),
    Kind(
        "not-routed",
        404,
        _("No route to the receiver"),
        "RM-To names a party to which no route leads from here, or to which this request cannot be passed on.",
    ),
    Kind(
        "way-onward-shut",
        503,
        _("The next hop is suspended"),
        "The next hop to the party of RM-To accepts nothing now. Nothing was stored. Repeat it after Retry-After.",
        retryable=True,
    ),
    Kind(
        "application-not-ready",
        503,
        _("Application not ready"),
        "The application cannot take the request now, and has not executed it. Repeat it after Retry-After.",
        retryable=True,
    ),
    Kind(
        "unavailable",
        503,
        _("Not available now"),
        "The hub cannot store anything now. Repeat the request, with the same id, after Retry-After.",
        retryable=True,
    ),
    Kind(
        "overloaded",
        503,
        _("Too many large bodies"),
        "The hub works on as many large bodies as it has room for. Repeat the request, with the same id, after "
        "Retry-After.",
        retryable=True,
    ),
)
PROBLEMS: Mapping[str, Kind] = {row.code: row for row in _ROWS}


def markdown() -> str:
    """The table of docs/repeatable-requests.md."""
    lines = ["| code | status | again | meaning, and what to do |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{row.code}` | {row.status} | {'yes' if row.retryable else 'no'} | **{row.title}.** {row.meaning} |"
        for row in _ROWS
    ]
    return "\n".join(lines) + "\n"
