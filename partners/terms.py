"""An agreement's terms as the engine reads them: frozen, with no database behind them."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.utils.translation import gettext as _

from partners.choices import Encryption, Profile

MAX_WAITS = 20
MAX_SERVERS = 20
_WAITS = re.compile(r"[0-9]{1,8}(\s*,\s*[0-9]{1,8})*", re.ASCII)


def resend_waits(schedule: str | tuple[int, ...]) -> tuple[int, ...]:
    """The waits of a resend schedule in seconds, e.g. (30, 30, 300) of "30, 30, 300"; the last one repeats.

    Raises ValueError, with a sentence for people, unless they are 1 to `MAX_WAITS` whole numbers of at least 1.
    """
    if not isinstance(schedule, str):
        return schedule
    if not _WAITS.fullmatch(schedule.strip()):
        raise ValueError(_("Waits are whole seconds with commas between them, such as 30,30,300: correct this list."))
    waits = tuple(int(wait) for wait in schedule.split(","))
    if len(waits) > MAX_WAITS:
        raise ValueError(
            _("These are {count} waits, and {most} are the most: the last one repeats anyhow.").format(
                count=len(waits), most=MAX_WAITS
            )
        )
    if 0 in waits:
        raise ValueError(_("A wait of 0 s would send everything again at once: make every wait at least 1 s."))
    return waits


def origins(text: str | tuple[str, ...]) -> tuple[str, ...]:
    """The servers in a list with blanks or commas between them, each once, as `scheme://host[:port]` in small letters.

    Raises ValueError, with a sentence for people, unless each is an http or https server without path and user.
    """
    if not isinstance(text, str):
        return text
    found: dict[str, None] = {}
    for one in text.replace(",", " ").split():
        try:
            parts = urlsplit(one)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        said = f"{parts.scheme.lower()}://{parts.netloc.lower()}"
        bare = f"{said}/" if parts.path == "/" else said
        is_server = (
            parts.scheme.lower() in ("http", "https") and parts.hostname and parts.username is None and port != 0
        )
        if not is_server or bare != one.lower() or not one.isascii() or "*" in one:
            raise ValueError(
                _("{text} is not a server: write scheme, host and port, such as https://txn.example:8443.").format(
                    text=one[:100]
                )
            )
        found[said] = None
    if len(found) > MAX_SERVERS:
        raise ValueError(
            _("These are {count} servers, and {most} are the most.").format(count=len(found), most=MAX_SERVERS)
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Terms:
    """The snapshot of one agreement version. Times in whole seconds; identifiers are (type, value), first preferred."""

    version_id: uuid.UUID
    agreement_id: uuid.UUID
    tpa_id: str
    number: int
    state: str
    profile: str
    transport: str
    own_party_id: uuid.UUID
    own_party_name: str
    own_identifiers: tuple[tuple[str, str], ...]
    partner_id: uuid.UUID
    partner_name: str
    partner_identifiers: tuple[tuple[str, str], ...]
    own_uri: str
    own_error_uri: str
    partner_uri: str
    partner_error_uri: str
    hop_party_id: uuid.UUID  # whose endpoint partner_uri is: the partner, or the router that leads to it
    hop_party_name: str
    server: str  # mail or file server; "" = the hub's relay, or the one that the URI names
    host_key: str
    trusted_certificates: str  # PEM, the only ones the server may show; "" = what this machine trusts
    partner_address: str  # where bytes really go; equals partner_uri unless the endpoint says otherwise
    partner_error_address: str
    connect_timeout: int
    read_timeout: int
    semantics: str
    timeout: int
    retries: int
    retry_interval: int
    transport_retries: int
    transport_retry_interval: int
    transient_ceiling: int
    detect_repeats: bool
    strict_sequence: bool
    memory_window: int
    max_message_bytes: int
    write_namespace: bool
    write_padded_numbers: bool
    # repeatable profile (spec 2)
    partner_window: int
    clock_skew: int
    exchange_mode: str
    exchange_identity: str
    repeat_interval: int
    repeat_interval_max: int
    ordered: bool
    max_in_flight: int
    # transactional streams (spec 3); order_ack_timeout and max_order_ack_delay in milliseconds
    stream_concurrency: int
    resend_schedule: tuple[int, ...]
    order_ack_timeout: int
    max_order_ack_delay: int
    time_to_live: int
    final_receipt: bool
    final_receipt_within: int
    inbound_quota: int
    # atomic transactions (spec 5)
    coordination_version: str
    addressing_profile: str
    addressing_strict: bool
    other_servers: tuple[str, ...]  # origins beside that of the partner's endpoint
    soap_version: str
    # ebXML Messaging 2.0
    sync_reply: str
    message_order: bool
    own_role: str
    partner_role: str
    signatures: str
    signature_algorithm: str
    encryption: str
    # service level: limits in seconds, 0 = no target; shares in per cent of a calendar month
    acknowledged_within: int
    acknowledged_percent: float
    processed_within: int
    processed_percent: float
    services: tuple[tuple[str, str, str], ...]  # (service, action or *, direction)

    @property
    def encrypts(self) -> bool:
        """Whether documents go out encrypted: each is in the frame of its message then."""
        return self.profile == Profile.EBMS2 and self.encryption != Encryption.NONE

    def recovers(self, attempts: int) -> bool:
        """Whether transport recovery makes another attempt after so many (spec 1, 2.5.4)."""
        return attempts < self.transport_retries

    def allows(self, service: str, action: str, direction: str) -> bool:
        """Whether the agreement covers this service and action in this direction ("send" or "receive")."""
        return any(
            service == known and action_known in (action, "*") and way in (direction, "both")
            for known, action_known, way in self.services
        )


@dataclass(frozen=True, slots=True)
class Presented:
    """What a caller authenticates with. `fingerprint` is handed on by a trusted proxy (SHA-256, hex)."""

    authorization: str = field(default="", repr=False)
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated partner."""

    party_id: uuid.UUID
    party_name: str
    credential_id: uuid.UUID
