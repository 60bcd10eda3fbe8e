"""The mapping of a partner's log: how the columns are called, and what no column says."""

from __future__ import annotations

from rest_framework import serializers

from messaging.api.fields import StrictBody, Text
from partners.log_columns import COLUMNS, DIGEST_OF, DIRECTION_IS, MAX_NAME, MAX_VALUES, SETTINGS

_OUR_COLUMNS = {
    "message_id": "MessageId. Must be there, unless the mapping is empty.",
    "direction": "What the partner did with it: sent or received.",
    "at": "When: ISO 8601, UTC where it has no zone; or seconds (milli-, micro-, nanoseconds) since 1970.",
    "digest": "SHA-256, hexadecimal.",
    "status": "What became of it, in the partner's words.",
    "sequence_number": "Sequence number.",
}
_DIRECTION_IS = "For a log without such a column: all of it was `sent`, or `received`, by the partner."
_DIGEST_OF = "What the partner's digest is of: the message as it was transmitted (`body`), or its first `payload`."
_SENT = "What stands in the column for what the partner sent; out, sent and the like unless told."
_RECEIVED = "The same for what the partner received."


class LogColumnsBody(StrictBody):
    """Our column, and the name that it has in the partner's log; empty = the names that our own export has."""

    message_id = Text(max_length=MAX_NAME, required=False, help_text=_OUR_COLUMNS["message_id"])
    direction = Text(max_length=MAX_NAME, required=False, help_text=_OUR_COLUMNS["direction"])
    at = Text(max_length=MAX_NAME, required=False, help_text=_OUR_COLUMNS["at"])
    digest = Text(max_length=MAX_NAME, required=False, help_text=_OUR_COLUMNS["digest"])
    status = Text(max_length=MAX_NAME, required=False, help_text=_OUR_COLUMNS["status"])
    sequence_number = Text(max_length=MAX_NAME, required=False, help_text=_OUR_COLUMNS["sequence_number"])
    direction_is = serializers.ChoiceField(choices=DIRECTION_IS, required=False, help_text=_DIRECTION_IS)
    digest_of = serializers.ChoiceField(choices=DIGEST_OF, required=False, help_text=_DIGEST_OF)
    sent_values = serializers.ListField(
        child=Text(max_length=MAX_NAME), required=False, max_length=MAX_VALUES, help_text=_SENT
    )
    received_values = serializers.ListField(
        child=Text(max_length=MAX_NAME), required=False, max_length=MAX_VALUES, help_text=_RECEIVED
    )


class LogColumnsSerializer(serializers.Serializer):
    """The mapping as it is stored: only what was said."""

    message_id = serializers.CharField(required=False, help_text=_OUR_COLUMNS["message_id"])
    direction = serializers.CharField(required=False, help_text=_OUR_COLUMNS["direction"])
    at = serializers.CharField(required=False, help_text=_OUR_COLUMNS["at"])
    digest = serializers.CharField(required=False, help_text=_OUR_COLUMNS["digest"])
    status = serializers.CharField(required=False, help_text=_OUR_COLUMNS["status"])
    sequence_number = serializers.CharField(required=False, help_text=_OUR_COLUMNS["sequence_number"])
    direction_is = serializers.ChoiceField(choices=DIRECTION_IS, required=False, help_text=_DIRECTION_IS)
    digest_of = serializers.ChoiceField(choices=DIGEST_OF, required=False, help_text=_DIGEST_OF)
    sent_values = serializers.ListField(child=serializers.CharField(), required=False, help_text=_SENT)
    received_values = serializers.ListField(child=serializers.CharField(), required=False, help_text=_RECEIVED)

    def to_representation(self, instance: dict[str, object]) -> dict[str, object]:
        return {name: instance[name] for name in (*COLUMNS, *SETTINGS) if name in instance}
