"""Repeatable requests as the rest of the hub sees them: several in flight, each with its answer (spec 2)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from messaging import bench
from messaging.bench import Agreements, DocumentBench, Found, Headers, Sample, Understood, in_order, recognised
from messaging.claim import Claim, Due, Job, Recorded
from messaging.engine.snapshots import repeat_policy
from messaging.models import Event, Message, Pair
from messaging.profile import Errors
from messaging.profiles.one_by_one import OneByOne
from messaging.profiles.repeatable import repeating, replies, writing
from messaging.protocol import memory
from messaging.protocol.codecs import repeatable
from messaging.protocol.codecs.repeatable import HeaderProblem
from messaging.protocol.envelope import Semantics
from messaging.protocol.messages import REPEATABLE, REPEATABLE_FINAL, cancellable, move_repeatable
from messaging.protocol.repeating import deadline
from messaging.transports import Receipt
from partners import choices
from partners.choices import ExchangeIdentity
from partners.terms import Terms
from rmhub.language import gettext_lazy


class RepeatableBench(DocumentBench):
    """Test requests, and what the memory of requests makes of copies and of late ones."""

    def sample(self, terms: Terms, now: datetime) -> Sample:
        message_id, (service, action) = str(uuid.uuid4()), bench.document_of(terms)
        by_key = terms.exchange_identity == ExchangeIdentity.KEY
        identity = repeatable.Identity(message_id, None if by_key else now.replace(microsecond=0), by_key=by_key)
        headers = (*repeatable.write(identity), ("RM-Service", service), ("RM-Action", action))
        return Sample(message_id, bench.CONTENT_TYPE, bench.CONTENT, headers, service, action)

    def misread(self, terms: Terms, sample: Sample) -> list[str]:
        try:
            identity = repeatable.read({name.lower(): [value] for name, value in sample.headers})
        except HeaderProblem as error:
            return [str(error)]
        read_id = identity.request_id if identity is not None else ""
        return [] if read_id == sample.message_id else [f"Its id is {read_id}."]

    def repeat(self, terms: Terms, now: datetime) -> Found:
        stored = memory.Stored(memory.State.ACCEPTED, False, now, "a")
        found = memory.decide(_memory(terms, now), memory.Received(now, "a"), stored, now)
        return recognised(found.verdict is memory.Verdict.REPLAY)

    def order(self, terms: Terms, now: datetime) -> Found:
        late = now - timedelta(seconds=terms.memory_window + 1)
        found = memory.decide(_memory(terms, now), memory.Received(late, "a"), None, now)
        said = "Requests have no order; one from before the memory window is refused, and never taken silently."
        return in_order(found.verdict is memory.Verdict.REFUSE, said)

    def understand(self, content_type: str, headers: Headers, body: bytes, agreements: Agreements) -> Understood:
        try:
            identity = repeatable.read(headers)
        except HeaderProblem as problem:
            return Understood(choices.Profile.REPEATABLE.value, problems=[str(problem)])
        if identity is None:
            return Understood()
        said = {name: (headers.get(name) or [""])[0] for name in ("rm-service", "rm-action", "rm-conversation-id")}
        service, action = said["rm-service"], said["rm-action"]
        message = {
            "message_id": identity.request_id,
            "first_sent": identity.first_sent.isoformat() if identity.first_sent else None,
            "service": service,
            "action": action,
            "conversation_id": said["rm-conversation-id"],
        }
        mine = [terms for terms in agreements() if terms.profile == choices.Profile.REPEATABLE]
        problems = []
        if not mine:
            problems.append("There is no agreement for repeatable requests with you.")
        elif service and not any(one.allows(service, action, "receive") for one in mine):
            problems.append(f"{service} / {action} is in no agreement with you.")
        return Understood(choices.Profile.REPEATABLE.value, message, [bench.payload(content_type, body)], problems)


def _memory(terms: Terms, now: datetime) -> memory.Memory:
    window, long_ago = timedelta(seconds=terms.memory_window), now - timedelta(days=4000)
    return memory.Memory(window, timedelta(seconds=terms.clock_skew), long_ago, long_ago, now)


class RepeatableProfile(OneByOne):
    answered_at_once = True
    move = staticmethod(move_repeatable)
    bench = RepeatableBench()
    first_send = staticmethod(repeating.first_send)
    without_number = "Requests of this pair have no sequence numbers, so none is expected."
    no_restart = gettext_lazy("Requests of this pair have no sequence numbers, so there is nothing to restart.")

    def fields(self, message: Message, terms: Terms) -> dict[str, Any]:
        return writing.fields(message, terms)

    def last_send(self, message: Message, terms: Terms) -> datetime:
        assert message.first_sent_at is not None
        return deadline(message.first_sent_at, repeat_policy(terms))

    def send_due(self, due: Due, claim: Claim) -> None:
        repeating.resend(due, claim)

    def record(
        self,
        outcomes: Sequence[tuple[Job, Receipt]],
        pairs: Mapping[uuid.UUID, Pair],
        now: datetime,
        written: list[Event],
    ) -> Recorded:
        return Recorded(replies.record(outcomes, pairs, now, written))

    def check_submission(
        self, errors: Errors, terms: Terms, *, payloads: int, semantics: str, message_id: str, time_to_live: int | None
    ) -> None:
        if payloads > 1:
            errors.setdefault("payloads", []).append(
                _(
                    "A message of this agreement's profile is one HTTP request and has exactly one payload: "
                    "submit one message for each document."
                )
            )
        if len(message_id) > repeatable.MAX_ID:
            errors.setdefault("message_id", []).append(
                _("At most {most} characters under this agreement.").format(most=repeatable.MAX_ID)
            )
        if semantics and semantics != Semantics.ONCE_AND_ONLY_ONCE:
            errors.setdefault("semantics", []).append(
                _("Requests of this agreement's profile are remembered: leave it out, or say {semantics}.").format(
                    semantics=Semantics.ONCE_AND_ONLY_ONCE
                )
            )
        super().check_submission(
            errors, terms, payloads=payloads, semantics=semantics, message_id=message_id, time_to_live=time_to_live
        )

    def message_id(self, given: str, key: uuid.UUID) -> str:
        """Receivers of this profile compare UUIDs without regard to case."""
        return repeatable.canonical_id(given) if given else str(key)

    def final_states(self, semantics: str) -> frozenset[str]:
        return frozenset(REPEATABLE_FINAL)

    def cancellable_states(self, semantics: str) -> frozenset[str]:
        return cancellable(REPEATABLE)


PROFILE = RepeatableProfile()
