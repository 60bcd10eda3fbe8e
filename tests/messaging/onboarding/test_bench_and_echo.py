"""The test bench on every profile, and the mirror that partners' benches ask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from messaging import profile as profiles
from messaging.bench import CONTENT_SHA256, Sample
from messaging.exceptions import NotFound
from messaging.journal.audit import Actor
from messaging.models import Message, ProbeReport, Rejection
from messaging.onboarding.services import bench
from messaging.pairs.services import probing
from messaging.profiles.wsat import profile as transactions
from messaging.protocol import acceptance
from messaging.transports import Receipt, http
from partners import registry, services
from partners.models import AgreementVersion
from partners.terms import Terms
from rmhub import clock
from tests.messaging.factories import PartnerSide, partner_side
from tests.partners.factories import make_agreement, make_credential

pytestmark = pytest.mark.django_db
PROFILES = ("ebxml", "repeatable", "stream")  # of documents


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the partner's server that has nothing to say (`test_probing` has the looks)."""

    def probe(*, endpoint_id: Any, actor: Actor, pair_id: Any = None) -> ProbeReport:
        steps = [{"name": "dns", "verdict": "ok", "detail": "Known.", "seconds": 0.0, "facts": {}}]
        return ProbeReport(endpoint_id=endpoint_id, ok=True, steps=steps, actor=actor.name, at=clock.now())

    monkeypatch.setattr(probing, "probe", probe)


def terms_of(version: AgreementVersion) -> Terms:
    return registry.current().version(version.pk)


def verdicts(version: AgreementVersion) -> dict[str, str]:
    report = bench.run(agreement_id=version.agreement_id, number=version.number, actor=Actor("ana"))
    assert report.ok == ("failed" not in {one["verdict"] for one in report.steps})
    return {one["name"]: one["verdict"] for one in report.steps}


@pytest.mark.parametrize("profile", [*PROFILES, "wsat"])
def test_what_can_be_known_before_the_first_message(no_network: None, profile: str) -> None:
    version = make_agreement(profile=profile, activate=False)
    make_credential(version.agreement.partner)
    assert verdicts(version) == {
        "terms": "ok",
        "credentials": "ok",
        "dns": "ok",
        "round trip": "ok",
        "repeat": "ok",
        "order": "ok",
        "echo": "skipped",
    }
    assert not Message.objects.exists()


def test_what_is_not_right_is_a_step_that_failed(no_network: None) -> None:
    version = make_agreement(retries=5, retry_interval=0, activate=False)
    found = verdicts(version)
    assert (found["terms"], found["credentials"], found["repeat"]) == ("failed", "warning", "ok")


def test_a_receiver_that_took_everything_would_be_found_out(no_network: None, monkeypatch: pytest.MonkeyPatch) -> None:
    version = make_agreement()
    accept = acceptance.Decision(acceptance.Verdict.ACCEPT, "broken", acceptance.InboundState())
    monkeypatch.setattr(acceptance, "decide", lambda *_: accept)
    found = verdicts(version)
    assert (found["repeat"], found["order"]) == ("failed", "failed")


def test_only_a_version_that_there_is(no_network: None) -> None:
    version = make_agreement()
    with pytest.raises(NotFound):
        bench.run(agreement_id=version.agreement_id, number=9, actor=Actor("ana"))


@pytest.mark.parametrize("soap", ["1.1", "1.2"])
@pytest.mark.parametrize("headers", ["seed", "oasis"])
@pytest.mark.parametrize("namespaces", ["2004/10", "2006/06"])
def test_messages_of_transactions_are_tried_in_every_form(
    no_network: None, soap: str, headers: str, namespaces: str
) -> None:
    version = make_agreement(
        profile="wsat", soap_version=soap, addressing_profile=headers, coordination_version=namespaces
    )
    assert set(verdicts(version).values()) <= {"ok", "skipped", "warning"}


def test_a_coordinator_that_counted_twice_would_be_found_out(no_network: None, monkeypatch: pytest.MonkeyPatch) -> None:
    version = make_agreement(profile="wsat")
    real = transactions.step

    def broken(transaction: Any, event: Any) -> Any:
        done = real(transaction, event)
        decide = transactions.ActKind.DECIDE
        acts = tuple(replace(act, kind=decide, fault=None) for act in done.acts)
        return replace(done, acts=acts)

    monkeypatch.setattr(transactions, "step", broken)
    found = verdicts(version)
    assert (found["repeat"], found["order"]) == ("failed", "failed")


# ---- the mirror


def sample_of(terms: Terms) -> Sample:
    return profiles.of(terms).bench.sample(terms, clock.now())


def ask(partner: PartnerSide, sample: Sample | None = None) -> Any:
    """What the mirror says to this partner: of a sample, or of who they are."""
    headers = {"Authorization": partner.presented.authorization}
    if sample is None:
        return Client().get("/partner/echo", headers=headers)
    return Client().post(
        "/partner/echo", sample.body, content_type=sample.content_type, headers=headers | dict(sample.headers)
    )


def mirrored(terms: Terms) -> Terms:
    """The agreement as the partner's hub has it."""
    return replace(
        terms,
        own_uri=terms.partner_uri,
        partner_uri=terms.own_uri,
        own_identifiers=terms.partner_identifiers,
        partner_identifiers=terms.own_identifiers,
    )


def test_the_mirror_says_who_one_is_taken_for() -> None:
    partner = partner_side()
    answer = ask(partner)
    assert answer.status_code == 200 and answer.json()["partner"] == partner.terms.partner_name
    stranger = Client().get("/partner/echo")
    assert stranger.status_code == 401 and "Basic" in stranger["WWW-Authenticate"]
    wrong = Client().get("/partner/echo", headers={"Authorization": "Basic eDp5"})
    assert wrong.status_code == 401
    assert ask(partner).headers["Cache-Control"] == "no-store"
    assert Client().put("/partner/echo").status_code == 405


@pytest.mark.parametrize("profile", PROFILES)
def test_the_mirror_says_what_it_read_and_stores_nothing(profile: str) -> None:
    partner = partner_side(profile=profile)
    sample = sample_of(mirrored(partner.terms))
    found = ask(partner, sample).json()
    assert (found["profile"], found["problems"]) == (profile, [])
    assert found["message"]["message_id"] == sample.message_id and found["sha256"] == sample.sha256
    assert [part["sha256"] for part in found["payloads"]] == [CONTENT_SHA256]
    assert not Message.objects.exists() and not Rejection.objects.exists()


def test_the_mirror_tells_what_would_be_refused() -> None:
    partner, other = partner_side(), partner_side()
    own = ask(partner, sample_of(partner.terms)).json()["problems"]
    assert any("ReceiverURI" in one for one in own)
    foreign = ask(partner, sample_of(mirrored(other.terms))).json()
    assert foreign["message"]["agreement_state"] == "unknown" and len(foreign["problems"]) == 1
    services.agreement_disable(agreement=AgreementVersion.objects.get(pk=partner.terms.version_id).agreement)
    registry.reset()
    disabled = ask(partner, sample_of(mirrored(partner.terms))).json()
    assert disabled["message"]["agreement_state"] == "disabled" and "not in force" in disabled["problems"][0]
    noise = Sample("", "application/json", b"{}", (), "", "")
    with CaptureQueriesContext(connection) as queries:
        found = ask(partner, noise).json()
    assert not any("agreementversion" in one["sql"] for one in queries)
    assert found["profile"] == "" and len(found["problems"]) == 3
    large = Sample("", "text/plain", b"x" * (1024 * 1024 + 1), (), "", "")
    assert ask(partner, large).status_code == 413


@pytest.mark.parametrize("profile", PROFILES)
def test_two_hubs_understand_each_other(no_network: None, monkeypatch: pytest.MonkeyPatch, profile: str) -> None:
    """The bench's last step against the mirror of a hub: here it is our own, asked as the partner's."""
    partner = partner_side(profile=profile)
    version = AgreementVersion.objects.get(pk=partner.terms.version_id)
    services.endpoint_update(endpoint=version.partner_endpoint, service_address="https://them.example/partner/")
    registry.reset()
    asked: list[str] = []

    def post(parcel: Any) -> Receipt:
        asked.append(parcel.address)
        answer = Client().post(
            "/partner/echo",
            parcel.body,
            content_type=parcel.content_type,
            headers={"Authorization": partner.presented.authorization} | dict(parcel.headers),
        )
        return Receipt(ok=True, status=200, response=b"HTTP 200 OK\r\n\r\n" + answer.content)

    monkeypatch.setattr(http, "send", post)
    tried = profiles.named(profile).bench
    monkeypatch.setattr(tried, "sample", lambda terms, now, real=tried.sample: real(mirrored(terms), now))
    assert verdicts(version)["echo"] == "ok" and asked == ["https://them.example/partner/echo"]
    monkeypatch.setattr(http, "send", lambda _: Receipt(ok=True, status=200, response=b"HTTP 200 OK\r\n\r\nhello"))
    assert verdicts(version)["echo"] == "failed"
