"""Test requests, and what the memory of requests makes of copies and of late ones."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from messaging import bench
from messaging.bench import Agreements, DocumentBench, Found, Headers, Sample, Understood, in_order, recognised
from messaging.protocol import memory
from messaging.protocol.codecs import repeatable
from messaging.protocol.codecs.repeatable import HeaderProblem
from partners.choices import ExchangeIdentity, Profile
from partners.terms import Terms


class RepeatableBench(DocumentBench):
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
            return Understood(Profile.REPEATABLE.value, problems=[str(problem)])
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
        mine = [terms for terms in agreements() if terms.profile == Profile.REPEATABLE]
        problems = []
        if not mine:
            problems.append("There is no agreement for repeatable requests with you.")
        elif service and not any(one.allows(service, action, "receive") for one in mine):
            problems.append(f"{service} / {action} is in no agreement with you.")
        return Understood(Profile.REPEATABLE.value, message, [bench.payload(content_type, body)], problems)


def _memory(terms: Terms, now: datetime) -> memory.Memory:
    window, long_ago = timedelta(seconds=terms.memory_window), now - timedelta(days=4000)
    return memory.Memory(window, timedelta(seconds=terms.clock_skew), long_ago, long_ago, now)
