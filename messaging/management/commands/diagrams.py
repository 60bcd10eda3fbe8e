"""`manage.py diagrams`: writes docs/state-machines.md from the tables of the protocol core."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from messaging.management import atomic_diagrams
from messaging.management.drawing import cell, picture, table
from messaging.protocol.acceptance import RULES, InboundState, Received, Rule, Verdict
from messaging.protocol.ebms import acceptance as ebms
from messaging.protocol.ebms import sending
from messaging.protocol.envelope import Semantics
from messaging.protocol.messages import (
    EBMS2,
    EBMS2_FINAL,
    RELIABLE,
    RELIABLE_FINAL,
    REPEATABLE,
    REPEATABLE_FINAL,
    STREAM,
    STREAM_FINAL,
    UNRELIABLE,
    UNRELIABLE_FINAL,
    State,
)
from messaging.protocol.pair_state import GATES, Flow, Gate, Kind
from messaging.protocol.repeating import ENDS, STEPS
from messaging.protocol.sender import REFUSALS, TABLE
from messaging.protocol.streams import acceptance as streams
from messaging.protocol.streams import final, outgoing

PATH = Path("docs") / "state-machines.md"
HEAD = """# State machines

Made by `manage.py diagrams` from the tables in `messaging/protocol`, and checked by a test. Do not edit it; change the
tables and run the command. Numbers are sections of spec 1, ebXML Reliable Messaging v0-080, unless they say otherwise.
"""
SENDER = """## The sender of a pair

One for each outbound pair (`sender.TABLE`). Moves that leave the pair where it is are in the table below, not in the
picture.
"""
CELLS = "What each event does in each state. Stays: only counts, numbers or times change, if anything. A dash: refused."
REFUSED = "Refused, with the state unchanged:"
GATE = """## The gate of a pair

A person's hold on the pair, apart from its flow (`pair_state.GATES`). Behind a closed gate nothing is transmitted, and
answers are still taken.
"""
RELIABLE_HEAD = """## A reliable message

OnceAndOnlyOnce (`messages.RELIABLE`). `failed` is no end: its pair is suspended, and a person or a late
acknowledgement decides.
"""
UNRELIABLE_HEAD = """## A message that is sent once

BestEffort and AtMostOnce (`messages.UNRELIABLE`).
"""
REPEATABLE_HEAD = """## A repeatable request

Spec 2: HTTP with a message id and a first-instance time (`messages.REPEATABLE`). `in_doubt` is the end for the
machine: the partner may have executed it, its memory of the id is over, and a person finds out.
"""
REPLIES = (
    "What each reply to an attempt leads to (`repeating.STEPS`), and how far the copy can have reached; a repeat that "
    "would come after the window is none."
)
ENDS_HEAD = (
    "When the window is over, the copy that reached furthest decides (`repeating.ENDS`). nowhere: no server of the "
    "partner answered; log_in: our credential was refused; entrance: turned away for another reason that lies in the "
    "configuration; service: it may have been executed."
)
EBMS2_HEAD = """## A message of ebXML Messaging 2.0

OASIS, 2002 (`messages.EBMS2`). Several of a pair are in flight, each with its own retries. What nobody acknowledges
is held while its pair is suspended; when its time is over (TimeToLive, PersistDuration), its end is that of a
repeatable request.
"""
EBMS2_REPLIES = "What the response to an attempt leads to (`ebms.sending.STEPS`), unless it has a signal in its body."
EBMS2_ACCEPTANCE = """Acceptance of what is received (`ebms.acceptance.RULES`), in their order: the first that applies
decides. Sections are those of ebXML Messaging 2.0.
"""
STREAM_HEAD = """## A message of a transactional stream

Spec 3 (`messages.STREAM`). What is between its first send and an order acknowledgement follows its stream. `stored`: an
order acknowledgement covers it, and a final receipt is agreed. `failed` is a dead letter: it never went out, or the
partner refused it.
"""
OUTGOING_HEAD = """## The sender of a stream

Spec 3 and [MS-MQQB] (`streams.outgoing.TABLE`): what each event does to a pair whose messages go as a stream. Stays:
only the messages in flight, numbers or times change, if anything. A dash: refused.
"""
INCOMING_HEAD = """## Acceptance of a stream's messages

Spec 3 (`streams.acceptance.RULES`), in their order: the first that applies decides. The incoming numbers move when a
message is accepted, and not otherwise. A gap may still close, so such a message is held back for a moment.
"""
FINAL_HEAD = "What a receiver says about one message (`streams.final.OWING`):"
ACCEPTANCE = """## Acceptance of what is received

`acceptance.RULES`, in their order: the first that applies decides. A pair's last number moves only when a reliable
message is accepted, and when its sender restarts the sequence with a stored one.
"""


class Command(BaseCommand):
    help = "Writes docs/state-machines.md from the tables of the protocol core."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="write nothing; fail when the file is stale")

    def handle(self, *args: Any, **options: Any) -> None:
        path = Path(settings.BASE_DIR) / PATH
        text = document()
        if not options["check"]:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            self.stdout.write(f"{PATH} written")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            raise CommandError(f"{PATH} does not show the tables as they are; run manage.py diagrams.")


def document() -> str:
    """The whole file."""
    flows = {
        flow: [(kind, target) for kind, move in row.items() for target in move.targets] for flow, row in TABLE.items()
    }
    blocks = [
        HEAD,
        SENDER,
        picture(Flow.IDLE, flows, loops=False),
        CELLS,
        table(["event", *Flow], ([kind, *(cell(TABLE[flow].get(kind), flow) for flow in Flow)] for kind in Kind)),
        REFUSED,
        table(["state", "event", "why"], ([flow, kind, why] for (flow, kind), why in REFUSALS.items())),
        GATE,
        picture(Gate.OPEN, {gate: list(row.items()) for gate, row in GATES.items()}),
        RELIABLE_HEAD,
        picture(State.QUEUED, {state: list(row.items()) for state, row in RELIABLE.items()}, RELIABLE_FINAL),
        UNRELIABLE_HEAD,
        picture(State.QUEUED, {state: list(row.items()) for state, row in UNRELIABLE.items()}, UNRELIABLE_FINAL),
        REPEATABLE_HEAD,
        picture(State.QUEUED, {state: list(row.items()) for state, row in REPEATABLE.items()}, REPEATABLE_FINAL),
        REPLIES,
        table(["reply", "leads to", "reached", "source"], _replies()),
        ENDS_HEAD,
        table(["reached", "leads to", "cause"], _ends()),
        EBMS2_HEAD,
        picture(State.QUEUED, {state: list(row.items()) for state, row in EBMS2.items()}, EBMS2_FINAL),
        EBMS2_REPLIES,
        table(
            ["response", "leads to", "reached", "source"],
            ([reply, row.act, row.reached.name.lower(), row.source] for reply, row in sending.STEPS.items()),
        ),
        EBMS2_ACCEPTANCE,
        table(
            ["no.", "rule", "verdict", "source"],
            ([str(n), rule.name, rule.verdict, rule.source] for n, rule in enumerate(ebms.RULES, start=1)),
        ),
        STREAM_HEAD,
        picture(State.QUEUED, {state: list(row.items()) for state, row in STREAM.items()}, STREAM_FINAL),
        OUTGOING_HEAD,
        table(
            ["event", *outgoing.Flow],
            ([kind, *(cell(outgoing.TABLE[flow].get(kind), flow) for flow in outgoing.Flow)] for kind in outgoing.Kind),
        ),
        INCOMING_HEAD,
        table(
            ["no.", "rule", "verdict", "source"],
            ([str(n), rule.name, rule.verdict, rule.source] for n, rule in enumerate(streams.RULES, start=1)),
        ),
        FINAL_HEAD,
        table(["reason", "class", "meaning", "the sequence moves", "told", "source"], _final_receipts()),
        *atomic_diagrams.blocks(),
        ACCEPTANCE,
        table(["no.", "rule", "verdict", "answer", "source"], _rules()),
    ]
    return "\n\n".join(block.strip() for block in blocks) + "\n"


def _final_receipts() -> Iterator[list[str]]:
    for reason, row in final.OWING.items():
        known = final.CLASSES[row.code]
        told = "always" if row.always else "when asked for"
        yield [reason, f"0x{row.code:04X}", known.meaning, "yes" if row.advances else "no", told, row.source]


def _replies() -> Iterator[list[str]]:
    for reply, row in STEPS.items():
        yield [reply, row.act, row.reached.name.lower() if row.reached else "as before", row.source]


def _ends() -> Iterator[list[str]]:
    for reached, (act, cause) in ENDS.items():
        yield [reached.name.lower(), act, f"`{cause}`"]


def _rules() -> Iterator[list[str]]:
    for number, rule in enumerate(RULES, start=1):
        yield [str(number), rule.name, *_decision(rule), rule.source]


def _decision(rule: Rule) -> tuple[str, str]:
    """What a rule decides and answers. Neither depends on the message: a rule is one verdict."""
    semantics = Semantics.ONCE_AND_ONLY_ONCE
    decision = rule.decide(InboundState(22, "last"), Received("id", semantics, 23, known=False))
    if decision.verdict is Verdict.REJECT:
        return decision.verdict, f"Error {decision.error.code}" if decision.error else "Error, as the defect says"
    return decision.verdict, "Acknowledgement" if decision.acknowledge else "none"
