"""Incidents, rejections, the audit log and tokens, as screens and API read them."""

from __future__ import annotations

import re
import uuid
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Q, QuerySet

from messaging.access.selectors import reach
from messaging.choices import IncidentState
from messaging.exceptions import NotFound
from messaging.keyset import floor_id
from messaging.models import ApiToken, AuditEntry, Incident, Rejection
from messaging.models.base import existing
from messaging.models.record import object_named
from partners import visibility
from partners.models import PartnerGroup
from rmhub import clock
from rmhub.ids import BadPublicId, read_public_id

_SLACK = timedelta(hours=1)
_NUMBER = re.compile(r"(?:INC-)?([0-9]{1,9})", re.IGNORECASE | re.ASCII)


# The orders of these lists, by what the API calls them.
INCIDENT_ORDERS = {"-number": ("-number",), "number": ("number",)}
AUDIT_ORDERS = {"-created_at": ("-id",), "created_at": ("id",)}


def incidents(
    *,
    states: tuple[str, ...] = (),
    pair_id: uuid.UUID | None = None,
    partner_id: uuid.UUID | None = None,
    trigger_id: uuid.UUID | None = None,
    cause: str = "",
    owner: str | None = None,
    snoozed: bool | None = None,
    coordination_id: uuid.UUID | None = None,
    parts: bool = True,
    part_of: uuid.UUID | None = None,
) -> QuerySet[Incident]:
    """Incidents with their pairs, triggers and messages. Not ordered; pages by ("-number",).

    `owner`: a user name; "" = those that nobody has taken. `snoozed`: only those that are put off, or only the others.
    `parts`: with those that hang on another one. `part_of`: those that hang on this one.
    """
    known = Incident.objects.select_related(
        "pair__partner", "message", "trigger", "coordination", "agreement", "part_of"
    )
    found = visibility.either(known, *reach.INCIDENT)
    found = found.defer("message__wire_frame", "trigger__secret_encrypted")
    if states:
        found = found.filter(state__in=states)
    if pair_id is not None:
        found = found.filter(pair=pair_id)
    if partner_id is not None:
        found = found.filter(pair__partner=partner_id)
    if trigger_id is not None:
        found = found.filter(trigger=trigger_id)
    if coordination_id is not None:
        found = found.filter(coordination=coordination_id)
    if part_of is not None:
        found = found.filter(part_of=part_of)
    if not parts:
        found = found.filter(part_of=None)
    if owner is not None:
        found = found.filter(owner=owner)
    if snoozed is not None:
        found = found.filter(snoozed_until__gt=clock.now()) if snoozed else found.filter(awake(clock.now()))
    return found.filter(cause=cause) if cause else found


def awake(now: datetime) -> Q:
    """Incidents that are not put off at the moment."""
    return Q(snoozed_until=None) | Q(snoozed_until__lte=now)


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
    found = reach.rejections(Rejection.objects.defer("sample"))
    if reason:
        found = found.filter(reason=reason)
    if party:
        found = found.filter(party_name=party)
    return _within(found, created_gte, created_lt)


def rejection(rejection_id: uuid.UUID) -> Rejection:
    """One rejection, without the bytes. Raises NotFound."""
    return existing(rejections(), rejection_id)


def audit_entries(
    *,
    object_id: str = "",
    object_type: str = "",
    actor: str = "",
    verb: str = "",
    interface: str = "",
    result: str = "",
    text: str = "",
    created_gte: datetime | None = None,
    created_lt: datetime | None = None,
) -> QuerySet[AuditEntry]:
    """The audit log. Not ordered; pages by ("-id",).

    `object_id`: a public id (`pair_...`), or what people call the object: `INC-42`, a pair's code, a name.
    `actor`: a user name, whose tokens are meant too, or all of `name (token ERP)`. `verb`: `pair.resume`, or all of an
    object's by `pair.`. `text`: in reasons and names; no index serves it (see `messages.selectors.messages.bounded`).
    """
    found = reach.of_audit(AuditEntry.objects.all())
    if object_type:
        found = found.filter(object_type=object_type)
    if object_id:
        found = found.filter(_about(object_id, object_type))
    if actor:
        found = found.filter(Q(actor=actor) | Q(actor__startswith=f"{actor} (token "))
    if verb:
        found = found.filter(verb__startswith=verb) if verb.endswith(".") else found.filter(verb=verb)
    if interface:
        found = found.filter(interface=interface)
    if result:
        found = found.filter(result=result)
    if text:
        found = found.filter(Q(reason__icontains=text) | Q(object_name__icontains=text))
    return _within(found, created_gte, created_lt)


def audit_values(column: str, most: int = 200) -> list[str]:
    """The first values of `actor` or `verb` that the log has, in order: a few steps in an index, not all entries."""
    if column not in ("actor", "verb"):
        raise ValueError(column)
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH RECURSIVE step AS ((SELECT {column} AS value FROM messaging_auditentry ORDER BY {column} LIMIT 1)"  # noqa: S608
            f" UNION ALL SELECT (SELECT {column} FROM messaging_auditentry WHERE {column} > value"
            f" ORDER BY {column} LIMIT 1) FROM step WHERE value IS NOT NULL)"
            " SELECT value FROM step WHERE value IS NOT NULL LIMIT %s",
            [most],
        )
        return [row[0] for row in cursor.fetchall()]


def _about(text: str, kind: str) -> Q:
    """The entries about the object that people mean by a text; `kind`: its type, if that was said."""
    known = object_named(text)
    if known is not None:
        # The index begins with the type. A message that was archived keeps its id.
        kinds = [kind] if kind else ["message", "archivedmessage"] if known[0] == "message" else [known[0]]
        return Q(object_type__in=kinds, object_id=known[1])
    return Q(object_id=text) | Q(object_name=text)


def tokens(*, owner: str = "") -> QuerySet[ApiToken]:
    """API tokens with their owners and groups, without their hashes. Not ordered; pages by ("-id",)."""
    found = ApiToken.objects.select_related("owner").prefetch_related("groups").defer("secret_sha256")
    return found.filter(**{"owner__username": owner}) if owner else found


def token_groups() -> QuerySet[PartnerGroup]:
    """The partner groups that a token can be limited to."""
    return PartnerGroup.objects.order_by("name")


def token(token_id: uuid.UUID) -> ApiToken:
    """One API token without its hash. Raises NotFound."""
    return existing(tokens(), token_id)


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
