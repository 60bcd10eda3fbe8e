"""What looks at endpoints found."""

from __future__ import annotations

import uuid

from django.db.models import QuerySet

from messaging.exceptions import NotFound
from messaging.models import ProbeReport
from partners.visibility import limit
from rmhub.ids import public_id


def probes(*, endpoint_id: uuid.UUID | None = None, pair_id: uuid.UUID | None = None) -> QuerySet[ProbeReport]:
    """Reports with their endpoints. Not ordered; pages by ("-id",)."""
    found = limit(ProbeReport.objects.select_related("endpoint__party", "pair"), "endpoint__party")
    if endpoint_id is not None:
        found = found.filter(endpoint=endpoint_id)
    return found.filter(pair=pair_id) if pair_id is not None else found


def probe(report_id: uuid.UUID) -> ProbeReport:
    """One report. Raises NotFound."""
    found = probes().filter(pk=report_id).first()
    if found is None:
        raise NotFound(f"There is no probe report {public_id('prb', report_id)}.")
    return found


def newest_of_pair(pair_id: uuid.UUID) -> ProbeReport | None:
    """What the last look for a pair's sake found."""
    return probes(pair_id=pair_id).order_by("-id").first()
