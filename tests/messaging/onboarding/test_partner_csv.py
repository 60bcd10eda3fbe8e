"""Many partners from one CSV file: read, checked line by line, imported all or nothing, a second time nothing."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command

from messaging.exceptions import InvalidSubmission
from messaging.journal.audit import Actor
from messaging.onboarding.services import bundle, partner_csv
from partners import services
from partners.exceptions import InvalidInput
from partners.models import Agreement, AgreementVersion, Endpoint, Party
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.scenes import browser
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db
ANA = Actor("ana")
FILE = """\
name,identifiers,time_zone,groups,uri,address,tpa_id,title
Globex,DUNS:123456789,Europe/Berlin,Retail;North,https://globex.example/msh,https://in.globex.example/msh,tpa:globex,
Initech,DUNS:987654321|GLN:4012345000009,,,https://initech.example/msh,,tpa:initech,Orders of Initech

"Müller, Söhne & Co",DUNS:555555555,,,https://mueller.example/msh,,tpa:mueller,
"""


def load(text: str | bytes = FILE, template: str = "tpa:pattern", **how: bool) -> bundle.ImportReport:
    found = partner_csv.read(text, template)
    return bundle.bundle_import(bundle=found, actor=ANA, reason="a merger", **how)


def wrong(text: str, template: str = "tpa:pattern") -> list[str]:
    with pytest.raises(InvalidSubmission) as refused:
        load(text, template)
    return refused.value.errors["bundle"]


def test_each_row_becomes_a_partner_with_an_agreement_like_the_pattern() -> None:
    pattern = make_agreement(tpa_id="tpa:pattern", retries=7)
    assert load(dry_run=True).counts == {"create": 9, "change": 0, "same": 0, "problem": 0}
    assert not Party.objects.filter(name="Globex").exists()
    assert load(activate=True).counts["create"] == 9
    globex = Party.objects.get(name="Globex")
    assert [str(one) for one in globex.identifiers.all()] == ["DUNS:123456789"]
    groups = sorted(group.name for group in globex.groups.all())
    assert (globex.time_zone, groups) == ("Europe/Berlin", ["North", "Retail"])
    endpoint = Endpoint.objects.get(party=globex)
    assert (endpoint.uri, endpoint.address) == ("https://globex.example/msh", "https://in.globex.example/msh")
    made = AgreementVersion.objects.get(agreement__tpa_id="tpa:initech")
    assert (made.state, made.retries, made.own_endpoint) == ("active", 7, pattern.own_endpoint)
    assert made.agreement.name == "Orders of Initech"
    assert [one.service for one in made.services.all()] == [one.service for one in pattern.services.all()]
    assert Party.objects.filter(name="Müller, Söhne & Co").exists()
    assert load().counts == {"create": 0, "change": 0, "same": 9, "problem": 0}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("separator", [";", "\t"])
def test_files_are_read_as_spreadsheets_write_them(encoding: str, separator: str) -> None:
    text = f"Name{separator}Time zone\r\nMüller{separator}Europe/Berlin\r\n"
    assert load(text.encode(encoding), "").counts["create"] == 1
    assert Party.objects.get().name == "Müller"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "line 1: the column name is needed."),
        ("name,uri", "The file has no row below its headings."),
        ("uri\nx", "line 1: the column name is needed."),
        ("name,colour\nGlobex,red", "line 1: there is no column colour; they are name, contact,"),
        ("name,uri,tpa_id\n,https://a.example,tpa:a", "line 2, name: a text is needed here."),
        ("name,uri,tpa_id\n\nGlobex,,", "line 3: an agreement needs tpa_id and uri."),
        ("name,uri,tpa_id\nGlobex,https://a.example,tpa:a,more", "line 2: it has more cells than there are headings."),
        (
            "name,uri,tpa_id\nGlobex,https://a.example,tpa:a\nGlobex,https://b.example,tpa:b",
            "line 3: Globex is in line 2 already.",
        ),
        (
            "name,identifiers,uri,tpa_id\nGlobex,123,https://a.example,tpa:a",
            "line 2, identifiers: write 123 with its type, such as DUNS:123456789.",
        ),
        (
            "name,address,tpa_id\nGlobex,https://a.example,",
            "line 2: an address belongs to an endpoint, which has a uri.",
        ),
        ('name,uri,tpa_id\n"Globex', "line 2: unexpected end of data."),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, sentence: str) -> None:
    make_agreement(tpa_id="tpa:pattern")
    assert any(one.startswith(sentence) for one in wrong(text)), wrong(text)


def test_whose_an_identifier_is_that_is_taken() -> None:
    load("name,identifiers\nGlobex,DUNS:123456789", "")
    taken = [("DUNS", "1"), ("DUNS", "123456789"), ("DUNS", "1")]
    with pytest.raises(InvalidInput) as refused:
        services.party_create(name="Initech", identifiers=taken)
    assert refused.value.errors["identifiers"] == [
        "Identifier 2: DUNS:123456789: it belongs to Globex.",
        "Identifier 3: DUNS:1: it is given twice.",
    ]


def test_nobody_gets_another_name_because_of_an_identifier() -> None:
    load("name,identifiers\nGlobex,DUNS:123456789", "")
    found = partner_csv.read("name,identifiers\nInitech,DUNS:123456789", "")
    [problem] = bundle.bundle_import(bundle=found, actor=ANA, reason="", dry_run=True).problems
    assert "DUNS:123456789: it belongs to Globex." in problem.problem


def test_an_unknown_pattern_is_refused() -> None:
    with pytest.raises(InvalidSubmission, match="There is no agreement tpa:none"):
        load(template="tpa:none")


def test_what_contradicts_the_hub_is_in_the_report_and_nothing_is_imported() -> None:
    version = make_agreement(tpa_id="tpa:pattern")
    text = f"name,uri,tpa_id,time_zone\nGlobex,{version.partner_endpoint.uri},tpa:a,\nInitech,https://i.example,tpa:b,Moon\n"
    report = bundle.bundle_import(bundle=partner_csv.read(text, "tpa:pattern"), actor=ANA, reason="", dry_run=True)
    assert sorted({one.name for one in report.problems}) >= ["Initech"]
    with pytest.raises(InvalidSubmission):
        load(text)
    assert not Party.objects.filter(name="Globex").exists()


def test_the_page_shows_the_dry_run_and_imports() -> None:
    make_agreement(tpa_id="tpa:pattern")
    page = browser(Role.ADMIN)
    file = SimpleUploadedFile("partners.csv", FILE.encode())
    seen = page.post("/partners/bundle/", {"csv_file": file, "template": "tpa:pattern"})
    assert "9 created" in seen.content.decode()
    assert not Party.objects.filter(name="Globex").exists()
    given = {"csv": seen.context["text"], "template": seen.context["template"], "do": "1", "reason": "a merger of ours"}
    assert page.post("/partners/bundle/", given).status_code == 303
    assert Agreement.objects.filter(tpa_id="tpa:mueller").exists()
    bad = page.post("/partners/bundle/", {"csv": "name,colour\nGlobex,red", "template": ""})
    assert bad.status_code == 422
    assert "there is no column colour" in bad.content.decode()


def test_api_and_command_do_the_same(tmp_path: Path) -> None:
    make_agreement(tpa_id="tpa:pattern")
    api = Api(make_token(make_user(Role.ADMIN)))
    tried = api.post("/bundle", {"csv": FILE, "template": "tpa:pattern", "dry_run": True})
    assert tried.json["counts"]["create"] == 9
    assert api.post("/bundle", {"csv": FILE, "bundle": {}}).code == "invalid_submission"
    assert api.post("/bundle", {"dry_run": True}).code == "invalid_submission"
    path = tmp_path / "partners.csv"
    path.write_text(FILE)
    how = {"csv": True, "template": "tpa:pattern", "reason": "a merger of ours", "stdout": StringIO()}
    call_command("bundle", "import", str(path), **how)
    assert Agreement.objects.filter(tpa_id="tpa:mueller").exists()
    path.write_text("name,colour\nGlobex,red")
    with pytest.raises(CommandError, match="line 1"):
        call_command("bundle", "import", str(path), **how)
