"""What comes too late or in another order, and what names a place that the agreement does not (spec 5)."""

from __future__ import annotations

import pytest

from messaging.engine import pairs
from messaging.exceptions import WrongState
from messaging.journal.audit import Actor
from messaging.models import CoordinationMessage, Enlistment
from messaging.profiles.wsat.registering import enlistment_create
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Seat
from messaging.protocol.ws.messages import CoordinationContext, Created, EndpointReference, Register
from messaging.protocol.ws.names import Version, coordination_type
from partners import registry
from partners.models import AgreementVersion
from tests.messaging.factories import link, work
from tests.messaging.profiles.wsat.kit import Peer, Place, Sent, coordination_of, party_of, peer
from tests.messaging.profiles.wsat.scenes import committing, fresh
from tests.partners.factories import make_endpoint, make_outbound_credential

pytestmark = pytest.mark.django_db
ELSEWHERE = EndpointReference("https://elsewhere.example/faults", ())
ANNA = Actor("anna")


# The superior's RegisterResponse is overtaken


def below() -> tuple[Peer, Sent, Place]:
    """A subordinate transaction whose Register the superior has not answered: the peer, Register, the superior."""
    root = peer("Above")
    current = CoordinationContext(
        "urn:upstream:1", EndpointReference(f"{root.base}/registration"), coordination_type(Version.V2006), 60_000
    )
    root.ask_create(current=current, message_id="urn:uuid:create")
    (register,) = root.sent()
    assert isinstance(register.body, Register)
    return root, register, Place(root, root.place("coordinator"), register.body.participant)


def test_prepare_before_the_register_response_is_answered_read_only_after_it() -> None:
    root, register, above = below()
    above.say(Note.PREPARE)
    assert above.heard() == [], "nobody has said where it is"
    assert root.registered(register, own=above.own) == 202
    assert above.heard() == ["ReadOnly"]


def test_prepare_before_the_register_response_is_answered_prepared_after_it_until_the_outcome() -> None:
    root, register, above = below()
    shop, row = peer("Shop"), Enlistment.objects.get(superior=True)
    own = shop.place()
    _, hub = enlistment_create(
        coordination_id=row.coordination_id,
        tpa_id=shop.terms.tpa_id,
        protocol=Protocol.DURABLE,
        address=own.address,
        parameters=own.parameters,
        actor=ANNA,
    )
    member = Place(shop, own, hub)
    above.say(Note.PREPARE)
    member.say(Note.PREPARED)
    assert (fresh(row.coordination).phase, above.heard()) == (Phase.PREPARED, [])
    root.registered(register, own=above.own)
    (vote,) = above.sent()
    assert (vote.kind, vote.facts.awaits) == ("Prepared", True)
    assert isinstance(root.answers_to("urn:uuid:create")[0].body, Created)
    above.say(Note.COMMIT)
    assert member.heard() == ["Prepare", "Commit"]
    vote.message.refresh_from_db()
    assert vote.message.due_at is None, "the outcome answers it"


def test_rollback_before_the_register_response_is_answered_aborted_after_it() -> None:
    root, register, above = below()
    above.say(Note.ROLLBACK)
    assert above.heard() == []
    root.registered(register, own=above.own)
    assert above.heard() == ["Aborted"]
    assert [one.fault for one in root.answers_to("urn:uuid:create")] == [FaultCode.CANNOT_CREATE]
    root.registered(register, own=above.own)
    assert above.heard() == ["Aborted"], "said once"


# Faults about what is not asked any more


def last_note(place: Place) -> str:
    return CoordinationMessage.objects.filter(message__direction="in", enlistment=place.enlistment).latest("at").note


def test_a_late_fault_about_an_old_prepare_does_not_stop_the_outcome() -> None:
    one, (place,) = committing("Shop")
    asked, outcome = place.sent()
    assert place.fault(FaultCode.INVALID_STATE, relates_to=asked.message.message_id) == 202
    outcome.message.refresh_from_db()
    assert (outcome.kind, outcome.message.state) == ("Commit", "queued")
    assert outcome.message.due_at is not None
    assert last_note(place) == "A fault about Prepare, of which no answer is awaited from there: nothing is done."
    assert (fresh(one).phase, fresh(one).doubtful_since) == (Phase.COMMITTING, None)
    assert (place.enlistment.seat, place.enlistment.doubt) == (Seat.COMMITTING, "")


def test_a_fault_about_what_was_asked_of_another_participant_says_nothing_of_its_sender() -> None:
    one, (shop, bank) = committing("Shop", "Bank")
    of_bank = bank.sent()[-1]
    assert (of_bank.kind, of_bank.message.state) == ("Commit", "queued")
    assert shop.fault(FaultCode.INVALID_STATE, relates_to=of_bank.message.message_id) == 202
    assert last_note(shop) == "A fault about Commit, of which no answer is awaited from there: nothing is done."
    assert (fresh(one).doubtful_since, shop.enlistment.doubt, bank.enlistment.doubt) == (None, "", "")


@pytest.mark.parametrize("names", ["Commit", "nothing"])
def test_a_fault_about_the_outcome_itself_counts(names: str) -> None:
    one, (place,) = committing("Shop")
    relates_to = place.sent()[-1].message.message_id if names == "Commit" else ""
    place.fault(FaultCode.INVALID_STATE, relates_to=relates_to)
    assert fresh(one).doubtful_since is not None
    assert "nothing is done" not in last_note(place)


# Another endpoint for an agreement whose transactions go on


def test_an_agreement_keeps_its_endpoints_while_its_participants_wait_for_an_outcome() -> None:
    app, shop = peer("App"), peer("Shop")
    context = app.create()
    app.register(context, Protocol.COMPLETION)
    member = shop.register(context, Protocol.DURABLE)
    # Everything that was sent is taken, and no message is open.
    for one in shop.sent():
        one.message.state = "sent"
        one.message.due_at = None
        one.message.save()
    draft = moved(shop)
    with pytest.raises(
        WrongState, match="takes part in 1 transaction that has not ended: let it come to its end"
    ) as no:
        pairs.require_drained(draft)
    assert no.value.code == "pair_not_drained"
    member.say(Note.ABORTED)
    assert member.enlistment.seat == Seat.NONE
    pairs.require_drained(moved(shop))


def moved(one: Peer) -> AgreementVersion:
    """A draft of its agreement with another endpoint of the partner."""
    draft = AgreementVersion.objects.get(pk=one.terms.version_id)
    draft.number += 1
    draft.partner_endpoint = make_endpoint(draft.agreement.partner)
    return draft


# FaultTo at a third party's server


def test_a_fault_to_elsewhere_is_passed_over_and_noted() -> None:
    said = "FaultTo https://elsewhere.example/faults is not used: it is not at the agreement's own server."
    app, shop = peer(), peer()
    context = app.create()
    initiator, member = app.register(context, Protocol.COMPLETION), shop.register(context, Protocol.DURABLE)
    member.say(Note.COMMITTED, fault_to=ELSEWHERE)
    assert member.heard()[0] == "InvalidState", "at the endpoint of the registration"
    assert said in last_note(member)

    coordination_of(context).delete()
    initiator.say(Note.COMMIT, fault_to=ELSEWHERE)
    app.ask_create(kind="urn:other", fault_to=ELSEWHERE)
    received = CoordinationMessage.objects.filter(message__direction="in").order_by("-message_id")
    assert [one.note.startswith(said) for one in received[:2]] == [True, True]
    assert not CoordinationMessage.objects.filter(address=ELSEWHERE.address).exists()


def test_a_fault_to_of_the_partner_itself_is_used_without_a_note() -> None:
    app = peer()
    context = app.create()
    member, place = app.register(context, Protocol.DURABLE), app.place("faults")
    member.say(Note.COMMITTED, fault_to=place)
    assert [one.facts.address for one in app.sent() if one.fault] == [place.address]
    assert "not used" not in last_note(member)


# Other servers that the agreement names (T60)


def test_t60_a_fault_to_at_another_server_that_the_agreement_names_is_honoured() -> None:
    app = peer(other_servers="https://elsewhere.example http://other.example:81")
    make_outbound_credential(party_of(app), username="hub", secret="for the partner's own server")
    context = app.create()
    member = app.register(context, Protocol.DURABLE)
    member.say(Note.COMMITTED, fault_to=ELSEWHERE)
    assert [one.facts.address for one in app.sent() if one.fault] == [ELSEWHERE.address]
    assert "not used" not in last_note(member)
    with link() as wire:
        work()
    sent = {parcel.address: parcel.authorization for parcel in wire.parcels}
    assert sent[ELSEWHERE.address] == "", "our credential is for the partner's own server"
    assert all(shown for address, shown in sent.items() if address != ELSEWHERE.address) and len(sent) > 1


@pytest.mark.parametrize(
    "address",
    [
        *("https://elsewhere.example:444/faults", "http://elsewhere.example/faults", "https://elsewhere.example.evil/"),
        *("https://elsewhere.example@evil.example/", "https://not-elsewhere.example/faults"),
    ],
)
def test_t60_no_other_server_is_meant_by_those_that_are_named(address: str) -> None:
    app = peer(other_servers="https://elsewhere.example")
    context = app.create()
    member = app.register(context, Protocol.DURABLE)
    member.say(Note.COMMITTED, fault_to=EndpointReference(address))
    assert member.heard()[0] == "InvalidState", "at the endpoint of the registration"
    assert not CoordinationMessage.objects.filter(address=address).exists()


def test_t60_a_coordinator_at_another_server_that_the_agreement_names_is_registered_with() -> None:
    app = peer(other_servers="https://coordinator.example:8443")
    superior = EndpointReference("https://coordinator.example:8443/registration")
    current = CoordinationContext("urn:upstream:1", superior, coordination_type(Version.V2006), 60_000)
    app.ask_create(current=current, message_id="urn:uuid:t60")
    (register,) = app.sent()
    assert (register.kind, register.facts.address) == ("Register", superior.address)
    where = EndpointReference("https://coordinator.example:8443/superior")
    assert app.registered(register, own=where) == 202
    (created,) = app.answers_to("urn:uuid:t60")
    assert created.kind == "CreateCoordinationContextResponse"


def test_t60_what_was_written_for_a_server_that_is_not_named_any_more_does_not_go_there() -> None:
    app = peer(other_servers="https://elsewhere.example")
    context = app.create()
    app.register(context, Protocol.DURABLE).say(Note.COMMITTED, fault_to=ELSEWHERE)
    AgreementVersion.objects.filter(pk=app.terms.version_id).update(other_servers="")
    registry.reset()
    with link() as wire:
        work()
    assert ELSEWHERE.address not in {parcel.address for parcel in wire.parcels}
