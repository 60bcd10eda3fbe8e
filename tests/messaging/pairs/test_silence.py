"""Pairs with a rhythm: when they are called silent, what ends it, and the settings that say so."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging.exceptions import InvalidSubmission, Stale
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Event, Incident, Pair
from messaging.overview.services import housekeeping
from messaging.pairs.selectors import pairs
from messaging.pairs.services import operating, silence
from messaging.pairs.services.silence import pair_update
from rmhub import clock
from rmhub.clock import FrozenClock, frozen
from tests.messaging.factories import REFUSED, PartnerSide, link, partner_side, submit, work

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = Actor("ann")
HOUR = 3600


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    with frozen(AT) as clock:
        yield clock


def rhythm(pair: Pair, every: int = HOUR, grace: int = 600) -> Pair:
    return pair_update(pair_id=pair.pk, actor=ANN, reason="hourly orders", expected_every=every, silence_grace=grace)


def state(pair: Pair) -> str:
    return pairs.pair(pair.pk).state


def test_a_pair_is_silent_when_rhythm_and_grace_have_passed_since_its_newest_message(time: FrozenClock) -> None:
    side = partner_side()
    rhythm(side.outbound)
    time.move(HOUR)
    submit(side)  # the rhythm counts from here
    time.move(HOUR + 600)
    assert silence.look(clock.now()) == 0
    time.move(1)
    assert silence.look(clock.now()) == 1
    pair = side.outbound
    assert pair.silent_since == AT + timedelta(seconds=2 * HOUR)  # when the document was due
    assert state(pair) == "silent" == pairs.state_of(pair)
    incident = Incident.objects.get(pair=pair)
    assert (incident.cause, incident.state) == ("silent", "open")
    told = Event.objects.get(pair=pair, type="pair.silent")
    assert told.data["incident"] == incident.public_id
    assert "a document is expected every 1 h" in str(told.data["detail"])
    assert silence.look(clock.now()) == 0  # once


def test_the_next_document_ends_it(time: FrozenClock) -> None:
    side = partner_side()
    rhythm(side.inbound)
    time.move(2 * HOUR)
    silence.look(clock.now())
    assert state(side.inbound) == "silent"
    side.send(side.message(1))
    assert silence.look(clock.now()) == 1
    assert side.inbound.silent_since is None
    assert Incident.objects.get(pair=side.inbound).state == "resolved"
    heard = Event.objects.get(type="pair.heard")
    assert heard.data["silent_seconds"] == HOUR


def test_a_new_rhythm_counts_from_when_it_was_set(time: FrozenClock) -> None:
    side = partner_side()
    submit(side)
    time.move(30 * 24 * HOUR)
    rhythm(side.outbound)
    assert silence.look(clock.now()) == 0
    time.move(HOUR + 601)
    assert silence.look(clock.now()) == 1


def test_without_a_rhythm_nothing_is_asked_and_nobody_is_silent(time: FrozenClock) -> None:
    side = partner_side()
    submit(side)
    time.move(400 * 24 * HOUR)
    with CaptureQueriesContext(connection) as queries:
        assert silence.look(clock.now()) == 0
    assert len(queries) == 1
    assert side.outbound.silent_since is None


def test_taking_the_rhythm_away_ends_the_silence(time: FrozenClock) -> None:
    side = partner_side()
    rhythm(side.outbound)
    time.move(2 * HOUR)
    silence.look(clock.now())
    pair_update(pair_id=side.outbound.pk, actor=ANN, reason="no fixed rhythm", expected_every=0)
    pair = side.outbound
    assert (pair.silent_since, pair.rhythm_since, pair.expected_every) == (None, None, 0)
    assert Incident.objects.get(pair=pair).state == "resolved"


def test_other_trouble_that_is_mended_does_not_end_it(time: FrozenClock) -> None:
    side = partner_side(retries=0, timeout=60, transport_retries=0)
    submit(side)
    rhythm(side.outbound)
    with link(REFUSED):
        work()
        time.move(301)
        work()
    time.move(2 * HOUR)
    silence.look(clock.now())
    assert state(side.outbound) == "suspended"  # the worse of the two
    operating.pair_resume(pair_id=side.outbound.pk, actor=ANN, reason="their firewall")
    with link() as wire:
        work()
        side.send(side.acknowledgement(wire.last))
    assert {i.cause: i.state for i in Incident.objects.filter(pair=side.outbound)}["silent"] == "open"
    assert state(side.outbound) == "silent"


def test_a_pair_that_is_not_in_force_is_not_silent(time: FrozenClock) -> None:
    side = partner_side()
    rhythm(side.outbound)
    Pair.objects.filter(pk=side.outbound.pk).update(gate="disabled")
    time.move(2 * HOUR)
    assert silence.look(clock.now()) == 0


def test_housekeeping_looks(time: FrozenClock) -> None:
    side: PartnerSide = partner_side()
    rhythm(side.outbound)
    time.move(2 * HOUR)
    assert "silent or heard again 1" in housekeeping.run()


def test_settings_leave_an_audit_entry_and_a_new_version(time: FrozenClock) -> None:
    pair = partner_side().outbound
    changed = pair_update(
        pair_id=pair.pk, actor=ANN, reason="from their manual", runbook="# Call Bob\r\n", silence_grace=5
    )
    assert changed.version == pair.version + 1
    assert changed.runbook == "# Call Bob"
    entry = AuditEntry.objects.get(verb="pair.update")
    assert entry.before == {"expected_every": 0, "silence_grace": 0, "runbook": ""}
    assert entry.after == {"expected_every": 0, "silence_grace": 5, "runbook": "# Call Bob"}
    same = pair_update(pair_id=pair.pk, actor=ANN, reason="again the same", silence_grace=5)
    assert same.version == changed.version
    with pytest.raises(Stale):
        pair_update(pair_id=pair.pk, actor=ANN, reason="too late", silence_grace=6, expected_version=pair.version)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("expected_every", 59),
        ("expected_every", 367 * 86_400),
        ("silence_grace", -1),
        ("runbook", "x" * 20_001),
        ("runbook", "a\x00b"),
    ],
)
def test_settings_that_make_no_sense_are_refused(time: FrozenClock, field: str, value: object) -> None:
    pair = partner_side().outbound
    with pytest.raises(InvalidSubmission) as refusal:
        pair_update(pair_id=pair.pk, actor=ANN, reason="why not", **{field: value})  # type: ignore[arg-type]
    assert list(refusal.value.errors) == [field]
