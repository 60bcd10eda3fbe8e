"""Rules of the ebXML profile (spec 1)."""

from __future__ import annotations

from partners.choices import ExchangeIdentity, ExchangeMode
from partners.models import AgreementVersion
from partners.rules.common import (
    COMMON,
    DOCUMENTS,
    MAX_GIVE_UP,
    MEMORY_WINDOW_UNUSED,
    RETRIES_UNUSED,
    TARGETS,
    reliable,
)
from partners.rules.rule import Level, Rule, Settings, give_up_seconds
from partners.transports import SMTP
from rmhub.language import gettext_lazy

SHORT_FOR_MAIL = 300


def _answers_come_otherwise(version: AgreementVersion) -> bool:
    return version.own_endpoint.transport != version.partner_endpoint.transport


def _by_mail(version: AgreementVersion) -> bool:
    return version.partner_endpoint.transport == SMTP.name


_RULES: tuple[Rule, ...] = (
    Rule(
        "timeout",
        "timeout_zero",
        Level.ERROR,
        lambda v: v.timeout == 0,
        gettext_lazy("Timeout is 0 s, so that no answer could ever be in time: set it to at least 1 s."),
    ),
    Rule(
        "retry_interval",
        "retry_interval_zero",
        Level.ERROR,
        lambda v: reliable(v) and v.retries > 0 and v.retry_interval == 0,
        gettext_lazy(
            "RetryInterval is 0 s with Retries {retries}: all retries would be sent at once. "
            "Set RetryInterval to at least 1 s, or Retries to 0."
        ),
    ),
    RETRIES_UNUSED,
    Rule(
        "retries",
        "give_up_too_late",
        Level.ERROR,
        lambda v: give_up_seconds(v) > MAX_GIVE_UP,
        gettext_lazy(
            "A message would be given up only after {give_up}, and 400 days are the most: "
            "lower Timeout, Retries or RetryInterval."
        ),
    ),
    MEMORY_WINDOW_UNUSED,
    Rule(
        "transient_ceiling",
        "transient_ceiling_short",
        Level.ERROR,
        lambda v: reliable(v) and v.transient_ceiling < v.retry_interval,
        gettext_lazy(
            "The transient error ceiling of {transient_ceiling_seconds} s is shorter than RetryInterval "
            "({retry_interval_seconds} s), so that the first transient error would open an incident: raise the ceiling "
            "or lower RetryInterval."
        ),
    ),
    Rule(
        "transport_retries",
        "transport_recovery_long",
        Level.WARNING,
        lambda v: v.transport_recovery > v.timeout > 0,
        gettext_lazy(
            "Transport recovery takes up to {transport_recovery}, longer than Timeout ({timeout_seconds} s): "
            "lower its retries or their interval, or raise Timeout."
        ),
    ),
    Rule(
        "timeout",
        "network_timeouts_long",
        Level.WARNING,
        lambda v: v.partner_endpoint.connect_timeout + v.partner_endpoint.read_timeout > 10 * v.timeout > 0,
        gettext_lazy(
            "The partner endpoint's connect and read timeouts add up to more than ten times Timeout ({timeout_seconds} "
            "s): lower them, or raise Timeout."
        ),
    ),
    Rule(
        "strict_sequence",
        "strict_sequence_unused",
        Level.WARNING,
        lambda v: not reliable(v) and v.strict_sequence,
        gettext_lazy(
            "{semantics} messages have no sequence numbers, so that the strict sequence has no effect: switch it off."
        ),
    ),
    Rule(
        "exchange_mode",
        "exchange_settings_unused",
        Level.WARNING,
        lambda v: v.exchange_mode != ExchangeMode.ONE_WAY or v.exchange_identity != ExchangeIdentity.FIRST_SENT,
        gettext_lazy(
            "The ebXML profile knows neither synchronous answers nor an Idempotency-Key, so that these settings have "
            "no effect: set them back, or the profile to repeatable requests."
        ),
    ),
    Rule(
        "own_endpoint",
        "transports_mixed",
        Level.WARNING,
        _answers_come_otherwise,
        gettext_lazy(
            "Messages go by {partner_transport} and their acknowledgements come back by "
            "{own_transport}: make sure that the partner can answer so, or choose endpoints of one "
            "transport."
        ),
    ),
    Rule(
        "own_endpoint",
        "mail_without_sender",
        Level.ERROR,
        lambda v: _by_mail(v) and v.own_endpoint.transport != SMTP.name,
        gettext_lazy(
            "Messages go by mail, and our endpoint has no mail address that they could come from: choose one of our "
            "endpoints with a mailto: URI."
        ),
    ),
    Rule(
        "timeout",
        "mail_timeout_short",
        Level.WARNING,
        lambda v: _by_mail(v) and reliable(v) and v.timeout < SHORT_FOR_MAIL,
        gettext_lazy(
            "Mail may take minutes, and after {timeout} the message goes out again although nothing is wrong: "
            "set the Timeout to at least 5 m."
        ),
    ),
)

EBXML = Settings(
    names=DOCUMENTS
    | {
        *("timeout", "retries", "retry_interval", "detect_repeats", "strict_sequence"),
        *("write_namespace", "write_padded_numbers"),
    },
    rules=(*COMMON, *_RULES, *TARGETS),
)
