"""Drafts of the onboarding wizard and reports of the test bench."""

from __future__ import annotations

import uuid

from django.db.models import QuerySet

from messaging.exceptions import NotFound
from messaging.models import BenchReport, OnboardingDraft
from partners.visibility import limit
from rmhub.ids import BadPublicId, public_id, read_public_id


def drafts() -> QuerySet[OnboardingDraft]:
    """Newest first (by "-updated_at", "-id"): those that somebody goes on with stand in front."""
    return OnboardingDraft.objects.select_related("agreement").order_by("-updated_at", "-id")


def draft(reference: str | uuid.UUID) -> OnboardingDraft:
    """One draft. Raises NotFound."""
    try:
        key = reference if isinstance(reference, uuid.UUID) else read_public_id("drf", reference)
    except BadPublicId as error:
        raise NotFound(f"There is no draft {reference}.") from error
    found = drafts().filter(pk=key).first()
    if found is None:
        raise NotFound(f"There is no draft {public_id('drf', key)}: it was activated or discarded.")
    return found


def reports(*, agreement_id: uuid.UUID | None = None, draft_id: uuid.UUID | None = None) -> QuerySet[BenchReport]:
    """Reports of tests, newest first (by "-id")."""
    found = limit(BenchReport.objects.select_related("agreement__partner"), "agreement__partner").order_by("-id")
    if agreement_id is not None:
        found = found.filter(agreement=agreement_id)
    return found.filter(draft=draft_id) if draft_id is not None else found


def report(reference: str) -> BenchReport:
    """One report. Raises NotFound."""
    try:
        found = reports().filter(pk=read_public_id("tst", reference)).first()
    except BadPublicId:
        found = None
    if found is None:
        raise NotFound(f"There is no test report {reference}.")
    return found
