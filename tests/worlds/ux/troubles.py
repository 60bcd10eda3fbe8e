"""What happened lately: told through the hub's own services, with the answers that partners would have given."""

from __future__ import annotations

import heapq
import itertools
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from django.db.models import Min

from messaging.engine.claiming import Job, claim_due
from messaging.engine.recording import record
from messaging.entrance.refusals import Arrival
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import Message, Pair, ProbeReport, Signal
from messaging.pairs.services import operating, silence
from messaging.profiles.ebxml.receiving import receive
from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import DEFAULT_LIMITS, MessageType
from messaging.transports import Receipt
from messaging.transports.probe import ProbeStep, certificate_step
from partners.models import AgreementVersion
from partners.terms import Presented, Principal
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.worlds.ux import certificates
from tests.worlds.ux.directory import Lane, action
from tests.worlds.ux.plan import (
    ATTEMPTS,
    DOUBTS,
    EXPIRED,
    FAILURES,
    LONGEST,
    NO_ANSWER,
    NOT_RECOGNIZED,
    ORDERS,
    PAUSED,
    POISON,
    PROCESSED,
    RESUMED,
    SILENT,
    TROUBLES,
    WAITING_BEHIND,
    Plan,
)
from tests.worlds.ux.timeline import past

MONA = Actor("mona", "console", "192.0.2.44")
RESUMED_WHY = "Partner renewed the firewall rule, their ticket 8841"
THIRD_TIME = "order-4711@wimbrel.example"
_TAKEN = Receipt(ok=True, status=204, response=b"HTTP 204 No Content\r\n\r\n")
_BUSY = Receipt(
    ok=False,
    status=503,
    cause="http_5xx",
    detail="The partner answered HTTP 503.",
    response=b"HTTP 503 Service Unavailable\r\nServer: gateway\r\nRetry-After: 120\r\n\r\nqueue full",
)
_BROKEN = Receipt(
    ok=False,
    status=500,
    cause="http_5xx",
    detail="The partner answered HTTP 500.",
    response=b"HTTP 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\ncannot map line 3: unknown unit 'PAL'",
)
_CLOSED = Receipt(ok=False, cause="connect_refused", detail="[Errno 111] Connection refused")
_EXPIRED = Receipt(
    ok=False, cause="cert_expired", detail="certificate verify failed: certificate has expired", permanent=True
)
_SLOW = Receipt(ok=False, cause="read_timeout", detail="Read timed out. (read timeout=5)")
_LOST = Receipt(ok=False, cause="connection_reset", detail="Remote end closed connection without response")


class Story:
    """Things to come, in the order of their times; between them the hub works on what is due."""

    def __init__(self, plan: Plan, lanes: list[Lane]) -> None:
        self.plan = plan
        self.lanes = {key: next(lane for lane in lanes if lane.trouble is trouble) for key, trouble in TROUBLES.items()}
        self.partners = {lane.outbound.pk: lane.partner for lane in lanes}
        self.answers: dict[uuid.UUID, Receipt] = {}
        self._agenda: list[tuple[datetime, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def at(self, when: datetime, what: Callable[[], object]) -> None:
        """Something to do then."""
        if when < self.plan.now:
            heapq.heappush(self._agenda, (when, next(self._order), what))

    def tell(self) -> None:
        """Goes through the agenda, up to now."""
        with past(self._agenda[0][0]) as moving:
            while self._agenda:
                when, _, what = heapq.heappop(self._agenda)
                self._work_until(moving, when)
                what()
                self._work()
            self._work_until(moving, self.plan.now)

    def submit(self, key: str, number: int, message_id: str = "", *, body: str = "", semantics: str = "") -> Message:
        """One document of our own for this partner."""
        lane = self.lanes[key]
        kind = action(number)
        content = body or (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<{kind} xmlns="urn:oasis:names:specification:ubl:schema:xsd:{kind}-2">'
            f"<ID>{lane.slug}-{number}</ID><IssueDate>{clock.now():%Y-%m-%d}</IssueDate>"
            f"<Buyer><Name>Nordlys Retail</Name><IBAN>NO9386011117947</IBAN></Buyer>"
            f"<Seller><Name>{lane.partner.name}</Name></Seller>"
            f"<Line><Item>Pallet {number % 97}</Item><Quantity>{1 + number % 12}</Quantity></Line></{kind}>"
        )
        payload = NewPayload(content.encode(), "application/xml", filename=f"{kind.lower()}-{number}.xml", label=kind)
        return message_submit(
            agreement=lane.tpa_id,
            service=ORDERS,
            action=kind,
            payloads=[payload],
            message_id=message_id,
            submitted_by="erp",
            semantics=semantics,
        ).message

    def _work_until(self, moving: FrozenClock, when: datetime) -> None:
        while (due := self._next_due()) is not None and due < when:
            moving.move(max(0.0, (due - clock.now()).total_seconds()) + 0.02)
            self._work()
        moving.move(max(0.0, (when - clock.now()).total_seconds()))

    @staticmethod
    def _next_due() -> datetime | None:
        times = (
            Pair.objects.filter(due_at__isnull=False, gate="open").aggregate(at=Min("due_at"))["at"],
            Message.objects.filter(due_at__isnull=False).aggregate(at=Min("due_at"))["at"],
            Signal.objects.filter(due_at__isnull=False).aggregate(at=Min("due_at"))["at"],
        )
        return min((at for at in times if at is not None), default=None)

    def _work(self) -> None:
        for _ in range(20):
            jobs = claim_due(limit=64)
            if not jobs:
                return
            record([(job, self._answer(job)) for job in jobs])
            for job in jobs:
                self._acknowledge(job)

    def _answer(self, job: Job) -> Receipt:
        return self.answers.get(job.pair_id, _TAKEN) if job.pair_id is not None else _TAKEN

    def _acknowledge(self, job: Job) -> None:
        """What the partner sends back when it took a message."""
        if job.pair_id is None or self._answer(job) is not _TAKEN or job.pair_id in self.deaf:
            return
        party = self.partners[job.pair_id]
        arrival = acknowledgement(job.parcel.content_type, job.parcel.body)
        if arrival is not None:
            receive(arrival, limits=DEFAULT_LIMITS, principal=Principal(party.pk, party.name, uuid.UUID(int=0)))

    @property
    def deaf(self) -> set[uuid.UUID]:
        """Those whose acknowledgements never come."""
        return {self.lanes["retrying-ack"].outbound.pk}


def acknowledgement(content_type: str, body: bytes) -> Arrival | None:
    """The Acknowledgement of a message as it stands on the wire; None for what is not acknowledged.

    Raises NotAMessage.
    """
    envelope = ebxml.decode(content_type, body)
    if envelope.message_type is not MessageType.NORMAL:
        return None
    now = clock.now()
    answer = ebxml.acknowledgement(
        envelope, message_id=f"ack-{envelope.message_id}", timestamp=now, error_uri=envelope.routing[0].receiver_uri
    )
    wire = ebxml.encode(answer)
    return Arrival(wire.content_type, wire.join([]), Presented(), "127.0.0.1")


def looked_at(folder: Path, lane: Lane) -> None:
    """What a look at the partner's server found while it showed its old certificate."""
    endpoint = AgreementVersion.objects.select_related("partner_endpoint").get(pk=lane.version_id).partner_endpoint
    now = clock.now()
    server = urlsplit(endpoint.address)
    steps = [
        ProbeStep("dns", detail=f"{server.hostname} is {server.hostname}.", seconds=0.001),
        ProbeStep("tcp", detail=f"Port {server.port} of {server.hostname} takes connections.", seconds=0.001),
        ProbeStep("tls", detail="TLSv1.3, TLS_AES_256_GCM_SHA384.", seconds=0.012),
        certificate_step(certificates.der(folder, "old"), now),
        ProbeStep("http", detail="A web server answers: HTTP 501.", seconds=0.004),
    ]
    report = ProbeReport.objects.create(
        endpoint=endpoint,
        address=endpoint.address,
        ok=True,
        steps=[step.as_dict() for step in steps],
        actor=MONA.name,
        at=now,
    )
    audit.record(MONA, "endpoint.probe", endpoint, after={"ok": True, "cause": "", "report": report.public_id})


def happen(plan: Plan, lanes: list[Lane]) -> dict[str, object]:
    """Tells the whole story. Returns what a visitor needs to know of it."""
    story = Story(plan, lanes)
    now, lane = plan.now, story.lanes
    pair = {key: found.outbound.pk for key, found in lane.items()}

    def set_answer(key: str, receipt: Receipt) -> Callable[[], None]:
        def change() -> None:
            story.answers[pair[key]] = receipt

        return change

    start = {key: now - trouble.since for key, trouble in TROUBLES.items()}
    # Three attempts, long ago.
    story.at(start[ATTEMPTS], set_answer(ATTEMPTS, _BUSY))
    story.at(start[ATTEMPTS], lambda: story.submit(ATTEMPTS, 4711, THIRD_TIME))
    story.at(start[ATTEMPTS] + timedelta(minutes=7), set_answer(ATTEMPTS, _TAKEN))
    # Somebody looked at a server while its old certificate was good: what has changed since is seen by that.
    story.at(start[EXPIRED] - timedelta(days=12), lambda: looked_at(plan.folder, lane[EXPIRED]))
    # Last week's suspension, which somebody resumed.
    story.at(start[RESUMED], set_answer(RESUMED, _CLOSED))
    story.at(start[RESUMED], lambda: story.submit(RESUMED, 1))
    story.at(start[RESUMED] + timedelta(minutes=47), set_answer(RESUMED, _TAKEN))
    story.at(
        start[RESUMED] + timedelta(minutes=48),
        lambda: operating.pair_resume(pair_id=pair[RESUMED], actor=MONA, reason=RESUMED_WHY),
    )
    # Failures of yesterday afternoon, for one partner.
    afternoon = datetime.combine((now - timedelta(days=1)).date(), time(13, 30), UTC)
    story.at(afternoon, set_answer(FAILURES, _BROKEN))
    for number, minute in enumerate((5, 40, 44, 51, 58, 63, 70, 77, 84, 100)):
        story.at(
            afternoon + timedelta(minutes=minute),
            lambda number=number: story.submit(FAILURES, number, semantics="AtMostOnce"),  # type: ignore[misc]
        )
    story.at(afternoon + timedelta(minutes=110), set_answer(FAILURES, _TAKEN))
    for key, receipt in (
        *((LONGEST, _CLOSED), (EXPIRED, _EXPIRED), (POISON, _BROKEN), ("retrying-500", _BROKEN)),
        *(("retrying-slow", _SLOW), ("retrying-ack", _TAKEN), ("retrying-503", _BUSY)),
    ):
        story.at(start[key], set_answer(key, receipt))
        body = "<Order><ID>poison</ID><Line><Unit>PAL</Unit></Line></Order>" if key == POISON else ""
        story.at(start[key], lambda key=key, body=body: story.submit(key, 1, body=body))  # type: ignore[misc]
    story.at(
        start[PAUSED], lambda: operating.pair_pause(pair_id=pair[PAUSED], actor=MONA, reason="Partner moves house")
    )
    for key, count in WAITING_BEHIND.items():
        room = (now - start[key]) * 0.95
        for number in range(count):
            when = start[key] + timedelta(minutes=2) + room * ((number + 1) / (count + 2))
            story.at(when, lambda key=key, number=number: story.submit(key, number + 2))  # type: ignore[misc]
    # Requests whose fate nobody knows.
    story.at(start[DOUBTS], set_answer(DOUBTS, _LOST))
    kinds = ["processed"] * PROCESSED + ["unknown"] * NOT_RECOGNIZED + ["silent"] * NO_ANSWER
    for number, kind in enumerate(kinds):
        # Spread, so that they do not lie together.
        name = f"{kind}-{number:02d}@corvid.example"
        story.at(
            start[DOUBTS] + timedelta(seconds=20 * (number * 7 % len(kinds))),
            lambda name=name, number=number: story.submit(DOUBTS, number, name),  # type: ignore[misc]
        )
    # Somebody who should have sent something hours ago.
    Pair.objects.filter(pk=lane[SILENT].inbound.pk).update(
        expected_every=3600, silence_grace=1800, rhythm_since=start[SILENT] - timedelta(days=30),
        runbook="Call their night desk first: **+47 55 00 00 00**. Their exporter stops after updates.",
    )  # fmt: skip
    story.at(start[SILENT] + timedelta(hours=2), lambda: silence.look(clock.now()))
    story.tell()
    return {
        "partners": {key: found.partner.name for key, found in lane.items()},
        "pairs": {key: found.outbound.code for key, found in lane.items()},
        "silent_pair": lane[SILENT].inbound.code,
        "third_time": THIRD_TIME,
        "failures": {"from": (afternoon + timedelta(minutes=30)).isoformat(), "count": 8},
        "resumed": {"actor": MONA.name, "reason": RESUMED_WHY},
        "doubts": {"processed": PROCESSED, "not_recognized": NOT_RECOGNIZED, "no_answer": NO_ANSWER},
    }
