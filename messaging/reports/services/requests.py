"""What a run of the data pipeline may be asked for: the jobs by kind, and the parameters that each takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from messaging.exceptions import InvalidSubmission
from messaging.report_choices import PipelineJob

REPORTS = (PipelineJob.AUDIT, PipelineJob.LEVELS, PipelineJob.WINDOW, PipelineJob.TIMING)
ALL = (PipelineJob.EXTRACT, *REPORTS)
# A range means something to these only.
RANGED = frozenset((*REPORTS, PipelineJob.RECONCILE, PipelineJob.EXPORT))


def check_request(
    *,
    job: str,
    parameters: Mapping[str, Any] | None = None,
    range_from: datetime | None = None,
    range_to: datetime | None = None,
    scope: str = "",
) -> dict[str, Any]:
    """The parameters as a run of this job gets them. Raises InvalidSubmission by field."""
    errors: dict[str, list[str]] = {}
    if job not in PipelineJob.values:
        raise InvalidSubmission({"job": [f"One of {', '.join(PipelineJob.values)}."]})
    for name, value in (("from", range_from), ("to", range_to)):
        if value is not None and job not in RANGED:
            errors[name] = [f"{PipelineJob(job).label} takes no range: leave it out."]
        elif value is not None and value.tzinfo is None:
            errors[name] = ["A time zone is needed, such as Z for UTC."]
    if not errors and range_from is not None and range_to is not None and range_from >= range_to:
        errors["to"] = ["It must be later than the begin of the range."]
    kept = dict(parameters or {})
    try:
        json.dumps(kept)
    except (TypeError, ValueError):
        errors["parameters"] = ["Only what JSON can hold."]
    if job in REPORTS:
        unknown = sorted(set(kept) - {"extract"})
        if unknown:
            errors["parameters"] = [f"Unknown: {', '.join(unknown)}. Known: extract."]
        elif not isinstance(kept.setdefault("extract", True), bool):
            errors["parameters"] = ["extract: true or false."]
    elif job in (PipelineJob.EXTRACT, PipelineJob.COMPACT) and kept:
        errors["parameters"] = [f"{PipelineJob(job).label} takes none."]
    if job == PipelineJob.RECONCILE and not scope:
        errors["scope"] = ["The partner's log that is compared (plog_…)."]
    if len(scope) > 80 or "\x00" in scope:
        errors["scope"] = ["At most 80 characters."]
    if errors:
        raise InvalidSubmission(errors)
    return kept
