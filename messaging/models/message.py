"""The message store: messages of both directions, their payloads, and the ids that must not come twice."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.expressions import Col
from django.db.models.lookups import BuiltinLookup, Exact, In

from messaging.choices import Direction, MessageState
from messaging.models.base import Identified, OctetsField, written_by, written_index
from messaging.models.bulk import read
from messaging.models.pair import Pair
from messaging.protocol.envelope import Semantics
from partners.models import AgreementVersion, Party
from rmhub.language import gettext_lazy

# It was put on the wire, and nothing has come of it.
IN_FLIGHT = (MessageState.SENDING, MessageState.AWAITING_ACK, MessageState.RETRYING)
# On its way: moving on from one of these states to another is nothing that an index knows of.
OPEN = (MessageState.QUEUED, *IN_FLIGHT)
DONE = (MessageState.DELIVERED, MessageState.RECEIVED)
# Standings of what may still get to its receiver: whoever it came from waits for it.
WAITED_FOR = ("open", MessageState.CONFIRMING.value, MessageState.FAILED.value, MessageState.IN_DOUBT.value)
SEMANTICS = [(value.value, value.value) for value in Semantics]


class Standing(Func):
    """Make `Message.standing` from the state."""

    template = (
        "(CASE WHEN state IN ('queued', 'sending', 'awaiting_ack', 'retrying') THEN 'open'"
        " WHEN state IN ('delivered', 'received') THEN NULL ELSE state END)"
    )
    arity = 0
    output_field = models.CharField(max_length=12, null=True)  # noqa: DJ001


def standings(states: Iterable[str]) -> list[str] | None:
    """The standings of messages in these states; None where those that no index knows are among them."""
    found = {"open" if state in OPEN else state for state in states}
    return None if found.intersection(DONE) else sorted(found)


class StateField(models.CharField):
    """The state of a message. Whoever asks for one asks for its standing, too, so that an index can answer."""


class _WithStanding(BuiltinLookup):
    """Compare with states, and with their standings where indexes know those."""

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        sql, params = super().as_sql(compiler, connection)
        states = self.rhs if self.lookup_name == "in" else [self.rhs]
        known = None
        if isinstance(self.lhs, Col) and isinstance(states, list | tuple | set | frozenset):
            texts = [state for state in states if isinstance(state, str)]
            known = standings(texts) if len(texts) == len(list(states)) else None
        if not known:
            return sql, params
        standing, _ = compiler.compile(Col(self.lhs.alias, self.lhs.target.model._meta.get_field("standing")))
        return f"({sql} AND {standing} = ANY(%s))", [*params, known]


@StateField.register_lookup
class StateIs(_WithStanding, Exact):
    """Compare with one state (`state=`)."""


@StateField.register_lookup
class StateIn(_WithStanding, In):
    """Compare with several states (`state__in=`)."""


@models.JSONField.register_lookup
class AnyValue(BuiltinLookup):
    """Compare with each value of an object of texts (`attributes__any_value=`); the index of the field serves it."""

    lookup_name = "any_value"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        left, params = self.process_lhs(compiler, connection)
        return f"{left} @? %s::jsonpath", (*params, f"$.* ? (@ == {json.dumps(self.rhs)})")


class Message(Identified):
    """One document on its way, under the agreement version that it was handled with.

    `wire_frame` holds the exact octets without the payloads (`messaging.storage.pack_frame`).
    """

    PREFIX = "msg"

    direction = models.CharField(max_length=3, choices=Direction)
    state = StateField(max_length=12, choices=MessageState)
    standing = models.GeneratedField(
        expression=Standing(),
        output_field=models.CharField(max_length=12, null=True),
        db_persist=True,
        help_text="What indexes know of the state: open while it is on its way, so that each step writes into none of "
        "them; null once it is delivered or received; else the state.",
    )
    pair = models.ForeignKey(
        Pair, on_delete=models.PROTECT, related_name="messages", db_index=False, db_constraint=False
    )
    agreement_version = models.ForeignKey(
        AgreementVersion, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    semantics = models.CharField(max_length=20, choices=SEMANTICS)
    message_id = models.CharField("MessageId", max_length=512, help_text=gettext_lazy("MessageId on the wire."))
    conversation_id = models.CharField("ConversationId", max_length=512)
    ref_to_message_id = models.CharField("RefToMessageId", max_length=512, blank=True, default="")
    document_id = models.CharField(
        gettext_lazy("document id"),
        max_length=512,
        blank=True,
        default="",
        help_text=gettext_lazy(
            "As its application gave it, or the MessageId of the message that had the document first. Empty: its own "
            "MessageId."
        ),
    )
    service = models.CharField(max_length=255)
    action = models.CharField(max_length=255)
    sequence_number = models.PositiveBigIntegerField(null=True, blank=True, help_text="Given when it is first sent.")
    # Transactional streams (spec 3): TxSequenceID, an unsigned 64-bit number.
    tx_sequence_id = models.DecimalField(max_digits=20, decimal_places=0, null=True, blank=True)
    previous_number = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="Streams: PreviousTxSequenceNumber as it was sent, or came, last; 0 = none.",
    )
    order_number = models.PositiveIntegerField(
        "SequenceNumber of MessageOrder",
        null=True,
        blank=True,
        help_text="ebXML 2.0: its place in its conversation, where that has an order.",
    )
    forwarded_from = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_index=False,
        db_constraint=False,
        help_text="Router: the received message that this one passes on.",
    )
    resubmitted_from = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_index=False,
        db_constraint=False,
        help_text="The message whose document a person sent again as this new one.",
    )
    position = models.BigIntegerField(help_text="Its place in the pair's queue.")

    content_type = models.CharField(max_length=1000, blank=True, default="")
    wire_frame = OctetsField(null=True, blank=True)
    digest = models.CharField("SHA-256 of the body", max_length=64, blank=True, default="")
    size = models.PositiveBigIntegerField(default=0, help_text="Bytes of the payloads.")

    attempts = models.PositiveIntegerField(default=0, help_text="How often it was put on the wire.")
    attempts_before = models.PositiveIntegerField(
        default=0,
        db_default=0,
        help_text="ebXML 2.0: those of the attempts that use no retry: before its pair was last resumed, or not made.",
    )
    due_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Messages that their pair does not time (unreliable, repeatable): send, or lease end.",
    )
    cause = models.CharField(
        max_length=60, blank=True, default="", help_text="Why it is not delivered, as a stable code."
    )
    cause_detail = models.TextField(blank=True, default="")
    copies = models.PositiveIntegerField(default=0, help_text="Inbound: repeats that were discarded.")

    created_at = models.DateTimeField()
    first_sent_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Outbound. Repeatable profile: when the partner may have forgotten its id. Streams: end of its life. "
        "ebXML 2.0: whichever comes first.",
    )
    remind_at = models.DateTimeField(null=True, blank=True, help_text="In doubt: asked to be shown again then.")

    attributes = models.JSONField(
        null=True,
        blank=True,
        help_text="What it is found by, such as an invoice number: name -> value, both texts. Null: nothing.",
    )

    schema_faults = models.JSONField(
        null=True,
        blank=True,
        help_text="Which schema a document of it does not fit: schema (public id), name, version, held, and faults: "
        "[line, column, place, sentence] of each. Null: none.",
    )

    submitted_by = models.CharField(max_length=150, blank=True, default="")
    idempotency_key = models.CharField(max_length=255, blank=True, default="")
    idempotency_fingerprint = models.CharField(max_length=64, blank=True, default="")
    xid = written_by()

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("submitted_by", "idempotency_key"),
                condition=~Q(idempotency_key=""),
                name="message_idempotency_unique",
            ),
        )
        indexes = (
            written_index("message_written"),
            models.Index(F("pair"), F("position"), name="message_queue", condition=Q(standing="open")),
            models.Index(fields=("due_at",), name="message_due", condition=Q(due_at__isnull=False)),
            models.Index(F("pair"), F("id").desc(), name="message_by_pair"),
            models.Index(F("standing"), F("id").desc(), name="message_open", condition=Q(standing__isnull=False)),
            models.Index(fields=("expires_at",), name="message_expiring", condition=Q(expires_at__isnull=False)),
            models.Index(
                fields=("forwarded_from",), name="message_by_origin", condition=Q(forwarded_from__isnull=False)
            ),
            models.Index(
                fields=("pair",),
                name="message_onward",
                condition=Q(forwarded_from__isnull=False, standing__in=WAITED_FOR),
            ),
            models.Index(
                fields=("resubmitted_from",), name="message_resubmitted", condition=Q(resubmitted_from__isnull=False)
            ),
            models.Index(
                F("pair"),
                F("position"),
                name="message_in_stream",
                condition=Q(direction="out", standing="open", tx_sequence_id__isnull=False),
            ),
            # Serves exact ids and beginnings of them, whatever the database's collation is.
            models.Index(fields=("message_id",), name="message_by_id_text", opclasses=("varchar_pattern_ops",)),
            models.Index(
                fields=("document_id",),
                name="message_by_document",
                opclasses=("varchar_pattern_ops",),
                condition=~Q(document_id=""),
            ),
            models.Index(fields=("conversation_id",), name="message_by_conversation"),
            models.Index(fields=("ref_to_message_id",), name="message_by_ref", condition=~Q(ref_to_message_id="")),
            models.Index(F("id").desc(), name="message_misfit", condition=Q(schema_faults__isnull=False)),
            GinIndex(fields=("attributes",), name="message_by_attribute", condition=Q(attributes__isnull=False)),
        )

    def __str__(self) -> str:
        return self.message_id

    @classmethod
    def of_ids(cls, ids: Iterable[uuid.UUID], *, lock: bool = False) -> dict[uuid.UUID, Message]:
        """Messages without their octets, by id. `lock`: for a group, in the order of their ids, so that two groups
        never wait for each other.

        Plain SQL, because it runs for every group and building the query would cost as much as running it.
        """
        wanted = list(set(ids))
        if not wanted:
            return {}
        end = " ORDER BY id FOR UPDATE" if lock else ""
        rows = read(cls, f"SELECT {_light()} FROM messaging_message WHERE id = ANY(%s){end}", [wanted])  # noqa: S608
        return {message.pk: message for message in rows}

    @property
    def identifies(self) -> str:
        """The id of the document that it carries: messages of one sender with the same one carry the same document."""
        return self.document_id or self.message_id


@cache
def _light() -> str:
    """The columns of a message but its octets."""
    return ", ".join(str(field.column) for field in Message._meta.concrete_fields if field.attname != "wire_frame")


class Payload(models.Model):
    """One payload container. Small ones lie in the row, large ones in the store folder (`messaging.storage`)."""

    id = models.BigAutoField(primary_key=True)
    message = models.ForeignKey(
        Message, on_delete=models.CASCADE, related_name="payloads", db_index=False, db_constraint=False
    )
    number = models.PositiveSmallIntegerField()
    content_id = models.CharField("Content-ID", max_length=512)
    content_type = models.CharField(max_length=255)
    filename = models.CharField(max_length=255, blank=True, default="")
    label = models.CharField(max_length=120, blank=True, default="")
    size = models.PositiveBigIntegerField(help_text="Bytes.")
    sha256 = models.CharField("SHA-256", max_length=64)
    content = models.BinaryField(null=True, blank=True)
    stored_as = models.CharField(max_length=80, blank=True, default="")
    in_frame = models.BooleanField(default=False, help_text="The frame holds it encoded; not a slice of the body.")

    class Meta:
        ordering = ("message_id", "number")
        constraints = (models.UniqueConstraint(fields=("message", "number"), name="payload_number_unique"),)
        indexes = (models.Index(fields=("stored_as",), name="payload_by_file", condition=~Q(stored_as="")),)

    def __str__(self) -> str:
        return f"{self.message_id}/{self.number}"

    @classmethod
    def of_messages(cls, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, list[Payload]]:
        """Payload rows by message, in their order; of a message that has none an empty list. One query."""
        found: dict[uuid.UUID, list[Payload]] = defaultdict(list)
        rows = read(
            cls,
            "SELECT * FROM messaging_payload WHERE message_id = ANY(%s) ORDER BY message_id, number",
            [list(ids)],
        )
        for payload in rows:
            found[payload.message_id].append(payload)
        return found


class MessageIdentity(models.Model):
    """The gate against repeats: one (scope, direction, MessageId) exists once. Outlives the message it names.

    `scope` is the authenticated sender for what we receive, and our own party for what we send. The direction keeps
    them apart where two parties of ours send to each other through this one hub.
    """

    id = models.BigAutoField(primary_key=True)
    scope = models.ForeignKey(Party, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False)
    direction = models.CharField(max_length=3, choices=Direction)
    message_id = models.CharField(max_length=512)
    stored = models.ForeignKey(
        Message, on_delete=models.DO_NOTHING, related_name="+", db_index=False, db_constraint=False
    )
    digest = models.CharField(max_length=64, blank=True, default="")
    sequence_number = models.PositiveBigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("scope", "direction", "message_id"), name="message_identity_unique"),
        )

    def __str__(self) -> str:
        return self.message_id
