from messaging.models.access import ApiToken, WebhookDelivery, WebhookEndpoint
from messaging.models.delivery import Delivery, Join
from messaging.models.history import DocumentCompleted, DocumentStarted, MemoryEpoch, RememberedRequest
from messaging.models.job import BulkJob, BulkJobItem
from messaging.models.message import Message, MessageIdentity, Payload
from messaging.models.pair import Pair
from messaging.models.record import AuditEntry, Event, Incident
from messaging.models.traffic import Rejection, Signal, Transmission
from messaging.models.trigger import Trigger

__all__ = [
    "ApiToken",
    "AuditEntry",
    "BulkJob",
    "BulkJobItem",
    "Delivery",
    "DocumentCompleted",
    "DocumentStarted",
    "Event",
    "Incident",
    "Join",
    "MemoryEpoch",
    "Message",
    "MessageIdentity",
    "Pair",
    "Payload",
    "Rejection",
    "RememberedRequest",
    "Signal",
    "Transmission",
    "Trigger",
    "WebhookDelivery",
    "WebhookEndpoint",
]
