"""Our own sender against our own entrance: two agreements of one hub, and a wire between that loses answers."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator

import pytest
from django.test import Client

from messaging.choices import Direction
from messaging.engine.claiming import claim_due
from messaging.models import Message, Payload, Transmission
from messaging.profiles.repeatable import replies
from messaging.transports import Parcel, Receipt
from messaging.transports.http import status_cause
from partners import registry
from partners.models import AgreementVersion
from rmhub.clock import FrozenClock, frozen
from tests.messaging.factories import LOST, PartnerSide, link, partner_side, submit, work
from tests.messaging.profiles.repeatable.callers import ORDERS, Caller, T, application, caller, remembering_since
from tests.partners.factories import make_outbound_credential

pytestmark = pytest.mark.django_db


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[FrozenClock]:
    monkeypatch.setattr(replies, "jitter", lambda: 1.0)
    with frozen(T) as clock:
        remembering_since(T.replace(month=1))
        yield clock


def entrance(parcel: Parcel) -> Receipt:
    """The other hub's view, asked like by HTTP."""
    headers = {**dict(parcel.headers), "Authorization": parcel.authorization}
    path = parcel.address.removeprefix("https://receiver.example")
    answer = Client().generic("POST", path, parcel.body, parcel.content_type, headers=headers)
    ok = 200 <= answer.status_code < 300
    return Receipt(
        ok=ok,
        status=answer.status_code,
        cause="" if ok else status_cause(answer.status_code),
        response=b"HTTP\r\n\r\n" + answer.content,
        retry_after=int(answer["Retry-After"]) if answer.has_header("Retry-After") else None,
        headers=tuple(answer.items()),
    )


def two_hubs(**terms: object) -> tuple[PartnerSide, Caller]:
    """We as the sender, and the other hub with the agreement under which it receives from us."""
    receiving = caller(tpa_id="tpa:receiving", **terms)
    scheme, _, secret = receiving.authorization.partition(" ")
    assert scheme == "Basic"
    sending = partner_side(
        profile="repeatable", partner_uri=f"https://receiver.example{receiving.path}", partner_window=7200, **terms
    )
    username, _, password = base64.b64decode(secret).decode().partition(":")
    party = AgreementVersion.objects.get(pk=sending.terms.version_id).agreement.partner
    make_outbound_credential(party, username=username, secret=password)
    registry.reset()
    return sending, receiving


def received() -> list[Message]:
    return list(Message.objects.filter(direction=Direction.IN).order_by("position"))


def test_one_way_messages_arrive_once_whatever_becomes_of_the_answers(time: FrozenClock) -> None:
    sending, _ = two_hubs()
    turns = itertools.count()

    def flaky(parcel: Parcel) -> Receipt:
        answer = entrance(parcel)
        return LOST if next(turns) % 3 else answer

    messages = [submit(sending, b"<Order n='%d'/>" % number, conversation_id="c-ü%20") for number in range(6)]
    with link(flaky):
        for _ in range(12):
            work()
            time.move(160)
    assert {message.state for message in Message.objects.filter(direction=Direction.OUT)} == {"delivered"}
    got = received()
    assert sorted(message.message_id for message in got) == sorted(message.message_id for message in messages)
    assert {message.conversation_id for message in got} == {"c-ü%20"}
    assert {(message.service, message.action) for message in got} == {(ORDERS, "NewOrder")}
    contents = sorted(bytes(payload.content) for payload in Payload.objects.filter(message__in=got))
    assert contents == [b"<Order n='%d'/>" % number for number in range(6)]
    assert {message.first_sent_at for message in got} == {T}
    assert sum(message.copies for message in got) == Transmission.objects.count() - 6 > 0


def test_the_answer_of_a_synchronous_application_is_kept_with_the_attempt_that_brought_it(time: FrozenClock) -> None:
    sending, _ = two_hubs(exchange_mode="synchronous")
    with application() as app, link(lambda parcel: (entrance(parcel), LOST)[1]) as wire:
        message = submit(sending)
        work()
        wire.answer = entrance
        time.move(20)
        work()
        assert app.executions == 1
    message.refresh_from_db()
    assert message.state == "delivered"
    last = Transmission.objects.filter(message=message).latest("number")
    assert bytes(last.response).endswith(b'{"executions": 1}')


def test_g31_a_copy_that_comes_after_the_window_is_refused_and_never_executed_twice(time: FrozenClock) -> None:
    """The sender stops before; a copy that a network held back is turned away by the receiver."""
    sending, _ = two_hubs()
    submit(sending)
    [job] = claim_due(limit=10)
    assert entrance(job.parcel).status == 202
    time.move(7201)
    late = entrance(job.parcel)
    assert (late.status, dict(late.headers)["Repeatability-Result"]) == (412, "rejected")
    assert len(received()) == 1
