"""Asking a partner's messaging service what became of a message: evidence for what is in doubt.

A profile that has words for the question asks in them (`Profile.inquiry`). Else it is GET `{service address}status?
message-id=...` with our credential; the words of the answer are those of ebXML Message Service 2.0, 7.1
(docs/partner-services.md). Three steps: what to ask is read, the partner is asked with no transaction open, and the
answer is stored. A question changes nothing on either side.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from django.db import transaction
from django.utils.translation import gettext as _

from messaging import profile
from messaging.choices import Direction, PartnerAnswer
from messaging.engine import circuits
from messaging.exceptions import ApplicationError, NotFound, WrongState
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import Message, StatusInquiry
from messaging.profile import Outgoing, Profile
from messaging.transports import Parcel, Receipt, http
from messaging.transports.base import MAX_ANSWER, printable, server_of
from partners import registry
from partners.secrets import SecretUnreadable
from partners.transports import HTTP
from rmhub import clock
from rmhub.ids import public_id
from rmhub.postgresql.base import give_back

log = logging.getLogger(__name__)

CONNECT_SECONDS, READ_SECONDS = 5, 10
AT_ONCE = 8
MAX_ADDRESS = 500  # as much of an address as is stored
_WORDS: Mapping[str, PartnerAnswer] = {
    answer.value.replace("_", ""): answer for answer in PartnerAnswer if answer != PartnerAnswer.NO_ANSWER
}


@dataclass(frozen=True, slots=True)
class Question:
    """One message and how its partner is asked about it. `speaks`: the profile that has words for it; None = the
    partner's status service is asked.
    """

    message: Message
    parcel: Parcel
    speaks: Profile | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, as it is stored. `cause`: why there was no answer (docs/causes.md)."""

    answer: PartnerAnswer
    detail: str = ""
    cause: str = ""
    receipt: Receipt | None = None


def ask(*, message_id: uuid.UUID, actor: Actor, reason: str = "") -> StatusInquiry:
    """Asks the partner about one of our messages, at most 15 s long. Call it outside of any transaction.

    Whatever the network does is an answer (`no_answer` with its cause), and stored. Raises NotFound, WrongState for a
    message that was never sent, or when the partner has no such service.
    """
    found = ask_many(message_ids=[message_id], actor=actor, reason=reason)[message_id]
    if isinstance(found, ApplicationError):
        raise found
    return found


def ask_many(
    *, message_ids: Collection[uuid.UUID], actor: Actor, reason: str = ""
) -> dict[uuid.UUID, StatusInquiry | ApplicationError]:
    """The same for several messages, `AT_ONCE` at a time; for each the stored answer, or why it could not be asked."""
    now = clock.now()
    found: dict[uuid.UUID, StatusInquiry | ApplicationError] = {}
    questions: list[Question] = []
    known = _messages(message_ids)
    for key in message_ids:
        try:
            questions.append(_question(key, known.get(key), now))
        except ApplicationError as error:
            found[key] = error
    give_back()
    if len(questions) == 1:
        answers = [_asked(questions[0])]
    elif questions:
        with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(questions))) as threads:
            answers = list(threads.map(_asked, questions))
    else:
        answers = []
    for question, answer in zip(questions, answers, strict=True):
        found[question.message.pk] = _record(question, answer, now, actor, reason)
    return found


def can_ask(message: Message) -> str:
    """What is in the way of asking about a message, "" when nothing is. Reads its agreement's endpoint."""
    if message.direction != Direction.OUT:
        return _("It came from the partner.")
    if not message.attempts:
        return _("It was never sent.")
    endpoint = message.agreement_version.partner_endpoint
    if not endpoint.service_address and (endpoint.transport != HTTP.name or _words(message) is None):
        return _("The partner has no status service: its endpoint says where one is.")
    return ""


def _words(message: Message) -> Outgoing | None:
    """How the message's own protocol asks about it."""
    terms = registry.current().version(message.agreement_version_id)
    return profile.of(terms).inquiry(message, terms, clock.now()) if terms.transport == HTTP.name else None


def _messages(keys: Collection[uuid.UUID]) -> dict[uuid.UUID, Message]:
    rows = Message.objects.filter(pk__in=list(keys)).select_related("agreement_version__partner_endpoint", "pair")
    return {message.pk: message for message in rows.defer("wire_frame")}


def _question(key: uuid.UUID, message: Message | None, now: datetime) -> Question:
    if message is None:
        raise NotFound(_("There is no message {message}.").format(message=public_id("msg", key)))
    why_not = can_ask(message)
    if why_not:
        said = _("The partner cannot be asked about this message. {why_not}").format(why_not=why_not)
        raise WrongState(said, state=message.state)
    terms = registry.current().version(message.agreement_version_id)
    authorization = certificate = ""
    try:
        # A log-in for a mail or file server is for that server, and shown to nobody else.
        if terms.transport == HTTP.name:
            authorization = registry.current().outbound_authorization(terms.hop_party_id, now)
        certificate = registry.current().outbound_certificate(terms.hop_party_id, now)
    except SecretUnreadable:
        log.exception("credential unreadable", extra={"action": "credential_unreadable", "partner": terms.partner_name})
    base = message.agreement_version.partner_endpoint.service_address
    words = _words(message)
    parcel = Parcel(
        address=terms.partner_address
        if words is not None
        else f"{base.rstrip('/')}/status?message-id={quote(message.message_id, safe='')}",
        content_type=words.content_type if words is not None else "",
        body=words.body if words is not None else b"",
        authorization=authorization,
        connect_timeout=min(terms.connect_timeout, CONNECT_SECONDS),
        read_timeout=min(terms.read_timeout, READ_SECONDS),
        headers=words.headers if words is not None else (("Accept", "application/json"),),
        answer_bytes=MAX_ANSWER,
        trusted_certificates=terms.trusted_certificates,
        client_certificate=certificate,
    )
    return Question(message, parcel, profile.of(terms) if words is not None else None)


def _asked(question: Question) -> Answer:
    """No database here: it runs in threads of its own."""
    receipt = http.get(question.parcel) if question.speaks is None else http.send(question.parcel)
    if receipt.status in (401, 403):
        return Answer(PartnerAnswer.UNAUTHORIZED, "The partner does not take our credential.", receipt=receipt)
    if not receipt.ok:
        return Answer(PartnerAnswer.NO_ANSWER, receipt.detail, receipt.cause, receipt)
    message_id = question.message.message_id
    if question.speaks is None:
        return _read(receipt, message_id)
    word, detail, cause = question.speaks.said_of(receipt, message_id)
    return Answer(word, printable(detail), cause, receipt)


def _read(receipt: Receipt, message_id: str) -> Answer:
    """The word of an answer: `not_recognized`, and NotRecognized as ebXML writes it, mean the same."""
    unreadable = "answer_unreadable"
    if not receipt.complete or len(receipt.response) >= MAX_ANSWER:
        return Answer(PartnerAnswer.NO_ANSWER, "What came is cut off, or too long for a status.", unreadable, receipt)
    body = receipt.response.partition(b"\r\n\r\n")[2]
    try:
        told = json.loads(body.decode())
    except (ValueError, RecursionError):
        return Answer(PartnerAnswer.NO_ANSWER, "What came is not JSON.", unreadable, receipt)
    said = told.get("status") if isinstance(told, dict) else None
    if not isinstance(said, str):
        return Answer(PartnerAnswer.NO_ANSWER, "What came has no status.", unreadable, receipt)
    word = _WORDS.get(said.lower().replace("_", "").replace("-", "").replace(" ", ""))
    if word is None:
        return Answer(
            PartnerAnswer.NO_ANSWER, f"The status {printable(said[:80])!r} is not one of five.", unreadable, receipt
        )
    about = told.get("message_id", message_id)
    if about != message_id:
        return Answer(PartnerAnswer.NO_ANSWER, "What came is about another message.", unreadable, receipt)
    detail = told.get("detail", "")
    return Answer(word, printable(detail[:500]) if isinstance(detail, str) else "", receipt=receipt)


def _record(question: Question, answer: Answer, asked_at: datetime, actor: Actor, reason: str) -> StatusInquiry:
    receipt = answer.receipt
    heard = receipt is not None and receipt.status is not None
    with transaction.atomic(durable=True):
        made = StatusInquiry.objects.create(
            message=question.message,
            answer=answer.answer,
            detail=answer.detail,
            cause=answer.cause,
            address=question.parcel.address[:MAX_ADDRESS],
            http_status=receipt.status if receipt is not None else None,
            response=receipt.response if receipt is not None and heard else None,
            actor=actor.name[:150],
            asked_at=asked_at,
            answered_at=clock.now() if heard else None,
        )
        after: dict[str, object] = {"inquiry": made.public_id, "answer": made.answer}
        if made.cause:
            after["cause"] = made.cause
        audit.record(actor, "message.ask_partner", question.message, reason=reason, after=after)
    if heard:
        circuits.answered(server_of(question.parcel.address))
    return made
