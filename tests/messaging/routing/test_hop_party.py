"""Who is the partner on the wire when a router leads to the partner: the router, and nobody else."""

from __future__ import annotations

import base64

from messaging.engine import pairs
from messaging.entrance.refusals import Arrival
from messaging.models import Pair
from partners.terms import Presented
from tests.messaging.factories import brought
from tests.messaging.routing.hubs import Network
from tests.messaging.routing.test_store_and_forward import acknowledgements, states, submit
from tests.partners.factories import basic, make_credential


def test_pairs_and_credentials_are_those_of_the_router(net: Network) -> None:
    with net["A"] as a:
        submit()
        pair = a.outbound("tpa:A-C")
        assert (pair.code, pair.partner.name, pair.receiver_uri) == ("A>B", "B", "https://b.example/msh")
    net.work()
    shown = base64.b64decode(net.between("A", "B")[0].authorization.removeprefix("Basic ")).decode()
    assert shown == "A:secret A to B"
    with net["C"] as c:
        assert (c.inbound("tpa:A-C").code, c.received()[0].agreement_version.agreement.partner.name) == ("B>C", "A")


def test_the_partner_itself_is_not_the_one_who_brings_its_messages(net: Network) -> None:
    net.faults = lambda sender, receiver, parcel: [] if receiver == "C" else [True]
    with net["A"]:
        submit()
    net.work()
    [parcel] = net.between("A", "B")
    with net["C"] as c:
        known, password = make_credential(c.knows("A"))
        presented = Presented(authorization=basic(known.username, password))
        assert brought(Arrival(parcel.content_type, parcel.body, presented)) == 403
        assert c.received() == []


def test_only_the_router_s_word_is_an_acknowledgement(net: Network) -> None:
    held = []
    net.faults = lambda sender, receiver, parcel: (
        held.append(parcel) or [] if (sender, receiver) == ("B", "A") else [True]
    )
    with net["A"]:
        submit()
    net.work()
    acknowledgement = held[0]
    with net["A"] as a:
        pair = Pair.objects.get(pk=pairs.outbound_pair_id(a.terms("tpa:A-C")))
        known, password = make_credential(a.knows("C"))
        theirs = Presented(authorization=basic(known.username, password))
        brought(Arrival(acknowledgement.content_type, acknowledgement.body, theirs))
        pair.refresh_from_db()
        assert pair.flow == "awaiting_ack"
        ours = Presented(authorization=acknowledgement.authorization)
        assert brought(Arrival(acknowledgement.content_type, acknowledgement.body, ours)) == 204
    assert states(net["A"]) == ["delivered"] and len(acknowledgements(held)) >= 1
