"""What the three questions about health answer in each fault of `make chaos`; docs/operations.md has the same table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answers:
    """Of one fault. `livez`, `readyz`: status, and for a 503 the parts that are named; 0 = no answer. `health`: status,
    `status` of the body ("" when it is a problem), and the parts that are not `ok`.
    """

    fault: str
    livez: int
    readyz: tuple[int, frozenset[str]]
    health: tuple[int, str, tuple[tuple[str, str], ...]]

    @property
    def row(self) -> str:
        """As the table of the documentation has it."""
        if not self.livez:
            return f"| {self.fault} | no answer | no answer | no answer |"
        status, named = self.readyz
        ready = " ".join((str(status), *(f"`{part}`" for part in sorted(named))))
        code, said, parts = self.health
        how = f" {said}" if said else ""
        troubled = ", ".join(f"`{name}` {state}" for name, state in parts)
        return f"| {self.fault} | {self.livez} | {ready} | {code}{how}{': ' if parts else ''}{troubled} |"


_ALL = (200, frozenset[str]())
_WELL = (200, "ok", ())
_DATABASE = (
    (503, frozenset({"database"})),
    (503, "", (("database", "down"), ("workers", "degraded"))),
)


def _degraded(part: str, state: str) -> tuple[int, str, tuple[tuple[str, str], ...]]:
    return 200, "degraded", ((part, state),)


ANSWERS = (
    Answers("PostgreSQL killed", 200, *_DATABASE),
    Answers("PostgreSQL away", 200, *_DATABASE),
    Answers("no connection left", 200, *_DATABASE),
    Answers("no connection left, but this process has one", 200, _ALL, _degraded("database", "degraded")),
    Answers("PostgreSQL takes no writes", 200, *_DATABASE),
    Answers("Valkey killed", 200, _ALL, _degraded("broker", "down")),
    Answers("Valkey away", 200, _ALL, _degraded("broker", "down")),
    Answers("web killed", 0, (0, frozenset()), (0, "", ())),
    Answers("web frozen", 0, (0, frozenset()), (0, "", ())),
    Answers("beats killed or frozen", 200, _ALL, _WELL),
    Answers("workers killed", 200, _ALL, _degraded("workers", "down")),
    Answers("worker frozen", 200, _ALL, _degraded("workers", "degraded")),
    Answers("payload store full", 200, (503, frozenset({"store"})), (503, "", (("store", "down"),))),
    Answers("link cut", 200, _ALL, _WELL),
    Answers("link silent", 200, _ALL, _WELL),
    Answers("link slow", 200, _ALL, _WELL),
    Answers("link lying", 200, _ALL, _WELL),
)
# A fault of `make chaos` that is made of several.
PARTS = {
    "webs and beats killed": ("web killed", "beats killed or frozen"),
    "web and beats frozen": ("web frozen", "beats killed or frozen"),
}
