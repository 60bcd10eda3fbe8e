"""Rules of repeatable requests (spec 2)."""

from __future__ import annotations

from django.utils.translation import gettext as _

from partners.choices import ExchangeIdentity, Semantics, ServiceDirection
from partners.fields import duration
from partners.models import DAY, AgreementVersion
from partners.rules.common import COMMON, DOCUMENTS, HTTP_ONLY, MAX_GIVE_UP, TARGETS, reliable
from partners.rules.rule import Level, Reliability, Rule, Settings, between, one_repeat
from rmhub.language import gettext_lazy

MANY_DAYS = 62 * DAY


def _only_receives_best_effort(version: AgreementVersion) -> bool:
    """Requests without ids, each taken as it comes: what we send always has one."""
    services = version.services.all()
    received = all(service.direction == ServiceDirection.RECEIVE for service in services)
    return version.semantics == Semantics.BEST_EFFORT and received


def _gives_up(terms: Reliability) -> str:
    """Say it as "Repeats for up to 1 d, every 20 s to 10 m, then the message is in doubt." """
    return _("Repeats for up to {time}, every {interval}, then the message is in doubt.").format(
        time=duration(terms.partner_window), interval=between(terms.repeat_interval, terms.repeat_interval_max)
    )


_RULES: tuple[Rule, ...] = (
    HTTP_ONLY,
    Rule(
        "semantics",
        "semantics_not_reliable",
        Level.ERROR,
        lambda v: not reliable(v) and not _only_receives_best_effort(v),
        gettext_lazy(
            "Requests with a message id are remembered and answered once, so {semantics} cannot be kept: set the "
            "semantics to OnceAndOnlyOnce. BestEffort can be agreed for what we only receive."
        ),
    ),
    Rule(
        "repeat_interval",
        "repeat_interval_above_longest",
        Level.ERROR,
        lambda v: v.repeat_interval > v.repeat_interval_max,
        gettext_lazy(
            "The first repeat interval of {repeat_interval} is above the longest one of "
            "{repeat_interval_max}: lower it, or raise the longest."
        ),
    ),
    Rule(
        "partner_window",
        "partner_window_short",
        Level.ERROR,
        lambda v: v.partner_window < one_repeat(v),
        gettext_lazy(
            "The partner's memory window of {partner_window} leaves no time for a repeat: an attempt may take "
            "{exchange} (the partner endpoint's connect and read timeouts) and its repeat comes "
            "{repeat_interval} later. Set it to at least {one_repeat}, or lower those."
        ),
    ),
    Rule(
        "partner_window",
        "partner_window_long",
        Level.ERROR,
        lambda v: v.partner_window > MAX_GIVE_UP,
        gettext_lazy(
            "A message would be in doubt only after {partner_window}, and 400 days are the most: "
            "lower the partner's memory window."
        ),
    ),
    Rule(
        "memory_window",
        "memory_window_below_repeats",
        Level.ERROR,
        lambda v: v.memory_window <= v.repeat_interval_max,
        gettext_lazy(
            "Our memory window of {memory_window} is over before a repeat that comes after the longest interval "
            "of {repeat_interval_max}, so that it would be refused: raise the window, or lower the longest "
            "repeat interval."
        ),
    ),
    Rule(
        "memory_window",
        "memory_window_costly",
        Level.WARNING,
        lambda v: v.memory_window > MANY_DAYS,
        gettext_lazy(
            "Our memory window is {memory_window}, and each request is looked for in every day of it: 7 days are usual."
        ),
    ),
    Rule(
        "clock_skew",
        "clock_skew_long",
        Level.ERROR,
        lambda v: v.clock_skew >= v.memory_window,
        gettext_lazy(
            "The clock skew of {clock_skew} is as long as our memory window of {memory_window}, so that "
            "first-instance times would say nothing: lower it, to 5 m for example."
        ),
    ),
    Rule(
        "exchange_identity",
        "identity_without_first_sent",
        Level.WARNING,
        lambda v: v.exchange_identity == ExchangeIdentity.KEY,
        gettext_lazy(
            "An Idempotency-Key does not say when the request was first sent, so that a repeat which comes after its "
            "key was forgotten is executed again: agree on message id and first-instance time if the partner knows "
            "them."
        ),
    ),
    Rule(
        "strict_sequence",
        "ebxml_switches_unused",
        Level.WARNING,
        lambda v: v.strict_sequence or v.detect_repeats,
        gettext_lazy(
            "Requests of this profile have no sequence numbers and are always recognised by their id, so that the "
            "strict sequence and the look for repeats have no effect: switch them off."
        ),
    ),
)

REPEATABLE = Settings(
    names=DOCUMENTS
    | {
        *("partner_window", "memory_window", "clock_skew", "exchange_mode", "exchange_identity"),
        *("repeat_interval", "repeat_interval_max", "ordered", "max_in_flight"),
    },
    rules=(*COMMON, *_RULES, *TARGETS),
    # The model's default is for ids that come with a sequence; here each costs a look into every day.
    defaults={"memory_window": 7 * DAY},
    gives_up=_gives_up,
)
