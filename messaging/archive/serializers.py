"""The archive, legal holds and the retention policy: representations and bodies."""

from __future__ import annotations

from rest_framework import serializers

from messaging.api.fields import Flag, IdIn, IdOut, Instant, ReasonBody, Text, Whole
from messaging.choices import Direction, MessageState
from messaging.messages.serializers.messages import PairRef
from messaging.report_choices import ArchiveState


class ArchiveFileRef(serializers.Serializer):
    """The file that a message lies in, below the archive's folder."""

    path = serializers.CharField()
    sha256 = serializers.CharField(help_text="Of the file.")
    verified_at = serializers.DateTimeField(help_text="When it was read back and compared with the store.")


class ArchivedMessageSerializer(serializers.Serializer):
    """Where an archived message lies. Its octets are in the store again once it is restored."""

    id = IdOut("msg")
    state = serializers.ChoiceField(
        choices=ArchiveState.choices,
        help_text="`copied` and `restored`: in the store too; `archived`: in the archive alone.",
    )
    message_id = serializers.CharField()
    document_id = serializers.CharField(
        source="identifies", help_text="The id of its document, as its sender gave it; else the MessageId."
    )
    conversation_id = serializers.CharField()
    direction = serializers.ChoiceField(choices=Direction.choices)
    message_state = serializers.ChoiceField(choices=MessageState.choices, help_text="As it ended.")
    pair = PairRef()
    service = serializers.CharField()
    action = serializers.CharField()
    sequence_number = serializers.IntegerField(allow_null=True)
    size = serializers.IntegerField(help_text="Bytes of the payloads.")
    payload_digests = serializers.ListField(
        child=serializers.CharField(), source="contents", help_text="SHA-256 of the payloads, in their order."
    )
    file = ArchiveFileRef()
    row = serializers.IntegerField(help_text="In the file, from 0.")
    created_at = serializers.DateTimeField()
    completed_at = serializers.DateTimeField(allow_null=True)
    purged_at = serializers.DateTimeField(allow_null=True, help_text="When it left the store.")
    restored_at = serializers.DateTimeField(allow_null=True)
    restored_by = serializers.CharField()


class RestoreBody(ReasonBody):
    """What comes back: one message, or all of a conversation."""

    message = IdIn("msg", required=False, help_text="Id of a message (`msg_...`).")
    conversation_id = Text(max_length=512, required=False, help_text="Or a ConversationId.")


class HoldPartyRef(serializers.Serializer):
    """A party, by id and name."""

    id = IdOut("par")
    name = serializers.CharField()


class LegalHoldSerializer(serializers.Serializer):
    """Keeps messages in the store and in the archive. What is given of the criteria must all fit."""

    id = IdOut("hold")
    name = serializers.CharField()
    reason = serializers.CharField()
    party = HoldPartyRef(allow_null=True)
    pair = PairRef(allow_null=True)
    conversation_id = serializers.CharField()
    message_id = serializers.CharField()
    range_from = serializers.DateTimeField(allow_null=True, help_text="Messages that entered from then on.")
    range_to = serializers.DateTimeField(allow_null=True, help_text="Messages that entered before then.")
    placed_by = serializers.CharField()
    placed_at = serializers.DateTimeField()
    released_by = serializers.CharField()
    released_at = serializers.DateTimeField(allow_null=True, help_text="null = in force.")
    release_reason = serializers.CharField()


class LegalHoldBody(ReasonBody):
    """A hold to be placed; at least one criterion is needed."""

    name = Text(max_length=120, help_text="The matter, or its file number.")
    party = IdIn("par", required=False, help_text="A party, ours or a partner (`par_...`).")
    pair = Text(max_length=130, required=False, help_text="Id or code of a pair.")
    conversation_id = Text(max_length=512, required=False)
    message_id = Text(max_length=512, required=False, help_text="A MessageId.")
    range_from = Instant(required=False, help_text="Messages that entered from then on.")
    range_to = Instant(required=False, help_text="Messages that entered before then.")


class RetentionSerializer(serializers.Serializer):
    """The retention policy, and what the archive holds. Days since a message ended."""

    enabled = serializers.BooleanField(help_text="Whether messages are archived and purged, once a day.")
    archive_after = serializers.IntegerField(help_text="Days until a message is copied to the archive.")
    purge_after = serializers.IntegerField(help_text="Days until a message leaves the store.")
    keep_archive = serializers.IntegerField(help_text="Days that the archive keeps it; 0 = for ever.")
    changed_by = serializers.CharField()
    changed_at = serializers.DateTimeField(allow_null=True)
    archived_messages = serializers.IntegerField()
    archive_files = serializers.IntegerField()
    archive_bytes = serializers.IntegerField(help_text="On disk.")
    legal_holds = serializers.IntegerField(help_text="In force.")


class RetentionBody(ReasonBody):
    """What of the policy changes."""

    enabled = Flag(required=False)
    archive_after = Whole(min_value=1, max_value=3650, required=False, help_text="Days.")
    purge_after = Whole(min_value=1, max_value=3650, required=False, help_text="Days.")
    keep_archive = Whole(min_value=0, max_value=36_500, required=False, help_text="Days; 0 = for ever.")
