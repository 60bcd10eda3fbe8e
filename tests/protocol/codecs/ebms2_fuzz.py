"""Damaged ebms2 messages for as long as wanted: python -m tests.protocol.codecs.ebms2_fuzz --minutes 10

Mutations of the fixtures and of generated messages. The reader raises nothing but NotAMessage and MustBeHeld and needs
no longer than its limits allow; whatever it takes without defects is written again as the same message, and whatever it
takes with some can be answered. Ends with exit status 1 and the smallest failing entity that Hypothesis finds.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import replace

from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from messaging.protocol.codecs.ebms2 import decode, error_message, may_answer_with_error
from messaging.protocol.codecs.mime import MustBeHeld
from messaging.protocol.errors import NotAMessage

from .ebms2_generated import damaged, reshaped
from .ebms2_samples import RECEIVED, as_read, assert_valid, document_of, ebms, entity_of

_EXAMPLES = 500  # of one round
_LONGEST = 2.0  # seconds of CPU for one entity of some thousand octets; milliseconds are usual


def examine(content_type: str, body: bytes) -> str:
    """Reads an entity and does with it what its envelope is for. Returns what came of it, in a word."""
    try:
        envelope = decode(content_type, body)
    except NotAMessage as error:
        assert error.reason.isidentifier() and error.detail
        return error.reason
    except MustBeHeld:
        return "must be held"
    if envelope.defects and may_answer_with_error(envelope):
        answer = error_message(envelope, envelope.defects, message_id="1@x", timestamp=RECEIVED)
        assert_valid(document_of(answer))
        read = decode(*entity_of(answer))
        # Warnings may be left: an answer names the parties as the message does.
        assert (replace(read, defects=()), read.fault) == (answer, None)
    if envelope.defects:
        return "with defects"
    unsigned = replace(envelope, ebms=replace(ebms(envelope), signed=False))
    assert as_read(decode(*entity_of(unsigned))) == as_read(unsigned)
    return "without defects"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first round; each round has the next one")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.minutes * 60
    outcomes: Counter[str] = Counter()
    number = arguments.seed
    while time.monotonic() < end:

        @seed(number)
        @settings(max_examples=_EXAMPLES, deadline=None, database=None, phases=(Phase.generate, Phase.shrink))
        @given(entity=st.one_of(damaged(), reshaped()))
        def round_of_examples(entity: tuple[str, bytes]) -> None:
            before = time.process_time()
            outcomes[examine(*entity)] += 1
            assert time.process_time() - before < _LONGEST, "too slow"

        round_of_examples()
        number += 1
    for outcome, count in outcomes.most_common():
        print(f"{count:8} {outcome}")
    print(f"{outcomes.total():8} entities, seeds {arguments.seed} to {number - 1}")


if __name__ == "__main__":
    main()
