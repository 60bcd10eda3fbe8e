"""Which objects the present request may name: those of partners that it may see (`partners.visibility`).

Twice, so that a verb cannot reach what no list would show: the shells (`console.access`, `api.endpoint`) ask for every
id in a path, a query or a body before a view sees it; and views turn ids into keys by `read_id` alone, which selects
what the id names. What may not be seen is answered like what does not exist. The table also tells whose an entry of the
audit log is.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import BooleanField, Case, Exists, Func, Model, OuterRef, Q, QuerySet, UUIDField, Value, When
from django.db.models.functions import Right
from django.utils.translation import gettext as _

from messaging.exceptions import NotFound
from messaging.models import (
    ArchivedMessage,
    AuditEntry,
    BenchReport,
    BulkJob,
    Coordination,
    Delivery,
    Enlistment,
    Incident,
    LegalHold,
    Message,
    OfferedCertificate,
    OnboardingDraft,
    Pair,
    PartnerLog,
    ProbeReport,
    Rejection,
    Route,
    Signal,
    StatusInquiry,
    Transmission,
    Trigger,
)
from partners import visibility
from partners.models import Agreement, Credential, Endpoint, Party, Poller
from rmhub.ids import BadPublicId, parse, read_public_id

# An incident is its pair's; one of a trigger is its document's.
INCIDENT = ("pair__partner", "message__pair__partner")
# A transaction is of all who take part in it, of who began it, and of the partner whose document it is about.
TRANSACTION = ("agreement_version__agreement__partner", "delivery__pair__partner", "enlistments__party")
# A trigger for the documents of every partner is for everybody to see.
TRIGGER = ("party", "agreement__partner")


@dataclass(frozen=True, slots=True)
class Owned:
    """A kind of object, and the ways from it to partners: one that may be seen is enough.

    `shared`: those that lead to no partner at all are for everybody. `maker`: the field that says which person made it
    (where the other one is empty): they see it too.
    """

    model: type[Model]
    ways: tuple[str, ...]
    shared: bool = False
    maker: tuple[str, str] | None = None

    def within(self, found: QuerySet[Any]) -> QuerySet[Any]:
        """Those that may be seen; where a way leads to many, some of them more than once."""
        if self.maker is not None and visibility.visible() is not None:
            field, empty = self.maker
            mine = visibility.own(self.model._default_manager.filter(**{f"{empty}__isnull": True}), field)
            return visibility.either(found, *self.ways) | found.filter(pk__in=mine.values("pk"))
        return visibility.shared(found, *self.ways) if self.shared else visibility.either(found, *self.ways)


# Prefix of the public id -> what it names.
OWNED: dict[str, Owned] = {
    "pair": Owned(Pair, ("partner",)),
    "msg": Owned(Message, ("pair__partner",)),
    "att": Owned(Transmission, ("pair__partner",)),
    "sig": Owned(Signal, ("pair__partner",)),
    "del": Owned(Delivery, ("pair__partner",)),
    "inc": Owned(Incident, INCIDENT),
    "txn": Owned(Coordination, TRANSACTION, maker=("begun_by", "agreement_version")),
    "enl": Owned(Enlistment, ("party",), shared=True),
    "inq": Owned(StatusInquiry, ("message__pair__partner",)),
    "trg": Owned(Trigger, TRIGGER, shared=True),
    "par": Owned(Party, ("pk",)),
    "end": Owned(Endpoint, ("party",)),
    "cred": Owned(Credential, ("party",)),
    "agr": Owned(Agreement, ("partner",)),
    "ofc": Owned(OfferedCertificate, ("party",)),
    "poll": Owned(Poller, ("partner",)),
    "plog": Owned(PartnerLog, ("party",)),
    "rt": Owned(Route, ("onward__partner",)),
    "hold": Owned(LegalHold, ("party", "pair__partner")),
    "prb": Owned(ProbeReport, ("endpoint__party",)),
    "tst": Owned(BenchReport, ("agreement__partner",)),
    "drf": Owned(OnboardingDraft, ("agreement__partner",)),
}
# Messages that have left the store keep their ids.
_LEFT = Owned(ArchivedMessage, ("pair__partner",))
_INCIDENT = re.compile(r"INC-([0-9]{1,9})", re.IGNORECASE | re.ASCII)
_DEEPEST = 20


def read_id(prefix: str, text: str) -> uuid.UUID:
    """The key in an id of this kind, or in a bare UUID. Raises BadPublicId; NotFound for what is out of reach.

    Without a limit nothing is looked up.
    """
    key = read_public_id(prefix, text)
    _require(prefix, key, text)
    return key


def named(prefix: str, reference: str | uuid.UUID, field: str) -> Q:
    """Select the row that its key, its public id or its `field` names; a text with a NUL character names none."""
    if isinstance(reference, uuid.UUID):
        return Q(pk=reference)
    try:
        return Q(pk=read_public_id(prefix, reference))
    except BadPublicId:
        return Q(**{field: reference}) if "\x00" not in reference else Q(pk__in=[])


def check(values: Any, *, depth: int = 0) -> None:
    """Raises NotFound when a text in `values` (texts, lists, mappings) is an id that names nothing within reach.

    Costs nothing without a limit. A bare UUID says not what it names: `read_id` knows.
    """
    if visibility.visible() is None:
        return
    if depth > _DEEPEST:
        raise NotFound(_("What was sent is nested too deeply to be looked through."))
    if isinstance(values, str):
        text = values.strip()
        if (named := parse(text)) is not None and named[0]:
            _require(named[0], named[1], text)
        number = _INCIDENT.fullmatch(text)
        if number and not OWNED["inc"].within(Incident.objects.filter(number=int(number[1]))).exists():
            raise NotFound(_("There is no {text}.").format(text=text))
    elif isinstance(values, Mapping):
        check(list(values.values()), depth=depth + 1)
    elif isinstance(values, list | tuple):
        for value in values:
            check(value, depth=depth + 1)


def jobs(found: QuerySet[BulkJob]) -> QuerySet[BulkJob]:
    """Bulk jobs may be about many partners: whoever is limited sees their own."""
    return visibility.own(found, "actor")


def rejections(found: QuerySet[Rejection]) -> QuerySet[Rejection]:
    """What was refused is its sender's, when that is known; what strangers sent is for those who see everything."""
    names = visibility.names()
    return found if names is None else found.filter(party_name__in=names)


def of_audit(found: QuerySet[AuditEntry]) -> QuerySet[AuditEntry]:
    """The entries about objects that may be seen, and one's own."""
    if visibility.visible() is None:
        return found
    key = Func(Right(OuterRef("object_id"), 32), function="uuid", template="(%(expressions)s)::uuid")
    key.output_field = UUIDField()
    kinds: dict[str, Owned] = {kind.model._meta.model_name or "": kind for kind in OWNED.values()}
    # Only a CASE promises that a text is read as a UUID for no other kind of object.
    about = Case(
        *(
            When(
                Q(object_type=name, object_id__regex=r"^[a-z]+_[0-9a-f]{32}$"),
                then=Exists(kind.within(kind.model._default_manager.filter(pk=key))),
            )
            for name, kind in kinds.items()
        ),
        default=Value(False),
        output_field=BooleanField(),
    )
    own = Q(actor=visibility.viewer()) | Q(actor__startswith=f"{visibility.viewer()} (token ")
    return found.alias(is_visible=about).filter(Q(is_visible=True) | own)


def _require(prefix: str, key: uuid.UUID, text: str) -> None:
    """Raises NotFound, in the same words, for what may not be seen and for what is not there."""
    kind = OWNED.get(prefix)
    if kind is None or visibility.visible() is None:
        return
    kinds = [kind, _LEFT] if prefix == "msg" else [kind]
    if not any(one.within(one.model._default_manager.filter(pk=key)).exists() for one in kinds):
        raise NotFound(_("There is no {text}.").format(text=text))
