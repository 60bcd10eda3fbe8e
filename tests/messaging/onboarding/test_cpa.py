"""CPA 2.0: every fixture becomes an agreement, or it is said exactly why not; and agreements become documents."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command

from messaging.exceptions import InvalidSubmission
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Pair
from messaging.onboarding.services import cpa
from messaging.onboarding.services.cpa_export import cpa_export
from partners import selectors, services
from partners.choices import Encryption, SignatureAlgorithm, Signatures, SyncReply
from partners.cpa.findings import Matter
from partners.cpa.reading import read_agreement
from partners.models import Agreement, AgreementVersion, Credential, Endpoint, Party
from rmhub import clock
from rmhub.roles import Role
from tests import FIXTURES
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.scenes import browser
from tests.messaging.onboarding.authority import Authority, Issued
from tests.partners.cpa import ALL, BEST_EFFORT, EBIOT, NAV, RELIABLE, SIGNED, changed, octets
from tests.partners.factories import make_agreement, make_party

pytestmark = pytest.mark.django_db
ANA = Actor("ana")
OVERHEID = "00000000000000000001"
LOGIUS = "00000000000000000000"
CPAT1, CPAT1_4, CPAT2, CPAT5 = EBIOT
AT_LEAST_ONCE = (
    "line {line}, /tp:CollaborationProtocolAgreement/tp:PartyInfo[1]/tp:CollaborationRole/tp:ServiceBinding/"
    "tp:CanSend/tp:ThisPartyActionBinding: urn:ebIOT-TestService:order/Order is left out: messages are repeated and "
    "duplicates are never eliminated (at least once), and this hub repeats only what is delivered once and only once: "
    "agree on duplicateElimination always or perMessage."
)


def load(document: bytes, own: str = "", **how: Any) -> cpa.CpaReport:
    return cpa.cpa_import(octets=document, own=own, actor=ANA, **({"reason": "agreed with them"} | how))


def wrong(document: bytes, own: str = "", **how: Any) -> dict[str, list[str]]:
    before = counted()
    with pytest.raises(InvalidSubmission) as refused:
        load(document, own, **how)
    assert counted() == before
    return refused.value.errors


def counted() -> tuple[int, ...]:
    return tuple(
        model.objects.count() for model in (Party, Endpoint, Credential, Agreement, AgreementVersion, AuditEntry)
    )


def version(number: int = 1) -> AgreementVersion:
    return selectors.version(AgreementVersion.objects.get(number=number).pk)


def said(found: AgreementVersion) -> dict[str, Any]:
    """What a CPA has of a version."""
    names = (
        *("profile", "semantics", "retries", "retry_interval", "partner_window", "message_order", "sync_reply"),
        *("own_role", "partner_role", "signatures", "signature_algorithm", "encryption"),
    )
    return {name: getattr(found, name) for name in names} | {
        "tpa_id": found.agreement.tpa_id,
        "own": (found.agreement.own_party.name, found.own_endpoint.uri, found.own_endpoint.error_uri),
        "partner": (found.agreement.partner.name, found.partner_endpoint.uri, found.partner_endpoint.error_uri),
        "transports": (found.own_endpoint.transport, found.partner_endpoint.transport),
        "services": [(one.service, one.action, one.direction) for one in found.services.all()],
    }


OSB = {
    "profile": "ebms2",
    "sync_reply": "none",
    "message_order": False,
    "own_role": "OVERHEID",
    "partner_role": "DIGIPOORT",
    "transports": ("http", "http"),
    "services": [
        ("osb:aanleveren:1.1$1.0", "aanleveren", "send"),
        ("osb:aanleveren:1.1$1.0", "bevestigAanleveren", "receive"),
        ("osb:afleveren:1.1$1.0", "afleveren", "receive"),
        ("osb:afleveren:1.1$1.0", "bevestigAfleveren", "send"),
    ],
}
OSB_HTTP = {
    "own": ("Overheid", "http://localhost:8088/ebms", "http://localhost:8088/ebms"),
    "partner": ("Logius", "http://localhost:8888/ebms", "http://localhost:8888/ebms"),
    "signatures": "none",
    "signature_algorithm": "rsa-sha256",
    "encryption": "none",
}
OSB_RELIABLE = {"semantics": "OnceAndOnlyOnce", "retries": 5, "retry_interval": 300, "partner_window": 1800}
BUYER = {
    "profile": "ebms2",
    "sync_reply": "none",
    "message_order": False,
    "own_role": "Buyer",
    "partner_role": "Seller",
    "transports": ("http", "http"),
    "services": [("urn:ebIOT-TestService:order", "Order", "send")],
    "own": ("CECID", "http://147.8.178.159:8080/msh/", "http://147.8.178.159:8080/msh/"),
    "partner": ("I3T", "http://147.8.177.35:8080/msh", "http://147.8.177.35:8080/msh"),
    "signatures": "none",
    "signature_algorithm": "rsa-sha256",
    "encryption": "none",
}
# Where nothing is said, it is as usual for messages that are sent once.
UNSAID = {"retries": 0, "retry_interval": 300, "partner_window": 86_400}
SERVICES_OF_NAV = [
    ("DialogmoteInnkalling", "Bekreftelse", "send"),
    ("DialogmoteInnkalling", "Kvittering", "receive"),
    ("DialogmoteInnkalling", "MoteInnkalling", "send"),
    ("DialogmoteInnkalling", "MoteRespons", "receive"),
    ("ForesporselFraSaksbehandler", "Bekreftelse", "send"),
    ("ForesporselFraSaksbehandler", "Foresporsel", "send"),
    ("ForesporselFraSaksbehandler", "ForesporselSvar", "receive"),
    ("ForesporselFraSaksbehandler", "Kvittering", "receive"),
    ("ForesporselFraSaksbehandler", "Svar", "both"),
    ("HenvendelseFraLege", "Bekreftelse", "send"),
    ("HenvendelseFraLege", "Henvendelse", "receive"),
    ("HenvendelseFraLege", "Svar", "send"),
    ("HenvendelseFraSaksbehandler", "Henvendelse", "send"),
    ("HenvendelseFraSaksbehandler", "Kvittering", "receive"),
    ("HenvendelseFraSaksbehandler", "Svar", "receive"),
    ("Oppfolgingsplan", "Kvittering", "receive"),
    ("Oppfolgingsplan", "Plan", "send"),
    ("Oppfolgingsplan", "Svar", "receive"),
    ("Sykmelding", "Registrering", "receive"),
    ("Sykmelding", "Svar", "send"),
]
MADE: dict[str, tuple[str, dict[str, Any], int]] = {
    NAV: (
        "HER:79768",
        {
            "tpa_id": "nav:qass:35065",
            "profile": "ebms2",
            "semantics": "OnceAndOnlyOnce",
            **{"retries": 4, "retry_interval": 43_200, "partner_window": 345_600},
            **{"sync_reply": "none", "message_order": False},
            **{"own_role": "Saksbehandler", "partner_role": "Sykmelder"},
            **{"signatures": "messages", "signature_algorithm": "rsa-sha256", "encryption": "none"},
            "transports": ("smtp", "smtp"),
            "own": ("NAV", "mailto:example2@example.com", "mailto:example2@example.com"),
            "partner": ("SPEARE AS, flytitnhndevelop", "mailto:example@example.com", "mailto:example@example.com"),
            "services": SERVICES_OF_NAV,
        },
        6,
    ),
    BEST_EFFORT: (
        OVERHEID,
        {"tpa_id": "cpaStubEBF.be.http.unsigned", "semantics": "BestEffort", **OSB, **OSB_HTTP, **UNSAID},
        5,
    ),
    RELIABLE: (OVERHEID, {"tpa_id": "cpaStubEBF.rm.http.unsigned", **OSB, **OSB_HTTP, **OSB_RELIABLE}, 5),
    SIGNED: (
        OVERHEID,
        {
            "tpa_id": "cpaStubEBF.rm.https.signed",
            **OSB,
            **OSB_RELIABLE,
            "own": ("Overheid", "https://localhost:8088/ebms", "https://localhost:8088/ebms"),
            "partner": ("Logius", "https://localhost:8888/ebms", "https://localhost:8888/ebms"),
            **{"signatures": "messages", "signature_algorithm": "rsa-sha1", "encryption": "none"},
        },
        7,
    ),
    CPAT1: ("ebIOT:CECID", {"tpa_id": "ebIOT-CPAT1.CECID.I3T", "semantics": "BestEffort", **BUYER, **UNSAID}, 5),
    CPAT1_4: (
        "CECID",
        {
            "tpa_id": "ebIOT-CPAT1-4.CECID.I3T",
            "semantics": "OnceAndOnlyOnce",
            **BUYER,
            **{"retries": 1, "retry_interval": 864_000, "partner_window": 600},
        },
        5,
    ),
}
REFUSED = {CPAT2: ("CECID", AT_LEAST_ONCE.format(line=61)), CPAT5: ("CECID", AT_LEAST_ONCE.format(line=65))}


def test_every_fixture_has_its_outcome() -> None:
    assert {*MADE, *REFUSED} == {*ALL} == {one.name for one in (FIXTURES / "cpa").glob("*.xml")}


@pytest.mark.parametrize("name", MADE)
def test_a_document_becomes_an_agreement_and_a_second_time_nothing(name: str) -> None:
    own, expected, count = MADE[name]
    dry = load(octets(name), own, dry_run=True, reason="")
    assert counted() == (0,) * 6
    assert dry.report.counts == {"create": count, "change": 0, "same": 0, "problem": 0}
    assert load(octets(name), own).report.counts == dry.report.counts
    assert said(version()) == expected
    assert version().state == "draft" and version().agreement.own_party.is_own
    assert not version().agreement.partner.is_own
    before = counted()
    # Now it is known which party is ours.
    assert load(octets(name)).report.counts == {"create": 0, "change": 0, "same": count, "problem": 0}
    assert counted() == before


@pytest.mark.parametrize("name", REFUSED)
def test_or_it_is_said_exactly_why_not(name: str) -> None:
    own, sentence = REFUSED[name]
    assert wrong(octets(name), own) == {"cpa": [sentence]}


def test_what_nav_has_and_one_agreement_does_not_hold() -> None:
    left = [one for one in load(octets(NAV), "79768", dry_run=True).findings if one.matter is Matter.LEFT_OUT]
    assert {one.text.partition(" ")[0] for one in left} == {
        *("Legemelding/Svarmelding", "Legemelding/Sykmelding", "Legemelding/Legeerklaring"),
        *("Legemelding/Oppgjorsmelding", "Legemelding/Soknad"),
        *("BehandlerKrav/Svarmelding", "BehandlerKrav/OppgjorsMelding"),
        *("HarBorgerFrikort/Svar", "HarBorgerFrikort/Avvisning", "HarBorgerFrikort/EgenandelForesporsel"),
        *("HarBorgerFrikortMengde/Svar", "HarBorgerFrikortMengde/Avvisning"),
        "HarBorgerFrikortMengde/EgenandelForesporsel",
    }
    asked = next(one for one in left if one.text.startswith("HarBorgerFrikort/Svar"))
    lines = octets(NAV).decode().splitlines()
    assert 'action="Svar"' in "".join(lines[asked.line - 4 : asked.line])
    assert "syncReplyMode is none in others, and signalsAndResponse here" in asked.text
    assert "our role is Saksbehandler in others, and Frikortregister here" in asked.text


def test_certificates_of_the_partner_and_what_of_ours_is_still_to_be_stored() -> None:
    done = load(octets(SIGNED), OVERHEID)
    logius = {one.id: one.der for one in read_agreement(octets(SIGNED)).parties[0].certificates}
    facts = {name: x509.load_der_x509_certificate(der).fingerprint for name, der in logius.items()}
    assert len(facts) == 4
    stored = {one.kind: one for one in Credential.objects.all()}
    assert {kind: (one.party.name, one.direction) for kind, one in stored.items()} == {
        "certificate": ("Logius", "inbound"),
        "signing": ("Logius", "inbound"),
    }
    pem = x509.load_der_x509_certificate(logius["DIGIPOORT_SigningCert"]).public_bytes(Encoding.PEM).decode()
    assert stored["signing"].certificate == pem.strip()
    server = x509.load_der_x509_certificate(logius["DIGIPOORT_ServerCert"]).public_bytes(Encoding.PEM).decode()
    assert version().partner_endpoint.trusted_certificates.strip() == server.strip()
    assert version().own_endpoint.trusted_certificates == ""
    ours = [one.text for one in done.findings if one.matter is Matter.OUR_CERTIFICATE]
    assert ours == [
        "OVERHEID_ClientCert is a certificate of ours (certificate): store it with its private key.",
        "OVERHEID_SigningCert is a certificate of ours (signing): store it with its private key.",
    ]
    # What was revoked here stays so.
    services.credential_revoke(credential=stored["signing"])
    assert load(octets(SIGNED)).report.counts["same"] == 7
    assert Credential.objects.count() == 2


def test_the_same_cpaid_again_is_a_new_version() -> None:
    own = make_party("Wij", own=True, identifiers=[("urn:osb:oin", OVERHEID), ("DUNS", "1")])
    assert load(octets(RELIABLE), activate=True).report.count("create") == 4
    assert version().state == "active" and version().agreement.own_party_id == own.pk
    other = changed(RELIABLE, ("<tns:Retries>5</tns:Retries>", "<tns:Retries>4</tns:Retries>"), times=4)
    dry = load(other, dry_run=True)
    [item] = [one for one in dry.report.items if one.action == "change"]
    assert item.kind == "agreement" and [(one.before, one.after) for one in item.changes] == [("5", "4")]
    assert AgreementVersion.objects.count() == 1
    load(other)
    assert (version(2).state, version(2).retries, version(1).retries) == ("draft", 4, 5)
    load(other, activate=True)
    assert (version(2).state, version(1).state) == ("active", "retired")
    assert [(one.context, one.value) for one in own.identifiers.all()] == [("urn:osb:oin", OVERHEID), ("DUNS", "1")]


def test_a_partner_that_is_here_keeps_what_it_has_and_gets_the_identifiers_that_it_lacks() -> None:
    here = make_party("De partner", identifiers=[("DUNS", "7"), ("ENH", "123456789")], contact="Eva")
    load(octets(NAV), "79768")
    here.refresh_from_db()
    assert (here.name, here.contact) == ("De partner", "Eva")
    had = [("DUNS", "7"), ("ENH", "123456789"), ("HER", "8141253"), ("orgnummer", "123456789")]
    assert [(one.context, one.value) for one in here.identifiers.all()] == had
    assert version().agreement.partner_id == here.pk


def test_identifiers_and_endpoints_of_ours_stay_as_they_are() -> None:
    own = make_party("Wij", own=True, identifiers=[("HER", "79768")])
    services.endpoint_create(
        party=own, transport="smtp", uri="mailto:example2@example.com", error_uri="mailto:e@ours.no"
    )
    done = load(octets(NAV))
    assert own.identifiers.count() == 1
    missing = [one for one in done.findings if one.matter is Matter.OUR_IDENTIFIER]
    assert [one.text.partition(" does not have ")[2].partition(",")[0] for one in missing] == [
        "ENH:889640782",
        "orgnummer:889640782",
    ]
    assert version().own_endpoint.error_uri == "mailto:e@ours.no"
    [kept] = [one for one in done.findings if one.matter is Matter.OUR_ENDPOINT]
    assert kept.text.startswith("Errors go to mailto:e@ours.no here, and not to mailto:example2@example.com")


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ("", "No party of ours has one of these PartyIds: say which is ours. Logius: urn:osb:oin:00000000000000000000"),
        ("7", "No party has 7. Logius: urn:osb:oin:0000000000000"),
    ],
)
def test_which_party_is_ours_has_to_be_known(own: str, sentence: str) -> None:
    assert wrong(octets(RELIABLE), own)["own"][0].startswith(sentence)


def test_a_party_of_ours_on_both_sides() -> None:
    make_party("One", own=True, identifiers=[("urn:osb:oin", OVERHEID)])
    make_party("Two", own=True, identifiers=[("urn:osb:oin", LOGIUS)])
    assert wrong(octets(RELIABLE))["own"][0].startswith("Both parties are ours: say which PartyId is ours in this")
    load(octets(RELIABLE), f"urn:osb:oin:{LOGIUS}")
    assert (version().agreement.own_party.name, version().agreement.partner.name) == ("Two", "One")


def test_what_does_not_fit_with_the_parties_that_are_here() -> None:
    partner = make_party("Them", identifiers=[("urn:osb:oin", OVERHEID)])
    text = "Them has this identifier and is not marked as ours: choose the other PartyId."
    assert wrong(octets(RELIABLE), OVERHEID) == {"own": [text]}
    services.party_archive(party=partner)
    assert wrong(octets(RELIABLE), LOGIUS) == {"cpa": ["Them is archived here: restore it first."]}
    make_party("A", identifiers=[("HER", "8141253")])
    make_party("B", identifiers=[("ENH", "123456789")])
    [said] = wrong(octets(NAV), "79768")["cpa"]
    assert said.startswith("The PartyIds of SPEARE AS, flytitnhndevelop belong to several parties here: A, B.")
    make_party("Logius", identifiers=[("HER", "1")])
    services.party_restore(party=partner)
    [said] = wrong(octets(SIGNED), LOGIUS)["cpa"]
    assert said == f"Logius is here, with other identifiers: give it one of urn:osb:oin:{LOGIUS}, or another name."


def test_a_partner_id_without_a_type() -> None:
    bare = changed(NAV, (' ns1:type="HER"', ""))
    done = load(bare, "79768", dry_run=True)
    [finding] = [one for one in done.findings if one.matter is Matter.NO_TYPE]
    assert finding.text.startswith("8141253 has no type") and finding.path.endswith("tp:PartyId[1]")
    nothing = changed(RELIABLE, (' tns:type="urn:osb:oin"', ""), times=2)
    [said] = wrong(nothing, OVERHEID)["cpa"]
    assert said.startswith("line 106, /tp:CollaborationProtocolAgreement/tp:PartyInfo[2]: Overheid has no PartyId with")


def test_what_cannot_be_made_is_a_problem_and_nothing_is_made() -> None:
    somebody = make_party("Somebody")
    services.endpoint_create(party=somebody, uri="http://localhost:8888/ebms")
    dry = load(octets(RELIABLE), OVERHEID, dry_run=True)
    [problem] = dry.report.problems
    assert (problem.kind, problem.problem) == (
        "endpoint",
        "uri: Somebody has this endpoint here, and not Logius.",
    )
    text = "endpoint http://localhost:8888/ebms: uri: Somebody has this endpoint here, and not Logius."
    assert wrong(octets(RELIABLE), OVERHEID) == {"bundle": [text]}
    assert wrong(octets(RELIABLE), OVERHEID, reason="")["reason"]


def test_terms_that_contradict_themselves_stay_a_draft() -> None:
    found = wrong(octets(CPAT1_4), "CECID", activate=True)["bundle"]
    assert len(found) == 1 and "PersistDuration" in found[0]
    assert load(octets(CPAT1_4), "CECID").report.count("create") == 5


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (b"", "Choose a file, or paste the text of a CPA 2.0."),
        (b"<a", "line 1, /: The document is not XML"),
        (b"<a/>", "line 1, /*: The document is a a, and a CPA 2.0 is a {"),
        (b"\xff\xfe\x00", "line 1, /: The document is not XML"),
        (octets(RELIABLE).replace(b"<tns:Status", b"<tns:Statute"), "line 20, "),
    ],
)
def test_what_is_no_cpa_is_refused_with_its_place(document: bytes, sentence: str) -> None:
    assert wrong(document, OVERHEID)["cpa"][0].startswith(sentence)


# --- versions as documents ---


def empty() -> None:
    """Another hub."""
    Pair.objects.all().delete()
    Agreement.objects.all().delete()
    Party.objects.all().delete()


def again(found: AgreementVersion, own: str) -> tuple[AgreementVersion, bytes]:
    """What becomes of a version in an empty hub, by its document."""
    document = cpa_export(version=found)
    empty()
    load(document, own)
    return version(), document


@pytest.mark.parametrize("name", MADE)
def test_out_as_a_document_and_in_again(name: str) -> None:
    own, expected, _count = MADE[name]
    load(octets(name), own)
    found = version()
    if found.signatures != Signatures.NONE:
        issued = Authority().issue("ours")
        pem = f"{issued.certificate}{issued.key}"
        services.credential_store_outbound(party=found.agreement.partner, kind="signing", secret=pem)
    made, document = again(found, own)
    assert said(made) == expected
    # And once more: nothing gets lost on the way.
    read = read_agreement(document)
    assert (read.id, read.version, read.status.value) == (expected["tpa_id"], "1", "proposed")
    assert {one.name for one in read.parties} == {expected["own"][0], expected["partner"][0]}


def agreed(**terms: Any) -> AgreementVersion:
    allowed = (("urn:orders", "Order", "send"), ("urn:orders", "Reply", "both"), ("Invoices", "New", "receive"))
    own = make_party("Own", own=True, identifiers=[("DUNS", "1")])
    partner = make_party("Them", identifiers=[("DUNS", "2"), ("GLN", "3")])
    known = {"profile": "ebms2", "tpa_id": "cpa:1", "own_role": "Buyer", "partner_role": "Seller"}
    made = make_agreement(own_party=own, partner=partner, allowed=allowed, activate=False, **(known | terms))
    return selectors.version(made.pk)


@pytest.mark.parametrize(
    "terms",
    [
        {"retries": 7, "retry_interval": 61, "partner_window": 90_061, "message_order": True},
        {"semantics": "AtMostOnce"},
        {"semantics": "BestEffort", "sync_reply": SyncReply.SIGNALS.value},
        *({"sync_reply": one.value} for one in SyncReply),
        *({"signatures": one.value} for one in Signatures),
        *({"signatures": "messages", "signature_algorithm": one.value} for one in SignatureAlgorithm),
        *({"signatures": "receipts", "encryption": one.value} for one in Encryption),
    ],
)
def test_all_terms_come_through(terms: dict[str, Any]) -> None:
    found = agreed(**terms)
    authority = Authority()
    shown = authority.issue("them")
    rsa = [(FIXTURES / "smime" / name).read_text() for name in ("certificate.pem", "key.pem")]
    issued = {
        "signing": authority.issue("ours"),
        "certificate": authority.issue("ours for TLS"),
        "encryption": Issued(*rsa),
    }
    known = {"signing": shown.certificate, "certificate": shown.certificate, "encryption": rsa[0]}
    partner = found.agreement.partner
    for kind, one in issued.items():
        services.credential_store_outbound(party=partner, kind=kind, secret=f"{one.certificate}{one.key}")
        services.credential_issue(party=partner, kind=kind, certificate=known[kind])
    services.endpoint_update(
        endpoint=found.partner_endpoint,
        trusted_certificates=authority.certificate,
        error_uri="https://errors.example/msh",
    )
    found = selectors.version(found.pk)
    before, trusted = said(found), found.partner_endpoint.trusted_certificates
    made, document = again(found, "DUNS:1")
    assert said(made) == before
    assert made.partner_endpoint.trusted_certificates == trusted
    kinds = {"certificate"}
    kinds |= {"signing"} if made.signatures != Signatures.NONE else set()
    kinds |= {"encryption"} if made.encryption != Encryption.NONE else set()
    assert {one.kind: one.certificate for one in Credential.objects.all()} == {
        kind: known[kind].strip() for kind in kinds
    }
    identifiers = [(one.context, one.value) for one in made.agreement.partner.identifiers.all()]
    assert identifiers == [("DUNS", "2"), ("GLN", "3")]

    assert not [one for one in load(document, dry_run=True).findings if one.matter is Matter.SERVICE_TYPE]

    # Our keys are in no document; once they are stored, nothing is missing.
    def missing() -> int:
        return sum(one.matter is Matter.OUR_CERTIFICATE for one in load(document, dry_run=True).findings)

    assert missing() == len(kinds)
    for kind, one in issued.items():
        services.credential_store_outbound(
            party=made.agreement.partner, kind=kind, secret=f"{one.certificate}{one.key}"
        )
    assert missing() == 0
    # The partner sees the same from the other side.
    empty()
    load(document, "GLN:3")
    theirs = said(version())
    turned = {"send": "receive", "receive": "send", "both": "both"}
    assert theirs == before | {
        "own_role": before["partner_role"],
        "partner_role": before["own_role"],
        "own": before["partner"],
        "partner": before["own"],
        "services": [(service, action, turned[direction]) for service, action, direction in before["services"]],
    }


def test_status_and_times_of_a_version_in_force() -> None:
    found = agreed()
    services.version_activate(version=found)
    read = read_agreement(cpa_export(version=selectors.version(found.pk)))
    assert read.status.value == "agreed"
    assert abs(read.start - datetime.now(UTC)) < timedelta(minutes=5) and read.end.year == 2099


def test_a_certificate_that_is_for_later_is_not_named_yet() -> None:
    found = agreed(signatures="messages")
    partner, authority = found.agreement.partner, Authority()
    now, later = authority.issue("now"), authority.issue("later")
    services.credential_issue(party=partner, kind="signing", certificate=now.certificate)
    services.credential_store_outbound(party=partner, kind="signing", secret=now.certificate + now.key)
    known = {"valid_from": clock.now() + timedelta(days=30)}
    services.credential_store_outbound(party=partner, kind="signing", secret=later.certificate + later.key, **known)
    document = b"".join(cpa_export(version=selectors.version(found.pk)).split())
    held = ["".join(one.certificate.splitlines()[1:-1]).encode() in document for one in (now, later)]
    assert held == [True, False]


def test_a_declaration_at_the_beginning_is_taken_away_and_nothing_else() -> None:
    assert cpa.octets_of(' <?xml version="1.0" encoding="UTF-16"?><a/>') == b"<a/>"
    text = '<a/><?xml-stylesheet href="x"?>'
    assert cpa.octets_of(text) == text.encode()


def test_what_a_document_needs_and_a_version_lacks() -> None:
    make_agreement(tpa_id="tpa:1", activate=False)
    with pytest.raises(InvalidSubmission, match="Only agreements of ebXML Messaging"):
        cpa_export(version=version())
    empty()
    found = agreed(own_role="", signatures="messages", encryption="smime-aes256")
    services.version_edit(version=found, services=(("urn:orders", "*", "send"),))
    services.party_update(party=found.agreement.own_party, identifiers=())
    with pytest.raises(InvalidSubmission) as refused:
        cpa_export(version=selectors.version(found.pk))
    assert refused.value.errors == {
        "cpa": [
            "A CPA names the roles of both sides: enter them in the agreement.",
            "A CPA names each action, and all are allowed of urn:orders: enter them instead of *.",
            "Own has no identifier: enter one.",
            "The certificate with which Them signs is missing: store it.",
            "The certificate for what is encrypted for Them is missing: store it.",
        ]
    }
    folder = services.endpoint_create(party=found.agreement.partner, transport="sftp", uri="sftp://files.example/in/")
    services.version_edit(version=found, services=(), partner_endpoint=folder)
    with pytest.raises(InvalidSubmission) as refused:
        cpa_export(version=selectors.version(found.pk))
    assert refused.value.errors["cpa"][1:3] == [
        "A CPA names its services and actions: enter them in the agreement.",
        "A CPA has addresses of HTTP and mail only: choose other endpoints.",
    ]


# --- API, page, commands ---


def test_the_api_imports_and_exports() -> None:
    admin = Api(make_token(make_user()))
    # A text has no encoding any more, whatever its first line says.
    text = octets(RELIABLE).decode().replace('encoding="UTF-8"', 'encoding="UTF-16"')
    dry = admin.post("/cpa", {"cpa": text, "own": OVERHEID, "dry_run": True}).json
    assert dry["dry_run"] and dry["counts"]["create"] == 5 and dry["found"]["conflicting"] == 6
    conflicts = [one for one in dry["findings"] if one["kind"] == "conflicting"]
    assert {one["matter"] for one in conflicts} == {"service_type", "uri_scheme"}
    first = next(one for one in conflicts if one["matter"] == "service_type")
    assert first["path"].endswith("tp:CollaborationRole[1]") and first["line"]
    assert not Agreement.objects.exists()
    assert admin.post("/cpa", {"cpa": text, "own": OVERHEID}).status == 422
    refused = admin.post("/cpa", {"cpa": text, "reason": "agreed"})
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "#/own")
    assert admin.post("/cpa", {"cpa": text, "own": OVERHEID, "reason": "agreed"}).json["counts"]["create"] == 5
    reference = Agreement.objects.get().public_id
    answer = admin.get(f"/agreements/{reference}/versions/1/cpa")
    assert answer.headers["content-type"] == "application/xml"
    assert "cpaStubEBF.rm.http.unsigned.xml" in answer.headers["content-disposition"]
    assert read_agreement(answer.content).id == "cpaStubEBF.rm.http.unsigned"
    assert admin.get(f"/agreements/{reference}/versions/2/cpa").status == 404
    services.version_edit(version=version(), own_role="")
    lacking = admin.get(f"/agreements/{reference}/versions/1/cpa")
    assert lacking.status == 422 and "roles of both sides" in lacking.json["errors"][0]["detail"]


def test_an_import_needs_both_scopes() -> None:
    body = {"cpa": "<a/>", "dry_run": True}
    few = Api(make_token(make_user(), ["agreements:write"]))
    assert few.post("/cpa", body).code == "missing_scope"


def test_the_page_looks_first_and_then_imports() -> None:
    client = browser(Role.ADMIN)
    file = SimpleUploadedFile("theirs.xml", octets(SIGNED))
    unknown = client.post("/partners/cpa/", {"cpa_file": file})
    assert unknown.status_code == 422 and "say which is ours. Logius" in unknown.content.decode()
    file.seek(0)
    seen = client.post("/partners/cpa/", {"cpa_file": file, "own": OVERHEID}).content.decode()
    assert "7 created, 0 changed, 0 as they are, 0 problems" in seen
    assert seen.count('data-state="conflicting" data-testid="finding"') == len(
        load(octets(SIGNED), OVERHEID, dry_run=True).of_kind("conflicting")
    )
    assert "OVERHEID_SigningCert is a certificate of ours" in seen and "SSL 3.0 is not used any more" in seen
    assert not Agreement.objects.exists()
    kept = {"octets": base64.b64encode(octets(SIGNED)).decode(), "own": OVERHEID, "do": "1"}
    assert kept["octets"] in seen
    without = client.post("/partners/cpa/", kept)
    assert without.status_code == 422 and not Agreement.objects.exists()
    assert "it goes into the audit log" in without.content.decode()
    assert client.post("/partners/cpa/", kept | {"reason": "agreed"}).headers["Location"] == "/agreements/"
    assert version().state == "draft"
    assert AuditEntry.objects.get(verb="agreement.create").reason == "agreed"
    assert client.post("/partners/cpa/", {"octets": "no base64!"}).status_code == 422
    assert browser(Role.OPERATOR).get("/partners/cpa/").status_code == 403


def test_text_that_was_pasted() -> None:
    text = octets(RELIABLE).decode().replace('encoding="UTF-8"', 'encoding="ISO-8859-1"')
    seen = browser(Role.ADMIN).post("/partners/cpa/", {"cpa": text, "own": OVERHEID})
    assert seen.status_code == 200 and "5 created" in seen.content.decode()


def test_a_version_is_downloaded_from_its_page() -> None:
    load(octets(RELIABLE), OVERHEID)
    client = browser(Role.VIEWER)
    page = f"/agreements/{version().agreement.public_id}/v/1/"
    assert f'href="{page}cpa/"' in client.get(page).content.decode()
    answer = client.get(f"{page}cpa/")
    assert read_agreement(answer.content).id == "cpaStubEBF.rm.http.unsigned"
    services.version_edit(version=version(), partner_role="")
    back = client.get(f"{page}cpa/", follow=True)
    assert "A CPA names the roles of both sides" in back.content.decode()
    other = make_agreement()
    page = f"/agreements/{other.agreement.public_id}/v/1/"
    assert "cpa-download" not in client.get(page).content.decode()


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    file = str(FIXTURES / "cpa" / RELIABLE)
    call_command("import_cpa", file, "--own", OVERHEID, "--dry-run", stdout=out)
    lines = out.getvalue().splitlines()
    assert [line.split()[:2] for line in lines[-5:]] == [
        ["create", "party"],
        ["create", "endpoint"],
        ["create", "party"],
        ["create", "endpoint"],
        ["create", "agreement"],
    ]
    assert "304 mapped, 41 ignored, 6 conflicting" in lines
    assert sum(line.startswith("conflicting line ") for line in lines) == 6
    assert not any(line.startswith("mapped") for line in lines)
    assert not Agreement.objects.exists()
    more = StringIO()
    call_command("import_cpa", file, "--own", OVERHEID, "--dry-run", "--verbosity", "2", stdout=more)
    assert sum(line.startswith("mapped") for line in more.getvalue().splitlines()) == 304
    call_command("import_cpa", file, "--own", OVERHEID, "--reason", "agreed", "--activate", stdout=StringIO())
    assert version().state == "active"
    written = tmp_path / "ours.xml"
    call_command("export_cpa", "cpaStubEBF.rm.http.unsigned", str(written))
    printed = StringIO()
    call_command("export_cpa", "cpaStubEBF.rm.http.unsigned", "--number", "1", stdout=printed)
    assert printed.getvalue().encode() == written.read_bytes()
    out = StringIO()
    call_command("import_cpa", str(written), "--reason", "again", stdout=out)
    assert [line.split()[0] for line in out.getvalue().splitlines()[-5:]] == ["same"] * 5
    assert load(written.read_bytes()).of_kind("conflicting") == []


@pytest.mark.parametrize(
    ("command", "arguments", "sentence"),
    [
        ("import_cpa", ["/nowhere.xml"], "/nowhere.xml: No such file or directory"),
        ("import_cpa", [str(FIXTURES / "cpa" / RELIABLE), "--dry-run"], "No party of ours has one of these PartyIds"),
        ("import_cpa", [str(FIXTURES / "cpa" / RELIABLE), "--own", OVERHEID], "Say why, in at least 3 characters"),
        ("import_cpa", [str(FIXTURES / "cpa" / "README.md"), "--own", OVERHEID], "line 1, /: The document is not XML"),
        ("import_cpa", [str(FIXTURES / "cpa" / CPAT5), "--own", "I3T", "--reason", "agreed"], "line 65, /tp:Coll"),
        ("export_cpa", ["cpa:none"], "There is no agreement cpa:none."),
        ("export_cpa", ["tpa:1"], "Only agreements of ebXML Messaging 2.0 are CPAs."),
        ("export_cpa", ["tpa:1", "--number", "7"], "tpa:1 has no version 7."),
    ],
)
def test_bad_input_of_commands_is_one_line_and_exit_status_2(command: str, arguments: list[str], sentence: str) -> None:
    make_agreement(tpa_id="tpa:1")
    with pytest.raises(CommandError) as refused:
        call_command(command, *arguments, stdout=StringIO())
    assert str(refused.value).startswith(sentence) and "\n" not in str(refused.value)
    assert refused.value.returncode == 2
