"""Onboarding: drafts of the wizard, and what probes and tests of a partner found."""

from __future__ import annotations

from django.db import models
from django.db.models import F

from messaging.models.base import Identified
from messaging.models.pair import Pair
from partners.models import Agreement, Endpoint


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
