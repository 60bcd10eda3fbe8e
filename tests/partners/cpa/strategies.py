"""Agreements that Hypothesis makes up: whatever the standard can say and this hub keeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from partners.cpa.channels import (
    Access,
    Algorithm,
    Channel,
    DigitalEnvelope,
    DocExchange,
    Endpoint,
    EndpointType,
    MessageBinding,
    Namespace,
    NonRepudiation,
    Protocol,
    Reliability,
    Requirement,
    SyncReply,
    Transport,
    TransportReceiver,
    TransportSecurity,
    TransportSender,
)
from partners.cpa.model import (
    ActionBinding,
    Certificate,
    Comment,
    Confidentiality,
    Constituent,
    Container,
    Cpa,
    Override,
    Packaging,
    Party,
    PartyId,
    ProcessSpecification,
    Role,
    SecurityDetails,
    SimplePart,
    Status,
)

# Text as XML carries it, without white space at its ends, and in attributes without line breaks.
_CHARACTERS = st.characters(
    codec="utf-8", exclude_categories=("Cs", "Cc", "Cn", "Zl", "Zp", "Zs"), include_characters=" <&\"'"
)
WORDS = st.text(_CHARACTERS, min_size=1, max_size=12).map(str.strip).filter(bool)
URIS = st.sampled_from(["https://a.example/msh?x=1&y=2", "mailto:edi@a.example", "urn:a:b", "http://b.example:80/"])
ACTOR = "urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH"
NUMBERS = st.integers(0, 999_999_999)
LENGTHS = st.timedeltas(min_value=timedelta(), max_value=timedelta(days=40_000))
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
PROTOCOLS = st.builds(Protocol, WORDS, st.just("") | WORDS)
ALGORITHMS = st.builds(Algorithm, WORDS, st.just("") | URIS, st.just("") | WORDS, st.just("") | WORDS, st.just(None))
CIPHERS = st.builds(Algorithm, WORDS, st.just("") | URIS, st.just("") | WORDS, st.just("") | WORDS, st.none() | NUMBERS)
NAMESPACES = st.lists(st.builds(Namespace, URIS, URIS, st.just("") | WORDS), max_size=2).map(tuple)


def some(strategy: st.SearchStrategy, least: int = 0, most: int = 2) -> st.SearchStrategy:
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


def one_of(names: list[str]) -> st.SearchStrategy:
    """One of these ids, or none."""
    return st.sampled_from(["", *names])


def message_bindings(*, certificates: list[str], details: list[str], sends: bool) -> st.SearchStrategy:
    none = st.just("")
    signing = (
        {"certificate_id": st.sampled_from(certificates), "security_id": none}
        if sends
        else {"certificate_id": none, "security_id": one_of(details)}
    )
    envelope = (
        {"certificate_id": none, "security_id": one_of(details)}
        if sends
        else {"certificate_id": st.sampled_from(certificates), "security_id": none}
    )
    return st.builds(
        MessageBinding,
        version=WORDS,
        reliability=st.none() | st.builds(Reliability, st.booleans(), st.none() | NUMBERS, st.none() | LENGTHS),
        persist_duration=st.none() | LENGTHS,
        non_repudiation=st.none()
        | st.builds(NonRepudiation, protocol=PROTOCOLS, hash=WORDS, algorithms=some(ALGORITHMS, 1), **signing),
        envelope=st.none() | st.builds(DigitalEnvelope, protocol=PROTOCOLS, encryption=some(CIPHERS, 1), **envelope),
        namespaces=NAMESPACES,
    )


@st.composite
def channels(draw: st.DrawFn, party: str, certificates: list[str], details: list[str]) -> tuple[Channel, ...]:
    security = st.none() | st.builds(TransportSecurity, PROTOCOLS, one_of(certificates), one_of(details), some(CIPHERS))
    server = st.none() | st.builds(
        TransportSecurity, PROTOCOLS, st.sampled_from(certificates), one_of(details), some(CIPHERS)
    )
    access = some(st.sampled_from(Access))
    endpoints = some(st.builds(Endpoint, URIS, st.sampled_from(EndpointType)), 1)
    transports = [
        Transport(
            f"{party}T{number}",
            draw(st.none() | st.builds(TransportSender, PROTOCOLS, access, security)),
            draw(st.none() | st.builds(TransportReceiver, PROTOCOLS, endpoints, access, server)),
        )
        for number in range(draw(st.integers(1, 2)))
    ]
    known = {"certificates": certificates, "details": details}
    exchanges = [
        DocExchange(
            f"{party}D{number}",
            draw(st.none() | message_bindings(sends=True, **known)),
            draw(st.none() | message_bindings(sends=False, **known)),
        )
        for number in range(draw(st.integers(1, 2)))
    ]
    return tuple(
        Channel(
            f"{party}C{number}",
            draw(st.sampled_from(transports)),
            draw(st.sampled_from(exchanges)),
            draw(st.sampled_from(SyncReply)),
            draw(st.sampled_from(Requirement)),
            draw(st.sampled_from(Requirement)),
            draw(st.sampled_from(Requirement)),
            draw(st.sampled_from(["", ACTOR])),
        )
        for number in range(draw(st.integers(1, 3)))
    )


@st.composite
def bindings(
    draw: st.DrawFn, prefix: str, packages: list[str], channel_ids: list[str], deeper: int = 1
) -> tuple[ActionBinding, ...]:
    return tuple(
        ActionBinding(
            f"{prefix}{number}",
            draw(WORDS),
            draw(st.sampled_from(packages)),
            draw(some(st.sampled_from(channel_ids), 1)),
            "",
            draw(st.none() | st.booleans()),
            draw(st.none() | st.booleans()),
            draw(st.none() | st.sampled_from(Confidentiality)),
            draw(bindings(f"{prefix}{number}.", packages, channel_ids, deeper - 1)) if deeper else (),
        )
        for number in range(draw(st.integers(0, 2)))
    )


@st.composite
def parties(draw: st.DrawFn, prefix: str, packages: list[str]) -> Party:
    certificates = [
        Certificate(f"{prefix}X{number}", der, draw(some(st.binary(min_size=1, max_size=8), 0, 1)) if der else ())
        for number, der in enumerate(draw(st.lists(st.binary(max_size=20), min_size=1, max_size=3)))
    ]
    known = [one.id for one in certificates]
    details = [
        SecurityDetails(f"{prefix}S{number}", draw(some(st.sampled_from(known))))
        for number in range(draw(st.integers(0, 2)))
    ]
    own = draw(channels(prefix, known, [one.id for one in details]))
    channel_ids = [one.id for one in own]
    roles = [
        Role(
            draw(WORDS),
            draw(URIS),
            draw(st.builds(ProcessSpecification, WORDS, WORDS, URIS, st.just("") | URIS)),
            draw(WORDS),
            draw(st.just("") | WORDS),
            draw(bindings(f"{prefix}R{number}s", packages, channel_ids)),
            draw(bindings(f"{prefix}R{number}r", packages, channel_ids)),
            draw(some(st.sampled_from(known))),
            draw(one_of([one.id for one in details])),
        )
        for number in range(draw(st.integers(1, 2)))
    ]
    return Party(
        draw(WORDS),
        draw(some(st.builds(PartyId, WORDS, st.just("") | URIS), 1)),
        draw(some(st.just("") | URIS, 1)),
        tuple(roles),
        own,
        draw(st.sampled_from(channel_ids)),
        draw(st.sampled_from(packages)),
        tuple(certificates),
        tuple(details),
        draw(some(st.builds(Override, WORDS, st.sampled_from(channel_ids)))),
    )


@st.composite
def containers(draw: st.DrawFn, prefix: str, parts: list[str]) -> tuple[Container, ...]:
    number = st.none() | NUMBERS
    return tuple(
        Container(
            f"{prefix}K{at}",
            inner,
            draw(WORDS),
            draw(
                some(
                    st.builds(Constituent, st.sampled_from(parts), st.booleans(), number, number), 1, 1 if inner else 3
                )
            ),
            draw(st.just("") | WORDS),
        )
        for at, inner in enumerate(draw(st.lists(st.booleans(), min_size=1, max_size=3)))
    )


@st.composite
def agreements(draw: st.DrawFn) -> Cpa:
    parts = [
        SimplePart(f"part{number}", draw(WORDS), draw(st.just("") | WORDS), draw(st.just("") | URIS), draw(NAMESPACES))
        for number in range(draw(st.integers(1, 2)))
    ]
    part_ids = [one.id for one in parts]
    packages = [f"package{number}" for number in range(draw(st.integers(1, 2)))]
    packagings = tuple(
        Packaging(
            name,
            draw(st.booleans()),
            draw(st.booleans()),
            tuple(draw(containers(f"{name}L{at}", part_ids)) for at in range(draw(st.integers(1, 2)))),
        )
        for name in packages
    )
    return Cpa(
        draw(WORDS),
        draw(WORDS),
        draw(st.sampled_from(Status)),
        draw(MOMENTS),
        draw(MOMENTS),
        (draw(parties("a", packages)), draw(parties("b", packages))),
        tuple(parts),
        packagings,
        draw(st.none() | NUMBERS),
        draw(st.none() | NUMBERS),
        draw(some(st.builds(Comment, WORDS, st.sampled_from(["", "en"])))),
    )
