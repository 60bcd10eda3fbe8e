"""What people do with incidents: give them to somebody, put them off, talk about them, close them; and their story."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from messaging.exceptions import InvalidSubmission, Stale, WrongState
from messaging.incidents import selectors as incident_timeline
from messaging.journal import incidents
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Event, Incident, IncidentNote, Pair
from messaging.overview.selectors import records
from messaging.pairs.selectors import screens
from messaging.pairs.services import operating
from rmhub.clock import FrozenClock, frozen
from rmhub.roles import Role
from tests.messaging.console.scenes import EXPIRED, delivered, suspended
from tests.messaging.factories import link, partner_side, work

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = Actor("ann")


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    with frozen(AT) as clock:
        yield clock


def person(name: str, role: Role | None = Role.OPERATOR, **fields: Any) -> User:
    made = User.objects.create_user(name, **fields)
    if role is not None:
        made.groups.add(Group.objects.get_or_create(name=role)[0])
    return made


def opened(pair: Pair | None = None, cause: str = "ack_timeout") -> Incident:
    return incidents.incident_open(pair=pair or partner_side().outbound, cause=cause, now=AT)[0]


def test_it_is_given_to_somebody_who_may_work_on_it(time: FrozenClock) -> None:
    person("olga")
    incident = opened()
    given = incidents.incident_assign(incident_id=incident.pk, owner="olga", actor=ANN, reason="her partner")
    assert (given.state, given.owner, given.acknowledged_at, given.version) == ("acknowledged", "olga", AT, 2)
    [event] = Event.objects.all()
    assert (event.type, event.data["owner"], event.data["cause"]) == ("incident.assigned", "olga", "ack_timeout")
    note = IncidentNote.objects.get()
    assert (note.kind, note.author, note.text) == ("owner", "ann", "Given to olga. her partner")
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.before["owner"], entry.after["owner"]) == ("incident.assign", "", "olga")


def test_nobody_else_can_own_it() -> None:
    person("vera", Role.VIEWER)
    person("gone", is_active=False)
    person("nobody", None)
    person("root", None, is_superuser=True)
    incident = opened()
    assert incidents.may_own() == ["root"]
    for owner in ("vera", "gone", "nobody", "stranger", ""):
        with pytest.raises(InvalidSubmission, match="owner"):
            incidents.incident_assign(incident_id=incident.pk, owner=owner, actor=ANN)


def test_it_is_put_off_and_comes_back_by_itself(time: FrozenClock) -> None:
    incident, other = opened(), opened()
    until = AT + timedelta(hours=4)
    incidents.incident_snooze(incident_id=incident.pk, until=until, actor=ANN, reason="maintenance")
    assert list(records.incidents(snoozed=True)) == [incident]
    assert list(records.incidents(snoozed=False)) == [other]
    assert screens.nav_counts().incidents == 1
    time.move(4 * 3600)
    assert set(records.incidents(snoozed=False)) == {incident, other}
    assert screens.nav_counts().incidents == 2
    assert IncidentNote.objects.get().text == "Until 2026-05-01 16:00 UTC. maintenance"
    assert Event.objects.get().data["until"] == until.isoformat()


def test_putting_off_can_be_ended(time: FrozenClock) -> None:
    incident = opened()
    incidents.incident_snooze(incident_id=incident.pk, until=AT + timedelta(hours=4), actor=ANN, reason="maintenance")
    incidents.incident_snooze(incident_id=incident.pk, until=None, actor=ANN, reason="it is over")
    assert not records.incidents(snoozed=True).exists()


@pytest.mark.parametrize("hours", [-1, 0, 30 * 24 + 1])
def test_it_is_put_off_to_a_time_that_comes_soon(time: FrozenClock, hours: int) -> None:
    with pytest.raises(InvalidSubmission, match="until"):
        incidents.incident_snooze(
            incident_id=opened().pk, until=AT + timedelta(hours=hours), actor=ANN, reason="maintenance"
        )


def test_it_is_not_put_off_without_a_reason(time: FrozenClock) -> None:
    with pytest.raises(InvalidSubmission, match="reason"):
        incidents.incident_snooze(incident_id=opened().pk, until=AT + timedelta(hours=1), actor=ANN, reason=" ")


def test_whoever_looked_before_somebody_acted_is_told(time: FrozenClock) -> None:
    person("olga")
    incident = opened()
    seen = incident.version
    incidents.incident_acknowledge(incident_id=incident.pk, actor=ANN, expected_version=seen)
    for call, more in (
        (incidents.incident_acknowledge, {}),
        (incidents.incident_assign, {"owner": "olga"}),
        (incidents.incident_snooze, {"until": AT + timedelta(hours=1), "reason": "later"}),
        (incidents.incident_resolve, {"reason": "done"}),
    ):
        with pytest.raises(Stale):
            call(incident_id=incident.pk, actor=Actor("bob"), expected_version=seen, **more)  # type: ignore[operator]


def test_an_occurrence_does_not_make_a_form_stale(time: FrozenClock) -> None:
    incident = opened()
    incidents.incident_open(pair=incident.pair, cause="ack_timeout", now=AT)
    incidents.incident_acknowledge(incident_id=incident.pk, actor=ANN, expected_version=incident.version)


def test_comments_are_kept_also_behind_the_end(time: FrozenClock) -> None:
    incident = opened()
    incidents.incident_resolve(incident_id=incident.pk, actor=ANN, reason="done")
    incidents.incident_comment(incident_id=incident.pk, text=" For the next time: call Bob. ", actor=ANN)
    assert IncidentNote.objects.get().text == "For the next time: call Bob."
    for text in ("", "  ", "x" * 5001):
        with pytest.raises(InvalidSubmission, match="text"):
            incidents.incident_comment(incident_id=incident.pk, text=text, actor=ANN)
    with pytest.raises(WrongState):
        incidents.incident_snooze(incident_id=incident.pk, until=AT + timedelta(hours=1), actor=ANN, reason="later")


def test_it_is_closed_with_what_it_was_and_what_was_done() -> None:
    incident = opened()
    incidents.incident_resolve(incident_id=incident.pk, actor=ANN, reason="They opened it", found="Firewall")
    incident.refresh_from_db()
    assert incident.resolution == "Firewall → They opened it"
    assert AuditEntry.objects.get().after["found"] == "Firewall"


def test_incidents_are_found_by_owner() -> None:
    incident, other = opened(), opened()
    incidents.incident_acknowledge(incident_id=incident.pk, actor=Actor("olga (token ERP)"), owner="olga")
    assert list(records.incidents(owner="olga")) == [incident]
    assert list(records.incidents(owner="")) == [other]


# ---- the story


def test_the_story_of_a_suspended_pair(time: FrozenClock) -> None:
    partner = suspended(time)
    incident = records.incident(Incident.objects.get().pk)
    time.move(60)
    incidents.incident_acknowledge(incident_id=incident.pk, actor=ANN, reason="I call them")
    time.move(60)
    incidents.incident_comment(incident_id=incident.pk, text="They renew it", actor=ANN)
    time.move(60)
    operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason="renewed")
    rows = incident_timeline.moments(records.incident(incident.pk))
    told = [(row.kind, row.title) for row in rows]
    assert told == [
        ("attempts", "2 attempts failed"),
        ("event", "Opened"),
        ("event", "Retries being used up"),
        ("event", "Pair suspended"),
        ("person", "Acknowledge"),
        ("comment", "Comment"),
        ("event", "Pair resumed"),
        ("event", "Resolved"),
        ("person", f"Resume ({partner.outbound.code})"),
    ]
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    assert "Partner certificate expired" in rows[0].detail
    assert {row.by for row in rows if row.kind in ("person", "comment")} == {"ann"}


def test_the_story_of_the_hub_itself(time: FrozenClock) -> None:
    incident, _ = incidents.incident_open(pair=None, cause="audit_chain_broken", now=AT, detail="Entry 7")
    time.move(60)
    incidents.incident_resolve(incident_id=incident.pk, actor=ANN, reason="was restored")
    rows = incident_timeline.moments(records.incident(incident.pk))
    assert [(row.title, row.by) for row in rows] == [("Opened", ""), ("Resolved", "ann")]


def test_what_helped_before_comes_from_the_same_pair_first(time: FrozenClock) -> None:
    pair = partner_side().outbound
    made = {}
    for name, where, by in (
        ("own", pair, "ann"),
        ("hub", pair, "system"),
        ("elsewhere", partner_side().outbound, "ann"),
    ):
        one = opened(where)
        incidents.incident_resolve(incident_id=one.pk, actor=Actor(by), reason=f"what helped {name}")
        made[name] = one
    opened(partner_side().outbound, "dns_error")
    now = records.incident(opened(pair).pk)
    past = incident_timeline.similar(now)
    assert [(one.incident, one.nearness) for one in past] == [
        (made["own"], "same pair"),
        (made["elsewhere"], ""),
        (made["hub"], "same pair"),
    ]


def test_it_seems_to_be_over_when_documents_flow_again(time: FrozenClock) -> None:
    partner = partner_side()
    incident = opened(partner.outbound)
    assert incident_timeline.recovery(records.incident(incident.pk)) is None
    time.move(60)
    delivered(partner)
    time.move(120)
    found = incident_timeline.recovery(records.incident(incident.pk))
    assert found is not None
    assert found.sentence.endswith("acknowledged by the partner again, the last one 2 m ago.")
    incidents.incident_open(pair=partner.outbound, cause="ack_timeout", now=AT + timedelta(seconds=200))
    assert incident_timeline.recovery(records.incident(incident.pk)) is None


def test_the_note_to_the_partner_says_what_they_can_look_at(time: FrozenClock) -> None:
    partner = suspended(time, receipt=EXPIRED)
    incident = records.incident(Incident.objects.get().pk)
    note = incident_timeline.partner_note(incident)
    assert note is not None
    pair = Pair.objects.get(pk=partner.outbound.pk)
    assert note.subject.startswith(f"{incident}: messages to {pair.partner.name} since 2026-05-01 12:0")
    assert "Your server shows a certificate that is past its date." in note.text
    for said in (pair.receiver_uri, str(incident), "Documents that wait:     2", incident.message.message_id):
        assert said in note.text
    assert incident.detail not in note.text, "our own words for it stay here"
    hub, _ = incidents.incident_open(pair=None, cause="x", now=AT)
    assert incident_timeline.partner_note(records.incident(hub.pk)) is None


def test_the_post_mortem_is_markdown_that_nobody_can_write_into(time: FrozenClock) -> None:
    partner = suspended(time)
    incident = Incident.objects.get()
    Incident.objects.update(detail="<script>| `x` [a](http://evil.test)\n# h")
    incidents.incident_comment(incident_id=incident.pk, text="a | b\n\n# <b>", actor=ANN)
    with link():
        operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason="renewed")
        work()
    text = incident_timeline.post_mortem(records.incident(incident.pk))
    assert text.startswith(f"# {incident}: Partner certificate expired\n")
    assert "> \\<script\\>| \\`x\\` \\[a\\](http://evil.test) \\# h" in text
    assert "| ann | Comment | a \\| b \\# \\<b\\> |" in text
    assert "\n## Resolution\n\nrenewed\n" in text
    table = [line for line in text.splitlines() if line.startswith("| 2026")]
    assert len(table) >= 6
    assert all(line.replace("\\|", "").count("|") == 5 for line in table)
