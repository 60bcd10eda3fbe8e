"""The audit log: every action of a person, in the transaction of the action (invariant 10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import models
from django.utils.translation import gettext as _

from messaging.choices import Interface
from messaging.exceptions import InvalidSubmission
from messaging.models import AuditEntry
from messaging.models.bulk import bulk_insert
from messaging.models.record import object_named
from rmhub import clock
from rmhub.ids import floor_id
from rmhub.language import gettext_lazy

# How an actor showed who they are -> the words for people.
AUTHENTICATIONS = {
    "session": gettext_lazy("Console session"),
    "password": gettext_lazy("Password"),
    "totp": gettext_lazy("Password and one-time code"),
    "openid": gettext_lazy("Single sign-on"),
    "token": gettext_lazy("API token"),
    "job": gettext_lazy("Bulk job of theirs"),
    "shell": gettext_lazy("Shell of the server"),
}
# What the way alone says.
_OF_INTERFACE: dict[str, str] = {Interface.COMMAND: "shell"}


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, by which way, and how they showed who they are (`authentication`: a word of `AUTHENTICATIONS`)."""

    name: str
    interface: str = Interface.SYSTEM
    address: str = ""
    request_id: str = ""
    authentication: str = ""


SYSTEM = Actor("system")
MIN_REASON = 3
HEAVY_REASON = 10  # for what cannot be taken back
DONE, DENIED = "done", "denied"
# Seconds within which the same refusal is written once, and how many refusals of one actor are written in that time.
DENIED_WITHIN = 60
DENIED_MOST = 20


def require_reason(reason: str, *, at_least: int = MIN_REASON) -> None:
    """Raises InvalidSubmission for an action without a why."""
    if len(reason.strip()) < at_least:
        said = _("Say why, in at least {count} characters: it goes into the audit log.")
        raise InvalidSubmission({"reason": [said.format(count=at_least)]})


def record(
    actor: Actor,
    verb: str,
    target: models.Model,
    *,
    reason: str = "",
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
) -> AuditEntry:
    """Writes one entry. `before` and `after` hold what changed, as JSON; never secrets."""
    return AuditEntry.objects.create(
        at=clock.now(),
        actor=actor.name[:150],
        interface=actor.interface,
        address=actor.address[:64],
        request_id=actor.request_id[:80],
        verb=verb,
        object_type=target._meta.model_name or "",
        object_id=str(getattr(target, "public_id", target.pk)),
        object_name=str(target)[:255],
        reason=reason,
        before=dict(before or {}),
        after=dict(after or {}),
        authentication=(actor.authentication or _OF_INTERFACE.get(actor.interface, ""))[:20],
        result=DONE,
    )


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something whose outcome the hub does not know from now on. `kind`: the name of its model; `object_id`: public."""

    kind: str
    object_id: str
    name: str
    reason: str
    evidence: Mapping[str, object]


def doubted(doubts: Iterable[Doubt], now: datetime) -> None:
    """Writes, at the moment at which they came to be in doubt, why that is so and what is known (spec 4: "sends In
    Doubt documents to the audit subsystem"). One statement; none without doubts.
    """
    bulk_insert(
        [
            AuditEntry(
                at=now,
                actor=SYSTEM.name,
                interface=SYSTEM.interface,
                verb=f"{one.kind}.in_doubt",
                object_type=one.kind,
                object_id=one.object_id,
                object_name=one.name[:255],
                reason=one.reason,
                after=dict(one.evidence),
                result=DONE,
            )
            for one in doubts
        ]
    )


def refused(actor: Actor, name: str, parameters: Mapping[str, object], *, method: str, required: str) -> None:
    """`denied`, told by the name of a path (`pair-resume`, `pair-verb`) and the parameters in it."""
    kind, __, verb = name.partition("-")
    texts = {key: str(value) for key, value in parameters.items()}
    if verb == "verb":
        verb = texts.pop("verb", verb)
    texts.pop("decision", None)
    reference = next(iter(texts.values()), "").replace("\x00", "")[:80]
    known = object_named(reference)
    object_type, object_id = known if known is not None else (kind, reference)
    verb = f"{kind}.{(verb or method.lower()).replace('-', '_')}"
    denied(actor, verb, object_type=object_type, object_id=object_id, name=reference, required=required)


def denied(
    actor: Actor, verb: str, *, object_type: str, object_id: str, required: str, name: str = ""
) -> AuditEntry | None:
    """Writes that somebody tried what they may not do. `required`: the scope that they lack.

    The same refusal within a minute is written once, and no more than a score of one actor's: whoever hammers at a
    refused caller must not fill the log. Returns None when nothing was written.
    """
    now = clock.now()
    since = now - timedelta(seconds=DENIED_WITHIN)
    recent = AuditEntry.objects.filter(actor=actor.name[:150], result=DENIED, at__gte=since, id__gte=floor_id(since))
    known = list(recent.order_by("-id").values_list("verb", "object_id")[:DENIED_MOST])
    if len(known) == DENIED_MOST or (verb[:60], object_id[:80]) in known:
        return None
    return AuditEntry.objects.create(
        at=now,
        actor=actor.name[:150],
        interface=actor.interface,
        address=actor.address[:64],
        request_id=actor.request_id[:80],
        verb=verb[:60],
        object_type=object_type[:40],
        object_id=object_id[:80],
        object_name=(name or object_id)[:255],
        after={"required": required},
        authentication=actor.authentication[:20],
        result=DENIED,
    )
