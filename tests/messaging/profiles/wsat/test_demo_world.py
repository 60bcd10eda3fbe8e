"""The large demo world has transactions of every kind that an operator meets."""

from __future__ import annotations

from pathlib import Path

import pytest

from messaging.models import Coordination, Incident, Message
from messaging.transactions.selectors import coordinations
from messaging.transactions.selectors.diagnosis import Situation, diagnose
from rmhub import clock
from rmhub.ids import read_public_id
from tests.worlds.ux import certificates, directory, transactions
from tests.worlds.ux.plan import TROUBLES, Plan

pytestmark = pytest.mark.django_db


def test_each_transaction_is_as_it_says(tmp_path: Path) -> None:
    now = clock.now()
    plan = Plan(now=now, folder=tmp_path, partners=len(TROUBLES) + 3, pairs=2 * (len(TROUBLES) + 4))
    certificates.write(tmp_path, now, now)
    lanes = directory.make(plan)
    directory.write_pairs(lanes)
    facts = transactions.happen(plan, lanes)["transactions"]
    assert isinstance(facts, dict)

    def situation(name: str) -> Situation:
        one = coordinations.coordination(read_public_id("txn", facts[name]))
        takers = coordinations.taking_part(one)
        return diagnose(one, takers, now, pending=coordinations.pending(one.pk)).situation

    assert {name: situation(name) for name in facts} == {
        "committed": Situation.COMMITTED,
        "aborted": Situation.ABORTED,
        "contradiction": Situation.CONTRADICTION,
        "silent": Situation.SILENT,
    }
    assert set(Incident.objects.values_list("cause", flat=True)) == {"heuristic_outcome", "transaction_peer_silent"}
    assert not Message.objects.filter(due_at__lt=now).exists(), "nothing was left undone"
    assert Coordination.objects.filter(created_at__lt=now).count() == len(facts)
