"""Onboarding: drafts of the wizard, and what probes and tests of a partner found."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext as _

from messaging.choices import CertificateUse, OfferState
from messaging.models.base import Identified
from messaging.models.pair import Pair
from partners.certificates import CertificateFacts, read
from partners.models import Agreement, Endpoint, Party


class OnboardingDraft(Identified):
    """A partner that is being set up, step by step; nothing is in force before its last step.

    `data`: step -> the fields as they were typed (secrets encrypted). `version` counts the writes; all after
    `own_since` are those of `updated_by`.
    """

    PREFIX = "drf"

    title = models.CharField(max_length=120, blank=True, default="")
    source = models.CharField(max_length=10, default="blank", help_text="blank, clone or bundle.")
    step = models.PositiveSmallIntegerField(default=1)
    data = models.JSONField(default=dict)
    agreement = models.ForeignKey(
        Agreement, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", help_text="What it has become."
    )
    created_by = models.CharField(max_length=150)
    updated_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    version = models.PositiveIntegerField(default=1)
    own_since = models.PositiveIntegerField(default=1)

    class Meta:
        ordering = ("-updated_at",)

    def __str__(self) -> str:
        return self.title or "New partner"

    @property
    def called(self) -> str:
        """Its title on pages; the audit log has the English one."""
        return self.title or _("New partner")


class OfferedCertificate(Identified):
    """A certificate that a partner's people uploaded in the portal: trusted for nothing until we accept it."""

    PREFIX = "ofc"

    party = models.ForeignKey(Party, on_delete=models.CASCADE, related_name="+")
    use = models.CharField(max_length=10, choices=CertificateUse)
    endpoint = models.ForeignKey(
        Endpoint, null=True, blank=True, on_delete=models.CASCADE, related_name="+", help_text="Whose server shows it."
    )
    certificate = models.TextField(help_text="PEM.")
    fingerprint = models.CharField("SHA-256 fingerprint", max_length=64)
    note = models.CharField(max_length=255, blank=True, default="", help_text="What the partner says of it.")
    state = models.CharField(max_length=10, choices=OfferState, default=OfferState.WAITING)
    offered_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    decided_by = models.CharField(max_length=150, blank=True, default="")
    decided_at = models.DateTimeField(null=True, blank=True)
    answer = models.CharField(max_length=500, blank=True, default="", help_text="The reason of the decision.")

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("party", "use", "endpoint", "fingerprint"),
                condition=Q(state=OfferState.WAITING),
                nulls_distinct=False,
                name="certificate_offered_once",
            ),
        )

    def __str__(self) -> str:
        return f"{self.party} · {self.fingerprint[:16]}"

    @property
    def facts(self) -> CertificateFacts:
        """Names, dates and key of the certificate."""
        return read(self.certificate)[0]


class ProbeReport(Identified):
    """What a look at an endpoint found: DNS, TCP, TLS, certificate, HTTP, echo.

    `steps`: [{"name", "verdict" (ok, failed, skipped, warning), "detail", "seconds", "facts"}].
    """

    PREFIX = "prb"

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+")
    pair = models.ForeignKey(Pair, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    address = models.CharField(max_length=500)
    ok = models.BooleanField()
    cause = models.CharField(max_length=60, blank=True, default="")
    steps = models.JSONField(default=list)
    actor = models.CharField(max_length=150)
    at = models.DateTimeField()

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(F("endpoint"), F("id").desc(), name="probe_by_endpoint"),)

    def __str__(self) -> str:
        return f"probe of {self.address}"


class BenchReport(Identified):
    """The test bench's report on an agreement: connection, echo, round trip, a repeat, an order that is broken.

    `steps` as in `ProbeReport`. `number`: the version that was tested.
    """

    PREFIX = "tst"

    agreement = models.ForeignKey(Agreement, on_delete=models.CASCADE, related_name="bench_reports")
    number = models.PositiveIntegerField()
    draft = models.ForeignKey(OnboardingDraft, null=True, blank=True, on_delete=models.SET_NULL, related_name="reports")
    ok = models.BooleanField()
    steps = models.JSONField(default=list)
    actor = models.CharField(max_length=150)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"test of {self.agreement_id} v{self.number}"
