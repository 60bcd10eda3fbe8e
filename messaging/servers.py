"""Which agreements and pairs go to which of the partners' servers (`transports.servers`)."""

from __future__ import annotations

import uuid

from django.db import connection

from messaging.protocol.codecs.ebxml import normalize_uri
from messaging.transports.base import server_of
from partners import registry
from partners.terms import Terms

# (revision of the agreements, servers) -> pairs, of the latest question: a worker asks the same one again and again.
_latest: tuple[tuple[int, frozenset[str]], list[uuid.UUID]] | None = None


def server_of_terms(terms: Terms) -> str:
    """The server that messages of this agreement go to."""
    return server_of(terms.partner_address, terms.server)


def pairs_at(servers: frozenset[str]) -> list[uuid.UUID]:
    """The pairs, both ways, of the agreements in force whose messages go to these servers."""
    global _latest
    if not servers:
        return []
    known = registry.current()
    key = (known.revision, servers)
    if _latest is not None and _latest[0] == key:
        return _latest[1]
    found = [terms for terms in known.active() if server_of_terms(terms) in servers]
    ours, theirs = [normalize_uri(item.own_uri) for item in found], [normalize_uri(item.partner_uri) for item in found]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT p.id FROM unnest(%s::text[], %s::text[]) AS u(ours, theirs) JOIN messaging_pair p"
            " ON (p.direction, p.sender_uri, p.receiver_uri) IN (('out', u.ours, u.theirs), ('in', u.theirs, u.ours))",
            [ours, theirs],
        )
        pairs = [row[0] for row in cursor.fetchall()]
    _latest = key, pairs
    return pairs


def partners_by_server() -> dict[str, tuple[str, ...]]:
    """Names of the partners that are reached by each server."""
    found: dict[str, set[str]] = {}
    for terms in registry.current().active():
        found.setdefault(server_of_terms(terms), set()).add(terms.hop_party_name)
    return {server: tuple(sorted(names)) for server, names in found.items()}


def reset() -> None:
    """Forgets the latest answer (tests)."""
    global _latest
    _latest = None
