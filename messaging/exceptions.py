"""What a caller of a service did wrong, in terms that a screen, the API and a command can show.

ApplicationError            code, sentence, optional field
+-- NotFound
+-- InvalidSubmission       one field or more
|   +-- DoesNotFit          a document, its schema
|   +-- PayloadRefused      one of several documents
+-- OutsideAgreement
+-- TooLarge
+-- DuplicateMessageId      names the message that has the id
+-- IdempotencyMismatch
+-- TooManyTransactions     the caller has to end some of its own first
+-- TooManyUploads          likewise
+-- WrongOffset             the part of an upload does not go on where the upload is
+-- WrongState              the machine refuses the verb in this state
|   +-- UnderWay            only what waits was meant, and it waits no more
+-- Stale                   somebody else was faster
"""

from __future__ import annotations

import uuid

from messaging.protocol.errors import RmhubError


class ApplicationError(RmhubError):
    """Base: `code` is stable (docs/api-problems.md), `detail` a sentence that says what to do."""

    code = "application_error"

    def __init__(self, detail: str, *, code: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code


class NotFound(ApplicationError):
    code = "not_found"


class InvalidSubmission(ApplicationError):
    """`errors`: field -> sentences."""

    code = "invalid_submission"

    def __init__(self, errors: dict[str, list[str]]) -> None:
        super().__init__("; ".join(f"{field}: {' '.join(map(str, texts))}" for field, texts in errors.items()))
        self.errors = errors


class DoesNotFit(InvalidSubmission):
    """A document does not fit the schema of its service and action."""


class PayloadRefused(InvalidSubmission):
    """A document cannot be taken. `position`: from 0. `member`: what is said of it that is wrong, and `fault` how."""

    def __init__(self, position: int, member: str, fault: str, sentence: str) -> None:
        super().__init__({"payloads": [sentence]})
        self.position = position
        self.member = member
        self.fault = fault
        self.sentence = sentence


class OutsideAgreement(ApplicationError):
    code = "outside_agreement"


class TooLarge(ApplicationError):
    code = "message_too_large"


class DuplicateMessageId(ApplicationError):
    code = "duplicate_message_id"

    def __init__(self, detail: str, *, existing: uuid.UUID) -> None:
        super().__init__(detail)
        self.existing = existing


class IdempotencyMismatch(ApplicationError):
    code = "idempotency_key_reused"


class QueueFull(ApplicationError):
    code = "pair_queue_full"


class TooManyTransactions(ApplicationError):
    code = "too_many_transactions"


class TooManyUploads(ApplicationError):
    code = "too_many_uploads"


class WrongOffset(ApplicationError):
    """`offset`: where the upload is."""

    code = "upload_offset_mismatch"

    def __init__(self, detail: str, *, offset: int) -> None:
        super().__init__(detail)
        self.offset = offset


class WrongState(ApplicationError):
    code = "wrong_state"

    def __init__(self, detail: str, *, state: str, allowed: tuple[str, ...] = (), code: str = "") -> None:
        super().__init__(detail, code=code)
        self.state = state
        self.allowed = allowed


class UnderWay(WrongState):
    """The message may be with the partner already, and its caller meant one that was never sent."""


class Stale(ApplicationError):
    code = "stale"

    def __init__(self, detail: str, *, version: int) -> None:
        super().__init__(detail)
        self.version = version
