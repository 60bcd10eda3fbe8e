"""Certificates, archive, health, drafts, test reports and bundles by API."""

from __future__ import annotations

import pytest

from messaging.models import BenchReport, OnboardingDraft
from partners.models import AgreementVersion, Endpoint
from rmhub.roles import Role
from tests.messaging.api.client import REASON, Api, make_token, make_user
from tests.messaging.factories import PartnerSide
from tests.messaging.onboarding.authority import Authority
from tests.partners.factories import make_agreement, make_credential, make_endpoint, make_party

pytestmark = pytest.mark.django_db
AUTHORITY = Authority()


def test_certificates_of_an_endpoint(admin: Api, operator: Api, partner: PartnerSide) -> None:
    endpoint = Endpoint.objects.get(party=partner.outbound.partner)
    path = f"/endpoints/{endpoint.public_id}/certificates"
    read = admin.get(path)
    assert (read.json["pem"], read.json["certificates"]) == ("", [])
    body = {"pem": AUTHORITY.issue("globex.example").certificate, **REASON}
    assert admin.post(path, body).status == 428
    assert operator.post(path, body, If_Match=read.etag).status == 403
    made = admin.post(path, body, If_Match=read.etag)
    assert (made.status, made.json["certificates"][0]["common_name"]) == (200, "globex.example")
    assert admin.post(path, body, If_Match=read.etag).code == "stale"
    refused = admin.post(path, {"pem": "x", **REASON}, If_Match=made.etag)
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "#/trusted_certificates")
    (listed,) = admin.get("/certificates").json["data"]
    assert (listed["title"], listed["use"], listed["endpoint"]) == ("globex.example", "trusted", endpoint.public_id)
    assert admin.get("/certificates", {"ending_within": "10"}).json["data"] == []
    assert admin.get("/certificates", {"soon": "1"}).code == "unknown_parameter"


def test_a_party_is_archived_and_restored(admin: Api) -> None:
    party = make_party("Globex")
    path = f"/parties/{party.public_id}"
    gone = admin.post(f"{path}/archive", REASON, If_Match=admin.get(path).etag)
    assert gone.status == 200 and gone.json["archived_at"]
    assert admin.post(f"{path}/archive", REASON, If_Match=gone.etag).code == "wrong_state"
    assert admin.post(f"{path}/restore", REASON, If_Match=gone.etag).json["archived_at"] is None


def test_the_health_of_a_partner(admin: Api, partner: PartnerSide) -> None:
    found = admin.get(f"/parties/{partner.outbound.partner.public_id}/health").json
    assert (found["state"], found["sentence"], found["ending"]) == ("active", "The pair flows.", [])


def test_a_draft_from_start_to_activation(admin: Api, operator: Api) -> None:
    own = make_endpoint(make_party("Us", own=True))
    assert operator.post("/onboarding-drafts", {}).status == 403
    made = admin.post("/onboarding-drafts", {})
    assert made.status == 201 and made.json["problems"]
    path = made.headers["location"].removeprefix("/api/v1")
    steps = {
        "identity": {"name": "Globex", "identifiers": [["DUNS", "123456789"]]},
        "transport": {"uri": "https://globex.example/msh", "inbound_kind": "bearer"},
        "agreement": {"tpa_id": "tpa:globex", "own_endpoint": own.public_id, "services": [["urn:o", "*", "both"]]},
    }
    answer = made
    for name, values in steps.items():
        answer = admin.patch(path, {"step": name, "values": values}, If_Match=answer.etag)
        assert answer.status == 200, answer.json
    assert answer.json["problems"] == [] and "Gives up after" in answer.json["gives_up"]
    assert admin.patch(path, {"step": "identity", "values": {}}, If_Match=made.etag).code == "stale"
    done = admin.post(f"{path}/activate", REASON, If_Match=answer.etag)
    assert done.status == 200 and done.json["secret"]
    assert AgreementVersion.objects.get().state == "active" and admin.get(path).status == 404


@pytest.mark.parametrize(
    "values",
    [
        {"name": 3},
        {"name": "G", "identifiers": "DUNS 1"},
        {"name": "G", "identifiers": [["DUNS"]]},
        {"existing": "par_x"},
        {"name": "G", "time_zone": ["x"]},
    ],
)
def test_values_that_mean_nothing_are_problems_and_no_crash(admin: Api, values: dict[str, object]) -> None:
    made = admin.post("/onboarding-drafts", {})
    path = made.headers["location"].removeprefix("/api/v1")
    answer = admin.patch(path, {"step": "identity", "values": values}, If_Match=made.etag)
    assert answer.status == 200 and "identity" in {one["step"] for one in answer.json["problems"]}
    assert admin.patch(path, {"step": "identity", "values": {"x": 1}}, If_Match=answer.etag).status == 422
    assert admin.delete(path, If_Match=answer.etag).status == 204 and not OnboardingDraft.objects.exists()


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
def test_what_cannot_be_stored_is_refused(admin: Api, text: str) -> None:
    made = admin.post("/onboarding-drafts", {})
    path = made.headers["location"].removeprefix("/api/v1")
    for values in ({"name": text}, {"identifiers": [["DUNS", text]]}):
        answer = admin.patch(path, {"step": "identity", "values": values}, If_Match=made.etag)
        assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, f"#/{next(iter(values))}")


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"inbound_kind": "basic", "inbound_username": "taken"}, "inbound_username"),
        ({"inbound_kind": "basic", "inbound_username": "a:b"}, "inbound_username"),
        ({"inbound_kind": "certificate", "inbound_certificate": "x"}, "inbound_certificate"),
        ({"inbound_kind": "ssh_key"}, "inbound_kind"),
    ],
)
def test_what_the_partner_is_to_show_is_checked_before_anything_is_in_force(
    admin: Api, wish: dict[str, str], field: str
) -> None:
    make_credential(make_party("Initech"), username="taken")
    own = make_endpoint(make_party("Us", own=True))
    answer = admin.post("/onboarding-drafts", {})
    path = answer.headers["location"].removeprefix("/api/v1")
    for name, values in {
        "identity": {"name": "Globex", "identifiers": [["DUNS", "123456789"]]},
        "transport": {"uri": "https://globex.example/msh", **wish},
        "agreement": {"tpa_id": "tpa:globex", "own_endpoint": own.public_id, "services": [["urn:o", "*", "both"]]},
    }.items():
        answer = admin.patch(path, {"step": name, "values": values}, If_Match=answer.etag)
    assert [(one["step"], one["field"]) for one in answer.json["problems"]] == [("transport", field)]
    assert admin.post(f"{path}/activate", REASON, If_Match=answer.etag).status == 422
    assert not AgreementVersion.objects.exists()


def test_a_problem_is_told_with_the_step_that_puts_it_right(admin: Api) -> None:
    own = make_endpoint(make_party("Us", own=True))
    answer = admin.post("/onboarding-drafts", {})
    path = answer.headers["location"].removeprefix("/api/v1")
    for name, values in {
        "identity": {"name": "Globex"},
        "transport": {"uri": "https://globex.example/msh"},
        "agreement": {"tpa_id": "tpa:globex", "own_endpoint": own.public_id, "services": [["urn:o", "*", "both"]]},
    }.items():
        answer = admin.patch(path, {"step": name, "values": values}, If_Match=answer.etag)
    assert [(one["step"], one["field"]) for one in answer.json["problems"]] == [("identity", "partner")]


def test_nobody_puts_an_agreement_in_force_or_changes_a_partner_by_a_way_around(admin: Api) -> None:
    made = admin.post("/onboarding-drafts", {})
    path = made.headers["location"].removeprefix("/api/v1")
    owner = make_user(Role.ADMIN)
    partners_only = Api(make_token(owner, {"partners:write"}))
    refused = partners_only.post(f"{path}/activate", REASON, If_Match=made.etag)
    assert (refused.status, refused.json["required_scope"]) == (403, "agreements:write")
    agreements_only = Api(make_token(owner, {"agreements:write", "agreements:read"}))
    refused = agreements_only.post("/bundle", {"bundle": admin.get("/bundle").json, **REASON})
    assert (refused.status, refused.json["required_scope"]) == (403, "partners:write")


def test_bundles(admin: Api, viewer: Api) -> None:
    make_agreement(tpa_id="tpa:1")
    document = viewer.get("/bundle").json
    assert viewer.post("/bundle", {"bundle": document, **REASON}).status == 403
    document["parties"][0]["contact"] = "Eva"
    dry = admin.post("/bundle", {"bundle": document, "dry_run": True})
    assert (dry.status, dry.json["counts"]["change"], dry.json["counts"]["same"]) == (200, 1, 4)
    assert admin.post("/bundle", {"bundle": document}).status == 422
    assert admin.post("/bundle", {"bundle": document, **REASON}).json["counts"]["change"] == 1
    assert admin.post("/bundle", {"bundle": document, **REASON}).json["counts"]["same"] == 5
    assert admin.post("/bundle", {"bundle": {}, **REASON}).status == 422


def test_reports_are_read(admin: Api, partner: PartnerSide) -> None:
    version = AgreementVersion.objects.get(pk=partner.terms.version_id)
    now = version.created_at
    made = BenchReport.objects.create(
        agreement=version.agreement, number=1, ok=True, steps=[], actor="ana", started_at=now, finished_at=now
    )
    assert admin.get(f"/test-reports/{made.public_id}").json["agreement"] == version.agreement.public_id
    assert [one["id"] for one in admin.get("/test-reports").json["data"]] == [made.public_id]
    assert admin.get("/test-reports/tst_0").status == 404
    assert admin.post(f"/agreements/{version.agreement.public_id}/versions/9/test", {}).status == 404
