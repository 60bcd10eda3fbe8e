"""Members of atomic triggers, for tests: a real HTTP service that takes part in transactions.

`members` makes an atomic trigger whose members are services of `Application` at paths of their own. Each answers a
document as `Shop.plan` says; `enlisting` is an answer that registers with the coordinator before it is given.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.db import connections

from messaging.models import Coordination, Trigger
from messaging.profiles.wsat import due
from messaging.protocol.atomic.words import Note, Protocol
from messaging.protocol.ws.messages import CoordinationContext
from messaging.protocol.ws.reading import read_context
from tests.messaging.deliveries.stage import Answer, Application, Asked, http, make_trigger
from tests.messaging.profiles.wsat.kit import Peer, Place, peer


@dataclass(slots=True)
class Shop:
    """One application: its agreement, its service, and the transactions that it takes part in."""

    peer: Peer
    app: Application
    path: str
    protocol: Protocol = Protocol.DURABLE
    contexts: list[CoordinationContext] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)

    def plan(self, *answers: Answer) -> None:
        self.app.plan(self.path, *answers)

    def enlisting(self, answer: bytes = b"", first: Note | None = None) -> Callable[[Asked], bytes]:
        """Registers, says `first` if that is given, and answers 200 unless told otherwise."""
        ours = connections["default"]
        ours.inc_thread_sharing()

        def answering(asked: Asked) -> bytes:
            # The thread of the test waits for this answer, so that its database connection is free.
            connections["default"] = ours
            context, _ = read_context(base64.b64decode(asked.headers["rm-coordination-context"]))
            self.contexts.append(context)
            self.places.append(self.peer.register(context, self.protocol))
            if first is not None:
                self.last.say(first)
            return answer or http(200)

        return answering

    @property
    def last(self) -> Place:
        return self.places[-1]

    @property
    def documents(self) -> list[Asked]:
        return self.app.at(self.path)


def shop(app: Application, path: str, **terms: Any) -> Shop:
    """An application that answers at this path, and takes part in every transaction until it is planned otherwise."""
    made = Shop(peer(partner_uri=app.url(f"/ws{path}"), **terms), app, path)
    made.plan(made.enlisting())
    return made


def atomic(*members: Shop, callables: tuple[str, ...] = (), **values: Any) -> Trigger:
    """A trigger for every document, whose members are these services and callables."""
    whole = make_trigger(kind="atomic", **values)
    for number, one in enumerate(members):
        make_trigger(
            name=f"{whole.name} member {number}",
            kind="http",
            url=one.app.url(one.path),
            member_of_id=whole.pk,
            atomic_agreement_id=one.peer.terms.agreement_id,
        )
    for name in callables:
        make_trigger(name=f"{whole.name} {name}", kind="callable", callable_name=name, member_of_id=whole.pk)
    return whole


def coordination() -> Coordination:
    """The newest transaction."""
    return Coordination.objects.latest("id")


def decide() -> None:
    """What a worker does with transactions that are due."""
    due.run_due()
