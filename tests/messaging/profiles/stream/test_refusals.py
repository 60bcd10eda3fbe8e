"""What partners send in streams and we refuse: early, outside of the agreement (M33), for want of room (M34)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from messaging.entrance.refusals import Answer, Arrival
from messaging.entrance.urls import entrance_first
from messaging.models import (
    Delivery,
    Incident,
    IncomingStream,
    Message,
    Rejection,
    Signal,
)
from messaging.profiles.stream import accepting
from messaging.protocol.codecs.stream import StreamKind
from messaging.protocol.envelope import PartyId
from partners import registry, services
from partners.models import Agreement
from partners.terms import Presented
from tests.messaging.deliveries.stage import make_trigger
from tests.messaging.factories import link, partner_side, work
from tests.messaging.profiles.stream.partner import (
    GAP,
    TAKEN,
    A,
    StreamSide,
    decoded,
    finals,
    ids,
    items,
    post,
    stream_side,
)
from tests.partners.factories import basic, make_agreement, make_credential, make_party

pytestmark = pytest.mark.django_db


def test_m33_a_stream_to_what_takes_none_is_refused_and_no_counter_moves() -> None:
    partner = stream_side(semantics="BestEffort")
    assert partner.send(partner.message(1, "m1@p")) == TAKEN
    assert finals() == [("m1@p", "not_transactional_q")]
    assert (partner.state, ids()) == ((0, 0, 0), [])
    rejection = Rejection.objects.get()
    assert (rejection.reason, rejection.http_status) == ("stream_not_transactional_q", 202)
    with link() as wire:
        while work():
            pass
    [receipt] = [decoded(parcel) for parcel in wire.parcels]
    assert (receipt.kind, receipt.message_class, receipt.to) == (
        StreamKind.FINAL, 0x8009, partner.terms.partner_error_uri,
    )  # fmt: skip
    assert receipt.final is not None
    assert receipt.final.about == "m1@p"
    assert wire.last.address == partner.terms.partner_error_address


def test_m33_what_follows_a_refused_message_is_taken_when_it_is_bridged() -> None:
    partner = stream_side()
    assert partner.send(partner.message(1, "m1@p", service="urn:other")) == TAKEN
    assert finals() == [("m1@p", "bad_dst_q")]
    second = partner.message(2, "m2@p")
    assert partner.send(second) == GAP
    assert partner.send(partner.message(2, "m2@p", previous=0)) == TAKEN
    assert (partner.state, ids()) == ((A, 2, 0), ["m2@p"])


def test_m33_what_is_refused_anyhow_waits_for_no_predecessor() -> None:
    """It would hold a thread of the web server for nothing."""
    partner = stream_side()
    [item] = items(partner, partner.message(3, "m3@p", service="urn:other"))
    [outcome] = accepting.accept([replace(item, may_wait=True)])
    assert (outcome.status, finals()) == (202, [("m3@p", "bad_dst_q")])


def test_a_repeat_is_not_refused_when_the_agreement_has_changed_since() -> None:
    """Or its sender would count a message as failed that was delivered."""
    partner = stream_side(allowed=(("urn:orders", "NewOrder", "both"), ("urn:more", "*", "both")))
    arrival = partner.message(1, "m1@p")
    partner.send(arrival)
    agreement = Agreement.objects.get(tpa_id=partner.terms.tpa_id)
    version = services.version_new(agreement=agreement)
    services.version_edit(version=version, services=[("urn:more", "*", "both")])
    partner = replace(stream_side(services.version_activate(version=version)), presented=partner.presented)
    assert partner.send(arrival) == TAKEN
    assert (finals(), partner.inbound.duplicates) == ([], 1)


def test_m34_without_room_the_sequence_advances_and_the_message_is_never_taken() -> None:
    make_trigger(kind="pull")
    partner = stream_side(inbound_quota=2)
    for number in (1, 2, 3):
        assert partner.send(partner.message(number, f"m{number}@p")) == TAKEN
    assert (partner.state, ids(), finals()) == ((A, 3, 0), ["m1@p", "m2@p"], [("m3@p", "q_exceed_quota")])
    assert Incident.objects.get().cause == "inbound_quota"
    Delivery.objects.filter(message__message_id="m1@p").update(state="completed", due_at=None)
    assert partner.send(partner.message(3, "m3@p")) == TAKEN, "a repeat of what was refused permanently"
    assert partner.send(partner.message(4, "m4@p")) == TAKEN
    assert (partner.state, ids()) == ((A, 4, 0), ["m1@p", "m2@p", "m4@p"])
    assert len(finals()) == 1


def test_m34_the_quota_counts_what_the_same_group_brings() -> None:
    make_trigger(kind="pull")
    partner = stream_side(inbound_quota=2)
    accepting.accept(items(partner, *(partner.message(number, f"m{number}@p") for number in (1, 2, 3))))
    assert (partner.state, ids()) == ((A, 3, 0), ["m1@p", "m2@p"])


def wrong_password(partner: StreamSide) -> Presented:
    credential, _ = make_credential(make_party())
    return Presented(authorization=basic(credential.username, "not the password"))


REFUSED: dict[str, tuple[Callable[[StreamSide], Arrival], int, str]] = {
    "empty": (lambda p: replace(p.message(1), body=b""), 400, "not_mime"),
    "not xml": (lambda p: replace(p.message(1), content_type="text/xml", body=b"hello"), 400, "xml_not_well_formed"),
    "not soap": (lambda p: replace(p.message(1), content_type="text/xml", body=b"<a/>"), 400, "not_soap"),
    "an entity": (
        lambda p: replace(
            p.message(1), content_type="text/xml", body=b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'
        ),
        400,
        "dtd_forbidden",
    ),
    "no credential": (lambda p: replace(p.message(1), presented=Presented()), 401, "unauthenticated"),
    "wrong password": (lambda p: replace(p.message(1), presented=wrong_password(p)), 401, "unauthenticated"),
    "another URI": (lambda p: p.message(1, to="https://elsewhere.example/stream/x"), 404, "unknown_uri"),
    "another partner": (lambda p: replace(p.message(1), presented=stream_side().presented), 404, "unknown_uri"),
    "a partner without streams": (
        lambda p: replace(p.message(1), presented=partner_side().presented), 403, "unknown_agreement",
    ),
    "too large": (lambda p: p.message(1, content=b"x" * 4_200_000), 413, "message_too_large"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_message_of_an_agreement_is_refused_and_written_down(name: str) -> None:
    make, status, reason = REFUSED[name]
    partner = stream_side(max_message_bytes=1024)
    answer = post(make(partner))
    assert (answer.status_code, answer.content) == (status, b"")
    assert list(Rejection.objects.values_list("reason", "http_status")) == [(reason, status)]
    assert not Message.objects.exists()
    assert not Signal.objects.exists()
    assert not IncomingStream.objects.exists()


def test_an_agreement_that_is_disabled_is_named_in_the_refusal() -> None:
    partner = stream_side()
    other = Agreement.objects.get(tpa_id=partner.terms.tpa_id)
    stream_side(make_agreement(own_party=other.own_party, partner=other.partner, profile="stream"))
    services.agreement_disable(agreement=other)
    registry.reset()
    assert partner.send(partner.message(1)) == Answer(403)
    assert partner.terms.tpa_id in Rejection.objects.get().detail


OUTSIDE: dict[str, tuple[dict[str, Any], str]] = {
    "service": ({"service": "urn:other"}, "bad_dst_q"),
    "to party": ({"to_parties": (PartyId("999", "DUNS"),)}, "bad_dst_q"),
    "from party": ({"from_parties": (PartyId("999", "DUNS"),)}, "access_denied"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_the_agreement_does_not_cover_gets_a_final_receipt(name: str) -> None:
    changes, code = OUTSIDE[name]
    partner = stream_side()
    assert partner.send(partner.message(1, "m1@p", **changes)) == TAKEN
    assert (finals(), partner.state, ids()) == ([("m1@p", code)], (0, 0, 0), [])
    assert partner.inbound.rejected == 1


def test_without_our_own_block_the_agreement_s_only_service_is_meant() -> None:
    partner = stream_side(allowed=(("urn:orders", "NewOrder", "both"),))
    bare = {
        "service": "",
        "action": "",
        "agreement_id": "",
        "conversation_id": "",
        "from_parties": (),
        "to_parties": (),
    }
    assert partner.send(partner.message(1, "m1@p", **bare)) == TAKEN
    message = Message.objects.get()
    assert (message.service, message.action, message.conversation_id) == ("urn:orders", "NewOrder", "m1@p")
    several = stream_side(allowed=(("urn:orders", "NewOrder", "both"), ("urn:orders", "Change", "both")))
    assert several.send(several.message(1, "m2@p", **bare)) == TAKEN
    assert finals() == [("m2@p", "bad_dst_q")]


def test_the_door_answers_without_a_body() -> None:
    partner = stream_side()
    answer = post(partner.message(1))
    assert (answer.status_code, answer.content, answer["Content-Length"]) == (202, b"", "0")
    assert "Content-Type" not in answer
    answer = post(partner.message(3))
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    answer = post(replace(partner.message(4), presented=Presented()))
    assert answer["WWW-Authenticate"].startswith("Basic ")
    answer = Client().get("/stream/orders")
    assert (answer.status_code, answer["Allow"]) == (405, "POST")


def test_the_fast_way_past_the_middleware_leads_to_the_same_entrance() -> None:
    """What granian serves: the WSGI application that the partners' entrances have for themselves."""
    import io

    partner = stream_side()
    arrival = partner.message(1, "m1@p")
    answers: list[str] = []
    served = entrance_first(lambda environ, start: pytest.fail("not the partners' entrance"))
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/stream/orders",
        "CONTENT_TYPE": arrival.content_type,
        "CONTENT_LENGTH": str(len(arrival.body)),
        "HTTP_AUTHORIZATION": arrival.presented.authorization,
        "SERVER_NAME": "hub",
        "SERVER_PORT": "80",
        "wsgi.input": io.BytesIO(arrival.body),
    }
    body = b"".join(served(environ, lambda status, headers: answers.append(status)))
    assert (answers, body, ids()) == (["202 Accepted"], b"", ["m1@p"])


def test_a_body_beyond_the_hub_s_limit_is_not_read(settings) -> None:
    settings.RMHUB_MAX_MESSAGE_BYTES = 2048
    partner = stream_side()
    assert post(partner.message(1, content=b"x" * 4096)).status_code == 413
    assert Rejection.objects.get().reason == "body_too_large"


def test_who_guesses_is_let_wait() -> None:
    from messaging.entrance import authentication

    partner = stream_side()
    bad = replace(partner.message(1), presented=wrong_password(partner))
    for _ in range(authentication.FAILURES):
        assert partner.send(bad) == Answer(401)
    assert partner.send(bad) == Answer(429, 60)
    assert Rejection.objects.get().times == authentication.FAILURES
