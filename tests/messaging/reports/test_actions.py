"""What a person makes of a report: incidents of findings, a draft of advised times."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from messaging.causes import CAUSES
from messaging.causes.reports import CAUSE_OF_KIND, CAUSE_OF_VERDICT
from messaging.exceptions import InvalidSubmission, NotFound, WrongState
from messaging.journal import incidents
from messaging.journal.audit import Actor
from messaging.models import (
    AuditEntry,
    AuditFinding,
    Event,
    Incident,
    PartnerLog,
    PipelineRun,
    PublishedReport,
    ReconciliationFinding,
    TimingAdvice,
)
from messaging.report_choices import NOTICES, AuditKind, PipelineJob, RunState, Verdict
from messaging.reports.services import actions as report_actions
from messaging.reports.services import partner_logs
from partners.models import AgreementVersion
from rmhub import clock
from tests.messaging.factories import PartnerSide, link, partner_side, submit, work

pytestmark = pytest.mark.django_db
ANA = Actor("ana", "console")
WHY = "the partner was asked"


@pytest.fixture
def partner() -> PartnerSide:
    side = partner_side()
    side.outbound  # noqa: B018  (makes the pair)
    return side


def log_of(partner: PartnerSide) -> PartnerLog:
    return partner_logs.log_receive(
        party_id=partner.terms.partner_id, chunks=[b"message_id,direction\n"], filename="march.csv", actor=ANA
    ).log


def published(job: PipelineJob, scope: str = "") -> PipelineRun:
    """A run whose results are shown."""
    now = clock.now()
    run = PipelineRun.objects.create(
        job=job, scope=scope, state=RunState.SUCCEEDED, requested_by="ana", interface="console", created_at=now, rows=0
    )
    PublishedReport.objects.update_or_create(job=job, scope=scope, defaults={"run": run, "published_at": now})
    return run


def differing(run: PipelineRun, pair: Any, verdict: str, *ids: str, direction: str = "out") -> None:
    ReconciliationFinding.objects.bulk_create(
        ReconciliationFinding(
            run=run,
            direction=direction,
            verdict=verdict,
            message_id=one,
            pair_id=pair.pk if pair else None,
            pair=pair.code if pair else "",
        )
        for one in ids
    )


def test_every_verdict_and_every_broken_promise_has_a_cause() -> None:
    kinds = {cause for kind, cause in CAUSE_OF_KIND.items() if kind not in NOTICES}
    assert set(CAUSE_OF_VERDICT.values()) | kinds <= set(CAUSES)
    assert set(CAUSE_OF_VERDICT) == set(Verdict.values) - {Verdict.AGREED}
    assert set(report_actions.AUDIT_KINDS) == set(AuditKind.values) - set(NOTICES)


def test_findings_become_one_incident_for_each_pair_and_verdict(partner: PartnerSide) -> None:
    other = partner_side()
    log = log_of(partner)
    run = published(PipelineJob.RECONCILE, log.public_id)
    with link():
        message = submit(partner)
        work()
    message.refresh_from_db()
    differing(run, partner.outbound, Verdict.LOST, message.message_id, *(f"lost-{n}" for n in range(30)))
    differing(run, other.outbound, Verdict.LOST, "elsewhere")
    differing(run, partner.outbound, Verdict.DIFFERS, "changed")
    opened = report_actions.log_incidents(log_id=log.pk, actor=ANA, reason=WHY)
    assert opened.known == 0
    assert {(one.pair, one.cause) for one in opened.incidents} == {
        (partner.outbound, "reconciliation_lost"),
        (other.outbound, "reconciliation_lost"),
        (partner.outbound, "reconciliation_differs"),
    }
    lost = Incident.objects.get(pair=partner.outbound, cause="reconciliation_lost")
    assert lost.message_id == message.pk
    assert lost.detail.startswith(f"31 found: {message.message_id}, lost-0, ")
    assert " and 11 more." in lost.detail and "lost-19" not in lost.detail
    assert f"/reports/reconcile/?scope={log.public_id}&table=findings&verdict=lost&run={run.public_id}" in lost.detail
    assert Event.objects.filter(type="incident.opened").count() == 3
    entry = AuditEntry.objects.get(verb="report.open_incidents")
    assert (entry.actor, entry.reason, entry.object_id) == ("ana", WHY, log.public_id)
    assert sorted(entry.after["incidents"]) == sorted(str(one) for one in opened.incidents)


def test_a_second_click_opens_nothing_new_and_a_second_run_counts_once_more(partner: PartnerSide) -> None:
    log = log_of(partner)
    run = published(PipelineJob.RECONCILE, log.public_id)
    differing(run, partner.outbound, Verdict.LOST, "a")
    first = report_actions.log_incidents(log_id=log.pk, actor=ANA, reason=WHY).incidents
    again = report_actions.log_incidents(log_id=log.pk, actor=ANA, reason=WHY)
    assert (again.incidents, again.known) == (first, 1)
    assert Incident.objects.get().occurrences == 1
    later = published(PipelineJob.RECONCILE, log.public_id)
    differing(later, partner.outbound, Verdict.LOST, "a", "b")
    report_actions.log_incidents(log_id=log.pk, actor=ANA, reason=WHY)
    incident = Incident.objects.get()
    assert incident.occurrences == 2 and incident.detail.startswith("2 found: a, b.")


def test_only_the_chosen_verdicts(partner: PartnerSide) -> None:
    log = log_of(partner)
    run = published(PipelineJob.RECONCILE, log.public_id)
    differing(run, partner.outbound, Verdict.LOST, "a")
    differing(run, partner.outbound, Verdict.DOUBLED, "b")
    opened = report_actions.log_incidents(log_id=log.pk, actor=ANA, reason=WHY, verdicts=["doubled"])
    assert [one.cause for one in opened.incidents] == ["reconciliation_doubled"]
    with pytest.raises(InvalidSubmission, match="'agreed' is not one of"):
        report_actions.log_incidents(log_id=log.pk, actor=ANA, reason=WHY, verdicts=["agreed"])


def test_what_only_the_partner_knows_is_put_on_their_only_pair(partner: PartnerSide) -> None:
    log = log_of(partner)
    run = published(PipelineJob.RECONCILE, log.public_id)
    inbound = partner.inbound
    differing(run, None, Verdict.UNKNOWN_HERE, "ghost", direction="in")
    (incident,) = report_actions.log_incidents(log_id=log.pk, actor=ANA, reason=WHY).incidents
    assert (incident.pair, incident.cause) == (inbound, "reconciliation_unknown_here")
    assert "march.csv" in incident.detail


def test_what_cannot_be_done_says_why(partner: PartnerSide) -> None:
    log = log_of(partner)
    with pytest.raises(NotFound):
        report_actions.log_incidents(log_id=uuid.uuid4(), actor=ANA, reason=WHY)
    with pytest.raises(WrongState, match="no result yet"):
        report_actions.log_incidents(log_id=log.pk, actor=ANA, reason=WHY)
    run = published(PipelineJob.RECONCILE, log.public_id)
    with pytest.raises(InvalidSubmission, match="nothing among the findings"):
        report_actions.log_incidents(log_id=log.pk, actor=ANA, reason=WHY)
    differing(run, partner.outbound, Verdict.LOST, "a")
    with pytest.raises(InvalidSubmission, match="Say why"):
        report_actions.log_incidents(log_id=log.pk, actor=ANA, reason=" ")
    newer = published(PipelineJob.RECONCILE, log.public_id)
    with pytest.raises(WrongState, match=f"{newer.public_id} has published newer results"):
        report_actions.log_incidents(log_id=log.pk, actor=ANA, reason=WHY, run=run.pk)
    assert not Incident.objects.exists()


def test_the_audits_broken_promises_become_incidents_and_its_notices_do_not(partner: PartnerSide) -> None:
    run = published(PipelineJob.AUDIT)
    pair = partner.outbound
    shared = {"run": run, "pair_id": pair.pk, "pair": pair.code, "partner": "x"}
    AuditFinding.objects.create(**shared, kind="gap", violation=True, count=3, message_ids=["a", "b"], detail="4 to 6")
    AuditFinding.objects.create(**shared, kind="gap", violation=True, count=2, message_ids=["b", "c"])
    AuditFinding.objects.create(**shared, kind="reset", violation=False, count=1)
    AuditFinding.objects.create(run=run, kind="duplicate_id", violation=True, count=1, message_ids=["d"])
    opened = report_actions.audit_incidents(actor=ANA, reason=WHY, run=run.pk)
    found = {one.cause: one for one in opened.incidents}
    assert set(found) == {"audit_gap", "audit_duplicate_id"}
    assert found["audit_gap"].detail.startswith("5 found: a, b, c and 2 more. 4 to 6.")
    assert (found["audit_gap"].pair, found["audit_duplicate_id"].pair) == (pair, None)


def test_only_people_close_them(partner: PartnerSide) -> None:
    """What happens on the pair disproves no finding."""
    log = log_of(partner)
    differing(published(PipelineJob.RECONCILE, log.public_id), partner.outbound, Verdict.LOST, "a")
    (incident,) = report_actions.log_incidents(log_id=log.pk, actor=ANA, reason=WHY).incidents
    assert (
        incidents.incidents_resolve_for_pair(pair=partner.outbound, now=clock.now(), by="system", resolution="ok") == []
    )
    incident.refresh_from_db()
    assert incident.state == "open"
    incidents.incident_resolve(incident_id=incident.pk, actor=ANA, reason="found it")
    incident.refresh_from_db()
    assert incident.state == "resolved"


# ---- timing ----


def advised(partner: PartnerSide, **times: int) -> PipelineRun:
    run = published(PipelineJob.TIMING)
    given = {"timeout": 20, "retries": 4, "retry_interval": 60, **times}
    for option in ("in_force", "proposed"):
        TimingAdvice.objects.create(
            run=run,
            agreement_id=partner.terms.agreement_id,
            agreement=partner.terms.tpa_id,
            partner="x",
            option=option,
            messages=9,
            attempts=9,
            needless=0,
            given_up=0,
            gives_up_after=1,
            **given,
        )
    return run


def test_one_click_makes_a_draft_of_the_advised_times(partner: PartnerSide) -> None:
    run = advised(partner)
    before = AgreementVersion.objects.get()
    draft = report_actions.timing_draft(agreement_id=partner.terms.agreement_id, actor=ANA, reason="go", run=run.pk)
    assert (draft.number, draft.state) == (2, "draft")
    assert (draft.timeout, draft.retries, draft.retry_interval) == (20, 4, 60)
    assert draft.note.startswith(f"Timing advice of {run.public_id}: Timeout ") and " to 20 s" in draft.note
    assert (draft.memory_window, draft.semantics) == (before.memory_window, before.semantics)
    before.refresh_from_db()
    assert before.state == "active"
    verbs = AuditEntry.objects.filter(actor="ana").order_by("id").values_list("verb", "reason")
    assert list(verbs) == [("agreement.new_version", "go"), ("agreement.edit", "go")]


def test_a_draft_that_is_there_is_not_touched(partner: PartnerSide) -> None:
    advised(partner)
    report_actions.timing_draft(agreement_id=partner.terms.agreement_id, actor=ANA)
    with pytest.raises(WrongState, match=r"Version 2 of .* is a draft already: .* Timeout 20 s, Retries 4"):
        report_actions.timing_draft(agreement_id=partner.terms.agreement_id, actor=ANA)
    assert AgreementVersion.objects.count() == 2


def test_no_draft_without_an_advice_that_changes_something(partner: PartnerSide) -> None:
    with pytest.raises(WrongState, match="no result yet"):
        report_actions.timing_draft(agreement_id=partner.terms.agreement_id, actor=ANA)
    version = AgreementVersion.objects.get()
    run = advised(partner, timeout=version.timeout, retries=version.retries, retry_interval=version.retry_interval)
    with pytest.raises(WrongState, match="nothing to change"):
        report_actions.timing_draft(agreement_id=partner.terms.agreement_id, actor=ANA)
    TimingAdvice.objects.filter(option="proposed").delete()
    with pytest.raises(WrongState, match="proposes nothing"):
        report_actions.timing_draft(agreement_id=partner.terms.agreement_id, actor=ANA)
    with pytest.raises(NotFound):
        report_actions.timing_draft(agreement_id=uuid.uuid4(), actor=ANA)
    advised(partner)
    with pytest.raises(WrongState, match="newer results"):
        report_actions.timing_draft(agreement_id=partner.terms.agreement_id, actor=ANA, run=run.pk)
    assert AgreementVersion.objects.count() == 1


def test_no_half_a_draft(partner: PartnerSide) -> None:
    """Times that the agreement cannot have leave no draft behind."""
    from partners.exceptions import InvalidInput

    advised(partner, retries=5)
    TimingAdvice.objects.update(retries=2_000_000_000)
    with pytest.raises(InvalidInput):
        report_actions.timing_draft(agreement_id=partner.terms.agreement_id, actor=ANA)
    assert AgreementVersion.objects.count() == 1
