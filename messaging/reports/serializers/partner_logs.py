"""Logs of partners: representations and bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import Flag, IdIn, IdOut, Instant, OptionalReasonBody, ReasonBody, Text
from messaging.choices import Interface
from messaging.deliveries.serializers.triggers import AgreementNamed
from messaging.messages.serializers.messages import PartyRef
from messaging.models import PartnerLog
from messaging.onboarding.serializers.agreements import LogColumnsBody, LogColumnsSerializer
from messaging.report_choices import LogState, Verdict
from messaging.reports.selectors.partner_logs import LogRow
from messaging.reports.serializers.reports import RunSerializer
from messaging.reports.services import partner_logs
from messaging.reports.services.actions import VERDICTS

_COVERS = "What the log covers; its first and last row unless told."


class LogForm(OptionalReasonBody):
    """A partner's log as a form: the part `file` is the log, CSV (UTF-8) or Parquet."""

    party = IdIn("par", help_text="Whose log it is.")
    agreement = IdIn("agr", required=False, help_text="The agreement that it is about; all with the partner if absent.")
    file = serializers.FileField(max_length=1000, allow_empty_file=True)
    columns = Text(
        max_length=20_000,
        required=False,
        help_text="The mapping of the columns as JSON, see LogColumnsBody; that of the agreement if absent.",
    )
    range_from = Instant(required=False, help_text=f"Inclusive. {_COVERS}")
    range_to = Instant(required=False, help_text="Exclusive.")


class ReconcileBody(OptionalReasonBody):
    """How a log is compared; what is given is kept with the log."""

    columns = LogColumnsBody(required=False)
    range_from = Instant(required=False, allow_null=True, help_text=f"Inclusive. {_COVERS}")
    range_to = Instant(required=False, allow_null=True, help_text="Exclusive.")
    skip_unreadable = Flag(
        required=False,
        default=False,
        help_text="Compare without the rows that cannot be read. Otherwise one of them fails the run: its message "
        "would count as lost.",
    )


class LogIncidentsBody(ReasonBody):
    """Which findings of a comparison incidents are made of."""

    verdicts = serializers.ListField(
        child=serializers.ChoiceField(choices=VERDICTS), required=False, help_text="Only of these; all unless told."
    )
    run = IdIn("run", required=False, help_text="The run that you looked at: refused when another is shown by now.")


class PartnerLogSerializer(serializers.Serializer):
    """A log that a partner sent."""

    id = IdOut("plog")
    party = PartyRef()
    agreement = AgreementNamed(allow_null=True)
    state = serializers.ChoiceField(choices=LogState.choices)
    error = serializers.CharField(help_text="Why it could not be read.")
    source = serializers.ChoiceField(  # type: ignore[assignment]
        choices=Interface.choices, help_text="`system`: the drop folder."
    )
    filename = serializers.CharField()
    format = serializers.ChoiceField(choices=["csv", "parquet"])
    size = serializers.IntegerField(help_text="Bytes.")
    sha256 = serializers.CharField()
    columns = LogColumnsSerializer()
    range_from = serializers.DateTimeField(allow_null=True, help_text="Inclusive.")
    range_to = serializers.DateTimeField(allow_null=True, help_text="Exclusive.")
    rows = serializers.IntegerField(allow_null=True, help_text="Null before it was read.")
    uploaded_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    verdicts = serializers.SerializerMethodField(help_text="How many messages have which verdict.")
    run = serializers.SerializerMethodField(help_text="The newest comparison; null before the first.")
    report = serializers.SerializerMethodField(help_text="Where the findings are; null before the first.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.row: LogRow | None = kwargs.pop("row", None)
        super().__init__(*args, **kwargs)

    @extend_schema_field(serializers.DictField(child=serializers.IntegerField()))
    def get_verdicts(self, log: PartnerLog) -> dict[str, int]:
        known = self.row.verdicts if self.row else {}
        return {verdict: known[verdict] for verdict in Verdict.values if verdict in known}

    @extend_schema_field(RunSerializer(allow_null=True))
    def get_run(self, log: PartnerLog) -> dict[str, Any] | None:
        run = self.row.latest if self.row else None
        return dict(RunSerializer(run).data) if run is not None else None

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_report(self, log: PartnerLog) -> str | None:
        has = self.row is not None and self.row.published is not None
        return f"/api/v1/reports/reconcile?scope={log.public_id}" if has else None


class PartnerLogDetailSerializer(PartnerLogSerializer):
    """A log that a partner sent, and what keeps it from being compared."""

    problems = serializers.SerializerMethodField(help_text="What to map; empty when it can be compared.")

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_problems(self, log: PartnerLog) -> list[str]:
        return list(partner_logs.fit(log))


def represent(rows: Sequence[LogRow]) -> list[dict[str, Any]]:
    """Logs as PartnerLogSerializer shows them."""
    return [dict(PartnerLogSerializer(row.log, row=row).data) for row in rows]


def represent_one(row: LogRow) -> dict[str, Any]:
    """One log as PartnerLogDetailSerializer shows it."""
    return dict(PartnerLogDetailSerializer(row.log, row=row).data)
