"""Servers that could not be reached lately: for the overview, their page, the API. What looks at endpoints found."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from messaging.choices import CircuitState
from messaging.exceptions import NotFound
from messaging.models import Circuit, ProbeReport
from messaging.models.base import existing
from messaging.servers import partners_by_server
from partners import visibility


@dataclass(frozen=True, slots=True)
class CircuitRow:
    """A server with the partners that are reached by it, from the agreements in force.

    Without any, `circuit.pair` is the one for which it was tried last, under terms that are over.
    """

    circuit: Circuit
    partners: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        return self.circuit.state == CircuitState.OPEN


def circuits(*, states: Iterable[str] = ()) -> QuerySet[Circuit]:
    """Servers that have failed since they last answered; there are few."""
    found = Circuit.objects.select_related("pair__partner")
    allowed = visibility.visible()
    if allowed is not None:
        found = found.filter(Q(address__in=list(_names_by_server())) | Q(pair__partner__in=allowed))
    wanted = list(states)
    return found.filter(state__in=wanted) if wanted else found


def circuit(circuit_id: str) -> Circuit:
    """By public id. Raises NotFound: whoever answers again has no circuit any more."""
    for row in circuits():
        if row.public_id == circuit_id:
            return row
    raise NotFound(_("This server answers again, or nothing was ever sent to it: there is no circuit of that name."))


def rows(found: Iterable[Circuit]) -> list[CircuitRow]:
    """What is open first, the longest first. No query."""
    names = _names_by_server()
    ordered = sorted(found, key=lambda row: (row.state != CircuitState.OPEN, row.silent_since or row.updated_at))
    return [CircuitRow(row, names.get(row.address, ())) for row in ordered]


def partners_at(circuit: Circuit) -> tuple[str, ...]:
    """Names of the partners that are reached by this server; else of the one for whom it was tried last."""
    found = _names_by_server().get(circuit.address, ())
    if not found and circuit.pair is not None and visibility.allows(circuit.pair.partner_id):
        return (circuit.pair.partner.name,)
    return found


def _names_by_server() -> dict[str, tuple[str, ...]]:
    """Of the partners that may be shown; servers of the others are left out."""
    allowed = visibility.names()
    if allowed is None:
        return partners_by_server()
    known = ((server, tuple(sorted(allowed.intersection(names)))) for server, names in partners_by_server().items())
    return {server: names for server, names in known if names}


def open_count() -> int:
    """How many servers are left alone right now, whoever asks: a figure of the hub's health."""
    return Circuit.objects.filter(state=CircuitState.OPEN).count()


def probes(*, endpoint_id: uuid.UUID | None = None, pair_id: uuid.UUID | None = None) -> QuerySet[ProbeReport]:
    """Reports with their endpoints. Not ordered; pages by ("-id",)."""
    found = visibility.limit(ProbeReport.objects.select_related("endpoint__party", "pair"), "endpoint__party")
    if endpoint_id is not None:
        found = found.filter(endpoint=endpoint_id)
    return found.filter(pair=pair_id) if pair_id is not None else found


def probe(report_id: uuid.UUID) -> ProbeReport:
    """One report. Raises NotFound."""
    return existing(probes(), report_id)


def newest_of_pair(pair_id: uuid.UUID) -> ProbeReport | None:
    """What the last look for a pair's sake found."""
    return probes(pair_id=pair_id).order_by("-id").first()
