"""One of everything that the API shows, by the collection and the path parameters that name it."""

from __future__ import annotations

from messaging.access.services import tokens
from messaging.bulk.services.jobs import job_create
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Delivery, Event, Rejection, Transmission, WebhookDelivery
from messaging.notifications.services import webhooks
from rmhub.roles import ADMIN_SCOPES
from tests.messaging.api.client import make_incident, make_user, suspended
from tests.messaging.deliveries.documents import documents_from, make_queue
from tests.messaging.factories import PartnerSide, submit
from tests.messaging.profiles.wsat import scenes
from tests.partners.factories import make_agreement

TEST = Actor("test")


def things(partner: PartnerSide) -> dict[str, dict[str, str]]:
    """Collection -> path parameter -> what exists."""
    hook, _ = webhooks.endpoint_create(url="http://127.0.0.1:9/hook", types=[], name="ERP", actor=TEST)
    pair = suspended(partner)
    head = pair.in_flight
    assert head is not None
    submit(partner)
    partner.send(partner.message(1))
    partner.send(partner.message(9))
    incident = make_incident()
    trigger = make_queue()
    documents_from(partner, "NewOrder")
    delivery = Delivery.objects.order_by("id").first()
    assert delivery is not None
    Delivery.objects.filter(pk=delivery.pk).update(state="in_doubt", doubt="started_not_completed", due_at=None)
    job = job_create(
        action="settle_deliveries",
        parameters={"decision": "duplicate"},
        ids=[delivery.pk],
        actor=TEST,
        reason="why not, says the test",
    )
    transaction, taker = scenes.doubtful("Stock", "Freight")
    token, _ = tokens.token_create(
        owner=make_user(), name="x", scopes=["pairs:read"], actor=TEST, granted_by=ADMIN_SCOPES
    )
    version = head.agreement_version
    agreement = make_agreement(activate=False).agreement
    sent = WebhookDelivery.objects.filter(endpoint=hook).order_by("id").first()
    transmission = Transmission.objects.order_by("id").first()
    rejection = Rejection.objects.order_by("id").first()
    assert sent is not None and transmission is not None
    assert AuditEntry.objects.exists() and Event.objects.exists()
    found = {
        "messages": {"message_id": head.public_id, "number": "1"},
        "transmissions": {"transmission_id": transmission.public_id},
        "pairs": {"pair": pair.public_id},
        "incidents": {"incident": incident.public_id},
        "triggers": {"trigger": trigger.public_id},
        "deliveries": {"delivery": delivery.public_id},
        "transactions": {"transaction": transaction.public_id, "participant": taker.public_id},
        "bulk-operations": {"job": job.public_id, "operation": job.public_id},
        "agreements": {"agreement_id": agreement.public_id, "number": "1"},
        "endpoints": {"endpoint_id": version.own_endpoint.public_id},
        "parties": {"party_id": f"par_{pair.partner_id.hex}"},
        "tokens": {"token_id": token.public_id},
        "webhook-endpoints": {"endpoint_id": hook.public_id, "delivery_id": sent.public_id},
        "problems": {"code": "not-found"},
    }
    if rejection is not None:
        found["rejections"] = {"rejection_id": rejection.public_id}
    return found
