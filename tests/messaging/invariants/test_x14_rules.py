"""Each invariant's query is silent about a store of everything that can happen, and finds what is planted in it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from messaging.invariants import RULES, Rule, check, look
from messaging.management.commands import check_invariants
from messaging.models import Pair
from rmhub import clock
from rmhub.hubs import BASE, free_ports
from tests.messaging.factories import partner_side
from tests.messaging.invariants.planted import PLANTED, fill
from tests.servers import database_url


@pytest.fixture
def world(db: None) -> Iterator[None]:
    with clock.frozen(datetime(2026, 3, 10, 7, 12, 30, 123_456, tzinfo=UTC)) as time:
        fill(time)
        yield


def _found() -> dict[str, int]:
    with connection.cursor() as cursor:
        return {rule.id: count for rule in RULES if (count := look(cursor, rule).count)}


def _missed(rule: Rule, statements: tuple[str, ...]) -> str:
    """What was planted and not found, or a statement that changed nothing; "" when all is well."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        idle = ""
        for statement in statements:
            cursor.execute(statement)
            idle = idle or ("" if cursor.rowcount else statement)
        found = look(cursor, rule).count
        transaction.set_rollback(True)
    return idle or ("" if found else statements[-1])


def test_x14_nothing_is_found_in_a_whole_store_and_each_rule_finds_what_is_planted(world: None) -> None:
    assert _found() == {}
    missed = [
        f"{rule.id}: {missed}"
        for rule in RULES
        for statements in PLANTED[rule.id]
        if (missed := _missed(rule, statements))
    ]
    assert missed == []


def test_x14_every_rule_is_tried() -> None:
    assert list(PLANTED) == [rule.id for rule in RULES]
    assert all(rule.title and rule.source for rule in RULES)
    documented = (Path(settings.BASE_DIR) / "docs" / "invariants.md").read_text()
    rows = [f"| `{rule.id}` | {rule.title} | {rule.source} |" for rule in RULES]
    assert [row for row in rows if row not in documented] == []


def _checked(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("check_invariants", *arguments, stdout=out)
    except SystemExit as ended:
        return int(str(ended.code)), out.getvalue()
    return 0, out.getvalue()


@pytest.mark.django_db(transaction=True)
def test_x14_the_command_tells_each_violation_and_ends_with_1() -> None:
    partner = partner_side()
    assert partner.send(partner.message(1)) == 204
    assert _checked() == (0, "".join(f"ok    {rule.id}\n" for rule in RULES) + f"{len(RULES)} rules, 0 violations\n")
    pair = Pair.objects.get(direction="in")
    Pair.objects.update(last_sequence=7, next_position=1)
    status, told = _checked("--rule", "last-number-in", "--json")
    assert status == 1
    (rule,) = json.loads(told)["rules"]
    assert (rule["id"], rule["violations"], rule["rows"][0]["pair_id"]) == ("last-number-in", 1, str(pair.pk))
    status, told = _checked("--shown", "1")
    assert status == 1
    assert "FAIL  last-number-in: An ebXML pair expects what follows" in told
    assert f"pair_id={pair.pk} last_sequence=7" in told
    assert told.endswith(f"{len(RULES)} rules, 2 violations\n")


def test_x14_a_rule_that_does_not_exist_ends_with_2() -> None:
    with pytest.raises(CommandError, match="no rule no-such-rule") as refused:
        call_command("check_invariants", "--rule", "no-such-rule")
    assert refused.value.returncode == 2


@pytest.mark.django_db(transaction=True)
def test_x14_all_rules_look_at_the_same_moment() -> None:
    partner = partner_side()
    assert partner.send(partner.message(1)) == 204
    rules = [rule for rule in RULES if rule.id in ("numbers-in", "last-number-in")]
    with closing(psycopg.connect(database_url(), autocommit=True)) as reader:
        findings = check(reader, rules)
        assert next(findings).count == 0
        Pair.objects.update(last_sequence=7)  # committed between the two, by another connection
        assert [found.count for found in findings] == [0]
        assert [found.count for found in check(reader, rules)] == [0, 1]


def test_x14_without_a_database_it_says_so_in_a_line_and_ends_with_2(tmp_path: Path) -> None:
    away = {"DATABASE_URL": f"postgresql://hub@127.0.0.1:{free_ports(1)[0]}/hub", "REDIS_URL": "redis://127.0.0.1:1/0"}
    argv = [sys.executable, str(BASE / "manage.py"), "check_invariants"]
    environment = {**os.environ, **away, "RMHUB_VAR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "rmhub.settings"}
    ended = subprocess.run(argv, env=environment, cwd=BASE, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("CommandError: The database cannot be read, so nothing is proven: ")


@pytest.mark.django_db(transaction=True)
def test_x14_a_database_that_goes_away_meanwhile_ends_it_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Rule("gone", "", "", "SELECT pg_terminate_backend(pg_backend_pid()) AS gone")
    monkeypatch.setattr(check_invariants, "RULES", (RULES[0], gone))
    out = io.StringIO()
    with pytest.raises(CommandError, match="The database cannot be read, so nothing is proven") as refused:
        call_command("check_invariants", stdout=out)
    assert refused.value.returncode == 2
    assert out.getvalue() == f"ok    {RULES[0].id}\n"
