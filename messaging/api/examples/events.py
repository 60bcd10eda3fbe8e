"""What each type of event carries, for the examples of webhooks: `data` as `journal.events.body` shows it."""

from __future__ import annotations

from typing import Any

from messaging.api.examples.names import (
    AGREEMENT,
    DELIVERY,
    DOCUMENT_ID,
    HOOK,
    IDENTIFIER,
    INCIDENT,
    JOB,
    MESSAGE,
    MESSAGE_ID,
    ONWARD,
    PAIR,
    PARTICIPANT,
    TPA_ID,
    TRANSACTION,
    TRIGGER,
)

_NUMBERED: dict[str, Any] = {"message": MESSAGE, "pair": PAIR, "message_id": MESSAGE_ID, "sequence_number": 7}
_MESSAGE: dict[str, Any] = {"message": MESSAGE, "pair": PAIR, "message_id": MESSAGE_ID}
_DOCUMENT: dict[str, Any] = {
    "agreement": TPA_ID,
    "service": "urn:orders",
    "action": "NewOrder",
    "size": 48_213,
    "document_id": DOCUMENT_ID,
}
_NOT_ANSWERED: dict[str, Any] = {"cause": "ack_timeout", "detail": "No acknowledgement within 60 s."}
_INCIDENT: dict[str, Any] = {"pair": PAIR, "incident": INCIDENT, "number": 42, "cause": "ack_timeout"}
_TRIGGER: dict[str, Any] = {"trigger": TRIGGER, "name": "ERP orders"}
_DELIVERY: dict[str, Any] = {**_NUMBERED, "document_id": DOCUMENT_ID, "delivery": DELIVERY, **_TRIGGER}
_TRANSACTION: dict[str, Any] = {"transaction": TRANSACTION, "identifier": IDENTIFIER}
_AGREEMENT: dict[str, Any] = {"agreement": TPA_ID, "agreement_id": AGREEMENT, "version": 2, "actor": "ana"}
_SERVER: dict[str, Any] = {"server": "https://msh.globex.example:443", "cause": "connect_refused"}
_ANA: dict[str, Any] = {"actor": "ana"}

FACTS: dict[str, dict[str, Any]] = {
    "message.accepted": {**_MESSAGE, **_DOCUMENT},
    "message.retrying": {**_NUMBERED, "attempt": 2, "retries": 1, "cause": "ack_timeout"},
    "message.sent": _MESSAGE,
    "message.delayed": {**_NUMBERED, "detail": "4.4.1 connection timed out", "status": "4.4.1", "attempt": 1},
    "message.bounced": {
        **_NUMBERED,
        "detail": "550 5.1.1 no such mailbox",
        "status": "5.1.1",
        "attempt": 1,
        "cause": "mail_bounced",
    },
    "message.delivered": {**_NUMBERED, "attempts": 1},
    "message.failed": {**_NUMBERED, **_NOT_ANSWERED, "attempts": 6},
    "message.skipped": {**_NUMBERED, "reason": "GLOBEX took order 4711 by telephone"},
    "message.cancelled": {**_MESSAGE, "document_id": DOCUMENT_ID, "reason": "The customer withdrew the order"},
    "message.in_doubt": {
        **_MESSAGE,
        "cause": "outcome_unknown",
        "detail": "The connection broke after the request was sent.",
        "attempts": 4,
    },
    "message.settled": {**_MESSAGE, "decision": "delivered", "reason": "GLOBEX shows the order in its list", **_ANA},
    "message.held": {**_MESSAGE, "order_number": 3},
    "message.received": {**_NUMBERED, **_DOCUMENT},
    "message.forwarded": {
        **_NUMBERED,
        "route": "Brick Lane, by the harbour",
        "mode": "store_forward",
        "agreement": "tpa:acme-initech",
        "onward": ONWARD,
    },
    "message.duplicate": {**_MESSAGE, "rule": "known-id"},
    "message.rejected": {
        "pair": PAIR,
        "message_id": "invoice-88@globex",
        "code": "InvalidSequenceNumber",
        "detail": "SequenceNumber 9 received; last accepted 1, so 2 (next), 1 (repeat) or 1 (reset) expected",
    },
    "pair.suspended": {"pair": PAIR, **_NOT_ANSWERED, "queued": 12, "incident": INCIDENT},
    "pair.resumed": {"pair": PAIR, "reason": "New certificate installed by GLOBEX", **_ANA},
    "pair.paused": {"pair": PAIR, "reason": "GLOBEX moves to another data centre", **_ANA},
    "pair.released": {"pair": PAIR, "reason": "GLOBEX is back", **_ANA},
    "pair.silent": {
        "pair": PAIR,
        "cause": "silent",
        "detail": "Nothing came since 2026-11-21 22:04:11 UTC; a document is expected every 6 h.",
        "incident": INCIDENT,
    },
    "pair.heard": {"pair": PAIR, "silent_seconds": 25_211, "reason": "A document came again."},
    "pair.retry_budget": {"pair": PAIR, "percent": 50, "used": 3, "of": 5, "cause": "ack_timeout"},
    "pair.needs_resync": {
        "pair": PAIR,
        "cause": "needs_resync",
        "detail": "The database was restored. What came after 2026-11-22 02:00:00 UTC is not in it.",
        "incident": INCIDENT,
    },
    "pair.resynced": {"pair": PAIR, "reason": "GLOBEX's list of the night was compared: nothing is missing", **_ANA},
    "delivery.completed": _DELIVERY,
    "delivery.failed": {**_DELIVERY, "cause": "service_error"},
    "delivery.duplicate": _DELIVERY,
    "delivery.in_doubt": {**_DELIVERY, "doubt": "started_not_completed"},
    "delivery.settled": {
        **_DELIVERY,
        "decision": "duplicate",
        "reason": "Order 4711 is in the ERP since 10:04",
        **_ANA,
    },
    "trigger.suspended": {
        **_TRIGGER,
        "cause": "service_error",
        "detail": "HTTP 503 from erp.internal:8080.",
        "incident": INCIDENT,
    },
    "trigger.resumed": {**_TRIGGER, "cause": "service_error", "reason": "The ERP is up again", **_ANA},
    "transaction.begun": {**_TRANSACTION, "phase": "active"},
    "transaction.committed": {**_TRANSACTION, "phase": "committing"},
    "transaction.aborted": {
        **_TRANSACTION,
        "phase": "aborting",
        "cause": "transaction_voted_no",
        "detail": "Globex voted no.",
    },
    "transaction.in_doubt": {
        **_TRANSACTION,
        "phase": "committing",
        "cause": "heuristic_outcome",
        "detail": "Globex rolled back what was committed.",
        "participant": PARTICIPANT,
    },
    "transaction.settled": {
        **_TRANSACTION,
        "phase": "committed",
        "participant": PARTICIPANT,
        "outcome": "forget",
        "reason": "GLOBEX has fixed its data by hand",
        **_ANA,
    },
    "circuit.opened": {
        **_SERVER,
        "detail": "Connection refused.",
        "failures": 3,
        "retry_at": "2026-11-22T10:00:03+00:00",
    },
    "circuit.closed": {**_SERVER, "open_seconds": 95},
    "incident.opened": {**_INCIDENT, "detail": _NOT_ANSWERED["detail"]},
    "incident.acknowledged": {**_INCIDENT, "owner": "ana"},
    "incident.assigned": {**_INCIDENT, "owner": "bob"},
    "incident.snoozed": {
        **_INCIDENT,
        "until": "2026-11-23T08:00:00+00:00",
        "reason": "GLOBEX fixes it over night",
    },
    "incident.resolved": {**_INCIDENT, "by": "ana"},
    "agreement.activated": {**_AGREEMENT, "reason": "GLOBEX confirmed the longer timeout"},
    "agreement.disabled": {**_AGREEMENT, "reason": "The contract has ended"},
    "certificate.expiring": {
        "pair": PAIR,
        "title": "msh.globex.example",
        "use": "server of Globex",
        "ends_at": "2026-12-22T09:59:59+00:00",
        "within_days": 30,
    },
    "webhook_endpoint.disabled": {"endpoint": HOOK, "name": "ERP", "detail": "It failed for five days."},
    "webhook_endpoint.test": {"endpoint": HOOK, "by": "ana"},
    "bulk_operation.finished": {
        "job": JOB,
        "action": "settle_deliveries",
        "state": "finished",
        **_ANA,
        "total": 38,
        "done": 37,
        "refused": 1,
    },
}
