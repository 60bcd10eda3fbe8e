"""Opens transactions, and says what their CoordinationContext is (spec 5; protocols.md 5.2)."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from messaging.exceptions import NotFound
from messaging.journal import events
from messaging.models import Coordination, Delivery
from messaging.profiles.wsat import addresses
from messaging.protocol.atomic.words import ENDED, Phase
from messaging.protocol.ws.messages import CoordinationContext
from messaging.protocol.ws.names import Version, coordination_type
from partners.choices import Profile
from partners.models import AgreementVersion
from partners.terms import Terms
from rmhub import clock
from rmhub.ids import uuid7


def coordination_open(
    *,
    terms: Terms | None,
    begun_by: str = "",
    expires_ms: int | None = None,
    version: str = "2006/06",
    now: datetime | None = None,
    delivery: Delivery | None = None,
    claim: uuid.UUID | None = None,
    create_message_id: str = "",
    identifier: str = "",
    subordinate: bool = False,
) -> Coordination:
    """A new transaction, active. It ends after `expires_ms`, or the hub's maximum if that is less or nothing is said.

    `terms`: whose partner asked for it. `identifier`: that of the superior's context, for a subordinate one.
    """
    now = now or clock.now()
    most = settings.RMHUB_TRANSACTION_SECONDS * 1000
    life = timedelta(milliseconds=most if expires_ms is None else min(expires_ms, most))
    own = uuid7()
    with transaction.atomic():
        coordination = Coordination.objects.create(
            id=own,
            identifier=identifier or f"urn:uuid:{own}",
            version=version,
            phase=Phase.ACTIVE,
            subordinate=subordinate,
            agreement_version_id=terms.version_id if terms is not None else None,
            begun_by=begun_by[:150],
            create_message_id=create_message_id,
            delivery=delivery,
            claim=claim,
            expires_at=now + life,
            due_at=now + life,
            created_at=now,
            changed_at=now,
        )
        events.write([events.event("transaction.begun", now, data=facts(coordination))])
    return coordination


def is_full(*, partner_id: uuid.UUID | None = None, begun_by: str = "") -> bool:
    """Whether a partner, or a user of the API (`begun_by`), has begun so many transactions that have not ended that it
    must not begin another one (RMHUB_TRANSACTIONS_OPEN). Those of deliveries are nobody's: deliveries bound them.

    Nothing is locked: what begins at the same moment may go beyond it, by as much as is served at once.
    """
    if partner_id is not None:
        versions = AgreementVersion.objects.filter(agreement__partner=partner_id, profile=Profile.WSAT)
        # Looked up beforehand: the planner thinks of a partner as anybody, who began a share of everything.
        mine = Coordination.objects.filter(agreement_version__in=list(versions.values_list("pk", flat=True)))
    else:
        here = Coordination.objects.filter(agreement_version__isnull=True, delivery__isnull=True)
        mine = here.filter(begun_by=begun_by[:150])
    most: int = settings.RMHUB_TRANSACTIONS_OPEN
    return mine.exclude(phase__in=sorted(ENDED)).order_by()[:most].count() >= most


def locked(coordination_id: uuid.UUID) -> Coordination:
    """The transaction, locked until the commit. Raises NotFound.

    Rows that only refer to it are inserted by others meanwhile (an incident, a message), so its key is not locked.
    """
    try:
        return Coordination.objects.select_for_update(no_key=True).get(pk=coordination_id)
    except Coordination.DoesNotExist:
        raise NotFound(f"There is no transaction {coordination_id}.") from None


def context_of(coordination: Coordination, terms: Terms, now: datetime | None = None) -> CoordinationContext:
    """What a participant under these terms needs to register. Its Expires is what is left, at least 1 ms."""
    now = now or clock.now()
    left = None
    if coordination.expires_at is not None:
        left = max(1, int((coordination.expires_at - now).total_seconds() * 1000))
    return CoordinationContext(
        identifier=coordination.identifier,
        registration=addresses.own_epr(terms, addresses.REGISTRATION, coordination=coordination),
        coordination_type=coordination_type(Version(terms.coordination_version)),
        expires_ms=left,
    )


def facts(coordination: Coordination) -> dict[str, object]:
    """What events say about a transaction."""
    return {
        "transaction": coordination.public_id,
        "identifier": coordination.identifier,
        "phase": coordination.phase,
    }
