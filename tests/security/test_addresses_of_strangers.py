"""What a partner names as its address in a transaction is called only at the servers of its agreement."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from messaging.models import Enlistment
from messaging.protocol.atomic.words import Protocol
from messaging.protocol.ws.messages import EndpointReference
from tests.messaging.factories import link, work
from tests.messaging.profiles.wsat.kit import peer

pytestmark = pytest.mark.django_db
ADDRESSES = (
    "http://169.254.169.254/latest/meta-data/",
    "http://127.0.0.1:5432/",
    "http://[::1]/",
    "http://0x7f000001/",
    "http://localhost/",
    "https://{host}.evil.example/",
    "https://evil.example/{host}",
    "https://{host}:8443/",
    "http://{host}/",
)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("role", ["participant", "requester"])
def test_an_address_elsewhere_is_never_called(address: str, role: str) -> None:
    app, shop = peer(), peer()
    context = app.create()
    named = EndpointReference(address.replace("{host}", urlsplit(shop.base).hostname or ""))
    own, reply_to = (named, None) if role == "participant" else (None, named)
    shop.ask_register(context, Protocol.DURABLE, own=own, reply_to=reply_to)
    with link() as wire:
        while work():
            pass
    served = {urlsplit(one.base)[:2] for one in (app, shop)}
    assert {urlsplit(parcel.address)[:2] for parcel in wire.parcels} <= served
    assert not Enlistment.objects.filter(peer_address=named.address).exists()
