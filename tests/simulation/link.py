"""The link between two simulated hubs: it loses, repeats, reorders and delays, and says untrue things about it."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.hub import Packet


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad a link is. Probabilities for one packet; `delay` is the mean in seconds."""

    loses: float = 0.0
    repeats: float = 0.0
    delay: float = 0.05
    strays: float = 0.0  # is repeated or comes only after minutes
    replays: float = 0.0  # an old packet comes again, for every new one
    lies: float = 0.0  # the sender hears the opposite of what happened


CLEAR = Weather()


@dataclass(slots=True)
class Link:
    """Packets under way, by the time at which they arrive."""

    chance: random.Random
    weather: Weather
    under_way: list[tuple[datetime, int, str, Packet]] = field(default_factory=list)
    sent: list[tuple[str, Packet]] = field(default_factory=list)
    _count: int = 0

    def send(self, to: str, packet: Packet, now: datetime) -> bool:
        """Puts a packet on the wire. Returns what the sender's transport says of it."""
        chance, weather = self.chance, self.weather
        self.sent.append((to, packet))
        arrives = chance.random() >= weather.loses
        if arrives:
            self._carry(to, packet, now)
        if chance.random() < weather.repeats:
            for _ in range(chance.randint(1, 2)):
                self._carry(to, packet, now)
        if chance.random() < weather.replays:
            self._carry(*chance.choice(self.sent), now)
        return arrives is not (chance.random() < weather.lies)

    def _carry(self, to: str, packet: Packet, now: datetime) -> None:
        delay = self.chance.expovariate(1 / self.weather.delay)
        if self.chance.random() < self.weather.strays:
            delay += self.chance.uniform(60, 900)
        self._count += 1
        heapq.heappush(self.under_way, (now + timedelta(seconds=delay), self._count, to, packet))

    def next_arrival(self) -> datetime | None:
        return self.under_way[0][0] if self.under_way else None

    def arrivals(self, now: datetime) -> list[tuple[str, Packet]]:
        """Takes what has arrived by now off the wire: (hub, packet) in the order of arrival."""
        found = []
        while self.under_way and self.under_way[0][0] <= now:
            _, _, to, packet = heapq.heappop(self.under_way)
            found.append((to, packet))
        return found
