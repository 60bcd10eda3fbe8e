"""What the large demo world is: its size, where its partners listen, and who has which trouble."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

OWN_NAME, OWN_DUNS = "Nordlys Retail", "100000000"
OWN_ROOT = "http://msh.nordlys.example"
SECRET = "ux-partner-secret"
HISTORY = timedelta(days=90)
ORDERS = "urn:oasis:names:specification:ubl:services:ordering"
ACTIONS = ("Order", "OrderResponse", "Invoice", "DespatchAdvice")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A partner with something to look at. `behaviour`: how its server answers (`tests.worlds.partner_server`)."""

    slug: str
    name: str
    behaviour: str = "ok"
    profile: str = "ebxml"
    terms: dict[str, object] = field(default_factory=dict)
    since: timedelta = timedelta(0)


_PATIENT: dict[str, object] = {"retries": 500, "retry_interval": 300, "timeout": 60, "transport_retries": 0}
_QUICK: dict[str, object] = {"retries": 4, "retry_interval": 60, "timeout": 60, "transport_retries": 0}
EXPIRED, LONGEST, POISON, SILENT, PAUSED, DOUBTS, ATTEMPTS, FAILURES, RESUMED = (
    *("expired", "longest", "poison", "silent", "paused", "doubts", "attempts", "failures", "resumed"),
)
TROUBLES: dict[str, Trouble] = {
    EXPIRED: Trouble("halden", "Halden Components", "tls", terms=_QUICK, since=timedelta(hours=3, minutes=12)),
    LONGEST: Trouble("umbria", "Umbria Logistics", "gate", terms=_QUICK, since=timedelta(hours=26)),
    POISON: Trouble("ilmarin", "Ilmarin Trading", "poison", terms=_PATIENT, since=timedelta(minutes=50)),
    "retrying-500": Trouble("vantaa", "Vantaa Paper", "500", terms=_PATIENT, since=timedelta(minutes=35)),
    "retrying-slow": Trouble("horten", "Horten Marine", "timeout", terms=_PATIENT, since=timedelta(minutes=20)),
    "retrying-ack": Trouble("sorrel", "Sorrel Foods", "bad-ack", terms=_PATIENT, since=timedelta(minutes=15)),
    "retrying-503": Trouble("wexford", "Wexford Glass", "503", terms=_PATIENT, since=timedelta(minutes=9)),
    SILENT: Trouble("solberg", "Solberg Fisheries", since=timedelta(hours=7)),
    PAUSED: Trouble("tarn", "Tarn Furniture", terms=_PATIENT, since=timedelta(hours=2)),
    DOUBTS: Trouble(
        "corvid",
        "Corvid Systems",
        "lost",
        "repeatable",
        {"partner_window": 3600, "max_in_flight": 64},
        timedelta(hours=5),
    ),
    ATTEMPTS: Trouble("wimbrel", "Wimbrel Sweets", terms=_PATIENT, since=timedelta(days=40)),
    FAILURES: Trouble("ostara", "Ostara Labs", since=timedelta(days=1)),
    RESUMED: Trouble("piper", "Piper Freight", since=timedelta(days=6)),
}
# Which of the partners' ports is whose, counted from the first.
PORTS = {"tls": 1, "gate": 2, "timeout": 3, "lost": 4}
PROCESSED, NOT_RECOGNIZED, NO_ANSWER = 38, 4, 2
WAITING_BEHIND = {EXPIRED: 311, LONGEST: 72, POISON: 5, PAUSED: 3}


def login_of(slug: str, partners: int) -> str:
    """The user name that the partner of an agreement shows us: the slug of its first agreement."""
    if not (slug.startswith("p") and slug[1:].isdigit()):
        return slug
    number = int(slug[1:]) % partners
    known = list(TROUBLES.values())
    return known[number].slug if number < len(known) else f"p{number}"


@dataclass(frozen=True, slots=True)
class Plan:
    """`pairs` in all, two for each agreement. `detailed`: so many of the newest have payloads, attempts, and answers.

    `folder` holds certificates and the bundle; the partner's server listens on `port`, on `port` + 1 (TLS) and on
    `port` + 2 (the one that was closed).
    """

    now: datetime
    folder: Path
    partners: int = 200
    pairs: int = 500
    messages: int = 10_000_000
    detailed: int = 50_000
    port: int = 9100

    @property
    def agreements(self) -> int:
        return max(self.pairs // 2, len(TROUBLES) + 1)

    def address(self, trouble: Trouble | None, slug: str) -> str:
        """Where the bytes for a partner really go."""
        behaviour = trouble.behaviour if trouble is not None else "ok"
        scheme, path = ("https" if behaviour == "tls" else "http"), behaviour
        if behaviour in ("tls", "gate", "lost"):
            path = "ok"  # by now their servers are well
        # Each server that does not answer is one of its own: a circuit is kept for a server.
        return f"{scheme}://127.0.0.1:{self.port + PORTS.get(behaviour, 0)}/{path}/{slug}"
