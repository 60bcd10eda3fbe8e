"""Whether documents fit the schemas that are set up for their service and action.

Rules are few and messages are many, so they are kept in memory and looked up once a second at most, as the triggers are
(`subscriptions`). A schema is read when a document needs it first.
"""

from __future__ import annotations

import logging
import uuid
from functools import lru_cache
from typing import Any, NamedTuple

from messaging import storage
from messaging.choices import Direction, SchemaEffect
from messaging.engine.subscriptions import Documents
from messaging.models import DocumentSchema, SchemaVersion
from messaging.protocol import selecting
from messaging.protocol.document_schemas import BadSchema, Schema, read
from messaging.protocol.edi_messages import Fault
from rmhub.ids import public_id
from rmhub.remembered import Remembered

log = logging.getLogger(__name__)
_WORDS = {"xml": "an XML", "json": "a JSON", "edi": "an EDI"}


class Rule(NamedTuple):
    """What of a schema decides which documents have to fit it, and what follows."""

    id: uuid.UUID
    name: str
    kind: str
    number: int
    partner_id: uuid.UUID | None
    service: str
    action: str
    on_submission: str
    on_receipt: str

    def effect(self, direction: str) -> str:
        """What follows for a message of this direction that does not fit."""
        return self.on_submission if direction == Direction.OUT else self.on_receipt

    def concerns(self, partner_id: uuid.UUID, service: str, action: str, direction: str) -> bool:
        """Whether it is about messages of this partner, service, action and direction."""
        alike = self.partner_id in (None, partner_id) and self.service in ("", service) and self.action in ("", action)
        return alike and self.effect(direction) != SchemaEffect.OFF


class Misfit(NamedTuple):
    """Documents that do not fit a schema. `rule` as it was then."""

    rule: Rule
    faults: tuple[Fault, ...]

    @property
    def sentences(self) -> list[str]:
        """What is wrong, a sentence each; the first says which schema it is about."""
        first = f"It does not fit schema {self.rule.name}, version {self.rule.number}: {self.faults[0]}"
        return [first, *map(str, self.faults[1:])]

    def kept(self, direction: str) -> dict[str, Any]:
        """What is stored of it (`Message.schema_faults`)."""
        return {
            "schema": public_id(DocumentSchema.PREFIX, self.rule.id),
            "name": self.rule.name,
            "version": self.rule.number,
            "held": self.rule.effect(direction) == SchemaEffect.HOLD,
            "faults": [list(fault) for fault in self.faults],
        }


@Remembered
def known() -> tuple[Rule, ...]:
    """The rules that are on, the most particular first; at most about a second old."""
    rows = DocumentSchema.objects.filter(enabled=True).order_by("name").values_list(*Rule._fields)
    rules = (Rule(*row) for row in rows)
    return tuple(sorted(rules, key=lambda rule: (rule.partner_id is None, not rule.action, not rule.service)))


@lru_cache(maxsize=100)
def schema(schema_id: uuid.UUID, number: int) -> Schema:
    """A version of a schema; these never change. Raises SchemaVersion.DoesNotExist, BadSchema."""
    version = SchemaVersion.objects.select_related("schema").get(schema=schema_id, number=number)
    return read(version.schema.kind, dict(version.files))


def misfit(
    documents: Documents,
    *,
    partner_id: uuid.UUID,
    service: str,
    action: str,
    direction: str,
    unseen: bool = False,
) -> Misfit | None:
    """What does not fit of a message with these documents; None: it fits, or no schema is about it.

    Of several schemas for documents of one kind the most particular counts: that of the partner, then of the action,
    then of the service. Documents of other kinds may be there too, but one of a kind that has a schema has to be,
    unless it is among those that `documents` leaves out (`unseen`). What is larger than `selecting.MAX_BYTES`, or
    cannot be read from the store now, is not checked.
    """
    rules: dict[str, Rule] = {}
    for rule in known():
        if rule.concerns(partner_id, service, action, direction):
            rules.setdefault(rule.kind, rule)
    if not rules:
        return None
    checked = unseen
    try:
        for content, content_type in documents():
            kind = selecting.kind_of(content, content_type)
            checked = checked or kind in rules or len(content) > selecting.MAX_BYTES
            if kind in rules and (faults := of_document(rules[kind], content, content_type)):
                return Misfit(rules[kind], faults)
    except (storage.PayloadMissing, OSError):
        return None
    if checked:
        return None
    wanted = " or ".join(_WORDS[kind] for kind in rules)
    return Misfit(next(iter(rules.values())), (Fault(0, 0, "", f"It needs {wanted} document and has none."),))


def of_document(rule: Rule, content: bytes, content_type: str) -> tuple[Fault, ...]:
    """What of a document does not fit the schema of a rule. Of one that cannot be read any more, nothing is known."""
    if len(content) > selecting.MAX_BYTES:
        return ()
    try:
        return tuple(schema(rule.id, rule.number).faults(content, content_type))
    except (SchemaVersion.DoesNotExist, BadSchema) as error:
        log.warning("schema not read", extra={"action": "schema_unreadable", "schema": rule.name, "error": str(error)})
        return ()
