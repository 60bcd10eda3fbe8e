"""What a request costs does not grow with the ids that are remembered: index probes, and only of days that count."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta

import pytest
from django.db import connection

from messaging.engine import forgetting
from messaging.models import RememberedRequest
from messaging.profiles.repeatable import remembering
from messaging.profiles.repeatable.remembering import Key
from partners.choices import ExchangeMode
from tests.messaging.profiles.repeatable.callers import Caller, T, application, brief, caller, new_id, remembering_since
from tests.plans import Plans

pytestmark = pytest.mark.django_db

ROWS = 20_000
DAYS = [T.date() - timedelta(days=age) for age in range(3)]
BIG = r"messaging_rememberedrequest\w*"


@pytest.fixture
def partner(now) -> Caller:
    """A partner in whose name ids of three days are remembered, with memory for two."""
    remembering_since(T.replace(month=1))
    partner = caller(memory_window=2 * 86_400, exchange_mode=ExchangeMode.SYNCHRONOUS)
    forgetting.ensure_days(forgetting.REQUESTS, DAYS)
    with connection.cursor() as cursor:
        for day in DAYS:
            cursor.execute(
                "INSERT INTO messaging_rememberedrequest"
                " (sender_id, request_id, day, first_sent, content, state, client_id, delivery_id)"
                " SELECT %s, gen_random_uuid()::text, %s, %s, decode(repeat('ab', 32), 'hex'), 'accepted',"
                " CASE WHEN n %% 100 = 0 THEN 'till ' || n ELSE '' END, gen_random_uuid()"
                " FROM generate_series(1, %s) AS n",
                [partner.terms.partner_id, day, T, ROWS],
            )
        cursor.execute("ANALYZE messaging_rememberedrequest")
    return partner


PLANS = Plans([BIG])


def scans(run: Callable[[], object]) -> list[str]:
    """What is wrong with the plans of all statements that `run` sends, each with its statement."""
    return PLANS.faults(run)


def undecided(day: date) -> None:
    with connection.cursor() as cursor:
        cursor.execute(forgetting.UNDECIDED.format(f"{forgetting.REQUESTS}_{day:%Y%m%d}"))


ROOMS = ("messaging/profiles/repeatable",)
# Where the plans of other statements are shown.
ELSEWHERE = {
    "SELECT i.scope_id, i.message_id, i.stored_id": "engine/test_plans.py",
    "SELECT * FROM messaging_pair WHERE id = ANY(%s) ORDER BY id FOR UPDATE SKIP LOCKED": "engine/test_plans.py",
}


def test_what_runs_for_each_request_scans_no_table(partner: Caller) -> None:
    known = RememberedRequest.objects.filter(day=DAYS[1]).first()
    assert known is not None
    PLANS.forget()
    with application():
        paths: dict[str, Callable[[], object]] = {
            "a new request": lambda: partner.post("order-1"),
            "its repeat": lambda: partner.post("order-1"),
            "other content": lambda: partner.post("order-1", body=b"<Other/>"),
            "an id of yesterday": lambda: partner.post(known.request_id),
            "clean-up of one": lambda: partner.delete("$RepeatableRequestWithRequestID/order-1"),
            "clean-up of a client": lambda: partner.delete("$RepeatableRequestsWithClientID/till%20500"),
            "whether a day may go": lambda: undecided(DAYS[0]),
        }
        found = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert found == {}
    assert "\n".join(PLANS.missing(*ROOMS, elsewhere=ELSEWHERE)) == ""


@pytest.mark.parametrize("size", [1, 64])
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_a_look_up_probes_one_index_of_each_day_that_counts(partner: Caller, mode: str, size: int) -> None:
    """Also as a prepared statement, whose plan knows neither the ids nor the days."""
    keys = [Key(partner.terms.partner_id, new_id()) for _ in range(size)]
    statement = remembering.RECALL.replace("%s::uuid[]", "$1").replace("%s::text[]", "$2").replace("%s", "$3")
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL plan_cache_mode = {mode}")
        cursor.execute(f"PREPARE look_up(uuid[], text[], date) AS {statement}")
        cursor.execute(
            "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) EXECUTE look_up(%s::uuid[], %s::text[], %s::date)".replace(
                "%s", "{}"
            ).format(
                "'{" + ",".join(str(key.sender_id) for key in keys) + "}'",
                "'{" + ",".join(key.request_id for key in keys) + "}'",
                f"'{DAYS[1]}'",
            )
        )
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("DEALLOCATE look_up")
    assert not re.search(rf"Seq Scan on {BIG}", plan), plan
    for day in DAYS[:2]:
        assert re.search(rf"Index Scan using messaging_rememberedrequest_{day:%Y%m%d}_pkey", plan), plan
    assert f"messaging_rememberedrequest_{DAYS[2]:%Y%m%d}" not in plan, "a day that does not count is not touched"
    read = [int(hits) for hits in re.findall(r"shared hit=(\d+)", plan.partition("Planning:")[0])]
    assert max(read) < 20 * size, plan


def test_an_id_of_any_remembered_day_is_found(partner: Caller) -> None:
    """Whatever day a copy claims to be from."""
    for day in DAYS:
        known = RememberedRequest.objects.filter(day=day).first()
        assert known is not None
        key = Key(known.sender_id, known.request_id)
        assert remembering.recall([key], date.min)[key].day == day
        assert brief(partner.post(known.request_id, T)) == (
            400,
            "rejected",
            "content-differs" if known.first_sent == T else "first-sent-differs",
        )
