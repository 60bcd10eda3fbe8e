"""Messages of atomic transactions as the rest of the hub sees them: none waits for another (spec 5)."""

from __future__ import annotations

from datetime import datetime

from messaging.exceptions import OutsideAgreement, WrongState
from messaging.journal import events
from messaging.models import Event, Message, Pair
from messaging.profile import Acted, Errors
from messaging.profiles.ebxml.profile import EbxmlProfile
from messaging.profiles.wsat import outgoing
from messaging.profiles.wsat.bench import AtomicBench
from messaging.protocol.pair_state import Flow, Kind
from messaging.protocol.sender import REFUSALS
from partners.terms import Terms


class AtomicProfile(EbxmlProfile):
    numbered = False
    carries_documents = False
    bench = AtomicBench()
    verbs = frozenset({Kind.RETRY_NOW})  # they wait for nobody, and have no numbers
    without_number = "Messages of transactions have no sequence numbers, so none is expected."

    def let_go(self, pair: Pair, now: datetime) -> None:
        outgoing.let_go(pair, now)

    def refusal(self, pair: Pair, kind: Kind) -> str | None:
        if kind is Kind.RETRY_NOW:
            return None
        if kind is Kind.RESUME:
            return None if pair.flow == Flow.SUSPENDED else REFUSALS[(Flow.IDLE, kind)]
        if kind is Kind.SKIP:
            return (
                "Messages of transactions do not wait for each other: cancel one by itself, or settle its participant."
            )
        return "Messages of transactions have no sequence numbers, so there is nothing to restart."

    def act(self, pair: Pair, kind: Kind, terms: Terms | None, reason: str, now: datetime) -> Acted:
        if kind is not Kind.RESUME and not outgoing.let_go(pair, now):
            text = "Nothing waits on this pair: all its messages are answered, or on the wire."
            raise WrongState(text, state=pair.flow)
        return Acted()

    def cancel(self, pair: Pair, message: Message, terms: Terms, reason: str, now: datetime) -> list[Event]:
        written = outgoing.cancel(message, now)
        return [events.event("message.cancelled", now, pair=pair, message=message, data={"reason": reason}), *written]

    def cancellable_states(self, semantics: str) -> frozenset[str]:
        """Nobody takes back what is on the wire, although an answer may end it there."""
        return outgoing.CANCELLABLE

    def decode(self, content_type: str, body: bytes) -> None:
        return None

    def check_submission(
        self, errors: Errors, terms: Terms, *, payloads: int, semantics: str, message_id: str, time_to_live: int | None
    ) -> None:
        raise OutsideAgreement(
            f"Agreement {terms.tpa_id} is one of atomic transactions, which carry no documents: submit the document "
            "under another agreement."
        )


PROFILE = AtomicProfile()
