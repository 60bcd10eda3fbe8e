"""What is said of a pair is what is known last: pings, answers, attempts and changes are weighed by their times."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from lxml import html

from messaging import causes
from messaging.causes import CAUSES, Cause, Evidence
from messaging.choices import Direction
from messaging.incidents.selectors import partner_note
from messaging.messages.services import inquiries
from messaging.models import Incident, Pair
from messaging.pairs.selectors import newer, screens
from messaging.pairs.selectors.diagnosis import diagnose
from messaging.pairs.selectors.newer import Sign, Tells, newest
from messaging.pairs.services import probing
from messaging.protocol.pair_state import Flow
from partners import registry
from partners.models import Endpoint
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.conftest import NOON, time  # noqa: F401  (a fixture)
from tests.messaging.console.scenes import ANA, EXPIRED, browser
from tests.messaging.engine.test_circuits import heads
from tests.messaging.factories import PartnerSide, link, partner_side, submit, work
from tests.messaging.http_server import serving
from tests.partners.factories import make_agreement, make_endpoint, make_party

pytestmark = pytest.mark.django_db

ASK = "Ask the partner to renew it."


def stuck(time: FrozenClock, url: str) -> PartnerSide:  # noqa: F811
    """A pair to this address that gave up an hour ago, because the partner's certificate was past its date."""
    party = make_party()
    version = make_agreement(
        partner=party, partner_endpoint=make_endpoint(party, url), retries=1, timeout=60, retry_interval=60
    )
    partner = partner_side(version)
    Endpoint.objects.update(updated_at=clock.now())
    submit(partner)
    with link(EXPIRED):
        while partner.outbound.flow != "suspended":
            work()
            time.move(61)
    time.move(3600)
    return partner


def said(partner: PartnerSide) -> str:
    pair = partner.outbound
    found = screens.diagnosis_of(pair, screens.terms_of(pair), clock.now())
    listed = screens.diagnoses([pair], clock.now())[pair.pk]
    assert (listed.advice, listed.short) == (found.advice, found.short), "the list says what the page says"
    return f"{found.sentence} {found.advice}"


def page(url: str) -> str:
    answer = browser(Role.OPERATOR).get(url)
    assert answer.status_code == 200
    return " ".join(html.fromstring(answer.content).xpath("string(//main | //body)").split())


def test_after_a_ping_that_succeeded_nobody_is_sent_to_ask_for_a_certificate(time: FrozenClock) -> None:  # noqa: F811
    with serving(heads(b"HTTP/1.1 405 No\r\nConnection: close\r\n\r\n")) as there:
        partner = stuck(time, there.url)
        assert ASK in said(partner)
        probing.ping(pair_id=partner.outbound.pk, actor=ANA)
    time.move(8)
    told = said(partner)
    assert "Ping 8 s ago succeeded. It was suspended for “Partner certificate expired”." in told
    assert told.endswith("Resume now.") and ASK not in told
    code = partner.outbound.code.replace(">", "%3E")
    assert "Resume now." in page(f"/pairs/{code}/") and ASK not in page(f"/pairs/{code}/")
    dialog = page(f"/pairs/{code}/actions/resume/")
    assert "Ping 8 s ago succeeded. Resume now." in dialog and ASK not in dialog
    incident = Incident.objects.get(cause="cert_expired")
    assert incident.state == "open"
    shown = page(f"/incidents/{incident}/")
    assert "Ping 8 s ago succeeded." in shown and ASK not in shown
    note = partner_note(Incident.objects.select_related("pair__partner", "pair__own_party").get())
    assert note is not None and "there was a problem" in note.text and "Seems to be over since" in note.text


def test_a_ping_that_failed_says_how_it_is_now(time: FrozenClock) -> None:  # noqa: F811
    with serving(lambda connection: None) as there:
        partner = stuck(time, there.url)
    probing.ping(pair_id=partner.outbound.pk, actor=ANA)
    time.move(20)
    told = said(partner)
    assert "Ping 20 s ago failed: connection refused." in told
    assert causes.lookup("connect_refused").action in told and ASK not in told


def test_what_was_entered_since_is_to_be_tried(time: FrozenClock) -> None:  # noqa: F811
    partner = stuck(time, "https://msh.partner.example/a")
    Endpoint.objects.filter(uri="https://msh.partner.example/a").update(updated_at=clock.now())
    time.move(60)
    told = said(partner)
    assert "Its endpoint or credential was changed 1 m ago, and nobody has tried since." in told
    assert "Ping the partner to see whether it works now; then resume." in told


def test_an_answer_of_the_status_service_counts(time: FrozenClock) -> None:  # noqa: F811
    with serving(heads(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")) as there:
        partner = stuck(time, there.url)
        Endpoint.objects.filter(uri=there.url).update(service_address=there.url)
        registry.reset()
        inquiries.ask(message_id=partner.outbound.in_flight_id, actor=ANA)
    time.move(5)
    assert "The partner answered a question about a message 5 s ago." in said(partner)


def test_what_is_older_than_the_cause_decides_nothing(time: FrozenClock) -> None:  # noqa: F811
    with serving(heads(b"HTTP/1.1 405 No\r\nConnection: close\r\n\r\n")) as there:
        partner = stuck(time, there.url)
        probing.ping(pair_id=partner.outbound.pk, actor=ANA)
    time.move(60)
    Pair.objects.filter(pk=partner.outbound.pk).update(changed_at=clock.now())
    assert ASK in said(partner)
    assert newer.since_last_success(partner.outbound, partner.terms) == []


# ---- the catalogue


def _suspended(cause: str, at: datetime) -> Pair:
    return Pair(direction=Direction.OUT, code="A>B", flow=Flow.SUSPENDED.value, cause=cause, changed_at=at)


@pytest.mark.parametrize("cause", CAUSES.values(), ids=list(CAUSES))
def test_no_sentence_of_the_catalogue_outlives_newer_evidence(cause: Cause) -> None:
    pair, terms = _suspended(cause.code, NOON), None
    now = NOON + timedelta(hours=1)
    alone = diagnose(pair, None, terms, now)
    assert alone.cause == cause and alone.newer is None
    for kind in Evidence:
        for tells in Tells:
            before = Sign(NOON - timedelta(seconds=1), kind, tells, "connect_refused")
            assert diagnose(pair, None, terms, now, signs=[before]) == alone
            after = Sign(NOON + timedelta(seconds=1), kind, tells, "connect_refused")
            found = diagnose(pair, None, terms, now, signs=[before, after])
            if kind not in cause.disproved_by:
                assert found == alone
                continue
            assert found.newer == after
            assert after.sentence(now) in found.why
            if tells is Tells.FAILS:
                assert found.advice == causes.lookup("connect_refused").action
            else:
                assert cause.sentence not in found.sentence and found.advice != cause.action
                assert cause.label in found.why, "what it was is still told, as what it was"


def test_the_newest_decides() -> None:
    worked = Sign(NOON + timedelta(seconds=5), Evidence.PING, Tells.WORKS)
    failed = Sign(NOON + timedelta(seconds=9), Evidence.ATTEMPT, Tells.FAILS, "connect_refused")
    assert newest("cert_expired", NOON, [worked, failed]) == failed
    assert newest("cert_expired", NOON, [failed, worked]) == failed
    assert newest("cert_expired", NOON, [worked]) == worked
    assert newest("ack_timeout", NOON, [worked]) is None, "that a server answers is no acknowledgement"


def test_what_each_cause_is_disproved_by_is_said_where_it_is_declared() -> None:
    assert causes.lookup("connect_refused").disproved_by == frozenset(Evidence)
    assert causes.lookup("certificate_expiring").disproved_by == frozenset(), "documents flow until it ends"
    assert causes.lookup("outcome_unknown").disproved_by == frozenset(), "another message's success says nothing of it"
