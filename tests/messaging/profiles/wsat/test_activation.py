"""CreateCoordinationContext through the real entrance (conformance T01 to T05, T11, T51, T53).

Which agreement a message is under, when a partner has several for atomic transactions with the same own endpoint.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging.choices import Direction
from messaging.engine.preparing import stored_body
from messaging.models import Coordination, CoordinationMessage, Delivery, Event, Message, Rejection
from messaging.profiles.wsat import asking, due, opening
from messaging.profiles.wsat.opening import context_of, coordination_open
from messaging.protocol.atomic.words import FAULT, FaultCode, Note, Phase, Protocol, Request
from messaging.protocol.ws.messages import CoordinationContext, Create, Created, EndpointReference, Fault
from messaging.protocol.ws.names import Version, coordination_type
from partners import registry
from partners.choices import VersionState
from partners.models import AgreementVersion, Endpoint
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.conftest import NOON
from tests.messaging.deliveries.stage import arrive, make_trigger
from tests.messaging.factories import partner_side
from tests.messaging.full_store import multiply
from tests.messaging.profiles.wsat.kit import HUB, Peer, coordination_of, party_of, peer
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db

ANONYMOUS = "http://www.w3.org/2005/08/addressing/anonymous"


@pytest.mark.parametrize("soap", ["1.1", "1.2"])
@pytest.mark.parametrize("version", ["2004/10", "2006/06"])
@pytest.mark.parametrize("profile", ["seed", "oasis"])
def test_t01_create_is_answered_to_reply_to(version: str, profile: str, soap: str) -> None:
    app = peer(coordination_version=version, addressing_profile=profile, soap_version=soap)
    reply_to = app.place("answers")
    context = app.create(reply_to=reply_to, message_id="urn:uuid:t01")
    (answer,) = app.answers_to("urn:uuid:t01")
    assert answer.kind == Request.CREATED
    assert answer.ws.addressing.relates_to == "urn:uuid:t01"
    assert answer.ws.addressing.to == answer.facts.address == reply_to.address
    assert context.identifier.startswith("urn:uuid:")
    assert context.registration.is_physical()
    assert context.registration.address == f"{HUB}/registration"
    begun = coordination_of(context)
    assert (begun.phase, begun.version, begun.subordinate) == (Phase.ACTIVE, version, False)
    assert Event.objects.filter(type="transaction.begun", data__transaction=begun.public_id).count() == 1
    kinds = begun.messages.order_by("at", "message_id").values_list("kind", "message__direction")
    assert sorted(kinds) == [(Request.CREATE, "in"), (Request.CREATED, "out")]


@pytest.mark.parametrize(
    ("without", "heard"), [("MessageID", [FaultCode.INVALID_PARAMETERS]), ("ReplyTo", [])], ids=["MessageID", "ReplyTo"]
)
def test_t02_create_without_a_header_that_it_must_have(without: str, heard: list[FaultCode]) -> None:
    app = peer()
    status = app.ask_create(without=(without,))
    assert [one.fault for one in app.sent()] == heard
    assert status == (202 if heard else 400), "what names nobody to answer is refused at once"
    assert not Coordination.objects.exists()
    assert Rejection.objects.count() == (0 if heard else 1)


def test_t03_anonymous_reply_to_creates_nothing() -> None:
    app = peer()
    reply_to = app.place("answers", parameter=False)
    status = app.ask_create(reply_to=reply_to, replace=((reply_to.address, ANONYMOUS),))
    assert status == 400
    refused = Rejection.objects.get()
    assert (refused.reason, refused.http_status) == ("not_answerable", 400)
    assert "ReplyTo" in refused.detail
    assert not Coordination.objects.exists()
    assert app.sent() == []


def test_t03_anonymous_reply_to_of_register_registers_nobody() -> None:
    app = peer()
    context = app.create()
    reply_to = app.place("answers", parameter=False)
    status = app.ask_register(context, Protocol.DURABLE, reply_to=reply_to, replace=((reply_to.address, ANONYMOUS),))
    assert status == 400
    assert not coordination_of(context).enlistments.exists()


@pytest.mark.parametrize("version", ["2004/10", "2006/06"])
def test_t04_parameters_of_reply_to_are_copied_as_header_blocks(version: str) -> None:
    app = peer(coordination_version=version)
    reply_to = EndpointReference(f"{app.base}/answers", ('<p:Mine xmlns:p="urn:peer">seven</p:Mine>',))
    app.create(reply_to=reply_to)
    (answer,) = app.sent()
    assert answer.ws.echoed == reply_to.parameters
    octets = stored_body(answer.message, [])
    assert (b"IsReferenceParameter" in octets) == (version == "2006/06"), "2004/08 has no such attribute"


def test_t05_unknown_coordination_type() -> None:
    app = peer()
    assert app.ask_create(kind="urn:another:type", message_id="urn:uuid:t05") == 202
    (answer,) = app.answers_to("urn:uuid:t05")
    assert answer.kind == FAULT
    assert answer.fault is FaultCode.CANNOT_CREATE
    assert answer.ws.addressing.action.endswith("wscoor/2006/06/fault")
    assert not Coordination.objects.exists()
    stored = CoordinationMessage.objects.get(kind=Request.CREATE)
    assert stored.note.startswith("Answered with CannotCreateContext")


def test_reply_to_of_a_third_party_is_not_used() -> None:
    app = peer()
    assert app.ask_create(reply_to=EndpointReference("https://victim.example/")) == 400
    assert "does not have the scheme, host and port" in Rejection.objects.get().detail
    assert not Coordination.objects.exists()


def test_a_create_that_comes_again_begins_nothing_new() -> None:
    app = peer()
    first = app.create(message_id="urn:uuid:again")
    (message,) = (one.message for one in app.sent())
    message.state = "sent"
    message.save()
    second = app.create(message_id="urn:uuid:again")
    assert second == first
    assert Coordination.objects.count() == 1
    before, again = (stored_body(one.message, []) for one in app.answers_to("urn:uuid:again"))
    assert before == again, "the very octets of the first answer"


def test_a_message_of_the_other_version_is_refused() -> None:
    app = peer(coordination_version="2006/06")
    assert app.ask_create(version=Version.V2004) == 202
    (answer,) = app.sent()
    assert answer.fault is FaultCode.INVALID_PARAMETERS
    assert "2004/10" in answer.body.reason
    assert not Coordination.objects.exists()


def test_t51_every_post_is_answered_202_with_an_empty_body() -> None:
    app = peer()
    octets = app.write(
        Request.CREATE,
        to=EndpointReference(f"{HUB}/activation"),
        me=app.place("answers"),
        body=_create(),
    )
    answer = app.client.post(
        "/ws-tx/activation",
        data=octets.body,
        content_type=octets.content_type,
        headers=app.headers,
    )
    assert (answer.status_code, answer.content) == (202, b"")
    assert "Content-Type" not in answer.headers
    assert answer.headers["Content-Length"] == "0"
    assert len(app.sent()) == 1, "the reply goes out over a connection of its own"


def test_t53_without_expires_the_maximum_of_the_hub_applies(time: FrozenClock, settings) -> None:
    settings.RMHUB_TRANSACTION_SECONDS = 120
    app = peer()
    assert coordination_of(app.create()).expires_at == NOON + timedelta(seconds=120)
    context = app.create(expires_ms=600_000)
    assert context.expires_ms == 120_000, "no longer than the maximum, and it is said"
    assert app.create(expires_ms=5_000).expires_ms == 5_000


# How many may be open


@pytest.mark.parametrize("version", ["2004/10", "2006/06"])
def test_a_partner_begins_no_more_than_it_may_have_open(version: str, settings) -> None:
    settings.RMHUB_TRANSACTIONS_OPEN = 2
    app = peer(coordination_version=version)
    for number in range(2):
        app.create(message_id=f"urn:uuid:{number}")
    assert app.ask_create(message_id="urn:uuid:third") == 202
    (answer,) = app.answers_to("urn:uuid:third")
    assert answer.fault is FaultCode.CANNOT_CREATE
    assert answer.body.reason.startswith("2 transactions of yours have not ended yet")
    name = b"ContextRefused" if version == "2004/10" else b"CannotCreateContext"
    assert name in stored_body(answer.message, [])
    stored = CoordinationMessage.objects.get(message__message_id="urn:uuid:third")
    assert stored.note.startswith("Answered with CannotCreateContext"), "it is kept, and says why"
    assert Coordination.objects.count() == 2


def test_a_partner_that_is_full_is_answered_what_it_asked_before_and_others_are_served(settings) -> None:
    settings.RMHUB_TRANSACTIONS_OPEN = 1
    app = peer()
    first = app.create(message_id="urn:uuid:again")
    Message.objects.filter(pk=app.sent()[0].message.pk).update(state="sent")
    app.ask_create(message_id="urn:uuid:again")
    assert [one.kind for one in app.answers_to("urn:uuid:again")] == [Request.CREATED] * 2, "a repeat begins nothing"
    assert coordination_of(peer().create()) is not None, "another partner has a share of its own"
    current = _context(EndpointReference(f"{app.base}/registration"))
    app.ask_create(current=current, message_id="urn:uuid:below")
    assert app.answers_to("urn:uuid:below")[0].fault is FaultCode.CANNOT_CREATE, "subordinate ones count, too"
    asking.coordination_rollback(coordination_id=coordination_of(first).pk)
    app.ask_create(message_id="urn:uuid:third")
    assert app.answers_to("urn:uuid:third")[0].kind == Request.CREATED, "there is room again"


def test_the_share_is_that_of_the_partner_under_all_its_agreements(settings) -> None:
    settings.RMHUB_TRANSACTIONS_OPEN = 1
    app = peer()
    app.create()
    version = AgreementVersion.objects.get(pk=app.terms.version_id)
    other = make_agreement(
        profile="wsat",
        own_party=version.own_endpoint.party,
        own_endpoint=version.own_endpoint,
        partner=version.agreement.partner,
        partner_uri=f"{app.base}/second",
        tpa_id="tx:second",
        allowed=(),
    )
    assert opening.is_full(partner_id=registry.current().version(other.pk).partner_id)


def test_what_hands_over_documents_is_nobodys_share(settings) -> None:
    settings.RMHUB_TRANSACTIONS_OPEN = 1
    opening.coordination_open(terms=None, begun_by="erp", delivery=Delivery(pk=uuid.uuid4()))
    assert not opening.is_full(begun_by="erp")
    opening.coordination_open(terms=None, begun_by="erp")
    assert opening.is_full(begun_by="erp")
    assert not opening.is_full(begun_by="another")


def test_counting_what_is_open_reads_no_more_than_what_is_open() -> None:
    app = peer()
    app.create()
    opening.coordination_open(terms=None, begun_by="erp")
    multiply(Coordination, phase="'committed'", identifier="'urn:x:' || n", due_at="NULL", create_message_id="''",
             begun_by="'erp'", agreement_version_id="CASE WHEN n % 2 = 0 THEN t.agreement_version_id END")  # fmt: skip
    for query in ({"partner_id": app.terms.partner_id}, {"begun_by": "erp"}):
        with CaptureQueriesContext(connection) as captured:
            opening.is_full(**query)
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN " + captured[-1]["sql"])
            plan = "\n".join(row[0] for row in cursor.fetchall())
        assert "coordination_open" in plan and "Seq Scan" not in plan, plan


# T11: interposition


def test_t11_current_context_makes_a_subordinate_that_registers_upstream() -> None:
    app = peer("App")
    root = EndpointReference(f"{app.base}/registration", ('<p:Info xmlns:p="urn:peer">9</p:Info>',))
    current = _context(root)
    assert app.ask_create(current=current, message_id="urn:uuid:t11") == 202
    assert app.answers_to("urn:uuid:t11") == [], "the context is told when the superior has taken us"
    begun = Coordination.objects.get()
    assert (begun.identifier, begun.subordinate) == ("urn:upstream:1", True)
    (register,) = app.sent()
    assert register.kind == Request.REGISTER
    assert register.facts.address == root.address
    assert register.ws.echoed == root.parameters
    assert register.body.protocol is Protocol.DURABLE
    assert register.body.participant.address == f"{HUB}/participant"
    assert register.facts.awaits, "sent again until it is answered"

    assert app.registered(register) == 202
    (created,) = app.answers_to("urn:uuid:t11")
    assert isinstance(created.body, Created)
    assert created.body.context.identifier == "urn:upstream:1"
    assert created.body.context.registration.address == f"{HUB}/registration"
    register.message.refresh_from_db()
    assert register.message.state in ("delivered", "cancelled"), "not asked any more"
    superior = begun.enlistments.get(superior=True)
    assert superior.peer_address.startswith(app.base)


def test_t11_a_superior_that_refuses_us_is_cannot_create() -> None:
    app = peer("App")
    app.ask_create(current=_context(EndpointReference(f"{app.base}/registration")), message_id="urn:uuid:t11")
    (register,) = app.sent()
    assert app.registered(register, fault=FaultCode.CANNOT_REGISTER) == 202
    (answer,) = app.answers_to("urn:uuid:t11")
    assert answer.fault is FaultCode.CANNOT_CREATE
    begun = Coordination.objects.get()
    assert (begun.phase, begun.cause) == (Phase.ABORTED, "transaction_superior_refused")


def test_t11_a_superior_that_never_answers_is_cannot_create_at_expiry(time: FrozenClock) -> None:
    app = peer("App")
    current = _context(EndpointReference(f"{app.base}/registration"), expires_ms=30_000)
    app.ask_create(current=current, message_id="urn:uuid:t11")
    time.move(31)
    assert due.run_due() == 1
    (answer,) = app.answers_to("urn:uuid:t11")
    assert isinstance(answer.body, Fault)
    assert answer.fault is FaultCode.CANNOT_CREATE
    assert "2026-03-01 12:00:30" in answer.body.reason
    (register,) = (one for one in app.sent() if one.kind == Request.REGISTER)
    assert register.message.state == "cancelled"
    assert app.registered(register) == 202, "what comes too late is stored"
    assert len(app.answers_to("urn:uuid:t11")) == 1


def test_t11_only_a_coordinator_of_the_creator_itself_is_registered_with() -> None:
    app, other = peer("App"), peer("Other")
    at_other_port = app.base.replace(".example", ".example:8443")
    for base in (other.base, "https://victim.example", at_other_port):
        app.ask_create(current=_context(EndpointReference(f"{base}/registration")), message_id=f"urn:of:{base}")
        (answer,) = app.answers_to(f"urn:of:{base}")
        assert isinstance(answer.body, Fault)
        assert answer.fault is FaultCode.INVALID_PARAMETERS
        assert "RegistrationService of CurrentContext" in answer.body.reason
        assert base in answer.body.reason
    assert not Coordination.objects.exists()
    assert other.sent() == [], "nobody else hears of it"


def test_t11_another_partner_cannot_answer_for_the_superior() -> None:
    app, other = peer("App"), peer("Other")
    app.ask_create(current=_context(EndpointReference(f"{app.base}/registration")), message_id="urn:uuid:t11")
    (register,) = app.sent()
    assert other.registered(register) == 403
    assert Rejection.objects.get().reason == "wrong_partner"
    assert Coordination.objects.get().enlistments.get().peer_address == ""


def test_an_upstream_register_that_is_repeated_by_its_request_is_one(time: FrozenClock) -> None:
    app = peer("App")
    current = _context(EndpointReference(f"{app.base}/registration"))
    for _ in range(2):
        assert app.ask_create(current=current, message_id="urn:uuid:t11") == 202
    assert len(app.sent()) == 1
    assert Coordination.objects.count() == 1


def _context(registration: EndpointReference, expires_ms: int | None = None) -> CoordinationContext:
    return CoordinationContext("urn:upstream:1", registration, coordination_type(Version.V2006), expires_ms)


def _create() -> Create:
    return Create(coordination_type(Version.V2006))


def second(first: Peer, tpa_id: str, partner_uri: str, **terms: Any) -> Peer:
    """Another agreement of the same partner, with the same services of ours and the same credential."""
    version = make_agreement(
        profile="wsat",
        own_endpoint=Endpoint.objects.get(uri=HUB),
        partner=party_of(first),
        partner_uri=partner_uri,
        tpa_id=tpa_id,
        allowed=(),
        **terms,
    )
    return Peer(registry.current().version(version.pk), first.headers)


def both(**terms: Any) -> tuple[Peer, Peer]:
    """Two agreements of one partner at two origins; the first one comes first by TPAId."""
    stock = peer(tpa_id="tx:a", partner_uri="https://stock.example/tx")
    return stock, second(stock, "tx:b", "https://freight.example/tx", **terms)


def test_a_registration_is_under_the_agreement_where_the_participant_lies() -> None:
    stock, freight = both()
    context = peer().create()
    places = [one.register(context, Protocol.DURABLE) for one in (stock, freight)]
    agreed = [place.enlistment.agreement_version_id for place in places]
    assert agreed == [stock.terms.version_id, freight.terms.version_id]
    assert not Rejection.objects.exists()


def test_a_transaction_is_begun_under_the_agreement_where_the_reply_goes() -> None:
    _, freight = both()
    assert coordination_of(freight.create()).agreement_version_id == freight.terms.version_id


def test_a_notification_is_under_the_agreement_of_its_relationship() -> None:
    """The first one is strict: it takes no Prepared that does not say where its sender is. The second one does."""
    stock = peer(tpa_id="tx:a", partner_uri="https://stock.example/tx", addressing_strict=True)
    freight = second(stock, "tx:b", "https://freight.example/tx", addressing_strict=False)
    app = peer()
    context = app.create()
    initiator = app.register(context, Protocol.COMPLETION)
    near, far = (one.register(context, Protocol.DURABLE) for one in (stock, freight))
    initiator.say(Note.COMMIT)
    assert far.say(Note.PREPARED, without=("ReplyTo", "From")) == 202
    assert (near.enlistment.vote, far.enlistment.vote) == ("", "prepared")
    came = CoordinationMessage.objects.get(enlistment=far.enlistment, message__direction=Direction.IN, kind="Prepared")
    assert came.message.agreement_version_id == freight.terms.version_id
    near.say(Note.PREPARED, without=("ReplyTo", "From"))
    assert near.enlistment.vote == ""


def test_a_relationship_outlives_its_agreement() -> None:
    stock, freight = both()
    app = peer()
    context = app.create()
    initiator, far = app.register(context, Protocol.COMPLETION), freight.register(context, Protocol.DURABLE)
    AgreementVersion.objects.filter(pk=freight.terms.version_id).update(state=VersionState.DISABLED)
    registry.reset()
    initiator.say(Note.COMMIT)
    assert far.say(Note.PREPARED) == 202
    assert far.enlistment.vote == "prepared"
    assert stock.ask_register(context, Protocol.DURABLE, own=freight.place(), reply_to=stock.place()) == 202
    assert stock.sent()[-1].fault is FaultCode.INVALID_PARAMETERS, "nothing new begins under it"


def test_of_agreements_at_one_place_the_one_that_a_member_names() -> None:
    stock = peer(tpa_id="tx:a", partner_uri="https://shop.example/tx")
    freight = second(stock, "tx:b", "https://shop.example/tx/")
    whole = make_trigger(kind="atomic")
    member = make_trigger(
        name="freight",
        kind="http",
        url="http://127.0.0.1:9/",
        member_of_id=whole.pk,
        atomic_agreement_id=freight.terms.agreement_id,
    )
    assert member.atomic_agreement_id == freight.terms.agreement_id
    (delivery,) = arrive(partner_side(), "m1@partner.example")
    opened = coordination_open(terms=None, begun_by=whole.name, now=clock.now(), delivery=delivery)

    place = freight.register(context_of(opened, freight.terms, clock.now()), Protocol.DURABLE)
    assert place.enlistment.agreement_version_id == freight.terms.version_id
