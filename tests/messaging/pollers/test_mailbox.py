"""Mailboxes: what is taken out of them, on whose word, and exactly once whatever dies when."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from django.conf import LazySettings
from django.db import models

from messaging.engine.claiming import claim_due
from messaging.engine.recording import record
from messaging.entrance import mail as mail_service
from messaging.models import Message, PollerState, Rejection, Transmission
from messaging.pollers.services import collecting_mail, pollers
from messaging.pollers.services.collecting import Found, Look
from messaging.transports import send
from messaging.transports.base import Login
from messaging.transports.imap import mailbox_name
from messaging.transports.smtp import message_id
from partners.choices import PollerKind
from partners.models import Endpoint, Poller
from partners.services import poller_create
from tests.messaging.entrance.mail.partners import OURS, mail_of, mail_partner
from tests.messaging.entrance.mail.reports import report
from tests.messaging.entrance.mail.servers import Certificates, relaying
from tests.messaging.factories import PartnerSide, submit, work
from tests.messaging.pollers.imap_server import Store, imap_serving

pytestmark = pytest.mark.django_db

CHECKER = "mx.us.example"
PASSED = b"Authentication-Results: mx.us.example; spf=pass smtp.mailfrom=msh@partner.example\r\n"


@pytest.fixture
def box(trusting: Certificates) -> Iterator[Store]:
    with imap_serving(Store(), trusting) as store:
        yield store


def look(store: Store, position: str = "", *, seconds: float = 60, **changes: object) -> Found:
    """One look, with nothing around it."""
    fields: dict[str, object] = {
        "poller_id": uuid.uuid4(),
        "name": "box",
        "kind": "imap",
        "url": f"imaps://localhost:{store.port}/INBOX",
        "login": Login("hub", "s3cret pass"),
        "host_key": "",
        "trusted_checker": CHECKER,
        "partner": None,
        "position": position,
        "connect_timeout": 3,
        "read_timeout": 3,
        "until": time.monotonic() + seconds,
        **changes,
    }
    return collecting_mail.collect(Look(**fields))  # type: ignore[arg-type]


def mails(partner: PartnerSide, *numbers: int) -> list[bytes]:
    return [PASSED + mail_of(partner.message(number)) for number in numbers]


def test_a_mailbox_is_read_once_and_in_order(box: Store) -> None:
    partner = mail_partner()
    for octets in mails(partner, 1, 2):
        box.add(octets)
    first = look(box)
    assert (first.taken, first.refused, first.cause) == (2, 0, "")
    assert box.flags == {1: {"Seen"}, 2: {"Seen"}}
    box.add(mails(partner, 3)[0])
    asked = len(box.asked)
    second = look(box, first.position or "")
    assert second.taken == 1
    assert partner.inbound.last_sequence == 3
    assert not [command for command in box.asked[asked:] if command.startswith(("UID FETCH 1", "UID FETCH 2 "))]
    third = look(box, second.position or "")
    assert (third.taken, third.position) == (0, second.position)


@pytest.mark.django_db(transaction=True)
def test_the_beat_looks_records_and_goes_on_where_it_was(box: Store) -> None:
    partner = mail_partner()
    box.add(mails(partner, 1)[0])
    poller = poller_create(
        endpoint=Endpoint.objects.get(uri=f"mailto:{OURS}"),
        name="box",
        kind=PollerKind.IMAP,
        url=f"imaps://localhost:{box.port}/INBOX",
        username="hub",
        secret="s3cret pass",
        trusted_checker=CHECKER,
    )
    (job,) = pollers.claim_due(10)
    pollers.record([(job, pollers.look(job))])
    state = PollerState.objects.get(poller=Poller.objects.get(pk=poller.pk))
    assert (state.taken, state.cause, state.position.partition("@")[0]) == (1, "", "1:1")
    assert Message.objects.count() == 1


def test_an_acknowledgement_out_of_the_mailbox_completes_the_message(box: Store) -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        message = submit(partner)
        (job,) = work()
    box.add(PASSED + mail_of(partner.acknowledgement(job.parcel)))
    assert look(box).taken == 1
    message.refresh_from_db()
    assert message.state == "delivered"


def test_a_crash_between_commit_and_mark_reads_it_twice_and_stores_it_once(
    box: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        box.add(mails(partner, 1)[0])
        taken = mail_service.ebxml.receive

        def dies(*arguments: object, **named: object) -> int:
            taken(*arguments, **named)  # type: ignore[arg-type]
            raise SystemExit("killed")

        monkeypatch.setattr(mail_service.ebxml, "receive", dies)
        with pytest.raises(SystemExit):
            look(box)
        assert Message.objects.count() == 1
        assert box.flags == {1: set()}
        monkeypatch.setattr(mail_service.ebxml, "receive", taken)
        assert look(box).taken == 1
        work()
        work()
    assert Message.objects.get().copies == 1
    assert len(relay.mails) == 2
    assert box.flags == {1: {"Seen"}}


@pytest.mark.django_db(transaction=True)
def test_what_cannot_be_stored_stays_where_it_is(
    box: Store, commit_fails: Callable[[type[models.Model]], AbstractContextManager[None]]
) -> None:
    partner = mail_partner()
    for octets in mails(partner, 1, 2):
        box.add(octets)
    with commit_fails(Message):
        found = look(box)
    assert (found.taken, found.cause) == (0, "internal_error")
    assert box.flags == {1: set(), 2: set()}
    assert look(box, found.position or "").taken == 2


@pytest.mark.parametrize(
    "results",
    [
        b"",
        b"Authentication-Results: elsewhere.example; dkim=pass header.d=partner.example\r\n",
        b"Authentication-Results: mx.us.example; dkim=pass header.d=evil.example\r\n",
        b"Authentication-Results: mx.us.example; none\r\n" + PASSED,
        PASSED + b"From: other@partner.example\r\n",
    ],
)
def test_nobody_is_believed_without_the_checkers_word(box: Store, results: bytes) -> None:
    partner = mail_partner()
    box.add(results + mail_of(partner.message(1)))
    found = look(box)
    assert (found.taken, found.refused) == (0, 1)
    assert box.flags == {1: {"Seen", "Flagged"}}
    rejection = Rejection.objects.get()
    assert (rejection.reason, rejection.remote_address) == ("sender_unproved", "localhost UID 1")
    assert not Message.objects.exists()


def test_a_partner_without_a_trusted_checker_is_not_believed(box: Store) -> None:
    partner = mail_partner()
    box.add(mails(partner, 1)[0])
    assert look(box, trusted_checker="").refused == 1


def test_other_uids_mean_that_all_is_read_again_and_recognised(box: Store) -> None:
    partner = mail_partner()
    box.add(mails(partner, 1)[0])
    first = look(box)
    box.validity = 2
    second = look(box, first.position or "")
    assert second.taken == 1
    assert Message.objects.get().copies == 1


def test_a_position_of_another_mailbox_is_none_of_this_one(box: Store) -> None:
    partner = mail_partner()
    box.add(mails(partner, 1)[0])
    assert look(box, "1:17@000000000000").taken == 1


def test_a_mail_that_is_too_large_is_not_even_read(box: Store, settings: LazySettings) -> None:
    settings.RMHUB_MAX_MESSAGE_BYTES = 1024
    partner = mail_partner()
    box.add(b"x" * 300_000)
    box.add(mails(partner, 1)[0])
    found = look(box)
    assert (found.refused, found.position is not None) == (2, True)
    assert sorted(Rejection.objects.values_list("reason", flat=True)) == ["body_too_large"] * 2
    assert not [command for command in box.asked if command.startswith("UID FETCH 1 (BODY")]


def test_when_the_time_is_up_the_rest_is_for_the_next_look(box: Store) -> None:
    partner = mail_partner()
    box.add(mails(partner, 1)[0])
    found = look(box, seconds=-1)
    assert (found.taken, found.more) == (0, True)


def test_a_mailbox_that_may_only_be_read_is_read(box: Store) -> None:
    box.read_only = True
    partner = mail_partner()
    box.add(mails(partner, 1)[0])
    found = look(box)
    assert (found.taken, found.cause) == (1, "")
    assert look(box, found.position or "").taken == 0


def test_a_connection_that_breaks_keeps_what_was_done(box: Store) -> None:
    partner = mail_partner()
    for octets in mails(partner, 1, 2):
        box.add(octets)
    box.breaks_at = "UID FETCH 2 (BODY"
    found = look(box)
    assert (found.taken, found.cause) == (1, "connection_reset")
    box.breaks_at = ""
    assert look(box, found.position or "").taken == 1


@pytest.mark.parametrize(
    ("changes", "cause", "permanent"),
    [
        ({"login": Login("hub", "wrong")}, "login_refused", True),
        ({"login": None}, "login_missing", True),
        ({"url": "imaps://localhost:{port}/Elsewhere"}, "folder_missing", True),
        ({"url": "imaps://localhost:1/INBOX"}, "connect_refused", False),
    ],
)
def test_why_it_could_not_look(box: Store, changes: dict[str, object], cause: str, permanent: bool) -> None:
    changed = {
        name: value.format(port=box.port) if isinstance(value, str) else value for name, value in changes.items()
    }
    found = look(box, **changed)
    assert (found.cause, found.permanent) == (cause, permanent)
    assert "s3cret" not in found.detail
    assert "wrong" not in found.detail


def test_a_certificate_that_nobody_vouches_for_ends_it(certificates: Certificates) -> None:
    with imap_serving(Store(), certificates) as store:
        found = look(store)
    assert (found.cause, found.permanent, store.asked) == ("cert_untrusted", True, [])


@pytest.mark.parametrize("plain", [True, False])
def test_starttls_before_the_log_in(trusting: Certificates, plain: bool) -> None:
    with imap_serving(Store(starttls=True, plain=plain), trusting) as store:
        found = look(store, url=f"imap+starttls://localhost:{store.port}/INBOX")
    assert found.cause == ""
    words = [command.split()[0] for command in store.asked]
    assert words.index("STARTTLS") < words.index("AUTHENTICATE" if plain else "LOGIN")


def test_names_of_mailboxes_in_any_language(trusting: Certificates) -> None:
    assert mailbox_name("Entwürfe & mehr") == "Entw&APw-rfe &- mehr"
    with imap_serving(Store(name="INBOX/&U,BTFw-"), trusting) as store:
        assert look(store, url=f"imaps://localhost:{store.port}/INBOX/%E5%8F%B0%E5%8C%97").cause == ""


def test_a_report_that_comes_too_early_waits_for_the_next_look(box: Store) -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        submit(partner)
        (job,) = claim_due(limit=1)
        receipt = send("smtp", job.parcel)
        box.add(report(message_id(job.parcel)))
        box.add(mails(partner, 1)[0])
        first = look(box)
        assert (first.taken, first.refused, box.flags) == (0, 0, {1: set(), 2: set()})
        record([(job, receipt)])
    assert look(box, first.position or "").taken == 2
    assert Transmission.objects.get(message__isnull=False).cause == "mail_bounced"
