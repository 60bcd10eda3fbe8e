"""Situations in which the console's pages are looked at: pairs in trouble, messages of every kind, and people."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client

from messaging.access.services import tokens
from messaging.bulk.services import jobs
from messaging.deliveries.services import pulling, triggering
from messaging.engine import subscriptions
from messaging.entrance.refusals import Arrival
from messaging.journal import events
from messaging.journal.audit import Actor
from messaging.messages import attributes, masks, schemas
from messaging.models import (
    ApiToken,
    ArchivedMessage,
    AttributeRule,
    BulkJob,
    BulkJobItem,
    Circuit,
    Coordination,
    Delivery,
    DocumentSchema,
    Enlistment,
    Incident,
    IncomingStream,
    LegalHold,
    Message,
    Notification,
    NotificationRule,
    OfferedCertificate,
    OutgoingStream,
    Pair,
    PartnerLog,
    PayloadMask,
    PipelineRun,
    Rejection,
    Route,
    SavedView,
    Signal,
    StatusInquiry,
    Transmission,
    Trigger,
    WebhookDelivery,
    WebhookEndpoint,
)
from messaging.notifications.services import rules as notification_rules
from messaging.notifications.services import webhooks
from messaging.pollers import selectors as selectors_of_pollers
from messaging.pollers.services import changes as poller_changes
from messaging.pollers.services import pollers
from messaging.pollers.services.collecting import Found
from messaging.protocol.errors import ErrorCode
from messaging.reports.services import partner_logs
from messaging.routing.services import routes
from messaging.transports import Receipt
from messaging.transports.base import server_of
from partners import certificates
from partners.models import AgreementVersion, Party, Poller
from partners.terms import Presented
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import ADMIN_SCOPES, Role
from tests.messaging.api.client import make_user
from tests.messaging.archive import archive_scenes
from tests.messaging.factories import LOST, PartnerSide, link, partner_side, submit, work
from tests.messaging.onboarding.authority import FIXED
from tests.messaging.profiles.wsat import scenes as atomic_scenes
from tests.messaging.reports import report_scenes

ANA = Actor("ana", "console")
PASSWORD = "correct horse battery"
EXPIRED = Receipt(
    ok=False, cause="cert_expired", detail="certificate has expired", permanent=True, response=b"HTTP 495\r\n\r\n"
)
_count = itertools.count(1)


def user(role: Role | None, name: str = "") -> User:
    """A user who can log in, with a role or without one."""
    return make_user(role, name, PASSWORD)


def browser(role: Role | None = Role.ADMIN, name: str = "", *, csrf: bool = False) -> Client:
    """A client that is logged in as a new user with this role."""
    client = Client(enforce_csrf_checks=csrf)
    client.force_login(user(role, name))
    return client


def delivered(partner: PartnerSide, count: int = 1) -> list[Message]:
    """Messages that the partner acknowledged."""
    made = []
    with link() as wire:
        for _ in range(count):
            made.append(submit(partner))
            work()
            partner.send(partner.acknowledgement(wire.last))
    return [Message.objects.get(pk=message.pk) for message in made]


def suspended(time: FrozenClock, *, waiting: int = 2, receipt: Receipt = EXPIRED) -> PartnerSide:
    """A partner whose server cannot be reached until the pair gave up, with messages waiting behind the first."""
    partner = partner_side(retries=1, timeout=60, retry_interval=60, transport_retries=0)
    submit(partner)
    with link(receipt):
        while partner.outbound.flow != "suspended":
            work()
            time.move(61)
    for _ in range(waiting):
        submit(partner)
    return partner


def refused(partner: PartnerSide, code: str = ErrorCode.INVALID_SEQUENCE_NUMBER) -> PartnerSide:
    """The partner answers the next message with an Error message."""
    submit(partner)
    with link() as wire:
        work()
        partner.send(partner.error(wire.last, code, description="last accepted 7 <b>so there</b>"))
    return partner


def trigger_for(partner: PartnerSide, name: str, **values: object) -> Trigger:
    """An active trigger for the documents of one partner, a pull queue unless `values` say otherwise."""
    made, _ = triggering.trigger_create(  # type: ignore[call-arg]
        actor=ANA, reason="go-live", **{"name": name, "party_id": partner.terms.partner_id, "kind": "pull", **values}
    )
    subscriptions.current.forget()
    return made


def documents(partner: PartnerSide, *message_ids: str) -> list[Delivery]:
    """Documents come in from the partner. Returns their deliveries."""
    for message_id in message_ids:
        assert partner.send(partner.message(partner.inbound.last_sequence + 1, message_id)) == 204
    return list(Delivery.objects.filter(message__message_id__in=message_ids).order_by("id"))


def stop(trigger: Trigger, cause: str = "service_unreachable", detail: str = "Connection refused.") -> Trigger:
    """The engine suspends it."""
    with transaction.atomic():
        locked = Trigger.objects.select_for_update().get(pk=trigger.pk)
        events.write(triggering.suspend_now(locked, cause, detail, clock.now()))
    return Trigger.objects.get(pk=trigger.pk)


def doubtful(trigger: Trigger, partner: PartnerSide, *message_ids: str) -> list[Delivery]:
    """Documents that a consumer took from the queue and neither completed nor gave back: nobody knows."""
    made = [one for one in documents(partner, *message_ids) if one.trigger_id == trigger.pk]
    pulling.lease(trigger.pk, limit=len(made), consumer="warehouse-1")
    Delivery.objects.filter(pk__in=[one.pk for one in made]).update(due_at=clock.now() - timedelta(seconds=1))
    assert pulling.lease(trigger.pk, limit=1, consumer="warehouse-2") == []
    found = list(Delivery.objects.filter(pk__in=[one.pk for one in made], state="in_doubt").order_by("id"))
    assert len(found) == len(made)
    return found


def failed(trigger: Trigger, partner: PartnerSide, message_id: str) -> Delivery:
    """A document on which the application failed."""
    documents(partner, message_id)
    (leased,) = pulling.lease(trigger.pk, limit=1, consumer="warehouse-1")
    return pulling.fail(leased.delivery.pk, leased.claim, "No such article <b>4711</b>")


def lost(time: FrozenClock, count: int = 1) -> list[Message]:
    """Messages of which nobody knows whether the partner has executed them (spec 2)."""
    far = partner_side(profile="repeatable", partner_window=3600)
    made = [submit(far) for _ in range(count)]
    with link(LOST):
        work()
        time.move(3601)
        work()
        work()
    found = list(Message.objects.filter(pk__in=[message.pk for message in made], state="in_doubt").order_by("id"))
    assert len(found) == count
    return found


@dataclass(frozen=True, slots=True)
class World:
    """One of everything that has a page."""

    suspended: PartnerSide
    flowing: PartnerSide
    outbound: Message
    queued: Message
    inbound: Message
    transmission: Transmission
    signal: Signal
    incident: Incident
    rejection: Rejection
    partner: Party
    token: ApiToken
    webhook: WebhookEndpoint
    stopped: Trigger
    queue: Trigger
    doubtful: Delivery
    failed: Delivery
    lost: Message
    job: BulkJob
    log: PartnerLog
    made: PipelineRun
    waiting: PipelineRun
    archived: ArchivedMessage
    hold: LegalHold
    route: Route
    poller: Poller
    mask: PayloadMask
    attribute: AttributeRule
    offer: OfferedCertificate
    schema: DocumentSchema
    came: Message
    passed_on: Message
    stream_out: Pair
    stream_in: Pair
    in_stream: Message
    circuit: Circuit
    rule: NotificationRule
    view: SavedView
    planned: BulkJob
    export: BulkJob
    inquiry: StatusInquiry
    transaction: Coordination
    taker: Enlistment
    begun: Coordination

    @property
    def pair(self) -> Pair:
        return self.suspended.outbound


def partner_log(partner: PartnerSide, content: bytes = b"message_id,direction\nm-1,in\n") -> PartnerLog:
    """A log that the partner sent."""
    return partner_logs.log_receive(
        party_id=partner.terms.partner_id, chunks=[content], filename="march.csv", actor=ANA
    ).log


def folder(partner: PartnerSide, name: str = "Outgoing folder") -> Poller:
    """A folder of the partner that the hub cannot look into just now."""
    made = poller_changes.poller_create(
        endpoint=AgreementVersion.objects.get(pk=partner.terms.version_id).own_endpoint_id,
        partner=partner.terms.partner_id,
        name=name,
        kind="sftp",
        url="sftp://files.partner.example/outgoing/",
        username="hub",
        secret="kept-secret",
        host_key="SHA256:" + "a" * 43,
        actor=ANA,
        reason="go-live",
    )
    (job,) = pollers.claim_due(10)
    pollers.record([(job, Found(cause="connect_refused", detail="[Errno 111] Connection refused"))])
    return selectors_of_pollers.poller(made.pk)


def world(time: FrozenClock) -> World:
    """A suspended pair, one that flows both ways, refusals, a token, and a webhook endpoint that fails; a suspended
    trigger, a queue with documents in doubt and a failed one, a message in doubt, and a job.
    """
    (far,) = lost(time)
    webhook, _ = webhooks.endpoint_create(url="http://127.0.0.1:9/hook", types=[], name="ERP", actor=ANA)
    stuck = suspended(time)
    flowing = partner_side()
    outbound = delivered(flowing)[0]
    outbound.resubmitted_from = far
    outbound.save(update_fields=["resubmitted_from"])
    arrival = flowing.message(1)
    flowing.send(arrival)
    flowing.send(arrival)
    with link():
        work()
    flowing.send(flowing.message(9))
    flowing.send(Arrival("text/plain", b"<script>alert(1)</script>", Presented(), "198.51.100.7"))
    owner = user(Role.OPERATOR, f"owner{next(_count)}")
    token, _ = tokens.token_create(
        owner=owner, name="ERP", scopes=["messages:read"], actor=ANA, granted_by=ADMIN_SCOPES
    )
    inbound = Message.objects.get(direction="in")
    rejection = Rejection.objects.order_by("-id")[0]
    apps = partner_side()
    stopped = trigger_for(
        apps,
        "ERP orders",
        kind="http",
        url="http://erp.internal:8080/documents",
        monitor="http",
        monitor_url="http://erp.internal:8080/up",
    )
    queue = trigger_for(apps, "Warehouse", ordered=False, concurrency=8)
    in_doubt = doubtful(queue, apps, "W-1@apps.example", "W-2@apps.example", "W-3@apps.example")
    broken = failed(queue, apps, "W-4@apps.example")
    stopped = stop(stopped)
    job = jobs.job_create(
        action="settle_deliveries",
        parameters={"decision": "later", "remind_in": 3600},
        ids=[in_doubt[-1].pk],
        what="Warehouse: the last one",
        actor=ANA,
        reason="asked the warehouse",
    )
    jobs.run_due()
    WebhookDelivery.objects.filter(endpoint=webhook).update(due_at=clock.now() + timedelta(seconds=5), attempts=1)
    doubted, taker = atomic_scenes.doubtful_here("Contoso <Stock>", "Fabrikam Freight")
    return World(
        suspended=stuck,
        flowing=flowing,
        outbound=outbound,
        queued=Message.objects.filter(state="queued").order_by("position")[0],
        inbound=inbound,
        transmission=Transmission.objects.filter(message=outbound).get(),
        signal=Signal.objects.filter(about=outbound).get(),
        incident=Incident.objects.get(pair=stuck.outbound),
        rejection=rejection,
        partner=flowing.outbound.partner,
        token=token,
        webhook=webhook,
        stopped=stopped,
        queue=queue,
        doubtful=in_doubt[0],
        failed=broken,
        lost=far,
        job=job,
        log=partner_log(flowing),
        made=report_scenes.publish("audit", report_scenes.audit_rows(), files=True),
        waiting=report_scenes.queued("extract"),
        archived=archive_scenes.archived(flowing.outbound, "left@us"),
        hold=archive_scenes.hold("Case 7", pair_id=flowing.outbound.pk),
        circuit=left_alone(stuck),
        rule=told_rule(Incident.objects.get(pair=stuck.outbound)),
        view=SavedView.objects.create(
            page="messages",
            name="Failures of the night",
            query="state=failed",
            owner=owner,
            shared=True,
            created_at=clock.now(),
            updated_at=clock.now(),
        ),
        poller=folder(flowing),
        mask=iban_mask(),
        attribute=invoice_attribute(),
        offer=offered(flowing),
        schema=order_schema(),
        planned=jobs.job_plan(
            action="incidents_acknowledge", parameters={}, ids=[Incident.objects.get(pair=stuck.outbound).pk], actor=ANA
        ),
        export=exported(outbound),
        inquiry=StatusInquiry.objects.create(
            message=far,
            answer="processed",
            address="https://hub.partner.example/partner/status?message-id=x",
            http_status=200,
            response=b'HTTP 200 OK\r\n\r\n{"status": "<b>processed</b>"}',
            actor="ana",
            asked_at=clock.now(),
            answered_at=clock.now(),
        ),
        transaction=doubted,
        taker=taker,
        begun=atomic_scenes.begun_here(),
        **_beyond(),
    )


def exported(message: Message) -> BulkJob:
    """A finished export of one message's documents."""
    job = BulkJob.objects.create(
        action="messages_export",
        what="1 chosen one by one",
        state="finished",
        actor="ana",
        interface="console",
        reason="for the auditors",
        total=1,
        done=1,
        created_at=clock.now(),
        finished_at=clock.now(),
    )
    BulkJobItem.objects.create(job=job, object_id=message.pk, state="done")
    return job


def told_rule(incident: Incident) -> NotificationRule:
    """A rule by which somebody was told of the incident, and once in vain."""
    rule = notification_rules.rule_create(
        name="On call", events=["incident.opened"], channel="mail", recipients=["oncall@example.com"], actor=ANA
    )
    for state, error in (("sent", ""), ("failed", "The mail server could not be reached: <timed out>")):
        Notification.objects.create(
            rule=rule,
            incident=incident,
            key="incident.opened|x",
            state=state,
            subject=f"[TEST] {incident} opened",
            body="<b>Look</b>",
            last_error=error,
            attempts=1,
            folded=2,
            created_at=clock.now(),
            sent_at=clock.now() if state == "sent" else None,
        )
    return rule


def iban_mask(**values: Any) -> PayloadMask:
    """A rule that covers bank accounts; of a service that nobody uses, unless `values` say otherwise."""
    settings = {"name": "Bank accounts", "kind": "xml", "path": "//IBAN", "service": "urn:payments", **values}
    return masks.mask_create(actor=ANA, reason="bank secrecy", **settings)


def invoice_attribute(**values: Any) -> AttributeRule:
    """A rule that takes the number of invoices; of a service that nobody uses, unless `values` say otherwise."""
    settings = {"name": "invoice", "kind": "xml", "path": "//Invoice/Number", "service": "urn:invoices", **values}
    return attributes.rule_create(actor=ANA, reason="people ask for it", **settings)


def offered(partner: PartnerSide) -> OfferedCertificate:
    """A certificate that somebody of the partner uploaded in the portal."""
    facts = certificates.read(FIXED)[0]
    return OfferedCertificate.objects.create(
        party_id=partner.terms.partner_id,
        use="client",
        certificate=facts.pem,
        fingerprint=facts.fingerprint,
        note="We change over on Monday.",
        offered_by="pia",
        created_at=clock.now(),
    )


def order_schema(**values: Any) -> DocumentSchema:
    """A JSON Schema of orders; of a service that nobody uses, unless `values` say otherwise."""
    files = [("order.json", '{"type": "object", "required": ["number"]}')]
    settings = {"name": "Orders", "kind": "json", "service": "urn:json-orders", "files": files, **values}
    return schemas.schema_create(actor=ANA, reason="agreed with the partners", **settings)


def left_alone(partner: PartnerSide) -> Circuit:
    """The partner's server could not be reached several times in a row."""
    now = clock.now()
    values = {
        "state": "open",
        "failures": 7,
        "opened_at": now - timedelta(minutes=3),
        "retry_at": now + timedelta(seconds=40),
        "opened_times": 4,
        "cause": "connect_timeout",
        "detail": "timed out <b>after 10 s</b>",
        "updated_at": now,
    }
    return Circuit.objects.update_or_create(address=server_of(partner.terms.partner_address), defaults=values)[0]


def _beyond() -> dict[str, Any]:
    """A route with a message that was passed on, and streams both ways."""
    origin, harbour, lane = partner_side(), partner_side(), partner_side(profile="stream")
    origin.send(origin.message(1))
    came = Message.objects.get(pair=origin.inbound)
    route = routes.route_create(
        name="By the harbour",
        party_context="DUNS",
        party_value="999999999",
        onward=harbour.terms.agreement_id,
        mode="confirm_through",
        actor=ANA,
        reason="go-live",
    )
    return {
        "route": route,
        "came": came,
        "passed_on": passed_on(harbour, came),
        "in_stream": in_stream(lane, 3)[0],
        "stream_out": lane.outbound,
        "stream_in": lane.inbound,
    }


def passed_on(onward: PartnerSide, came: Message) -> Message:
    """A message that came, on its way to the next hop; its acknowledgement waits for that."""
    with link():
        went = submit(onward)
        work()
    Message.objects.filter(pk=went.pk).update(forwarded_from=came, message_id=came.message_id)
    Signal.objects.filter(about=came, direction="out", kind="ack").update(state="held", due_at=None)
    return Message.objects.get(pk=went.pk)


def in_stream(lane: PartnerSide, count: int) -> list[Message]:
    """Messages in flight in a stream, sent again once, and a sender of the other direction."""
    now = clock.now()
    sent = [submit(lane) for _ in range(count)]
    with link(Receipt(ok=True, status=202)):
        work()
    OutgoingStream.objects.filter(pair=lane.outbound).update(resend_index=1)
    IncomingStream.objects.create(
        pair=lane.inbound,
        source="2744e4e1-2b48-43e8-b441-42745f280d53",
        tx_sequence_id=Decimal(4839986701558349830),
        number=7,
        reject_count=2,
        last_access_at=now,
        last_order_ack_at=now,
        order_ack_due_at=now + timedelta(milliseconds=500),
    )
    return list(Message.objects.filter(pk__in=[message.pk for message in sent]).order_by("sequence_number"))
