"""Partners, endpoints, certificates, credentials and agreements as admins change them on their pages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from lxml import html

from messaging.models import AuditEntry
from partners import registry, services
from partners.models import Agreement, AgreementVersion, Credential, Endpoint, PartnerGroup, Party
from partners.terms import Presented
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import browser
from tests.messaging.factories import PartnerSide, partner_side
from tests.messaging.onboarding.authority import Authority
from tests.partners.factories import basic, make_agreement, make_credential, make_endpoint, make_party

pytestmark = pytest.mark.django_db
AUTHORITY = Authority()
AUTHORITY_NOW = datetime.now(UTC)
WHY = {"reason": "because the test says so"}


@pytest.fixture
def admin(time: FrozenClock) -> Client:
    return browser(Role.ADMIN)


@pytest.fixture
def partner(time: FrozenClock) -> PartnerSide:
    return partner_side()


def tree(client: Client, url: str) -> html.HtmlElement:
    answer = client.get(url)
    assert answer.status_code == 200, answer.status_code
    return html.fromstring(answer.content)


def words(client: Client, url: str) -> str:
    return " ".join(tree(client, url).get_element_by_id("main").text_content().split())


def filled(page: html.HtmlElement, testid: str = "form") -> dict[str, Any]:
    """What a browser would post from the form as it is shown."""
    form = page.xpath(f"//form[@data-testid='{testid}']")[0]
    return {name: value for name, value in form.form_values() if name != "csrfmiddlewaretoken"}


def change(client: Client, url: str, testid: str = "form", **given: Any) -> Any:
    """Opens a form, changes these fields, and posts it."""
    return client.post(url, filled(tree(client, url), testid) | WHY | given)


def do(client: Client, url: str, **given: Any) -> Any:
    """A verb, from its dialog."""
    return change(client, url, "verb-form", **given)


# ---- parties


def test_a_party_is_made_changed_and_archived(admin: Client) -> None:
    made = change(
        admin,
        "/partners/add/",
        name="Globex",
        identifiers="DUNS 123456789\nGLN 4012345000009",
        time_zone="Europe/Berlin",
    )
    party = Party.objects.get(name="Globex")
    assert (made.status_code, made["Location"]) == (303, f"/partners/{party.public_id}/")
    assert [(one.context, one.value) for one in party.identifiers.all()][1] == ("GLN", "4012345000009")
    group = PartnerGroup.objects.create(name="Retail")
    edit = f"/partners/{party.public_id}/edit/"
    changed = change(admin, edit, hours="Mon-Fri 8-17", contact="Eva", groups=[group.public_id])
    assert changed.status_code == 303
    said = words(admin, f"/partners/{party.public_id}/")
    assert all(word in said for word in ("Mon-Fri 8-17", "Eva", "Europe/Berlin", "Retail", "DUNS 123456789"))
    assert do(admin, f"/partners/{party.public_id}/actions/archive/").status_code == 303
    party.refresh_from_db()
    assert party.archived_at is not None
    admin.get("/")  # shows the notice
    assert "Globex" not in words(admin, "/partners/") and "Globex" in words(admin, "/partners/?archived=1")
    assert do(admin, f"/partners/{party.public_id}/actions/restore/").status_code == 303
    verbs = list(AuditEntry.objects.filter(object_id=party.public_id).order_by("id").values_list("verb", flat=True))
    assert verbs == ["party.create", "party.update", "party.archive", "party.restore"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": ""}, "name"),
        ({"identifiers": "DUNS"}, "identifiers"),
        ({"time_zone": "Berlin"}, "time_zone"),
    ],
)
def test_what_is_wrong_stands_beside_its_field(admin: Client, given: dict[str, str], field: str) -> None:
    answer = change(admin, "/partners/add/", **({"name": "Globex"} | given))
    assert answer.status_code == 422
    page = html.fromstring(answer.content)
    assert page.get_element_by_id(f"field-{field}_error").text_content().strip()
    assert page.xpath(f"//*[@id='form-errors']//a[@href='#field-{field}']")
    assert not Party.objects.filter(name="Globex").exists()


def test_a_form_marks_what_it_needs_and_says_all_that_is_wrong_at_once(admin: Client) -> None:
    page = tree(admin, "/partners/add/")
    assert page.xpath("//form[@data-testid='form']//*[@aria-required='true']/@name") == ["name", "identifiers"]
    assert page.xpath("//select[@name='time_zone']/option[@value='Europe/Berlin']")
    answer = change(admin, "/partners/add/", name="", identifiers="DUNS")
    links = html.fromstring(answer.content).xpath("//*[@id='form-errors']//a/@href")
    assert {"#field-name", "#field-identifiers"} <= set(links)


@pytest.mark.parametrize("text", ["DUNS 300441", "DUNS:300441", "DUNS: 300441", "  DUNS   300441 "])
def test_an_identifier_is_written_with_a_space_or_a_colon(admin: Client, text: str) -> None:
    assert change(admin, "/partners/add/", name="Globex", identifiers=text).status_code == 303
    (one,) = Party.objects.get(name="Globex").identifiers.all()
    assert (one.context, one.value) == ("DUNS", "300441")


def test_a_form_leads_to_who_has_an_identifier(admin: Client) -> None:
    owner = make_party("Globex")
    taken = owner.identifiers.get()
    answer = change(admin, "/partners/add/", name="Initech", identifiers=f"{taken.context} {taken.value}")
    (link,) = html.fromstring(answer.content).xpath("//a[@data-testid='owner']")
    assert (link.get("href"), link.text) == (f"/partners/{owner.public_id}/", "Open Globex")


def test_somebody_else_was_faster(admin: Client) -> None:
    party = make_party("Globex")
    url = f"/partners/{party.public_id}/edit/"
    given = filled(tree(admin, url)) | WHY
    services.party_update(party=party, name="Globex Ltd")
    answer = admin.post(url, given | {"name": "Mine"})
    assert answer.status_code == 409 and b"changed since" in answer.content
    assert Party.objects.get(pk=party.pk).name == "Globex Ltd"


def test_an_archived_party_has_no_active_agreement_and_opens_no_door(admin: Client, partner: PartnerSide) -> None:
    party = partner.outbound.partner
    archive = f"/partners/{party.public_id}/actions/archive/"
    refused = do(admin, archive)
    assert refused.status_code == 409 and b"disable it first" in refused.content
    agreement = Agreement.objects.get()
    assert do(admin, f"/agreements/{agreement.public_id}/actions/disable/").status_code == 303
    assert registry.current().authenticate(partner.presented, clock.now()) is not None
    assert do(admin, archive).status_code == 303
    registry.reset()
    assert registry.current().authenticate(partner.presented, clock.now()) is None
    back = do(admin, f"/agreements/{agreement.public_id}/actions/enable/")
    assert back.status_code == 422 and b"is archived" in back.content


def test_a_partners_page_says_how_it_goes(admin: Client, partner: PartnerSide) -> None:
    party = partner.outbound.partner
    page = tree(admin, f"/partners/{party.public_id}/")
    health = page.xpath("//*[@data-testid='health']")[0]
    assert health.get("data-state") == "active" and "The pair flows." in health.text_content()


# ---- endpoints and certificates


def test_an_endpoint_is_made_and_changed(admin: Client) -> None:
    party = make_party("Globex")
    made = change(admin, f"/partners/{party.public_id}/endpoints/new/", uri="https://globex.example/msh", name="main")
    endpoint = Endpoint.objects.get(party=party)
    assert (made.status_code, made["Location"]) == (303, f"/endpoints/{endpoint.public_id}/")
    url = f"/endpoints/{endpoint.public_id}/edit/"
    changed = change(admin, url, service_address="https://globex.example/partner", read_timeout="45 s")
    assert changed.status_code == 303
    endpoint.refresh_from_db()
    assert (endpoint.service_address, endpoint.read_timeout) == ("https://globex.example/partner/", 45)
    refused = change(admin, url, uri="ftp://globex.example/")
    assert (
        refused.status_code == 422 and html.fromstring(refused.content).get_element_by_id("field-uri_error") is not None
    )


def test_a_certificate_is_replaced_from_the_pairs_page(admin: Client, partner: PartnerSide) -> None:
    """An expired one, and the new one in a file: the dialog, the file, the reason, the button, and back."""
    endpoint = Endpoint.objects.get(party=partner.outbound.partner)
    old, new = AUTHORITY.issue("old", days=-1), AUTHORITY.issue("new")
    services.endpoint_update(endpoint=endpoint, trusted_certificates=old.certificate)
    back = f"/pairs/{partner.outbound.code}/"
    url = f"/endpoints/{endpoint.public_id}/certificates/?next={back}"
    with clock.frozen(AUTHORITY_NOW):
        page = tree(admin, url)
        assert "expired" in page.get_element_by_id("main").text_content()
        given = filled(page, "certificates-form") | WHY
        file = SimpleUploadedFile("new.pem", new.certificate.encode())
        answer = admin.post(url.partition("?")[0], given | {"certificates_file": file})
        assert (answer.status_code, unquote(answer["Location"])) == (303, back)
    endpoint.refresh_from_db()
    assert endpoint.trusted_certificates.strip() == new.certificate.strip()
    entry = AuditEntry.objects.get(verb="endpoint.update")
    assert [entry.before["certificates"][0]["title"], entry.after["certificates"][0]["title"]] == ["old", "new"]
    assert entry.reason == WHY["reason"] and "BEGIN" not in str(entry.after)


def test_the_present_certificate_can_be_kept_beside_the_new_one(admin: Client, partner: PartnerSide) -> None:
    endpoint = Endpoint.objects.get(party=partner.outbound.partner)
    old, new = AUTHORITY.issue("old.example"), AUTHORITY.issue("new.example")
    services.endpoint_update(endpoint=endpoint, trusted_certificates=old.certificate)
    url = f"/endpoints/{endpoint.public_id}/certificates/"
    answer = change(admin, url, "certificates-form", certificates=new.certificate, keep="1")
    assert answer.status_code == 303
    said = words(admin, f"/endpoints/{endpoint.public_id}/")
    assert said.index("new.example") < said.index("old.example") and "server authentication" in said
    assert "old.example" in words(admin, "/certificates/")


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"certificates": "nonsense"}, 422),
        ({"reason": ""}, 422),
        ({"version": ""}, 422),
        ({"version": "0123456789abcdef0123"}, 409),
    ],
)
def test_a_replacement_that_is_refused_changes_nothing(
    admin: Client, partner: PartnerSide, given: dict[str, str], status: int
) -> None:
    endpoint = Endpoint.objects.get(party=partner.outbound.partner)
    url = f"/endpoints/{endpoint.public_id}/certificates/"
    answer = change(admin, url, "certificates-form", **({"certificates": AUTHORITY.certificate} | given))
    assert answer.status_code == status
    endpoint.refresh_from_db()
    assert endpoint.trusted_certificates == ""


def test_the_way_back_stays_on_this_site(admin: Client, partner: PartnerSide) -> None:
    endpoint = Endpoint.objects.get(party=partner.outbound.partner)
    url = f"/endpoints/{endpoint.public_id}/certificates/"
    answer = change(admin, url, "certificates-form", certificates="", next="https://evil.example/")
    assert answer["Location"] == f"/endpoints/{endpoint.public_id}/"


# ---- credentials


def test_a_credential_is_issued_shown_once_and_revoked(admin: Client) -> None:
    party = make_party("Globex")
    url = f"/partners/{party.public_id}/credentials/new/"
    given = filled(tree(admin, url)) | WHY | {"username": "globex"}
    answer = admin.post(url, given)
    (secret,) = html.fromstring(answer.content).xpath("//*[@data-testid='secret']/text()")
    registry.reset()
    who = registry.current().authenticate(Presented(basic("globex", secret)), clock.now())
    assert who is not None and who.party_id == party.pk
    assert "no-store" in answer["Cache-Control"]
    assert admin.post(url, given).status_code == 303 and Credential.objects.count() == 1
    credential = Credential.objects.get()
    assert secret not in words(admin, f"/partners/{party.public_id}/")
    assert do(admin, f"/credentials/{credential.public_id}/revoke/").status_code == 303
    registry.reset()
    assert registry.current().authenticate(Presented(basic("globex", secret)), clock.now()) is None


def test_what_a_partner_gave_us_is_stored_and_not_sent_back(admin: Client) -> None:
    party = make_party("Globex")
    url = f"/partners/{party.public_id}/credentials/new/"
    outbound = {"direction": "outbound", "kind": "basic", "username": "", "secret": "their password"}
    refused = change(admin, url, **outbound)
    assert refused.status_code == 422 and b"their password" not in refused.content
    assert change(admin, url, **outbound | {"username": "hub"}).status_code == 303
    registry.reset()
    assert registry.current().outbound_authorization(party.pk, clock.now()) == basic("hub", "their password")


def test_their_certificate_tells_its_own_end(admin: Client) -> None:
    party = make_party("Globex")
    shown = AUTHORITY.issue("globex", days=40)
    file = SimpleUploadedFile("globex.pem", shown.certificate.encode())
    url = f"/partners/{party.public_id}/credentials/new/"
    assert change(admin, url, kind="certificate", certificate_file=file).status_code == 303
    credential = Credential.objects.get()
    assert credential.valid_until is not None and len(credential.fingerprint) == 64
    registry.reset()
    with clock.frozen(AUTHORITY_NOW):
        assert registry.current().authenticate(Presented(fingerprint=credential.fingerprint), clock.now()) is not None


# ---- agreements


def _ends(page: Any) -> set[str]:
    return set(page.xpath("//select[@name='own_endpoint' or @name='partner_endpoint']/option[@value!='']/@value"))


def test_an_agreement_offers_the_endpoints_of_its_parties_only(admin: Client) -> None:
    own, partner, router = make_party("Us", own=True), make_party("Globex"), make_party("Router")
    ours, theirs, of_router = make_endpoint(own), make_endpoint(partner), make_endpoint(router)
    asks = tree(admin, "/agreements/new/")
    assert asks.xpath("//input[@name='partner']") and not _ends(asks)
    missing = admin.get("/agreements/new/", {"partner": "Glob"})
    assert missing.status_code == 422 and "Did you mean Globex?" in missing.content.decode()
    assert _ends(tree(admin, "/agreements/new/?partner=globex")) == {ours.public_id, theirs.public_id}
    by_hop = _ends(tree(admin, "/agreements/new/?partner=globex&through=Router"))
    assert by_hop == {ours.public_id, theirs.public_id, of_router.public_id}
    draft = make_agreement(own_party=own, partner=partner, activate=False)
    edit = f"/agreements/{draft.agreement.public_id}/v/1/edit/"
    known = {draft.own_endpoint.public_id, draft.partner_endpoint.public_id, ours.public_id, theirs.public_id}
    assert _ends(tree(admin, edit)) == known
    assert of_router.public_id in _ends(tree(admin, f"{edit}?through=Router"))


def test_an_agreement_from_its_draft_to_a_second_version(admin: Client, time: FrozenClock) -> None:
    own, partner = make_party("Us", own=True), make_party("Globex")
    ours, theirs = make_endpoint(own), make_endpoint(partner)
    ends = {"own_party": own, "partner": partner, "own_endpoint": ours, "partner_endpoint": theirs}
    made = change(
        admin,
        f"/agreements/new/?partner={partner.public_id}",
        tpa_id="tpa:us-globex",
        services="urn:orders | * | both\nurn:invoices | Invoice | send",
        **{name: one.public_id for name, one in ends.items()},
    )
    agreement = Agreement.objects.get()
    here = f"/agreements/{agreement.public_id}/"
    assert (made.status_code, made["Location"]) == (303, here)
    edited = change(admin, f"{here}v/1/edit/", retries="3", retry_interval="2 m", timeout="30 s")
    assert edited.status_code == 303
    assert "Gives up after 6 m 30 s" in words(admin, here)
    assert do(admin, f"{here}v/1/actions/activate/").status_code == 303
    assert "agreement.activate" in words(admin, here)
    again = do(admin, f"{here}actions/new-version/")
    assert again["Location"] == f"{here}v/2/edit/"
    assert change(admin, f"{here}v/2/edit/", retries="9").status_code == 303
    changes = [
        [cell.text_content().strip() for cell in row.xpath("td")]
        for row in tree(admin, f"{here}v/2/").xpath("//tr[@data-testid='change']")
    ]
    assert ["Retries", "3", "9"] in changes
    assert AgreementVersion.objects.get(number=1).state == "active"
    assert do(admin, f"{here}v/2/actions/discard/")["Location"] == here
    assert do(admin, f"{here}actions/disable/").status_code == 303
    assert do(admin, f"{here}actions/enable/").status_code == 303


def test_a_draft_that_contradicts_itself_cannot_be_activated(admin: Client, time: FrozenClock) -> None:
    version = make_agreement(activate=False, retries=5, retry_interval=0)
    here = f"/agreements/{version.agreement.public_id}/"
    page = tree(admin, here)
    button = page.xpath("//*[@data-testid='verb-activate']")[0]
    assert button.get("aria-disabled") == "true"
    answer = do(admin, f"{here}v/1/actions/activate/")
    assert answer.status_code == 422 and b"RetryInterval is 0 s" in answer.content


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_others_see_the_verbs_and_why_they_are_off(role: Role, partner: PartnerSide) -> None:
    client = browser(role)
    version = AgreementVersion.objects.get()
    for url in (f"/partners/{partner.outbound.partner.public_id}/", f"/agreements/{version.agreement.public_id}/"):
        page = tree(client, url)
        assert page.xpath("//button[@aria-disabled='true']") and "Needs the role admin." in page.text_content()
    make_credential(partner.outbound.partner)
    for url in ("/partners/new/", "/partners/add/", "/agreements/new/", "/partners/bundle/"):
        assert client.get(url).status_code == 403
