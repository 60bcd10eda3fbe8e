"""Which messages an agreement lets pass: what one party can send and the other can receive, and by which channels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from partners.cpa.channels import Channel, EndpointType, MessageBinding, Placed, Reliability, Requirement
from partners.cpa.findings import Finding, Kind, Matter
from partners.cpa.model import ActionBinding, Confidentiality, Cpa, Party, Role


class Semantics(StrEnum):
    """What a receiver may rely on. Only the first needs both acknowledgements and the elimination of duplicates."""

    ONCE_AND_ONLY_ONCE = "OnceAndOnlyOnce"
    AT_LEAST_ONCE = "AtLeastOnce"
    AT_MOST_ONCE = "AtMostOnce"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True)
class Flow:
    """One action of a service that one party sends and the other receives.

    It goes to the receiver's channel, whose characteristics count. The sender's own channel says how often it is
    repeated, and how it is signed.
    """

    sender: Party
    receiver: Party
    sender_role: Role
    receiver_role: Role
    sent: ActionBinding
    received: ActionBinding

    @property
    def service(self) -> str:
        return self.sender_role.service

    @property
    def service_type(self) -> str:
        return self.sender_role.service_type

    @property
    def action(self) -> str:
        return self.sent.action

    @property
    def channel(self) -> Channel:
        """The receiver's default channel for it."""
        return self.receiver.channel(self.received.channel_ids[0])

    @property
    def sender_channel(self) -> Channel:
        """The sender's default channel for it: acknowledgements and errors come back there."""
        return self.sender.channel(self.sent.channel_ids[0])

    @property
    def sending(self) -> MessageBinding | None:
        """What holds for messages that the sender sends."""
        return self.sender_channel.doc_exchange.sender

    @property
    def receiving(self) -> MessageBinding | None:
        """What holds for messages that the receiver receives."""
        return self.channel.doc_exchange.receiver

    @property
    def reliability(self) -> Reliability | None:
        """None is best effort."""
        return self.sending.reliability if self.sending else None

    @property
    def persist_duration(self) -> timedelta | None:
        """How long the receiver remembers a message, as far as it says."""
        return self.receiving.persist_duration if self.receiving else None

    @property
    def semantics(self) -> Semantics:
        """As wire-ebxml section 4 reads it: what is left to each message is not promised."""
        repeated = self.channel.ack_requested is Requirement.ALWAYS and self.reliability is not None
        once = self.channel.duplicate_elimination is Requirement.ALWAYS
        if repeated:
            return Semantics.ONCE_AND_ONLY_ONCE if once else Semantics.AT_LEAST_ONCE
        return Semantics.AT_MOST_ONCE if once else Semantics.BEST_EFFORT

    @property
    def signed(self) -> bool:
        """Whether its messages are signed: if one side says so, though the other may not."""
        return bool(self.sent.signed or self.received.signed)

    @property
    def confidential(self) -> frozenset[Confidentiality]:
        """What the two sides say of its documents; empty if neither says anything."""
        return frozenset(one.confidential for one in (self.sent, self.received) if one.confidential is not None)

    @property
    def uri(self) -> str:
        """Where it is sent to; "" if the receiver does not say."""
        return address(self.channel, EndpointType.REQUEST)

    @property
    def error_uri(self) -> str:
        """Where errors about it are sent to; "" if the sender does not say."""
        return address(self.sender_channel, EndpointType.ERROR)


def address(channel: Channel, kind: EndpointType) -> str:
    """Where a channel receives what is of this kind; "" if it does not say."""
    receiver = channel.transport.receiver
    endpoint = receiver.endpoint(kind) if receiver else None
    return endpoint.address if endpoint else ""


@dataclass(frozen=True, slots=True)
class View:
    """An agreement as one of its parties sees it."""

    us: Party
    them: Party
    sends: tuple[Flow, ...]
    receives: tuple[Flow, ...]


def seen_from(cpa: Cpa, party_id: str, party_type: str = "") -> View:
    """What the party of this id sends to the other and receives from it. `party_type` "" is any type.

    Raises ValueError with a sentence: neither party has this id, or both have it.
    """
    found = [
        party for party in cpa.parties if any(one.id == party_id and party_type in ("", one.type) for one in party.ids)
    ]
    wanted = f"{party_id} ({party_type})" if party_type else party_id
    if len(found) != 1:
        known = ", ".join(f"{one.id} ({one.type}) of {party.name}" for party in cpa.parties for one in party.ids)
        many = "Both parties have" if found else "No party has"
        raise ValueError(f"{many} the id {wanted} in the agreement {cpa.id}. Its ids: {known}.")
    return view_of(cpa, found[0])


def view_of(cpa: Cpa, us: Party) -> View:
    """What one of the two parties sends to the other and receives from it."""
    them = next(party for party in cpa.parties if party is not us)
    matched = list(flows(cpa))
    return View(
        us,
        them,
        tuple(flow for flow in matched if flow.sender is us),
        tuple(flow for flow in matched if flow.receiver is us),
    )


def flows(cpa: Cpa) -> Iterator[Flow]:
    """All that both parties agree on: first what the first party sends."""
    return (one for one in _matched(cpa) if isinstance(one, Flow))


def mismatches(cpa: Cpa) -> Iterator[Finding]:
    """What one party can send or receive and the other does not say the same of; and what is said twice."""
    known: dict[tuple[str, ...], Flow] = {}
    answered = {binding.other_id for party in cpa.parties for role in party.roles for binding in role.sends()}
    for one in _matched(cpa):
        if isinstance(one, Finding):
            yield one
            continue
        answered.add(one.received.id)
        names = one.service_type, one.service, one.action, one.sender_role.name, one.receiver_role.name
        first = known.setdefault((str(id(one.sender)), *names), one)
        if first is not one:
            text = f"{one.service}/{one.action} is said twice; line {first.sent.place.line} says it first."
            yield _finding(one.sent, Matter.AMBIGUOUS, text)
    for receiver in cpa.parties:
        for role in receiver.roles:
            for binding in role.receives():
                if binding.id not in answered:
                    yield _unanswered(binding, role, receiver, "receive", "sends")


def _matched(cpa: Cpa) -> Iterator[Flow | Finding]:
    for sender, receiver in (cpa.parties, cpa.parties[::-1]):
        by_id = {binding.id: (role, binding) for role in receiver.roles for binding in role.receives()}
        by_name: dict[tuple[str, str, str], list[tuple[Role, ActionBinding]]] = defaultdict(list)
        for role, binding in by_id.values():
            by_name[role.service_type, role.service, binding.action].append((role, binding))
        for role in sender.roles:
            for sent in role.sends():
                names = role.service_type, role.service, sent.action
                found = by_id.get(sent.other_id) if sent.other_id else next(iter(by_name.get(names, ())), None)
                if found is None and not sent.other_id:
                    yield _unanswered(sent, role, sender, "send", "receives")
                elif found is None:
                    text = f"{sent.other_id} is nothing that {receiver.name} can receive, so this is not exchanged."
                    yield _finding(sent, Matter.COUNTERPART_DIFFERS, text)
                elif wrong := _difference(sent, names, *found):
                    yield _finding(sent, Matter.COUNTERPART_DIFFERS, f"{wrong}, so this is not exchanged.")
                else:
                    yield Flow(sender, receiver, role, found[0], sent, found[1])


def _difference(sent: ActionBinding, names: tuple[str, str, str], role: Role, received: ActionBinding) -> str:
    other = role.service_type, role.service, received.action
    line = received.place.line
    if other != names:
        return f"The sender calls it {_named(names)}, and the receiver {_named(other)} (line {line})"
    if received.other_id not in ("", sent.id):
        return f"The receiver's {received.id} (line {line}) belongs to {received.other_id} and not to {sent.id}"
    return ""


def _named(names: tuple[str, str, str]) -> str:
    service_type, service, action = names
    return f"{service} ({service_type})/{action}" if service_type else f"{service}/{action}"


def _unanswered(binding: ActionBinding, role: Role, party: Party, verb: str, other: str) -> Finding:
    text = f"{party.name} can {verb} {role.service}/{binding.action}, which the other party never {other}."
    return _finding(binding, Matter.NO_COUNTERPART, text)


def _finding(where: Placed, matter: Matter, text: str) -> Finding:
    return Finding(Kind.CONFLICTING, where.place.path, where.place.line, text, matter)
