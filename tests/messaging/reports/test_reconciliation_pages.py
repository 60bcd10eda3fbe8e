"""The pages of reconciliation: a log handed in, its columns mapped, compared, and what becomes of findings."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from messaging.models import AuditEntry, Incident, PartnerLog, PipelineRun, ReconciliationSummary
from messaging.report_choices import PipelineJob, Verdict
from messaging.reports.services import partner_logs
from partners.models import Agreement, AgreementVersion
from rmhub.roles import Role
from tests.messaging.console.scenes import browser, partner_log
from tests.messaging.factories import PartnerSide, partner_side
from tests.messaging.reports.test_actions import advised, differing, published

pytestmark = pytest.mark.django_db
THEIRS = b"MsgId;Way;LoggedAt\r\n=1+1;RX;2026-01-31T12:00:00Z\r\n<b>m-2</b>;TX;2026-01-31T12:00:01Z\r\n"
NAMED = {"column_message_id": "MsgId", "column_direction": "Way", "column_at": "LoggedAt"}


@pytest.fixture
def partner(db: None) -> PartnerSide:
    side = partner_side()
    assert side.outbound
    return side


@pytest.fixture
def client(db: None) -> Client:
    return browser(Role.OPERATOR, "olga")


def hand_in(client: Client, partner: PartnerSide, content: bytes = THEIRS, **fields: str) -> Any:
    file = SimpleUploadedFile("january.csv", content, "text/csv")
    given = {"party": str(partner.terms.partner_id), "file": file, **fields}
    return client.post(reverse("console:partner-log-new"), given)


def text(answer: Any) -> str:
    return " ".join(answer.content.decode().split())


def test_a_log_is_handed_in_mapped_and_compared(client: Client, partner: PartnerSide) -> None:
    answer = hand_in(client, partner, reason="January")
    log = PartnerLog.objects.get()
    address = reverse("console:partner-log", args=[log.public_id])
    assert (answer.status_code, answer["Location"]) == (303, address)
    assert (log.uploaded_by, log.source, log.columns) == ("olga", "console", {})
    page = text(client.get(address))
    assert "Map its columns below" in page
    # What stands in the form is a guess by the names, with the first rows beside it; nothing of a log is markup.
    assert 'data-testid="proposed"' in page
    assert '<option value="MsgId" selected>' in page and '<option value="LoggedAt">' in page
    assert "=1+1" in page and "&lt;b&gt;m-2&lt;/b&gt;" in page and "<b>m-2" not in page

    compare = reverse("console:partner-log-reconcile", args=[log.public_id])
    refused = client.post(compare, {**NAMED, "column_at": "nowhere"})
    assert refused.status_code == 422 and "at: the log has no column nowhere" in text(refused)
    assert '<option value="Way" selected>' in text(refused)
    assert not PipelineRun.objects.exists()

    done = client.post(compare, {**NAMED, "column_sent_values": "TX, out", "column_received_values": "RX"})
    assert (done.status_code, done["Location"]) == (303, address)
    run = PipelineRun.objects.get()
    log.refresh_from_db()
    assert log.columns == {
        "message_id": "MsgId",
        "direction": "Way",
        "at": "LoggedAt",
        "sent_values": ["TX", "out"],
        "received_values": ["RX"],
    }
    assert (run.job, run.scope, run.parameters["skip_unreadable"]) == ("reconcile", log.public_id, False)
    live = client.get(address, headers={"HX-Request": "true", "HX-Target": "live-log"})
    assert "The comparison waits for its turn" in text(live) and "<form" not in text(live)
    assert client.post(compare, NAMED).status_code == 409
    assert AuditEntry.objects.get(verb="partner_log.receive").reason == "January"


def test_days_that_nobody_touched_leave_the_range_to_the_second(client: Client, partner: PartnerSide) -> None:
    from datetime import UTC, datetime

    hand_in(client, partner)
    log = PartnerLog.objects.get()
    log.columns = {"message_id": "MsgId", "direction": "Way", "at": "LoggedAt"}
    log.rows, log.range_from = 2, datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
    log.range_to = datetime(2026, 1, 31, 12, 0, 1, 1, tzinfo=UTC)
    log.save()
    assert 'name="from" value="2026-01-31"' in text(client.get(reverse("console:partner-log", args=[log.public_id])))
    compare = reverse("console:partner-log-reconcile", args=[log.public_id])
    client.post(compare, {**NAMED, "from": "2026-01-31", "to": "2026-01-31"})
    run = PipelineRun.objects.get()
    assert (run.range_from, run.range_to) == (log.range_from, log.range_to)
    run.delete()
    client.post(compare, {**NAMED, "from": "2026-01-30", "to": "2026-01-31"})
    run = PipelineRun.objects.get()
    assert (run.range_from, run.range_to) == (datetime(2026, 1, 30, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))
    assert client.post(compare, {**NAMED, "from": "2026-01-31", "to": "2026-01-30"}).status_code == 422
    assert client.post(compare, {**NAMED, "from": "January"}).status_code == 422


def test_the_same_log_again_leads_to_the_one_that_is_there(client: Client, partner: PartnerSide) -> None:
    first, again = hand_in(client, partner), hand_in(client, partner)
    assert first["Location"] == again["Location"] and PartnerLog.objects.count() == 1
    assert "was uploaded before" in text(client.get(again["Location"]))


@pytest.mark.parametrize(
    ("content", "fields", "says"),
    [
        (b"", {}, "is empty"),
        ("MsgId".encode("utf-16"), {}, "UTF-16"),
        (THEIRS, {"party": ""}, "Choose a partner"),
        (THEIRS, {"party": "x"}, "No partner is called"),
        (THEIRS, {"agreement": "agr_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"}, "There is no agreement"),
        (THEIRS, {"from": "2026-02-01", "to": "2026-01-01"}, "before the first day"),
    ],
)
def test_what_cannot_be_taken_says_why(
    client: Client, partner: PartnerSide, content: bytes, fields: dict[str, str], says: str
) -> None:
    answer = hand_in(client, partner, content, **fields)
    assert answer.status_code == 422 and says in text(answer)
    assert not PartnerLog.objects.exists()


def test_too_large_a_log_is_refused_before_it_is_read(client: Client, partner: PartnerSide, settings: Any) -> None:
    settings.RMHUB_PARTNER_LOG_MAX_BYTES = 1024
    answer = client.post(
        reverse("console:partner-log-new"), {}, headers={"Content-Length": "5000000"}, CONTENT_LENGTH="5000000"
    )
    assert answer.status_code == 413 and "larger than 1,024 bytes" in text(answer)
    small = hand_in(client, partner, THEIRS * 50)
    assert small.status_code == 422 and "larger than 1,024 bytes" in text(small)


def test_who_may_not_hand_in_is_refused_whatever_they_send(partner: PartnerSide) -> None:
    assert hand_in(browser(Role.VIEWER), partner).status_code == 403
    without_token = browser(Role.ADMIN, csrf=True)
    assert hand_in(without_token, partner).status_code == 403
    assert not PartnerLog.objects.exists()


def test_the_list_tells_what_was_found(client: Client, partner: PartnerSide) -> None:
    assert "No log has come yet" in text(client.get("/reconciliation/"))
    log = partner_log(partner)
    run = published(PipelineJob.RECONCILE, log.public_id)
    for verdict, messages in ((Verdict.AGREED, 1234), (Verdict.LOST, 3)):
        ReconciliationSummary.objects.create(run=run, direction="out", verdict=verdict, messages=messages)
    partner_logs.log_ended(log)
    page = text(client.get("/reconciliation/"))
    assert "1,234" in page and '<span class="text-bad">3</span>' in page and "Compared" in page
    page = text(client.get(reverse("console:partner-log", args=[log.public_id])))
    assert "The logs differ on 3 messages" in page
    assert f"/reports/reconcile/?scope={log.public_id}&amp;table=findings&amp;verdict=lost" in page
    partner_logs.log_ended(log, error="1 of 3 rows cannot be read: row 2: it is odd.")
    assert "row 2: it is odd." in text(client.get(reverse("console:partner-log", args=[log.public_id])))


def test_findings_become_incidents(client: Client, partner: PartnerSide) -> None:
    log = partner_log(partner)
    address = reverse("console:partner-log-incidents", args=[log.public_id])
    assert "There is no result yet" in text(client.get(address))
    run = published(PipelineJob.RECONCILE, log.public_id)
    differing(run, partner.outbound, Verdict.LOST, "a")
    differing(run, partner.outbound, Verdict.DOUBLED, "b")
    for verdict in (Verdict.LOST, Verdict.DOUBLED):
        ReconciliationSummary.objects.create(run=run, direction="out", verdict=verdict, messages=1)
    dialog = text(client.get(address))
    assert 'value="lost" checked' in dialog and 'value="doubled" checked' in dialog and 'value="differs"' not in dialog
    assert client.post(address, {"kind": "lost", "run": run.public_id, "reason": ""}).status_code == 422
    assert client.post(address, {"run": run.public_id, "reason": "asked"}).status_code == 422
    done = client.post(address, {"kind": "lost", "run": run.public_id, "reason": "asked"})
    assert (done.status_code, done["Location"]) == (303, "/incidents/")
    incident = Incident.objects.get()
    assert incident.cause == "reconciliation_lost"
    page = text(client.get(reverse("console:incident", args=[str(incident)])))
    assert "Not in the partner&#x27;s log" in page and run.public_id in page
    newer = published(PipelineJob.RECONCILE, log.public_id)
    late = client.post(address, {"kind": "lost", "run": run.public_id, "reason": "asked"})
    assert late.status_code == 409 and newer.public_id in text(late)


def test_an_export_is_asked_for(client: Client, partner: PartnerSide) -> None:
    party = str(partner.terms.partner_id)
    done = client.post("/reconciliation/export/", {"party": party, "from": "2026-01-01", "to": "2026-01-31"})
    run = PipelineRun.objects.get()
    assert (done.status_code, done["Location"]) == (303, f"/pipeline/{run.public_id}/")
    assert (run.job, f"{run.range_to:%Y-%m-%d %H:%M}") == ("export", "2026-02-01 00:00")
    assert client.post("/reconciliation/export/", {"party": party}).status_code == 409
    assert client.post("/reconciliation/export/", {}).status_code == 422


def test_advised_times_become_a_draft(partner: PartnerSide) -> None:
    admin = browser(Role.ADMIN)
    agreement = Agreement.objects.get()
    address = reverse("console:timing-draft", args=[agreement.public_id])
    assert "has not been run yet" in text(admin.get(address))
    run = advised(partner)
    dialog = text(admin.get(f"{address}?run={run.public_id}"))
    assert "20 s" in dialog and 'data-testid="timing-draft-do"' in dialog
    done = admin.post(address, {"run": run.public_id, "reason": ""})
    assert done["Location"] == reverse("console:agreement-version", args=[agreement.public_id, 2])
    assert AgreementVersion.objects.get(number=2).timeout == 20
    assert "Version 2 is a draft already" in text(admin.get(address))
    again = admin.post(address, {"run": run.public_id})
    assert again.status_code == 409 and "a draft already" in text(again)


def test_the_agreement_says_how_columns_are_called(partner: PartnerSide) -> None:
    admin = browser(Role.ADMIN)
    agreement = Agreement.objects.get()
    address = reverse("console:agreement-log-columns", args=[agreement.public_id])
    form = admin.get(address)
    revision = form.context["revision"]
    wrong = admin.post(address, {"column_message_id": "Id", "revision": revision})
    assert wrong.status_code == 422 and "direction: name its column" in text(wrong)
    done = admin.post(address, {"column_message_id": "Id", "column_direction": "Way", "revision": revision})
    assert done.status_code == 303
    agreement.refresh_from_db()
    assert agreement.log_columns == {"message_id": "Id", "direction": "Way"}
    page = text(admin.get(reverse("console:agreement", args=[agreement.public_id])))
    assert '<dt class="mono">message_id</dt><dd class="mono wrap">Id</dd>' in page
    assert admin.post(address, {"revision": revision}).status_code == 409
    log = hand_in(browser(Role.OPERATOR), partner, b"Way,Id\nin,1\n")
    assert 'data-testid="proposed"' not in text(admin.get(log["Location"]))
