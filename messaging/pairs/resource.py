"""What people can do to a pair, as one declaration: buttons, dialogs and operations of the API are made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from messaging.models import Message, Pair
from messaging.pairs.selectors.screens import PairScreen
from messaging.pairs.services import operating
from messaging.protocol.sender import next_sequence
from partners.fields import duration
from partners.services import gives_up_sentence
from rmhub import clock


@dataclass(frozen=True, slots=True)
class PairVerb:
    """As `messaging.resource.Verb`; what a verb does depends on what goes over the pair, and on how it stands.

    `heavy`: cannot be taken back, so the dialog asks for the pair's code as well. `long_reason`: the service wants a
    reason that says something. `done_requests`: what is said instead of `done` of a pair of repeatable requests.
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
        return (screen.requests and self.done_requests) or self.done


def _named(message: Message | None) -> str:
    if message is None:
        return "the message"
    return f"#{message.sequence_number} ({message.action})" if message.sequence_number else f"({message.action})"


def _behind(screen: PairScreen) -> list[str]:
    count = screen.pair.queued
    if not count:
        return []
    return [f"Then the {count:,} that wait, one at a time, in the order in which they were submitted."]


def _budget(screen: PairScreen) -> list[str]:
    terms = screen.terms
    if terms is None:
        return []
    most = duration(terms.timeout + terms.retries * terms.retry_interval)
    return [f"The retry counter starts at zero: {terms.retries + 1} attempts within {most}, then it suspends again."]


def _about_cause(screen: PairScreen) -> list[str]:
    """What is newer than the cause; else, what time alone does not fix."""
    found = screen.diagnosis
    if found.newer is not None:
        return [f"{found.newer.sentence(clock.now())} {found.advice}"]
    if found.cause is not None and not found.cause.retryable:
        return [f"Waiting does not fix “{found.cause.label}”. {found.cause.action}"]
    return []


def _resume_requests(screen: PairScreen) -> list[str]:
    pair = screen.pair
    said = []
    if pair.out_now:
        said.append(
            f"Sends the {pair.out_now:,} on the way again at once: the same ids, the same first-instance times, the "
            "same octets. A partner that has one already answers from its memory and does not process it."
        )
        said.append("One whose window is over is not sent any more: it is in doubt, or failed if it never got there.")
    if pair.queued:
        said.append(f"Then the {pair.queued:,} that wait, in the order in which they were submitted.")
    said.append("Open incidents of this pair are resolved with your reason, but for those about messages in doubt.")
    return said + _about_cause(screen)


def _flight(screen: PairScreen) -> int:
    """How many messages of its stream went out and are not acknowledged."""
    return screen.streams.outgoing.in_flight if screen.streams.outgoing is not None else 0


def _resume_stream(screen: PairScreen) -> list[str]:
    count, terms = _flight(screen), screen.terms
    said = []
    if count:
        said.append(
            f"Sends the {count:,} that are not acknowledged again at once, in their order: the same ids and numbers. "
            "What the partner has already it passes over, and acknowledges."
        )
    if screen.pair.queued:
        said.append(f"Then the {screen.pair.queued:,} that wait, in the order in which they were submitted.")
    if terms is not None:
        said.append(f"The count of resends starts at zero. {gives_up_sentence(terms)}")
        if terms.time_to_live:
            said.append("One whose life is over by now is not sent any more: it is in doubt if it ever went out.")
    said.append("Open incidents of this pair are resolved with your reason.")
    return said + _about_cause(screen)


def _resume(screen: PairScreen) -> list[str]:
    if screen.requests:
        return _resume_requests(screen)
    if screen.streams.applies:
        return _resume_stream(screen)
    head = screen.pair.in_flight
    said = []
    if head is None:
        said.append(f"Sends what waits: {screen.pair.queued:,} documents, one at a time, in order.")
    else:
        said.append(
            f"Sends message {_named(head)} again at once: the same MessageId, the same sequence number, the same "
            f"octets (SHA-256 {head.digest[:12]}…). A partner that has it already acknowledges and does not process it."
        )
        said += _behind(screen)
    said += _budget(screen)
    said.append("Open incidents of this pair are resolved with your reason.")
    return said + _about_cause(screen)


def _retry_now(screen: PairScreen) -> list[str]:
    pair, terms = screen.pair, screen.terms
    if screen.requests:
        return [
            f"Of the {pair.out_now:,} on the way, those that wait for their next repeat go out at once, with the same "
            "ids, first-instance times and octets.",
            "The windows in which they may be repeated stay as they are.",
        ]
    if screen.streams.applies:
        return [
            f"Of the {_flight(screen):,} in flight, those that are not on the wire go out again at once, in order.",
            "The count of resends without progress stays as it is.",
        ]
    if screen.transactions:
        return [
            f"What waits goes out at once, with the same octets: {_unanswered(screen)}. What is on the wire is left "
            "alone.",
            "How often each was sent goes on counting.",
        ]
    said = [
        f"Sends message {_named(pair.in_flight)} again at once, with the same octets, instead of waiting for its time."
    ]
    if terms is not None and pair.flow == "awaiting_ack":
        said.append(f"This is retry {pair.retries + 1} of {terms.retries}; the counter is not reset.")
    else:
        said.append("It uses up no retry.")
    return said


def _skip(screen: PairScreen) -> list[str]:
    head = screen.pair.in_flight
    if screen.requests:
        return [
            "The first message that waits for its next repeat is given up: it is never sent again. The partner may "
            "have executed it already; nobody can know. Its sender is notified by an event.",
            "To take back another one, cancel it on its own page.",
            *([f"One of the {screen.pair.queued:,} that wait takes its place."] if screen.pair.queued else []),
        ]
    if screen.streams.applies:
        first = screen.streams.outgoing.oldest if screen.streams.outgoing is not None else None
        return [
            f"Message {_named(first)} is given up: it is never sent again. The partner may have it already; nobody can "
            "know before it is acknowledged. Its sender is notified by an event.",
            "What follows it goes out again and leaves its number out, so that the partner does not wait for it.",
            "Open incidents of this pair are resolved with your reason.",
        ]
    said = [
        f"Message {_named(head)} is given up: it is never sent again on this pair. Its sender is notified by an event.",
        "The sequence restarts: the next message goes out as number 1, because nobody can know whether the partner "
        f"took number {head.sequence_number if head else ''}.",
    ]
    return [*said, *_behind(screen), "Open incidents of this pair are resolved with your reason."]


def _restart(screen: PairScreen) -> list[str]:
    head = screen.pair.in_flight
    if screen.streams.applies:
        return [
            "A new stream begins, with a TxSequenceID above every one before, and its first message as number 1.",
            f"The {_flight(screen):,} in flight go back to the head of the queue and out under new numbers, with their "
            "ids. A partner that has one already may take it again, unless it remembers ids as this hub does.",
            *([f"Then the {screen.pair.queued:,} that wait."] if screen.pair.queued else []),
        ]
    if head is None:
        first = "The next message goes out as number 1."
    else:
        first = (
            f"Message {_named(head)} goes back to the head of the queue and out as number 1, with its MessageId. "
            "Its octets are generated again, because the number is part of them."
        )
    return [
        first,
        *_behind(screen),
        "The partner has to take number 1 as a restart; a standard messaging service does.",
    ]


def _pause(screen: PairScreen) -> list[str]:
    if screen.transactions:
        return [
            "From now on nothing is sent on this pair. What the partner sends about transactions is still taken.",
            "Participants that have voted wait for the decision meanwhile, and hold what they have locked.",
            "It stays paused until somebody releases it.",
        ]
    return [
        "From now on nothing is sent on this pair. An attempt that is on the wire is finished, and its answer taken.",
        "Applications can go on submitting; what they submit waits.",
        "It stays paused until somebody releases it.",
    ]


def _release(screen: PairScreen) -> list[str]:
    if screen.pair.flow == "suspended":
        return ["The pair is suspended as well: nothing is sent until it is resumed, too."]
    if screen.transactions:
        return [f"What waits goes out at once: {_unanswered(screen)}."]
    count = screen.pair.queued + screen.pair.out_now + (1 if screen.pair.in_flight is not None else 0)
    count = count or _flight(screen)
    if not count:
        return ["Nothing waits; the next submission goes out at once."]
    if screen.streams.applies:
        return [f"What is due goes out at once: {_flight(screen) + screen.pair.queued:,} documents, in order."]
    if screen.requests:
        return [f"What is due goes out at once: {count:,} documents, as many at a time as the agreement allows."]
    return [f"What is due goes out at once: {count:,} documents, one at a time, in order."]


def _unanswered(screen: PairScreen) -> str:
    return f"{screen.unanswered:,} message{'s' * (screen.unanswered != 1)} of transactions"


def _expect(screen: PairScreen) -> list[str]:
    return [
        f"The partner's next message is taken if it has the number that you set, instead of "
        f"{next_sequence(screen.pair.last_sequence)}. A restart at 1 is taken in any case.",
        "Messages that were received before stay known by their MessageId and are not taken twice.",
        "Open incidents of this pair are resolved with your reason.",
    ]


def _clear_resync(screen: PairScreen) -> list[str]:
    said = [
        "You say that you have compared what both sides have of the time that is missing here; your reason is the "
        "evidence.",
    ]
    if screen.pair.direction == "in":
        said.append(
            "Documents that come in are new again, unless the hub knows them. If the partner still repeats one of that "
            "time, it is processed a second time."
        )
        said.append("Documents that are in doubt stay so until somebody settles them.")
    else:
        said.append("Nothing changes in what is sent. What applications submitted then and is not here is not sent.")
    return [*said, "The incident about it is resolved with your reason; other incidents stay open."]


_UNSENT = "What has been sent cannot be unsent."
VERBS: dict[str, PairVerb] = {
    verb.slug: verb
    for verb in (
        PairVerb(
            "resume",
            "Resume",
            "player-play",
            "primary",
            "pairs:operate",
            operating.pair_resume,
            "Resume a suspended pair: the same octets again, with a fresh budget of retries",
            _resume,
            _UNSENT,
            (
                "Certificate replaced",
                "Partner fixed firewall",
                "Partner's server is up again",
                "Tried with partner",
            ),
            "resumed",
        ),
        PairVerb(
            "retry-now",
            "Retry now",
            "refresh",
            "",
            "pairs:operate",
            operating.pair_retry_now,
            "Use the next attempt early; the budget is not reset",
            _retry_now,
            _UNSENT,
            ("Partner says they are up again", "Fixed on our side"),
            "sending again at once",
        ),
        PairVerb(
            "skip-head",
            "Skip message",
            "player-skip-forward",
            "danger",
            "pairs:skip",
            operating.pair_skip_head,
            "Give up the message in flight permanently, and restart the sequence at 1",
            _skip,
            "A skipped message is never sent again; it can only be submitted again, under another MessageId.",
            ("Partner cannot process this document", "Sent by other means"),
            "going on without the skipped message; the sequence restarts at 1",
            heavy=True,
            long_reason=True,
            done_requests="going on without the skipped message",
        ),
        PairVerb(
            "restart-sequence",
            "Restart sequence",
            "rotate-clockwise",
            "danger",
            "pairs:skip",
            operating.pair_restart_sequence,
            "Forget the numbers: the message in flight, or the next, goes out as number 1",
            _restart,
            "The numbers that were used are forgotten.",
            ("Partner lost their sequence state", "Agreed with partner to start at 1"),
            "restarted: the next message goes out as number 1",
            heavy=True,
            long_reason=True,
        ),
        PairVerb(
            "pause",
            "Pause",
            "player-pause",
            "",
            "pairs:operate",
            operating.pair_pause,
            "Hold the pair: it takes submissions and answers, and sends nothing",
            _pause,
            "Nothing here is irreversible: release the pair and it goes on.",
            ("Partner's maintenance window", "Investigation"),
            "paused",
        ),
        PairVerb(
            "release",
            "Release",
            "player-play",
            "primary",
            "pairs:operate",
            operating.pair_release,
            "End a pause",
            _release,
            _UNSENT,
            ("Maintenance is over", "Investigation is done"),
            "released",
        ),
        PairVerb(
            "expect-sequence",
            "Set expected number",
            "list-numbers",
            "danger",
            "pairs:skip",
            operating.pair_expect_sequence,
            "Inbound: set the number that is taken as next, after one side lost its state",
            _expect,
            "Messages with numbers in between are not asked for again.",
            ("Our state was restored from a backup", "Partner restarted at another number"),
            "set to expect another number",
            heavy=True,
        ),
        PairVerb(
            "clear-resync",
            "Clear resync",
            "arrows-exchange",
            "primary",
            "pairs:skip",
            operating.pair_clear_resync,
            "After a loss of memory: both sides were compared (the reason is the evidence), and what comes is new "
            "again",
            _clear_resync,
            "The hub does not look for repeats from that time any more.",
            ("Compared with the partner's list: nothing is missing", "What was missing was sent again, and settled"),
            "in sync again",
            long_reason=True,
        ),
    )
}
