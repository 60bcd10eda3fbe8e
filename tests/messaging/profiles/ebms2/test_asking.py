"""Ping and StatusRequest: what we ask a partner's ebXML 2.0 service, and what its answers lead to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from messaging.choices import PartnerAnswer, SignalKind, SignalState
from messaging.exceptions import WrongState
from messaging.journal.audit import Actor
from messaging.messages.services import inquiries
from messaging.models import Message, Signal, StatusInquiry
from messaging.profile import terms_in_force
from messaging.profiles.ebms2 import asking
from messaging.protocol.codecs import ebms2
from messaging.protocol.envelope import Ebms2Kind, Envelope, MessageStatus
from messaging.transports import Parcel, Receipt, http
from rmhub import clock
from tests.messaging.factories import TAKEN, link, submit, work
from tests.messaging.profiles.ebms2.partner import Ebms2Side, decoded, ebms2_side, responding

pytestmark = pytest.mark.django_db
ANN = Actor("ann")


@pytest.fixture
def sent() -> tuple[Ebms2Side, Message]:
    partner = ebms2_side()
    message = submit(partner)
    with link():
        work()
    return partner, Message.objects.get(pk=message.pk)


def answers(monkeypatch: pytest.MonkeyPatch, receipt: Receipt | Envelope) -> list[Parcel]:
    """What is POSTed to the partner from now on, each answered with this."""
    asked: list[Parcel] = []

    def send(parcel: Parcel) -> Receipt:
        asked.append(parcel)
        return responding(receipt) if isinstance(receipt, Envelope) else receipt

    monkeypatch.setattr(http, "send", send)
    return asked


def status(message: Message, word: MessageStatus, partner: Ebms2Side) -> Envelope:
    """The partner's StatusResponse about a message of ours."""
    about = partner.envelope(message.message_id)
    question = ebms2.status_request(about, message_id="q", timestamp=clock.now())
    return ebms2.status_response(question, word, message_id="s", timestamp=clock.now(), received=clock.now())


@pytest.mark.parametrize("word", [MessageStatus.PROCESSED, MessageStatus.NOT_RECOGNIZED])
def test_the_partner_is_asked_in_its_own_words(
    monkeypatch, sent: tuple[Ebms2Side, Message], word: MessageStatus
) -> None:
    partner, message = sent
    asked = answers(monkeypatch, status(message, word, partner))
    found = inquiries.ask(message_id=message.pk, actor=ANN)
    assert found.answer == PartnerAnswer[word.name]
    question = decoded(asked[0])
    assert question.ebms is not None
    assert question.ebms.status is not None
    assert (question.ebms.kind, question.ebms.sync_reply) == (Ebms2Kind.STATUS_REQUEST, True)
    assert question.ebms.status.ref_to_message_id == message.message_id
    assert asked[0].address == partner.terms.partner_address


def test_an_answer_that_comes_by_itself_answers_the_last_question(monkeypatch, sent: tuple[Ebms2Side, Message]) -> None:
    partner, message = sent
    answers(monkeypatch, TAKEN)
    found = inquiries.ask(message_id=message.pk, actor=ANN)
    assert (found.answer, found.cause) == (PartnerAnswer.NO_ANSWER, asking.LATER)
    for expected in (SignalState.MATCHED, SignalState.IGNORED):
        partner.bring(status(message, MessageStatus.RECEIVED, partner))
        assert Signal.objects.filter(kind=SignalKind.STATUS).latest("created_at").state == expected
    assert StatusInquiry.objects.get().answer == PartnerAnswer.RECEIVED


def test_an_answer_about_another_message_is_none(monkeypatch, sent: tuple[Ebms2Side, Message]) -> None:
    partner, message = sent
    other = replace(partner.envelope("another"))
    question = ebms2.status_request(other, message_id="q", timestamp=clock.now())
    answers(
        monkeypatch, ebms2.status_response(question, MessageStatus.PROCESSED, message_id="s", timestamp=clock.now())
    )
    assert inquiries.ask(message_id=message.pk, actor=ANN).cause == "answer_unreadable"


def test_what_was_never_sent_is_not_asked_about() -> None:
    message = submit(ebms2_side())
    with pytest.raises(WrongState, match="never sent"):
        inquiries.ask(message_id=message.pk, actor=ANN)


def test_a_pong_answers_a_ping_and_nothing_else_does(sent: tuple[Ebms2Side, Message]) -> None:
    partner, _ = sent
    terms = terms_in_force(partner.outbound)
    assert terms is not None
    words = asking.ping(terms, clock.now())
    ping = ebms2.decode(words.content_type, words.body)
    assert ping.ebms is not None
    assert ping.ebms.kind is Ebms2Kind.PING
    pong = ebms2.pong(ping, message_id="p", timestamp=clock.now())
    error = ebms2.error_message(ping, (partner.fault(),), message_id="e", timestamp=clock.now())
    assert asking.ponged(responding(pong)) == ""
    assert asking.ponged(responding(error)).startswith("The partner answers with an error")
    assert "message of its own" in asking.ponged(TAKEN)


def test_what_asks_for_a_signed_acknowledgement_is_refused() -> None:
    partner = ebms2_side()
    wants = replace(partner.reliable(), ack_requests=(partner.signed(),), sync_reply=True)
    answer = decoded(partner.bring(partner.business("m1", ebms=wants)))
    assert answer.error is not None
    assert answer.error.code == "NotSupported"
    assert not Message.objects.exists()
