"""ebXML 2.0 by mail: the same messages and signals, each in a mail of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from messaging.models import Message, Payload
from messaging.protocol.envelope import Ebms2Kind
from tests.messaging.entrance.mail.partners import client, mail_of, mail_partner, options
from tests.messaging.entrance.mail.servers import entrance_running, relaying
from tests.messaging.entrance.mail.test_entrance import arrived
from tests.messaging.factories import ORDER, submit, work
from tests.messaging.profiles.ebms2.partner import RELIABLE, Ebms2Side, decoded

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_connection")]


def test_messages_and_acknowledgements_go_and_come_by_mail() -> None:
    with relaying() as relay:
        side = mail_partner(relay, profile="ebms2", retries=3, retry_interval=300)
        partner = Ebms2Side(side.terms, side.presented)
        ours = submit(partner)
        work()
        sent = arrived(relay.last())
        assert decoded(sent).payloads[0].content == ORDER
        with entrance_running(options()) as running, client(running) as other:
            # A response is what it asks for, and a mail has none.
            asks = replace(RELIABLE, sync_reply=True)
            assert other.transaction(mail_of(partner.business("theirs", ebms=asks)))[0] == 250
            assert other.transaction(mail_of(partner.arrival(partner.acknowledging(sent))))[0] == 250
        work()
    acknowledged = decoded(arrived(relay.last())).ebms
    assert acknowledged is not None
    assert acknowledged.kind is Ebms2Kind.ACKNOWLEDGMENT
    assert acknowledged.acknowledgments[0].ref_to_message_id == "theirs"
    assert Message.objects.get(pk=ours.pk).state == "delivered"
    assert bytes(Payload.objects.get(message__message_id="theirs").content or b"") == ORDER
