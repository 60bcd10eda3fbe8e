"""Register through the real entrance (conformance T06 to T10, T57, T58)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from messaging.engine.preparing import stored_body
from messaging.exceptions import WrongState
from messaging.journal.audit import Actor
from messaging.models import Coordination, CoordinationMessage, Enlistment, Rejection
from messaging.profiles.wsat import opening
from messaging.profiles.wsat.asking import transaction_begin
from messaging.profiles.wsat.registering import enlistment_create
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Request, Seat
from messaging.protocol.ws.messages import EndpointReference, Fault, parameter
from partners import registry
from partners.choices import VersionState
from partners.models import AgreementVersion, Endpoint
from tests.messaging.profiles.wsat.kit import HUB, Peer, Place, coordination_of, peer

pytestmark = pytest.mark.django_db

NOBODY = ["http://www.w3.org/2005/08/addressing/anonymous", "http://www.w3.org/2005/08/addressing/none"]


def refused(one: Peer, message_id: str) -> list[FaultCode | None]:
    return [answer.fault for answer in one.answers_to(message_id)]


def test_t06_each_registration_has_an_endpoint_reference_of_its_own() -> None:
    app = peer()
    context = app.create()
    places = [app.register(context, protocol) for protocol in (*Protocol, Protocol.DURABLE)]
    assert [place.hub.address for place in places] == [
        f"{HUB}/completion",
        f"{HUB}/coordinator",
        f"{HUB}/coordinator",
        f"{HUB}/coordinator",
    ]
    assert len({place.hub for place in places}) == 4
    begun = coordination_of(context)
    rows = begun.enlistments.order_by("id").values_list("protocol", "seat", "peer_address")
    assert list(rows) == [(place.protocol, Seat.ACTIVE, place.own.address) for place in places]
    assert [place.enlistment.peer_parameters for place in places] == [list(place.own.parameters) for place in places]


def test_t07_unknown_protocol_leaves_the_transaction_active() -> None:
    app = peer()
    context = app.create()
    known = b"wsat/2006/06/Durable2PC"
    status = app.ask_register(
        context, Protocol.DURABLE, message_id="urn:uuid:t07", replace=((known.decode(), "wsat/2006/06/Other2PC"),)
    )
    assert status == 202
    assert refused(app, "urn:uuid:t07") == [FaultCode.INVALID_PROTOCOL]
    begun = coordination_of(context)
    assert begun.phase == Phase.ACTIVE
    assert not begun.enlistments.exists()
    app.register(context, Protocol.DURABLE)


def test_t08_durable_registers_in_the_volatile_phase() -> None:
    app, cache, shop = peer(), peer(), peer()
    context = app.create()
    initiator, early = app.register(context, Protocol.COMPLETION), cache.register(context, Protocol.VOLATILE)
    initiator.say(Note.COMMIT)
    assert coordination_of(context).phase == Phase.PREPARING_VOLATILE
    late = shop.register(context, Protocol.DURABLE)
    assert late.heard() == []
    early.say(Note.PREPARED)
    assert late.heard() == ["Prepare"], "prepared when every volatile vote is in"
    late.say(Note.PREPARED)
    assert (early.heard()[-1], late.heard()[-1], initiator.heard()) == ("Commit", "Commit", ["Committed"])


def test_the_answer_to_a_register_is_before_the_prepare_that_it_causes() -> None:
    app, cache, late = peer(), peer(), peer()
    context = app.create()
    initiator = app.register(context, Protocol.COMPLETION)
    cache.register(context, Protocol.VOLATILE)
    initiator.say(Note.COMMIT)
    late.register(context, Protocol.VOLATILE)
    assert [one.kind for one in late.sent()] == [Request.REGISTERED, Note.PREPARE]


def test_a_transaction_has_a_maximum_of_participants(settings) -> None:
    settings.RMHUB_TRANSACTION_PARTICIPANTS = 3
    app, late = peer(), peer()
    context = app.create()
    initiator, member, left = (
        app.register(context, protocol) for protocol in (Protocol.COMPLETION, Protocol.DURABLE, Protocol.VOLATILE)
    )
    left.say(Note.READ_ONLY)  # its row is read for every message as those of the others are
    assert late.ask_register(context, Protocol.DURABLE, message_id="urn:uuid:late") == 202
    (answer,) = late.answers_to("urn:uuid:late")
    assert isinstance(answer.body, Fault)
    assert answer.fault is FaultCode.CANNOT_REGISTER
    assert answer.body.reason.startswith("3 have registered in this transaction")
    assert Enlistment.objects.count() == 3
    with pytest.raises(WrongState, match="3 have registered"):
        enlistment_create(
            coordination_id=coordination_of(context).pk,
            tpa_id=late.terms.tpa_id,
            protocol=Protocol.DURABLE,
            address=f"{late.base}/seat",
            actor=Actor("anna"),
        )
    initiator.say(Note.COMMIT)
    member.say(Note.PREPARED)
    assert member.heard() == ["Prepare", "Commit"]


def test_t59_completion_is_for_whoever_created_the_transaction() -> None:
    app, shop = peer(), peer()
    context = app.create()
    member = shop.register(context, Protocol.DURABLE)
    before = Coordination.objects.values().get()
    assert shop.ask_register(context, Protocol.COMPLETION, message_id="urn:uuid:t59") == 202
    (answer,) = shop.answers_to("urn:uuid:t59")
    assert answer.fault is FaultCode.CANNOT_REGISTER and isinstance(answer.body, Fault)
    assert "the creator of this transaction" in answer.body.reason
    assert Enlistment.objects.count() == 1 and Coordination.objects.values().get() == before
    # Nor does a participant's own seat take the initiator's words.
    for note in (Note.COMMIT, Note.ROLLBACK):
        seat = replace(member.hub, address=f"{HUB}/completion")
        assert replace(member, hub=seat).say(note) == 400
        assert coordination_of(context).phase == Phase.ACTIVE
    app.register(context, Protocol.COMPLETION).say(Note.COMMIT)
    assert member.heard() == ["Prepare"]


def test_t59_completion_of_a_transaction_that_the_api_began_is_for_no_partner() -> None:
    shop = peer()
    begun = transaction_begin(begun_by="anna", idempotency_key="t59", expires_ms=60_000, version="2006/06").coordination
    context = opening.context_of(begun, shop.terms)
    member = shop.register(context, Protocol.DURABLE)
    assert shop.ask_register(context, Protocol.COMPLETION, message_id="urn:uuid:t59") == 202
    assert refused(shop, "urn:uuid:t59") == [FaultCode.CANNOT_REGISTER]
    begun.refresh_from_db()
    assert begun.phase == Phase.ACTIVE and begun.enlistments.count() == 1 and member.heard() == []


@pytest.mark.parametrize("when", ["durable phase", "committed", "aborted", "unknown"])
def test_t09_too_late_to_register(when: str) -> None:
    app, shop, late = peer(), peer(), peer()
    context = app.create()
    initiator, member = app.register(context, Protocol.COMPLETION), shop.register(context, Protocol.DURABLE)
    initiator.say(Note.ROLLBACK if when == "aborted" else Note.COMMIT)
    if when == "committed":
        member.say(Note.PREPARED)
        member.say(Note.COMMITTED)
    if when == "aborted":
        member.say(Note.ABORTED)
    before = Coordination.objects.values("phase", "lock_version", "decided_at").get()
    named = context
    if when == "unknown":
        gone = EndpointReference(context.registration.address, (parameter("Transaction", f"txn_{'0' * 32}"),))
        named = replace(context, registration=gone)
    assert late.ask_register(named, Protocol.DURABLE, message_id="urn:uuid:t09") == 202
    assert refused(late, "urn:uuid:t09") == [FaultCode.CANNOT_REGISTER]
    assert Coordination.objects.values("phase", "lock_version", "decided_at").get() == before
    assert Enlistment.objects.count() == 2


@pytest.mark.parametrize("address", NOBODY, ids=["anonymous", "none"])
def test_t10_a_participant_without_a_physical_address(address: str) -> None:
    app = peer()
    context = app.create()
    own = app.place("participant", parameter=False)
    app.ask_register(context, Protocol.DURABLE, own=own, message_id="urn:uuid:t10", replace=((own.address, address),))
    assert refused(app, "urn:uuid:t10") == [FaultCode.INVALID_PARAMETERS]
    assert not Enlistment.objects.exists()


def test_a_participant_at_an_address_of_a_third_party_is_refused() -> None:
    app = peer()
    context = app.create()
    other_port = app.base.replace(".example", ".example:8443")
    for address in ("https://victim.example/seat", app.base.replace("https:", "http:"), other_port):
        app.ask_register(context, Protocol.DURABLE, own=EndpointReference(address), message_id=f"urn:to:{address}")
        assert refused(app, f"urn:to:{address}") == [FaultCode.INVALID_PARAMETERS]
    assert not Enlistment.objects.exists()


def test_t57_a_register_that_comes_again_gets_the_same_answer() -> None:
    app = peer()
    context = app.create()
    own = app.place()
    first = app.register(context, Protocol.DURABLE, own=own, message_id="urn:uuid:t57")
    assert len(app.answers_to("urn:uuid:t57")) == 1
    app.ask_register(context, Protocol.DURABLE, own=own, message_id="urn:uuid:t57")
    assert len(app.answers_to("urn:uuid:t57")) == 1, "the first one is on its way still"
    (answer,) = app.answers_to("urn:uuid:t57")
    answer.message.state = "sent"
    answer.message.save()
    second = app.register(context, Protocol.DURABLE, own=own, message_id="urn:uuid:t57")
    assert second.hub == first.hub
    before, again = (stored_body(one.message, []) for one in app.answers_to("urn:uuid:t57"))
    assert before == again
    assert Enlistment.objects.count() == 1
    notes = (
        CoordinationMessage.objects.filter(kind=Request.REGISTER).order_by("message_id").values_list("note", flat=True)
    )
    said = [f"It came before: the first answer is {what}." for what in ("on its way", "sent again")]
    assert list(notes) == ["", *said]


@pytest.mark.parametrize("what", ["create", "register"])
def test_t57_a_request_that_comes_again_from_elsewhere_is_taken_and_not_answered_there(what: str) -> None:
    app = peer()
    context = app.create(message_id="urn:uuid:create")
    app.register(context, Protocol.DURABLE, message_id="urn:uuid:register")
    key = f"urn:uuid:{what}"
    (answer,) = app.answers_to(key)
    answer.message.state = "sent"
    answer.message.save()
    Endpoint.objects.filter(uri=app.base).update(uri="https://moved.example/tx", address="")
    registry.reset()
    moved = EndpointReference("https://moved.example/tx/requester")
    if what == "create":
        assert app.ask_create(reply_to=moved, message_id=key) == 202
    else:
        assert app.ask_register(context, Protocol.DURABLE, reply_to=moved, message_id=key) == 202
    assert len(app.answers_to(key)) == 1
    note = CoordinationMessage.objects.filter(message__message_id=key).latest("message_id").note
    assert note.startswith("It came before: answered to https://peer") and note.endswith("any more; not again.")


def test_t57_the_same_message_id_of_another_partner_is_another_request() -> None:
    app, shop = peer(), peer()
    context = app.create()
    app.register(context, Protocol.DURABLE, message_id="urn:uuid:same")
    shop.register(context, Protocol.DURABLE, message_id="urn:uuid:same")
    assert Enlistment.objects.count() == 2


# T58: who may speak for a relationship


def _state() -> list[object]:
    rows = Enlistment.objects.order_by("id").values_list("seat", "vote")
    return [*rows, *Coordination.objects.order_by("id").values_list("phase", "lock_version")]


def test_t58_notifications_for_the_relationship_of_another_partner_are_refused() -> None:
    app, shop, thief = peer(), peer(), peer()
    context = app.create()
    initiator, member = app.register(context, Protocol.COMPLETION), shop.register(context, Protocol.DURABLE)
    initiator.say(Note.COMMIT)
    before = _state()
    stolen = Place(thief, thief.place(), member.hub)
    assert [stolen.say(note) for note in (Note.PREPARED, Note.ABORTED, Note.READ_ONLY)] == [403] * 3
    assert stolen.fault(FaultCode.INVALID_STATE, "urn:x") == 403
    assert Place(thief, thief.place(), initiator.hub).say(Note.ROLLBACK) == 403
    assert _state() == before
    assert set(Rejection.objects.values_list("reason", "http_status")) == {("wrong_partner", 403)}
    assert thief.sent() == []


def test_t58_notifications_that_name_another_transaction_are_refused() -> None:
    app = peer()
    one, other = app.create(), app.create()
    member = app.register(one, Protocol.DURABLE)
    hub = EndpointReference(member.hub.address, (*member.hub.parameters, *other.registration.parameters))
    before = _state()
    assert Place(app, member.own, hub).say(Note.ABORTED) == 403
    assert _state() == before
    assert Rejection.objects.get().reason == "wrong_transaction"


def test_t58_a_participant_cannot_speak_as_initiator_or_superior() -> None:
    app = peer()
    context = app.create()
    member = app.register(context, Protocol.DURABLE)
    before = _state()
    for service in ("completion", "participant"):
        hub = EndpointReference(f"{HUB}/{service}", member.hub.parameters)
        assert Place(app, member.own, hub).say(Note.COMMIT) == 400
    assert Rejection.objects.filter(reason="wrong_service").count() == 2
    assert _state() == before


def test_nobody_and_those_without_an_agreement_stay_outside() -> None:
    app, shop = peer(), peer()
    context = app.create()
    member = app.register(context, Protocol.DURABLE)
    app.headers = {}
    assert member.say(Note.ABORTED) == 401
    app.headers = {"Authorization": "Bearer guess"}
    assert member.say(Note.ABORTED) == 401
    AgreementVersion.objects.filter(pk=shop.terms.version_id).update(state=VersionState.DISABLED)
    registry.reset()
    assert shop.ask_create() == 403
    reasons = Rejection.objects.order_by("id").values_list("reason", flat=True)
    assert list(reasons) == ["unauthenticated", "no_agreement"]


def test_what_is_no_message_for_a_service_is_refused_with_a_status() -> None:
    app = peer()
    context = app.create()
    member = app.register(context, Protocol.DURABLE)
    octets = app.write(Note.ABORTED, to=member.hub, me=member.own)
    assert app.post("elsewhere", octets) == 404
    assert app.post("activation", octets) == 400
    assert app.client.get("/ws-tx/activation", headers=app.headers).status_code == 405
    post = {"path": "/ws-tx/coordinator", "headers": app.headers}
    assert app.client.post(data=b"<x/>", content_type="text/xml", **post).status_code == 400
    assert app.client.post(data=b"{}", content_type="application/json", **post).status_code == 415
    assert app.client.post(data=b" " * 70_000, content_type="text/xml", **post).status_code == 413
    assert coordination_of(context).phase == Phase.ACTIVE
    assert Rejection.objects.count() == 5
