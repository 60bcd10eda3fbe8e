"""Pairs, agreements and messages of atomic transactions on the console and in the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from django.utils.datastructures import MultiValueDict
from lxml import html

from messaging.choices import Direction
from messaging.engine import pairs
from messaging.models import Coordination, Enlistment, Message, Pair
from messaging.onboarding.pages import forms, steps
from messaging.pairs.selectors.diagnosis import diagnose
from messaging.pairs.selectors.sequence import StreamState, sequence
from messaging.pairs.selectors.verbs import verb_states
from messaging.profiles.wsat import outgoing
from messaging.protocol.atomic.words import Protocol
from messaging.protocol.pair_state import Flow, Gate
from messaging.protocol.ws.messages import Octets
from partners import registry
from partners.models import Agreement, AgreementVersion
from partners.terms import Terms
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.conftest import NOON
from tests.messaging.console.scenes import browser
from tests.messaging.factories import REFUSED, link, work
from tests.partners.factories import make_agreement, make_endpoint, make_party

pytestmark = pytest.mark.django_db
NEVER_GIVES_UP = (
    "Sends what awaits an answer again after 5 s to 10 m, and never gives up by itself; 10 resends without an answer "
    "open an incident."
)
WHY = {"reason": "The participant is permanently gone."}


@pytest.fixture
def terms(time: FrozenClock) -> Terms:
    return registry.current().version(make_agreement(profile="wsat").pk)


def sent(terms: Terms, kind: str = "Commit", *, awaits: bool = True) -> Message:
    now = clock.now()
    coordination = Coordination.objects.create(identifier="urn:uuid:tx-1", created_at=now, changed_at=now)
    enlistment = Enlistment.objects.create(
        coordination=coordination,
        protocol=Protocol.DURABLE,
        agreement_version_id=terms.version_id,
        party_id=terms.partner_id,
        peer_address=f"{terms.partner_uri}/participant",
        created_at=now,
    )
    return outgoing.send(
        coordination=coordination,
        enlistment=enlistment,
        terms=terms,
        kind=kind,
        to=enlistment.peer_address,
        body=Octets("text/xml; charset=utf-8", b"<Envelope>Commit</Envelope>", '"urn:Commit"'),
        message_id=f"urn:uuid:{kind}",
        now=now,
        awaits=awaits,
    )


def words(client: Client, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200, answer.status_code
    return " ".join(html.fromstring(answer.content).get_element_by_id("main").text_content().split())


def _pair(**fields: object) -> Pair:
    given = {"direction": Direction.OUT, "flow": Flow.IDLE.value, "gate": Gate.OPEN.value, **fields}
    return Pair(code="A>B", **given)


CASES = [
    ("nothing yet", _pair(), "active", "No message of a transaction was sent yet."),
    (
        "at rest",
        _pair(last_success_at=NOON - timedelta(seconds=75)),
        "active",
        f"Messages of transactions get through. The partner took the last one 1 m 15 s ago. {NEVER_GIVES_UP}",
    ),
    (
        "failing",
        _pair(retries=3, cause="connect_refused"),
        "retrying",
        "The last attempt to send a message of a transaction failed (3 times in a row). The partner's "
        f"server refused the connection: nothing listens at that address and port. {NEVER_GIVES_UP}",
    ),
    (
        "inbound",
        _pair(direction=Direction.IN, last_success_at=NOON - timedelta(seconds=5)),
        "active",
        "The last message was taken 5 s ago. Messages of transactions have no numbers: their participant says where "
        "they belong.",
    ),
]


@pytest.mark.parametrize(("pair", "state", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_pair_of_transactions_in_one_sentence(terms: Terms, pair: Pair, state: str, said: str) -> None:
    found = diagnose(pair, None, terms, NOON)

    assert (found.state, " ".join(part for part in (found.headline, found.why, found.outlook) if part)) == (state, said)
    assert not sequence(pair, terms, StreamState()).applies


def test_the_verbs_that_make_sense(terms: Terms) -> None:
    assert [(one.slug, one.enabled) for one in verb_states(_pair(), terms)] == [("retry-now", True), ("pause", True)]
    assert verb_states(_pair(direction=Direction.IN), terms) == []


def test_the_page_of_a_pair_shows_what_is_not_answered(terms: Terms) -> None:
    message = sent(terms)
    pair = Pair.objects.get(pk=pairs.outbound_pair_id(terms))
    inbound = Pair.objects.get(pk=pairs.inbound_pair_id(terms))
    with link(REFUSED):
        work()
    client = browser(Role.OPERATOR)

    said = words(client, f"/pairs/{pair.code}/")

    assert "Not answered yet" in said and "Commit" in said and "Connection refused" in said
    assert "sequence number" not in said.lower() and "Behind it" not in said
    for tab in ("attempts", "queue", "agreement", "incidents", "history"):
        assert client.get(f"/pairs/{pair.code}/?tab={tab}").status_code == 200
    assert "What the partner says about transactions" in words(client, f"/pairs/{inbound.code}/")
    assert "1 message of transactions. What is on the wire" in words(client, f"/pairs/{pair.code}/actions/retry-now/")
    assert "hold what they have locked" in words(client, f"/pairs/{pair.code}/actions/pause/")
    done = client.post(f"/pairs/{pair.code}/actions/retry-now/", {**WHY, "version": str(pair.version)})
    assert done.status_code in (302, 303)
    assert Message.objects.get(pk=message.pk).due_at == clock.now()


def test_the_page_of_a_message_and_its_cancellation(terms: Terms) -> None:
    message = sent(terms)
    with link():
        work()
    client = browser(Role.ADMIN)
    for tab in ("", "?tab=wire", "?tab=headers", "?tab=related", "?tab=history"):
        assert client.get(f"/messages/{message.public_id}/{tab}").status_code == 200

    said = words(client, f"/messages/{message.public_id}/cancel/")

    assert "Settle the participant instead" in said and "submitted again" not in said
    given = {**WHY, "version": message.pair.version, "confirm": message.pair.code}
    assert client.post(f"/messages/{message.public_id}/cancel/", WHY).status_code == 409
    assert client.post(f"/messages/{message.public_id}/cancel/", given).status_code in (302, 303)
    assert Message.objects.get(pk=message.pk).state == "cancelled"
    assert "It is done." in words(client, f"/messages/{message.public_id}/cancel/")


def filled(client: Client, url: str) -> dict[str, Any]:
    page = html.fromstring(client.get(url).content)
    form = page.xpath("//form[@data-testid='form']")[0]
    return {name: value for name, value in form.form_values() if name != "csrfmiddlewaretoken"}


def test_an_agreement_of_transactions_is_made_on_its_form(time: FrozenClock) -> None:
    ours = make_endpoint(make_party(own=True), "https://hub.example/ws-tx")
    theirs = make_endpoint(make_party("Shop"), "https://shop.example/transactions")
    client = browser(Role.ADMIN)
    form = filled(client, f"/agreements/new/?partner={theirs.party.public_id}")
    given = {
        "tpa_id": "tpa:transactions",
        "own_party": ours.party.public_id,
        "partner": theirs.party.public_id,
        "own_endpoint": ours.public_id,
        "partner_endpoint": theirs.public_id,
        "profile": "wsat",
        "coordination_version": "2004/10",
        "soap_version": "1.2",
        "addressing_profile": "oasis",
        "addressing_strict": "on",
        "repeat_interval_0": "7",
        "retries": "9",
    }
    posted = client.post("/agreements/new/", form | WHY | given)
    assert posted.status_code in (302, 303), posted.content.decode()[:3000]

    version = AgreementVersion.objects.get(agreement__tpa_id="tpa:transactions")
    assert (version.profile, version.coordination_version, version.soap_version) == ("wsat", "2004/10", "1.2")
    assert (version.addressing_profile, version.addressing_strict, version.retries) == ("oasis", True, 9)
    page = words(client, f"/agreements/{version.agreement.public_id}/")
    assert "never gives up by itself" in page and "1.0 (2004/10)" in page and "SOAP 1.2" in page
    assert "Services and actions" not in page and "Delivery semantics" not in page


def test_the_wizard_knows_the_usual_terms_of_transactions() -> None:
    typed = QueryDict("tpa_id=tpa:1&profile=ebxml&retries=5")
    found, _, _, _ = steps.read("agreement", typed, MultiValueDict(), "transactions")

    assert (found["tpa_id"], found["profile"], found["retries"]) == ("tpa:1", "wsat", "10")
    assert (found["repeat_interval"], found["repeat_interval_max"]) == ("5 s", "10 m")


def test_fields_of_documents_are_not_shown_for_transactions() -> None:
    only = forms.TermsForm.only
    fields = {name for group in forms.TermsForm.groups for name in group.fields}
    shown = {name for name in fields if name not in only or "wsat" in only[name][1:]}

    assert shown == {
        "profile",
        "coordination_version",
        "soap_version",
        "addressing_profile",
        "addressing_strict",
        "other_servers",
        "retries",
        "repeat_interval",
        "repeat_interval_max",
    }


def test_the_page_of_an_agreement_says_when_all_goes_out_again(terms: Terms) -> None:
    agreement = Agreement.objects.get(pk=terms.agreement_id)
    page = words(browser(Role.ADMIN), f"/agreements/{agreement.public_id}/")

    assert "after 5 s, rising to 10 m" in page


def test_a_pair_that_needs_resync_says_so_in_both_directions(terms: Terms) -> None:
    for pk in (pairs.outbound_pair_id(terms), pairs.inbound_pair_id(terms)):
        pair = Pair.objects.get(pk=pk)
        pair.resync_since = clock.now()
        found = diagnose(pair, None, terms, clock.now())
        assert (found.state, found.cause and found.cause.code) == ("resync", "needs_resync"), pair.code
