"""The wizard: saved as one goes, checked on the way, nothing in force before its end."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from lxml import html

from messaging.journal.audit import Actor
from messaging.models import AuditEntry, BenchReport, OnboardingDraft, Pair
from messaging.onboarding.services import bundle
from messaging.onboarding.services import drafts as onboarding_drafts
from partners import registry
from partners.models import Agreement, AgreementVersion, Credential, Endpoint, Party
from partners.terms import Presented
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.conftest import time  # noqa: F401  (a fixture)
from tests.messaging.console.scenes import browser
from tests.messaging.http_server import serving
from tests.partners.factories import basic, make_agreement, make_endpoint, make_party

pytestmark = pytest.mark.django_db
WHY = {"reason": "go-live"}
GLOBEX = {"name": "Globex", "identifiers": "DUNS 123456789", "contact": "Eva"}
TERMS = {"tpa_id": "tpa:globex", "services": "urn:orders | * | both"}


@pytest.fixture
def admin(time: FrozenClock) -> Client:  # noqa: F811
    return browser(Role.ADMIN)


@pytest.fixture
def ours(db: None) -> Endpoint:
    return make_endpoint(make_party("Us", own=True))


def here(draft: OnboardingDraft, step: int) -> str:
    return f"/partners/new/{draft.public_id}/step/{step}/"


def filled(client: Client, url: str, testid: str = "wizard") -> dict[str, Any]:
    answer = client.get(url)
    assert answer.status_code == 200
    forms = html.fromstring(answer.content).xpath(f"//form[@data-testid='{testid}']")
    form = forms[0]
    return {name: value for name, value in form.form_values() if name != "csrfmiddlewaretoken"}


def step(client: Client, draft: OnboardingDraft, number: int, **given: Any) -> Any:
    url = here(draft, number)
    return client.post(url, filled(client, url) | {"go_on": "1"} | given)


def start(client: Client, **given: Any) -> OnboardingDraft:
    answer = client.post("/partners/new/", {"source": "blank"} | given)
    assert answer.status_code == 303, html.fromstring(answer.content).text_content()
    return OnboardingDraft.objects.get()


def activate(client: Client, draft: OnboardingDraft) -> Any:
    page = html.fromstring(client.get(here(draft, 6)).content)
    (version,) = page.xpath("//main//input[@name='version']/@value")
    return client.post(here(draft, 6), WHY | {"version": version})


def typed(client: Client, draft: OnboardingDraft, **transport: Any) -> None:
    """Steps 2 to 4."""
    for number, given in ((2, GLOBEX), (3, {"uri": "https://globex.example/msh"} | transport), (4, TERMS)):
        answer = step(client, draft, number, **given)
        assert (answer.status_code, answer.get("Location")) == (303, here(draft, number + 1))


def partner_server(connection: socket.socket) -> None:
    """Answers whoever asks something; a look at the connection alone does not."""
    if connection.recv(65536):
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def test_from_nothing_to_an_active_agreement(admin: Client, ours: Endpoint) -> None:
    draft = start(admin)
    with serving(partner_server) as server:
        outbound = {"outbound_kind": "basic", "outbound_username": "hub", "secret": "their password"}
        typed(admin, draft, uri=server.url, inbound_kind="basic", inbound_username="globex", **outbound)
        assert not Party.objects.filter(name="Globex").exists() and not Agreement.objects.exists()
        draft.refresh_from_db()
        assert "their password" not in json.dumps(draft.data)
        tested = admin.post(here(draft, 5))
        assert (tested.status_code, tested["Location"]) == (303, here(draft, 5))
    report = BenchReport.objects.get()
    found = {one["name"]: one["verdict"] for one in report.steps}
    assert report.ok and found["round trip"] == found["repeat"] == found["order"] == "ok"
    draft.refresh_from_db()
    version = AgreementVersion.objects.get()
    assert version.state == "draft" and draft.agreement_id == version.agreement_id and not Pair.objects.exists()
    assert "their password" not in json.dumps(draft.data) and "secret" not in draft.data["transport"]
    done = activate(admin, draft)
    (secret,) = html.fromstring(done.content).xpath("//*[@data-testid='secret']/text()")
    version.refresh_from_db()
    assert version.state == "active" and Pair.objects.count() == 2 and not OnboardingDraft.objects.exists()
    registry.reset()
    party = version.agreement.partner
    who = registry.current().authenticate(Presented(basic("globex", secret)), clock.now())
    assert who is not None and who.party_id == party.pk
    assert registry.current().outbound_authorization(party.pk, clock.now()) == basic("hub", "their password")
    entry = AuditEntry.objects.get(verb="agreement.activate")
    assert entry.reason == "go-live"
    (following,) = html.fromstring(done.content).xpath("//a[@data-testid='done']/@href")
    (tried,) = html.fromstring(admin.get(following).content).xpath("//a[@data-testid='next-send-test']/@href")
    form = html.fromstring(admin.get(tried).content)
    assert "This is a test document" in form.xpath("//textarea[@name='text']")[0].text_content()


def test_an_application_that_takes_part_in_transactions(admin: Client, ours: Endpoint) -> None:
    entrance = make_endpoint(ours.party, "https://hub.example/ws-tx")
    draft = start(admin)
    with serving(partner_server) as server:
        for number, given in (
            (2, GLOBEX | {"identifiers": ""}),
            (3, {"uri": f"{server.url}/transactions", "inbound_kind": "basic", "inbound_username": "shop"}),
        ):
            assert step(admin, draft, number, **given).status_code == 303
        given = filled(admin, here(draft, 4)) | {"preset": "transactions", "tpa_id": "tpa:shop"}
        preset = html.fromstring(admin.post(here(draft, 4), given).content)
        assert "never gives up by itself" in preset.xpath("//*[@data-testid='gives-up']")[0].text_content()
        answer = step(admin, draft, 4, own_endpoint=entrance.public_id)
        assert (answer.status_code, answer["Location"]) == (303, here(draft, 5))
        assert admin.post(here(draft, 5)).status_code == 303
    assert BenchReport.objects.get().ok
    assert activate(admin, draft).status_code == 200
    version = AgreementVersion.objects.get()
    assert (version.state, version.profile, version.repeat_interval, version.retries) == ("active", "wsat", 5, 10)
    assert not version.services.exists() and not version.agreement.partner.identifiers.exists()


def test_it_is_kept_as_one_types_and_says_what_it_amounts_to(admin: Client, ours: Endpoint) -> None:
    draft = start(admin)
    typed(admin, draft)
    url = here(draft, 4)
    given = filled(admin, url) | {
        "retries": "2",
        "timeout": "30 s",
        "retry_interval": "1 m",
        "transient_ceiling": "soon",
    }
    answer = admin.post(url, given, headers={"HX-Request": "true", "HX-Target": "wizard-check"})
    page = html.fromstring(answer.content)
    assert answer.status_code == 200
    assert "Gives up after 2 m 30 s" in page.xpath("//*[@data-testid='gives-up']")[0].text_content()
    assert "is not a time" in page.text_content()
    draft.refresh_from_db()
    assert page.xpath("//input[@id='draft-version']/@value") == [str(draft.version)]
    # A session that ended loses nothing: what cannot be read is there too, as it was typed.
    again = filled(browser(Role.ADMIN), url)
    assert (again["retries"], again["transient_ceiling"]) == ("2", "soon")


def test_what_contradicts_itself_is_said_and_keeps_it_from_being_activated(admin: Client, ours: Endpoint) -> None:
    draft = start(admin)
    typed(admin, draft)
    answer = step(admin, draft, 4, retry_interval="0 s")
    assert answer.status_code == 303  # a contradiction may be fixed later
    page = html.fromstring(admin.get(here(draft, 5)).content)
    assert "RetryInterval is 0 s" in page.xpath("//*[@data-testid='wrong']")[0].text_content()
    refused = activate(admin, draft)
    assert refused.status_code == 422 and b"RetryInterval is 0 s" in refused.content
    assert AgreementVersion.objects.get().state == "draft" and not Pair.objects.exists()


@pytest.mark.parametrize(
    ("number", "given", "field"),
    [
        (2, {"name": ""}, "name"),
        (2, {"name": "Us"}, "name"),
        (2, {"identifiers": "DUNS"}, "identifiers"),
        (3, {"uri": "ftp://x/"}, "uri"),
        (3, {"uri": "https://globex.example/msh", "trusted_certificates": "x"}, "trusted_certificates"),
        (3, {"uri": "https://globex.example/msh", "outbound_kind": "basic"}, "secret"),
        (3, {"uri": "https://globex.example/msh", "inbound_kind": "basic"}, "inbound_username"),
        (4, {"services": "a | b | c | d"}, "services"),
        (4, {"tpa_id": ""}, "tpa_id"),
    ],
)
def test_a_step_that_is_wrong_says_where(
    admin: Client, ours: Endpoint, number: int, given: dict[str, str], field: str
) -> None:
    draft = start(admin)
    answer = step(admin, draft, number, **({2: GLOBEX, 3: {}, 4: TERMS}[number] | given))
    assert answer.status_code == 422
    page = html.fromstring(answer.content)
    assert page.get_element_by_id(f"field-{field}_error").text_content().strip()
    assert not Party.objects.filter(is_own=False).exists()


def test_back_is_free_and_a_change_reaches_what_was_made(admin: Client, ours: Endpoint) -> None:
    draft = start(admin)
    typed(admin, draft)
    onboarding_drafts.draft_make(draft_id=draft.pk, actor=Actor("ana"))
    assert step(admin, draft, 2, **GLOBEX | {"name": "Globex Ltd"}).status_code == 303
    assert step(admin, draft, 3, uri="https://globex.example/other").status_code == 303
    assert step(admin, draft, 4, **TERMS | {"retries": "9"}).status_code == 303
    assert activate(admin, draft).status_code == 303
    version = AgreementVersion.objects.get()
    assert (version.agreement.partner.name, version.partner_endpoint.uri, version.retries, version.state) == (
        "Globex Ltd",
        "https://globex.example/other",
        9,
        "active",
    )
    assert Party.objects.filter(is_own=False).count() == 1 and Endpoint.objects.count() == 2


def test_two_people_at_one_draft(admin: Client, ours: Endpoint) -> None:
    draft = start(admin)
    url = here(draft, 2)
    given = filled(admin, url) | GLOBEX | {"go_on": "1"}
    assert step(browser(Role.ADMIN, "bea"), draft, 2, **GLOBEX | {"name": "Hers"}).status_code == 303
    late = admin.post(url, given)
    assert late.status_code == 409 and b"bea changed this draft" in late.content and b"Globex" in late.content
    draft.refresh_from_db()
    assert draft.title == "Hers"


def test_what_one_has_kept_oneself_is_no_conflict(admin: Client, ours: Endpoint) -> None:
    """The page is kept as one types; Continue may be pressed before it has heard of the new version."""
    draft = start(admin)
    url = here(draft, 2)
    given = filled(admin, url) | GLOBEX
    kept = admin.post(url, given | {"name": "Glob"}, headers={"HX-Request": "true"})
    assert kept.status_code == 200 and b"since you looked at it" not in kept.content
    assert admin.post(url, given | {"go_on": "1"}).status_code == 303
    draft.refresh_from_db()
    assert (draft.title, draft.version) == ("Globex", 3)
    # It counts from the last change of somebody else on.
    assert step(browser(Role.ADMIN, "bea"), draft, 2, **GLOBEX | {"name": "Hers"}).status_code == 303
    assert admin.post(url, given | {"go_on": "1", "version": "3"}).status_code == 409
    assert admin.post(url, given | {"go_on": "1", "version": "4"}).status_code == 303
    assert admin.post(url, given | {"go_on": "1", "version": "3"}).status_code == 409
    assert admin.post(url, given | {"go_on": "1", "version": "4"}).status_code == 303


def test_what_was_kept_late_does_not_undo_what_was_sent_with_continue(admin: Client, ours: Endpoint) -> None:
    draft = start(admin)
    url = here(draft, 2)
    given = filled(admin, url) | GLOBEX
    assert admin.post(url, given | {"go_on": "1"}).status_code == 303
    late = admin.post(url, given | {"name": "Glob"}, headers={"HX-Request": "true"})
    assert b"Not kept" in late.content and b'data-testid="saved"' not in late.content
    draft.refresh_from_db()
    assert draft.title == "Globex"
    # The page knows the version now: what is typed next is kept.
    version = html.fromstring(late.content).xpath("//input[@id='draft-version']/@value")
    admin.post(url, given | {"name": "Globex Ltd", "version": version[0]}, headers={"HX-Request": "true"})
    draft.refresh_from_db()
    assert draft.title == "Globex Ltd"


def test_discarding_takes_back_what_was_made(admin: Client, ours: Endpoint) -> None:
    draft = start(admin)
    typed(admin, draft)
    onboarding_drafts.draft_make(draft_id=draft.pk, actor=Actor("ana"))
    assert Party.objects.filter(name="Globex").exists()
    url = f"/partners/new/{draft.public_id}/discard/"
    answer = admin.post(url, filled(admin, url, "verb-form") | WHY)
    assert (answer.status_code, answer["Location"]) == (303, "/partners/new/")
    assert not OnboardingDraft.objects.exists() and not Agreement.objects.exists()
    assert not Party.objects.filter(name="Globex").exists() and not Credential.objects.exists()


def test_as_another_agreement(admin: Client) -> None:
    like = make_agreement(retries=7, retry_interval=77)
    draft = start(admin, source="clone", clone_of=like.agreement.public_id)
    fields = filled(admin, here(draft, 4))
    assert (fields["retries"], fields["retry_interval"], fields.get("tpa_id", "")) == ("7", "1 m 17 s", "")
    assert fields["services"].strip() == "urn:orders | * | both"
    assert filled(admin, here(draft, 3)).get("uri", "") == ""


def test_a_preset_fills_the_terms(admin: Client, ours: Endpoint) -> None:
    draft = start(admin)
    typed(admin, draft)
    given = filled(admin, here(draft, 4)) | {"preset": "quick"}
    page = html.fromstring(admin.post(here(draft, 4), given).content)
    assert page.get_element_by_id("field-retry_interval").value == "30 s"
    assert "Gives up after 2 m 10 s" in page.text_content()


def test_from_a_bundle_nothing_has_to_be_typed(admin: Client) -> None:
    like = make_agreement(tpa_id="tpa:from-afar", retries=3)
    document = bundle.bundle_export()
    partner = next(one for one in document["parties"] if not one["is_own"])
    partner |= {"name": "Globex", "identifiers": [{"type": "DUNS", "value": "777777777"}]}
    partner["endpoints"][0] |= {"uri": "https://globex.example/msh", "error_uri": "https://globex.example/msh"}
    document["agreements"][0] |= {
        "tpa_id": "tpa:globex",
        "partner": "Globex",
        "partner_endpoint": "https://globex.example/msh",
    }
    file = SimpleUploadedFile("globex.json", json.dumps(document).encode())
    draft = start(admin, source="bundle", bundle_file=file)
    assert [step(admin, draft, number).status_code for number in (2, 3, 4)] == [303, 303, 303]
    assert activate(admin, draft).status_code == 303
    made = AgreementVersion.objects.get(agreement__tpa_id="tpa:globex")
    assert (made.state, made.retries, made.agreement.partner.name) == ("active", 3, "Globex")
    assert made.agreement.partner_id != like.agreement.partner_id and made.own_endpoint_id == like.own_endpoint_id


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "rmhub-bundle", "version": 1}', '{"format": 1}'])
def test_a_bundle_that_is_none_starts_nothing(admin: Client, text: str) -> None:
    answer = admin.post("/partners/new/", {"source": "bundle", "bundle": text})
    assert answer.status_code == 422 and html.fromstring(answer.content).get_element_by_id("form-errors") is not None
    assert not OnboardingDraft.objects.exists()


def test_a_known_partner_gets_another_agreement(admin: Client, ours: Endpoint) -> None:
    known = make_party("Globex")
    draft = start(admin)
    assert step(admin, draft, 2, existing=known.public_id).status_code == 303
    assert step(admin, draft, 3, uri="https://globex.example/msh").status_code == 303
    assert step(admin, draft, 4, **TERMS).status_code == 303
    assert activate(admin, draft).status_code == 303
    assert Agreement.objects.get().partner == known and Party.objects.filter(is_own=False).count() == 1
