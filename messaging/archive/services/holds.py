"""Legal holds: what must not leave the store, nor the archive, whatever its age.

Whoever places a hold waits for the purges under way, and those that begin afterwards see it: once `hold_place` has
returned, nothing that it covers is purged.
"""

from __future__ import annotations

import uuid
from datetime import datetime

from django.db import connection, transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from messaging.exceptions import InvalidSubmission, WrongState
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import LegalHold, Pair
from messaging.models.base import existing
from partners.models import Party
from rmhub import clock
from rmhub.ids import public_id

_LOCK = 0x524D484C


def hold_place(
    *,
    name: str,
    actor: Actor,
    reason: str,
    party_id: uuid.UUID | None = None,
    pair_id: uuid.UUID | None = None,
    conversation_id: str = "",
    message_id: str = "",
    range_from: datetime | None = None,
    range_to: datetime | None = None,
) -> LegalHold:
    """Keeps what fits all criteria that are given. Raises InvalidSubmission."""
    audit.require_reason(reason)
    name, conversation_id, message_id = name.strip(), conversation_id.strip(), message_id.strip()
    errors: dict[str, list[str]] = {}
    if not name or len(name) > 120:
        errors["name"] = [_("A name for the list, of at most 120 characters: the matter, or its file number.")]
    for field, text in (("conversation_id", conversation_id), ("message_id", message_id)):
        if len(text) > 512:
            errors[field] = [_("At most 512 characters.")]
    if any("\x00" in text for text in (name, conversation_id, message_id)):
        errors.setdefault("name", []).append(_("No control characters."))
    if range_from is not None and range_to is not None and range_to <= range_from:
        errors["range_to"] = [_("After the begin of the range; what enters at this very moment is not covered.")]
    if not any((party_id, pair_id, conversation_id, message_id, range_from, range_to)):
        errors["party"] = [_("Say what is held: a partner, a pair, a conversation, a message or a time.")]
    if party_id is not None and not Party.objects.filter(pk=party_id).exists():
        errors["party"] = [_("There is no such party.")]
    if pair_id is not None and not Pair.objects.filter(pk=pair_id).exists():
        errors["pair"] = [_("There is no such pair.")]
    if errors:
        raise InvalidSubmission(errors)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        hold = LegalHold.objects.create(
            name=name,
            reason=reason.strip(),
            party_id=party_id,
            pair_id=pair_id,
            conversation_id=conversation_id,
            message_id=message_id,
            range_from=range_from,
            range_to=range_to,
            placed_by=actor.name[:150],
            placed_at=clock.now(),
        )
        audit.record(actor, "hold.place", hold, reason=reason, after=_facts(hold))
        return hold


def hold_release(*, hold_id: uuid.UUID, actor: Actor, reason: str) -> LegalHold:
    """From now on what it covered may leave. Raises InvalidSubmission, NotFound, WrongState (released before)."""
    audit.require_reason(reason)
    with transaction.atomic():
        hold = existing(LegalHold.objects.select_for_update(of=("self",)), hold_id)
        if hold.released_at is not None:
            raise WrongState(_("{name} has released this hold before.").format(name=hold.released_by), state="released")
        hold.released_at = clock.now()
        hold.released_by = actor.name[:150]
        hold.release_reason = reason.strip()
        hold.save(update_fields=["released_at", "released_by", "release_reason"])
        audit.record(
            actor, "hold.release", hold, reason=reason, before={"state": "in force"}, after={"state": "released"}
        )
        return hold


def wait_for_none() -> None:
    """No hold is placed until the end of the transaction; what was placed before is seen from now on."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [_LOCK])


def covering(hold: LegalHold) -> Q:
    """The messages, or archived messages, that the hold covers."""
    found = Q()
    if hold.party_id:
        found &= Q(pair__partner=hold.party_id) | Q(pair__own_party=hold.party_id)
    if hold.pair_id:
        found &= Q(pair=hold.pair_id)
    if hold.conversation_id:
        found &= Q(conversation_id=hold.conversation_id)
    if hold.message_id:
        found &= Q(message_id=hold.message_id)
    if hold.range_from is not None:
        found &= Q(created_at__gte=hold.range_from)
    if hold.range_to is not None:
        found &= Q(created_at__lt=hold.range_to)
    return found


def held() -> Q | None:
    """The messages, or archived messages, that some hold in force covers; None when there is no hold."""
    found: Q | None = None
    for hold in LegalHold.objects.filter(released_at=None):
        found = covering(hold) if found is None else found | covering(hold)
    return found


def held_events() -> Q | None:
    """The events that a hold on a partner, a pair or a time covers though they are of no message in the store."""
    found: Q | None = None
    for hold in LegalHold.objects.filter(released_at=None, conversation_id="", message_id=""):
        one = Q()
        if hold.party_id:
            pairs = Pair.objects.filter(Q(partner=hold.party_id) | Q(own_party=hold.party_id))
            one &= Q(pair__in=list(pairs.values_list("pk", flat=True)))
        if hold.pair_id:
            one &= Q(pair=hold.pair_id)
        if hold.range_from is not None:
            one &= Q(at__gte=hold.range_from)
        if hold.range_to is not None:
            one &= Q(at__lt=hold.range_to)
        found = one if found is None else found | one
    return found


def _facts(hold: LegalHold) -> dict[str, object]:
    facts: dict[str, object] = {
        "party": public_id("par", hold.party_id) if hold.party_id else "",
        "pair": public_id("pair", hold.pair_id) if hold.pair_id else "",
        "conversation_id": hold.conversation_id,
        "message_id": hold.message_id,
        "range_from": hold.range_from.isoformat() if hold.range_from else "",
        "range_to": hold.range_to.isoformat() if hold.range_to else "",
    }
    return {name: value for name, value in facts.items() if value}
