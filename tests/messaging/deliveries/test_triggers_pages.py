"""Triggers: the list, the page that says why one is suspended, the form, the verbs and the secret."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from lxml import html

from messaging import applications, causes
from messaging.deliveries.pages.triggers import TriggerForm
from messaging.deliveries.resource import TRIGGERS
from messaging.deliveries.services import triggering
from messaging.deliveries.services.trigger_rules import SETTINGS
from messaging.models import AuditEntry, Delivery, Trigger
from partners.fields import read_duration
from partners.secrets import decrypt
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import ANA, browser, documents, doubtful, failed, stop, trigger_for
from tests.messaging.factories import PartnerSide, partner_side

pytestmark = pytest.mark.django_db
HTTP: dict[str, Any] = {"kind": "http", "url": "http://erp.internal:8080/documents"}


@pytest.fixture
def partner(time: FrozenClock) -> PartnerSide:
    return partner_side()


def _page(client: Client, url: str) -> html.HtmlElement:
    return html.fromstring(client.get(url).content)


def _words(client: Client, url: str) -> str:
    return " ".join(_page(client, url).get_element_by_id("main").text_content().split())


def _url(trigger: Trigger, *more: str) -> str:
    return "/".join(["/triggers", trigger.public_id, *more, ""])


def _filled(page: html.HtmlElement) -> dict[str, str]:
    """What a browser would post from the trigger's form as it is shown."""
    form = page.xpath("//form[contains(@class, 'trigger-form')]")[0]
    return {name: value for name, value in form.form_values() if name != "csrfmiddlewaretoken"}


def _create(client: Client, **changes: str) -> Any:
    given = _filled(_page(client, "/triggers/new/")) | {"name": "ERP orders", "reason": "go-live", **HTTP, **changes}
    return client.post("/triggers/new/", given)


# --- the list and the page ---


def test_the_list_begins_with_what_is_suspended_and_counts_what_waits(partner: PartnerSide) -> None:
    flowing = trigger_for(partner, "Archive")
    stopped = stop(trigger_for(partner, "ERP orders", **HTTP))
    documents(partner, "a@x", "b@x")
    rows = _page(browser(), "/triggers/").xpath("//tr[@data-testid='trigger-row']")
    assert [row.get("data-state") for row in rows] == ["suspended", "active"]
    words = " ".join(rows[0].text_content().split())
    assert "ERP orders" in words and "Application not reached" in words
    assert rows[0].xpath(".//td[@data-label='Waiting']")[0].text == "2"
    assert _page(browser(), "/triggers/?state=active").xpath("//tr[@data-testid='trigger-row']//a/text()") == [
        flowing.name
    ]
    assert stopped.name not in _words(browser(), "/triggers/?q=archiv")
    assert "No trigger matches" in _words(browser(), "/triggers/?q=nothing")


def _listed(client: Client, query: str) -> list[str]:
    page = _page(client, f"/triggers/{query}")
    return page.xpath("//tr[@data-testid='trigger-row']//a[contains(@id, 'trigger-')]/text()")


def test_the_list_is_narrowed_to_a_partner_and_sorts(partner: PartnerSide, time: FrozenClock) -> None:
    party, other = partner.outbound.partner, partner_side().outbound.partner
    client = browser()
    for name, given in (("mine", {"party_id": party.pk}), ("theirs", {"party_id": other.pk}), ("all", {})):
        trigger_for(partner, name, **({"party_id": None} | given))
    by_agreement = trigger_for(partner, "agreed", agreement_id=partner.terms.agreement_id)
    Trigger.objects.filter(name="mine").update(last_success_at=clock.now())
    assert _listed(client, f"?partner={party.public_id}") == [by_agreement.name, "all", "mine"]
    assert "No partner is called Nobody" in _words(client, "/triggers/?partner=Nobody")
    assert _listed(client, "?sort=-name") == ["theirs", "mine", "all", "agreed"]
    assert _listed(client, "?sort=-last_success")[0] == "mine"
    heads = _page(client, "/triggers/?sort=-name").xpath("//th[@aria-sort]")
    assert [(head.text_content().strip(), head.get("aria-sort")) for head in heads] == [("Trigger", "descending")]
    assert heads[0].xpath(".//a/@href") == ["?sort=name"]


def test_a_suspended_trigger_says_why_what_waits_and_when_its_monitor_is_asked(
    partner: PartnerSide, time: FrozenClock
) -> None:
    trigger = trigger_for(
        partner, "ERP orders", **HTTP, monitor="http", monitor_url="http://erp/up", monitor_interval=90
    )
    documents(partner, "a@x")
    stop(trigger, detail="Connection refused by 10.0.0.7 <b>")
    time.move(30)
    page = _page(browser(Role.OPERATOR), _url(trigger))
    card = page.xpath("//*[@data-testid='diagnosis']")[0]
    words = " ".join(card.text_content().split())
    assert "Suspended for 30 s." in words
    assert "The application's service could not be reached" in words
    assert "Connection refused by 10.0.0.7 <b>" in words
    assert "1 document waits; those that come now wait behind them" in words
    assert "monitor is asked in 1 m" in words
    assert "INC-1" in words
    assert page.get_element_by_id("verb-resume").get("href") == _url(trigger, "actions", "resume")


def test_what_is_newer_than_a_suspension_decides_what_is_said(partner: PartnerSide, time: FrozenClock) -> None:
    trigger = stop(trigger_for(partner, "ERP orders", **HTTP))
    operator = browser(Role.OPERATOR)
    time.move(60)
    assert "See whether the application is up" in _words(operator, _url(trigger))
    triggering.trigger_update(trigger_id=trigger.pk, actor=ANA, reason="moved", url="http://erp.internal:9090/")
    time.move(20)
    words = _words(operator, _url(trigger))
    assert "Its settings were changed 20 s ago, and nothing was handed over since." in words
    assert "It was suspended for “Application not reached”." in words and "Resume it to see whether" in words
    assert "See whether the application is up" not in words
    Trigger.objects.filter(pk=trigger.pk).update(last_success_at=clock.now())
    time.move(5)
    words = _words(operator, _url(trigger))
    assert "A document was processed 5 s ago." in words and "could not be reached" not in words
    assert words.count("Resume it.") == 1


@pytest.mark.parametrize("cause", ["suspended_by_user", "service_error"])
def test_what_only_a_person_can_end_is_not_ended_by_a_success(
    partner: PartnerSide, time: FrozenClock, cause: str
) -> None:
    trigger = stop(trigger_for(partner, "ERP orders", **HTTP), cause=cause)
    time.move(60)
    Trigger.objects.filter(pk=trigger.pk).update(last_success_at=clock.now())
    words = _words(browser(), _url(trigger))
    assert causes.lookup(cause).sentence in words and "A document was processed" not in words


def test_what_nobody_takes_up_is_said_to_be_late(partner: PartnerSide, time: FrozenClock) -> None:
    trigger = trigger_for(partner, "ERP orders", **HTTP)
    documents(partner, "a@x")
    time.move(60)
    words = _words(browser(), _url(trigger))
    assert "The oldest has waited for 1 m." in words and "worker" not in words
    time.move(60)
    words = _words(browser(), _url(trigger))
    assert "It was due 2 m ago, and no worker has taken it up." in words
    assert "Check that workers and beat run" in words
    Trigger.objects.filter(pk=trigger.pk).update(failing_since=clock.now())
    time.move(30)
    words = _words(browser(), _url(trigger))
    assert "Handing over failed 30 s ago, and has not succeeded since." in words and "no worker" not in words


def test_a_monitor_that_nobody_asks_is_said_to_be_late(partner: PartnerSide, time: FrozenClock) -> None:
    trigger = trigger_for(
        partner, "ERP orders", **HTTP, monitor="http", monitor_url="http://erp/up", monitor_interval=90
    )
    stop(trigger)
    time.move(90 + 120)
    words = _words(browser(), _url(trigger))
    assert "This was due 2 m ago: the hub's workers are not doing their work." in words
    assert "is asked again" not in words


def test_a_viewer_sees_why_and_cannot_resume(partner: PartnerSide) -> None:
    trigger = stop(trigger_for(partner, "ERP orders", **HTTP))
    page = _page(browser(Role.VIEWER), _url(trigger))
    assert page.get_element_by_id("verb-resume").get("aria-disabled") == "true"
    assert "Needs the role operator." in page.get_element_by_id("why-resume").text_content()
    operator = _page(browser(Role.OPERATOR), _url(trigger))
    assert operator.get_element_by_id("verb-disable").get("aria-disabled") == "true"


def test_what_needs_somebody_is_on_the_trigger_s_page(partner: PartnerSide) -> None:
    trigger = trigger_for(partner, "Warehouse", ordered=False)
    doubtful(trigger, partner, "a@x", "b@x")
    failed(trigger, partner, "c@x")
    page = _page(browser(), _url(trigger))
    needs = " ".join(page.xpath("//section[@aria-labelledby='needs-you']")[0].text_content().split())
    assert "2 in doubt: Begun, never finished" in needs
    assert "1 failed" in needs
    assert page.xpath("//*[@data-testid='failed']/a/text()") == ["1"]


def test_the_properties_are_written_out(partner: PartnerSide) -> None:
    trigger = trigger_for(
        partner,
        "ERP orders",
        **HTTP,
        resolver="http",
        resolver_url="http://erp/known",
        max_retries=3,
        retry_interval=60,
        when_exhausted="fail",
        silent_after=86_400,
    )
    words = _words(browser(), _url(trigger))
    assert "Keeps a document history for 30 d" in words
    assert "Asks its resolver http://erp/known" in words
    assert "tried 3 more times, every 1 m; then the document fails." in words
    assert "Without a document for 1 d it is an incident." in words


# --- the verbs ---


def test_every_verb_of_the_service_has_a_dialog() -> None:
    assert {verb.slug: verb.service for verb in TRIGGERS.verbs} == triggering.VERBS


def test_resuming_says_what_happens_and_keeps_the_reason(partner: PartnerSide) -> None:
    trigger = trigger_for(partner, "ERP orders", **HTTP)
    documents(partner, "a@x", "b@x")
    stop(trigger)
    client = browser(Role.OPERATOR, "olga")
    words = _words(client, _url(trigger, "actions", "resume"))
    assert "What waits is handed over at once: 2 documents, pair by pair in their order." in words
    version = Trigger.objects.get(pk=trigger.pk).version
    answer = client.post(_url(trigger, "actions", "resume"), {"version": version, "reason": "it is up again"})
    assert (answer.status_code, answer["Location"]) == (303, _url(trigger))
    assert Trigger.objects.get(pk=trigger.pk).state == "active"
    entry = AuditEntry.objects.get(verb="trigger.resume")
    assert (entry.actor, entry.reason, entry.interface) == ("olga", "it is up again", "console")


def test_a_dialog_that_was_open_too_long_says_so(partner: PartnerSide) -> None:
    trigger = stop(trigger_for(partner, "ERP orders", **HTTP))
    triggering.trigger_resume(trigger_id=trigger.pk, actor=ANA, reason="I was first")
    client = browser()
    answer = client.post(_url(trigger, "actions", "resume"), {"version": trigger.version, "reason": "me too"})
    assert answer.status_code == 409
    assert "changed since you looked" in answer.content.decode()
    assert client.post(_url(trigger, "actions", "resume"), {"reason": "me too"}).status_code == 422
    assert client.post(_url(trigger, "actions", "suspend"), {"version": 3, "reason": " "}).status_code == 422
    assert client.get(_url(trigger, "actions", "delete")).status_code == 404


def test_one_that_trouble_suspended_can_be_held(partner: PartnerSide) -> None:
    trigger = stop(trigger_for(partner, "ERP orders", **HTTP))
    assert "Hold ERP orders" in _words(browser(), _url(trigger, "actions", "suspend"))


# --- the form ---


def test_the_form_has_every_setting_once() -> None:
    shown = [name for group in TriggerForm.groups for name in group.fields]
    assert sorted(shown) == sorted(SETTINGS) == sorted(set(TriggerForm().fields) - {"reason"})


def test_a_trigger_is_made_and_its_secret_is_shown_once(partner: PartnerSide) -> None:
    client = browser(Role.ADMIN, "adam")
    given = _filled(_page(client, "/triggers/new/")) | {
        "name": "ERP orders",
        "reason": "go-live",
        **HTTP,
        "party_id": f"par_{partner.terms.partner_id.hex}",
        "documents": "urn:orders | NewOrder\n\n urn:orders|* \n",
        "timeout": "1 m 30 s",
        "history_ttl": "7 d",
        "retry_statuses": "503, 429",
    }
    answer = client.post("/triggers/new/", given)
    assert "no-store" in answer["Cache-Control"]
    secret = html.fromstring(answer.content).get_element_by_id("secret").text
    made = Trigger.objects.get()
    assert decrypt(bytes(made.secret_encrypted)) == secret
    assert (made.name, made.url, made.party_id) == ("ERP orders", HTTP["url"], partner.terms.partner_id)
    assert made.documents == [
        {"service": "urn:orders", "action": "NewOrder"},
        {"service": "urn:orders", "action": "*"},
    ]
    assert (made.timeout, made.history_ttl, made.retry_statuses) == (90, 7 * 86_400, [429, 503])
    assert (made.detect_duplicates, made.use_history, made.ordered, made.answers) == (True, True, True, False)
    assert secret not in client.get(_url(made)).content.decode()
    # The browser's reload sends the form again.
    assert client.post("/triggers/new/", given).status_code == 303
    assert Trigger.objects.count() == 1


def test_one_that_speaks_no_http_shows_no_secret(partner: PartnerSide) -> None:
    answer = _create(browser(), kind="pull")
    made = Trigger.objects.get()
    assert (answer.status_code, answer["Location"]) == (303, _url(made))
    assert (made.kind, made.url) == ("pull", ""), "a URL that is not shown is left out"


def test_what_is_wrong_stands_beside_its_field_and_nothing_that_was_typed_is_lost(partner: PartnerSide) -> None:
    answer = _create(
        browser(), url="ftp://erp/", timeout="soon", documents="urn:orders", max_retries="-3", concurrency="99"
    )
    assert answer.status_code == 422
    page = html.fromstring(answer.content)
    wrong = {
        element.get("id").removeprefix("field-").removesuffix("_error"): " ".join(element.text_content().split())
        for element in page.xpath("//p[contains(@class, 'field-error')]")
    }
    assert set(wrong) == {"timeout", "documents", "max_retries"}, "what cannot be read comes first"
    assert "write it like 30 s" in wrong["timeout"]
    assert "Line 1" in wrong["documents"]
    assert "field-timeout_error" in page.get_element_by_id("field-timeout").get("aria-describedby").split()
    assert page.get_element_by_id("field-timeout").get("aria-invalid") == "true"
    linked = page.get_element_by_id("form-errors").xpath(".//a/@href")
    assert sorted(linked) == ["#field-documents", "#field-max_retries", "#field-timeout"]
    assert page.get_element_by_id("field-url").get("value") == "ftp://erp/"
    assert page.get_element_by_id("field-name").get("value") == "ERP orders"
    again = _create(browser(), url="ftp://erp/", concurrency="99")
    wrong_ids = html.fromstring(again.content).xpath("//p[contains(@class, 'field-error')]/@id")
    assert wrong_ids == ["field-concurrency_error"]
    assert not Trigger.objects.exists()


def test_an_error_in_a_folded_group_opens_it(partner: PartnerSide) -> None:
    answer = _create(browser(), monitor="http", monitor_url="nowhere")
    page = html.fromstring(answer.content)
    group = page.get_element_by_id("field-monitor_url").xpath("ancestor::details")[0]
    assert "open" in group.attrib
    closed = page.get_element_by_id("field-silent_after").xpath("ancestor::details")[0]
    assert "open" not in closed.attrib


def test_w34_the_form_offers_no_suspension_on_error_without_order(partner: PartnerSide) -> None:
    client = browser()
    given = _filled(_page(client, "/triggers/new/")) | {"name": "x", "reason": "go-live", "kind": "pull"}
    del given["ordered"]
    assert client.post("/triggers/new/", {**given, "suspend_on_error": "on"}).status_code == 303
    assert Trigger.objects.get().suspend_on_error is False


def test_changing_one_keeps_what_was_not_touched(partner: PartnerSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(applications.SERVICES, "orders.import", lambda document: None)
    trigger = trigger_for(
        partner,
        "ERP orders",
        kind="callable",
        callable_name="orders.import",
        documents=[{"service": "urn:orders", "action": "*"}],
        agreement_id=partner.terms.agreement_id,
        history_ttl=7_500,
        retry_interval=0,
        join_type="any",
        silent_after=3_600,
    )
    before = triggering.described(trigger)
    client = browser()
    given = _filled(_page(client, _url(trigger, "edit")))
    assert given["history_ttl"] == "2 h 5 m"
    answer = client.post(_url(trigger, "edit"), {**given, "max_retries": "9", "reason": "tries longer"})
    assert (answer.status_code, answer["Location"]) == (303, _url(trigger))
    assert triggering.described(Trigger.objects.get()) == {**before, "max_retries": 9}
    assert AuditEntry.objects.get(verb="trigger.update").after == {"max_retries": 9}


def test_a_callable_that_is_gone_is_not_taken_away_unawares(
    partner: PartnerSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(applications.SERVICES, "orders.import", lambda document: None)
        trigger = trigger_for(partner, "ERP orders", kind="callable", callable_name="orders.import")
    client = browser()
    given = _filled(_page(client, _url(trigger, "edit")))
    assert given["callable_name"] == "orders.import"
    answer = client.post(_url(trigger, "edit"), {**given, "name": "ERP", "reason": "shorter"})
    assert answer.status_code == 422
    assert "field-callable_name_error" in answer.content.decode()


def test_a_form_that_somebody_overtook_is_shown_again_with_what_was_typed(partner: PartnerSide) -> None:
    trigger = trigger_for(partner, "ERP orders", **HTTP)
    client = browser()
    given = _filled(_page(client, _url(trigger, "edit")))
    triggering.trigger_update(trigger_id=trigger.pk, max_retries=2, actor=ANA, reason="I was first")
    answer = client.post(_url(trigger, "edit"), {**given, "name": "Mine", "reason": "me too"})
    assert answer.status_code == 409
    page = html.fromstring(answer.content)
    assert page.get_element_by_id("field-name").get("value") == "Mine"
    assert page.xpath("//input[@name='version']/@value") == ["2"]
    assert Trigger.objects.get().name == "ERP orders"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("30", 30),
        ("30 s", 30),
        ("5m", 300),
        ("2 h 30 m", 9_000),
        ("1 day, 1 hour", 90_000),
        ("90 min", 5_400),
    ],
)
def test_times_are_read_as_people_write_them(text: str, seconds: int) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5 s", "1.5 h", "5 weeks", "1 h x", "９ s"])
def test_other_times_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="30 s"):
        read_duration(text)


def test_a_form_of_nonsense_is_refused_and_never_an_error_of_ours(partner: PartnerSide) -> None:
    client = browser()
    trigger = trigger_for(partner, "ERP orders", **HTTP)
    for nonsense in ("\x00", "x" * 5_000, "99999999999", "par_zz", "<script>"):
        given = dict.fromkeys(SETTINGS, nonsense) | {"version": "1", "reason": "nonsense"}
        assert client.post(_url(trigger, "edit"), given).status_code == 422
    form = TriggerForm(QueryDict(""))
    assert not form.is_valid()
    assert "timeout" not in form.settings, "no kind, so that it is not shown"
    assert "history_ttl" in form.errors


# --- the secret ---


def test_a_new_secret_is_shown_once_and_an_old_one_never(partner: PartnerSide) -> None:
    trigger, first = triggering.trigger_create(name="ERP", actor=ANA, reason="go-live", **HTTP)
    client = browser()
    page = _page(client, _url(trigger, "secret"))
    assert first not in html.tostring(page).decode()
    once = page.xpath("//input[@name='once']/@value")[0]
    assert client.post(_url(trigger, "secret"), {"once": once, "reason": ""}).status_code == 422
    once = _page(client, _url(trigger, "secret")).xpath("//input[@name='once']/@value")[0]
    answer = client.post(_url(trigger, "secret"), {"once": once, "reason": "it was in a mail"})
    secret = html.fromstring(answer.content).get_element_by_id("secret").text
    assert secret not in (None, first)
    assert client.post(_url(trigger, "secret"), {"once": once, "reason": "again"}).status_code == 303
    assert decrypt(bytes(Trigger.objects.get().secret_encrypted)) == secret
    for url in (_url(trigger), _url(trigger, "edit"), "/audit/", "/triggers/"):
        assert not re.search(r"whsec_", client.get(url).content.decode())


# --- what failed ---


def test_what_failed_is_resubmitted_by_a_job(partner: PartnerSide) -> None:
    trigger = trigger_for(partner, "Warehouse", ordered=False)
    for name in ("a@x", "b@x"):
        failed(trigger, partner, name)
    client = browser(Role.OPERATOR)
    words = _words(client, _url(trigger, "failed"))
    assert "2 new deliveries are made for Warehouse" in words
    given = {"expected": "2", "confirm": "2", "reason": "articles are there now"}
    assert client.post(_url(trigger, "failed"), {**given, "confirm": "3"}).status_code == 422
    answer = client.post(_url(trigger, "failed"), given)
    assert answer.status_code == 303
    assert answer["Location"].startswith("/jobs/job_")
    assert Delivery.objects.filter(state="failed").count() == 2, "a worker does it"
