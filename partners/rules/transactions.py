"""Rules of atomic transactions (spec 5)."""

from __future__ import annotations

from django.utils.translation import ngettext

from partners.choices import ExchangeIdentity, ExchangeMode
from partners.models import DAY
from partners.rules.common import COMMON, HTTP_ONLY, is_http
from partners.rules.rule import Level, Reliability, Rule, Settings, between
from rmhub.language import gettext_lazy

TRANSACTIONS_PATH = "/ws-tx"  # below it lie the hub's own services of atomic transactions


def _gives_up(terms: Reliability) -> str:
    """Say that it goes on, and what tells people: "10 resends without an answer open an incident." """
    return ngettext(
        "Sends what awaits an answer again after {interval}, and never gives up by itself; {count} resend without an "
        "answer opens an incident.",
        "Sends what awaits an answer again after {interval}, and never gives up by itself; {count} resends without an "
        "answer open an incident.",
        terms.retries,
    ).format(interval=between(terms.repeat_interval, terms.repeat_interval_max), count=terms.retries)


_RULES: tuple[Rule, ...] = (
    HTTP_ONLY,
    Rule(
        "own_endpoint",
        "own_uri_not_of_transactions",
        Level.ERROR,
        lambda v: is_http(v) and not v.own_endpoint.uri.strip().rstrip("/").endswith(TRANSACTIONS_PATH),
        gettext_lazy(
            "Our endpoint is {own_uri}, and this hub has its transaction services below /ws-tx: partners "
            "could not reach them. Choose an endpoint whose URI ends with it, such as https://hub.example/ws-tx."
        ),
    ),
    Rule(
        "partner_endpoint",
        "transactions_through_router",
        Level.ERROR,
        lambda v: v.partner_endpoint.party_id != v.agreement.partner_id and not v.partner_endpoint.party.is_own,
        gettext_lazy(
            "The partner's endpoint belongs to {partner_endpoint_party}, and a router does not pass transactions on: "
            "choose an endpoint of {partner}."
        ),
    ),
    Rule(
        "repeat_interval",
        "resend_above_longest",
        Level.ERROR,
        lambda v: v.repeat_interval > v.repeat_interval_max,
        gettext_lazy(
            "What awaits an answer is sent again after {repeat_interval}, and {repeat_interval_max} is "
            "the longest wait: lower the first wait, or raise the longest."
        ),
    ),
    Rule(
        "repeat_interval_max",
        "resend_too_rare",
        Level.ERROR,
        lambda v: v.repeat_interval_max > DAY,
        gettext_lazy(
            "A partner that is back would wait up to {repeat_interval_max} for what it has to know: lower the "
            "longest wait to 1 d at most; 10 m are usual."
        ),
    ),
    Rule(
        "other_servers",
        "other_servers_open",
        Level.WARNING,
        lambda v: any(one.startswith("http:") for one in v.other_servers.split()),
        gettext_lazy(
            "The other servers are {other_servers}, and what goes to one of http can be read and changed on its way: "
            "name https servers only."
        ),
    ),
    Rule(
        "retries",
        "silence_at_once",
        Level.WARNING,
        lambda v: v.retries < 2,
        gettext_lazy(
            "With Retries {retries} the first answer that is late opens an incident: set it to at least 2; 10 are "
            "usual."
        ),
    ),
    Rule(
        "services",
        "services_unused",
        Level.WARNING,
        lambda v: bool(v.services.all()),
        gettext_lazy(
            "Transactions carry no documents, so that services and actions have no effect: remove them, or put them "
            "into an agreement of another profile."
        ),
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
        gettext_lazy(
            "Transactions know neither synchronous answers, an Idempotency-Key, a strict sequence nor final receipts, "
            "so that these settings have no effect: set them back."
        ),
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

WSAT = Settings(
    names=frozenset(
        {
            *("retries", "repeat_interval", "repeat_interval_max", "coordination_version", "addressing_profile"),
            *("addressing_strict", "other_servers", "soap_version"),
        }
    ),
    rules=(*(rule for rule in COMMON if rule.code not in _DOCUMENTS_ONLY), *_RULES),
    # What awaits an answer is sent again after 5 s, at most after 10 m.
    defaults={"retries": 10, "repeat_interval": 5, "repeat_interval_max": 600},
    gives_up=_gives_up,
)
