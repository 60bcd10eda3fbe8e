"""Alerts where people are: what services are told, how bad it has to be, quiet hours, and who hears of it next."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from django.core import mail

from messaging import dispatch
from messaging.engine.looking import look
from messaging.exceptions import InvalidSubmission
from messaging.journal import incidents
from messaging.models import Incident, Notification, NotificationCursor, NotificationRule
from messaging.notifications.services import notifying
from messaging.notifications.services import rules as notification_rules
from partners import secrets
from rmhub.clock import FrozenClock, frozen
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.scenes import browser
from tests.messaging.factories import partner_side
from tests.messaging.http_server import read_request, serving
from tests.messaging.notifications.test_notifying import ANN, happen, opened, rule

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def relay(settings: Any) -> None:
    """A mail server is set up, private addresses may be posted to, and the feed is read from its beginning."""
    settings.RMHUB_MAIL_SERVER = "smtp://mail.hub.test"
    settings.RMHUB_WEBHOOK_ALLOW_PRIVATE = True
    settings.RMHUB_PUBLIC_URL = "https://hub.test"
    NotificationCursor.objects.create()


@pytest.fixture
def clock() -> Iterator[FrozenClock]:
    with frozen(AT) as made:
        yield made


class Service:
    """A server in the place of an alerting service: what it was posted, and what it answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.status = "202 Accepted"
        self.url = ""

    def handle(self, connection: socket.socket) -> None:
        while True:
            head, body = read_request(connection)
            if not head:
                return
            first, *lines = head.decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            self.asked.append((first.split()[1], headers, json.loads(body)))
            connection.sendall(f"HTTP/1.1 {self.status}\r\nContent-Length: 0\r\n\r\n".encode())


@contextmanager
def service() -> Iterator[Service]:
    made = Service()
    with serving(made.handle) as server:
        made.url = f"http://127.0.0.1:{server.port}"
        yield made


def acknowledged(incident: Incident) -> None:
    incidents.incident_acknowledge(incident_id=incident.pk, actor=ANN)
    happen([])


def resolved(incident: Incident) -> None:
    incidents.incident_resolve(incident_id=incident.pk, actor=ANN, reason="they are back")
    happen([])


def states() -> list[str]:
    return list(Notification.objects.order_by("id").values_list("state", flat=True))


# --- what services are told ---


def test_slack_is_told_in_its_own_words(clock: FrozenClock) -> None:
    with service() as slack:
        rule(channel="slack", secret=f"{slack.url}/services/T0/B0/xyz")
        pair = partner_side().outbound
        incident = opened(pair, detail="<!channel> & more")
        assert notifying.notify_due() == (1, 1)
    [(path, headers, told)] = slack.asked
    assert (path, headers["content-type"]) == ("/services/T0/B0/xyz", "application/json")
    code = pair.code.replace(">", "&gt;")
    assert told["text"].startswith(f"*[TEST] {incident} opened: Partner certificate expired, {code}*")
    assert "&lt;!channel&gt; &amp; more" in told["text"]
    assert f"https://hub.test/incidents/{incident}/" in told["text"]
    assert states() == ["sent"]


def test_teams_gets_a_card_with_a_button(clock: FrozenClock) -> None:
    with service() as teams:
        rule(channel="teams", secret=f"{teams.url}/workflows/1?sig=x")
        incident = opened(partner_side().outbound)
        notifying.notify_due()
    [(path, _, told)] = teams.asked
    assert path == "/workflows/1?sig=x"
    card = told["attachments"][0]["content"]
    assert card["body"][0]["text"].startswith(f"[TEST] {incident} opened")
    assert card["actions"][0]["url"] == f"https://hub.test/incidents/{incident}/"


def test_pagerduty_has_one_alert_for_an_incident_and_it_ends_with_it(clock: FrozenClock) -> None:
    with service() as pager:
        events = ["incident.opened", "incident.acknowledged", "incident.resolved"]
        rule(channel="pagerduty", secret="R0UT1NG", address=f"{pager.url}/v2/enqueue", events=events)
        incident = opened(partner_side().outbound)
        notifying.notify_due()
        acknowledged(incident)
        notifying.notify_due()
        resolved(incident)
        notifying.notify_due()
    told = [body for _, _, body in pager.asked]
    assert [one["event_action"] for one in told] == ["trigger", "acknowledge", "resolve"]
    assert {one["dedup_key"] for one in told} == {incident.public_id}
    assert {one["routing_key"] for one in told} == {"R0UT1NG"}
    assert (told[0]["payload"]["severity"], told[0]["payload"]["custom_details"]["cause"]) == ("error", "cert_expired")


def test_opsgenie_has_one_alert_for_an_incident_and_it_ends_with_it(clock: FrozenClock) -> None:
    with service() as genie:
        events = ["incident.opened", "incident.acknowledged", "incident.resolved"]
        rule(channel="opsgenie", secret="k-e-y", address=genie.url, events=events)
        incident = opened(partner_side().outbound)
        notifying.notify_due()
        acknowledged(incident)
        notifying.notify_due()
        resolved(incident)
        notifying.notify_due()
    alias = incident.public_id
    assert [path for path, _, _ in genie.asked] == [
        "/v2/alerts",
        f"/v2/alerts/{alias}/acknowledge?identifierType=alias",
        f"/v2/alerts/{alias}/close?identifierType=alias",
    ]
    _, headers, made = genie.asked[0]
    assert headers["authorization"] == "GenieKey k-e-y"
    assert (made["alias"], made["priority"]) == (alias, "P2")


@pytest.mark.parametrize(
    ("status", "state"),
    [("403 Forbidden", "failed"), ("429 Too Many Requests", "pending"), ("503 Unavailable", "pending")],
)
def test_what_a_service_refuses_is_given_up_and_what_it_cannot_do_now_is_tried_again(
    clock: FrozenClock, status: str, state: str
) -> None:
    with service() as slack:
        slack.status = status
        rule(channel="slack", secret=slack.url)
        opened(partner_side().outbound)
        notifying.notify_due()
    one = Notification.objects.get()
    assert (one.state, one.last_error) == (state, f"Slack, Mattermost or Rocket.Chat answered {status[:3]}.")


def test_a_secret_is_encrypted_and_shown_nowhere() -> None:
    made = rule(channel="slack", secret="https://hooks.slack.test/services/T0/B0/xyz")
    assert b"xyz" not in bytes(made.secret_encrypted)
    assert secrets.decrypt(bytes(made.secret_encrypted)).endswith("/xyz")
    before = notification_rules.revision(made)
    changed = notification_rules.rule_update(rule_id=made.pk, actor=ANN, window=60, secret="")
    assert secrets.decrypt(bytes(changed.secret_encrypted)).endswith("/xyz"), "empty: it stays as it is"
    changed = notification_rules.rule_update(
        rule_id=made.pk, actor=ANN, window=3600, secret="https://hooks.slack.test/b"
    )
    assert notification_rules.revision(changed) != before
    page = browser(Role.ADMIN).get(f"/notifications/{made.public_id}/edit/").content.decode()
    shown = Api(make_token(make_user(Role.ADMIN))).get(f"/notification-rules/{made.public_id}").content.decode()
    assert "hooks.slack" not in page
    assert "hooks.slack" not in shown
    mailed = notification_rules.rule_update(rule_id=made.pk, actor=ANN, channel="mail", recipients=["a@hub.test"])
    assert not mailed.secret_encrypted


# --- how bad ---


@pytest.mark.parametrize(
    ("cause", "least", "told"),
    [
        ("certificate_expiring", "info", 1),
        ("certificate_expiring", "error", 0),
        ("cert_expired", "error", 1),
        ("cert_expired", "critical", 0),
        ("payload_missing", "critical", 1),
    ],
)
def test_what_is_less_bad_is_not_reported(clock: FrozenClock, cause: str, least: str, told: int) -> None:
    rule(least=least)
    opened(partner_side().outbound, cause=cause)
    assert notifying.read_feed() == told


# --- quiet hours ---


@pytest.mark.parametrize(
    ("now", "quiet", "zone", "until"),
    [
        ("2026-05-01T23:30", ("22:00", "07:00"), "UTC", "2026-05-02T07:00"),
        ("2026-05-02T06:59", ("22:00", "07:00"), "UTC", "2026-05-02T07:00"),
        ("2026-05-02T07:00", ("22:00", "07:00"), "UTC", None),
        ("2026-05-01T21:59", ("22:00", "07:00"), "UTC", None),
        ("2026-05-01T12:30", ("12:00", "13:00"), "UTC", "2026-05-01T13:00"),
        ("2026-05-01T20:30", ("22:00", "07:00"), "Europe/Berlin", "2026-05-02T05:00"),
        # The night in which the clocks go forward is an hour shorter.
        ("2026-03-28T22:00", ("22:00", "07:00"), "Europe/Berlin", "2026-03-29T05:00"),
    ],
)
def test_what_is_not_critical_waits_for_the_end_of_quiet_hours(
    now: str, quiet: tuple[str, str], zone: str, until: str | None
) -> None:
    at = datetime.fromisoformat(now).replace(tzinfo=UTC)
    begin, end = map(time.fromisoformat, quiet)
    made = NotificationRule(quiet_from=begin, quiet_to=end, quiet_zone=zone)
    expected = datetime.fromisoformat(until).replace(tzinfo=UTC) if until else at
    assert notifying.due_of(made, "error", at) == expected
    assert notifying.due_of(made, "critical", at) == at


def test_what_was_resolved_in_quiet_hours_is_not_sent(clock: FrozenClock) -> None:
    quiet = {"quiet_from": time(11), "quiet_to": time(14)}
    rule(**quiet)
    first, second = opened(partner_side().outbound), opened(partner_side().outbound)
    assert notifying.notify_due() == (2, 0)
    resolved(first)
    notifying.notify_due()
    assert states() == ["dropped", "pending", "dropped"]
    clock.move(3600 * 2)
    assert notifying.notify_due() == (0, 1)
    assert [one.subject.split(" opened")[0] for one in mail.outbox] == [f"[TEST] {second}"]


# --- escalation ---


def escalating(**fields: Any) -> tuple[NotificationRule, NotificationRule]:
    manager = rule("Manager", recipients=["manager@hub.test"])
    # It reports by itself what it is escalated only.
    manager.events = ["pair.paused"]
    manager.save()
    return rule(escalate_after=900, escalate_to=manager.pk, **fields), manager


def test_what_nobody_acknowledges_in_time_is_escalated_once(clock: FrozenClock) -> None:
    escalating()
    incident = opened(partner_side().outbound)
    assert notifying.notify_due() == (1, 1)
    clock.move(899)
    assert notifying.notify_due() == (0, 0)
    # Nothing else has happened since: a worker finds it by its time.
    NotificationCursor.objects.update(xid=2**62)
    assert dispatch.NOTIFICATIONS not in look(0)
    clock.move(1)
    assert dispatch.NOTIFICATIONS in look(0)
    assert notifying.notify_due() == (1, 1)
    clock.move(86_400 * 1)
    assert notifying.notify_due() == (0, 0)
    first, second = mail.outbox
    assert (first.to, second.to) == (["oncall@hub.test"], ["manager@hub.test"])
    assert second.subject.startswith(f"[TEST] {incident} not acknowledged for 15 min: Partner certificate expired")


@pytest.mark.parametrize("end", ["acknowledge", "resolve", "snooze", "off"])
def test_what_somebody_has_taken_is_not_escalated(clock: FrozenClock, end: str) -> None:
    _, manager = escalating()
    incident = opened(partner_side().outbound)
    notifying.notify_due()
    if end == "acknowledge":
        acknowledged(incident)
    elif end == "resolve":
        resolved(incident)
    elif end == "snooze":
        until = AT + timedelta(days=1)
        incidents.incident_snooze(incident_id=incident.pk, until=until, actor=ANN, reason="they know of it")
    else:
        notification_rules.rule_update(rule_id=manager.pk, actor=ANN, enabled=False, events=["pair.paused"])
    clock.move(3600 * 1)
    notifying.notify_due()
    assert not Notification.objects.filter(rule=manager).exists()
    assert not Notification.objects.filter(escalates_at__isnull=False).exists()


def test_an_escalation_may_lead_to_the_next(clock: FrozenClock) -> None:
    director = rule("Director", recipients=["director@hub.test"], events=["incident.opened"], causes=["silent"])
    manager = rule(
        "Manager", causes=["silent"], recipients=["m@hub.test"], escalate_after=1800, escalate_to=director.pk
    )
    rule(escalate_after=900, escalate_to=manager.pk)
    opened(partner_side().outbound)
    for minutes in (0, 15, 30):
        clock.move(60 * minutes)
        notifying.notify_due()
    assert [one.to for one in mail.outbox] == [["oncall@hub.test"], ["m@hub.test"], ["director@hub.test"]]


# --- rules that cannot work ---


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"channel": "slack"}, "secret"),
        ({"channel": "slack", "secret": "ftp://hooks.slack.test/x"}, "secret"),
        ({"channel": "pagerduty", "secret": "two words"}, "secret"),
        ({"channel": "opsgenie", "secret": "k", "address": "nowhere"}, "address"),
        ({"channel": "pagerduty", "secret": "k", "events": ["pair.suspended"]}, "events"),
        ({"channel": "fax"}, "channel"),
        ({"least": "awful"}, "least"),
        ({"quiet_from": time(22)}, "quiet_to"),
        ({"quiet_to": time(7)}, "quiet_from"),
        ({"quiet_from": time(7), "quiet_to": time(7)}, "quiet_to"),
        ({"quiet_zone": "Mars/Olympus"}, "quiet_zone"),
        ({"escalate_after": 900}, "escalate_to"),
        ({"escalate_after": -1}, "escalate_after"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_beside_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSubmission) as refused:
        rule(**fields)
    assert list(refused.value.errors) == [field]


def test_rules_do_not_escalate_in_a_circle() -> None:
    first, manager = escalating()
    with pytest.raises(InvalidSubmission, match="for ever"):
        notification_rules.rule_update(
            rule_id=manager.pk,
            actor=ANN,
            events=["incident.opened"],
            escalate_after=60,
            escalate_to=first.pk,
        )


# --- API and console ---


def test_the_api_and_the_form_set_them_up() -> None:
    api = Api(make_token(make_user(Role.ADMIN)))
    other = api.post(
        "/notification-rules",
        {
            "name": "Manager",
            "events": ["incident.opened"],
            "channel": "mail",
            "recipients": ["m@hub.test"],
        },
    ).json
    made = api.post(
        "/notification-rules",
        {
            "name": "Slack",
            "events": ["incident.opened"],
            "channel": "slack",
            "secret": "https://hooks.slack.test/services/x",
            "least": "error",
            "quiet_from": "22:00",
            "quiet_to": "07:00",
            "quiet_zone": "Europe/Berlin",
            "escalate_after": 900,
            "escalate_to": other["id"],
        },
    )
    assert made.status == 201
    wanted = ("error", "22:00", "07:00", "Europe/Berlin", 900, "Manager")
    shown = made.json
    names = ("least", "quiet_from", "quiet_to", "quiet_zone", "escalate_after")
    assert (*(shown[name] for name in names), shown["escalate_to"]["name"]) == wanted
    assert "secret" not in shown
    page = browser(Role.ADMIN)
    read = page.get(f"/notifications/{shown['id']}/").content.decode()
    assert "22:00 to 07:00 Europe/Berlin" in read
    assert "after 15 min" in read or "after 15 m" in read
    form = page.get(f"/notifications/{shown['id']}/edit/")
    given = {
        "revision": form.context["revision"],
        "name": "Slack",
        "enabled": "on",
        "events": ["incident.opened"],
        "channel": "slack",
        "window": "1 h",
        "least": "critical",
        "quiet_from": "",
        "quiet_to": "",
        "quiet_zone": "",
        "escalate_after": "",
        "escalate_to": "",
    }
    assert page.post(f"/notifications/{shown['id']}/edit/", given).status_code == 303
    changed = api.get(f"/notification-rules/{shown['id']}").json
    assert (changed["least"], changed["quiet_from"], changed["escalate_to"]) == ("critical", None, None)
