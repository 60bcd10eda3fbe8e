"""Triggers, documents in doubt and jobs as people meet them in a browser."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from messaging.bulk.services import jobs
from messaging.deliveries.services import settling, triggering
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, BulkJob, Delivery, Trigger
from rmhub import clock
from rmhub.roles import Role
from tests.browser.conftest import Open
from tests.messaging.console.scenes import documents, doubtful, stop, trigger_for
from tests.messaging.factories import partner_side

ANA = Actor("ana", "console")
HTTP = {"kind": "http", "url": "http://erp.internal:8080/documents"}


def _stopped() -> Trigger:
    partner = partner_side()
    trigger = trigger_for(partner, "ERP orders", **HTTP)
    documents(partner, "a@x", "b@x")
    return stop(trigger)


def _in_doubt(count: int) -> tuple[Trigger, list[Delivery]]:
    partner = partner_side()
    trigger = trigger_for(partner, "Warehouse", ordered=False, concurrency=64)
    with clock.frozen(clock.now()):
        return trigger, doubtful(trigger, partner, *(f"W-{number}@x" for number in range(count)))


def _group(trigger: Trigger) -> str:
    return f"/in-doubt/{trigger.public_id}/started_not_completed/"


def _shown(page: Page) -> list[str]:
    """Names of the form's fields that can be seen."""
    return page.eval_on_selector_all(
        ".trigger-form [name]:not([type=hidden])",
        "all => [...new Set(all.filter(one => one.offsetParent).map(one => one.name))]",
    )


def test_a_suspended_trigger_is_found_and_resumed_in_three_clicks(open_console: Open) -> None:
    trigger = _stopped()
    page = open_console("/", role=Role.OPERATOR)
    page.click(f"#needs-{trigger.public_id}")
    expect(page.locator("[data-testid=diagnosis]")).to_contain_text("The application's service could not be reached")
    page.click("[data-testid=verb-resume]")
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("What waits is handed over at once: 2 documents")
    expect(dialog.locator("#field-reason")).to_be_focused()
    dialog.locator("#field-reason").fill("it is up again")
    page.click("[data-testid=verb-do]")
    expect(page.locator(".alert-success")).to_contain_text("ERP orders is resumed.")
    assert Trigger.objects.get(pk=trigger.pk).state == "active"


def test_a_trigger_s_page_follows_what_happens(open_console: Open) -> None:
    trigger = trigger_for(partner_side(), "ERP orders", **HTTP)
    page = open_console(f"/triggers/{trigger.public_id}/")
    page.focus("#verb-suspend")
    triggering.trigger_suspend(trigger_id=trigger.pk, actor=ANA, reason="stocktaking")
    page.clock.run_for(3000)
    expect(page.locator("#announce[role=status]")).to_contain_text("Suspended")
    expect(page.locator("#nav-count-side-triggers")).to_contain_text("1")
    expect(page.locator("#verb-resume")).to_be_visible()


def test_the_form_shows_only_what_the_chosen_kind_uses(open_console: Open) -> None:
    page = open_console("/triggers/new/")
    assert {"url", "retry_statuses", "timeout", "answers"} <= set(_shown(page))
    assert not {"callable_name", "lease_seconds", "resolver_url"} & set(_shown(page))
    page.check("[name=kind][value=pull]")
    assert "lease_seconds" in _shown(page)
    assert not {"url", "callable_name", "timeout", "answers", "max_retries"} & set(_shown(page))
    page.check("[name=kind][value=callable]")
    assert {"callable_name", "timeout"} <= set(_shown(page))
    page.check("[name=resolver][value=http]")
    assert "resolver_url" in _shown(page)
    assert "suspend_on_error" in _shown(page)
    page.uncheck("[name=ordered]")
    assert "suspend_on_error" not in _shown(page)


def test_a_trigger_is_made_corrected_and_its_secret_copied(open_console: Open) -> None:
    page = open_console("/triggers/")
    page.click("[data-testid=trigger-new]")
    page.fill("#field-name", "ERP orders")
    page.fill("#field-url", "erp.internal/documents")
    page.fill("#field-reason", "go-live")
    page.click("[data-testid=trigger-save]")
    expect(page.locator("#form-errors")).to_be_focused()
    expect(page.locator("#field-url_error")).to_contain_text("http://")
    page.click("#form-errors a")
    expect(page.locator("#field-url")).to_be_focused()
    page.fill("#field-url", "http://erp.internal:8080/documents")
    page.click("[data-testid=trigger-save]")
    expect(page.locator("[data-testid=secret]")).to_contain_text("whsec_")
    page.click("a:text-is('Done')")
    expect(page.locator("h1")).to_have_text("ERP orders")
    expect(page.locator("#main")).not_to_contain_text("whsec_")


def test_a_group_is_settled_by_a_job_whose_page_follows_it(open_console: Open) -> None:
    trigger, _ = _in_doubt(3)
    page = open_console("/in-doubt/", role=Role.OPERATOR)
    page.click("[data-testid=doubt-group] a.big-number")
    page.click("[data-testid=choice-duplicate]")
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("All 3 documents are taken as processed")
    dialog.locator("#field-reason").fill("all are in the ERP")
    dialog.locator("#field-confirm").fill("3")
    page.click("[data-testid=plan-do]")
    expect(page.locator("#diagnosis")).to_contain_text("0 of 3")
    jobs.run_due()
    page.clock.run_for(3000)
    expect(page.locator("#diagnosis")).to_contain_text("3 of 3")
    expect(page.locator("[data-testid=job]")).to_have_attribute("data-state", "finished")
    expect(page.locator("#nav-count-side-in_doubt")).to_be_hidden()
    assert BulkJob.objects.get().done == 3
    page.goto(_group(trigger))
    expect(page.locator("#diagnosis")).to_contain_text("This group is empty now")


def test_a_job_is_cancelled_in_a_dialog(open_console: Open) -> None:
    trigger, _ = _in_doubt(2)
    job = jobs.job_create(
        action="settle_deliveries",
        parameters={"decision": "resubmit"},
        filter={"trigger": trigger.public_id, "doubt": "started_not_completed"},
        actor=ANA,
        reason="wrong ones",
    )
    page = open_console(f"/jobs/{job.public_id}/")
    page.click("[data-testid=job-cancel]")
    page.fill("dialog[open] #field-reason", "wrong group")
    page.click("[data-testid=cancel-do]")
    expect(page.locator("[data-testid=job]")).to_have_attribute("data-state", "cancelled")
    jobs.run_due()
    assert Delivery.objects.filter(state="in_doubt").count() == 2


def test_one_document_is_decided_with_the_keyboard_alone(open_console: Open) -> None:
    _, (delivery,) = _in_doubt(1)
    page = open_console("/")
    page.keyboard.press("/")
    page.keyboard.type(delivery.public_id)
    page.keyboard.press("Enter")
    expect(page.locator("[data-testid=ladder] li")).to_have_count(4)
    page.focus("#choice-resubmit")
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open] #field-reason")).to_be_focused()
    page.keyboard.type("not in the warehouse")
    page.keyboard.press("Enter")
    expect(page.locator(".alert-success")).to_be_visible()
    expect(page.locator("[data-testid=delivery-state]")).to_have_attribute("data-state", "waiting")
    assert AuditEntry.objects.get(verb="delivery.resubmit").reason == "not in the warehouse"


def test_without_javascript_a_document_is_settled_all_the_same(open_console: Open) -> None:
    trigger, (delivery,) = _in_doubt(1)
    page = open_console(_group(trigger), javascript=False, role=Role.OPERATOR)
    page.click(f"#open-{delivery.public_id}")
    page.click("[data-testid=choice-later]")
    page.select_option("#field-remind_in", "14400")
    page.fill("#field-reason", "the warehouse is asked")
    page.click("[data-testid=settle-do]")
    expect(page.locator(".alert-success")).to_contain_text("put off")
    assert Delivery.objects.get(pk=delivery.pk).remind_at is not None
    page.click("[data-testid=choice-duplicate]")
    page.fill("#field-reason", "it is there")
    page.click("[data-testid=settle-do]")
    expect(page.locator("[data-testid=delivery-state]")).to_have_attribute("data-state", "settled")
    assert Delivery.objects.get(pk=delivery.pk).decision == settling.Decision.DUPLICATE


def test_the_pages_reflow_at_four_hundred_percent(open_console: Open) -> None:
    """WCAG 1.4.10: 1280 pixels at 400 % are 320."""
    trigger, (delivery,) = _in_doubt(1)
    page = open_console("/", viewport={"width": 320, "height": 256})
    for path in (
        "/",
        "/in-doubt/",
        _group(trigger),
        f"/triggers/{trigger.public_id}/",
        "/triggers/new/",
        f"/deliveries/{delivery.public_id}/",
        f"/deliveries/{delivery.public_id}/settle/resubmit/",
    ):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path


def test_without_javascript_a_trigger_is_changed(open_console: Open) -> None:
    trigger = trigger_for(partner_side(), "ERP orders", **HTTP)
    page = open_console(f"/triggers/{trigger.public_id}/", javascript=False)
    page.click("[data-testid=trigger-edit]")
    page.fill("#field-retry_interval", "1 m 30 s")
    page.fill("#field-reason", "their server needs longer")
    page.click("[data-testid=trigger-save]")
    expect(page.locator(".alert-success")).to_contain_text("ERP orders is changed.")
    assert Trigger.objects.get(pk=trigger.pk).retry_interval == 90
