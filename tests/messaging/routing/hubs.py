"""Several hubs in one process, and the network between them: real services on tables of their own.

Each hub has a schema of the test database, and `with hub:` makes it the one that everything reads and writes. What it
sends to a host that belongs to another hub goes into that hub's entrance; `Network.faults` may lose or repeat it on the
way. So a message goes from hub to hub by `network.work()`, round by round, with the clock in the test's hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection

from messaging.engine import forgetting, pairs, subscriptions
from messaging.engine import memory as hub_memory
from messaging.engine.claiming import Job
from messaging.entrance import authentication
from messaging.entrance.refusals import Arrival
from messaging.journal.audit import Actor
from messaging.models import Message, Pair, Route
from messaging.profiles.ebms2 import receiving as ebms2
from messaging.profiles.repeatable import exchanging
from messaging.profiles.repeatable.reading import Request
from messaging.protocol.envelope import DEFAULT_LIMITS
from messaging.routing.services import routes
from messaging.transports import Parcel, Receipt
from messaging.transports.http import status_cause
from partners import registry
from partners.models import AgreementVersion, Party
from partners.terms import Presented, Terms
from rmhub import clock
from tests.messaging.factories import LOST, brought, link, work
from tests.messaging.profiles.stream import partner as streams
from tests.partners.factories import (
    make_agreement,
    make_credential,
    make_endpoint,
    make_outbound_credential,
    make_party,
)

WHO = Actor("operator")
WHY = "the test says so"
SERVICE = "urn:orders"
_SKIPPED = ("django_", "auth_", "otp_")

Fault = Callable[[str, str, Parcel], Iterable[bool]]  # sender, receiver, parcel -> one arrival each; True: answered


def make_schema(name: str) -> None:
    """All tables of the test database once more, empty, in a schema of this name; without foreign keys."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        cursor.execute(f"CREATE SCHEMA {name}")
        cursor.execute(
            "SELECT c.relname, pg_get_partkeydef(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
        )
        for table, partitioned in cursor.fetchall():
            if not table.startswith(_SKIPPED):
                by = f"PARTITION BY {partitioned}" if partitioned else ""
                cursor.execute(f'CREATE TABLE {name}."{table}" (LIKE public."{table}" INCLUDING ALL) {by}')


@dataclass(slots=True)
class Hub:
    """One hub. `parties`: those it knows, by name; `party` is its own."""

    name: str
    schema: str
    party: Party = field(init=False)
    parties: dict[str, Party] = field(default_factory=dict)
    _registry: registry.Registry | None = None
    _before: list[tuple[str, registry.Registry | None]] = field(default_factory=list)

    def __enter__(self) -> Hub:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_schema()")
            self._before.append((cursor.fetchone()[0], registry._snapshot))
        _look_at(self.schema, self._registry)
        return self

    def __exit__(self, *_: object) -> None:
        self._registry = registry._snapshot
        _look_at(*self._before.pop())

    def knows(self, name: str) -> Party:
        """A party that is not this hub's own."""
        if name not in self.parties:
            self.parties[name] = make_party(name, identifiers=[("DUNS", f"{name}-1")])
        return self.parties[name]

    def agrees(
        self, partner: str, tpa_id: str, *, hop: str = "", ours: str = "", theirs: str = "", **terms: Any
    ) -> AgreementVersion:
        """An agreement in force with the partner, whose messages go through `hop`; the endpoints are `uri(...)`s."""
        through = self.knows(hop or partner)
        version = make_agreement(
            own_party=self.party,
            partner=self.knows(partner),
            own_endpoint=_endpoint(self.party, ours or uri(self.name)),
            partner_endpoint=_endpoint(through, theirs or uri(hop or partner)),
            tpa_id=tpa_id,
            **terms,
        )
        registry.reset()
        return version

    def routes_to(self, party: str, onward: AgreementVersion, **fields: Any) -> Route:
        made = routes.route_create(
            name=fields.pop("name", f"to {party}"),
            party_context="DUNS",
            party_value=f"{party}-1",
            onward=onward.agreement_id,
            actor=WHO,
            reason=WHY,
            **fields,
        )
        registry.reset()
        return made

    def terms(self, tpa_id: str) -> Terms:
        found = registry.current().by_tpa_id(tpa_id)
        assert found is not None
        return found

    def outbound(self, tpa_id: str) -> Pair:
        return Pair.objects.get(pk=pairs.outbound_pair_id(self.terms(tpa_id)))

    def inbound(self, tpa_id: str) -> Pair:
        return Pair.objects.get(pk=pairs.inbound_pair_id(self.terms(tpa_id)))

    def received(self) -> list[Message]:
        return list(Message.objects.filter(direction="in").order_by("id"))

    def sent(self) -> list[Message]:
        return list(Message.objects.filter(direction="out").order_by("id"))


@dataclass(slots=True)
class Network:
    """The hubs and what is between them."""

    hubs: dict[str, Hub]
    faults: Fault = lambda sender, receiver, parcel: (True,)
    down: set[str] = field(default_factory=set)  # hubs that cannot be reached
    parcels: list[tuple[str, str, Parcel]] = field(default_factory=list)  # sender, receiver, what arrived

    def __getitem__(self, name: str) -> Hub:
        return self.hubs[name]

    def work(self, *names: str, rounds: int = 40) -> list[Job]:
        """All that is due now at these hubs (or all), until nothing is any more."""
        done: list[Job] = []
        for _ in range(rounds):
            jobs = [job for name in names or tuple(self.hubs) for job in self._at(self.hubs[name])]
            if not jobs:
                return done
            done += jobs
        raise AssertionError("there is no end to it")

    def between(self, sender: str, receiver: str) -> list[Parcel]:
        return [parcel for of, to, parcel in self.parcels if (of, to) == (sender, receiver)]

    def _at(self, hub: Hub) -> list[Job]:
        with hub, link(lambda parcel: self._carry(hub, parcel)):
            return work()

    def _carry(self, sender: Hub, parcel: Parcel) -> Receipt:
        name = (urlsplit(parcel.address).hostname or "").partition(".")[0].upper()
        if name in self.down:
            return Receipt(ok=False, cause="connect_refused", detail=f"{name} is down.")
        receiver = self.hubs[name]
        receipt = LOST
        for answered in self.faults(sender.name, name, parcel):
            self.parcels.append((sender.name, name, parcel))
            with receiver:
                receipt = _enter(parcel)
            if not answered:
                receipt = LOST
        return receipt


def uri(name: str, kind: str = "msh") -> str:
    return f"https://{name.lower()}.example/{kind}"


def join(one: Hub, other: Hub) -> None:
    """Gives both hubs the credentials under which they meet."""
    for here, there in ((one, other), (other, one)):
        with here:
            make_outbound_credential(
                here.knows(there.name), username=here.name, secret=f"secret {here.name} to {there.name}"
            )
            make_credential(here.knows(there.name), username=there.name, secret=f"secret {there.name} to {here.name}")


@contextmanager
def network(names: str) -> Iterator[Network]:
    """One hub for each letter, with its own party of that name. The schemas have been made (`conftest`)."""
    before = registry._snapshot
    made = Network({name: Hub(name, f"hub_{number}") for number, name in enumerate(names, start=1)})
    for hub in made.hubs.values():
        with hub:
            hub.party = make_party(hub.name, own=True, identifiers=[("DUNS", f"{hub.name}-1")])
    try:
        yield made
    finally:
        _look_at("public", before)


def _endpoint(party: Party, at: str) -> Any:
    return party.endpoints.filter(uri=at).first() or make_endpoint(party, at, error_uri=at)


def _look_at(schema: str, snapshot: registry.Registry | None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET search_path TO {schema}, public" if schema != "public" else "SET search_path TO public")
    registry.reset()
    registry._snapshot = snapshot
    root = Path(settings.RMHUB_STORE_DIR)
    root = root.parent if root.name.startswith("hub_") else root
    settings.RMHUB_STORE_DIR = root / schema if schema != "public" else root
    subscriptions.current.forget()
    for cache in (hub_memory, forgetting):
        cache.reset()


def _enter(parcel: Parcel) -> Receipt:
    """The entrance that the address is of."""
    path = urlsplit(parcel.address).path
    presented = Presented(authorization=parcel.authorization)
    headers: tuple[tuple[str, str], ...] = ()
    body = b""
    if path.startswith("/exchange/"):
        given = {name.lower(): (value,) for name, value in parcel.headers}
        said = {"method": "POST", "path": path.removeprefix("/exchange/"), "target": path, "headers": given}
        request = Request(parcel.content_type, parcel.octets, presented, **said)
        entered = authentication.enter(presented, "")
        if entered.principal is None:
            answer = exchanging.turn_away(request, entered)
        else:
            answer = exchanging.exchange(request, entered.principal)
        status, headers, body = answer.status, tuple(answer.headers), answer.body
    elif path.startswith("/streams"):
        status = streams.brought(Arrival(parcel.content_type, parcel.octets, presented)).status
    elif path.startswith("/ebms2/"):
        entered = authentication.enter(presented, "")
        assert entered.principal is not None
        arrival = Arrival(parcel.content_type, parcel.octets, presented)
        said_back = ebms2.receive(arrival, limits=DEFAULT_LIMITS, principal=entered.principal)
        status, body = said_back.status, said_back.body
    else:
        status = brought(Arrival(parcel.content_type, parcel.octets, presented))
    ok = 200 <= status < 300
    return Receipt(
        ok=ok,
        status=status,
        cause="" if ok else status_cause(status),
        detail="" if ok else f"HTTP {status}",
        response=b"HTTP\r\n\r\n" + body,
        headers=headers,
    )


__all__ = ["SERVICE", "WHO", "WHY", "Hub", "Network", "clock", "join", "make_schema", "network", "uri"]
