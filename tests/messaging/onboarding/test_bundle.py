"""Bundles: out and in again, all or nothing, and a second time nothing."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from messaging.exceptions import InvalidSubmission
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Pair
from messaging.onboarding.services import bundle, bundle_format
from partners import services
from partners.models import Agreement, AgreementVersion, Party
from tests.partners.factories import make_agreement, make_outbound_credential

pytestmark = pytest.mark.django_db
ANA = Actor("ana")


def load(document: dict[str, Any], **how: Any) -> bundle.ImportReport:
    return bundle.bundle_import(
        bundle=bundle_format.read_document(document), actor=ANA, **({"reason": "moved here"} | how)
    )


def exported() -> dict[str, Any]:
    """As it would come back from a file."""
    found: dict[str, Any] = json.loads(json.dumps(bundle.bundle_export()))
    return found


def empty() -> None:
    """Another hub."""
    Pair.objects.all().delete()
    Agreement.objects.all().delete()
    Party.objects.all().delete()


def test_out_of_one_hub_and_into_another() -> None:
    version = make_agreement(tpa_id="tpa:1", retries=7, max_message_bytes=4096)
    version.services.update(direction="receive")
    make_outbound_credential(version.agreement.partner)
    document = exported()
    assert {one["direction"] for one in document["agreements"][0]["services"]} == {"receive"}
    assert "secret" not in json.dumps(document)
    empty()
    report = load(document, activate=True)
    assert report.counts == {"create": 5, "change": 0, "same": 0, "problem": 0}
    made = AgreementVersion.objects.get()
    assert (made.state, made.retries, made.max_message_bytes) == ("active", 7, 4096)
    assert exported() | {"exported_at": ""} == document | {"exported_at": ""}
    audited = AuditEntry.objects.count()
    again = load(document, activate=True)
    assert again.counts == {"create": 0, "change": 0, "same": 5, "problem": 0}
    assert AuditEntry.objects.count() == audited


def test_an_agreement_of_transactions_comes_through() -> None:
    given = {"coordination_version": "2004/10", "soap_version": "1.2", "addressing_profile": "oasis"}
    given["other_servers"] = "https://txn.example:8443"
    make_agreement(tpa_id="tpa:1", profile="wsat", addressing_strict=True, repeat_interval=7, **given)
    document = exported()
    empty()
    load(document, activate=True)
    made = AgreementVersion.objects.get()
    assert {name: getattr(made, name) for name in given} == given
    assert (made.state, made.profile, made.addressing_strict, made.repeat_interval) == ("active", "wsat", True, 7)


def test_a_dry_run_says_what_would_change_and_changes_nothing() -> None:
    version = make_agreement(tpa_id="tpa:1", retries=5)
    document = exported()
    document["agreements"][0]["terms"]["retries"] = 9
    document["parties"][0]["contact"] = "Eva"
    before, audited = exported() | {"exported_at": ""}, AuditEntry.objects.count()
    report = load(document, dry_run=True, reason="")
    changed = {
        item.kind: [(one.label, one.before, one.after) for one in item.changes] for item in report.items if item.changes
    }
    assert changed == {"party": [("Contact", "", "Eva")], "agreement": [("Retries", "5", "9")]}
    assert exported() | {"exported_at": ""} == before and AuditEntry.objects.count() == audited
    load(document)
    drafted = AgreementVersion.objects.get(number=2)
    assert (drafted.state, drafted.retries, drafted.agreement_id) == ("draft", 9, version.agreement_id)
    assert AgreementVersion.objects.get(number=1).state == "active"
    assert load(document).count("same") == 5


def test_all_of_it_or_nothing() -> None:
    make_agreement(tpa_id="tpa:1")
    document = exported()
    empty()
    document["agreements"][0]["own_endpoint"] = "https://nowhere.example/"
    assert [item.kind for item in load(document, dry_run=True).problems] == ["agreement"]
    with pytest.raises(InvalidSubmission) as refused:
        load(document)
    assert "no endpoint with this URI" in str(refused.value)
    assert not Party.objects.exists()


def test_terms_that_contradict_themselves_are_not_put_in_force() -> None:
    make_agreement(tpa_id="tpa:1")
    document = exported()
    empty()
    document["agreements"][0]["terms"]["retry_interval"] = 0
    with pytest.raises(InvalidSubmission, match="RetryInterval is 0 s"):
        load(document, activate=True)
    assert load(document).count("create") == 5 and AgreementVersion.objects.get().state == "draft"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda d: d.update(format="x"), "bundle"),
        (lambda d: d.update(strange=1), "bundle.strange"),
        (lambda d: d["parties"][0].update(name=""), "parties[0].name"),
        (lambda d: d["parties"][0].update(secret="x"), "parties[0].secret"),
        (lambda d: d["parties"][0]["endpoints"][0].update(read_timeout="x"), "parties[0].endpoints[0].read_timeout"),
        (lambda d: d["agreements"][0]["terms"].update(retries=True), "agreements[0].terms.retries"),
        (lambda d: d["agreements"][0]["terms"].update(ordered=1), "agreements[0].terms.ordered"),
        (lambda d: d["agreements"][0]["terms"].update(profile=3), "agreements[0].terms.profile"),
        (lambda d: d["agreements"][0].update(services=[{"service": "s", "direction": "up"}]), "services[0].direction"),
        (lambda d: d.update(parties={"name": "x"}), "parties"),
        (lambda d: d["parties"][0].update(contact="a\x00b"), "parties[0].contact"),
        (lambda d: d["parties"][0]["endpoints"][0].update(name="\ud800"), "parties[0].endpoints[0].name"),
        (lambda d: d["parties"][0].update(groups=["x" * 81]), "parties[0].groups"),
        (lambda d: d["agreements"][0]["terms"].update(note="\x00"), "agreements[0].terms.note"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(change: Any, where: str) -> None:
    make_agreement(tpa_id="tpa:1")
    document = exported()
    change(document)
    with pytest.raises(InvalidSubmission) as refused:
        bundle_format.read_document(document)
    assert where in " ".join(refused.value.errors["bundle"])


def test_the_command(tmp_path: Path) -> None:
    version = make_agreement(tpa_id="tpa:1")
    file = tmp_path / "bundle.json"
    call_command("bundle", "export", str(file))
    services.party_update(party=version.agreement.partner, contact="Bob")
    out = StringIO()
    call_command("bundle", "import", str(file), "--dry-run", stdout=out)
    assert "Contact: Bob -> -" in out.getvalue()
    with pytest.raises(CommandError, match="Say why"):
        call_command("bundle", "import", str(file))
    call_command("bundle", "import", str(file), "--reason", "back to what it was", stdout=out)
    assert Party.objects.get(pk=version.agreement.partner_id).contact == ""
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(CommandError, match="not JSON"):
        call_command("bundle", "import", str(tmp_path / "broken.json"), "--reason", "try")
