from messaging.models.access import ApiToken, WebhookDelivery, WebhookEndpoint
from messaging.models.archive import ArchivedMessage, ArchiveFile, LegalHold, LiveMinute, LiveState, RetentionPolicy
from messaging.models.coordination import Coordination, CoordinationMessage, Enlistment
from messaging.models.delivery import Delivery, Join
from messaging.models.history import DocumentCompleted, DocumentStarted, MemoryEpoch, RememberedRequest
from messaging.models.inquiry import PayloadMask, StatusInquiry
from messaging.models.job import BulkJob, BulkJobItem
from messaging.models.message import Message, MessageIdentity, Payload
from messaging.models.notify import Notification, NotificationCursor, NotificationRule
from messaging.models.onboarding import BenchReport, OnboardingDraft, ProbeReport
from messaging.models.pair import Pair
from messaging.models.people import (
    Access,
    LoginThrottle,
    OpenIdAccount,
    Preference,
    SavedView,
    SecondFactor,
    UserSession,
)
from messaging.models.pipeline import LakeFile, LakeState, PartnerLog, PipelineRun, PublishedReport
from messaging.models.record import AuditEntry, Event, Incident, IncidentNote
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
from messaging.models.traffic_hour import TrafficCursor, TrafficHour
from messaging.models.trigger import Trigger
from messaging.models.worker import Worker

__all__ = [
    "Access",
    "ApiToken",
    "ArchiveDay",
    "ArchiveFile",
    "ArchivedMessage",
    "AuditEntry",
    "AuditFinding",
    "AuditPair",
    "BenchReport",
    "BulkJob",
    "BulkJobItem",
    "Circuit",
    "Coordination",
    "CoordinationMessage",
    "Delivery",
    "DocumentCompleted",
    "DocumentStarted",
    "DoubtOutcome",
    "Enlistment",
    "Event",
    "Incident",
    "IncidentNote",
    "IncomingStream",
    "Join",
    "LakeFile",
    "LakeState",
    "LegalHold",
    "LiveMinute",
    "LiveState",
    "LoginThrottle",
    "MemoryEpoch",
    "Message",
    "MessageIdentity",
    "Notification",
    "NotificationCursor",
    "NotificationRule",
    "OnboardingDraft",
    "OpenIdAccount",
    "OutgoingStream",
    "Pair",
    "PartnerLog",
    "Payload",
    "PayloadMask",
    "PickupState",
    "PipelineRun",
    "Preference",
    "ProbeReport",
    "PublishedReport",
    "ReconciliationFinding",
    "ReconciliationSummary",
    "Rejection",
    "RememberedRequest",
    "RepeatDelay",
    "RepeatHistogram",
    "RetentionPolicy",
    "Route",
    "SavedView",
    "SecondFactor",
    "ServiceError",
    "ServiceLevel",
    "Signal",
    "StatusInquiry",
    "TimingAdvice",
    "TimingFailure",
    "TimingLatency",
    "TrafficCursor",
    "TrafficHour",
    "Transmission",
    "Trigger",
    "UserSession",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WindowAdvice",
    "Worker",
]
