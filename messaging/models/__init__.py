from messaging.models.access import ApiToken, WebhookDelivery, WebhookEndpoint
from messaging.models.archive import ArchivedMessage, ArchiveFile, LegalHold, LiveMinute, LiveState, RetentionPolicy
from messaging.models.delivery import Delivery, Join
from messaging.models.history import DocumentCompleted, DocumentStarted, MemoryEpoch, RememberedRequest
from messaging.models.job import BulkJob, BulkJobItem
from messaging.models.message import Message, MessageIdentity, Payload
from messaging.models.pair import Pair
from messaging.models.pipeline import LakeFile, LakeState, PartnerLog, PipelineRun, PublishedReport
from messaging.models.record import AuditEntry, Event, Incident
from messaging.models.report import (
    ArchiveDay,
    AuditFinding,
    AuditPair,
    DoubtOutcome,
    ReconciliationFinding,
    ReconciliationSummary,
    RepeatDelay,
    RepeatHistogram,
    ServiceError,
    ServiceLevel,
    TimingAdvice,
    TimingFailure,
    TimingLatency,
    WindowAdvice,
)
from messaging.models.route import Circuit, PickupState, Route
from messaging.models.stream import IncomingStream, OutgoingStream
from messaging.models.traffic import Rejection, Signal, Transmission
from messaging.models.trigger import Trigger

__all__ = [
    "ApiToken",
    "ArchiveDay",
    "ArchiveFile",
    "ArchivedMessage",
    "AuditEntry",
    "AuditFinding",
    "AuditPair",
    "BulkJob",
    "BulkJobItem",
    "Circuit",
    "Delivery",
    "DocumentCompleted",
    "DocumentStarted",
    "DoubtOutcome",
    "Event",
    "Incident",
    "IncomingStream",
    "Join",
    "LakeFile",
    "LakeState",
    "LegalHold",
    "LiveMinute",
    "LiveState",
    "MemoryEpoch",
    "Message",
    "MessageIdentity",
    "OutgoingStream",
    "Pair",
    "PartnerLog",
    "Payload",
    "PickupState",
    "PipelineRun",
    "PublishedReport",
    "ReconciliationFinding",
    "ReconciliationSummary",
    "Rejection",
    "RememberedRequest",
    "RepeatDelay",
    "RepeatHistogram",
    "RetentionPolicy",
    "Route",
    "ServiceError",
    "ServiceLevel",
    "Signal",
    "TimingAdvice",
    "TimingFailure",
    "TimingLatency",
    "Transmission",
    "Trigger",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WindowAdvice",
]
