"""Who is in doubt about an outcome, and what people are told of it.

Call with the Coordination locked, after everything else of its transaction: incidents are locked last.
"""

from __future__ import annotations

from datetime import datetime

from messaging.journal import audit, events, incidents
from messaging.models import Coordination, Enlistment, Event
from messaging.profiles.wsat import opening, outgoing
from messaging.protocol.atomic.words import Phase, Vote

HEURISTIC = "heuristic_outcome"  # somebody decided otherwise than the transaction: only people can fix it
REFUSED = "transaction_peer_refused"
SILENT, HELD = outgoing.SILENT, outgoing.HELD
ELSEWHERE = "address_outside_agreement"  # it registered at an address that the agreement does not name any more
IN_DOUBT = "transaction_in_doubt"  # the database was restored: it may have been told another outcome than it now has
_PASSING = (SILENT, HELD, REFUSED, ELSEWHERE, IN_DOUBT)  # what an answer disproves
_ASKED_FOR = ("transaction_rolled_back", "transaction_settled")
_ROLLED_BACK_ABOVE = "transaction_superior_rolled_back"


def doubt(
    coordination: Coordination,
    enlistment: Enlistment | None,
    cause: str,
    detail: str,
    now: datetime,
    written: list[Event],
) -> None:
    """Marks a relationship as in doubt and opens the incident."""
    mark(coordination, enlistment, cause, detail, now, written)
    _, opened = incidents.incident_open(
        pair=enlistment.pair if enlistment is not None else None,
        cause=cause,
        detail=detail,
        now=now,
        coordination=coordination,
    )
    written.extend(opened)


def mark(
    coordination: Coordination,
    enlistment: Enlistment | None,
    cause: str,
    detail: str,
    now: datetime,
    written: list[Event],
) -> None:
    """Without an incident, for whom that was opened already."""
    if enlistment is None or enlistment.doubt not in (cause, HEURISTIC):
        known: dict[str, object] = {**opening.facts(coordination), "cause": cause}
        if enlistment is not None:
            known |= {"participant": enlistment.public_id, "seat": enlistment.seat, "vote": enlistment.vote}
        name = str(coordination)
        audit.doubted([audit.Doubt("coordination", coordination.public_id, name, detail, known)], now)
    if enlistment is not None and enlistment.doubt != HEURISTIC:
        enlistment.doubt, enlistment.doubt_detail = cause, detail
        enlistment.save(update_fields=["doubt", "doubt_detail"])
    if coordination.doubtful_since is None:
        coordination.doubtful_since = now
        data = opening.facts(coordination) | {"cause": cause, "detail": detail}
        if enlistment is not None:
            data["participant"] = enlistment.public_id
        written.append(events.event("transaction.in_doubt", now, data=data))
    coordination.lock_version += 1
    coordination.changed_at = now
    coordination.save(update_fields=["doubtful_since", "lock_version", "changed_at"])


def cleared(
    coordination: Coordination,
    enlistment: Enlistment,
    now: datetime,
    written: list[Event],
    *,
    by: str = "",
    resolution: str = "",
) -> None:
    """It answered, so that nobody is in doubt about it any more. A contradiction stays until a person has seen it."""
    if not enlistment.doubt or (not by and _stays(coordination, enlistment)):
        return
    enlistment.doubt, enlistment.doubt_detail = "", ""
    enlistment.save(update_fields=["doubt", "doubt_detail"])
    if Enlistment.objects.filter(coordination=coordination).exclude(doubt="").exists():
        return
    coordination.doubtful_since = None
    coordination.lock_version += 1
    coordination.save(update_fields=["doubtful_since", "lock_version"])
    written.extend(
        incidents.incidents_resolve_for_coordination(
            coordination_id=coordination.pk,
            now=now,
            by=by or "system",
            resolution=resolution or "The other side has answered.",
            causes=(*_PASSING, HEURISTIC) if by else _PASSING,
        )
    )


def _stays(coordination: Coordination, enlistment: Enlistment) -> bool:
    """Whether no answer ends the doubt. After a restore, who has forgotten a transaction that it committed answers
    Prepare with Aborted, and Prepared with Rollback: only a commit, a rollback that was asked for, or ReadOnly says
    that all is well.
    """
    if enlistment.doubt != IN_DOUBT:
        return enlistment.doubt == HEURISTIC
    asked = coordination.phase in (Phase.COMMITTING, Phase.COMMITTED) or coordination.cause in _ASKED_FOR
    if asked or enlistment.vote == Vote.READ_ONLY:
        return False
    voted = coordination.enlistments.filter(superior=True, vote=Vote.PREPARED)
    return coordination.cause != _ROLLED_BACK_ABOVE or voted.exists()
