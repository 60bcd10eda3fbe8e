"""Workers that are not there: what health, console and API say of them, and since when."""

from __future__ import annotations

from datetime import timedelta

import pytest
from lxml import html

from messaging.engine import leases
from messaging.engine.leases import WorkerLock
from messaging.models import Worker
from messaging.overview.selectors import health, overview
from rmhub import clock
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.scenes import browser

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def looked_up(one_worker: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "presences", leases.presences)
    monkeypatch.setattr(health, "_broker_answers", lambda: True)
    health.forget()


def there(seconds_ago: float = 0.0) -> Worker:
    """A worker that was last heard of so long ago."""
    worker = WorkerLock()
    worker.hold()
    Worker.objects.filter(pk=worker.number).update(
        renewed_at=clock.now() - timedelta(seconds=seconds_ago), name=f"machine:{worker.number}", node="elsewhere"
    )
    return Worker.objects.get(pk=worker.number)


def part() -> health.Part:
    (found,) = [part for part in health.health().parts if part.name == "workers"]
    return found


def test_without_any_worker_the_hub_is_degraded_and_takes_documents_all_the_same() -> None:
    with clock.frozen(clock.now()) as time:
        first = clock.now()
        health.health()
        time.move(300)
        found = health.health()
        said = overview.status(clock.now())
    assert found.ready and not found.ok and found.nobody_works
    assert (part().state, part().since) == ("down", first)
    assert part().detail == "No worker runs: nothing is sent or delivered until one is started (manage.py up)."
    assert (said.level, said.sentence) == ("bad", part().detail)


def test_x25_the_only_worker_that_is_not_heard_of_is_missed_since_it_was_last_heard_of() -> None:
    worker = there(90)
    assert (part().state, part().since) == ("down", worker.renewed_at)
    assert part().detail.startswith("The only worker last reported 1 m 3")
    assert overview.status(clock.now()).level == "bad"
    Worker.objects.update(renewed_at=clock.now())  # it goes on
    assert (part().state, part().since, health.health().ok) == ("ok", None, True)


def test_x25_of_several_workers_the_one_that_is_missing_is_named_to_those_who_may_know() -> None:
    there()
    there(30)
    lost = there(60)
    assert (part().state, part().since) == ("degraded", lost.renewed_at)
    assert part().detail == (
        "2 of 3 workers were last heard of 1 m ago: stopped, or cut off from the database. The others work."
    )
    health_page = Api(None).get("/health")
    assert health_page.status == 200 and health_page.json["status"] == "degraded"
    assert "machine:" not in str(health_page.json), "names of machines are not for strangers"
    viewer = Api(make_token(make_user(Role.VIEWER)))
    named = viewer.get("/status").json["workers"]
    assert [one["lost_since"] is None for one in named] == [False, False, True]
    assert named[0]["name"] == lost.name
    page = html.fromstring(browser().get("/").content)
    rows = page.xpath("//*[@data-testid='lost-worker']")
    assert [lost.name in row.text_content() for row in rows] == [True, False]
    assert "2 of 3 workers" in page.xpath("//*[@data-testid='verdict']")[0].text_content()
    (said,) = page.xpath("//*[@data-testid='hub-health']")
    assert "2 of 3 missing" in said.text_content()
    assert "keep up" not in said.text_content()
