"""Notifications: who is told of what, what is folded, and what happens when it cannot be told."""

from __future__ import annotations

import itertools
import json
import smtplib
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import translation
from django.utils.translation import trans_real

from messaging import dispatch
from messaging.engine.looking import look
from messaging.exceptions import InvalidSubmission, NotFound, Stale
from messaging.journal import events, incidents
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Event, Incident, Notification, NotificationCursor, NotificationRule, Pair, feed
from messaging.notifications.services import notifying, webhooks
from messaging.notifications.services import rules as notification_rules
from messaging.onboarding.services import changing as onboarding
from partners.models import PartnerGroup
from rmhub.clock import FrozenClock, frozen
from rmhub.ids import uuid7
from tests.messaging.console.test_languages import Marking
from tests.messaging.factories import partner_side
from tests.messaging.http_server import read_request, serving

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = Actor("ann", "console")
_xids = itertools.count(10)
_OLD = 500  # transactions of the making of the database itself have such numbers


@pytest.fixture(autouse=True)
def relay(settings: Any) -> None:
    """A mail server is set up, and the feed is read from its beginning."""
    settings.RMHUB_MAIL_SERVER = "smtp://mail.hub.test"
    settings.RMHUB_MAIL_FROM = "hub@hub.test"
    NotificationCursor.objects.create()


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    with frozen(AT) as clock:
        yield clock


def rule(name: str = "On call", **fields: Any) -> NotificationRule:
    wanted: dict[str, Any] = {
        "events": ["incident.opened", "incident.resolved"],
        "channel": "mail",
        "recipients": ["oncall@hub.test"],
    }
    return notification_rules.rule_create(name=name, actor=ANN, **{**wanted, **fields})


def happen(written: list[Event]) -> None:
    """The events are committed: the transaction of a test never is, so they get numbers of old transactions."""
    events.write(written)
    xid = next(_xids)
    Event.objects.filter(xid__gte=_OLD).update(xid=xid)
    # All that had happened before was read.
    NotificationCursor.objects.filter(xid__gte=_OLD).update(xid=xid - 1, event_id=feed.LAST_ID)


def opened(pair: Pair | None, cause: str = "cert_expired", at: datetime = AT, **fields: Any) -> Incident:
    incident, written = incidents.incident_open(pair=pair, cause=cause, now=at, **fields)
    happen(written)
    return incident


def test_an_incident_is_told_by_mail(time: FrozenClock) -> None:
    made = rule()
    pair = partner_side().outbound
    incident = opened(pair, detail="certificate has\r\nBcc: everybody@evil.test\r\nexpired")
    assert notifying.notify_due() == (1, 1)
    [told] = mail.outbox
    assert told.to == ["oncall@hub.test"]
    assert told.from_email == "hub@hub.test"
    assert told.subject == f"[TEST] {incident} opened: Partner certificate expired, {pair.code}"
    text = str(told.body)
    assert "Ask the partner to renew it." in text
    assert f"Partner: {pair.partner.name}" in text
    assert f"/incidents/{incident}/" in text
    assert "Bcc" not in told.message()
    one = Notification.objects.get()
    assert (one.rule, one.incident, one.state, one.attempts, one.sent_at) == (made, incident, "sent", 1, AT)
    assert told.message()["Message-ID"].startswith(f"<{one.public_id}@")
    assert notifying.notify_due() == (0, 0), "once"


def test_what_one_claim_leaves_is_told_by_those_that_follow(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in the transaction that records those before."""
    monkeypatch.setattr(notifying, "_CLAIM", 2)
    rule(events=["incident.opened"])
    for _ in range(5):
        opened(partner_side().outbound)
    assert notifying.notify_due() == (5, 5)
    assert len(mail.outbox) == 5
    assert set(Notification.objects.values_list("state", "attempts")) == {("sent", 1)}


def test_of_one_trouble_people_are_told_once(time: FrozenClock) -> None:
    rule(events=["incident.opened", "incident.resolved"])
    pair = partner_side().outbound
    first = opened(pair, cause="connect_refused")
    assert opened(pair, cause="server_unreachable").part_of == first
    assert notifying.read_feed() == 1
    incidents.incident_resolve(incident_id=first.pk, actor=ANN, reason="they are back")
    assert list(Notification.objects.values_list("incident__cause", flat=True)) == ["connect_refused"]


def test_the_same_trouble_within_the_window_is_folded_into_one(time: FrozenClock) -> None:
    rule(window=3600, events=["incident.opened"])
    pair, other = partner_side().outbound, partner_side().outbound
    for minutes in (0, 10, 20):
        incident = opened(pair, at=AT + timedelta(minutes=minutes))
        incidents.incident_resolve(incident_id=incident.pk, actor=ANN, reason="again")
    opened(other)
    opened(other, cause="ack_timeout")
    assert notifying.read_feed() == 3
    assert sorted(Notification.objects.values_list("folded", flat=True)) == [0, 0, 2]
    time.move(3601)
    opened(pair, at=AT + timedelta(seconds=3601))
    assert notifying.read_feed() == 1
    last = Notification.objects.order_by("-id")[0]
    assert (last.folded, "it happened 2 times more" in last.body) == (0, True)
    assert last.data["data"]["notification"]["folded"] == 2


def test_a_next_step_is_no_repeat(time: FrozenClock) -> None:
    rule(events=["pair.retry_budget"])
    pair = partner_side().outbound
    for percent in (50, 70, 70):
        happen([events.event("pair.retry_budget", AT, pair=pair, data={"percent": percent, "cause": "ack_timeout"})])
    assert notifying.read_feed() == 2
    assert "Per cent of the retries used: 70" in Notification.objects.order_by("-id")[0].body


def test_an_agreement_that_goes_out_of_force_is_told_by_name_with_its_page(time: FrozenClock) -> None:
    rule(events=["agreement.disabled"])
    terms = partner_side().terms
    agreement = onboarding.agreement_disable(agreement_id=terms.agreement_id, actor=ANN, reason="It has ended")
    happen([])
    assert notifying.read_feed() == 1
    told = Notification.objects.get()
    assert told.subject == f"[TEST] Agreement disabled, {agreement.tpa_id}"
    assert f"/agreements/{agreement.public_id}/" in told.body and "It has ended" in told.body


def test_a_window_of_nothing_tells_every_time(time: FrozenClock) -> None:
    rule(window=0, events=["incident.opened"])
    pair = partner_side().outbound
    for _ in range(3):
        incidents.incident_resolve(incident_id=opened(pair).pk, actor=ANN, reason="again")
    assert notifying.read_feed() == 3


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, 2),
        ({"causes": ["cert_expired"]}, 1),
        ({"causes": ["ack_timeout", "cert_expired"]}, 2),
        ({"causes": ["dns_error"]}, 0),
        ({"events": ["pair.suspended"]}, 0),
        ({"enabled": False}, 0),
    ],
)
def test_a_rule_tells_of_its_events_and_causes(time: FrozenClock, fields: dict[str, Any], told: int) -> None:
    rule(**fields)
    rule("keeps the feed read", events=["agreement.disabled"])
    for cause in ("cert_expired", "ack_timeout"):
        opened(partner_side().outbound, cause)
    assert notifying.read_feed() == told


def test_a_rule_for_a_group_tells_of_its_partners_only(time: FrozenClock) -> None:
    ours, theirs = partner_side().outbound, partner_side().outbound
    group = PartnerGroup.objects.create(name="North")
    ours.partner.groups.add(group)
    rule(group=group.pk)
    opened(theirs)
    opened(None)
    mine = opened(ours)
    assert notifying.read_feed() == 1
    assert Notification.objects.get().incident == mine


def test_what_was_put_off_is_not_told_and_its_end_is(time: FrozenClock) -> None:
    rule(events=["incident.acknowledged", "incident.snoozed", "incident.resolved"])
    incident = opened(partner_side().outbound)
    notifying.read_feed()
    incidents.incident_snooze(incident_id=incident.pk, until=AT + timedelta(hours=4), actor=ANN, reason="maintenance")
    incidents.incident_acknowledge(incident_id=incident.pk, actor=ANN)
    happen([])
    assert notifying.read_feed() == 1
    assert "snoozed" in Notification.objects.get().subject
    incidents.incident_resolve(incident_id=incident.pk, actor=ANN, reason="it is up")
    happen([])
    assert notifying.read_feed() == 1


def test_a_new_rule_does_not_tell_of_the_past(time: FrozenClock) -> None:
    opened(partner_side().outbound)
    assert notifying.notify_due() == (0, 0)
    rule()
    before = feed.latest()
    assert notifying.notify_due() == (0, 0)
    cursor = NotificationCursor.objects.get()
    # The number moves with every transaction of the server, those of other databases too.
    assert before <= feed.Position(cursor.xid, cursor.event_id) <= feed.latest()


def test_after_a_restore_with_smaller_numbers_it_goes_on(time: FrozenClock) -> None:
    rule()
    NotificationCursor.objects.update(xid=1 << 60)
    assert notifying.read_feed() == 0
    assert NotificationCursor.objects.get().xid < 1 << 40


def test_reading_the_feed_costs_the_same_however_much_happened(time: FrozenClock) -> None:
    rule(window=0)

    def cost(count: int) -> int:
        pair = partner_side().outbound
        for _ in range(count):
            incidents.incident_resolve(incident_id=opened(pair).pk, actor=ANN, reason="again")
        happen([])
        with CaptureQueriesContext(connection) as captured:
            assert notifying.read_feed() == 2 * count
        return len([q for q in captured.captured_queries if not q["sql"].startswith("INSERT")])

    assert cost(1) == cost(5)


class Down(EmailBackend):
    """A mail server that cannot be reached."""

    def send_messages(self, messages: Any) -> int:
        raise ConnectionRefusedError("[Errno 111] refused\nby the server")


class Refusing(EmailBackend):
    """A mail server that knows nobody."""

    def send_messages(self, messages: Any) -> int:
        raise smtplib.SMTPRecipientsRefused({"oncall@hub.test": (550, b"no such user")})


def test_what_cannot_be_sent_is_tried_again_and_given_up_in_the_end(time: FrozenClock, settings: Any) -> None:
    settings.EMAIL_BACKEND = f"{__name__}.Down"
    rule()
    opened(partner_side().outbound)
    assert notifying.notify_due() == (1, 1)
    one = Notification.objects.get()
    assert (one.state, one.attempts, one.due_at) == ("pending", 1, AT + timedelta(seconds=60))
    assert one.last_error == "The mail server could not be reached: [Errno 111] refused by the server"
    assert notifying.notify_due() == (0, 0)
    for wait in notifying.SCHEDULE:
        time.move(wait)
        assert notifying.send_due() == 1
    one.refresh_from_db()
    assert (one.state, one.attempts, one.due_at) == ("failed", 6, None)
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    time.move(86_400)
    assert notifying.send_due() == 0


def test_a_refusal_names_the_recipient(time: FrozenClock, settings: Any) -> None:
    settings.EMAIL_BACKEND = f"{__name__}.Refusing"
    made = rule()
    one = notifying.rule_test(rule_id=made.pk, actor=ANN)
    assert one.last_error == "The mail server refused the recipients (oncall@hub.test: 550)."


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "No mail server is set up"),
        ("mail.hub.test", "The mail server's URL must begin with"),
        ("smtp://me:secret@mail.hub.test", "not encrypted"),
    ],
)
def test_without_a_usable_mail_server_the_reason_is_told(settings: Any, url: str, said: str) -> None:
    settings.RMHUB_MAIL_SERVER = url
    settings.RMHUB_SMTP_RELAY = ""
    one = notifying.rule_test(rule_id=rule().pk, actor=ANN)
    assert (one.state, said in one.last_error, "secret" in one.last_error) == ("failed", True, False)
    assert not mail.outbox


def test_a_worker_that_died_with_it_does_not_keep_it(time: FrozenClock) -> None:
    rule()
    opened(partner_side().outbound)
    notifying.read_feed()
    due = Notification.objects.filter(rule__enabled=True).select_related("rule__endpoint")
    assert len(webhooks.claim(due, timedelta(seconds=300), 8)) == 1
    assert notifying.send_due() == 0, "the lease"
    time.move(301)
    assert notifying.send_due() == 1
    assert Notification.objects.get().attempts == 2


def test_a_webhook_endpoint_is_told_with_a_signature(time: FrozenClock, settings: Any) -> None:
    settings.RMHUB_WEBHOOK_ALLOW_PRIVATE = True
    came: list[tuple[bytes, bytes]] = []

    def take(connection: socket.socket) -> None:
        came.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

    with serving(take) as far:
        endpoint, _ = webhooks.endpoint_create(url=far.url, types=["agreement.disabled"], name="Pager", actor=ANN)
        rule(channel="webhook", recipients=[], endpoint=endpoint.pk)
        incident = opened(partner_side().outbound)
        assert notifying.notify_due() == (1, 1)
    [(head, body)] = came
    told = json.loads(body)
    assert told["type"] == "incident.opened"
    assert told["data"]["incident"] == incident.public_id
    assert told["data"]["notification"]["name"] == "On call"
    assert b"webhook-id: dlv_" + Notification.objects.get().pk.hex.encode() in head
    assert b"webhook-signature: v1," in head
    assert Notification.objects.get().state == "sent"


def test_a_test_says_what_came_of_it_and_is_in_the_audit_log(time: FrozenClock) -> None:
    made = rule()
    one = notifying.rule_test(rule_id=made.pk, actor=ANN)
    assert (one.state, one.due_at, len(mail.outbox)) == ("sent", None, 1)
    assert "Nothing has happened" in str(mail.outbox[0].body)
    assert AuditEntry.objects.get(verb="notification_rule.test").object_id == made.public_id
    with pytest.raises(NotFound):
        notifying.rule_test(rule_id=uuid7(), actor=ANN)


def test_old_ones_are_removed(time: FrozenClock) -> None:
    made = rule()
    notifying.rule_test(rule_id=made.pk, actor=ANN)
    assert notifying.drop_old(datetime.now(UTC) + timedelta(days=89)) == 0
    Notification.objects.update(created_at=datetime.now(UTC))
    assert notifying.drop_old(datetime.now(UTC) + timedelta(days=91)) == 1


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("name", {"name": " "}),
        ("name", {"name": "a\nb"}),
        ("name", {"name": "x" * 81}),
        ("events", {"events": []}),
        ("events", {"events": ["message.accepted"]}),
        ("recipients", {"recipients": []}),
        ("recipients", {"recipients": ["a@b", "nobody"]}),
        ("recipients", {"recipients": ["x@hub.test\r\nBcc: y@hub.test"]}),
        ("recipients", {"recipients": [f"a{n}@hub.test" for n in range(51)]}),
        ("channel", {"channel": "pigeon"}),
        ("endpoint", {"channel": "webhook"}),
        ("endpoint", {"channel": "webhook", "endpoint": uuid7()}),
        ("group", {"group": uuid7()}),
        ("window", {"window": -1}),
        ("window", {"window": 604_801}),
        ("causes", {"causes": ["c" * 61]}),
    ],
)
def test_a_rule_that_cannot_work_is_refused(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidSubmission) as refused:
        rule(**fields)
    assert field in refused.value.errors
    assert not NotificationRule.objects.exists()


def test_rules_are_changed_and_removed_with_an_entry_in_the_audit_log() -> None:
    made = rule()
    seen = notification_rules.revision(made)
    with pytest.raises(InvalidSubmission, match="already"):
        rule()
    changed = notification_rules.rule_update(rule_id=made.pk, actor=ANN, expected=seen, window=60, enabled=False)
    assert (changed.window, changed.enabled) == (60, False)
    entry = AuditEntry.objects.get(verb="notification_rule.update")
    assert (entry.before["window"], entry.after["window"]) == (3600, 60)
    for call in (notification_rules.rule_update, notification_rules.rule_delete):
        with pytest.raises(Stale):
            call(rule_id=made.pk, actor=ANN, expected=seen)
    notification_rules.rule_delete(rule_id=made.pk, actor=ANN, reason="nobody reads it")
    assert not NotificationRule.objects.exists()
    with pytest.raises(NotFound):
        notification_rules.rule_update(rule_id=made.pk, actor=ANN)


def test_a_worker_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from messaging import tasks

    monkeypatch.setattr(tasks, "give_back", lambda: None)  # the test's own is not to be closed
    rule()
    opened(partner_side().outbound)
    assert {dispatch.NOTIFICATIONS, dispatch.SEAL} <= set(look(0))
    assert tasks.notifications_due() == "made 1, tried 1, password resets 0"
    assert tasks.audit_seal() == f"sealed {AuditEntry.objects.count()}"


def test_mails_are_in_the_language_of_the_hub(
    time: FrozenClock, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setitem(trans_real._translations, "de", Marking("de"))  # type: ignore[attr-defined]
    made = rule()
    with translation.override("de"):
        notifying.rule_test(rule_id=made.pk, actor=ANN)
    settings.RMHUB_LANGUAGE = "de"
    incident = opened(partner_side().outbound)
    assert notifying.notify_due() == (1, 1)
    tested, told = mail.outbox
    assert tested.subject == f"[TEST] Test of the notification rule {made.name}"
    assert told.subject.startswith(f"[TEST] ⟦{incident} opened: ")
    text = str(told.body)
    assert "⟦What to do: " in text
    assert f"⟦⟦Cause⟧: {incident.cause}⟧" in text
    assert f"⟦Sent by the rule {made.name} of " in text
    assert translation.get_language() == "en-gb"
    # What is kept about an attempt is English, whoever looks.
    webhook = rule("Chat", channel="slack", secret="http://127.0.0.1:9/hook", events=["incident.opened"])
    settings.RMHUB_WEBHOOK_ALLOW_PRIVATE = False
    with translation.override("de"):
        failed = notifying.rule_test(rule_id=webhook.pk, actor=ANN)
    assert failed.last_error == "Only https (RMHUB_WEBHOOK_ALLOW_PRIVATE=1 allows http and private addresses)."
    assert failed.subject == f"[TEST] ⟦Test of the notification rule {webhook.name}⟧"
