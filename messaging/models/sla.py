"""Service levels: how many documents of an agreement were due, and how many of them were in time."""

from __future__ import annotations

from django.db import models

from messaging.choices import SlaTarget
from partners.models import Agreement


class SlaCount(models.Model):
    """Documents by the time at which their limit ends: what is due and not met when that time is past is missed.

    Only ever grows: a document adds to `due` when it is taken, to `met` when it is done in time, and to `withdrawn`
    when it is cancelled in time.
    """

    agreement = models.ForeignKey(
        Agreement, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    target = models.CharField(max_length=12, choices=SlaTarget)
    due = models.PositiveIntegerField(default=0)
    met = models.PositiveIntegerField(default=0)
    withdrawn = models.PositiveIntegerField(default=0, help_text="Cancelled before the limit: not due any more.")

    class Meta:
        abstract = True


class SlaMonth(SlaCount):
    """One calendar month (UTC) of one target, with the share that the newest version of its documents asks for."""

    month = models.DateField(help_text="Its first day.")
    version_number = models.PositiveIntegerField(default=0)
    percent = models.FloatField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("agreement", "target", "month"), name="sla_month_unique"),)

    def __str__(self) -> str:
        return f"{self.agreement_id} {self.target} {self.month:%Y-%m}"


class SlaSpan(SlaCount):
    """Five minutes of one target: what burn rates are measured over, and which limits are still ahead."""

    at = models.DateTimeField(help_text="Its beginning.")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("agreement", "target", "at"), name="sla_span_unique"),)
        indexes = (models.Index(fields=("at",), name="sla_span_by_time"),)

    def __str__(self) -> str:
        return f"{self.agreement_id} {self.target} {self.at:%Y-%m-%d %H:%M}"
