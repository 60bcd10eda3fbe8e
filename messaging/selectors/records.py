"""Incidents, rejections, the audit log, webhook endpoints and tokens, as screens and API read them."""

from __future__ import annotations

import re
import uuid
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from messaging.choices import IncidentState
from messaging.exceptions import NotFound
from messaging.models import ApiToken, AuditEntry, Incident, Rejection, WebhookDelivery, WebhookEndpoint
from messaging.selectors.keyset import floor_id
from rmhub.ids import BadPublicId, public_id, read_public_id

_SLACK = timedelta(hours=1)
_NUMBER = re.compile(r"(?:INC-)?([0-9]{1,9})", re.IGNORECASE | re.ASCII)


def incidents(
    *,
    states: tuple[str, ...] = (),
    pair_id: uuid.UUID | None = None,
    partner_id: uuid.UUID | None = None,
    trigger_id: uuid.UUID | None = None,
    cause: str = "",
) -> QuerySet[Incident]:
    """Incidents with their pairs, triggers and messages. Not ordered; pages by ("-number",)."""
    found = Incident.objects.select_related("pair__partner", "message", "trigger")
    found = found.defer("message__wire_frame", "trigger__secret_encrypted")
    if states:
        found = found.filter(state__in=states)
    if pair_id is not None:
        found = found.filter(pair=pair_id)
    if partner_id is not None:
        found = found.filter(pair__partner=partner_id)
    if trigger_id is not None:
        found = found.filter(trigger=trigger_id)
    return found.filter(cause=cause) if cause else found


def unresolved(pair_id: uuid.UUID) -> list[Incident]:
    """What a person still has to look at on this pair, newest first."""
    return list(incidents(pair_id=pair_id).exclude(state=IncidentState.RESOLVED).order_by("-number"))


def incident(reference: str | uuid.UUID) -> Incident:
    """One incident, by id (`inc_...`) or number (`INC-42`, `42`). Raises NotFound."""
    if isinstance(reference, uuid.UUID):
        chosen = Q(pk=reference)
    elif number := _NUMBER.fullmatch(reference):
        chosen = Q(number=int(number[1]))
    else:
        try:
            chosen = Q(pk=read_public_id("inc", reference))
        except BadPublicId:
            chosen = Q(pk__in=[])
    found = incidents().filter(chosen).first()
    if found is None:
        raise NotFound(f"There is no incident {reference}.")
    return found


def rejections(
    *,
    reason: str = "",
    party: str = "",
    created_gte: datetime | None = None,
    created_lt: datetime | None = None,
) -> QuerySet[Rejection]:
    """What came in and was refused, without the bytes. Not ordered; pages by ("-id",)."""
    found = Rejection.objects.defer("sample")
    if reason:
        found = found.filter(reason=reason)
    if party:
        found = found.filter(party_name=party)
    return _within(found, created_gte, created_lt)


def rejection(rejection_id: uuid.UUID) -> Rejection:
    """One rejection, without the bytes. Raises NotFound."""
    found = rejections().filter(pk=rejection_id).first()
    if found is None:
        raise NotFound(f"There is no rejection {public_id('rej', rejection_id)}.")
    return found


def audit_entries(
    *,
    object_id: str = "",
    object_type: str = "",
    actor: str = "",
    verb: str = "",
    created_gte: datetime | None = None,
    created_lt: datetime | None = None,
) -> QuerySet[AuditEntry]:
    """The audit log. `object_id` is a public id (`pair_...`). Not ordered; pages by ("-id",)."""
    found = AuditEntry.objects.all()
    if object_type:
        found = found.filter(object_type=object_type)
    if object_id:
        found = found.filter(object_id=object_id)
    if actor:
        found = found.filter(actor=actor)
    if verb:
        found = found.filter(verb=verb)
    return _within(found, created_gte, created_lt)


def webhook_endpoints() -> QuerySet[WebhookEndpoint]:
    """Webhook endpoints without their secrets. Not ordered; pages by ("id",)."""
    return WebhookEndpoint.objects.defer("secret_encrypted")


def webhook_endpoint(endpoint_id: uuid.UUID) -> WebhookEndpoint:
    """One webhook endpoint without its secret. Raises NotFound."""
    found = webhook_endpoints().filter(pk=endpoint_id).first()
    if found is None:
        raise NotFound(f"There is no webhook endpoint {public_id('whe', endpoint_id)}.")
    return found


def webhook_deliveries(endpoint_id: uuid.UUID, *, states: tuple[str, ...] = ()) -> QuerySet[WebhookDelivery]:
    """What was sent, or is to be sent, to an endpoint. Not ordered; pages by ("-id",)."""
    found = WebhookDelivery.objects.filter(endpoint=endpoint_id)
    return found.filter(state__in=states) if states else found


def tokens(*, owner: str = "") -> QuerySet[ApiToken]:
    """API tokens with their owners, without their hashes. Not ordered; pages by ("-id",)."""
    found = ApiToken.objects.select_related("owner").defer("secret_sha256")
    return found.filter(**{"owner__username": owner}) if owner else found


def token(token_id: uuid.UUID) -> ApiToken:
    """One API token without its hash. Raises NotFound."""
    found = tokens().filter(pk=token_id).first()
    if found is None:
        raise NotFound(f"There is no token {public_id('tok', token_id)}.")
    return found


def _within(found: QuerySet, created_gte: datetime | None, created_lt: datetime | None) -> QuerySet:
    """Rows of that time; their ids carry it too, and those have an index."""
    if created_gte is not None:
        found = found.filter(at__gte=created_gte, id__gte=floor_id(_moved(created_gte, -_SLACK)))
    if created_lt is not None:
        found = found.filter(at__lt=created_lt, id__lt=floor_id(_moved(created_lt, _SLACK)))
    return found


def _moved(at: datetime, by: timedelta) -> datetime:
    try:
        return at + by
    except OverflowError:
        return at
