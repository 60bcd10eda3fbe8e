"""Rules of transactional streams (spec 3)."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from partners.choices import ExchangeIdentity, ExchangeMode, Semantics
from partners.fields import duration
from partners.rules.common import COMMON, DOCUMENTS, HTTP_ONLY, MAX_GIVE_UP, MEMORY_WINDOW_UNUSED, TARGETS, reliable
from partners.rules.rule import (
    SENT_ONCE,
    Level,
    Reliability,
    Rule,
    Settings,
    between,
    first_wait,
    resend_seconds,
    resends,
    schedule_fault,
)
from partners.terms import resend_waits
from rmhub.language import gettext_lazy

MIN_ORDER_ACK_TIMEOUT = 50  # ms


def _gives_up(terms: Reliability) -> str:
    """Say when all goes out again, and what ends that: "10 resends without progress (13 h 46 m 30 s) suspend ..." """
    if terms.semantics != Semantics.ONCE_AND_ONLY_ONCE:
        return str(SENT_ONCE)
    waits = resend_waits(terms.resend_schedule)[: terms.retries + 1]
    said = ngettext(
        "Sends all that is unacknowledged again after {interval}; {count} resend without progress ({time}) suspends "
        "the pair.",
        "Sends all that is unacknowledged again after {interval}; {count} resends without progress ({time}) suspend "
        "the pair.",
        terms.retries,
    ).format(interval=between(min(waits), max(waits)), count=terms.retries, time=duration(resend_seconds(terms)))
    if not terms.time_to_live:
        return said
    return f"{said} " + _("A message expires after {time}.").format(time=duration(terms.time_to_live))


_RULES: tuple[Rule, ...] = (
    HTTP_ONLY,
    Rule(
        "semantics",
        "semantics_not_of_streams",
        Level.ERROR,
        lambda v: v.semantics == Semantics.AT_MOST_ONCE,
        gettext_lazy(
            "A stream delivers once and only once, or it is none at all: set the semantics to OnceAndOnlyOnce. "
            "BestEffort means that transactional messages are refused."
        ),
    ),
    Rule(
        "resend_schedule",
        "resend_schedule_unreadable",
        Level.ERROR,
        lambda v: bool(schedule_fault(v)),
        gettext_lazy(
            "The waits before everything unacknowledged is sent again cannot be read: enter 1 to 20 whole seconds with "
            "commas between them, such as 30,30,300."
        ),
    ),
    Rule(
        "retries",
        "resends_none",
        Level.ERROR,
        lambda v: reliable(v) and v.retries < 1,
        gettext_lazy("Without a resend one lost message would suspend the pair: set Retries to at least 1."),
    ),
    Rule(
        "retries",
        "resends_too_long",
        Level.ERROR,
        lambda v: reliable(v) and resends(v) > MAX_GIVE_UP,
        gettext_lazy(
            "The pair would be suspended only after {resends} without an order acknowledgement, and 400 days are "
            "the most: lower Retries, or the waits."
        ),
    ),
    Rule(
        "max_in_flight",
        "window_below_concurrency",
        Level.ERROR,
        lambda v: v.max_in_flight < v.stream_concurrency,
        gettext_lazy(
            "The window of {max_in_flight} messages is smaller than the {stream_concurrency} requests that may be "
            "on the wire at once: raise the window, or lower the requests."
        ),
    ),
    Rule(
        "order_ack_timeout",
        "order_ack_timeout_short",
        Level.ERROR,
        lambda v: v.order_ack_timeout < MIN_ORDER_ACK_TIMEOUT,
        gettext_lazy(
            "OrderAckTimeout is {order_ack_timeout} ms, so that nearly every message would be acknowledged on its "
            "own: set it to at least 50 ms; 500 ms are usual."
        ),
    ),
    Rule(
        "max_order_ack_delay",
        "order_ack_delay_short",
        Level.ERROR,
        lambda v: v.max_order_ack_delay < v.order_ack_timeout,
        gettext_lazy(
            "MaximumOrderAckDelay ({max_order_ack_delay} ms) is shorter than OrderAckTimeout ({order_ack_timeout} "
            "ms): raise the delay, or lower the timeout."
        ),
    ),
    Rule(
        "max_order_ack_delay",
        "order_ack_later_than_resend",
        Level.ERROR,
        lambda v: first_wait(v) > 0 and v.max_order_ack_delay + v.order_ack_timeout >= 1000 * first_wait(v),
        gettext_lazy(
            "An order acknowledgement may take {max_order_ack_delay} ms and {order_ack_timeout} ms more, as long "
            "as the {first_wait} after which everything is sent again: lower MaximumOrderAckDelay, or raise the "
            "first wait."
        ),
    ),
    MEMORY_WINDOW_UNUSED,
    Rule(
        "time_to_live",
        "life_too_long",
        Level.ERROR,
        lambda v: v.time_to_live > MAX_GIVE_UP,
        gettext_lazy(
            "A message would expire only after {time_to_live}, and 400 days are the most: lower its time to "
            "live, or set it to 0 for messages that never expire."
        ),
    ),
    Rule(
        "time_to_live",
        "life_below_first_resend",
        Level.WARNING,
        lambda v: 0 < v.time_to_live <= first_wait(v),
        gettext_lazy(
            "A message lives {time_to_live} and is sent again after {first_wait}, so that one that is lost "
            "once expires in doubt: raise its time to live, or lower the first wait."
        ),
    ),
    Rule(
        "final_receipt_within",
        "final_receipt_never",
        Level.ERROR,
        lambda v: v.final_receipt and v.final_receipt_within == 0,
        gettext_lazy(
            "Final receipts are asked for and none could be in time: set how long they may take, or do not ask for "
            "them."
        ),
    ),
    Rule(
        "final_receipt_within",
        "final_receipt_late",
        Level.ERROR,
        lambda v: v.final_receipt and v.final_receipt_within > MAX_GIVE_UP,
        gettext_lazy(
            "A message would be in doubt only after {final_receipt_within} without a final receipt, and 400 "
            "days are the most: lower how long they may take."
        ),
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
        gettext_lazy(
            "Streams know neither synchronous answers, an Idempotency-Key nor a strict sequence, so that these "
            "settings have no effect: set them back."
        ),
    ),
)

STREAM = Settings(
    names=DOCUMENTS
    | {
        *(
            "retries",
            "max_in_flight",
            "stream_concurrency",
            "resend_schedule",
            "order_ack_timeout",
            "max_order_ack_delay",
        ),
        *("time_to_live", "final_receipt", "final_receipt_within", "inbound_quota"),
    },
    rules=(*COMMON, *_RULES, *TARGETS),
    # WindowSize of [MS-MQQB], and the whole of its table of waits, about a day.
    defaults={"max_in_flight": 64, "retries": 10},
    gives_up=_gives_up,
)
