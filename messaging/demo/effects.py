"""The demo's second judge: what the receiving application did, read from its SQLite file and the receivers' databases.

With plain SQL, apart from the code that it judges.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg

_UNSETTLED = ("waiting", "running", "joined")
_STORED = """
SELECT m.message_id, p.sender_uri || ' ' || p.receiver_uri, max(d.state), min(y.sha256), count(DISTINCT y.number)
FROM messaging_message m
JOIN messaging_pair p ON p.id = m.pair_id
LEFT JOIN messaging_delivery d ON d.message_id = m.id AND d.resubmission_of_id IS NULL
LEFT JOIN messaging_payload y ON y.message_id = m.id
WHERE m.direction = 'in'
GROUP BY m.id, p.id
ORDER BY m.position
"""


@dataclass(frozen=True, slots=True)
class Effects:
    """How often the documents that the receivers stored had their effect in the application.

    `effects_missing` are documents without one that are neither waiting nor in doubt: a promise is broken, as it is
    by `effects_twice`, by `effects_altered` (other octets than were received), by `effects_strange` (an effect of a
    document that no receiver stored) and by `effects_out_of_order`. `in_doubt` documents have had it or have not:
    `in_doubt_with_effect` says how many have, which the hub cannot know. `unsettled` ones are still under way.
    """

    documents: int
    effects_once: int
    effects_twice: int
    effects_missing: int
    effects_altered: int
    effects_strange: int
    effects_out_of_order: int
    in_doubt: int
    in_doubt_with_effect: int
    failed: int
    unsettled: int

    @property
    def promises_kept(self) -> bool:
        return not (
            self.effects_twice
            or self.effects_missing
            or self.effects_altered
            or self.effects_strange
            or self.effects_out_of_order
        )


@dataclass(frozen=True, slots=True)
class Stored:
    """A document in a receiver's store. `state` is that of its delivery, empty if there is none."""

    document_id: str
    pair: str
    state: str
    sha256: str  # empty unless it has exactly one payload


def judge(receivers: list[str], path: Path) -> Effects:
    """Judges the effects in the file at `path` by the databases (URLs) of all hubs that deliver to the application."""
    with closing(sqlite3.connect(path, timeout=30)) as file:
        effects = file.execute("SELECT document_id, sha256 FROM effect ORDER BY number").fetchall()
    return verdict([document for url in receivers for document in _stored(url)], effects)


def count(path: Path) -> int:
    """How many effects there are by now."""
    with closing(sqlite3.connect(path, timeout=30)) as file:
        return int(file.execute("SELECT count(*) FROM effect").fetchone()[0])


def verdict(documents: list[Stored], effects: list[tuple[str, str]]) -> Effects:
    """The same, of what was read: documents in the order of their pairs, effects (id, digest) in theirs."""
    times = Counter(document_id for document_id, _ in effects)
    digests: dict[str, set[str]] = {}
    for document_id, digest in effects:
        digests.setdefault(document_id, set()).add(digest)
    known = {document.document_id for document in documents}
    settled = [document for document in documents if document.state not in _UNSETTLED]
    doubtful = [document for document in settled if document.state == "in_doubt"]
    return Effects(
        documents=len(documents),
        effects_once=sum(times[document.document_id] == 1 for document in documents),
        effects_twice=sum(times[document.document_id] > 1 for document in documents),
        effects_missing=sum(not times[document.document_id] and document.state != "in_doubt" for document in settled),
        effects_altered=sum(
            bool(document.sha256) and not digests.get(document.document_id, set()) <= {document.sha256}
            for document in documents
        ),
        effects_strange=sum(document_id not in known for document_id in times),
        effects_out_of_order=_out_of_order(documents, effects),
        in_doubt=len(doubtful),
        in_doubt_with_effect=sum(times[document.document_id] > 0 for document in doubtful),
        failed=sum(document.state == "failed" for document in documents),
        unsettled=len(documents) - len(settled),
    )


def _stored(url: str) -> Iterator[Stored]:
    with psycopg.connect(url) as receiver:
        for message_id, pair, state, sha256, payloads in receiver.execute(_STORED).fetchall():
            yield Stored(message_id, pair, state or "", sha256 if payloads == 1 else "")


def _out_of_order(documents: list[Stored], effects: list[tuple[str, str]]) -> int:
    """Documents whose first effect came before that of an earlier document of the same pair."""
    first: dict[str, int] = {}
    for place, (document_id, _) in enumerate(effects):
        first.setdefault(document_id, place)
    latest: dict[str, int] = {}
    found = 0
    for document in documents:
        if document.document_id in first:
            at = first[document.document_id]
            found += at < latest.get(document.pair, -1)
            latest[document.pair] = max(at, latest.get(document.pair, -1))
    return found
