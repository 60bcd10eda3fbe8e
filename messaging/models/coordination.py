"""Coordinations: atomic transactions, who takes part, and the messages that were exchanged about them (spec 5)."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from messaging.models.base import Identified
from messaging.models.delivery import Delivery
from messaging.models.message import Message
from messaging.models.pair import Pair
from messaging.models.trigger import Trigger
from messaging.protocol.atomic.words import ENDED, Phase, Protocol, Seat, Vote
from partners.models import AgreementVersion, Party
from rmhub.language import gettext_lazy

PHASES = [(one.value, one.name.replace("_", " ").capitalize()) for one in Phase]
SEATS = [(one.value, one.name.capitalize()) for one in Seat]
PROTOCOLS = [(one.value, one.value) for one in Protocol]
VOTES = [(one.value, one.value.replace("_", " ")) for one in Vote]
_ENDED = sorted(one.value for one in ENDED)


class Coordination(Identified):
    """One transaction that this hub coordinates; a subordinate one when `superior` (an Enlistment) says whose.

    `phase` is `protocol.atomic.words.Phase`; it changes only in a transaction that holds this row's lock. `decided_at`
    is the commit record: nobody is told Commit before it is committed, and without it the outcome is abort.
    """

    PREFIX = "txn"

    identifier = models.CharField("Identifier", max_length=512, help_text="Of the CoordinationContext: absolute URI.")
    version = models.CharField("WS-Coordination version", max_length=8, default="2006/06")
    phase = models.CharField(max_length=12, choices=PHASES, default=Phase.ACTIVE.value)
    subordinate = models.BooleanField(default=False, help_text="Interposed: a coordinator elsewhere decides.")

    agreement_version = models.ForeignKey(
        AgreementVersion, null=True, blank=True, on_delete=models.PROTECT, related_name="+", help_text="Who began it."
    )
    begun_by = models.CharField(max_length=150, blank=True, default="", help_text="Token or person of the API.")
    create_message_id = models.CharField(max_length=512, blank=True, default="", help_text="MessageID of the request.")
    delivery = models.ForeignKey(
        Delivery, null=True, blank=True, on_delete=models.SET_NULL, related_name="coordinations", db_constraint=False
    )
    claim = models.UUIDField(null=True, blank=True, help_text="The hand-over of the delivery that it belongs to.")

    expires_at = models.DateTimeField(null=True, blank=True, help_text="It aborts then unless it is decided.")
    decided_at = models.DateTimeField(null=True, blank=True, help_text="The commit record.")
    due_at = models.DateTimeField(null=True, blank=True, help_text="When a worker has something to do with it.")
    cause = models.CharField(max_length=60, blank=True, default="")
    cause_detail = models.TextField(blank=True, default="")
    doubtful_since = models.DateTimeField(null=True, blank=True, help_text="Somebody has to look at it since then.")
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    lock_version = models.PositiveBigIntegerField(default=1, help_text="Counts what changed it (ETag).")

    class Meta:
        verbose_name = gettext_lazy("transaction")
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("agreement_version", "create_message_id"),
                condition=~Q(create_message_id=""),
                name="coordination_created_once",
            ),
        )
        indexes = (
            models.Index(fields=("identifier",), name="coordination_by_identifier"),
            models.Index(fields=("due_at",), name="coordination_due", condition=Q(due_at__isnull=False)),
            models.Index(F("phase"), F("id").desc(), name="coordination_open", condition=~Q(phase__in=_ENDED)),
            models.Index(fields=("delivery",), name="coordination_by_delivery", condition=Q(delivery__isnull=False)),
            models.Index(
                fields=("doubtful_since",), name="coordination_doubtful", condition=Q(doubtful_since__isnull=False)
            ),
        )

    def __str__(self) -> str:
        return self.identifier


class Enlistment(Identified):
    """One relationship of a coordination: a participant or initiator of ours, the superior of a subordinate one, or
    work of this hub itself (`local`).

    `id` is what our endpoint reference for it carries. `peer_address` and `peer_parameters` (reference parameters, each
    one serialised element) are its endpoint reference as the peer gave it at registration.
    """

    PREFIX = "enl"

    coordination = models.ForeignKey(Coordination, on_delete=models.CASCADE, related_name="enlistments")
    protocol = models.CharField(max_length=12, choices=PROTOCOLS)
    superior = models.BooleanField(default=False, help_text="The other side coordinates, and we take part.")
    local = models.CharField(max_length=80, blank=True, default="", help_text="What of this hub takes part.")
    party = models.ForeignKey(Party, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    agreement_version = models.ForeignKey(
        AgreementVersion, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    pair = models.ForeignKey(Pair, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    trigger = models.ForeignKey(Trigger, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    peer_address = models.CharField(max_length=500, blank=True, default="")
    peer_parameters = models.JSONField(default=list, blank=True)
    register_message_id = models.CharField(max_length=512, blank=True, default="")
    register_reply = models.ForeignKey(
        Message, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_constraint=False
    )

    seat = models.CharField(max_length=12, choices=SEATS, default=Seat.ACTIVE.value)
    vote = models.CharField(max_length=12, choices=VOTES, blank=True, default="")
    voted_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    doubt = models.CharField("why it is in doubt", max_length=60, blank=True, default="")
    doubt_detail = models.TextField(blank=True, default="")
    settled_as = models.CharField(max_length=12, blank=True, default="", help_text="Heuristic outcome of a person.")
    settled_by = models.CharField(max_length=150, blank=True, default="")
    settled_at = models.DateTimeField(null=True, blank=True)
    settled_reason = models.TextField(blank=True, default="")
    created_at = models.DateTimeField()

    class Meta:
        verbose_name = gettext_lazy("participant")
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=("coordination", "party", "register_message_id"),
                condition=~Q(register_message_id=""),
                name="enlistment_registered_once",
            ),
        )

    def __str__(self) -> str:
        return self.public_id


class CoordinationMessage(models.Model):
    """What a message of the store is to a coordination. Messages of forgotten transactions have none.

    `kind` is the name of the body's element: Prepare, Register ... or Fault. `address`: where ours goes.
    """

    message = models.OneToOneField(
        Message, primary_key=True, on_delete=models.CASCADE, related_name="coordinating", db_constraint=False
    )
    coordination = models.ForeignKey(
        Coordination, null=True, blank=True, on_delete=models.CASCADE, related_name="messages", db_constraint=False
    )
    enlistment = models.ForeignKey(
        Enlistment, null=True, blank=True, on_delete=models.CASCADE, related_name="messages", db_constraint=False
    )
    kind = models.CharField(max_length=40)
    address = models.CharField(max_length=500, blank=True, default="")
    relates_to = models.CharField(max_length=512, blank=True, default="")
    awaits = models.BooleanField(default=False, help_text="Sent again until it is answered.")
    soap_action = models.CharField("SOAPAction", max_length=255, blank=True, default="")
    taken_at = models.DateTimeField(null=True, blank=True, help_text="When the other side first took it (HTTP 2xx).")
    fault_code = models.CharField(max_length=60, blank=True, default="")
    fault_reason = models.TextField(blank=True, default="")
    note = models.CharField(max_length=255, blank=True, default="", help_text="What was made of it, e.g. ignored.")
    at = models.DateTimeField()

    class Meta:
        ordering = ("at", "message_id")
        indexes = (
            models.Index(fields=("enlistment", "kind"), name="coordination_message_open", condition=Q(awaits=True)),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.message_id}"
