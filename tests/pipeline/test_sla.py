"""The report on SLA attainment: what it counts from the facts is what the hub counted live."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from messaging import dispatch
from messaging.deliveries.services import pulling
from messaging.messages.services import cancelling
from messaging.overview.services import traffic_hours
from messaging.protocol.envelope import MessageType
from messaging.report_choices import PipelineJob
from messaging.reports.catalogue import REPORTS
from messaging.sla import selectors as sla
from messaging.sla.services import counting
from partners import registry, selectors, services
from partners.models import Agreement, AgreementVersion
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.stage import PERSON, arrive, make_trigger
from tests.messaging.factories import ACTION, SERVICE, PartnerSide, link, partner_side, submit, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = datetime(2026, 3, 31, 22, 1, tzinfo=UTC)
COUNTS = ("due", "met", "missed", "open", "allowed")


def deliver(partner: PartnerSide, time: FrozenClock, seconds: float) -> None:
    with link() as wire:
        submit(partner)
        work()
        time.move(seconds)
        partner.send(partner.acknowledgement(wire.of(MessageType.NORMAL)[-1]))


def fill(time: FrozenClock) -> None:
    """Documents of two agreements around the end of a month: met, late, cancelled, never answered, open; and a target
    that changes.
    """
    sending = partner_side(acknowledged_within=900, acknowledged_percent=95, timeout=7200)
    both = partner_side(acknowledged_within=60, processed_within=600, processed_percent=99.5, timeout=7200)
    second = make_trigger(kind="pull", party_id=both.terms.partner_id)
    third = make_trigger(kind="pull", party_id=both.terms.partner_id)
    # Waits for the other document of its conversation, and nobody counts that.
    kinds = [{"service": SERVICE, "action": ACTION}, {"service": SERVICE, "action": "other"}]
    make_trigger(kind="pull", party_id=both.terms.partner_id, join_type="all", documents=kinds)
    for seconds in (1, 2, 900, 901, 3000):
        deliver(sending, time, seconds)
    for seconds in (1, 59.5, 61):
        deliver(both, time, seconds)
    cancelled = [submit(both), submit(both)]
    cancelling.message_cancel(message_id=cancelled[0].pk, actor=PERSON, reason="sent by mistake")
    time.move(120)
    cancelling.message_cancel(message_id=cancelled[1].pk, actor=PERSON, reason="nobody waits for it")
    arrive(both, "both in time", "one late", "one never")
    take(second.pk, 3)
    take(third.pk, 1)
    time.move(700)
    take(third.pk, 1)
    draft = services.version_new(agreement=Agreement.objects.get(pk=sending.terms.agreement_id))
    services.version_edit(version=draft, acknowledged_percent=90, acknowledged_within=1800)
    services.version_activate(version=AgreementVersion.objects.get(pk=draft.pk))
    registry.reset()
    deliver(sending, time, 1)
    time.move((datetime(2026, 4, 1, 0, 10, tzinfo=UTC) - clock.now()).total_seconds())
    deliver(sending, time, 1000)
    submit(sending)
    submit(both)
    time.move(240)
    arrive(both, "just now")


def take(trigger: Any, documents: int) -> None:
    for _ in range(documents):
        for one in pulling.lease(trigger, limit=1, consumer="erp"):
            pulling.complete(one.delivery.pk, one.claim)


def live() -> dict[tuple[str, str, str], dict[str, Any]]:
    rows = [row for one in selectors.agreements() for row in sla.history(one, clock.now())]
    return {
        (row.agreement.tpa_id, str(row.target), f"{row.month:%Y-%m}"): {
            **{name: getattr(row, name) for name in COUNTS},
            **{name: _rounded(getattr(row, name)) for name in ("percent", "attained", "used")},
        }
        for row in rows
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


@pytest.mark.spark
@pytest.mark.django_db(transaction=True)
def test_the_report_and_the_live_numbers_agree(
    spark: SparkSession, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from messaging.pipeline import driver
    from messaging.pipeline.extract import extract
    from messaging.pipeline.jobs import sla as job

    settings.RMHUB_LAKE_DIR = tmp_path / "lake"
    monkeypatch.setattr(dispatch, "wake", lambda task: None)
    with clock.frozen(BEGIN) as time:
        registry.reset()
        traffic_hours.count_due()
        fill(time)
        traffic_hours.count_due()
        extract(lambda step, done, total: None)
        inputs, facts = driver.lake_inputs(spark, job.INPUTS)
        parameters = {"from": None, "to": None, "as_of": clock.now(), "price_gb_month": None}
        result = job.run(inputs, parameters)["months"]
        assert result.columns == job.OUTPUTS["months"].names
        assert [field.dataType for field in result.schema] == [field.dataType for field in job.OUTPUTS["months"]]
        found = {
            (row["agreement"], row["target"], f"{row['month']:%Y-%m}"): {
                **{name: row[name] for name in COUNTS},
                **{name: _rounded(row[name]) for name in ("percent", "attained", "used")},
            }
            for row in result.toArrow().to_pylist()
        }
        assert found == live()
        totals = {name: sum(row[name] for row in found.values()) for name in COUNTS}
    assert len(found) == 6 and all(totals[name] for name in ("due", "met", "missed", "open")), found
    assert facts["as_of"]


def test_the_job_judges_as_the_hub_does() -> None:
    pytest.importorskip("pyspark")
    from messaging.pipeline.jobs import sla as job

    assert timedelta(seconds=job.SPAN) == counting.SPAN
    assert set(job.OUTPUTS) == {table.name for table in REPORTS[PipelineJob.SLA].tables}
