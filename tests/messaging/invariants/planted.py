"""A store of everything that can happen, and for each rule what contradicts it, planted by SQL.

`PLANTED` is rule -> for each branch of its query, statements that contradict this one in the world of `fill`. Other
rules may find it too.
"""

from __future__ import annotations

from collections.abc import Mapping

from messaging.access.services import audit_chain
from messaging.protocol.atomic.words import Note, Protocol
from rmhub.clock import FrozenClock
from tests.messaging import factories
from tests.messaging.factories import Link, link, work
from tests.messaging.profiles.ebms2.partner import decoded, ebms2_side
from tests.messaging.profiles.stream.partner import StreamSide, stream_side
from tests.messaging.profiles.stream.test_sending import TAKEN, acknowledge, submit
from tests.messaging.profiles.wsat.kit import peer
from tests.pipeline import traffic


def fill(time: FrozenClock) -> None:
    """Traffic of the document profiles as for the pipeline, streams both ways, and an atomic transaction."""
    traffic.fill(time)
    with link(TAKEN) as wire:
        _streams(time, wire)
    with link(TAKEN) as wire:
        _conversations(wire)
    _transaction()
    audit_chain.seal_due()


def _streams(time: FrozenClock, wire: Link) -> None:
    side: StreamSide = stream_side(max_in_flight=8, stream_concurrency=8)
    for number in range(1, 5):
        assert side.send(side.message(number)).status == 202
    submit(side, 5)
    for _ in range(3):
        time.move(1)
        work()
    acknowledge(side, 3)


def _conversations(wire: Link) -> None:
    side = ebms2_side(message_order=True)
    for number in (0, 2, 1, 4):
        side.bring(side.ordered(number))
    for conversation in ("ours", "ours too"):
        factories.submit(side, conversation_id=conversation)
    work()
    first = next(parcel for parcel in wire.parcels if decoded(parcel).conversation_id == "ours")
    side.bring(side.acknowledging(first))


def _transaction() -> None:
    app, shop, other = peer(), peer(), peer()
    begun = app.create()
    initiator = app.register(begun, Protocol.COMPLETION)
    members = [one.register(begun, Protocol.DURABLE) for one in (shop, other)]
    initiator.say(Note.COMMIT)
    members[0].say(Note.PREPARED)
    members[1].say(Note.PREPARED)
    members[0].say(Note.COMMITTED)
    app.create()


def _some(table: str, where: str, order: str = "id") -> str:
    return f"id = (SELECT id FROM {table} WHERE {where} ORDER BY {order} LIMIT 1)"


def _message(where: str, order: str = "m.id", profile: str = "ebxml") -> str:
    """One message of this profile, by its id."""
    return (
        "id = (SELECT m.id FROM messaging_message m JOIN partners_agreementversion v ON v.id = m.agreement_version_id"
        f" WHERE v.profile = '{profile}' AND {where} ORDER BY {order} FETCH FIRST ROW ONLY)"
    )


_SENT = "m.direction = 'out' AND m.state = 'delivered' AND m.sequence_number > 2"
_CAME = "m.direction = 'in' AND m.sequence_number > 2"
_SECOND = "m.id OFFSET 1"
_HISTORY = "WHERE d.state = 'completed' AND d.verdict = 'new' AND d.evidence @> '[{\"finding\": \"absent\"}]'"
_OUT_STREAM = "direction = 'out' AND tx_sequence_id IS NOT NULL"
_IN_STREAM = "direction = 'in' AND tx_sequence_id IS NOT NULL"
_LAST = "length(wire_frame) - 1"
_IN_FLIGHT = "id IN (SELECT in_flight_id FROM messaging_pair)"
_NOBODY = "gen_random_uuid()"
_COMPLETED = "SELECT id FROM messaging_delivery WHERE state = 'completed' ORDER BY id LIMIT 1"
_PAIR_OF_OURS = "SELECT pair_id FROM messaging_message WHERE conversation_id = 'ours' ORDER BY id LIMIT 1"


def _set(table: str, changes: str, where: str) -> tuple[str]:
    return (f"UPDATE messaging_{table} SET {changes} WHERE {where}",)


def _flow(flow: str, state: str) -> tuple[str, str]:
    """What is in flight on a pair, in this state while the pair is in that one."""
    return (
        *_set("message", f"state = '{state}'", _IN_FLIGHT),
        *_set("pair", f"flow = '{flow}'", "in_flight_id IS NOT NULL"),
    )


def _delivery(changes: str) -> tuple[str]:
    return _set("delivery", changes, _some("messaging_delivery", "state = 'completed'"))


_PREPARE = (
    "message_id = (SELECT message_id FROM messaging_coordinationmessage WHERE kind = 'Prepare'"
    " ORDER BY message_id LIMIT 1)"
)

PLANTED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "numbers-out": (_set("message", "sequence_number = sequence_number + 7", _message(_SENT)),),
    "last-number-out": (_set("pair", "last_sequence = last_sequence + 5", "direction = 'out'"),),
    "restarted-by-somebody": (
        ("DELETE FROM messaging_auditentry WHERE verb IN ('pair.restart_sequence', 'pair.skip_head')",),
    ),
    "numbers-in": (_set("message", "sequence_number = sequence_number + 7", _message(_CAME)),),
    "last-number-in": (
        _set("pair", "last_sequence = last_sequence + 5", "direction = 'in'"),
        _set("pair", "last_message_id = 'another'", "direction = 'in'"),
    ),
    "numbers-stream-out": (
        _set("message", "sequence_number = 0", f"{_OUT_STREAM} AND sequence_number = 2"),
        _set("message", "sequence_number = 9", f"{_OUT_STREAM} AND sequence_number = 5"),
    ),
    "stream-out": (
        ("DELETE FROM messaging_outgoingstream",),
        _set("outgoingstream", "tx_sequence_id = tx_sequence_id + 1", "true"),
        _set("outgoingstream", "acked_number = next_number - 1", "true"),
        _set("outgoingstream", "next_number = next_number - 1", "true"),
        (
            *_set("message", "state = 'cancelled'", _OUT_STREAM),
            *_set("outgoingstream", "acked_number = next_number", "true"),
        ),
    ),
    "stream-in": (_set("incomingstream", "number = number - 1", "true"), ("DELETE FROM messaging_incomingstream",)),
    "numbers-stream-in": (
        _set("message", "previous_number = 2", f"{_IN_STREAM} AND sequence_number = 2"),
        _set("message", "previous_number = 0, sequence_number = 1", f"{_IN_STREAM} AND sequence_number = 3"),
        _set("message", "previous_number = 4, sequence_number = 5", f"{_IN_STREAM} AND sequence_number = 4"),
    ),
    "positions": (
        _set("pair", "next_position = 1", "next_position > 2"),
        _set("message", "position = position - 1", _message(_SENT)),
    ),
    "order-of-conversations": (_set("message", "order_number = 7", "direction = 'in' AND order_number = 1"),),
    "one-in-flight": (
        _set("message", "state = 'awaiting_ack', completed_at = NULL", _message(_SENT)),
        _set("message", "state = 'failed', completed_at = NULL", _message(_SENT)),
    ),
    "in-flight-state": (
        _flow("sending", "awaiting_ack"),
        _flow("suspended", "awaiting_ack"),
        _flow("idle", "awaiting_ack"),
        _flow("awaiting_ack", "failed"),
        _set("message", "sequence_number = NULL", _IN_FLIGHT),
        _set("pair", f"in_flight_id = {_NOBODY}", "in_flight_id IS NOT NULL"),
    ),
    "queued": (_set("pair", "queued = queued + 1", "direction = 'out'"),),
    "out-now": (
        _set("pair", "out_now = 0", "out_now > 0"),
        _set("pair", "out_now = 2", f"id = ({_PAIR_OF_OURS})"),
    ),
    "prepared": (
        _set("message", "state = 'queued'", _message(_SENT)),
        _set("message", "wire_frame = NULL", _message(_SENT)),
        _set("message", "digest = ''", _message(_SENT)),
        _set("message", "sequence_number = NULL", _message(_SENT)),
    ),
    "same-octets": (
        _set(
            "payload",
            "content = content || 'x'",
            "message_id IN (SELECT in_flight_id FROM messaging_pair WHERE in_flight_id IS NOT NULL)",
        ),
        _set("message", f"wire_frame = set_byte(wire_frame, {_LAST}, get_byte(wire_frame, {_LAST}) # 1)", _IN_FLIGHT),
        _set("message", "wire_frame = '\\x00'", _IN_FLIGHT),
    ),
    "belongs": (
        _set("message", f"pair_id = {_NOBODY}", _message(_CAME)),
        _set("message", f"agreement_version_id = {_NOBODY}", _message(_CAME)),
        _set("payload", f"message_id = {_NOBODY}", "number = 1"),
    ),
    "ended": (
        _set("message", "completed_at = NULL", _message(_SENT)),
        _set("message", "completed_at = now()", _IN_FLIGHT),
        _set("message", "completed_at = now()", "state = 'held'"),
        _set("message", "direction = 'in'", _message(_SENT)),
        _set("message", "direction = 'out'", _message(_CAME)),
    ),
    "pair-timer": (
        _set("pair", "due_at = NULL", "in_flight_id IS NOT NULL"),
        _set("pair", "due_at = NULL, flow = 'idle', queued = 1", "direction = 'out' AND out_now = 0"),
    ),
    "message-timer": (
        _set(
            "message",
            "state = 'sending', completed_at = NULL, due_at = NULL",
            _message(
                "m.direction = 'out' AND m.state = 'delivered' AND m.tx_sequence_id IS NOT NULL", profile="stream"
            ),
        ),
        _set(
            "message",
            "state = 'retrying', completed_at = NULL, due_at = NULL",
            _message("m.direction = 'out' AND m.state = 'delivered'", profile="repeatable"),
        ),
        (
            *_set("message", "state = 'awaiting_ack', due_at = NULL", f"{_OUT_STREAM} AND sequence_number > 3"),
            *_set("pair", "due_at = NULL, flow = 'idle'", "id IN (SELECT pair_id FROM messaging_outgoingstream)"),
        ),
    ),
    "told": (_set("pair", "flow = 'suspended', cause = 'never_told'", "direction = 'out'"),),
    "attempts": (
        _set("transmission", f"signal_id = {_NOBODY}", "message_id IS NOT NULL"),
        _set("transmission", "message_id = NULL", "message_id IS NOT NULL"),
        (
            f"DELETE FROM messaging_payload WHERE message_{_message(_SENT)}",
            f"DELETE FROM messaging_message WHERE {_message(_SENT)}",
        ),
        _set("transmission", f"signal_id = {_NOBODY}", "signal_id IS NOT NULL"),
    ),
    "passed-on-once": (
        _set(
            "message",
            "forwarded_from_id = (SELECT min(id::text)::uuid FROM messaging_message WHERE direction = 'in')",
            "direction = 'out' AND resubmitted_from_id IS NULL",
        ),
    ),
    "repeats-of-requests": (
        *(
            _set("message", changes, _message("m.state = 'in_doubt'", profile="repeatable"))
            for changes in (
                "first_sent_at = NULL",
                "expires_at = NULL",
                "attempts = 0",
                "expires_at = first_sent_at - interval '1 second'",
            )
        ),
        _set("message", "expires_at = NULL", "conversation_id = 'ours too'"),
    ),
    "requests-in-order": (
        (
            "UPDATE partners_agreementversion SET ordered = true WHERE profile = 'repeatable'",
            "UPDATE messaging_message SET state = 'retrying', completed_at = NULL WHERE direction = 'out' AND"
            " agreement_version_id IN (SELECT id FROM partners_agreementversion WHERE profile = 'repeatable')",
        ),
    ),
    "acknowledged": (
        ("DELETE FROM messaging_signal WHERE direction = 'out' AND kind = 'ack'",),
        ("DELETE FROM messaging_signal WHERE about_id IN (SELECT id FROM messaging_message WHERE state = 'held')",),
    ),
    "every-receipt": (
        _set(
            "signal",
            "sends = 0, owed = 1",
            "kind = 'ack' AND about_id IN (SELECT id FROM messaging_message WHERE copies > 0)",
        ),
    ),
    "stream-acknowledged": (_set("incomingstream", "order_ack_due_at = NULL, last_order_ack_at = NULL", "true"),),
    "no-acknowledgement-without-message": (
        _set("signal", f"about_id = {_NOBODY}", _some("messaging_signal", "direction = 'out' AND kind = 'ack'")),
        _set(
            "signal",
            "about_id = (SELECT id FROM messaging_message WHERE direction = 'out' ORDER BY id LIMIT 1)",
            _some("messaging_signal", "direction = 'out' AND kind = 'ack' AND about_id IS NOT NULL"),
        ),
    ),
    "delivered-by-acknowledgement": (
        ("DELETE FROM messaging_signal WHERE direction = 'in' AND kind = 'ack'",),
        _set("signal", "state = 'ignored'", "direction = 'in' AND kind = 'ack'"),
        ("DELETE FROM messaging_signal WHERE about_id IN (SELECT id FROM messaging_message WHERE direction = 'out')",),
    ),
    "delivered-by-answer": (
        (
            "DELETE FROM messaging_transmission WHERE message_id IN (SELECT m.id FROM messaging_message m"
            " JOIN partners_agreementversion v ON v.id = m.agreement_version_id WHERE v.profile = 'repeatable')",
        ),
        _set("transmission", "outcome = 'lost'", "outcome = 'sent'"),
        (
            "DELETE FROM messaging_auditentry WHERE verb = 'message.settle_delivered'",
            *_set("transmission", "outcome = 'failed'", "outcome = 'sent'"),
        ),
    ),
    "delivered-by-order-acknowledgement": (
        _set("outgoingstream", "acked_number = 2", "acked_number = 3"),
        _set("outgoingstream", "tx_sequence_id = tx_sequence_id - 1", "true"),
        ("DELETE FROM messaging_outgoingstream",),
    ),
    "kept-back": tuple(
        (
            *_set("signal", "state = 'held', due_at = NULL", "direction = 'out' AND kind = 'ack'"),
            *_set(
                "message",
                f"state = '{state}', forwarded_from_id = (SELECT about_id FROM messaging_signal WHERE state = 'held'"
                " AND about_id IS NOT NULL ORDER BY id LIMIT 1)",
                _message(_SENT),
            ),
        )
        for state in ("delivered", "sent")
    ),
    "signal-timer": (
        _set("signal", "state = 'pending', owed = 1, due_at = NULL", "direction = 'out' AND kind = 'ack'"),
        _set("signal", "state = 'pending', owed = 0, due_at = now()", "direction = 'out' AND kind = 'ack'"),
        _set("signal", "due_at = now()", "direction = 'out' AND state = 'sent'"),
    ),
    "stored-once": (
        _set(
            "message",
            f"message_id = (SELECT message_id FROM messaging_message WHERE {_message(_CAME)})",
            _message(_CAME, _SECOND),
        ),
        (
            "UPDATE messaging_message SET semantics = 'OnceAndOnlyOnce' WHERE direction = 'in'",
            "UPDATE partners_agreementversion SET memory_window = 3600 WHERE profile = 'repeatable'",
            "UPDATE messaging_message copy SET message_id = m.message_id, created_at = m.created_at + interval"
            " '1 second' FROM messaging_message m JOIN partners_agreementversion v ON v.id = m.agreement_version_id"
            " WHERE v.profile = 'repeatable' AND m.direction = 'in' AND copy.direction = 'in'"
            " AND copy.pair_id = m.pair_id AND copy.position = m.position + 1",
        ),
    ),
    "sent-once": (
        _set(
            "message",
            f"message_id = (SELECT message_id FROM messaging_message WHERE {_message(_SENT)})",
            _message(_SENT, _SECOND),
        ),
    ),
    "remembered": (("DELETE FROM messaging_messageidentity WHERE direction = 'in'",),),
    "identity": (
        _set("messageidentity", "message_id = message_id || '.'", "direction = 'in'"),
        _set("messageidentity", "direction = 'out'", "direction = 'in'"),
    ),
    "requests-remembered": (
        ("DELETE FROM messaging_rememberedrequest",),
        _set("rememberedrequest", f"message_id = {_NOBODY}", "true"),
    ),
    "requests": (
        _set("rememberedrequest", "first_sent = first_sent - interval '1 day'", "true"),
        _set("rememberedrequest", "state = 'answered', status = NULL", "true"),
        _set("rememberedrequest", "state = 'forgotten', status = 200, headers = NULL, body = NULL", "true"),
        _set("rememberedrequest", f"state = 'running', message_id = {_NOBODY}, delivery_id = NULL", "true"),
        _set("rememberedrequest", f"state = 'running', delivery_id = {_NOBODY}", "true"),
        _set(
            "rememberedrequest",
            f"state = 'in_doubt', delivery_id = ({_COMPLETED})",
            "true",
        ),
    ),
    "processed-once": (
        (
            "INSERT INTO messaging_delivery SELECT (jsonb_populate_record(d, jsonb_build_object('id',"
            " gen_random_uuid(), 'message_id', (SELECT id FROM messaging_message WHERE direction = 'in' ORDER BY id"
            " LIMIT 1), 'started_at', d.completed_at + interval '1 minute', 'completed_at', d.completed_at"
            f" + interval '2 minutes'))).* FROM messaging_delivery d {_HISTORY} ORDER BY d.id LIMIT 1",
        ),
    ),
    "processed-is-known": (
        (
            f"UPDATE messaging_delivery d SET completed_at = now() {_HISTORY}",
            "DELETE FROM messaging_documentcompleted",
        ),
    ),
    "begun-or-done": (
        (
            "INSERT INTO messaging_documentstarted (trigger_id, sender_id, document_id, delivery_id, worker,"
            " started_at) SELECT trigger_id, sender_id, document_id, delivery_id, 0, now()"
            " FROM messaging_documentcompleted ORDER BY completed_at, document_id LIMIT 1",
        ),
    ),
    "begun-by-somebody": (
        _set("documentstarted", f"delivery_id = {_NOBODY}", "true"),
        _set(
            "documentstarted",
            f"delivery_id = ({_COMPLETED})",
            "true",
        ),
        (
            *_set("delivery", "state = 'failed'", "resubmission_of_id IS NOT NULL"),
            *_set(
                "documentstarted",
                "delivery_id = (SELECT id FROM messaging_delivery WHERE state = 'settled' ORDER BY id LIMIT 1)",
                "true",
            ),
        ),
    ),
    "delivery-state": (
        _delivery("state = 'waiting', due_at = NULL, claim = NULL"),
        _delivery(f"state = 'waiting', due_at = now(), claim = {_NOBODY}"),
        _delivery("state = 'running', due_at = now(), started_at = now(), claim = NULL"),
        _delivery(f"state = 'running', due_at = now(), started_at = NULL, claim = {_NOBODY}"),
        _delivery(f"state = 'running', due_at = NULL, started_at = now(), claim = {_NOBODY}"),
        _delivery("completed_at = NULL"),
        _delivery("due_at = now()"),
        _set("delivery", "doubt = ''", "state = 'in_doubt'"),
        _set("delivery", "decision = ''", "state = 'settled'"),
        _set("delivery", "decided_by = ''", "state = 'settled'"),
        _set("delivery", "decided_at = NULL", "state = 'settled'"),
        _delivery("state = 'joined', part_of_id = NULL"),
    ),
    "delivered-what-was-received": (
        _delivery(f"message_id = {_NOBODY}"),
        _set("message", "direction = 'out'", "id IN (SELECT message_id FROM messaging_delivery)"),
        _delivery("pair_id = (SELECT id FROM messaging_pair WHERE direction = 'out' ORDER BY id LIMIT 1)"),
    ),
    "delivery-belongs": (
        _delivery(f"trigger_id = {_NOBODY}"),
        _delivery(f"join_id = {_NOBODY}"),
        _delivery(f"part_of_id = {_NOBODY}"),
        _delivery(f"resubmission_of_id = {_NOBODY}"),
        _set("documentstarted", f"trigger_id = {_NOBODY}", "true"),
    ),
    "webhook-belongs": (
        (
            "INSERT INTO messaging_webhookdelivery (id, endpoint_id, event_id, body, state, attempts, last_error,"
            f" created_at) SELECT gen_random_uuid(), {_NOBODY}, id, '{{}}', 'pending', 0, '', now()"
            " FROM messaging_event ORDER BY id LIMIT 1",
        ),
    ),
    "once-per-document": (
        _set("delivery", "decision = 'ask'", "decision = 'resubmit'"),
        _set("delivery", "state = 'discarded'", "decision = 'resubmit'"),
    ),
    "joins": (
        (
            "INSERT INTO messaging_join (id, trigger_id, activation, state, expires_at, created_at)"
            " SELECT gen_random_uuid(), id, 'conv', 'expired', now(), now() FROM messaging_trigger ORDER BY id LIMIT 1",
            *_delivery("state = 'joined', part_of_id = (SELECT id FROM messaging_join)"),
        ),
        (
            "INSERT INTO messaging_join (id, trigger_id, activation, state, expires_at, created_at)"
            " SELECT gen_random_uuid(), id, 'conv', 'fired', now(), now() FROM messaging_trigger ORDER BY id LIMIT 1",
            *_delivery("part_of_id = (SELECT id FROM messaging_join)"),
        ),
    ),
    "settled-by-somebody": (
        _set("delivery", "decided_by = 'nobody'", "state = 'settled'"),
        _set("enlistment", "settled_as = 'committed', settled_by = 'nobody', settled_at = now()", "true"),
        ("DELETE FROM messaging_auditentry WHERE verb = 'message.cancel' AND object_type = 'message'",),
        ("DELETE FROM messaging_auditentry WHERE verb = 'message.settle_resubmit'",),
        ("DELETE FROM messaging_auditentry WHERE verb = 'pair.skip_head'",),
        ("DELETE FROM messaging_auditentry WHERE verb = 'pair.pause'",),
    ),
    "doubts-audited": (
        ("DELETE FROM messaging_auditentry WHERE verb = 'delivery.in_doubt'",),
        ("DELETE FROM messaging_auditentry WHERE verb = 'message.in_doubt'",),
        _set("enlistment", "doubt = 'silent'", "true"),
    ),
    "audit-numbers": (
        ("DELETE FROM messaging_auditentry WHERE number = 2",),
        _set("auditentry", "digest = ''", "number = 2"),
        _set("auditentry", "number = NULL", "number = (SELECT max(number) FROM messaging_auditentry)"),
    ),
    "commit-record": (
        _set("coordination", "decided_at = now()", "phase = 'active'"),
        _set("coordination", "decided_at = NULL", "phase = 'committing'"),
        (
            *_set("enlistment", "vote = ''", "true"),
            *_set(
                "coordination",
                "decided_at = NULL, delivery_id = (SELECT id FROM messaging_delivery ORDER BY id LIMIT 1)",
                "phase = 'committing'",
            ),
        ),
    ),
    "told-what-was-decided": (
        _set("coordination", "decided_at = NULL", "phase = 'committing'"),
        (
            *_set("enlistment", "vote = 'prepared'", "true"),
            *_set("coordinationmessage", "kind = 'Rollback'", "kind = 'Commit'"),
        ),
    ),
    "participants-remembered": (
        _set("coordination", "phase = 'committed', ended_at = now()", "phase = 'committing'"),
        (
            *_set("coordination", "phase = 'deciding'", "phase = 'committing'"),
            *_set("enlistment", "seat = 'none', vote = 'prepared', settled_as = ''", "protocol = 'Durable2PC'"),
        ),
        _set("coordination", "ended_at = now()", "phase = 'active'"),
        (
            *_set("enlistment", "seat = 'none'", "true"),
            *_set("coordination", "phase = 'aborted', ended_at = NULL", "phase = 'active'"),
        ),
    ),
    "transaction-timer": (_set("coordination", "due_at = NULL", "phase = 'active'"),),
    "delivered-with-commit": (
        (
            "UPDATE messaging_trigger SET kind = 'atomic'",
            *_set(
                "coordination",
                "delivery_id = (SELECT id FROM messaging_delivery WHERE state = 'in_doubt' ORDER BY id LIMIT 1)",
                "phase = 'committing'",
            ),
        ),
        (
            "UPDATE messaging_trigger SET kind = 'atomic'",
            *_set(
                "coordination",
                f"decided_at = now(), delivery_id = ({_COMPLETED})",
                "true",
            ),
        ),
    ),
    "transaction-message-belongs": (
        _set("coordinationmessage", f"message_id = {_NOBODY}", _PREPARE),
        _set("coordinationmessage", f"coordination_id = {_NOBODY}", _PREPARE),
        _set("coordinationmessage", f"enlistment_id = {_NOBODY}", _PREPARE),
    ),
}
