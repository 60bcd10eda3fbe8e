"""One trouble, one incident: what shows the same trouble once more hangs on the incident that there is.

A server whose certificate has ended is seen three times: by the watch over certificates, by the attempts that fail, and
by its circuit. The first incident is the one that people are told of; the others name it (`Incident.part_of`), are not
counted beside it, and close with it.
"""

from __future__ import annotations

from messaging.choices import IncidentState
from messaging.models import Incident, Pair
from messaging.profile import terms_in_force
from messaging.protocol.circuit import UNREACHABLE
from messaging.protocol.pair_state import Flow
from messaging.servers import server_of_terms
from partners import registry
from partners.terms import Terms

SERVER_UNREACHABLE = "server_unreachable"
CERTIFICATE_ENDED = "certificate_ended"
# A server that cannot be used; for one and the same server these are one trouble.
_OF_A_SERVER = frozenset({SERVER_UNREACHABLE, *UNREACHABLE})
# What a certificate or credential that has ended leads to, with any server of the partner.
_OF_ITS_END = frozenset({"cert_expired", "cert_untrusted", "tls_handshake", "http_401_403", "login_refused"})


def root_of(pair: Pair, cause: str) -> Incident | None:
    """The unresolved incident that a new one of this pair and cause hangs on; None when it stands for itself."""
    kin = _kin(cause)
    if not kin:
        return None
    found = Incident.objects.filter(cause__in=kin, part_of=None, pair__partner=pair.partner_id)
    found = found.exclude(state=IncidentState.RESOLVED).exclude(pair=pair, cause=cause)
    ours = _server(pair)
    for one in found.select_related("pair").order_by("number"):
        ended = CERTIFICATE_ENDED in (cause, one.cause)
        if one.pair is not None and (ended or (ours is not None and _server(one.pair) == ours)):
            return one
    return None


def stays_open(incident: Incident) -> bool:
    """Whether an incident that hangs on another is not over with it: its pair still waits for a person because of it,
    or what it is about goes on by itself.
    """
    pair = incident.pair
    waits = pair is not None and pair.flow == Flow.SUSPENDED and pair.cause == incident.cause
    return waits or incident.cause == CERTIFICATE_ENDED


def _kin(cause: str) -> frozenset[str]:
    kin: frozenset[str] = frozenset()
    if cause in _OF_A_SERVER:
        kin |= _OF_A_SERVER
    if cause in _OF_ITS_END:
        kin |= {CERTIFICATE_ENDED}
    if cause == CERTIFICATE_ENDED:
        kin |= _OF_ITS_END
    return kin


def _server(pair: Pair) -> str | None:
    terms: Terms | None = terms_in_force(pair)
    if terms is None and pair.in_flight is not None:
        terms = registry.current().version(pair.in_flight.agreement_version_id)
    return server_of_terms(terms) if terms is not None else None
