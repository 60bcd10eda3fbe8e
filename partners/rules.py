"""What makes the settings of an agreement version contradict each other: one table of rules for each wire profile.

Pure: the version and its agreement, parties, identifiers, endpoints and services are loaded before
(`selectors.version`). Times are whole seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from partners.addresses import normalise_uri
from partners.choices import ExchangeIdentity, ExchangeMode, Profile, Semantics, ServiceDirection, Transport
from partners.models import DAY, AgreementVersion
from partners.terms import Reliability, resend_waits

MAX_GIVE_UP = 400 * DAY
MANY_DAYS = 62 * DAY
MIN_ORDER_ACK_TIMEOUT = 50  # ms
SHORT_FOR_MAIL = 300
TRANSACTIONS_PATH = "/ws-tx"  # below it lie the hub's own services of atomic transactions


class Level(StrEnum):
    """Only errors keep a version from being activated."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: `broken` says whether it applies; `sentence` is formatted with the version as `v` and `durations`."""

    field: str
    code: str
    level: Level
    broken: Callable[[AgreementVersion], bool]
    sentence: str


def give_up_seconds(terms: Reliability) -> int:
    """From the first send to giving up: Timeout, then RetryInterval after each retry (spec 1, table 2-1)."""
    return terms.timeout + terms.retries * terms.retry_interval


def resend_seconds(terms: Reliability) -> int:
    """From the first send of a stream's message to the pair's suspension, if nothing of it is ever acknowledged."""
    waits = resend_waits(terms.resend_schedule)
    return sum(waits[: terms.retries + 1]) + waits[-1] * max(0, terms.retries + 1 - len(waits))


def duration(seconds: int) -> str:
    """`7500` as `2 h 5 m`: exact, units that are zero left out."""
    parts = []
    for unit, name in ((DAY, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, seconds = divmod(seconds, unit)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts) or "0 s"


def durations(version: AgreementVersion) -> dict[str, str]:
    """Lengths of time that the sentences name."""
    return {
        "give_up": duration(give_up_seconds(version)),
        "recovery": duration(version.transport_retries * version.transport_retry_interval),
        "window": duration(version.memory_window),
        "partner_window": duration(version.partner_window),
        "exchange": duration(_exchange(version)),
        "one_repeat": duration(_one_repeat(version)),
        "repeat": duration(version.repeat_interval),
        "longest": duration(version.repeat_interval_max),
        "skew": duration(version.clock_skew),
        "resends": duration(_resends(version)),
        "first_wait": duration(_first_wait(version)),
        "life": duration(version.time_to_live),
        "timeout": duration(version.timeout),
        "repeated": duration(_repeated_for(version)),
        "final": duration(version.final_receipt_within),
    }


def _reliable(version: AgreementVersion) -> bool:
    return version.semantics == Semantics.ONCE_AND_ONLY_ONCE


def _only_receives_best_effort(version: AgreementVersion) -> bool:
    """Requests without ids, each taken as it comes: what we send always has one."""
    services = version.services.all()
    received = all(service.direction == ServiceDirection.RECEIVE for service in services)
    return version.semantics == Semantics.BEST_EFFORT and received


def _remembers(version: AgreementVersion) -> bool:
    return version.semantics != Semantics.BEST_EFFORT or version.detect_repeats


def _exchange(version: AgreementVersion) -> int:
    """The longest that one attempt may take."""
    return version.partner_endpoint.connect_timeout + version.partner_endpoint.read_timeout


def _one_repeat(version: AgreementVersion) -> int:
    """The least partner window in which an attempt that got no answer can be repeated."""
    return _exchange(version) + version.repeat_interval


def _schedule_fault(version: AgreementVersion) -> str:
    try:
        resend_waits(version.resend_schedule)
    except ValueError as error:
        return str(error)
    return ""


def _first_wait(version: AgreementVersion) -> int:
    """0 for a schedule that cannot be read; a rule of its own says so."""
    return 0 if _schedule_fault(version) else resend_waits(version.resend_schedule)[0]


def _resends(version: AgreementVersion) -> int:
    return 0 if _schedule_fault(version) else resend_seconds(version)


def _repeated_for(version: AgreementVersion) -> int:
    """How long after its first send a stream's message may come again: to the end of its life, or of its resends."""
    return min(version.time_to_live, _resends(version)) if version.time_to_live else _resends(version)


def _answers_come_otherwise(version: AgreementVersion) -> bool:
    return version.own_endpoint.transport != version.partner_endpoint.transport


def _by_mail(version: AgreementVersion) -> bool:
    return version.partner_endpoint.transport == Transport.SMTP


def _is_http(version: AgreementVersion) -> bool:
    return version.own_endpoint.transport == version.partner_endpoint.transport == Transport.HTTP


COMMON: tuple[Rule, ...] = (
    Rule(
        "own_party",
        "own_party_not_ours",
        Level.ERROR,
        lambda v: not v.agreement.own_party.is_own,
        "{v.agreement.own_party} is not marked as ours: mark it so, or make the agreement for a party that is.",
    ),
    Rule(
        "own_party",
        "own_party_unidentified",
        Level.ERROR,
        lambda v: not v.agreement.own_party.identifiers.all(),
        "{v.agreement.own_party} has no party identifier to write into messages: give it one, such as its DUNS number.",
    ),
    Rule(
        "partner",
        "partner_unidentified",
        Level.ERROR,
        lambda v: not v.agreement.partner.identifiers.all(),
        "{v.agreement.partner} has no party identifier to write into messages: give it one, such as its DUNS number.",
    ),
    Rule(
        "partner",
        "partner_archived",
        Level.ERROR,
        lambda v: v.agreement.partner.archived_at is not None,
        "{v.agreement.partner} is archived: restore it first, or make the agreement with another partner.",
    ),
    Rule(
        "partner_endpoint",
        "endpoints_same",
        Level.ERROR,
        lambda v: v.own_endpoint_id == v.partner_endpoint_id,
        "Our endpoint and the partner's are the same one: choose an endpoint of {v.agreement.partner}.",
    ),
    Rule(
        "own_endpoint",
        "own_endpoint_of_other_party",
        Level.ERROR,
        lambda v: v.own_endpoint.party_id != v.agreement.own_party_id,
        "Our endpoint belongs to {v.own_endpoint.party}: choose one of {v.agreement.own_party}.",
    ),
    Rule(
        "partner_endpoint",
        "partner_endpoint_ours",
        Level.ERROR,
        lambda v: v.partner_endpoint.party_id != v.agreement.partner_id and v.partner_endpoint.party.is_own,
        "The partner's endpoint belongs to {v.partner_endpoint.party}, which is ours: choose one of "
        "{v.agreement.partner}, or of the router that leads to it.",
    ),
    Rule(
        "partner_endpoint",
        "partner_endpoint_of_other_party",
        Level.WARNING,
        lambda v: v.partner_endpoint.party_id != v.agreement.partner_id and not v.partner_endpoint.party.is_own,
        "Messages go through {v.partner_endpoint.party}: its endpoint is the next hop to {v.agreement.partner}, its "
        "credentials count, and its word is the acknowledgement.",
    ),
    Rule(
        "partner_endpoint",
        "uris_same",
        Level.ERROR,
        lambda v: (
            v.own_endpoint_id != v.partner_endpoint_id
            and normalise_uri(v.own_endpoint.uri) == normalise_uri(v.partner_endpoint.uri)
        ),
        "Both endpoints have the URI {v.own_endpoint.uri}, so that sender and receiver could not be told apart: "
        "correct the wrong one.",
    ),
    Rule(
        "services",
        "services_missing",
        Level.ERROR,
        lambda v: not v.services.all(),
        "The agreement allows no service and action, so that every message would be refused: add at least one.",
    ),
    Rule(
        "partner_endpoint",
        "host_key_missing",
        Level.ERROR,
        lambda v: v.partner_endpoint.transport == Transport.SFTP and not v.partner_endpoint.host_key,
        "The partner's file server is not known by its host key, so that anybody could be in its place: enter the "
        "fingerprint (SHA256:...) in the endpoint.",
    ),
)
# What the hub speaks over HTTP only.
HTTP_ONLY = Rule(
    "profile",
    "transport_not_http",
    Level.ERROR,
    lambda v: not _is_http(v),
    "This profile goes over HTTP only, and our endpoint is reached by {v.own_endpoint.transport}, the "
    "partner's by {v.partner_endpoint.transport}: choose endpoints that speak HTTP on both sides.",
)
EBXML: tuple[Rule, ...] = (
    Rule(
        "timeout",
        "timeout_zero",
        Level.ERROR,
        lambda v: v.timeout == 0,
        "Timeout is 0 s, so that no answer could ever be in time: set it to at least 1 s.",
    ),
    Rule(
        "retry_interval",
        "retry_interval_zero",
        Level.ERROR,
        lambda v: _reliable(v) and v.retries > 0 and v.retry_interval == 0,
        "RetryInterval is 0 s with Retries {v.retries}: all retries would be sent at once. "
        "Set RetryInterval to at least 1 s, or Retries to 0.",
    ),
    Rule(
        "retries",
        "retries_without_acknowledgement",
        Level.ERROR,
        lambda v: not _reliable(v) and v.retries > 0,
        "{v.semantics} messages are not acknowledged, so there is nothing to retry on: "
        "set Retries to 0, or the semantics to OnceAndOnlyOnce.",
    ),
    Rule(
        "retries",
        "give_up_too_late",
        Level.ERROR,
        lambda v: give_up_seconds(v) > MAX_GIVE_UP,
        "A message would be given up only after {give_up}, and 400 days are the most: "
        "lower Timeout, Retries or RetryInterval.",
    ),
    Rule(
        "memory_window",
        "memory_window_short",
        Level.ERROR,
        lambda v: _remembers(v) and v.memory_window < give_up_seconds(v),
        "The memory window of {window} is shorter than the {give_up} for which a message may be repeated, "
        "so that a late repeat would not be recognised: set it to at least {give_up}.",
    ),
    Rule(
        "transient_ceiling",
        "transient_ceiling_short",
        Level.ERROR,
        lambda v: _reliable(v) and v.transient_ceiling < v.retry_interval,
        "The transient error ceiling of {v.transient_ceiling} s is shorter than RetryInterval ({v.retry_interval} s), "
        "so that the first transient error would open an incident: raise the ceiling or lower RetryInterval.",
    ),
    Rule(
        "transport_retries",
        "transport_recovery_long",
        Level.WARNING,
        lambda v: v.transport_retries * v.transport_retry_interval > v.timeout > 0,
        "Transport recovery takes up to {recovery}, longer than Timeout ({v.timeout} s): "
        "lower its retries or their interval, or raise Timeout.",
    ),
    Rule(
        "timeout",
        "network_timeouts_long",
        Level.WARNING,
        lambda v: v.partner_endpoint.connect_timeout + v.partner_endpoint.read_timeout > 10 * v.timeout > 0,
        "The partner endpoint's connect and read timeouts add up to more than ten times Timeout ({v.timeout} s): "
        "lower them, or raise Timeout.",
    ),
    Rule(
        "strict_sequence",
        "strict_sequence_unused",
        Level.WARNING,
        lambda v: not _reliable(v) and v.strict_sequence,
        "{v.semantics} messages have no sequence numbers, so that the strict sequence has no effect: switch it off.",
    ),
    Rule(
        "exchange_mode",
        "exchange_settings_unused",
        Level.WARNING,
        lambda v: v.exchange_mode != ExchangeMode.ONE_WAY or v.exchange_identity != ExchangeIdentity.FIRST_SENT,
        "The ebXML profile knows neither synchronous answers nor an Idempotency-Key, so that these settings have no "
        "effect: set them back, or the profile to repeatable requests.",
    ),
    Rule(
        "own_endpoint",
        "transports_mixed",
        Level.WARNING,
        _answers_come_otherwise,
        "Messages go by {v.partner_endpoint.transport} and their acknowledgements come back by "
        "{v.own_endpoint.transport}: make sure that the partner can answer so, or choose endpoints of one transport.",
    ),
    Rule(
        "own_endpoint",
        "mail_without_sender",
        Level.ERROR,
        lambda v: _by_mail(v) and v.own_endpoint.transport != Transport.SMTP,
        "Messages go by mail, and our endpoint has no mail address that they could come from: choose one of our "
        "endpoints with a mailto: URI.",
    ),
    Rule(
        "timeout",
        "mail_timeout_short",
        Level.WARNING,
        lambda v: _by_mail(v) and _reliable(v) and v.timeout < SHORT_FOR_MAIL,
        "Mail may take minutes, and after {timeout} the message goes out again although nothing is wrong: set the "
        "Timeout to at least 5 m.",
    ),
)
REPEATABLE: tuple[Rule, ...] = (
    HTTP_ONLY,
    Rule(
        "semantics",
        "semantics_not_reliable",
        Level.ERROR,
        lambda v: not _reliable(v) and not _only_receives_best_effort(v),
        "Requests with a message id are remembered and answered once, so {v.semantics} cannot be kept: set the "
        "semantics to OnceAndOnlyOnce. BestEffort can be agreed for what we only receive.",
    ),
    Rule(
        "repeat_interval",
        "repeat_interval_above_longest",
        Level.ERROR,
        lambda v: v.repeat_interval > v.repeat_interval_max,
        "The wished-for repeat interval of {repeat} is above the longest one of {longest}: "
        "lower it, or raise the longest.",
    ),
    Rule(
        "partner_window",
        "partner_window_short",
        Level.ERROR,
        lambda v: v.partner_window < _one_repeat(v),
        "The partner's memory window of {partner_window} leaves no time for a repeat: an attempt may take {exchange} "
        "(the partner endpoint's connect and read timeouts) and its repeat comes {repeat} later. "
        "Set it to at least {one_repeat}, or lower those.",
    ),
    Rule(
        "partner_window",
        "partner_window_long",
        Level.ERROR,
        lambda v: v.partner_window > MAX_GIVE_UP,
        "A message would be in doubt only after {partner_window}, and 400 days are the most: "
        "lower the partner's memory window.",
    ),
    Rule(
        "memory_window",
        "memory_window_below_repeats",
        Level.ERROR,
        lambda v: v.memory_window <= v.repeat_interval_max,
        "Our memory window of {window} is over before a repeat that comes after the longest interval of {longest}, "
        "so that it would be refused: raise the window, or lower the longest repeat interval.",
    ),
    Rule(
        "memory_window",
        "memory_window_costly",
        Level.WARNING,
        lambda v: v.memory_window > MANY_DAYS,
        "Our memory window is {window}, and each request is looked for in every day of it: 7 days are usual.",
    ),
    Rule(
        "clock_skew",
        "clock_skew_long",
        Level.ERROR,
        lambda v: v.clock_skew >= v.memory_window,
        "The clock skew of {skew} is as long as our memory window of {window}, so that first-instance times would say "
        "nothing: lower it, to 5 m for example.",
    ),
    Rule(
        "exchange_identity",
        "identity_without_first_sent",
        Level.WARNING,
        lambda v: v.exchange_identity == ExchangeIdentity.KEY,
        "An Idempotency-Key does not say when the request was first sent, so that a repeat which comes after its key "
        "was forgotten is executed again: agree on message id and first-instance time if the partner knows them.",
    ),
    Rule(
        "strict_sequence",
        "ebxml_switches_unused",
        Level.WARNING,
        lambda v: v.strict_sequence or v.detect_repeats,
        "Requests of this profile have no sequence numbers and are always recognised by their id, so that the strict "
        "sequence and the look for repeats have no effect: switch them off.",
    ),
)
STREAM: tuple[Rule, ...] = (
    HTTP_ONLY,
    Rule(
        "semantics",
        "semantics_not_of_streams",
        Level.ERROR,
        lambda v: v.semantics == Semantics.AT_MOST_ONCE,
        "A stream delivers once and only once, or it is none at all: set the semantics to OnceAndOnlyOnce. "
        "BestEffort means that transactional messages are refused.",
    ),
    Rule(
        "resend_schedule",
        "resend_schedule_unreadable",
        Level.ERROR,
        lambda v: bool(_schedule_fault(v)),
        "The waits before everything unacknowledged is sent again cannot be read: enter 1 to 20 whole seconds with "
        "commas between them, such as 30,30,300.",
    ),
    Rule(
        "retries",
        "resends_none",
        Level.ERROR,
        lambda v: _reliable(v) and v.retries < 1,
        "Without a resend one lost message would suspend the pair: set Retries to at least 1.",
    ),
    Rule(
        "retries",
        "resends_too_long",
        Level.ERROR,
        lambda v: _reliable(v) and _resends(v) > MAX_GIVE_UP,
        "The pair would be suspended only after {resends} without an order acknowledgement, and 400 days are the most: "
        "lower Retries, or the waits.",
    ),
    Rule(
        "max_in_flight",
        "window_below_lanes",
        Level.ERROR,
        lambda v: v.max_in_flight < v.stream_lanes,
        "The window of {v.max_in_flight} messages is smaller than the {v.stream_lanes} requests that may be on the "
        "wire at once: raise the window, or lower the requests.",
    ),
    Rule(
        "order_ack_timeout",
        "order_ack_timeout_short",
        Level.ERROR,
        lambda v: v.order_ack_timeout < MIN_ORDER_ACK_TIMEOUT,
        "OrderAckTimeout is {v.order_ack_timeout} ms, so that nearly every message would be acknowledged on its own: "
        "set it to at least 50 ms; 500 ms are usual.",
    ),
    Rule(
        "max_order_ack_delay",
        "order_ack_delay_short",
        Level.ERROR,
        lambda v: v.max_order_ack_delay < v.order_ack_timeout,
        "MaximumOrderAckDelay ({v.max_order_ack_delay} ms) is shorter than OrderAckTimeout ({v.order_ack_timeout} ms): "
        "raise the delay, or lower the timeout.",
    ),
    Rule(
        "max_order_ack_delay",
        "order_ack_later_than_resend",
        Level.ERROR,
        lambda v: _first_wait(v) > 0 and v.max_order_ack_delay + v.order_ack_timeout >= 1000 * _first_wait(v),
        "An order acknowledgement may take {v.max_order_ack_delay} ms and {v.order_ack_timeout} ms more, as long as "
        "the {first_wait} after which everything is sent again: lower MaximumOrderAckDelay, or raise the first wait.",
    ),
    Rule(
        "memory_window",
        "memory_window_below_resends",
        Level.ERROR,
        lambda v: _reliable(v) and v.memory_window < _repeated_for(v),
        "The memory window of {window} is shorter than the {repeated} for which a message may come again, so that a "
        "late one would not be recognised: set it to at least {repeated}.",
    ),
    Rule(
        "time_to_live",
        "life_too_long",
        Level.ERROR,
        lambda v: v.time_to_live > MAX_GIVE_UP,
        "A message would expire only after {life}, and 400 days are the most: lower its time to live, or set it to 0 "
        "for messages that never expire.",
    ),
    Rule(
        "time_to_live",
        "life_below_first_resend",
        Level.WARNING,
        lambda v: 0 < v.time_to_live <= _first_wait(v),
        "A message lives {life} and is sent again after {first_wait}, so that one that is lost once expires in doubt: "
        "raise its time to live, or lower the first wait.",
    ),
    Rule(
        "final_receipt_within",
        "final_receipt_never",
        Level.ERROR,
        lambda v: v.final_receipt and v.final_receipt_within == 0,
        "Final receipts are asked for and none could be in time: set how long they may take, or do not ask for them.",
    ),
    Rule(
        "final_receipt_within",
        "final_receipt_late",
        Level.ERROR,
        lambda v: v.final_receipt and v.final_receipt_within > MAX_GIVE_UP,
        "A message would be in doubt only after {final} without a final receipt, and 400 days are the most: "
        "lower how long they may take.",
    ),
    Rule(
        "exchange_mode",
        "settings_of_others_unused",
        Level.WARNING,
        lambda v: (
            v.exchange_mode != ExchangeMode.ONE_WAY
            or v.exchange_identity != ExchangeIdentity.FIRST_SENT
            or v.strict_sequence
        ),
        "Streams know neither synchronous answers, an Idempotency-Key nor a strict sequence, so that these settings "
        "have no effect: set them back.",
    ),
)
WSAT: tuple[Rule, ...] = (
    HTTP_ONLY,
    Rule(
        "own_endpoint",
        "own_uri_not_of_transactions",
        Level.ERROR,
        lambda v: _is_http(v) and not v.own_endpoint.uri.strip().rstrip("/").endswith(TRANSACTIONS_PATH),
        "Our endpoint is {v.own_endpoint.uri}, and this hub has its transaction services below /ws-tx: partners could "
        "not reach them. Choose an endpoint whose URI ends with it, such as https://hub.example/ws-tx.",
    ),
    Rule(
        "partner_endpoint",
        "transactions_through_router",
        Level.ERROR,
        lambda v: v.partner_endpoint.party_id != v.agreement.partner_id and not v.partner_endpoint.party.is_own,
        "The partner's endpoint belongs to {v.partner_endpoint.party}, and a router does not pass transactions on: "
        "choose an endpoint of {v.agreement.partner}.",
    ),
    Rule(
        "repeat_interval",
        "resend_above_longest",
        Level.ERROR,
        lambda v: v.repeat_interval > v.repeat_interval_max,
        "What awaits an answer is sent again after {repeat}, and {longest} is the longest wait: lower the first wait, "
        "or raise the longest.",
    ),
    Rule(
        "repeat_interval_max",
        "resend_too_rare",
        Level.ERROR,
        lambda v: v.repeat_interval_max > DAY,
        "A partner that is back would wait up to {longest} for what it has to know: lower the longest wait to 1 d at "
        "most; 10 m are usual.",
    ),
    Rule(
        "retries",
        "silence_at_once",
        Level.WARNING,
        lambda v: v.retries < 2,
        "With Retries {v.retries} the first answer that is late opens an incident: set it to at least 2; 10 are usual.",
    ),
    Rule(
        "services",
        "services_unused",
        Level.WARNING,
        lambda v: bool(v.services.all()),
        "Transactions carry no documents, so that services and actions have no effect: remove them, or put them into "
        "an agreement of another profile.",
    ),
    Rule(
        "exchange_mode",
        "settings_of_documents_unused",
        Level.WARNING,
        lambda v: (
            v.exchange_mode != ExchangeMode.ONE_WAY
            or v.exchange_identity != ExchangeIdentity.FIRST_SENT
            or v.strict_sequence
            or v.final_receipt
        ),
        "Transactions know neither synchronous answers, an Idempotency-Key, a strict sequence nor final receipts, so "
        "that these settings have no effect: set them back.",
    ),
)
# Transactions carry no documents, so nobody is named in them and no service is asked for.
_DOCUMENTS_ONLY = frozenset(
    {
        "services_missing",
        "own_party_unidentified",
        "partner_unidentified",
        "partner_endpoint_of_other_party",
        "host_key_missing",
    }
)
BY_PROFILE: Mapping[str, tuple[Rule, ...]] = {
    Profile.EBXML: (*COMMON, *EBXML),
    Profile.REPEATABLE: (*COMMON, *REPEATABLE),
    Profile.STREAM: (*COMMON, *STREAM),
    Profile.WSAT: (*(rule for rule in COMMON if rule.code not in _DOCUMENTS_ONLY), *WSAT),
}
RULES: tuple[Rule, ...] = tuple(dict.fromkeys((*COMMON, *EBXML, *REPEATABLE, *STREAM, *WSAT)))
