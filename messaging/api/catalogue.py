"""Every error that the API can answer: one row a code. docs/api-problems.md and GET /api/v1/problems are this table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of problem. `code` is stable; `retryable`: the same request may succeed later without being changed."""

    code: str
    status: int
    title: str
    meaning: str
    retryable: bool = False

    @property
    def type(self) -> str:
        """The `type` member: a reference, relative to the hub, to this row."""
        return f"/api/v1/problems/{self.code.replace('_', '-')}"


_ROWS = (
    Code("malformed_body", 400, "Body cannot be read", "The body is not valid JSON or multipart. Correct it."),
    Code("invalid_parameter", 400, "Parameter not valid", "A query parameter has an invalid value."),
    Code("unknown_parameter", 400, "Parameter not known", "A query parameter does not exist here. Check its spelling."),
    Code(
        "invalid_cursor",
        400,
        "Cursor not valid",
        "The cursor is damaged, or not one of this hub. Start again without one.",
    ),
    Code("invalid_header", 400, "Header not valid", "A request header has an invalid value."),
    Code(
        "idempotency_key_missing",
        400,
        "Idempotency-Key missing",
        "Submissions need an Idempotency-Key, so that a repeat after a broken connection stores nothing twice.",
    ),
    Code("bad_request", 400, "Request refused", "The request as a whole is suspicious, e.g. its Host header."),
    Code(
        "not_authenticated",
        401,
        "Not authenticated",
        "Send `Authorization: Bearer rmh_live_...`, or log in to the console.",
    ),
    Code(
        "invalid_token", 401, "Token not valid", "The token is mistyped, unknown, or its owner is not active any more."
    ),
    Code("token_expired", 401, "Token expired", "Create a new token; several may be valid at once."),
    Code("token_revoked", 401, "Token revoked", "Somebody revoked this token. Use another."),
    Code(
        "address_not_allowed",
        403,
        "Not from this address",
        "The token may be used only from its `networks`. Use it there, or create another.",
    ),
    Code("missing_scope", 403, "Scope missing", "The token, or its owner's role, lacks the scope in `required_scope`."),
    Code(
        "limited_access",
        403,
        "Concerns all partners",
        "The caller is limited to the partners of some groups, and this cannot be separated by partner.",
    ),
    Code(
        "payload_masked",
        403,
        "Parts of it are covered",
        "Rules for payloads cover parts of this document for your role. With `masked=true` a payload comes with those "
        "parts covered; its own octets need the role that `detail` names.",
    ),
    Code("csrf_failed", 403, "CSRF check failed", "With a console session, send its CSRF token in X-CSRFToken."),
    Code("forbidden", 403, "Not allowed", "This is not allowed."),
    Code("not_found", 404, "Not found", "There is no such thing, or no such path."),
    Code("wire_not_prepared", 404, "No octets yet", "The message was not sent yet; its octets are made when it is."),
    Code("method_not_allowed", 405, "Method not allowed", "The Allow header names the methods of this path."),
    Code("not_acceptable", 406, "Not acceptable", "Answers are JSON: send `Accept: application/json`, or none."),
    Code(
        "wrong_state", 409, "Not possible in this state", "`current_state` and `allowed_actions` say what is possible."
    ),
    Code(
        "already_settled",
        409,
        "Settled already",
        "Somebody settled it before, and it is settled once only. Read it again to see how.",
    ),
    Code(
        "copy_in_work",
        409,
        "A copy is being processed",
        "Another copy of the document is being processed by the trigger. Wait for its end, then decide again.",
        retryable=True,
    ),
    Code(
        "copy_completed",
        409,
        "A copy has been processed",
        "Another copy of the document has been processed meanwhile: settle this one as a duplicate.",
    ),
    Code(
        "lease_over",
        409,
        "Lease expired",
        "The claim names a hand-over that is not yours any more: its lease ran out, or it has ended otherwise. "
        "Undo or ignore what you did, and take what the queue hands out.",
    ),
    Code(
        "pair_not_drained",
        409,
        "The agreement is still in use",
        "What the version changes can be changed only when no message of the agreement is on its way, and no open "
        "transaction has somebody who takes part under it. `detail` says which it is, and what to do.",
    ),
    Code(
        "too_many_transactions",
        409,
        "Too many open transactions",
        "The caller has begun as many transactions that have not ended as it may have at once. Commit or roll back "
        "some; those that nobody ends are rolled back when their time is over.",
        retryable=True,
    ),
    Code(
        "too_many_uploads",
        409,
        "Too many open uploads",
        "The caller has begun as many uploads that no message has used as it may have at once. Submit or delete some; "
        "those that nobody goes on with are deleted after a day.",
        retryable=True,
    ),
    Code(
        "upload_offset_mismatch",
        409,
        "The upload is elsewhere",
        "The part does not go on where the upload is, or another part is being written. `offset` says where it is: go "
        "on from there.",
    ),
    Code(
        "not_a_pull_queue",
        409,
        "No pull queue",
        "The hub itself brings the documents of this trigger to the application: nobody takes them.",
    ),
    Code("agreement_missing", 409, "No agreement in force", "No active agreement uses this pair. Activate one first."),
    Code(
        "duplicate_message_id",
        409,
        "MessageId taken",
        "A message with this MessageId was submitted before; `existing` links to it. A MessageId goes out once.",
    ),
    Code(
        "ambiguous_message_id",
        409,
        "MessageId is not unique",
        "Several messages have this MessageId. Look for it with `q`, and use the id of the one that you mean.",
    ),
    Code(
        "gone",
        410,
        "Not in the store any more",
        "The message has left the store. If it was archived, `existing` leads to what the archive knows of it.",
    ),
    Code("length_required", 411, "Length required", "Send the body with a Content-Length."),
    Code("stale", 412, "Changed meanwhile", "Somebody changed it since you read it. Read it again, then decide again."),
    Code(
        "body_too_slow",
        408,
        "Body too slow",
        "The body came more slowly than the hub waits for; `detail` says how fast it must come. Send it again.",
        retryable=True,
    ),
    Code("message_too_large", 413, "Message too large", "The payloads are larger than hub or agreement allow."),
    Code("body_too_large", 413, "Body too large", "The body is larger than this path takes; `detail` says how much."),
    Code("unsupported_media_type", 415, "Media type not supported", "Send application/json (or multipart/form-data)."),
    Code("range_not_satisfiable", 416, "Range not satisfiable", "The range begins behind the end of the octets."),
    Code("invalid_submission", 422, "Values not valid", "`errors` says which fields, and what to do."),
    Code(
        "cursor_mismatch", 422, "Cursor of another list", "Filters, sort or path changed. Start again without a cursor."
    ),
    Code(
        "idempotency_key_reused", 422, "Idempotency-Key used before", "Another submission has this key. Use a new one."
    ),
    Code("unknown_agreement", 422, "Agreement not active", "No agreement with this TPAId is in force."),
    Code(
        "outside_agreement", 422, "Outside the agreement", "The agreement does not let us send this service and action."
    ),
    Code("agreement_invalid", 422, "Agreement contradicts itself", "Correct what `errors` names, then activate again."),
    Code(
        "query_too_broad",
        422,
        "Search too broad",
        "The search took too long. Narrow it by pair, partner or time, or look for an exact id with `q`.",
    ),
    Code("precondition_required", 428, "If-Match required", "Read the item, and send its ETag in If-Match."),
    Code(
        "pair_queue_full",
        429,
        "The pair's queue is full",
        "As many messages wait in this pair as the hub keeps for one (RMHUB_PAIR_QUEUE). Nothing was stored: submit "
        "the same again, with the same Idempotency-Key, when the pair sends again.",
        retryable=True,
    ),
    Code("too_many_requests", 429, "Too many requests", "Wait for as long as Retry-After says.", retryable=True),
    Code(
        "internal_error",
        500,
        "Error in the hub",
        "An error in the hub. Give its operators the `request_id`.",
        retryable=True,
    ),
    Code(
        "unavailable",
        503,
        "Not available now",
        "The hub cannot reach its database. Repeat after Retry-After.",
        retryable=True,
    ),
    Code(
        "store_full",
        507,
        "Payload store full",
        "The hub's payload store is full. Nothing was taken: repeat after Retry-After, under the same Idempotency-Key. "
        "The hub's operators have to free space.",
        retryable=True,
    ),
    Code(
        "unhealthy",
        503,
        "This web server accepts nothing now",
        "The database or the payload store does not take what comes: `parts` and `checks` say which, and since when.",
        retryable=True,
    ),
    Code(
        "overloaded",
        503,
        "Too many large bodies",
        "The hub works on as many large bodies as it has room for. Repeat after Retry-After.",
        retryable=True,
    ),
    Code(
        "payload_missing",
        503,
        "Payload file missing",
        "The store folder lacks a file that the database names: restore it.",
    ),
)
CODES: dict[str, Code] = {row.code: row for row in _ROWS}
