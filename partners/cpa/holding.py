"""What one agreement of this hub can hold of a CPA 2.0, and what it cannot.

An agreement has one set of roles and terms, and one address of each side. If a document has several, those are taken
that most of its actions have; each action that has others is left out, with a finding that says why.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from partners.cpa.channels import Channel, EndpointType, NonRepudiation, Placed, Requirement, SyncReply
from partners.cpa.findings import Finding, Kind, Matter
from partners.cpa.flows import Flow, Semantics, View, address
from partners.cpa.judging import OIDS
from partners.cpa.lexical import write_duration
from partners.cpa.model import Certificate, Confidentiality, Party

Value = str | int | bool
_T = TypeVar("_T", bound=Hashable)
_SECOND = timedelta(seconds=1)
# The algorithms of this hub, with the digests that go with them, by their names in XML Signature.
ALGORITHMS = {
    "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256": ("rsa-sha256", "http://www.w3.org/2001/04/xmlenc#sha256"),
    "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256": ("ecdsa-sha256", "http://www.w3.org/2001/04/xmlenc#sha256"),
    "http://www.w3.org/2000/09/xmldsig#rsa-sha1": ("rsa-sha1", "http://www.w3.org/2000/09/xmldsig#sha1"),
}
# What this hub encrypts with, by the letters and digits in its names; and its names in XML Encryption.
CIPHERS = {"smime-aes128": "aes128", "smime-aes256": "aes256"}
CIPHER_NAMES = {name: f"http://www.w3.org/2001/04/xmlenc#{cipher}-cbc" for name, cipher in CIPHERS.items()}
_CIPHER_OIDS = {"2.16.840.1.101.3.4.1.2": "aes128", "2.16.840.1.101.3.4.1.42": "aes256"}
_ENCRYPTED = frozenset({Confidentiality.PERSISTENT, Confidentiality.BOTH})
_ON_THE_WIRE = frozenset({Confidentiality.TRANSIENT, Confidentiality.BOTH})
_CALLED = {
    "own_role": "our role",
    "partner_role": "the partner's role",
    "semantics": "the delivery semantics",
    "sync_reply": "syncReplyMode",
    "message_order": "the order of messages",
    "signatures": "what is signed",
    "signature_algorithm": "the signature algorithm",
    "encryption": "the encryption of documents",
    "uri": "the address",
}


class NotHeld(Exception):
    """An agreement of this hub can hold nothing of the document; `findings` say why."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("; ".join(f"line {one.line}: {one.text}" for one in self.findings))


class _Impossible(Exception):
    """Why an action cannot be held."""


@dataclass(frozen=True, slots=True)
class Side:
    """Where one side is reached. `clients`, `signers`, `recipients`: its certificates as a TLS client, for signatures,
    and for what is encrypted for it.
    """

    party: Party
    uri: str
    error_uri: str
    channel: Channel
    clients: tuple[Certificate, ...] = ()
    signers: tuple[Certificate, ...] = ()
    recipients: tuple[Certificate, ...] = ()


@dataclass(frozen=True, slots=True)
class Holding:
    """What an agreement holds. `terms`: by this hub's names, times in whole seconds; `trusted`: certificates that the
    partner's TLS server may show, or that vouch for it.
    """

    own: Side
    partner: Side
    flows: tuple[Flow, ...]
    terms: Mapping[str, Value]
    trusted: tuple[Certificate, ...]
    findings: tuple[Finding, ...]

    @property
    def services(self) -> tuple[tuple[str, str, str], ...]:
        """(service, action, send | receive | both) of each."""
        found: dict[tuple[str, str], str] = {}
        for flow in self.flows:
            direction = "send" if flow.sender is self.own.party else "receive"
            known = found.setdefault((flow.service, flow.action), direction)
            if known != direction:
                found[flow.service, flow.action] = "both"
        return tuple((service, action, direction) for (service, action), direction in found.items())


def hold(view: View) -> Holding:
    """What the agreement of `view.us` with the other party is here. Raises NotHeld."""
    findings: list[Finding] = []
    shared: dict[int, dict[str, Value]] = {}
    possible: list[Flow] = []
    for flow in (*view.sends, *view.receives):
        try:
            shared[id(flow)] = _shared(flow, view)
            possible.append(flow)
        except _Impossible as error:
            findings.append(_left_out(flow, str(error)))
    kept = _alike(possible, lambda flow: shared[id(flow)], findings)
    sends = _alike([one for one in kept if one.sender is view.us], lambda one: {"uri": one.uri}, findings)
    receives = _alike([one for one in kept if one.receiver is view.us], lambda one: {"uri": one.uri}, findings)
    kept = [*sends, *receives]
    if not kept:
        raise NotHeld(findings or [_conflict(view.us, Matter.LEFT_OUT, "The parties agree on no action.")])
    terms = dict(shared[id(kept[0])])
    own, partner = _side(view.us, receives, sends, terms), _side(view.them, sends, receives, terms)
    missing = [
        _conflict(one.party, Matter.NO_ENDPOINT, f"The document has no address of {one.party.name}.")
        for one in (own, partner)
        if not one.uri
    ]
    if missing:
        raise NotHeld(missing)
    findings += _remarks(kept)
    terms |= _timing(sends or receives, terms, findings)
    trusted = _trusted(view, kept) if partner.uri.lower().startswith("https:") else ()
    return Holding(own, partner, tuple(kept), terms, trusted, tuple(findings))


def _conflict(where: Placed, matter: Matter, text: str) -> Finding:
    return Finding(Kind.CONFLICTING, where.place.path, where.place.line, text, matter)


def _left_out(flow: Flow, why: str) -> Finding:
    return _conflict(flow.sent, Matter.LEFT_OUT, f"{flow.service}/{flow.action} is left out: {why}")


def _alike(
    flows: Sequence[Flow], settings: Callable[[Flow], Mapping[str, Value]], findings: list[Finding]
) -> list[Flow]:
    """Those with the settings that most of them have, the first ones if as many have others."""
    if not flows:
        return []
    count = Counter(tuple(settings(flow).items()) for flow in flows)
    most = dict(count.most_common(1)[0][0])
    kept = []
    for flow in flows:
        found = settings(flow)
        other = [
            f"{_CALLED[name]} is {_said(most.get(name))} in others, and {_said(found.get(name))} here"
            for name in _CALLED
            if most.get(name) != found.get(name)
        ]
        if other:
            findings.append(_left_out(flow, f"an agreement of this hub has one set of terms; {'; '.join(other)}."))
        else:
            kept.append(flow)
    return kept


def _said(value: Value | None) -> str:
    return {None: "nothing", True: "kept", False: "not kept"}.get(value, str(value))  # type: ignore[arg-type]


def _shared(flow: Flow, view: View) -> dict[str, Value]:
    """The terms that all actions of an agreement have in common. Raises _Impossible."""
    if not flow.uri:
        raise _Impossible(f"the channel {flow.channel.id}, by which it is received, has no endpoint.")
    for binding in (flow.sending, flow.receiving):
        if binding and not binding.version.startswith("2"):
            raise _Impossible(f"it is of ebXML Messaging {binding.version}, and this hub speaks 2.0.")
    if flow.channel.sync_reply is SyncReply.SIGNALS_ONLY:
        raise _Impossible("business signals in the HTTP response (signalsOnly) are not spoken here.")
    ours, theirs = flow.sender_role, flow.receiver_role
    if flow.receiver is view.us:
        ours, theirs = theirs, ours
    semantics = _semantics(flow)
    return {
        "own_role": ours.name,
        "partner_role": theirs.name,
        "semantics": semantics.value,
        "sync_reply": flow.channel.sync_reply.value,
        "message_order": flow.reliability is not None and flow.reliability.ordered,
        **_signatures(flow, semantics),
        "encryption": _encryption(flow),
    }


def _semantics(flow: Flow) -> Semantics:
    """What is left to each message, this hub asks for, if the sender says how it repeats. Raises _Impossible."""
    acknowledged, once = flow.channel.ack_requested, flow.channel.duplicate_elimination
    if flow.reliability is not None and acknowledged is not Requirement.NEVER:
        if once is not Requirement.NEVER:
            return Semantics.ONCE_AND_ONLY_ONCE
        if acknowledged is Requirement.ALWAYS:
            raise _Impossible(
                "messages are repeated and duplicates are never eliminated (at least once), and this hub repeats "
                "only what is delivered once and only once: agree on duplicateElimination always or perMessage."
            )
    return Semantics.AT_MOST_ONCE if once is Requirement.ALWAYS else Semantics.BEST_EFFORT


def _signing(flow: Flow) -> NonRepudiation | None:
    sides = (flow.sending, flow.receiving)
    return next((side.non_repudiation for side in sides if side and side.non_repudiation), None)


def _algorithms(signing: NonRepudiation) -> list[str]:
    """The names of its algorithms in XML Signature, as far as they are known."""
    return [one.uri if "://" in one.uri else OIDS.get(one.oid, one.uri) for one in signing.algorithms]


def _signatures(flow: Flow, semantics: Semantics) -> dict[str, Value]:
    receipts = flow.channel.ack_signature_requested is Requirement.ALWAYS
    receipts = receipts and semantics is Semantics.ONCE_AND_ONLY_ONCE
    if not flow.signed:
        if receipts:
            raise _Impossible("its acknowledgements are signed and its messages are not, which this hub does not do.")
        return {"signatures": "none"}
    signing = _signing(flow)
    if signing is None:
        raise _Impossible("it must be signed, and neither side says how.")
    names = _algorithms(signing)
    known = next((ALGORITHMS[name][0] for name in names if name in ALGORITHMS), "")
    if not known:
        raise _Impossible(f"this hub does not sign with {' or '.join(names)}.")
    return {"signatures": "receipts" if receipts else "messages", "signature_algorithm": known}


def _encryption(flow: Flow) -> Value:
    """How its documents are encrypted: if one side says so. A DigitalEnvelope alone says that they are, unless
    isConfidential denies it.
    """
    sides = (flow.receiving, flow.sending)
    envelope = next((side.envelope for side in sides if side and side.envelope), None)
    if not flow.confidential & _ENCRYPTED and (flow.confidential or envelope is None):
        return "none"
    if envelope is None:
        raise _Impossible("its documents must be encrypted (isConfidential), and neither side says how.")
    if _letters(envelope.protocol.name) != "smime":
        raise _Impossible(f"this hub encrypts documents with S/MIME, and not with {envelope.protocol.name}.")
    names = [_CIPHER_OIDS.get(one.oid) or one.uri for one in envelope.encryption]
    for name in names:
        for known, cipher in CIPHERS.items():
            if cipher in _letters(name) and "gcm" not in _letters(name):  # CBC is all that is spoken
                return known
    raise _Impossible(f"this hub does not encrypt with {' or '.join(names) or 'what is not named'}.")


def _letters(name: str) -> str:
    return "".join(one for one in name.lower() if one.isalnum())


def _side(party: Party, to_it: Sequence[Flow], from_it: Sequence[Flow], terms: Mapping[str, Value]) -> Side:
    """Where a party is reached: by what is sent to it, else by its channel for acknowledgements, else its default."""
    channels = [*(flow.channel for flow in to_it), *(flow.sender_channel for flow in from_it)]
    default = party.channel(party.default_channel_id)
    uris = [address(channel, EndpointType.REQUEST) for channel in (*channels, default)]
    uri = next(filter(None, uris), "")
    errors = [flow.error_uri for flow in from_it] or [address(channel, EndpointType.ERROR) for channel in channels]
    signing = (one.doc_exchange.sender.non_repudiation for one in channels if one.doc_exchange.sender)
    security = (one.transport.sender.security for one in channels if one.transport.sender)
    envelopes = (one.doc_exchange.receiver.envelope for one in channels if one.doc_exchange.receiver)
    return Side(
        party,
        uri,
        next(filter(None, errors), uri),
        (channels or [default])[0],
        _certificates(party, (one.certificate_id for one in security if one)),
        _certificates(party, (one.certificate_id for one in signing if one)) if terms["signatures"] != "none" else (),
        _certificates(party, (one.certificate_id for one in envelopes if one)) if terms["encryption"] != "none" else (),
    )


def _certificates(party: Party, ids: Iterable[str]) -> tuple[Certificate, ...]:
    """Each certificate once; those without octets have a finding already."""
    found = (party.certificate(one) for one in dict.fromkeys(ids) if one)
    return tuple({one.der: one for one in found if one.der}.values())


def _trusted(view: View, flows: Sequence[Flow]) -> tuple[Certificate, ...]:
    """The certificates of the partner's servers, to which acknowledgements go as well; if it names none, those that we
    trust.
    """
    here = [(flow.sender_channel, flow.channel)[:: 1 if flow.sender is view.us else -1] for flow in flows]
    servers = [theirs.transport.receiver for _, theirs in here]
    security = [one.security for one in servers if one]
    shown = _certificates(view.them, (one.certificate_id for one in security if one))
    if shown:
        return shown
    ours = [own.transport.sender for own, _ in here]
    trusted = [view.us.anchors(one.security.security_id) for one in ours if one and one.security]
    return tuple({one.der: one for anchors in trusted for one in anchors if one.der}.values())


def _remarks(kept: Iterable[Flow]) -> Iterator[Finding]:
    """What is held, with something to be said about it: each place once."""
    yield from dict.fromkeys(found for flow in kept for found in _remarks_of(flow))


def _remarks_of(flow: Flow) -> Iterator[Finding]:
    channel = flow.channel
    left = [
        name
        for name, value in (
            ("acknowledgements", channel.ack_requested),
            ("the elimination of duplicates", channel.duplicate_elimination),
        )
        if value is Requirement.PER_MESSAGE
    ]
    if left and _semantics(flow) is Semantics.ONCE_AND_ONLY_ONCE:
        text = f"{channel.id} leaves {' and '.join(left)} to each message: this hub always asks for it."
        yield Finding(Kind.MAPPED, channel.place.path, channel.place.line, text, Matter.PER_MESSAGE)
    sides = (flow.sent, flow.received)
    for silent, name, what in (
        ([one for one in sides if not one.signed], "isNonRepudiationRequired", "signed"),
        ([one for one in sides if one.confidential not in _ENCRYPTED], "isConfidential", "encrypted"),
    ):
        if len(silent) == 1:
            text = f"{flow.action} is {what}, because the other side says so ({name})."
            yield _conflict(silent[0], Matter.SIDES_DIFFER, text)
    if flow.confidential & _ON_THE_WIRE and flow.uri.lower().startswith("http:"):
        text = f"isConfidential asks for TLS, and {flow.uri} is without it: ask for another address."
        yield _conflict(channel, Matter.URI_SCHEME, text)
    signing = _signing(flow) if flow.signed else None
    if signing and not any(ALGORITHMS.get(name, ("", ""))[1] == signing.hash for name in _algorithms(signing)):
        text = f"The digest {signing.hash} is not the one that goes with the signature algorithm, which is used here."
        yield _conflict(signing, Matter.HASH, text)
    envelope = flow.receiving.envelope if flow.receiving else None
    if envelope and _encryption(flow) == "none":
        said = flow.sent if flow.sent.confidential else flow.received
        text = f"Documents are not encrypted: isConfidential is {said.confidential} (line {said.place.line})."
        yield _conflict(envelope, Matter.NOT_ENCRYPTED, text)


def _timing(flows: Sequence[Flow], terms: Mapping[str, Value], findings: list[Finding]) -> dict[str, Value]:
    """How often, after what time and how long messages are repeated: what the document says of it."""
    if terms["semantics"] != Semantics.ONCE_AND_ONLY_ONCE:
        return {}
    # The shortest memory counts: repetition for longer could make a second delivery.
    known = [one for flow in flows if (one := flow.persist_duration) is not None]
    persist = min(known) if known else None
    retries = _one(flows, "Retries", lambda one: one.reliability and one.reliability.retries, findings)
    interval = _one(flows, "RetryInterval", lambda one: one.reliability and one.reliability.retry_interval, findings)
    if len(set(known)) > 1:
        said = write_duration(min(known))
        findings.append(_conflict(flows[0].channel, Matter.ONE_VALUE, f"Of several PersistDurations {said} is taken."))
    found = {
        "retries": retries,
        "retry_interval": math.ceil(interval / _SECOND) if isinstance(interval, timedelta) else None,
        "partner_window": None if persist is None else persist // _SECOND,
    }
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _one(flows: Sequence[Flow], name: str, read: Callable[[Flow], _T], findings: list[Finding]) -> _T:
    """What the first says; others that say something else have a finding."""
    first = read(flows[0])
    channels: dict[str, Channel] = {
        flow.sender_channel.id: flow.sender_channel for flow in flows if read(flow) != first
    }
    for channel in channels.values():
        text = f"{name} is not that of {flows[0].sender_channel.id}, which is taken for all."
        findings.append(_conflict(channel, Matter.ONE_VALUE, text))
    return first
