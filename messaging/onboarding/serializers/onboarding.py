"""Certificates, health of a partner, drafts of the wizard, test reports and bundles: representations and bodies."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from messaging.api.fields import Flag, IdIn, IdOut, OptionalReasonBody, ReasonBody, StrictBody, Text
from messaging.api.named import PartyRef
from messaging.models import OnboardingDraft
from messaging.onboarding.selectors import Held
from messaging.onboarding.serializers.levels import AttainmentSerializer, PartnerTrafficSerializer
from messaging.onboarding.services.bundle_format import MAX_BYTES
from messaging.onboarding.services.cpa import MAX_BYTES as CPA_BYTES
from messaging.onboarding.services.cpa import CpaReport
from messaging.onboarding.services.drafts import SOURCES, STEPS
from messaging.onboarding.services.making import FIELDS, Check, step_of
from partners.certificates import MAX_TEXT, CertificateFacts
from partners.cpa.findings import Kind


class CertificateFactsSerializer(serializers.Serializer):
    """What one X.509 certificate says."""

    subject = serializers.CharField(help_text="RFC 4514.")
    issuer = serializers.CharField()
    common_name = serializers.CharField()
    names = serializers.ListField(child=serializers.CharField(), help_text="Other names: hosts and addresses.")
    not_before = serializers.DateTimeField()
    not_after = serializers.DateTimeField()
    fingerprint = serializers.CharField(help_text="SHA-256, 64 hexadecimal digits.")
    serial = serializers.CharField(help_text="Hexadecimal.")
    key = serializers.CharField(help_text="Kind and size of its key.")
    key_use = serializers.ListField(child=serializers.CharField())
    is_authority = serializers.BooleanField()
    self_signed = serializers.BooleanField()


class EndpointCertificatesSerializer(serializers.Serializer):
    """The only certificates that an endpoint's server may show; empty = those that the machine trusts."""

    endpoint = IdOut("end")
    pem = serializers.CharField(allow_blank=True)
    certificates = CertificateFactsSerializer(many=True)


class TrustBody(ReasonBody):
    """What takes the place of the present ones."""

    pem = Text(
        max_length=MAX_TEXT,
        allow_blank=True,
        trim_whitespace=False,
        help_text="PEM text of authorities, or of the server's own certificate; empty = what the machine trusts.",
    )


class CertificateSerializer(serializers.Serializer):
    """A certificate that the hub knows, or a credential that has an end."""

    use = serializers.ChoiceField(
        choices=["trusted", "credential"], help_text="trusted: a partner's server may show it."
    )
    title = serializers.CharField()
    party = PartyRef()
    endpoint = serializers.CharField(allow_null=True, help_text="Id (`end_...`) of the endpoint whose server it is.")
    credential = serializers.CharField(allow_null=True, help_text="Id (`cred_...`).")
    ends_at = serializers.DateTimeField()
    days_left = serializers.IntegerField(help_text="Whole days; below 0 = it has expired.")
    state = serializers.ChoiceField(choices=["valid", "ending", "expired"], help_text="ending: within 30 days.")
    certificate = CertificateFactsSerializer(allow_null=True)


class CertificatesSerializer(serializers.Serializer):
    """All of them, those that end first in front."""

    data = CertificateSerializer(many=True)  # type: ignore[assignment]


class PartnerHealthSerializer(serializers.Serializer):
    """How it goes with one partner."""

    state = serializers.CharField(help_text="The worst state word of its pairs; `none` without any.")
    sentence = serializers.CharField()
    states = serializers.DictField(child=serializers.IntegerField(), help_text="State word -> how many pairs.")
    waiting = serializers.IntegerField(help_text="Documents that wait to be sent.")
    last_success_at = serializers.DateTimeField(allow_null=True)
    incidents = serializers.IntegerField(help_text="Unresolved ones.")
    ending = CertificateSerializer(many=True, help_text="Certificates and credentials that expire within 30 days.")
    traffic = PartnerTrafficSerializer()
    service_levels = AttainmentSerializer(many=True, help_text="Targets of its agreements in the running month.")


class StepSerializer(serializers.Serializer):
    """One step of a test."""

    name = serializers.CharField()
    verdict = serializers.ChoiceField(choices=["ok", "warning", "failed", "skipped"])
    detail = serializers.CharField()
    seconds = serializers.FloatField()
    facts = serializers.DictField()


class BenchReportSerializer(serializers.Serializer):
    """What the test bench found of one version of an agreement."""

    id = IdOut("tst")
    agreement = IdOut("agr", source="agreement_id")
    number = serializers.IntegerField(help_text="Of the version.")
    ok = serializers.BooleanField(help_text="No step failed.")
    steps = StepSerializer(many=True)
    actor = serializers.CharField()
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField()


class DraftBody(StrictBody):
    """Where a draft starts from: nothing, the terms of an agreement, or a bundle with one agreement."""

    source = serializers.ChoiceField(choices=SOURCES, required=False, default="blank")  # type: ignore[assignment]
    clone_of = IdIn("agr", required=False)
    bundle = serializers.DictField(required=False, help_text="source `bundle`: as GET /bundle gives it.")


class DraftChanges(OptionalReasonBody):
    """One step as it is now; what is absent from `values` is taken away."""

    step = serializers.ChoiceField(choices=sorted(FIELDS))
    values = serializers.DictField(help_text="The fields of the step; see docs/onboarding.md.")
    secret = Text(
        max_length=MAX_TEXT,
        required=False,
        allow_blank=True,
        default="",
        trim_whitespace=False,
        help_text="Step `transport`: what the partner gave us; kept encrypted, never given out.",
    )


class ProblemOfDraft(serializers.Serializer):
    """Something that is in the way of a draft, or (`warning`) that should be looked at."""

    step = serializers.ChoiceField(choices=sorted(FIELDS))
    field = serializers.CharField(allow_blank=True)
    detail = serializers.CharField()
    level = serializers.ChoiceField(choices=["error", "warning"])


class DraftSerializer(serializers.Serializer):
    """A partner that is being set up. Nothing of it is in force."""

    id = IdOut("drf")
    title = serializers.CharField()
    source = serializers.ChoiceField(choices=SOURCES)  # type: ignore[assignment]
    step = serializers.IntegerField(help_text=f"How far it is: {', '.join(STEPS)}, from 1.")
    agreement = serializers.CharField(allow_null=True, help_text="What it has been made into for its test (`agr_...`).")
    values = serializers.DictField(help_text="Step -> field -> value. Never the secret.")
    secret_kept = serializers.BooleanField()
    created_by = serializers.CharField()
    updated_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class DraftDetailSerializer(DraftSerializer):
    """A draft with what is in its way."""

    gives_up = serializers.CharField(help_text="What happens to a message that nobody acknowledges.")
    problems = ProblemOfDraft(many=True)


class ActivatedSerializer(serializers.Serializer):
    """What a draft has become."""

    agreement = serializers.CharField()
    number = serializers.IntegerField()
    partner = serializers.CharField()
    credential = serializers.CharField(allow_null=True, help_text="Id of what they show us from now on.")
    secret = serializers.CharField(allow_null=True, help_text="Its secret, shown only once, now.")


class BundleSerializer(serializers.Serializer):
    """The set-up as one document, without secrets: docs/onboarding.md has all members."""

    format = serializers.CharField()
    version = serializers.IntegerField()
    exported_at = serializers.DateTimeField(required=False)
    hub = serializers.CharField(required=False)
    parties = serializers.ListField(child=serializers.DictField())
    agreements = serializers.ListField(child=serializers.DictField())


class BundleBody(OptionalReasonBody):
    """A bundle to import, or a CSV file of partners."""

    bundle = serializers.DictField(required=False, help_text="As GET /bundle gives it.")
    csv = Text(
        required=False,
        max_length=MAX_BYTES,
        help_text="Instead of a bundle: partners, a row for each, below the headings name, identifiers "
        "(DUNS:123456789), contact, time_zone, hours, groups, uri, address, transport, tpa_id and title.",
    )
    template = Text(
        required=False,
        max_length=255,
        help_text="With csv: TPAId of the agreement whose own side, terms and services the new agreements get; without "
        "it there are none.",
    )
    dry_run = Flag(required=False, default=False, help_text="Say what would happen, and do nothing.")
    activate = Flag(
        required=False, default=False, help_text="Put agreements in force that are where the bundle comes from."
    )


class ChangeSerializer(serializers.Serializer):
    """One field."""

    field = serializers.CharField()
    before = serializers.CharField(allow_blank=True)
    after = serializers.CharField(allow_blank=True)


class BundleItemSerializer(serializers.Serializer):
    """One thing in a bundle."""

    kind = serializers.ChoiceField(choices=["party", "endpoint", "credential", "agreement"])
    name = serializers.CharField()
    action = serializers.ChoiceField(choices=["create", "change", "same", "problem"])
    changes = ChangeSerializer(many=True)
    problem = serializers.CharField(allow_blank=True)


class ImportReportSerializer(serializers.Serializer):
    """What an import did, or would do."""

    dry_run = serializers.BooleanField()
    counts = serializers.DictField(child=serializers.IntegerField())
    items = BundleItemSerializer(many=True)


class CpaBody(OptionalReasonBody):
    """A CPA 2.0 to import."""

    cpa = Text(max_length=CPA_BYTES, trim_whitespace=False, help_text="The XML document.")
    own = Text(
        required=False,
        allow_blank=True,
        default="",
        help_text="Which of its PartyIds is ours, with or without its type in front (`DUNS:123456789`); needed unless "
        "a party of ours has one of them.",
    )
    dry_run = Flag(required=False, default=False, help_text="Say what would happen, and do nothing.")
    activate = Flag(required=False, default=False, help_text="Put the agreement in force.")


class CpaFindingSerializer(serializers.Serializer):
    """What became of one place of the document, or one thing that does not fit there."""

    kind = serializers.ChoiceField(choices=[kind.value for kind in Kind])
    matter = serializers.CharField(help_text="What it is about; stable.")
    path = serializers.CharField(help_text="XPath, with the prefixes tp, ds, xlink and xml.")
    line = serializers.IntegerField()
    text = serializers.CharField(allow_blank=True, help_text="The value as it was read, or a sentence.")


class CpaReportSerializer(ImportReportSerializer):
    """What an import of a CPA did, or would do, and what became of each element and attribute."""

    found = serializers.DictField(child=serializers.IntegerField(), help_text="How many findings of each kind.")
    findings = CpaFindingSerializer(many=True)


def cpa_report(done: CpaReport) -> dict[str, Any]:
    """As CpaReportSerializer shows it."""
    return {
        **ImportReportSerializer(done.report).data,
        "found": done.found,
        "findings": CpaFindingSerializer(done.findings, many=True).data,
    }


def certificate(held: Held) -> dict[str, Any]:
    """As CertificateSerializer shows it."""
    return {
        "use": held.kind,
        "title": held.title,
        "party": PartyRef(held.party).data,
        "endpoint": held.endpoint.public_id if held.endpoint else None,
        "credential": held.credential.public_id if held.credential else None,
        "ends_at": held.ends_at,
        "days_left": held.days_left,
        "state": held.state,
        "certificate": facts(held.facts) if held.facts else None,
    }


def facts(found: CertificateFacts) -> dict[str, Any]:
    """As CertificateFactsSerializer shows it."""
    return dict(CertificateFactsSerializer(found).data)


def draft(found: OnboardingDraft, check: Check | None = None) -> dict[str, Any]:
    """As DraftSerializer, or with a check as DraftDetailSerializer, shows it."""
    data: dict[str, Any] = {
        "id": found.public_id,
        "title": found.title,
        "source": found.source,
        "step": found.step,
        "agreement": found.agreement.public_id if found.agreement else None,
        "values": {step: found.data.get(step, {}).get("values", {}) for step in FIELDS},
        "secret_kept": "secret" in found.data.get("transport", {}) or "credential" in found.data.get("made", {}),
        "created_by": found.created_by,
        "updated_by": found.updated_by,
        "created_at": found.created_at,
        "updated_at": found.updated_at,
    }
    if check is None:
        return data
    problems = [
        {"step": step, "field": name, "detail": text, "level": "error"}
        for step, errors in check.errors.items()
        for name, texts in errors.items()
        for text in texts
    ]
    problems += [
        {"step": step_of(one), "field": one.field, "detail": one.sentence, "level": one.level.value}
        for one in check.problems
    ]
    return {**data, "gives_up": check.sentence, "problems": problems}
