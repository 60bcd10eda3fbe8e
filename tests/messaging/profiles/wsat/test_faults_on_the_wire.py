"""Faults that go out and come in, through the real entrance: T42, T47, T55 and T56; and T37 with a real database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection
from lxml import etree

from messaging.models import Coordination, Rejection
from messaging.profiles.wsat import delivering
from messaging.protocol.atomic.words import FAULT, FaultCode, Note, Phase, Protocol, Request, Seat
from messaging.protocol.ws.messages import CoordinationContext, EndpointReference, Fault, Octets
from messaging.protocol.ws.names import Version, coordination_type
from rmhub.clock import FrozenClock
from tests.messaging.factories import link, work
from tests.messaging.profiles.wsat.kit import Peer, Place, coordination_of, peer
from tests.messaging.profiles.wsat.test_subordinate import below_another

pytestmark = pytest.mark.django_db

OFFENDER = "urn:uuid:offender"
Offend = Callable[[Peer, EndpointReference | None], None]


# --- T47: every fault that the hub sends ---


def _unknown_type(one: Peer, fault_to: EndpointReference | None) -> None:
    one.ask_create(kind="urn:other", message_id=OFFENDER, fault_to=fault_to)


def _unknown_protocol(one: Peer, fault_to: EndpointReference | None) -> None:
    context = one.create()
    octets = one.registering(context, Protocol.DURABLE, message_id=OFFENDER, fault_to=fault_to)
    data = octets.body.replace(b"/Durable2PC<", b"/Somehow<")
    assert data != octets.body
    one.post(context.registration.address, Octets(octets.content_type, data, octets.soap_action))


def _register_too_late(one: Peer, fault_to: EndpointReference | None) -> None:
    context = one.create()
    one.register(context, Protocol.COMPLETION).say(Note.ROLLBACK)
    one.ask_register(context, Protocol.DURABLE, message_id=OFFENDER, fault_to=fault_to)


def _committed_unasked(one: Peer, fault_to: EndpointReference | None) -> None:
    _member(one).say(Note.COMMITTED, message_id=OFFENDER, fault_to=fault_to)


def _vote_taken_back(one: Peer, fault_to: EndpointReference | None) -> None:
    context = one.create()
    initiator = one.register(context, Protocol.COMPLETION)
    member, _ = (one.register(context, Protocol.DURABLE) for _ in range(2))
    initiator.say(Note.COMMIT)
    member.say(Note.PREPARED)
    member.say(Note.READ_ONLY, message_id=OFFENDER, fault_to=fault_to)


def _volatile_of_nothing(one: Peer, fault_to: EndpointReference | None) -> None:
    context = one.create()
    initiator = one.register(context, Protocol.COMPLETION)
    member = one.register(context, Protocol.VOLATILE)
    initiator.say(Note.ROLLBACK)
    member.say(Note.ABORTED)
    member.say(Note.PREPARED, message_id=OFFENDER, fault_to=fault_to)


def _member(one: Peer, protocol: Protocol = Protocol.DURABLE) -> Place:
    return one.register(one.create(), protocol)


OFFENCES = {
    "CannotCreateContext": (_unknown_type, FaultCode.CANNOT_CREATE),
    "InvalidProtocol": (_unknown_protocol, FaultCode.INVALID_PROTOCOL),
    "CannotRegister": (_register_too_late, FaultCode.CANNOT_REGISTER),
    "InvalidState": (_committed_unasked, FaultCode.INVALID_STATE),
    "InvalidState in phase one": (_vote_taken_back, FaultCode.INVALID_STATE),
    "UnknownTransaction": (_volatile_of_nothing, FaultCode.UNKNOWN_TRANSACTION),
}


@pytest.mark.parametrize("version", ["2004/10", "2006/06"])
@pytest.mark.parametrize(("offend", "code"), OFFENCES.values(), ids=[f"T47 {name}" for name in OFFENCES])
def test_every_fault_relates_to_its_offender_and_goes_to_fault_to(
    offend: Offend, code: FaultCode, version: str
) -> None:
    one = peer(coordination_version=version)
    faults_at = one.place("faults")
    offend(one, faults_at)
    (fault,) = one.answers_to(OFFENDER)
    assert (fault.kind, fault.fault) == (FAULT, code)
    assert (fault.ws.addressing.relates_to, fault.ws.addressing.to) == (OFFENDER, faults_at.address)
    assert fault.ws.echoed == faults_at.parameters
    assert fault.facts.address == faults_at.address, "where it is really sent"


@pytest.mark.parametrize(("offend", "code"), OFFENCES.values(), ids=[f"T47 {name}" for name in OFFENCES])
def test_without_fault_to_it_goes_to_where_the_offender_is_registered_or_asked_for_its_reply(
    offend: Offend, code: FaultCode
) -> None:
    one = peer()
    offend(one, None)
    (fault,) = one.answers_to(OFFENDER)
    assert (fault.fault, fault.ws.addressing.relates_to) == (code, OFFENDER)
    assert fault.ws.addressing.to.startswith(one.base)
    assert not fault.ws.addressing.to.endswith("/faults")


# --- T55: a context that must be understood ---


def _application_message(one: Peer, kind: str, must_understand: str) -> Octets:
    """What an application sends in a transaction of this type: an Order with the context as a header."""
    octets = one.creating(message_id=OFFENDER)
    root = etree.fromstring(octets.body)
    header, body = root[0], root[1]
    envelope = etree.QName(root).namespace
    (action,) = (block for block in header if etree.QName(block).localname == "Action")
    action.text = "urn:order"
    body.clear()
    etree.SubElement(body, "{urn:orders}Order")
    wscoor = coordination_type(Version.V2006).replace("ws-tx/wsat", "ws-tx/wscoor")
    context = etree.SubElement(header, f"{{{wscoor}}}CoordinationContext")
    if must_understand:
        context.set(f"{{{envelope}}}mustUnderstand", must_understand)
    etree.SubElement(context, f"{{{wscoor}}}Identifier").text = "urn:t:1"
    etree.SubElement(context, f"{{{wscoor}}}CoordinationType").text = kind
    service = etree.SubElement(context, f"{{{wscoor}}}RegistrationService")
    wsa = etree.QName(action).namespace
    etree.SubElement(service, f"{{{wsa}}}Address").text = f"{one.base}/registration"
    return Octets(octets.content_type, etree.tostring(root), "urn:order" if octets.soap_action else "")


@pytest.mark.parametrize("soap", ["1.1", "1.2"])
@pytest.mark.parametrize("service", ["activation", "registration", "coordinator", "completion"])
def test_t55_a_context_of_an_unknown_type_that_must_be_understood_is_a_soap_fault(service: str, soap: str) -> None:
    one = peer(coordination_version="2006/06", soap_version=soap)
    octets = _application_message(one, "http://docs.oasis-open.org/ws-tx/wsba/2006/06/AtomicOutcome", "1")
    assert one.post(service, octets) == 202
    (fault,) = one.answers_to(OFFENDER)
    assert (fault.kind, fault.fault) == (FAULT, FaultCode.MUST_UNDERSTAND)
    assert fault.ws.addressing.relates_to == OFFENDER
    assert not Coordination.objects.exists()


@pytest.mark.parametrize(("kind", "must"), [("urn:other", ""), (coordination_type(Version.V2006), "1")])
def test_t55_one_that_need_not_be_or_is_understood_is_only_no_message_for_this_service(kind: str, must: str) -> None:
    one = peer(coordination_version="2006/06")
    assert one.post("activation", _application_message(one, kind, must)) == 400
    assert Rejection.objects.get().reason == "wrong_service"
    assert one.sent() == []


# --- T56: a fault by the name that 2004/10 had for it ---


@pytest.mark.parametrize("version", ["2004/10", "2006/06"])
@pytest.mark.parametrize("name", ["CannotRegister", "CannotRegisterParticipant"])
def test_t56_a_superior_that_cannot_register_us_by_either_name(name: str, version: str) -> None:
    root = peer("Above", coordination_version=version)
    current = CoordinationContext(
        "urn:upstream:1", EndpointReference(f"{root.base}/registration"), coordination_type(Version(version)), 60_000
    )
    root.ask_create(current=current, message_id="urn:uuid:create")
    (register,) = root.sent()
    assert register.kind == Request.REGISTER and register.ws.addressing.reply_to is not None
    octets = root.write(
        FAULT,
        to=register.ws.addressing.reply_to,
        body=Fault(FaultCode.CANNOT_REGISTER, "No."),
        relates_to=register.message.message_id,
    )
    own_name = b"CannotRegisterParticipant" if version == "2006/06" else b"NoActivity"
    data = octets.body.replace(own_name, name.encode())
    assert name.encode() + b"<" in data
    assert root.post("requester", Octets(octets.content_type, data, octets.soap_action)) == 202
    begun = Coordination.objects.get()
    assert (begun.phase, begun.cause) == (Phase.ABORTED, "transaction_superior_refused")
    kept = begun.messages.get(message__direction="in", kind=FAULT)
    assert kept.fault_code == FaultCode.CANNOT_REGISTER
    (answer,) = root.answers_to("urn:uuid:create")
    assert answer.fault is FaultCode.CANNOT_CREATE


# --- T42: recovery with a partner of 2004/10 ---


def test_t42_the_hub_repeats_its_own_vote_to_a_superior_of_2004_10_with_a_reply_to(time: FrozenClock) -> None:
    """Replay may be emitted; this hub never does. Its Prepared says the same, and every version knows it."""
    stage = below_another(coordination_version="2004/10")
    stage.above.say(Note.PREPARE)
    stage.member.say(Note.PREPARED)
    with link() as wire:
        while work():
            pass
        before = len(wire.parcels)
        time.move(3600)
        while work():
            pass
        assert len(wire.parcels) > before, "nobody has said how it ends"
    assert set(stage.above.heard()) == {"Prepared"}
    (vote,) = stage.above.sent()
    assert vote.ws.addressing.reply_to is not None and vote.ws.addressing.reply_to.is_physical()
    stage.above.say(Note.COMMIT)
    stage.member.say(Note.COMMITTED)
    assert (stage.above.heard()[-1], stage.superior.seat) == ("Committed", Seat.NONE)


# --- T37: the record's own save fails ---


@contextmanager
def _no_commit_record() -> Iterator[None]:
    """The database refuses the very row that says Commit; whatever was written before it in the transaction is fine."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION no_record() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'disk full'; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER no_record BEFORE UPDATE ON messaging_coordination FOR EACH ROW"
            " WHEN (OLD.decided_at IS NULL AND NEW.decided_at IS NOT NULL) EXECUTE FUNCTION no_record()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION no_record CASCADE")


@pytest.mark.django_db(transaction=True)
def test_t37_the_save_of_the_commit_record_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    app = peer()
    context = app.create(expires_ms=60_000)
    initiator = app.register(context, Protocol.COMPLETION)
    one, other = (peer().register(context, Protocol.DURABLE) for _ in range(2))
    initiator.say(Note.COMMIT)
    one.say(Note.PREPARED)
    local = delivering.decide_locally

    def work_of_ours(coordination: Coordination, *rest: object) -> None:
        local(coordination, *rest)  # type: ignore[arg-type]
        Coordination.objects.update(begun_by="left behind")

    monkeypatch.setattr(delivering, "decide_locally", work_of_ours)
    with _no_commit_record():
        assert other.say(Note.PREPARED) == 202
    begun = coordination_of(context)
    assert (begun.phase, begun.decided_at, begun.cause) == (Phase.ABORTING, None, "transaction_local_work")
    assert "disk full" in begun.cause_detail
    assert begun.begun_by != "left behind", "what the work had written is undone with the record"
    assert [one.heard(), other.heard(), initiator.heard()] == [["Prepare", "Rollback"]] * 2 + [["Aborted"]]
    for member in (one, other):
        member.say(Note.ABORTED)
    assert coordination_of(context).phase == Phase.ABORTED
    assert Note.COMMIT not in {note for place in (one, other) for note in place.heard()}
