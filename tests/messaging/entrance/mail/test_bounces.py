"""Reports about mails of ours: a bounce is a transport error of the transmission that it is about."""

from __future__ import annotations

from datetime import timedelta

import pytest

from messaging.engine.claiming import claim_due
from messaging.entrance import mail
from messaging.messages.selectors.messages import message as read_message
from messaging.messages.selectors.timeline import message_screen
from messaging.models import Event, Incident, Message, Rejection, Signal, Transmission
from messaging.profiles.ebxml import bounces
from messaging.protocol.codecs.mail import read_mail
from messaging.protocol.envelope import DEFAULT_LIMITS
from messaging.transports import send
from messaging.transports.smtp import message_id
from rmhub import clock
from rmhub.clock import frozen
from tests.messaging.entrance.mail.partners import client, mail_of, mail_partner, options
from tests.messaging.entrance.mail.reports import report
from tests.messaging.entrance.mail.servers import Relay, entrance_running, relaying
from tests.messaging.factories import PartnerSide, link, partner_side, submit, work

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_connection")]


def take(octets: bytes) -> int:
    """The report as both entrances hand it on: nobody vouches for its sender."""
    return mail.take(read_mail(octets), principal=None, remote_address="192.0.2.9", limits=DEFAULT_LIMITS).status


def sent(partner: PartnerSide, **fields: object) -> tuple[Message, str]:
    """A message that a mail server has taken, and the Message-ID of its mail."""
    message = submit(partner, **fields)
    (job,) = work()
    message.refresh_from_db()
    return message, message_id(job.parcel)


@pytest.mark.parametrize("by_envelope", [True, False])
def test_a_bounce_is_a_transport_error_of_its_transmission(by_envelope: bool) -> None:
    with relaying() as relay:
        partner = mail_partner(relay, timeout=7200, retry_interval=300)
        message, name = sent(partner)
    octets = report(envelope_id=name.partition("@")[0]) if by_envelope else report(name)
    with frozen(clock.now() + timedelta(seconds=60)):
        assert take(octets) == 204
        pair = partner.outbound
        # It is on its way to the recovery sequence at once, and no sooner than a retry is due (2.5.4).
        assert (pair.flow, pair.cause, pair.retries) == ("awaiting_ack", "mail_bounced", 0)
        assert pair.due_at == clock.now() + timedelta(seconds=300)
    attempt = Transmission.objects.get(message=message)
    assert (attempt.outcome, attempt.cause) == ("failed", "mail_bounced")
    assert "no such user" in attempt.detail
    message.refresh_from_db()
    assert (message.state, message.cause) == ("awaiting_ack", "mail_bounced")
    # 5.1.1: it is tried again all the same, but a person should see it at once.
    incident = Incident.objects.get()
    assert (incident.cause, incident.message_id) == ("mail_bounced", message.pk)
    titles = {moment.title: moment.detail for moment in message_screen(read_message(message.pk)).moments}
    assert "550 5.1.1 <msh@partner.example>: no such user" in titles["Came back: a mail server could not deliver it"]
    assert "no such user" in titles["Attempt 1 failed"]
    assert not Rejection.objects.exists()


def test_a_bounce_never_makes_a_retry_later_than_it_was() -> None:
    with relaying() as relay:
        partner = mail_partner(relay, timeout=60, retry_interval=300)
        _, name = sent(partner)
        before = partner.outbound.due_at
        take(report(name, status="4.2.2"))
    assert partner.outbound.due_at == before
    assert not Incident.objects.exists(), "what is temporary is retried, and nobody is called"


def test_the_retry_after_a_bounce_uses_retries_up_and_ends_in_a_suspended_pair() -> None:
    with relaying() as relay:
        partner = mail_partner(relay, timeout=60, retry_interval=60, retries=1)
        message, first = sent(partner)
        take(report(first))
        with frozen(clock.now() + timedelta(seconds=61)) as now:
            (job,) = work()
            second = message_id(job.parcel)
            assert second != first
            assert partner.outbound.retries == 1
            take(report(second))
            now.move(61)
            work()
    pair = partner.outbound
    assert (pair.flow, pair.cause) == ("suspended", "mail_bounced")
    message.refresh_from_db()
    assert message.state == "failed"
    assert len(relay.mails) == 2


def test_an_acknowledgement_after_a_bounce_completes_the_message_and_closes_the_incident() -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        message = submit(partner)
        (job,) = work()
        take(report(message_id(job.parcel)))
        partner.send(partner.acknowledgement(job.parcel))
    message.refresh_from_db()
    assert (message.state, message.cause) == ("delivered", "")
    assert Incident.objects.get().state == "resolved"


def test_the_same_report_twice_counts_once() -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        _, name = sent(partner)
    assert [take(report(name)) for _ in range(2)] == [204, 204]
    assert Event.objects.filter(type="message.bounced").count() == 1
    assert Incident.objects.get().occurrences == 1


def test_a_report_about_an_earlier_attempt_moves_nothing() -> None:
    with relaying() as relay:
        partner = mail_partner(relay, timeout=60)
        message, first = sent(partner)
        with frozen(clock.now() + timedelta(seconds=61)):
            work()
            before = partner.outbound.due_at
            assert take(report(first)) == 204
    assert (partner.outbound.due_at, partner.outbound.cause) == (before, "")
    outcomes = Transmission.objects.filter(message=message).order_by("number").values_list("outcome", flat=True)
    assert list(outcomes) == ["failed", "sent"]


def test_a_report_that_overtakes_the_record_of_its_own_transmission_comes_later() -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        submit(partner)
        (job,) = claim_due(limit=1)
        send("smtp", job.parcel)
        octets = report(message_id(job.parcel))
        assert take(octets) == mail.TOO_EARLY
        with entrance_running(options()) as running, client(running) as other:
            assert other.transaction(octets, sender="")[0] == 451
    assert Transmission.objects.get().outcome == "on_the_wire"


def test_a_delay_is_told_and_changes_nothing() -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        message, name = sent(partner)
        before = partner.outbound.due_at
        octets = report(name, action="delayed", status="4.4.1", diagnostic="smtp; 451 greylisted")
        assert take(octets) == 204
    assert (partner.outbound.due_at, partner.outbound.cause) == (before, "")
    titles = [moment.title for moment in message_screen(read_message(message.pk)).moments]
    assert "On its way: a mail server could not pass it on yet" in titles


def test_word_of_a_delivery_is_no_acknowledgement() -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        message, name = sent(partner)
        assert take(report(name, action="delivered", status="2.0.0")) == 204
    message.refresh_from_db()
    assert message.state == "awaiting_ack"
    assert Transmission.objects.get().outcome == "sent"


def test_an_acknowledgement_that_bounces_is_sent_again_with_the_next_copy() -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        arrival = partner.message(1)
        partner.send(arrival)
        (job,) = work()
        assert take(report(message_id(job.parcel))) == 204
        signal = Signal.objects.get(direction="out")
        assert (signal.state, signal.due_at) == ("failed", None)
        assert "no such user" in signal.note
        partner.send(arrival)
        work()
    signal.refresh_from_db()
    assert signal.state == "sent"
    assert len(relay.mails) == 2


def test_a_message_that_is_sent_once_shows_that_it_came_back() -> None:
    with relaying() as relay:
        partner = mail_partner(relay, semantics="BestEffort")
        message, name = sent(partner)
        take(report(name))
    message.refresh_from_db()
    assert (message.state, message.cause) == ("sent", "mail_bounced")


@pytest.mark.parametrize(
    "octets",
    [
        report("12345@elsewhere.example"),
        report(f"att_{'0' * 32}@us.example"),
        report(),
    ],
)
def test_a_report_about_no_mail_of_ours_is_written_down(octets: bytes) -> None:
    mail_partner()
    assert take(octets) == 204
    rejection = Rejection.objects.get()
    assert (rejection.reason, rejection.remote_address) == ("bounce_unknown", "192.0.2.9")
    assert "no such user" in rejection.detail


def test_a_transmission_by_http_cannot_bounce() -> None:
    with link():
        partner = partner_side()
        submit(partner)
        (job,) = work()
    assert take(report(f"{job.parcel.attempt}@us.example")) == 204
    assert Rejection.objects.get().reason == "bounce_unknown"
    assert Transmission.objects.get().outcome == "sent"


def test_strangers_may_bring_reports_and_nothing_else() -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        message, name = sent(partner)
    with entrance_running(options(relays=())) as running, client(running) as other:
        assert other.transaction(report(name), sender="")[0] == 250
        assert other.transaction(mail_of(partner.message(1)), sender="")[0] == 550
        assert other.transaction(report(name) + b"x\r\n" * 1_000_000, sender="")[0] == 552
    assert Transmission.objects.get(message=message).cause == bounces.CAUSE
    assert Message.objects.filter(direction="in").count() == 0


def test_a_mail_server_that_refuses_for_good_is_seen_at_once() -> None:
    with relaying(Relay(on_rcpt="550 5.1.1 no such user")) as relay:
        partner = mail_partner(relay)
        submit(partner)
        work()
    pair = partner.outbound
    assert (pair.flow, pair.cause) == ("resend_wait", "smtp_5xx")
    assert Incident.objects.get().cause == "smtp_5xx"
