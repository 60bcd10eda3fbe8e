"""Pairs of repeatable requests on the console: what is on the way, the diagnosis, and the verbs that make sense."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from lxml import html

from messaging.choices import Direction
from messaging.models import Message, Pair
from messaging.pairs.selectors.diagnosis import diagnose
from messaging.pairs.selectors.verbs import verb_states
from messaging.pairs.services import operating
from messaging.pairs.services.operating import message_cancel
from messaging.profiles.repeatable import replies
from messaging.protocol.pair_state import Flow, Gate
from partners.models import Agreement
from partners.terms import Terms
from rmhub.clock import FrozenClock
from tests.messaging.conftest import NOON
from tests.messaging.console.scenes import ANA, browser
from tests.messaging.factories import LOST, PartnerSide, answered, link, partner_side, submit, work

pytestmark = pytest.mark.django_db
GIVES_UP = "Repeats for up to 1 d, every 20 s to 10 m, then the message is in doubt."


@pytest.fixture
def terms(db: None) -> Terms:
    return partner_side(profile="repeatable").terms


def _pair(**fields: object) -> Pair:
    given = {"flow": Flow.IDLE.value, "gate": Gate.OPEN.value, **fields}
    return Pair(direction=Direction.OUT, code="A>B", **given)


CASES = [
    ("nothing yet", _pair(), "active", "Nothing is on the way, and nothing was answered yet."),
    (
        "at rest",
        _pair(last_success_at=NOON - timedelta(seconds=75)),
        "active",
        "Nothing is on the way. The last answer came 1 m 15 s ago.",
    ),
    (
        "on the way",
        _pair(out_now=3, queued=1),
        "active",
        f"3 documents are on the way, up to 16 at once. {GIVES_UP} 1 document waits.",
    ),
    (
        "repeating",
        _pair(out_now=1, retries=2, cause="connect_refused"),
        "retrying",
        "1 document is on the way, up to 16 at once. The partner's server refused the connection: nothing listens at "
        f"that address and port. The next repeat goes out in 40 s. {GIVES_UP}",
    ),
    (
        "suspended",
        _pair(
            flow=Flow.SUSPENDED.value, cause="http_401_403", changed_at=NOON - timedelta(hours=1), out_now=2, queued=4
        ),
        "suspended",
        "Suspended for 1 h. The partner's server does not accept our credential (HTTP 401 or 403). 2 documents on the "
        "way are held. 4 documents wait. Nothing is sent until somebody resumes the pair. What was sent before and is "
        "still without an answer when its window ends is in doubt.",
    ),
    (
        "paused",
        _pair(gate=Gate.PAUSED.value, changed_at=NOON - timedelta(minutes=5), out_now=1),
        "paused",
        "Paused by a person for 5 m. Nothing is sent; submissions and the partner's answers are still taken. "
        "1 document waits.",
    ),
    (
        "nobody works",
        _pair(queued=1, due_at=NOON - timedelta(seconds=90)),
        "active",
        "1 document to send, and nothing happens. "
        "This was due 1 m 30 s ago: the hub's workers are not doing their work.",
    ),
]


@pytest.mark.parametrize(("pair", "state", "sentence"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_every_state_has_its_sentence(pair: Pair, state: str, sentence: str, terms: Terms) -> None:
    found = diagnose(pair, None, terms, NOON, repeat_at=NOON + timedelta(seconds=40))
    assert (found.state, found.sentence) == (state, sentence)


def test_a_pair_at_rest_says_what_is_in_doubt(terms: Terms) -> None:
    """Nobody may take it for a pair on which all went well."""
    found = diagnose(_pair(last_success_at=NOON), None, terms, NOON, in_doubt=44)
    assert found.headline == "Nothing is on the way; 44 documents are in doubt."
    assert (found.short, found.cause and found.cause.code) == ("44 in doubt", "outcome_unknown")
    assert found.advice
    assert "in doubt" not in diagnose(_pair(out_now=1), None, terms, NOON, in_doubt=1).headline


@pytest.mark.parametrize("pair", [case[1] for case in CASES], ids=[case[0] for case in CASES])
def test_screens_and_services_agree_on_the_verbs(pair: Pair, terms: Terms) -> None:
    pair.sender_uri, pair.receiver_uri = terms.own_uri, terms.partner_uri
    enabled = {state.slug for state in verb_states(pair, terms) if state.enabled}
    assert enabled == set(operating.allowed_verbs(pair))
    assert all(state.why_not for state in verb_states(pair, terms) if not state.enabled)


def _page(client: Client, url: str) -> html.HtmlElement:
    response = client.get(url)
    assert response.status_code == 200
    page: html.HtmlElement = html.fromstring(response.content).get_element_by_id("main")
    return page


def _words(element: html.HtmlElement) -> str:
    return " ".join(" ".join(element.itertext()).split())


def _url(pair: Pair, verb: str = "") -> str:
    code = pair.code.replace(">", "%3E")
    return f"/pairs/{code}/actions/{verb}/" if verb else f"/pairs/{code}/"


@pytest.fixture
def side(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> PartnerSide:
    """Two messages on the way, one of them on the wire for the second time; one waits."""
    monkeypatch.setattr(replies, "jitter", lambda: 1.0)
    made = partner_side(profile="repeatable", max_in_flight=2)
    with link(LOST):
        for _ in range(3):
            submit(made)
        work()
    return made


def test_the_page_of_a_pair_shows_what_is_on_the_way(side: PartnerSide) -> None:
    page = _page(browser(), _url(side.outbound))
    rows = page.xpath("//tr[@data-testid='flying']")
    assert len(rows) == 2
    assert "Retrying" in _words(rows[0]) and "in 20 s" in _words(rows[0]) and "in 23 h 59 m" not in _words(rows[0])
    assert "in 1 d" in _words(rows[0])
    words = _words(page)
    assert (
        "On the way 2 of at most 2" in words and "Queue 3 1 of them waits" in words and "Next repeat in 20 s" in words
    )
    assert "Last number assigned" not in words and "First in line" not in words
    assert GIVES_UP in words
    listed = _words(_page(browser(), "/pairs/"))
    assert "2 on the way" in listed and "No answer in time" in listed
    assert "3 documents" in _words(_page(browser(), "/"))


def test_the_page_of_the_inbound_pair_shows_no_numbers(side: PartnerSide) -> None:
    words = _words(_page(browser(), _url(side.inbound)))
    assert "Last number accepted" not in words and "Set expected number" not in words


def test_the_dialogs_say_what_happens_to_requests(side: PartnerSide) -> None:
    client = browser()
    assert "same ids, first-instance times and octets" in _words(_page(client, _url(side.outbound, "retry-now")))
    skip = _words(_page(client, _url(side.outbound, "skip-head")))
    assert "nobody can know" in skip and "sequence" not in skip
    assert client.get(_url(side.outbound, "restart-sequence")).status_code == 404
    given = {"version": side.outbound.version, "reason": "Sent by mail", "confirm": side.outbound.code}
    answer = client.post(_url(side.outbound, "skip-head"), given, follow=True)
    assert "is going on without the skipped message." in answer.content.decode()
    with link(answered(401, "")):
        operating.pair_retry_now(pair_id=side.outbound.pk, actor=ANA, reason="Look again.")
        work()
    resume = _words(_page(client, _url(side.outbound, "resume")))
    assert "Sends the 2 on the way again at once" in resume and "messages in doubt" in resume


def test_the_page_of_a_message_says_until_when_it_is_repeated(side: PartnerSide) -> None:
    message = Message.objects.filter(state="retrying").earliest("position")
    words = _words(_page(browser(), f"/messages/{message.public_id}/"))
    assert "Next repeat in 20 s" in words and "Repeated until" in words
    assert "never sent again. The partner may have executed it" in _words(
        _page(browser(), f"/messages/{message.public_id}/cancel/")
    )


def test_the_page_of_an_agreement_shows_the_terms_of_its_profile(side: PartnerSide) -> None:
    agreement = Agreement.objects.get(tpa_id=side.terms.tpa_id)
    words = _words(_page(browser(), f"/agreements/{agreement.public_id}/"))
    assert GIVES_UP in words
    for fact in (
        "Repeats every 20 s, rising to 10 m",
        "Partner's memory window 1 d",
        "Messages on the way up to 2 at once",
        "Requests are identified by Message id and first-instance time",
        "We answer with One way: an acknowledgement",
    ):
        assert fact in words
    assert "RetryInterval" not in words and "Partner's errors go to" not in words


def test_the_page_and_the_list_lead_to_what_is_in_doubt(side: PartnerSide, time: FrozenClock) -> None:
    operating.pair_pause(pair_id=side.outbound.pk, actor=ANA, reason="Only what is on the way.")
    time.move(90_000)
    work()
    assert Message.objects.filter(state="in_doubt").count() == 2
    message_cancel(message_id=Message.objects.get(state="queued").pk, actor=ANA, reason="Not needed any more.")
    operating.pair_release(pair_id=side.outbound.pk, actor=ANA, reason="And now.")
    page = _page(browser(), _url(side.outbound))
    assert "Nothing is on the way; 2 documents are in doubt." in _words(page)
    (way,) = page.xpath("//a[@data-testid='decide']/@href")
    assert browser().get(way).status_code == 200
    assert "2 in doubt" in _words(_page(browser(), "/pairs/"))
    diagnosis = browser().get(f"/api/v1/pairs/{side.outbound.public_id}/diagnosis").json()
    assert diagnosis["headline"] == "Nothing is on the way; 2 documents are in doubt."
