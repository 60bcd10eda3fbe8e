"""What the hub says of a test message that a partner posts: what it understood of it. Nothing is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from messaging.profiles.ebxml.receiving import outside_agreement
from messaging.protocol.codecs import ebxml, repeatable, stream
from messaging.protocol.codecs.repeatable import HeaderProblem
from messaging.protocol.envelope import Envelope, Limits, PayloadPart
from messaging.protocol.errors import NotAMessage
from partners import registry
from partners.choices import Profile
from partners.models import AgreementVersion
from partners.terms import Principal, Terms
from rmhub import clock

MAX_BYTES = 1024 * 1024
_MOST_PROBLEMS = 20


@dataclass(slots=True)
class Understood:
    """What came, as it was read. `profile` "": it was no message. `problems`: sentences for people."""

    profile: str = ""
    message: dict[str, Any] = field(default_factory=dict)
    payloads: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def greeting(principal: Principal) -> dict[str, Any]:
    """Whom the caller is taken for, and what may be posted."""
    return {"partner": principal.party_name, "at": clock.now().isoformat(), "profiles": list(Profile.values)}


def understand(
    *, content_type: str, headers: Mapping[str, Sequence[str]], body: bytes, principal: Principal
) -> dict[str, Any]:
    """What the hub reads in a message of any profile, and what would be wrong with it. Never raises for bad input.

    Agreements of this partner count whatever their state is, drafts too; those of others are unknown.
    """
    limits = Limits(body=MAX_BYTES)
    understood = _request(content_type, headers, body, principal)
    if understood is None:
        understood = _message(content_type, body, limits, principal)
    return {
        **greeting(principal),
        "profile": understood.profile,
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "message": understood.message,
        "payloads": understood.payloads,
        "problems": understood.problems[:_MOST_PROBLEMS],
    }


def _request(
    content_type: str, headers: Mapping[str, Sequence[str]], body: bytes, principal: Principal
) -> Understood | None:
    """A repeatable request; None when no header says that it is one."""
    understood = Understood(Profile.REPEATABLE.value)
    try:
        identity = repeatable.read(headers)
    except HeaderProblem as problem:
        understood.problems.append(str(problem))
        return understood
    if identity is None:
        return None
    said = {name: (headers.get(name) or [""])[0] for name in ("rm-service", "rm-action", "rm-conversation-id")}
    understood.message = {
        "message_id": identity.request_id,
        "first_sent": identity.first_sent.isoformat() if identity.first_sent else None,
        "service": said["rm-service"],
        "action": said["rm-action"],
        "conversation_id": said["rm-conversation-id"],
    }
    understood.payloads = [_payload(content_type, body)]
    mine = [terms for terms in _terms_of(principal) if terms.profile == Profile.REPEATABLE]
    if not mine:
        understood.problems.append("There is no agreement for repeatable requests with you.")
    elif said["rm-service"] and not any(one.allows(said["rm-service"], said["rm-action"], "receive") for one in mine):
        understood.problems.append(f"{said['rm-service']} / {said['rm-action']} is in no agreement with you.")
    return understood


def _message(content_type: str, body: bytes, limits: Limits, principal: Principal) -> Understood:
    """An ebXML message or one of a stream, whichever it can be read as."""
    try:
        return _ebxml(ebxml.decode(content_type, body, limits), principal)
    except NotAMessage as error:
        first = f"As an ebXML message: {error.detail}"
    try:
        return _stream(stream.decode(content_type, body, limits), principal)
    except NotAMessage as error:
        return Understood(problems=[first, f"As a message of a stream: {error.detail}"])


def _ebxml(envelope: Envelope, principal: Principal) -> Understood:
    understood = Understood(Profile.EBXML.value)
    hop = envelope.hop
    understood.message = {
        "type": envelope.message_type.value,
        "message_id": envelope.message_id,
        "agreement": envelope.agreement_id,
        "conversation_id": envelope.conversation_id,
        "service": envelope.service,
        "action": envelope.action,
        "sequence_number": hop.sequence_number,
        "sender_uri": hop.sender_uri,
        "receiver_uri": hop.receiver_uri,
    }
    understood.payloads = [_payload(part.content_type, part.content) for part in envelope.payloads]
    understood.problems = [defect.description for defect in envelope.defects]
    terms = _agreement(understood, envelope.agreement_id, Profile.EBXML, principal)
    if terms is not None:
        understood.problems += [defect.description for defect in outside_agreement(envelope, terms)]
    return understood


def _stream(envelope: stream.StreamEnvelope, principal: Principal) -> Understood:
    understood = Understood(Profile.STREAM.value)
    position = envelope.position
    understood.message = {
        "type": envelope.kind.value,
        "message_id": envelope.message_id,
        "agreement": envelope.agreement_id,
        "conversation_id": envelope.conversation_id,
        "service": envelope.service,
        "action": envelope.action,
        "sequence_number": position.current if position is not None else None,
        "receiver_uri": envelope.to,
    }
    parts: tuple[PayloadPart, ...] = envelope.payloads
    understood.payloads = [_payload(part.content_type, part.content) for part in parts]
    understood.problems = [defect.description for defect in envelope.defects]
    terms = _agreement(understood, envelope.agreement_id, Profile.STREAM, principal)
    if terms is not None and envelope.service and not terms.allows(envelope.service, envelope.action, "receive"):
        understood.problems.append(f"{envelope.service} / {envelope.action} is not in agreement {terms.tpa_id}.")
    return understood


def _agreement(understood: Understood, tpa_id: str, profile: Profile, principal: Principal) -> Terms | None:
    """The terms that the message names, with their state in the answer; what is wrong with them is a problem."""
    terms = next((one for one in _terms_of(principal) if one.tpa_id == tpa_id), None)
    understood.message["agreement_state"] = terms.state if terms is not None else "unknown"
    if terms is None:
        understood.problems.append(f"There is no agreement {tpa_id!r} with you.")
    elif terms.profile != profile:
        understood.problems.append(f"Agreement {tpa_id} has another wire profile, {terms.profile}.")
    elif terms.state != "active":
        understood.problems.append(f"Agreement {tpa_id} is not in force: it is {terms.state}.")
    return terms


def _terms_of(principal: Principal) -> list[Terms]:
    """The newest version of each agreement that this partner's endpoints are the next hop of."""
    rows = AgreementVersion.objects.filter(partner_endpoint__party=principal.party_id).order_by("agreement", "-number")
    newest = {row.agreement_id: row.pk for row in reversed(rows)}
    in_force = {terms.agreement_id: terms for terms in registry.current().by_hop(principal.party_id)}
    return [in_force.get(key) or registry.current().version(version) for key, version in newest.items()]


def _payload(content_type: str, content: bytes) -> dict[str, Any]:
    return {"content_type": content_type, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
