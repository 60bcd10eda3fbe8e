"""Endpoint references of ours, and which ones of peers this hub writes to.

A message may name any address; used are only those that lie where the agreement says that the partner is (the scheme,
host and port of its endpoint, or of one of its other servers), so that nobody makes the hub call a third party.
"""

from __future__ import annotations

from collections.abc import Iterable

from messaging.models import Coordination, Enlistment
from messaging.profiles.wsat import outgoing
from messaging.protocol.atomic.words import Protocol
from messaging.protocol.ws.epr import MAX_ADDRESS, EndpointReference, parameter
from partners import registry
from partners.terms import Terms

ACTIVATION, REGISTRATION, COMPLETION = "activation", "registration", "completion"
COORDINATOR, PARTICIPANT, REQUESTER = "coordinator", "participant", "requester"
SERVICES = (ACTIVATION, REGISTRATION, COMPLETION, COORDINATOR, PARTICIPANT, REQUESTER)

# Names of our reference parameters, in the namespace `urn:rmhub:ws-tx`.
ENLISTMENT, TRANSACTION = "Enlistment", "Transaction"


def own_epr(
    terms: Terms, service: str, *, enlistment: Enlistment | None = None, coordination: Coordination | None = None
) -> EndpointReference:
    """One of our services under these terms, with what tells us later which relationship is meant."""
    parameters = []
    if coordination is not None:
        parameters.append(parameter(TRANSACTION, coordination.public_id))
    if enlistment is not None:
        parameters.append(parameter(ENLISTMENT, enlistment.public_id))
    return EndpointReference(f"{terms.own_uri.rstrip('/')}/{service}", tuple(parameters))


def service_of(enlistment: Enlistment) -> str:
    """Which of our services the other side of this relationship talks to."""
    if enlistment.superior:
        return PARTICIPANT
    return COMPLETION if enlistment.protocol == Protocol.COMPLETION else COORDINATOR


def coordinator_epr(enlistment: Enlistment, terms: Terms) -> EndpointReference:
    """What a RegisterResponse says: where this participant or initiator reaches its coordinator."""
    return own_epr(terms, service_of(enlistment), enlistment=enlistment)


def peer_epr(enlistment: Enlistment) -> EndpointReference | None:
    """The endpoint reference that the peer gave at registration; None when there is none (yet)."""
    if not enlistment.peer_address:
        return None
    return EndpointReference(enlistment.peer_address, tuple(enlistment.peer_parameters))


def terms_of(enlistment: Enlistment) -> Terms | None:
    """The agreement of a relationship; None for what this hub does itself."""
    if enlistment.agreement_version_id is None:
        return None
    return registry.current().version(enlistment.agreement_version_id)


def may_use(epr: EndpointReference, terms: Terms) -> str:
    """ "" when messages may go there, or the sentence that says why not."""
    if not epr.is_physical():
        return "An endpoint reference must have a physical http or https address: anonymous and none are not used."
    if len(epr.address) > MAX_ADDRESS:
        return f"An address of more than {MAX_ADDRESS} characters cannot be used."
    if not outgoing.may_go_to(terms, epr.address):
        return (
            f"{epr.address[:200]} does not have the scheme, host and port of the partner's services in agreement "
            f"{terms.tpa_id}, {' '.join((terms.partner_uri, *terms.other_servers))}."
        )
    return ""


def not_used(name: str, epr: EndpointReference | None, terms: Terms) -> str:
    """What to note when an endpoint that a message names is passed over; "" when there is none or it may be used."""
    if epr is None or not may_use(epr, terms):
        return ""
    return f"{name} {epr.address[:100]} is not used: it is not at the agreement's own server."


def first_usable(candidates: Iterable[EndpointReference], terms: Terms) -> EndpointReference | None:
    """The first of these that messages may go to."""
    return next((epr for epr in candidates if not may_use(epr, terms)), None)
