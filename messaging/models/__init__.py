from messaging.models.access import ApiToken, WebhookDelivery, WebhookEndpoint
from messaging.models.message import Message, MessageIdentity, Payload
from messaging.models.pair import Pair
from messaging.models.record import AuditEntry, Event, Incident
from messaging.models.traffic import Rejection, Signal, Transmission

__all__ = [
    "ApiToken",
    "AuditEntry",
    "Event",
    "Incident",
    "Message",
    "MessageIdentity",
    "Pair",
    "Payload",
    "Rejection",
    "Signal",
    "Transmission",
    "WebhookDelivery",
    "WebhookEndpoint",
]
