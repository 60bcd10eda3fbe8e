"""Events, rejections, the audit log, the hub about itself: representations and bodies."""

from __future__ import annotations

from rest_framework import serializers

from messaging.api.fields import IdOut
from messaging.choices import Interface
from messaging.journal.events import TYPES

EVENT_DATA = "What belongs to this type of event: ids to look up, sequence_number, cause, reason ..."


class EventSerializer(serializers.Serializer):
    """Something that happened to a message or a pair."""

    id = serializers.CharField(help_text="Stable name of the event: use it to recognise one that you have seen.")
    type = serializers.ChoiceField(choices=TYPES)
    timestamp = serializers.DateTimeField()
    data = serializers.DictField(help_text=EVENT_DATA)  # type: ignore[assignment]


class EventFeedSerializer(serializers.Serializer):
    """A page of the feed. `next_cursor` is there also when there are no events: go on from it."""

    data = EventSerializer(many=True)  # type: ignore[assignment]
    next_cursor = serializers.CharField()
    has_more = serializers.BooleanField(help_text="Whether more are there already; if not, wait before asking again.")


class RejectionSerializer(serializers.Serializer):
    """Something that came in and was refused."""

    id = IdOut("rej")
    at = serializers.DateTimeField()
    remote_address = serializers.CharField()
    party_name = serializers.CharField(help_text="The partner, if it was known.")
    reason = serializers.CharField()
    detail = serializers.CharField()
    http_status = serializers.IntegerField(help_text="What the partner was answered.")
    tpa_id = serializers.CharField()
    message_id = serializers.CharField()
    content_type = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes.")
    sha256 = serializers.CharField()
    times = serializers.IntegerField(
        help_text="How many of this kind came from this address within an hour; counted without a credential only."
    )
    last_at = serializers.DateTimeField(allow_null=True, help_text="The last of them; null when there was one.")


class AuditEntrySerializer(serializers.Serializer):
    """An action of a person or token: who, when, what, why, before and after."""

    id = IdOut("aud")
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    interface = serializers.ChoiceField(choices=Interface.choices)
    address = serializers.CharField()
    request_id = serializers.CharField()
    verb = serializers.CharField()
    object_type = serializers.CharField()
    object_id = serializers.CharField()
    object_name = serializers.CharField()
    reason = serializers.CharField()
    before = serializers.DictField()
    after = serializers.DictField()
    authentication = serializers.CharField(help_text="How the actor showed who they are: session, totp, token ...")
    result = serializers.ChoiceField(choices=["done", "denied"])
    number = serializers.IntegerField(allow_null=True, help_text="Its place in the chain; null: not sealed yet.")
    digest = serializers.CharField(help_text="SHA-256 over it and the digest before it; empty: not sealed yet.")


class AuditHeadSerializer(serializers.Serializer):
    """The newest sealed entry."""

    number = serializers.IntegerField(help_text="0: nothing is sealed yet.")
    digest = serializers.CharField()


class AuditBreakSerializer(serializers.Serializer):
    """A place at which the chain does not hold."""

    number = serializers.IntegerField()
    entry = serializers.CharField(help_text="Its id; empty when it is missing.")
    why = serializers.CharField()


class AuditChainSerializer(serializers.Serializer):
    """What a look at the chain of the audit log found."""

    holds = serializers.BooleanField()
    holds_from = serializers.IntegerField(help_text="From this number on all is as it was sealed; 0: the last is not.")
    first = serializers.IntegerField(help_text="The entries that were looked at, by number; 0: none.")
    last = serializers.IntegerField()
    checked = serializers.IntegerField()
    begins_at = serializers.IntegerField(help_text="The oldest entry there is.")
    head = AuditHeadSerializer()
    unsealed = serializers.IntegerField(help_text="Entries that are not sealed yet.")
    breaks = AuditBreakSerializer(many=True)
    next = serializers.IntegerField(
        allow_null=True, required=False, help_text="`first` of the next look; null: this was the end."
    )


class ChecksSerializer(serializers.Serializer):
    """What /health looked at."""

    database = serializers.BooleanField()
    broker = serializers.BooleanField()
    oldest_due_at = serializers.DateTimeField(allow_null=True, help_text="The oldest work whose time has come.")
    overdue_seconds = serializers.IntegerField()
    circuits_open = serializers.IntegerField(
        help_text="Partners' servers to which sending is stopped for a while: see /circuits."
    )
    store = serializers.BooleanField(help_text="Whether the payload store takes a document now.")
    store_free = serializers.IntegerField(
        allow_null=True, help_text="Octets that are free where the payload store lies; null: not known."
    )


class PartSerializer(serializers.Serializer):
    """How one part of the hub is."""

    name = serializers.CharField(help_text="database, store, broker, workers.")
    state = serializers.ChoiceField(choices=["ok", "degraded", "down"])
    detail = serializers.CharField(allow_blank=True, help_text="What is wrong, and what to do; empty for `ok`.")
    since = serializers.DateTimeField(
        allow_null=True, help_text="Since when that is known; of what no row tells, to this web server."
    )


class HealthSerializer(serializers.Serializer):
    """This web server can take and answer requests; the parts say how the rest of the hub is."""

    status = serializers.ChoiceField(
        choices=["ok", "degraded"], help_text="`degraded`: a part does not do its work as it should."
    )
    ready = serializers.BooleanField(help_text="Always true here; with 503 it is not ready.")
    name = serializers.CharField()
    environment = serializers.CharField()
    checks = ChecksSerializer()
    parts = PartSerializer(many=True)


class CatalogueEntrySerializer(serializers.Serializer):
    """One kind of problem."""

    type = serializers.CharField()
    code = serializers.CharField()
    status = serializers.IntegerField()
    title = serializers.CharField()
    meaning = serializers.CharField()
    retryable = serializers.BooleanField()


class CatalogueSerializer(serializers.Serializer):
    """All kinds of problems."""

    data = CatalogueEntrySerializer(many=True)  # type: ignore[assignment]
