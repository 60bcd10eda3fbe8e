"""What the lake holds: entities, their columns and versions. Plain data: imports neither Django nor Spark nor Arrow.

Types: string, long, timestamp (UTC, microseconds). Ids are UUIDs as text with dashes. A column that came later has
`since`: files of an older version read as null there. Columns are never removed and never change their type; what means
something else gets a new name.
"""

from __future__ import annotations

from dataclasses import dataclass

VERSION = 5


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its type, and the SQL expression that it is read by (aliases as in `Entity.source`)."""

    name: str
    type: str
    sql: str = ""
    since: int = 1

    @property
    def expression(self) -> str:
        """The SQL that gives the value; the column of the same name of the table `t` where nothing else is said."""
        return self.sql or f"t.{self.name}"


@dataclass(frozen=True, slots=True)
class Entity:
    """One kind of row. `day` is the timestamp column whose UTC day is the partition ("" = a list, written whole).

    `source` is what follows FROM; `t` is the table that has `xid`. Rows of changing tables come once for each extract
    that met a change: the one with the highest `xid` counts. Events never change.
    """

    name: str
    source: str
    columns: tuple[Column, ...]
    day: str = ""
    changes: bool = False

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def _columns(*rows: str | Column) -> tuple[Column, ...]:
    """Columns in words (`name type, name type ...`) where the name says it all."""
    found: list[Column] = []
    for row in rows:
        if isinstance(row, Column):
            found.append(row)
        else:
            words = (column.split() for column in row.split(","))
            found += (Column(name, kind) for name, kind in words)
    return tuple(found)


EVENTS = Entity(
    "events",
    "messaging_event t LEFT JOIN messaging_message m ON m.id = t.message_id",
    _columns(
        "id long, xid long, at timestamp, type string, pair_id string",
        Column("message_pk", "string", "t.message_id"),
        Column("message_id", "string", "t.data ->> 'message_id'"),
        Column("sequence_number", "long", "(t.data ->> 'sequence_number')::bigint"),
        # For latencies without a join: when the message first went out, or came in.
        Column("first_sent_at", "timestamp", "m.first_sent_at"),
        Column("message_created_at", "timestamp", "m.created_at"),
        Column("cause", "string", "t.data ->> 'cause'"),
        Column("rule", "string", "t.data ->> 'rule'"),
        Column("delivery_id", "string", "t.data ->> 'delivery'"),
        Column("data", "string", "t.data::text"),
    ),
    day="at",
)
# Messages of atomic transactions carry no documents: no report is about them.
MESSAGES = Entity(
    "messages",
    "messaging_message t JOIN partners_agreementversion v ON v.id = t.agreement_version_id AND v.profile <> 'wsat'"
    " LEFT JOIN messaging_payload p ON p.message_id = t.id AND p.number = 1",
    _columns(
        "id string, xid long, direction string, state string, pair_id string, agreement_version_id string, "
        "semantics string, message_id string, conversation_id string, ref_to_message_id string, service string, "
        "action string, sequence_number long, position long",
        # Transactional streams name the number before (always empty in files of version 1); other pairs do not.
        "previous_number long, digest string",
        Column("payload_digest", "string", "p.sha256"),
        "size long, attempts long, copies long, cause string, created_at timestamp, first_sent_at timestamp, "
        "completed_at timestamp",
        # What the document is known by: as its sender gave it, else the MessageId.
        Column("document_id", "string", "coalesce(nullif(t.document_id, ''), t.message_id)", since=3),
        # A JSON object of those that are shown; null: it has none.
        Column(
            "attributes",
            "string",
            "(t.attributes - ARRAY(SELECT r.name::text FROM messaging_attributerule r WHERE NOT r.shown))::text",
            since=5,
        ),
    ),
    day="created_at",
    changes=True,
)
TRANSMISSIONS = Entity(
    "transmissions",
    "messaging_transmission t",
    _columns(
        "id string, xid long, pair_id string",
        Column("message_pk", "string", "t.message_id"),
        Column("signal_pk", "string", "t.signal_id"),
        "number long, outcome string, http_status long, cause string, started_at timestamp, finished_at timestamp",
    ),
    day="started_at",
    changes=True,
)
SIGNALS = Entity(
    "signals",
    "messaging_signal t",
    _columns(
        "id string, xid long, direction string, kind string, state string, pair_id string",
        Column("about_pk", "string", "t.about_id"),
        "message_id string, ref_to_message_id string, error_code string, sends long, created_at timestamp, "
        "last_sent_at timestamp",
    ),
    day="created_at",
    changes=True,
)
DELIVERIES = Entity(
    "deliveries",
    "messaging_delivery t",
    _columns(
        "id string, xid long, trigger_id string",
        Column("message_pk", "string", "t.message_id"),
        "pair_id string, position long, state string, verdict string, doubt string, executions long, retries long",
        Column("resubmission_of", "string", "t.resubmission_of_id"),
        "join_id string",
        Column("part_of", "string", "t.part_of_id"),
        "decision string, cause string, created_at timestamp, started_at timestamp, completed_at timestamp",
        # The key of the document history beside the trigger; no document id: there is no usable one.
        Column("sender_id", "string", since=3),
        Column("document_id", "string", since=3),
    ),
    day="created_at",
    changes=True,
)
PAIRS = Entity(
    "pairs",
    "messaging_pair t JOIN partners_party partner ON partner.id = t.partner_id"
    " JOIN partners_party own ON own.id = t.own_party_id",
    _columns(
        "id string, code string, direction string, partner_id string",
        Column("partner", "string", "partner.name"),
        Column("own_party", "string", "own.name"),
        "sender_uri string, receiver_uri string",
    ),
)
AGREEMENTS = Entity(
    "agreements",
    "partners_agreementversion t JOIN partners_agreement a ON a.id = t.agreement_id"
    " JOIN partners_party partner ON partner.id = a.partner_id",
    _columns(
        # `id` is the version's.
        "id string, agreement_id string",
        Column("tpa_id", "string", "a.tpa_id"),
        Column("partner_id", "string", "a.partner_id"),
        Column("partner", "string", "partner.name"),
        "number long, state string, profile string, semantics string, timeout long, retries long, "
        "retry_interval long, transport_retries long, transport_retry_interval long, memory_window long, "
        "partner_window long, repeat_interval long, repeat_interval_max long, activated_at timestamp",
        # Service level: seconds (0 = no target), and hundredths of a per cent.
        Column("final_receipt", "long", "t.final_receipt::int::bigint", since=4),
        Column("acknowledged_within", "long", since=4),
        Column("acknowledged_hundredths", "long", "round(t.acknowledged_percent * 100)::bigint", since=4),
        Column("processed_within", "long", since=4),
        Column("processed_hundredths", "long", "round(t.processed_percent * 100)::bigint", since=4),
    ),
)
TRIGGERS = Entity(
    "triggers",
    "messaging_trigger t",
    _columns(
        "id string, name string, state string",
        # Seconds; null: it keeps no history.
        Column(
            "history_ttl", "long", "CASE WHEN t.detect_duplicates AND t.use_history THEN t.history_ttl END", since=3
        ),
        Column("join_type", "string", since=4),
    ),
)

ENTITIES = {
    entity.name: entity
    for entity in (EVENTS, MESSAGES, TRANSMISSIONS, SIGNALS, DELIVERIES, PAIRS, AGREEMENTS, TRIGGERS)
}
