"""The fields of forms about partners: party, endpoint, credential and the terms of an agreement.

Named as the services' arguments. The onboarding wizard and the forms that change one thing show the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping

from messaging.deliveries.pages.trigger_fields import Field, Group
from partners.choices import (
    AddressingProfile,
    CoordinationVersion,
    CredentialDirection,
    CredentialKind,
    ExchangeIdentity,
    ExchangeMode,
    Profile,
    Semantics,
    SoapVersion,
    Transport,
)

_EBXML, _REPEATABLE, _STREAM, _WSAT = (
    (one.value,) for one in (Profile.EBXML, Profile.REPEATABLE, Profile.STREAM, Profile.WSAT)
)
_DOCUMENTS = (*_EBXML, *_REPEATABLE, *_STREAM)
_HTTP, _MAIL, _FILES = Transport.HTTP.value, Transport.SMTP.value, Transport.SFTP.value

PARTY: tuple[Group, ...] = (
    Group(
        "Who they are",
        "",
        (
            Field("name", "Name", "text", "What people call them. It stands on every page."),
            Field(
                "identifiers",
                "Party identifiers",
                "lines",
                "One a line: the type, a space, the value. The first is the one that we write into messages.",
                placeholder="DUNS 123456789",
            ),
        ),
    ),
    Group(
        "Whom to call",
        "",
        (
            Field("contact", "Contacts", "lines", "Names, telephone numbers, mail addresses."),
            Field(
                "time_zone", "Time zone", "text", "IANA name; pages can show times in it.", placeholder="Europe/Berlin"
            ),
            Field("hours", "Business hours", "text", "", placeholder="Mon-Fri 8-17"),
        ),
    ),
)
ENDPOINT: tuple[Group, ...] = (
    Group(
        "Where messages go",
        "",
        (
            Field(
                "transport",
                "Transport",
                "choice",
                choices=tuple((one.value, one.label) for one in Transport),
            ),
            Field(
                "uri",
                "Messaging service URI",
                "text",
                "The SenderURI and ReceiverURI on the wire. Mail: mailto:orders@partner.example, files: "
                "sftp://files.partner.example/inbox/",
                placeholder="https://msh.partner.example/ebxml",
            ),
            Field(
                "service_address",
                "Address of test services",
                "text",
                "Below it the partner answers “status” and “echo”. Empty: they have none.",
                placeholder="https://msh.partner.example/partner/",
            ),
        ),
    ),
    Group(
        "Whom we trust",
        "HTTPS and mail servers.",
        (
            Field(
                "trusted_certificates",
                "Trusted certificates",
                "lines",
                "PEM text. The server may show only what these vouch for: an authority's, or its own certificate. "
                "Empty: every authority that this machine trusts.",
                only=("transport", (_HTTP, _MAIL)),
            ),
            Field(
                "certificates_file",
                "… or from a file",
                "file",
                "PEM or DER. It takes the place of the text.",
                only=("transport", (_HTTP, _MAIL)),
            ),
            Field(
                "host_key",
                "Key of the file server",
                "text",
                "Its fingerprint, as ssh-keygen -l prints it. Several are apart by spaces.",
                only=("transport", (_FILES,)),
                placeholder="SHA256:…",
            ),
        ),
    ),
    Group(
        "By another way",
        "Only where it differs from the URI: a proxy, a relay, errors that go elsewhere.",
        (
            Field("name", "Name", "text", "To tell several endpoints of a party apart."),
            Field("address", "Transport address", "text", "Bytes go here instead of to the URI."),
            Field("error_uri", "Error URI", "text", "Where errors go. Empty: to the URI."),
            Field("error_address", "Transport address for errors", "text"),
            Field(
                "server",
                "Mail or file server",
                "text",
                "Mail: smtp+starttls://relay.example:587, empty = the hub's own relay. Files: sftp://host:port.",
                only=("transport", (_MAIL, _FILES)),
            ),
            Field("connect_timeout", "Connect within", "time"),
            Field("read_timeout", "Answer within", "time"),
        ),
        folded=True,
    ),
)
CREDENTIAL: tuple[Group, ...] = (
    Group(
        "Credential",
        "",
        (
            Field(
                "direction",
                "Who shows it",
                "choice",
                choices=tuple((one.value, one.label) for one in CredentialDirection),
            ),
            Field("kind", "Kind", "choice", choices=tuple((one.value, one.label) for one in CredentialKind)),
            Field("label", "Name", "text", "To tell several apart."),
            Field("username", "User name", "text", "", only=("kind", ("basic", "ssh_key"))),
            Field(
                "secret",
                "Password, token or key",
                "lines",
                "What the partner gave us; an SSH key, or our certificate with its private key, as PEM. For one that "
                "the partner shows us leave it empty: the hub makes one up. Kept encrypted, never shown.",
            ),
            Field(
                "certificate",
                "Their certificate",
                "lines",
                "PEM text of the certificate that the partner shows us.",
                only=("kind", ("certificate",)),
            ),
            Field(
                "certificate_file",
                "… or from a file",
                "file",
                "PEM or DER.",
                only=("kind", ("certificate",)),
            ),
            Field(
                "fingerprint",
                "… or its SHA-256 fingerprint",
                "text",
                "64 hexadecimal digits.",
                only=("kind", ("certificate",)),
            ),
            Field("valid_from", "Valid from", "instant", "Empty: at once."),
            Field("valid_until", "Valid until", "instant", "Empty: no end. A certificate has its own."),
        ),
    ),
)
TERMS: tuple[Group, ...] = (
    Group(
        "What is sent",
        "",
        (
            Field(
                "services",
                "Services and actions",
                "lines",
                "One a line: the service, a bar, the action (* = every action), a bar, and send, receive or both.",
                only=("profile", _DOCUMENTS),
                placeholder="urn:orders | * | both",
            ),
            Field("profile", "Wire profile", "choice", choices=tuple((one.value, one.label) for one in Profile)),
            Field(
                "semantics",
                "Delivery semantics",
                "choice",
                choices=tuple((one.value, one.label) for one in Semantics),
                only=("profile", _DOCUMENTS),
            ),
        ),
    ),
    Group(
        "Transactions",
        "What both sides write. Everything is read.",
        (
            Field(
                "coordination_version",
                "WS-Coordination",
                "choice",
                choices=tuple((one.value, one.label) for one in CoordinationVersion),
                only=("profile", _WSAT),
            ),
            Field(
                "soap_version",
                "SOAP",
                "choice",
                choices=tuple((one.value, one.label) for one in SoapVersion),
                only=("profile", _WSAT),
            ),
            Field(
                "addressing_profile",
                "Headers of notifications",
                "choice",
                choices=tuple((one.value, one.label) for one in AddressingProfile),
                only=("profile", _WSAT),
            ),
            Field(
                "addressing_strict",
                "Refuse what lacks a header",
                "switch",
                "Off: a notification without ReplyTo is answered where its sender registered.",
                only=("profile", _WSAT),
            ),
            Field(
                "other_servers",
                "Other servers of the partner",
                "text",
                "Addresses in messages (FaultTo, RegistrationService) may lie there too: https://txn.example:8443.",
                only=("profile", _WSAT),
            ),
        ),
    ),
    Group(
        "Reliability",
        "",
        (
            Field("timeout", "Timeout", "time", "Wait for an answer after the first send.", only=("profile", _EBXML)),
            Field("retries", "Retries", "number", "", only=("profile", (*_EBXML, *_STREAM, *_WSAT))),
            Field("retry_interval", "RetryInterval", "time", "", only=("profile", _EBXML)),
            Field(
                "repeat_interval",
                "Repeat after",
                "time",
                "The wait before the first repeat.",
                only=("profile", (*_REPEATABLE, *_WSAT)),
            ),
            Field(
                "repeat_interval_max",
                "Longest wait between repeats",
                "time",
                "",
                only=("profile", (*_REPEATABLE, *_WSAT)),
            ),
            Field(
                "partner_window",
                "Partner's memory window",
                "time",
                "How long they remember ids: nothing is repeated past it.",
                only=("profile", _REPEATABLE),
            ),
            Field(
                "resend_schedule",
                "Everything again after, s",
                "text",
                "Waits with commas between them; the last one repeats.",
                only=("profile", _STREAM),
            ),
            Field("time_to_live", "Time to live", "time", "0 s: for ever.", only=("profile", _STREAM)),
            Field(
                "ordered",
                "In order, one at a time",
                "switch",
                "ebXML always is.",
                only=("profile", _REPEATABLE),
            ),
            Field(
                "memory_window",
                "Our memory window",
                "time",
                "How long we remember what came, to recognise repeats.",
                only=("profile", _REPEATABLE),
            ),
            Field("max_message_bytes", "Largest message, bytes", "number", "", only=("profile", _DOCUMENTS)),
        ),
    ),
    Group(
        "Answers",
        "",
        (
            Field(
                "exchange_mode",
                "We answer with",
                "choice",
                choices=tuple((one.value, one.label) for one in ExchangeMode),
                only=("profile", _REPEATABLE),
            ),
            Field(
                "exchange_identity",
                "Requests are identified by",
                "choice",
                choices=tuple((one.value, one.label) for one in ExchangeIdentity),
                only=("profile", _REPEATABLE),
            ),
            Field("final_receipt", "Ask for final receipts", "switch", "", only=("profile", _STREAM)),
            Field("final_receipt_within", "Final receipt within", "time", "", only=("profile", _STREAM)),
            Field("order_ack_timeout", "OrderAckTimeout, ms", "number", "", only=("profile", _STREAM)),
            Field("max_order_ack_delay", "MaximumOrderAckDelay, ms", "number", "", only=("profile", _STREAM)),
        ),
        folded=True,
    ),
    Group(
        "Fine points",
        "",
        (
            Field(
                "transport_retries",
                "Transport retries",
                "number",
                "Attempts below reliable messaging.",
                only=("profile", _DOCUMENTS),
            ),
            Field("transport_retry_interval", "Transport retry interval", "time", "", only=("profile", _DOCUMENTS)),
            Field(
                "transient_ceiling",
                "Ceiling for pauses",
                "time",
                "Transient errors for longer open an incident.",
                only=("profile", _DOCUMENTS),
            ),
            Field("max_in_flight", "Messages in flight", "number", "", only=("profile", (*_REPEATABLE, *_STREAM))),
            Field("clock_skew", "Clock skew", "time", "", only=("profile", _REPEATABLE)),
            Field("stream_lanes", "Requests on the wire at once", "number", "", only=("profile", _STREAM)),
            Field("inbound_quota", "Documents that may wait here", "number", "0: no limit.", only=("profile", _STREAM)),
            Field("detect_repeats", "Look for repeats of best-effort messages", "switch", "", only=("profile", _EBXML)),
            Field("strict_sequence", "Refuse old sequence numbers", "switch", "", only=("profile", _EBXML)),
            Field("write_namespace", "Write the namespace", "switch", "", only=("profile", _EBXML)),
            Field("write_padded_numbers", "Write sequence numbers with zeros", "switch", "", only=("profile", _EBXML)),
        ),
        folded=True,
    ),
)
ENDS: tuple[Group, ...] = (
    Group(
        "Endpoints",
        "",
        (
            Field("own_endpoint", "Ours", "select"),
            Field("partner_endpoint", "The partner's", "select"),
            Field("note", "What this version changes", "text"),
        ),
    ),
)


def by_name(groups: tuple[Group, ...]) -> Mapping[str, Field]:
    """The fields of the groups, by name."""
    return {field.name: field for group in groups for field in group.fields}
