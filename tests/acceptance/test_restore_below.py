"""An old dump is read back into a hub that takes part in transactions which another coordinator decides."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import urllib3

from messaging.protocol.atomic.words import Note, Protocol, Request
from messaging.protocol.ws.messages import (
    CoordinationContext,
    Create,
    Created,
    EndpointReference,
    Register,
    Registered,
    WsMessage,
)
from messaging.protocol.ws.names import coordination_type
from tests.acceptance.test_restore import EVIDENCE, WITHIN, coordinator, manage, operator, restore, take
from tests.messaging.profiles.wsat.site import Member, Site, site_at
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.acceptance


@dataclass(slots=True)
class Taken:
    """One transaction of the superior. `told`: what the hub said to it; `open`: whether the superior remembers it."""

    identifier: str
    own: EndpointReference
    told: list[str] = field(default_factory=list)
    hub: EndpointReference | None = None
    member: Member | None = None
    open: bool = True


@dataclass(slots=True)
class Above(Site):
    """The superior, and the participants below the hub: they were here all the time, and forget what has ended."""

    taken: list[Taken] = field(default_factory=list)

    def begin(self) -> Taken:
        """A transaction that the hub has joined, with one participant below it."""
        kind = coordination_type(self.version)
        one = Taken(f"urn:above:{uuid.uuid4()}", self._place("coordinator"))
        self.taken.append(one)
        current = CoordinationContext(one.identifier, self._place("registration"), kind, 3_600_000)
        body = Create(kind, None, current)
        context = self._reply_to(self._ask(Request.CREATE, EndpointReference(f"{self.hub}/activation"), body), Created)
        asked, own = self.register(context.context, Protocol.DURABLE)
        one.member = self.join(own, self._reply_to(asked, Registered).coordinator, Protocol.DURABLE)
        return one

    def ask(self, one: Taken, note: Note) -> None:
        assert one.hub is not None
        assert self.say(note, one.hub, one.own) == 202

    def hears(self, one: Taken, note: Note) -> None:
        self.until(lambda: note.value in one.told)

    def until(self, done: Callable[[], bool]) -> None:
        eventually(lambda: (self.work(), done())[1], WITHIN)

    def _reply_to(self, asked: str, kind: type[Any]) -> Any:
        self.until(lambda: asked in self.replies)
        assert isinstance(self.replies[asked], kind)
        return self.replies[asked]

    def _reply(self, message: WsMessage) -> None:
        if isinstance(message.body, Register):
            self._registers(message, message.body)
            return
        one = next((one for one in self.taken if one.own.parameters[0] in message.echoed), None)
        if one is None:
            Site._reply(self, message)
            return
        one.told.append(message.kind)
        if not one.open and message.kind == Note.PREPARED:
            self.ask(one, Note.ROLLBACK)  # spec 5, coordinator's view, None: presumed abort

    def _registers(self, message: WsMessage, body: Register) -> None:
        one = self.taken[-1]
        one.hub = body.participant
        to, about = message.addressing.reply_to, message.addressing.message_id
        assert to is not None
        assert self._post(Request.REGISTERED, to, one.own, Registered(one.own), relates_to=about) == 202


@pytest.mark.long
def test_an_old_dump_of_a_participant_is_read_back(tmp_path: Path) -> None:
    """X19 for WS-AtomicTransaction below another coordinator: nobody hears an outcome that the hub cannot know."""
    with coordinator(without=1) as (ring, hub, _):
        mine = ring.members[0]
        login = urllib3.make_headers(basic_auth=f"{mine.name}:{mine.secret_in}")["authorization"]
        above = Above(mine.url, f"{ring.hub.url}/ws-tx", login)

        def ask(query: str) -> list[tuple[Any, ...]]:
            with psycopg.connect(ring.hub.database_url) as connection:
                return connection.execute(query).fetchall()  # type: ignore[call-overload,no-any-return]

        def state(one: Taken) -> tuple[str, bool]:
            """Its phase, and whether it is marked as in doubt."""
            rows = ask("SELECT identifier, phase, doubtful_since IS NOT NULL FROM messaging_coordination")
            return next(((phase, doubt) for name, phase, doubt in rows if name == one.identifier), ("gone", False))

        with site_at(above, urlsplit(mine.url).port or 0):
            voted, begun = above.begin(), above.begin()
            above.ask(voted, Note.PREPARE)
            above.hears(voted, Note.PREPARED)
            dump = tmp_path / "hub.dump"
            take(ring.hub, dump)
            later = above.begin()
            for one in (begun, later):
                above.ask(one, Note.PREPARE)
                above.hears(one, Note.PREPARED)
            for one in (voted, begun):
                above.ask(one, Note.COMMIT)
                above.hears(one, Note.COMMITTED)
                one.open = False
            assert voted.member is not None and begun.member is not None and later.member is not None
            assert voted.member.effects == begun.member.effects == ["committed"]

            hub.stop()
            restore(ring.hub, dump)
            assert "2 open transactions may have been decided after the backup" in manage(ring.hub, "after_restore")
            assert [state(one) for one in above.taken] == [("prepared", True), ("active", True), ("gone", False)]

            # What was voted on before the backup: the superior has forgotten it, and its Rollback is no proof.
            hub.start()
            above.until(lambda: state(voted)[0] == "aborted")
            above.work()
            assert voted.member.heard[-1] == "Rollback"
            assert state(voted) == ("aborted", True)
            assert state(begun) == ("active", True)

            # What was begun after the backup: nobody hears of an outcome before a person has compared both sides.
            told, heard = list(later.told), list(later.member.heard)
            for _ in range(2):
                above.ask(later, Note.COMMIT)
            lost = "SELECT occurrences FROM messaging_incident WHERE cause = 'transaction_lost' AND state = 'open'"
            above.until(lambda: any(number >= 3 for (number,) in ask(lost)))
            assert (later.told, later.member.heard) == (told, heard)

            person = operator(ring.hub)
            (one,) = person.get("/transactions?doubtful=true&phase=active")
            person.post(f"/transactions/{one['id']}/rollback", {"reason": EVIDENCE})
            above.until(lambda: state(begun)[0] == "aborted")
            everywhere = {"action": "pairs_clear_resync", "filter": {"resync": "true"}, "reason": EVIDENCE}
            assert person.post("/bulk-operations", everywhere)["matched"]
            eventually(lambda: not ask("SELECT 1 FROM messaging_pair WHERE resync_since IS NOT NULL"), WITHIN)
            assert not ask(lost)
            above.ask(later, Note.COMMIT)
            above.hears(later, Note.COMMITTED)
            new = above.begin()
            above.ask(new, Note.PREPARE)
            above.hears(new, Note.PREPARED)
            above.ask(new, Note.COMMIT)
            above.hears(new, Note.COMMITTED)
            assert new.member is not None and new.member.effects == ["committed"]
            assert state(new) == ("committed", False)
            manage(ring.hub, "check_invariants")
