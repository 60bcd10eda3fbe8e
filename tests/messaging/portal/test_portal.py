"""The partner portal: what a partner's people see and hand in, and that they reach nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils.translation import trans_real
from lxml import html

from messaging.access.services import users
from messaging.console.access import SIGNED_IN
from messaging.exceptions import InvalidSubmission, WrongState
from messaging.journal.audit import Actor
from messaging.models import Access, AuditEntry, Incident, Message, OfferedCertificate, Pair, PartnerLog
from messaging.onboarding.services import offers
from messaging.permissions import permissions_of
from messaging.urls.console import urlpatterns
from partners import certificates, registry
from partners.models import Credential, Endpoint, Party
from partners.terms import Presented
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import ORDER, PORTAL, Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.pages import PAGES, PORTAL_PAGES
from tests.messaging.console.scenes import World, browser, delivered
from tests.messaging.console.test_html import TORN
from tests.messaging.console.test_languages import Marking, left, stored
from tests.messaging.factories import PartnerSide, partner_side, submit
from tests.messaging.onboarding.authority import FIXED, Authority

pytestmark = pytest.mark.django_db
ANA = Actor("ana", "console")
FACTS = certificates.read(FIXED)[0]
OPEN = {str(one.name) for one in urlpatterns if getattr(one.callback, "scope", "") == SIGNED_IN}  # type: ignore[union-attr]


def of_partner(partner: Party, name: str = "pia") -> Client:
    """A client that is logged in as somebody of the partner."""
    user = make_user(Role.PARTNER, name)
    Access.objects.create(user=user, limited=True, partner=partner)
    client = Client()
    client.force_login(user)
    return client


def party(side: PartnerSide) -> Party:
    return Party.objects.get(pk=side.terms.partner_id)


def file(content: str, name: str = "new.pem") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content.encode())


@pytest.fixture
def near(time: FrozenClock, db: None) -> PartnerSide:
    return partner_side()


def test_they_see_their_messages_and_connection(scene: World) -> None:
    client = of_partner(scene.partner)
    assert client.get("/")["Location"] == "/portal/"
    for page in PORTAL_PAGES:
        if page.get:
            answer = client.get(page.url(scene))
            assert answer.status_code == 200, page.name
            assert not html.fromstring(answer.content).xpath(TORN), page.name
    listed = client.get("/portal/messages/").content.decode()
    assert scene.outbound.public_id in listed
    assert "From us to you" in listed
    message = client.get(f"/portal/messages/{scene.outbound.public_id}/").content.decode()
    assert scene.outbound.message_id in message
    assert "attempt 1" in message
    connection = client.get("/portal/connection/").content.decode()
    version = scene.outbound.agreement_version
    assert version.agreement.tpa_id in connection
    assert version.partner_endpoint.uri in connection


def test_a_live_fragment_has_nothing_for_the_consoles_navigation(scene: World) -> None:
    headers = {"HX-Request": "true", "HX-Target": "live-portal"}
    answer = of_partner(scene.partner).get("/portal/", headers=headers)
    assert answer.status_code == 200
    assert "nav-count" not in answer.content.decode()


def test_and_nothing_of_another_partner(scene: World) -> None:
    """On no page, by no id, and in no list: everything that names another partner's things is looked for."""
    client = of_partner(scene.partner)
    others = Party.objects.filter(is_own=False).exclude(pk=scene.partner.pk)
    foreign = Message.objects.exclude(pair__partner=scene.partner).order_by("id").first()
    assert foreign is not None
    traces = {*others.values_list("name", flat=True)}
    traces |= {pair.code for pair in Pair.objects.exclude(partner=scene.partner)}
    traces |= set(Message.objects.exclude(pair__partner=scene.partner).values_list("message_id", flat=True))
    for page in PORTAL_PAGES:
        if page.get:
            text = client.get(page.url(scene)).content.decode()
            shown = [one for one in traces if re.search(rf"(?<![\w.-]){re.escape(one)}(?![\w-])", text)]
            assert not shown, page.name
    assert client.get(f"/portal/messages/{foreign.public_id}/").status_code == 404
    found = client.get("/portal/messages/", {"q": foreign.message_id}).content.decode()
    assert foreign.public_id not in found


def test_the_console_is_closed_to_them_but_for_their_own_account(scene: World) -> None:
    client = of_partner(scene.partner)
    for page in PAGES:
        if page.role is None or page.name == "dashboard":
            continue
        url = page.url(scene)
        if page.get:
            wanted = (200, 302, 303, 404) if page.name in OPEN else (403, 404)
            assert client.get(url).status_code in wanted, page.name
        if page.post is not None and page.name not in OPEN:
            assert client.post(url, page.post).status_code in (403, 404), page.name
    assert {"account", "password", "second-factor", "preferences", "zone"} <= OPEN


@pytest.mark.parametrize("role", [None, *ORDER], ids=str)
def test_and_the_portal_to_everybody_else(scene: World, role: Role | None) -> None:
    client = browser(role)
    for page in PORTAL_PAGES:
        if page.get:
            assert client.get(page.url(scene)).status_code == 403, page.name
        if page.post is not None:
            assert client.post(page.url(scene), page.post).status_code == 403, page.name


def test_no_page_of_theirs_leads_where_they_may_not_go(scene: World) -> None:
    client = of_partner(scene.partner)
    seen, todo = set(), ["/portal/", "/account/", "/preferences/"]
    while todo:
        url = todo.pop()
        if url in seen:
            continue
        seen.add(url)
        answer = client.get(url)
        assert answer.status_code in (200, 302, 303), url
        if answer.status_code == 200 and "html" in answer["Content-Type"]:
            links = html.fromstring(answer.content).xpath("//a/@href | //*/@data-href | //*/@hx-get")
            todo += [link.partition("?")[0].partition("#")[0] for link in links if link.startswith("/")]
    assert "/portal/certificates/" in seen


def test_a_token_of_theirs_opens_nothing(near: PartnerSide) -> None:
    """One that they got as somebody of ours, too."""
    make_user(Role.ADMIN)
    user = make_user(Role.OPERATOR, "pia")
    api = Api(make_token(user))
    given = {"role": "partner", "partner": near.terms.partner_id}
    users.user_change(user_id=user.pk, actor=ANA, reason="works for them now", **given)
    assert permissions_of(user).scopes == {PORTAL}
    for path in ("/messages", "/parties", "/users", "/events", "/offered-certificates", "/health"):
        assert api.get(path).status in (401, 403) or path == "/health", path


def test_without_their_partner_they_open_nothing(near: PartnerSide) -> None:
    client = browser(Role.PARTNER)
    assert client.get("/portal/").status_code == 403
    assert client.get("/account/").status_code == 403


# --- certificates


def test_a_certificate_is_trusted_when_it_is_accepted_and_not_before(near: PartnerSide) -> None:
    client = of_partner(party(near))
    answer = client.post("/portal/certificates/", {"file": file(FIXED), "note": "on Monday"})
    assert answer["Location"] == "/portal/certificates/"
    offer = OfferedCertificate.objects.get()
    shown = Presented(fingerprint=FACTS.fingerprint)
    registry.reset()
    assert registry.current().authenticate(shown, clock.now()) is None
    incident = Incident.objects.get(cause="certificate_offered")
    assert (incident.pair, incident.state) == (near.outbound, "open")
    assert "on Monday" in browser(Role.VIEWER).get("/offered-certificates/").content.decode()
    admin = browser(Role.ADMIN)
    accept = f"/offered-certificates/{offer.public_id}/accept/"
    assert FACTS.fingerprint in admin.get(accept).content.decode()
    assert admin.post(accept, {"reason": "asked by telephone", "version": "waiting"}).status_code == 303
    registry.reset()
    found = registry.current().authenticate(shown, clock.now())
    assert found is not None
    assert found.party_id == near.terms.partner_id
    incident.refresh_from_db()
    assert incident.state == "resolved"
    assert "asked by telephone" in client.get("/portal/certificates/").content.decode()
    verbs = set(AuditEntry.objects.values_list("verb", flat=True))
    assert verbs >= {"certificate.offer", "credential.issue", "certificate.accepted"}


def test_what_is_declined_is_not_trusted_and_the_partner_reads_why(near: PartnerSide) -> None:
    client = of_partner(party(near))
    client.post("/portal/certificates/", {"file": file(FIXED)})
    offer = OfferedCertificate.objects.get()
    offers.offer_decline(offer_id=offer.pk, actor=ANA, reason="another fingerprint")
    assert not Credential.objects.filter(fingerprint=FACTS.fingerprint).exists()
    assert "another fingerprint" in client.get("/portal/certificates/").content.decode()
    with pytest.raises(WrongState, match="ana has declined"):
        offers.offer_accept(offer_id=offer.pk, actor=ANA, reason="after all")
    client.post("/portal/certificates/", {"file": file(FIXED)})
    assert OfferedCertificate.objects.filter(state="waiting").count() == 1


def test_a_servers_new_certificate_is_trusted_beside_the_old_one(near: PartnerSide) -> None:
    old = Authority().certificate
    endpoint = Endpoint.objects.get(uri=near.terms.partner_uri)
    Endpoint.objects.filter(pk=endpoint.pk).update(trusted_certificates=old)
    client = of_partner(party(near))
    assert endpoint.uri in client.get("/portal/certificates/").content.decode()
    client.post("/portal/certificates/", {"file": file(FIXED), "endpoint": endpoint.public_id})
    offers.offer_accept(offer_id=OfferedCertificate.objects.get().pk, actor=ANA, reason="compared")
    endpoint.refresh_from_db()
    trusted = [one.fingerprint for one in certificates.read(endpoint.trusted_certificates)]
    assert trusted == [certificates.read(old)[0].fingerprint, FACTS.fingerprint]


def test_the_same_offer_again_is_one_offer_and_one_incident(near: PartnerSide) -> None:
    client = of_partner(party(near))
    for _ in range(2):
        assert client.post("/portal/certificates/", {"file": file(FIXED)}).status_code == 303
    assert OfferedCertificate.objects.count() == 1
    assert Incident.objects.get(cause="certificate_offered").occurrences == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "Choose the file"),
        ("no certificate", "certificate"),
        (FIXED + Authority("B").certificate, "one at a time"),
        (Authority("Old").issue(days=-400).certificate, "expired on"),
    ],
    ids=("nothing", "no certificate", "two", "expired"),
)
def test_what_is_no_certificate_to_trust_is_refused(near: PartnerSide, content: str, said: str) -> None:
    client = of_partner(party(near))
    given: dict[str, Any] = {"file": file(content)} if content else {}
    answer = client.post("/portal/certificates/", given)
    assert answer.status_code == 422
    assert said in answer.content.decode()
    assert not OfferedCertificate.objects.exists()


def test_another_partners_server_cannot_be_named(near: PartnerSide) -> None:
    far = partner_side()
    client = of_partner(party(near))
    endpoint = Endpoint.objects.get(uri=far.terms.partner_uri)
    Endpoint.objects.filter(pk=endpoint.pk).update(trusted_certificates=FIXED)
    answer = client.post("/portal/certificates/", {"file": file(FIXED), "endpoint": endpoint.public_id})
    assert answer.status_code == 404
    with pytest.raises(InvalidSubmission):
        offers.certificate_offer(
            party_id=near.terms.partner_id, endpoint_id=endpoint.pk, octets=FIXED.encode(), actor=ANA
        )


def test_only_so_many_wait(near: PartnerSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "MOST_WAITING", 1)
    client = of_partner(party(near))
    client.post("/portal/certificates/", {"file": file(FIXED)})
    answer = client.post("/portal/certificates/", {"file": file(Authority("B").certificate)})
    assert answer.status_code == 422
    assert OfferedCertificate.objects.count() == 1


def test_the_api_decides_too(near: PartnerSide) -> None:
    of_partner(party(near)).post("/portal/certificates/", {"file": file(FIXED)})
    api = Api(make_token(make_user(Role.ADMIN)))
    (row,) = api.get("/offered-certificates?state=waiting").json["data"]
    assert (row["partner"]["name"], row["fingerprint"]) == (party(near).name, FACTS.fingerprint)
    done = api.post(f"/offered-certificates/{row['id']}/accept", {"reason": "compared"}, If_Match="*")
    assert (done.status, done.json["state"]) == (200, "accepted"), done.json
    assert api.post(f"/offered-certificates/{row['id']}/decline", {"reason": "compared"}, If_Match="*").status == 409


# --- logs


def test_they_hand_in_their_log(near: PartnerSide) -> None:
    delivered(near)
    client = of_partner(party(near))
    log = file("message_id,direction\nm-1,in\n", "march.csv")
    assert client.post("/portal/logs/", {"file": log})["Location"] == "/portal/logs/"
    kept = PartnerLog.objects.get()
    assert (kept.party_id, kept.uploaded_by) == (near.terms.partner_id, "pia")
    assert "march.csv" in client.get("/portal/logs/").content.decode()
    refused = client.post("/portal/logs/", {"file": file("\x00", "x.parquet")})
    assert refused.status_code in (303, 422)
    assert client.post("/portal/logs/").status_code == 422


def test_a_log_that_is_too_long_is_refused_before_it_is_read(near: PartnerSide, settings: Any) -> None:
    settings.RMHUB_PARTNER_LOG_MAX_BYTES = 10
    client = of_partner(party(near))
    answer = client.post("/portal/logs/", {"file": file("x" * 1_200_000, "long.csv")})
    assert answer.status_code == 413
    assert not PartnerLog.objects.exists()


def test_what_is_posted_needs_a_csrf_token(near: PartnerSide) -> None:
    of_partner(party(near))
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.get(username="pia"))
    for url in ("/portal/logs/", "/portal/certificates/"):
        assert client.post(url, {"file": file(FIXED)}).status_code == 403, url
    assert not OfferedCertificate.objects.exists()


# --- users of the role


def test_an_admin_invites_somebody_of_a_partner(near: PartnerSide) -> None:
    admin = browser(Role.ADMIN)

    def post(**more: str) -> Any:
        once = html.fromstring(admin.get("/users/new/").content).xpath("//input[@name='once']/@value")[0]
        return admin.post("/users/new/", {"username": "pia", "role": "partner", "once": once, **more})

    wrong = post()
    assert wrong.status_code == 422
    assert "Choose the partner" in wrong.content.decode()
    assert post(partner=party(near).public_id).status_code == 200
    user = User.objects.get(username="pia")
    permissions = permissions_of(user)
    assert permissions.role == Role.PARTNER
    assert party(near).pk in (permissions.partners or ())
    assert f"the portal of {party(near).name}" in admin.get("/users/").content.decode()


def test_a_partners_person_who_becomes_ours_leaves_the_portal_and_back(near: PartnerSide) -> None:
    of_partner(party(near))
    api = Api(make_token(make_user(Role.ADMIN)))
    changed = api.patch("/users/pia", {"role": "viewer", "limited": False, "reason": "is hired"})
    assert (changed.json["role"], changed.json["partner"]) == ("viewer", None)
    assert permissions_of(User.objects.get(username="pia")).partners is None
    back = api.patch("/users/pia", {"role": "partner", "partner": party(near).public_id, "reason": "has left us"})
    assert back.json["partner"]["name"] == party(near).name
    assert permissions_of(User.objects.get(username="pia")).scopes == {PORTAL}


def test_messages_are_found_by_id_direction_state_and_day(near: PartnerSide) -> None:
    (sent,) = delivered(near)
    waiting = submit(near)
    client = of_partner(party(near))

    def ids(**given: str) -> set[str]:
        text = client.get("/portal/messages/", given).content.decode()
        return set(re.findall(r"/portal/messages/(msg_[0-9a-f]+)/", text))

    assert ids() == {sent.public_id, waiting.public_id}
    assert ids(q=sent.message_id) == {sent.public_id}
    assert ids(direction="in") == set()
    assert ids(state="done") == {sent.public_id}
    assert ids(since="2020-01-01", until="2999-01-01") == {sent.public_id, waiting.public_id}
    assert ids(until="2020-01-01") == set()
    assert "Write a day or a time" in client.get("/portal/messages/", {"since": "yesterday"}).content.decode()


def test_they_choose_their_language(near: PartnerSide) -> None:
    client = of_partner(party(near))
    form = html.fromstring(client.get("/preferences/").content)
    assert form.xpath("//input[@name='language']/@value") == ["", "en-gb", "de", "fr"]
    client.post("/preferences/", {"zone": "UTC", "language": "de", "shortcuts": "1"})
    assert html.fromstring(client.get("/portal/").content).get("lang") == "de"


def test_no_text_of_the_portal_is_left_untranslated(scene: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trans_real._translations, "de", Marking("de"))  # type: ignore[attr-defined]
    client = of_partner(scene.partner)
    client.post("/preferences/", {"zone": "UTC", "language": "de", "shortcuts": "1"})
    data, found = stored(), []
    for page in PORTAL_PAGES:
        if page.get:
            main = html.fromstring(client.get(page.url(scene)).content).xpath("//*[@id='main']")
            found += [f"{page.name}: {text}" for text in dict.fromkeys(left(main[0], data))] if main else []
    assert found == [], "\n".join(found)
