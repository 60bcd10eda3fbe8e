"""What a profile does with test messages: it tries an agreement with one of its own, and reads those of partners.

Each folder of `messaging/profiles` has its bench. Nothing here is sent, and nothing is stored.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from messaging.models import Message, Payload
from messaging.protocol.codecs.stream import StreamEnvelope
from messaging.protocol.envelope import Envelope, Pieces
from messaging.protocol.errors import EncodeError, NotAMessage
from partners.choices import ServiceDirection
from partners.terms import Terms

CONTENT = b"""<?xml version="1.0" encoding="UTF-8"?>
<test>This document is a test. Nothing is to be done with it.</test>
"""
CONTENT_SHA256 = hashlib.sha256(CONTENT).hexdigest()
CONTENT_TYPE = "application/xml"
Headers = Mapping[str, Sequence[str]]
Agreements = Callable[[], list[Terms]]  # looked up once a message is read: noise costs no query
AnEnvelope = TypeVar("AnEnvelope", Envelope, StreamEnvelope)


@dataclass(frozen=True, slots=True)
class Sample:
    """One message as it would go out, with the one document CONTENT."""

    message_id: str
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...]
    service: str
    action: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a look. `verdict`: ok, failed or skipped; `detail`: for people; `sample`: what can be sent."""

    detail: str
    verdict: str = "ok"
    facts: dict[str, Any] = field(default_factory=dict)
    sample: Sample | None = None


@dataclass(slots=True)
class Understood:
    """What came, as it was read. `profile` "": it was no message. `problems`: sentences for people."""

    profile: str = ""
    message: dict[str, Any] = field(default_factory=dict)
    payloads: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Bench(ABC):
    """What can be known of an agreement before its first real message."""

    @abstractmethod
    def round_trip(self, terms: Terms, now: datetime) -> Found:
        """Whether a message as we would send it says to a reader what it has to."""

    @abstractmethod
    def repeat(self, terms: Terms, now: datetime) -> Found:
        """Whether the same message once more is recognised and not handed on again."""

    @abstractmethod
    def order(self, terms: Terms, now: datetime) -> Found:
        """Whether a message that comes out of order, or from before what is remembered, is refused."""

    def understand(self, content_type: str, headers: Headers, body: bytes, agreements: Agreements) -> Understood:
        """Reads a partner's test message, and says what would be wrong with it under their `agreements`."""
        return Understood()


class DocumentBench(Bench):
    """The bench of a profile whose messages carry a document."""

    @abstractmethod
    def sample(self, terms: Terms, now: datetime) -> Sample:
        """Makes a message with one document. Raises EncodeError, ValueError when it has no form on the wire."""

    @abstractmethod
    def misread(self, terms: Terms, sample: Sample) -> list[str]:
        """What is not the same after reading the sample as a partner would."""

    def round_trip(self, terms: Terms, now: datetime) -> Found:
        """Whether a message as we would send it says to a reader what it has to."""
        try:
            sample = self.sample(terms, now)
        except (EncodeError, ValueError) as error:
            return Found(f"A message of this agreement has no valid form: {error}", "failed")
        facts = {"bytes": len(sample.body), "sha256": sample.sha256, "message_id": sample.message_id}
        wrong = self.misread(terms, sample)
        if wrong:
            return Found("Read again, the message says something else: " + " ".join(wrong), "failed", facts)
        said = (
            f"A {sample.service} / {sample.action} of {len(sample.body)} bytes was written as it would be sent, and "
            "read again: the same parties, agreement, numbers and "
            f"{'one encrypted document' if terms.encrypts else 'document'}."
        )
        return Found(said, facts=facts, sample=sample)


class EnvelopeBench(DocumentBench, Generic[AnEnvelope]):
    """The bench of a profile whose messages name their agreement. `article`: what a message of it is called."""

    name: str
    article: str

    @abstractmethod
    def decode(self, content_type: str, body: bytes) -> AnEnvelope:
        """Reads a message. Raises NotAMessage."""

    def opened(self, read: AnEnvelope, terms: Terms) -> AnEnvelope:
        """Decrypts what came encrypted under its agreement."""
        return read

    @abstractmethod
    def said(self, read: AnEnvelope) -> tuple[str, dict[str, Any]]:
        """Names the type of a message that came, and tells of it what not all have."""

    @abstractmethod
    def outside(self, read: AnEnvelope, terms: Terms) -> list[str]:
        """What a message breaks of its agreement."""

    def misread(self, terms: Terms, sample: Sample) -> list[str]:
        try:
            read = self.decode(sample.content_type, sample.body)
        except NotAMessage as error:
            return [str(error)]
        meant = (sample.message_id, terms.tpa_id, sample.service, sample.action)
        told = (read.message_id, read.agreement_id, read.service, read.action)
        wrong = [f"{was} became {now}." for was, now in zip(meant, told, strict=True) if was != now]
        # What is encrypted for the partner can be read by nobody else.
        digests = [hashlib.sha256(part.content[:]).hexdigest() for part in read.payloads]
        if digests != [CONTENT_SHA256] and not (terms.encrypts and len(digests) == 1):
            wrong.append("The document is not the same.")
        return wrong + [defect.description for defect in read.defects]

    def understand(self, content_type: str, headers: Headers, body: bytes, agreements: Agreements) -> Understood:
        try:
            read = self.decode(content_type, body)
        except NotAMessage as error:
            return Understood(problems=[f"As {self.article}: {error.detail}"])
        terms = next((one for one in agreements() if one.tpa_id == read.agreement_id), None)
        if terms is not None:
            read = self.opened(read, terms)
        problems = [defect.description for defect in read.defects]
        if terms is None:
            problems.append(f"There is no agreement {read.agreement_id!r} with you.")
        else:
            if terms.profile != self.name:
                problems.append(f"Agreement {terms.tpa_id} has another wire profile, {terms.profile}.")
            elif terms.state != "active":
                problems.append(f"Agreement {terms.tpa_id} is not in force: it is {terms.state}.")
            problems += self.outside(read, terms)
        kind, more = self.said(read)
        message = {
            "type": kind,
            "message_id": read.message_id,
            "agreement": read.agreement_id,
            "conversation_id": read.conversation_id,
            "service": read.service,
            "action": read.action,
            **more,
            "agreement_state": terms.state if terms is not None else "unknown",
        }
        parts = [payload(part.content_type, part.content[:]) for part in read.payloads]
        return Understood(self.name, message, parts, problems)


def recognised(good: bool) -> Found:
    """Says what was found of a message that comes twice."""
    if not good:
        return Found("A second copy of a message would be handed on again.", "failed")
    return Found("The same message once more is recognised: it is answered, and not handed on again.")


def in_order(good: bool, said: str) -> Found:
    """Says what was found of a message that comes before its turn, or too late: `said`, when it is refused."""
    return Found(said) if good else Found("A message that comes out of order would be taken.", "failed")


def document_of(terms: Terms) -> tuple[str, str]:
    """The first service and action that we may send, else the first one; `Test` where every action may be."""
    rows = [row for row in terms.services if row[2] != ServiceDirection.RECEIVE] or list(terms.services)
    service, action = rows[0][:2] if rows else ("urn:test", "*")
    return service, "Test" if action == "*" else action


def submitted(terms: Terms, now: datetime, message_id: str, filename: str = "") -> tuple[Message, list[Payload]]:
    """Makes the rows of a message as if an application had submitted it; nobody saves them."""
    service, action = document_of(terms)
    message = Message(message_id=message_id, created_at=now, semantics=terms.semantics, service=service, action=action)
    message.conversation_id = f"test-{message_id}"
    document = Payload(content_id="test-document", content_type=CONTENT_TYPE, content=CONTENT)
    document.label, document.filename, document.in_frame = action, filename, terms.encrypts
    return message, [document]


def sample_of(message: Message, body: bytes | Pieces) -> Sample:
    """Says what a message that was prepared is, as it would go out."""
    octets = body if isinstance(body, bytes) else b"".join(body)
    return Sample(message.message_id, message.content_type, octets, (), message.service, message.action)


def payload(content_type: str, content: bytes) -> dict[str, Any]:
    """Tells of a document that came."""
    return {"content_type": content_type, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
