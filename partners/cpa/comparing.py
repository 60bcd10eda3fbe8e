"""Settings that two channels should say the same of: sender and receiver of a message, and the two directions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from partners.cpa.channels import Channel, MessageBinding
from partners.cpa.findings import Finding, Kind, Matter
from partners.cpa.flows import Flow, flows
from partners.cpa.lexical import write_boolean, write_duration
from partners.cpa.model import Cpa

UNSAID = "nothing"


def differences(cpa: Cpa) -> Iterator[Finding]:
    """What sender and receiver say differently of the same messages, and how the two directions of a service differ."""
    known = list(flows(cpa))
    pairs: dict[tuple[str, str], Flow] = {}
    for flow in known:
        pairs.setdefault((flow.sender_channel.id, flow.channel.id), flow)
    for flow in pairs.values():
        yield from _sides(flow)
    services: dict[tuple[str, str], list[Flow]] = defaultdict(list)
    for flow in known:
        services[flow.service_type, flow.service].append(flow)
    for (_type, service), found in services.items():
        yield from _directions(cpa, service, found)


def _characteristics(channel: Channel) -> dict[str, str]:
    return {
        "syncReplyMode": channel.sync_reply.value,
        "ackRequested": channel.ack_requested.value,
        "ackSignatureRequested": channel.ack_signature_requested.value,
        "duplicateElimination": channel.duplicate_elimination.value,
        "actor": channel.actor or UNSAID,
    }


def _binding(binding: MessageBinding | None) -> dict[str, str]:
    reliability = binding.reliability if binding else None
    interval = reliability.retry_interval if reliability else None
    persist = binding.persist_duration if binding else None
    signing = binding.non_repudiation if binding else None
    return {
        "Retries": UNSAID if reliability is None or reliability.retries is None else str(reliability.retries),
        "RetryInterval": UNSAID if interval is None else write_duration(interval),
        "MessageOrderSemantics": UNSAID if reliability is None else f"ordered {write_boolean(reliability.ordered)}",
        "PersistDuration": UNSAID if persist is None else write_duration(persist),
        "HashFunction": signing.hash if signing else UNSAID,
        "SignatureAlgorithm": ", ".join(sorted(one.uri for one in signing.algorithms)) if signing else UNSAID,
        "ebXML Messaging": binding.version if binding else UNSAID,
    }


def _protocol(channel: Channel, *, sends: bool) -> str:
    side = channel.transport.sender if sends else channel.transport.receiver
    return side.protocol.name if side else UNSAID


def _sides(flow: Flow) -> Iterator[Finding]:
    """What is said on one side only is no contradiction, except of characteristics, which have defaults."""
    sender, receiver = flow.sender_channel, flow.channel
    sent = {**_binding(flow.sending), "TransportProtocol": _protocol(sender, sends=True)}
    received = {**_binding(flow.receiving), "TransportProtocol": _protocol(receiver, sends=False)}
    for said, heard in ((_characteristics(sender), _characteristics(receiver)), (sent, received)):
        for name, value in said.items():
            if value != heard[name] and UNSAID not in (value, heard[name]):
                text = (
                    f"{name}: the sender's channel {sender.id} says {value}, and the receiver's {receiver.id} "
                    f"{heard[name]}. "
                ) + (
                    "The receiver's counts."
                    if said is not sent or name in ("PersistDuration", "TransportProtocol")
                    else "The sender's counts."
                )
                place = receiver.place
                yield Finding(Kind.CONFLICTING, place.path, place.line, text, Matter.SIDES_DIFFER)


def _directions(cpa: Cpa, service: str, found: list[Flow]) -> Iterator[Finding]:
    first, second = ([_effective(flow) for flow in found if flow.sender is party] for party in cpa.parties)
    if not first or not second:
        return
    for name in first[0]:
        there, back = ({settings[name] for settings in side} for side in (first, second))
        if there != back:
            a, b = cpa.parties
            place = next(flow for flow in found if flow.sender is a).sender_role.place
            text = (
                f"{service}: {name} is {_listed(there)} from {a.name} to {b.name}, and {_listed(back)} the other way: "
                "each direction keeps its own."
            )
            yield Finding(Kind.CONFLICTING, place.path, place.line, text, Matter.DIRECTIONS_DIFFER)


def _effective(flow: Flow) -> dict[str, str]:
    """The settings that count for a message."""
    received = _binding(flow.receiving)
    return {
        **_characteristics(flow.channel),
        **_binding(flow.sending),
        "PersistDuration": received["PersistDuration"],
        "TransportProtocol": _protocol(flow.channel, sends=False),
    }


def _listed(values: set[str]) -> str:
    return " or ".join(sorted(values))
