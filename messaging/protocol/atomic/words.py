"""The words of WS-Coordination and WS-AtomicTransaction that the tables, the codec and the database share."""

from __future__ import annotations

from enum import StrEnum


class Protocol(StrEnum):
    """Coordination protocols that a participant registers for; on the wire `<wsat namespace>/Completion` ..."""

    COMPLETION = "Completion"
    VOLATILE = "Volatile2PC"
    DURABLE = "Durable2PC"


class Note(StrEnum):
    """Notification messages (spec 5, "WS-AT"). `Commit` and `Rollback` are also what an initiator asks for."""

    PREPARE = "Prepare"
    PREPARED = "Prepared"
    READ_ONLY = "ReadOnly"
    ABORTED = "Aborted"
    COMMIT = "Commit"
    ROLLBACK = "Rollback"
    COMMITTED = "Committed"
    REPLAY = "Replay"


# They end the relationship between coordinator and participant (spec 5).
TERMINAL = frozenset({Note.COMMITTED, Note.ABORTED, Note.READ_ONLY})


class Request(StrEnum):
    """Request and reply messages of WS-Coordination (spec 5, "WS-Coordination")."""

    CREATE = "CreateCoordinationContext"
    CREATED = "CreateCoordinationContextResponse"
    REGISTER = "Register"
    REGISTERED = "RegisterResponse"


FAULT = "Fault"  # the kind of a message that is a SOAP fault


class FaultCode(StrEnum):
    """What a fault says. The first five are WS-Coordination's, the next two WS-AT's, the last one is SOAP's."""

    INVALID_STATE = "InvalidState"
    INVALID_PROTOCOL = "InvalidProtocol"
    INVALID_PARAMETERS = "InvalidParameters"
    CANNOT_CREATE = "CannotCreateContext"
    CANNOT_REGISTER = "CannotRegisterParticipant"
    INCONSISTENT = "InconsistentInternalState"
    UNKNOWN_TRANSACTION = "UnknownTransaction"
    MUST_UNDERSTAND = "MustUnderstand"


class Seat(StrEnum):
    """Where one coordinator/participant relationship is: the columns of protocols.md 5.4 and 5.5. NONE = forgotten."""

    NONE = "none"
    ACTIVE = "active"
    PREPARING = "preparing"
    PREPARED = "prepared"
    COMMITTING = "committing"
    ABORTING = "aborting"


class Vote(StrEnum):
    """What a participant answered to Prepare (or said early)."""

    PREPARED = "prepared"
    READ_ONLY = "read_only"
    ABORTED = "aborted"


class Phase(StrEnum):
    """Where a whole transaction is. It is decided from COMMITTING on: only the commit record makes that so."""

    ACTIVE = "active"
    PREPARING_VOLATILE = "preparing_v"
    PREPARING_DURABLE = "preparing"
    DECIDING = "deciding"  # every vote is in; what this hub does itself, and the commit record, come now
    PREPARED = "prepared"  # subordinate: voted, and the superior decides
    COMMITTING = "committing"
    ABORTING = "aborting"
    COMMITTED = "committed"
    ABORTED = "aborted"


OPEN = frozenset({Phase.ACTIVE, Phase.PREPARING_VOLATILE, Phase.PREPARING_DURABLE, Phase.DECIDING, Phase.PREPARED})
ENDED = frozenset({Phase.COMMITTED, Phase.ABORTED})
