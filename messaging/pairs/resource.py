"""What people can do to a pair, as one declaration: buttons, dialogs and operations of the API are made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging.models import Message, Pair
from messaging.pairs.selectors.screens import PairScreen
from messaging.pairs.services import operating
from messaging.protocol.sender import next_sequence
from partners.fields import duration
from partners.services import gives_up_sentence
from rmhub import clock
from rmhub.language import gettext_lazy, number


@dataclass(frozen=True, slots=True)
class PairVerb:
    """As `messaging.resource.Verb`; what a verb does depends on what goes over the pair, and on how it stands.

    `heavy`: cannot be taken back, so the dialog asks for the pair's code as well. `long_reason`: the service wants a
    reason that says something. `done`: what became of the {pair}; `done_requests`: what is said instead of a pair of
    repeatable requests.
    """

    slug: str
    label: str
    icon: str
    colour: str
    scope: str
    service: Callable[..., Pair]
    summary: str
    effects: Callable[[PairScreen], list[str]]
    forever: str
    presets: tuple[str, ...]
    done: str
    heavy: bool = False
    long_reason: bool = False
    done_requests: str = ""

    def said(self, screen: PairScreen) -> str:
        """What became of the pair, for the notice after it."""
        said = (screen.requests and self.done_requests) or self.done
        return said.format(pair=screen.pair.code)


def _named(message: Message | None) -> str:
    if message is None:
        return "—"
    return f"#{message.sequence_number} ({message.action})" if message.sequence_number else f"({message.action})"


def _behind(screen: PairScreen) -> list[str]:
    count = screen.pair.queued
    if not count:
        return []
    if count == 1:
        return [_("Then the one that waits.")]
    said = _("Then the {count} that wait, one at a time, in the order in which they were submitted.")
    return [said.format(count=number(count))]


def _budget(screen: PairScreen) -> list[str]:
    terms = screen.terms
    if terms is None:
        return []
    most = duration(terms.timeout + terms.retries * terms.retry_interval)
    attempts = terms.retries + 1
    return [
        ngettext(
            "The retry counter starts at zero: {count} attempt within {time}, then it suspends again.",
            "The retry counter starts at zero: {count} attempts within {time}, then it suspends again.",
            attempts,
        ).format(count=attempts, time=most)
    ]


def _about_cause(screen: PairScreen) -> list[str]:
    """What is newer than the cause; else, what time alone does not fix."""
    found = screen.diagnosis
    if found.newer is not None:
        return [f"{found.newer.sentence(clock.now())} {found.advice}"]
    if found.cause is not None and not found.cause.retryable:
        waiting = _("Waiting does not fix “{cause}”.").format(cause=found.cause.label)
        return [f"{waiting} {found.cause.action}"]
    return []


def _resume_requests(screen: PairScreen) -> list[str]:
    pair = screen.pair
    said = []
    if pair.out_now:
        said.append(
            ngettext(
                "Sends the {count} on the way again at once: the same id, the same first-instance time, the same "
                "octets. A partner that has it already answers from its memory and does not process it.",
                "Sends the {count} on the way again at once: the same ids, the same first-instance times, the same "
                "octets. A partner that has one already answers from its memory and does not process it.",
                pair.out_now,
            ).format(count=number(pair.out_now))
        )
        said.append(
            _("One whose window is over is not sent any more: it is in doubt, or failed if it never got there.")
        )
    said += _in_order(pair)
    said.append(_("Open incidents of this pair are resolved with your reason, but for those about messages in doubt."))
    return said + _about_cause(screen)


def _in_order(pair: Pair) -> list[str]:
    if not pair.queued:
        return []
    if pair.queued == 1:
        return [_("Then the one that waits.")]
    said = _("Then the {count} that wait, in the order in which they were submitted.")
    return [said.format(count=number(pair.queued))]


def _flight(screen: PairScreen) -> int:
    """How many messages of its stream went out and are not acknowledged."""
    return screen.streams.outgoing.in_flight if screen.streams.outgoing is not None else 0


def _resume_stream(screen: PairScreen) -> list[str]:
    count, terms = _flight(screen), screen.terms
    said = []
    if count:
        said.append(
            ngettext(
                "Sends the {count} that is not acknowledged again at once: the same id and number. If the partner has "
                "it already it passes over it, and acknowledges.",
                "Sends the {count} that are not acknowledged again at once, in their order: the same ids and numbers. "
                "What the partner has already it passes over, and acknowledges.",
                count,
            ).format(count=number(count))
        )
    said += _in_order(screen.pair)
    if terms is not None:
        said.append(_("The count of resends starts at zero.") + " " + gives_up_sentence(terms))
        if terms.time_to_live:
            said.append(_("One whose life is over by now is not sent any more: it is in doubt if it ever went out."))
    said.append(_("Open incidents of this pair are resolved with your reason."))
    return said + _about_cause(screen)


def _resume(screen: PairScreen) -> list[str]:
    if screen.requests:
        return _resume_requests(screen)
    if screen.streams.applies:
        return _resume_stream(screen)
    head = screen.pair.in_flight
    said = []
    if head is None:
        count = screen.pair.queued
        said.append(
            ngettext(
                "Sends what waits: {count} document.",
                "Sends what waits: {count} documents, one at a time, in order.",
                count,
            ).format(count=number(count))
        )
    else:
        said.append(
            _(
                "Sends message {message} again at once: the same MessageId, the same sequence number, the same octets "
                "(SHA-256 {digest}…). A partner that has it already acknowledges and does not process it."
            ).format(message=_named(head), digest=head.digest[:12])
        )
        said += _behind(screen)
    said += _budget(screen)
    said.append(_("Open incidents of this pair are resolved with your reason."))
    return said + _about_cause(screen)


def _retry_now(screen: PairScreen) -> list[str]:
    pair, terms = screen.pair, screen.terms
    if screen.requests:
        return [
            ngettext(
                "If the {count} on the way waits for its next repeat, it goes out at once, with the same id, "
                "first-instance time and octets.",
                "Of the {count} on the way, those that wait for their next repeat go out at once, with the same ids, "
                "first-instance times and octets.",
                pair.out_now,
            ).format(count=number(pair.out_now)),
            _("The windows in which they may be repeated stay as they are."),
        ]
    if screen.streams.applies:
        return [
            ngettext(
                "If the {count} in flight is not on the wire, it goes out again at once.",
                "Of the {count} in flight, those that are not on the wire go out again at once, in order.",
                _flight(screen),
            ).format(count=number(_flight(screen))),
            _("The count of resends without progress stays as it is."),
        ]
    if screen.transactions:
        return [
            _(
                "What waits goes out at once, with the same octets: {messages}. What is on the wire is left alone."
            ).format(messages=_unanswered(screen)),
            _("How often each was sent goes on counting."),
        ]
    said = [
        _("Sends message {message} again at once, with the same octets, instead of waiting for its time.").format(
            message=_named(pair.in_flight)
        )
    ]
    if terms is not None and pair.flow == "awaiting_ack":
        said.append(
            _("This is retry {number} of {most}; the counter is not reset.").format(
                number=pair.retries + 1, most=terms.retries
            )
        )
    else:
        said.append(_("It uses up no retry."))
    return said


def _skip(screen: PairScreen) -> list[str]:
    head = screen.pair.in_flight
    if screen.requests:
        return [
            _(
                "The first message that waits for its next repeat is given up: it is never sent again. The partner may "
                "have executed it already; nobody can know. Its sender is notified by an event."
            ),
            _("To take back another one, cancel it on its own page."),
            *([_takes_its_place(screen.pair.queued)] if screen.pair.queued else []),
        ]
    if screen.streams.applies:
        first = screen.streams.outgoing.oldest if screen.streams.outgoing is not None else None
        return [
            _(
                "Message {message} is given up: it is never sent again. The partner may have it already; nobody can "
                "know before it is acknowledged. Its sender is notified by an event."
            ).format(message=_named(first)),
            _("What follows it goes out again and leaves its number out, so that the partner does not wait for it."),
            _("Open incidents of this pair are resolved with your reason."),
        ]
    said = [
        _(
            "Message {message} is given up: it is never sent again on this pair. Its sender is notified by an event."
        ).format(message=_named(head)),
        _(
            "The sequence restarts: the next message goes out as number 1, because nobody can know whether the partner "
            "took number {number}."
        ).format(number=head.sequence_number if head else ""),
    ]
    return [*said, *_behind(screen), _("Open incidents of this pair are resolved with your reason.")]


def _takes_its_place(count: int) -> str:
    return ngettext(
        "The {count} that waits takes its place.", "One of the {count} that wait takes its place.", count
    ).format(count=number(count))


def _restart(screen: PairScreen) -> list[str]:
    head = screen.pair.in_flight
    if screen.streams.applies:
        return [
            _("A new stream begins, with a TxSequenceID above every one before, and its first message as number 1."),
            ngettext(
                "The {count} in flight goes back to the head of the queue and out under a new number, with its id. A "
                "partner that has it already may take it again, unless it remembers ids as this hub does.",
                "The {count} in flight go back to the head of the queue and out under new numbers, with their ids. A "
                "partner that has one already may take it again, unless it remembers ids as this hub does.",
                _flight(screen),
            ).format(count=number(_flight(screen))),
            *([_and_what_waits(screen.pair.queued)] if screen.pair.queued else []),
        ]
    if head is None:
        first = _("The next message goes out as number 1.")
    else:
        first = _(
            "Message {message} goes back to the head of the queue and out as number 1, with its MessageId. Its octets "
            "are generated again, because the number is part of them."
        ).format(message=_named(head))
    return [
        first,
        *_behind(screen),
        _("The partner has to take number 1 as a restart; a standard messaging service does."),
    ]


def _and_what_waits(count: int) -> str:
    if count == 1:
        return _("Then the one that waits.")
    return _("Then the {count} that wait.").format(count=number(count))


def _pause(screen: PairScreen) -> list[str]:
    if screen.transactions:
        return [
            _("From now on nothing is sent on this pair. What the partner sends about transactions is still taken."),
            _("Participants that have voted wait for the decision meanwhile, and hold what they have locked."),
            _("It stays paused until somebody releases it."),
        ]
    return [
        _(
            "From now on nothing is sent on this pair. An attempt that is on the wire is finished, and its answer "
            "taken."
        ),
        _("Applications can go on submitting; what they submit waits."),
        _("It stays paused until somebody releases it."),
    ]


def _release(screen: PairScreen) -> list[str]:
    if screen.pair.flow == "suspended":
        return [_("The pair is suspended as well: nothing is sent until it is resumed, too.")]
    if screen.transactions:
        return [_("What waits goes out at once: {messages}.").format(messages=_unanswered(screen))]
    count = screen.pair.queued + screen.pair.out_now + (1 if screen.pair.in_flight is not None else 0)
    count = count or _flight(screen)
    if not count:
        return [_("Nothing waits; the next submission goes out at once.")]
    if screen.streams.applies:
        count = _flight(screen) + screen.pair.queued
        said = _("What is due goes out at once: {count} documents, in order.")
    elif screen.requests:
        said = _("What is due goes out at once: {count} documents, as many at a time as the agreement allows.")
    else:
        said = _("What is due goes out at once: {count} documents, one at a time, in order.")
    if count == 1:
        said = _("What is due goes out at once: one document.")
    return [said.format(count=number(count))]


def _unanswered(screen: PairScreen) -> str:
    count = screen.unanswered
    return ngettext("{count} message of transactions", "{count} messages of transactions", count).format(
        count=number(count)
    )


def _expect(screen: PairScreen) -> list[str]:
    return [
        _(
            "The partner's next message is taken if it has the number that you set, instead of {number}. A restart at "
            "1 is taken in any case."
        ).format(number=next_sequence(screen.pair.last_sequence)),
        _("Messages that were received before stay known by their MessageId and are not taken twice."),
        _("Open incidents of this pair are resolved with your reason."),
    ]


def _hand_on(screen: PairScreen) -> list[str]:
    return [
        _(
            "Applications get the messages that wait, each conversation in its order, and do not get those that are "
            "missing before them."
        ),
        _("The incident about the gap is resolved with your reason; other incidents stay open."),
    ]


def _clear_resync(screen: PairScreen) -> list[str]:
    said = [
        _(
            "You say that you have compared what both sides have of the time that is missing here; your reason is the "
            "evidence."
        ),
    ]
    if screen.pair.direction == "in":
        said.append(
            _(
                "Documents that come in are new again, unless the hub knows them. If the partner still repeats one of "
                "that time, it is processed a second time."
            )
        )
        said.append(_("Documents that are in doubt stay so until somebody settles them."))
    else:
        said.append(_("Nothing changes in what is sent. What applications submitted then and is not here is not sent."))
    return [*said, _("The incident about it is resolved with your reason; other incidents stay open.")]


_UNSENT = gettext_lazy("What has been sent cannot be unsent.")
VERBS: dict[str, PairVerb] = {
    verb.slug: verb
    for verb in (
        PairVerb(
            "resume",
            gettext_lazy("Resume"),
            "player-play",
            "primary",
            "pairs:operate",
            operating.pair_resume,
            "Resume a suspended pair: the same octets again, with a fresh budget of retries",
            _resume,
            _UNSENT,
            (
                gettext_lazy("Certificate replaced"),
                gettext_lazy("Partner fixed firewall"),
                gettext_lazy("Partner's server is up again"),
                gettext_lazy("Tried with partner"),
            ),
            gettext_lazy("{pair} is resumed."),
        ),
        PairVerb(
            "retry-now",
            gettext_lazy("Retry now"),
            "refresh",
            "",
            "pairs:operate",
            operating.pair_retry_now,
            "Use the next attempt early; the budget is not reset",
            _retry_now,
            _UNSENT,
            (gettext_lazy("Partner says they are up again"), gettext_lazy("Fixed on our side")),
            gettext_lazy("{pair} is sending again at once."),
        ),
        PairVerb(
            "skip-head",
            gettext_lazy("Skip message"),
            "player-skip-forward",
            "danger",
            "pairs:skip",
            operating.pair_skip_head,
            "Give up the message in flight permanently, and restart the sequence at 1",
            _skip,
            gettext_lazy(
                "A skipped message is never sent again; it can only be submitted again, under another MessageId."
            ),
            (gettext_lazy("Partner cannot process this document"), gettext_lazy("Sent by other means")),
            gettext_lazy("{pair} is going on without the skipped message; the sequence restarts at 1."),
            heavy=True,
            long_reason=True,
            done_requests=gettext_lazy("{pair} is going on without the skipped message."),
        ),
        PairVerb(
            "restart-sequence",
            gettext_lazy("Restart sequence"),
            "rotate-clockwise",
            "danger",
            "pairs:skip",
            operating.pair_restart_sequence,
            "Forget the numbers: the message in flight, or the next, goes out as number 1",
            _restart,
            gettext_lazy("The numbers that were used are forgotten."),
            (gettext_lazy("Partner lost their sequence state"), gettext_lazy("Agreed with partner to start at 1")),
            gettext_lazy("{pair} is restarted: the next message goes out as number 1."),
            heavy=True,
            long_reason=True,
        ),
        PairVerb(
            "pause",
            gettext_lazy("Pause"),
            "player-pause",
            "",
            "pairs:operate",
            operating.pair_pause,
            "Hold the pair: it takes submissions and answers, and sends nothing",
            _pause,
            gettext_lazy("Nothing here is irreversible: release the pair and it goes on."),
            (gettext_lazy("Partner's maintenance window"), gettext_lazy("Investigation")),
            gettext_lazy("{pair} is paused."),
        ),
        PairVerb(
            "release",
            gettext_lazy("Release"),
            "player-play",
            "primary",
            "pairs:operate",
            operating.pair_release,
            "End a pause",
            _release,
            _UNSENT,
            (gettext_lazy("Maintenance is over"), gettext_lazy("Investigation is done")),
            gettext_lazy("{pair} is released."),
        ),
        PairVerb(
            "expect-sequence",
            gettext_lazy("Set expected number"),
            "list-numbers",
            "danger",
            "pairs:skip",
            operating.pair_expect_sequence,
            "Inbound: set the number that is taken as next, after one side lost its state",
            _expect,
            gettext_lazy("Messages with numbers in between are not asked for again."),
            (gettext_lazy("Our state was restored from a backup"), gettext_lazy("Partner restarted at another number")),
            gettext_lazy("{pair} is set to expect another number."),
            heavy=True,
        ),
        PairVerb(
            "hand-on",
            gettext_lazy("Hand on what waits"),
            "player-skip-forward",
            "danger",
            "pairs:skip",
            operating.pair_hand_on,
            "Inbound: hand on what waits for its turn, without the messages that are missing before it",
            _hand_on,
            gettext_lazy("What is missing is refused if it still comes."),
            (
                gettext_lazy("Partner says that the missing message was never sent"),
                gettext_lazy("The missing document came by other means"),
            ),
            gettext_lazy("{pair}: what waited is handed on."),
            heavy=True,
            long_reason=True,
        ),
        PairVerb(
            "clear-resync",
            gettext_lazy("Clear resync"),
            "arrows-exchange",
            "primary",
            "pairs:skip",
            operating.pair_clear_resync,
            "After a loss of memory: both sides were compared (the reason is the evidence), and what comes is new "
            "again",
            _clear_resync,
            gettext_lazy("The hub does not look for repeats from that time any more."),
            (
                gettext_lazy("Compared with the partner's list: nothing is missing"),
                gettext_lazy("What was missing was sent again, and settled"),
            ),
            gettext_lazy("{pair} is in sync again."),
            long_reason=True,
        ),
    )
}
