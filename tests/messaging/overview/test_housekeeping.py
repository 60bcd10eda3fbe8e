"""What runs now and then."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from messaging.choices import Direction
from messaging.engine import pairs
from messaging.models import Pair, Rejection
from messaging.overview.services import housekeeping
from tests.partners.factories import make_agreement, make_endpoint

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 1, tzinfo=UTC)


def refuse(count: int) -> list[Rejection]:
    return [Rejection.objects.create(at=AT, reason="test", detail=str(n), http_status=400) for n in range(count)]


def test_only_the_newest_rejections_are_kept() -> None:
    made = refuse(10)
    assert housekeeping.drop_old_rejections(keep=4) == 6
    assert set(Rejection.objects.values_list("id", flat=True)) == {rejection.pk for rejection in made[6:]}
    assert housekeeping.drop_old_rejections(keep=4) == 0


@pytest.mark.parametrize("count", [0, 3])
def test_fewer_are_all_kept(count: int) -> None:
    refuse(count)
    assert housekeeping.drop_old_rejections(keep=3) == 0
    assert Rejection.objects.count() == count


def test_both_pairs_of_an_agreement_are_there_before_its_first_message() -> None:
    version = make_agreement(own_uri="HTTPS://Us.example/MSH", partner_uri="https://them.example/msh")
    assert housekeeping.run().startswith("pairs made 2, disabled or enabled 0, rejections dropped 0, days forgotten 0")
    assert set(Pair.objects.values_list("direction", "sender_uri", "receiver_uri", "partner")) == {
        (Direction.OUT, "https://us.example/MSH", "https://them.example/msh", version.agreement.partner_id),
        (Direction.IN, "https://them.example/msh", "https://us.example/MSH", version.agreement.partner_id),
    }
    pairs.reset()
    assert housekeeping.run().startswith("pairs made 0, disabled or enabled 0, rejections dropped 0, days forgotten 0")


def test_pairs_of_the_same_parties_have_names_of_their_own() -> None:
    first = make_agreement().agreement
    for _ in range(2):
        make_agreement(own_endpoint=make_endpoint(first.own_party), partner_endpoint=make_endpoint(first.partner))
    housekeeping.run()
    codes = list(Pair.objects.filter(direction=Direction.OUT).values_list("code", flat=True))
    base = min(codes, key=len)
    assert sorted(codes) == sorted([base, f"{base}-2", f"{base}-3"])
