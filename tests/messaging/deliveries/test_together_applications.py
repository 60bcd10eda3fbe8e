"""Applications that take part: the demo's, which is killed and goes on, and the one of docs/atomic-deliveries.md."""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from messaging.protocol.atomic.participant import Kind
from messaging.protocol.atomic.words import Phase
from messaging.protocol.ws.messages import Octets
from messaging.protocol.ws.reading import read_context
from rmhub.clock import FrozenClock
from tests import ROOT
from tests.messaging.deliveries.stage import Application, Asked, arrive, http, now_of, states, work
from tests.messaging.deliveries.together import atomic, coordination, shop
from tests.messaging.factories import PartnerSide
from tests.messaging.profiles.wsat.kit import LIMIT, Peer, decode, stored_body
from tests.worlds.atomic_participant import flush
from tests.worlds.atomic_run import Facts, Seen, judge, read
from tests.worlds.atomic_taking import Application as Taking
from tests.worlds.atomic_taking import Letter, Votes

pytestmark = pytest.mark.django_db


class Ours:
    """The demo's application with the hub of the test at the other end, without a network."""

    def __init__(self, peer: Peer, path: Path, votes: Votes) -> None:
        self.peer, self.path, self.votes = peer, path, votes
        self.heard: set[Any] = set()
        self.start()

    def start(self) -> None:
        """A new process on the same file."""
        self.taking = Taking(self.path, self.peer.base, self.votes)
        self.taking.open()

    def post(self, letter: Letter) -> bool:
        return self.peer.post(letter.address, letter.octets) == 202

    def exchange(self) -> None:
        """Messages go to and fro until nobody has anything more to say."""
        for _ in range(10):
            flush(self.taking, self.post)
            news = [one for one in self.peer.sent() if one.message.pk not in self.heard]
            if not news:
                return
            for one in news:
                self.heard.add(one.message.pk)
                self.taking.receive(one.ws)
        raise AssertionError("they never stop")

    def answer(self, asked: Asked) -> bytes:
        """POST /documents."""
        connections["default"] = self.connection
        context, version = read_context(base64.b64decode(asked.headers["rm-coordination-context"]))
        key = self.taking.take(context, version, asked.document_id, int(asked.headers["rm-redelivery-count"]))
        self.exchange()
        assert self.taking.registered(key, 0)
        return http(200)

    @property
    def connection(self) -> Any:
        return self._connection

    def plan(self, app: Application, path: str) -> None:
        self._connection = connections["default"]
        self._connection.inc_thread_sharing()
        app.plan(path, self.answer)

    @property
    def effects(self) -> list[str]:
        return [document for document, _ in read(self.path).effects]


@pytest.fixture
def ours(app: Application, tmp_path: Path) -> Ours:
    member = shop(app, "/ours")
    made = Ours(member.peer, tmp_path / "ours.sqlite3", Votes())
    made.plan(app, "/ours")
    atomic(member, retry_interval=0)
    return made


def test_it_commits_once(time: FrozenClock, partner: PartnerSide, ours: Ours) -> None:
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    assert ours.effects == []
    ours.exchange()
    assert (ours.effects, states(delivery), coordination().phase) == (
        ["m1@partner.example"],
        ["completed"],
        Phase.COMMITTED,
    )
    commit = next(one for one in ours.peer.sent() if one.kind == "Commit")
    ours.taking.receive(commit.ws)  # a copy that was late
    ours.exchange()
    assert ours.effects == ["m1@partner.example"]


def test_killed_when_it_is_prepared_it_goes_on_where_its_file_says(
    time: FrozenClock, partner: PartnerSide, ours: Ours
) -> None:
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    prepare = next(one for one in ours.peer.sent() if one.kind == "Prepare")
    ours.heard.add(prepare.message.pk)
    ours.taking.receive(prepare.ws)
    ours.start()
    assert ours.effects == []
    ours.exchange()
    assert (ours.effects, states(delivery)) == (["m1@partner.example"], ["completed"])


def test_killed_before_that_it_knows_of_nothing(time: FrozenClock, partner: PartnerSide, ours: Ours) -> None:
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    ours.start()
    ours.exchange()
    assert (ours.effects, states(delivery), coordination().phase) == ([], ["waiting"], Phase.ABORTED)
    work()
    ours.exchange()
    assert (ours.effects, states(delivery), now_of(delivery).redelivery_count) == (
        ["m1@partner.example"],
        ["completed"],
        1,
    )


@pytest.mark.parametrize(
    ("votes", "state", "outcome"),
    [(Votes(no=1.0), "waiting", "aborted"), (Votes(read_only=1.0), "completed", "read_only")],
    ids=["no", "read only"],
)
def test_it_votes_otherwise(
    time: FrozenClock, partner: PartnerSide, ours: Ours, votes: Votes, state: str, outcome: str
) -> None:
    ours.taking.votes = votes
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    ours.exchange()
    assert (ours.effects, states(delivery)) == ([], [state])
    assert list(read(ours.path).ended.values()) == [outcome]


def test_votes_are_the_same_at_every_run_and_have_their_shares() -> None:
    places = [Votes(7, 0.3, 0.2, place, 3) for place in range(3)]
    said = [[one.of(f"document {number}", 0) for one in places] for number in range(1000)]
    assert said == [[one.of(f"document {number}", 0) for one in places] for number in range(1000)]
    assert 250 < sum(Kind.WORK_FAILED in each for each in said) < 350
    assert max(Counter(each)[Kind.WORK_FAILED] for each in said) == 1


@pytest.mark.parametrize(
    ("phase", "state", "ends", "part", "documents"),
    [
        ("committed", "completed", ("committed", "committed"), 0, 0),
        ("committed", "completed", ("committed", "read_only"), 0, 0),
        ("committed", "completed", ("committed", "aborted"), 1, 1),
        ("aborted", "failed", ("aborted", "aborted"), 0, 0),
        ("aborted", "failed", ("aborted", "committed"), 1, 1),
        ("committing", "completed", ("committed", None), 0, 1),
    ],
)
def test_the_judge_sees_what_is_done_in_part(
    phase: str, state: str, ends: tuple[str | None, ...], part: int, documents: int
) -> None:
    seen = {
        str(place): Seen(
            {"urn:1": end} if end else {}, (("d1", "urn:1"),) if end == "committed" else (), 0 if end else 1
        )
        for place, end in enumerate(ends)
    }
    found = judge(Facts({"urn:1": phase}, {"d1": state}, 0, seen))
    assert (found.committed_in_part, found.documents_in_part) == (part, documents)
    assert found.settled is (phase != "committing")


def test_the_application_of_the_guide_takes_part(time: FrozenClock, partner: PartnerSide, app: Application) -> None:
    """Its code is run as it stands there."""
    guide = (ROOT / "docs" / "atomic-deliveries.md").read_text()
    code: dict[str, Any] = {}
    exec(guide.partition("```python\n")[2].partition("```")[0], code)
    member = shop(app, "/guide")
    url, ours = f"{member.peer.base}/tx", connections["default"]
    ours.inc_thread_sharing()
    kept: list[Any] = []

    def post(message: tuple[str, dict[str, str], bytes]) -> None:
        address, headers, octets = message
        assert member.peer.post(address, Octets(headers["Content-Type"], octets, headers["SOAPAction"])) == 202

    def document(asked: Asked) -> bytes:
        connections["default"] = ours
        post(code["register"](asked.headers["rm-coordination-context"], url, "k1"))
        (answer,) = member.peer.sent()
        kept.append(code["registered"](stored_body(answer.message, [])))
        return http(200)

    app.plan("/guide", document)
    atomic(member)
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    prepare = member.peer.sent()[-1]
    assert (prepare.kind, prepare.ws.addressing.to) == ("Prepare", url)
    assert ">k1<" in "".join(prepare.ws.echoed)
    post(code["vote"]("Prepared", kept[0], url, "k1"))
    assert states(delivery) == ["completed"]
    assert decode("text/xml", stored_body(prepare.message, []), max_bytes=LIMIT).kind == "Prepare"
    post(code["vote"]("Committed", kept[0], url, "k1"))
    assert coordination().phase == Phase.COMMITTED
