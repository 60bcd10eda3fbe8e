"""What the demo's chain of hubs is made of, hub by hub, and how it is judged."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict

import pytest
from django.core.management import CommandError, call_command

from messaging.demo.seeding import MOST_HOPS
from messaging.models import Pair, Route
from messaging.routing import selectors as routes
from partners import registry
from partners.models import Credential, Party
from rmhub import clock
from tests.worlds import chain, chain_seeding
from tests.worlds.chain_run import _portions
from tests.worlds.chain_seeding import HopPlan, Neighbour, seed_hop, sides

BEFORE = Neighbour("http://127.0.0.1:9001", "shown-by-the-one-before", "shown-to-the-one-before")
AFTER = Neighbour("http://127.0.0.1:9002", "shown-by-the-one-after", "shown-to-the-one-after")


@pytest.mark.django_db
def test_the_sender_sends_to_the_receiver_through_its_neighbour() -> None:
    seed_hop(HopPlan(0, 3, after=AFTER))
    (terms,) = registry.current().active()
    ends = sides(3)
    assert (terms.tpa_id, terms.own_party_name, terms.partner_name) == (
        chain_seeding.TPA_ID,
        ends[0].name,
        ends[3].name,
    )
    assert terms.hop_party_name == ends[1].name
    assert terms.partner_address == "http://127.0.0.1:9002/ebxml/msh/chain"
    assert not Route.objects.exists()
    assert Pair.objects.count() == 2


@pytest.mark.django_db
def test_a_router_knows_its_neighbours_and_the_way_to_the_receiver() -> None:
    seed_hop(HopPlan(1, 3, "confirm_through", BEFORE, AFTER))
    ends = sides(3)
    route = Route.objects.select_related("onward__partner").get()
    assert (route.party_context, route.party_value) == ends[3].identifier
    assert (route.onward.partner.name, route.mode) == (ends[2].name, "confirm_through")
    assert {warning.code for warning in routes.warnings(route)} <= {"confirm_through_too_slow"}
    assert not Party.objects.filter(name=ends[3].name).exists(), "nobody it has to know"
    shown = Credential.objects.filter(direction="inbound").values_list("party__name", "username")
    assert set(shown) == {(ends[0].name, ends[0].identifier[1]), (ends[2].name, ends[2].identifier[1])}


@pytest.mark.django_db
def test_the_receiver_takes_what_the_last_router_brings() -> None:
    seed_hop(HopPlan(2, 2, before=BEFORE))
    (terms,) = registry.current().active()
    ends = sides(2)
    assert (terms.own_party_name, terms.partner_name, terms.hop_party_name) == tuple(
        ends[place].name for place in (2, 0, 1)
    )
    presented = registry.current().outbound_authorization(terms.hop_party_id, clock.now())
    assert presented.startswith("Basic "), "its acknowledgements need one"


@pytest.mark.django_db
def test_the_command_takes_the_plan_of_one_hub(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = HopPlan(1, 2, before=BEFORE, after=AFTER)
    assert chain.read_plan(json.dumps(asdict(plan))) == plan
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(asdict(plan))))
    call_command("seed_demo", "--json", "--chain")
    assert json.loads(capsys.readouterr().out)["token"].startswith("rmh_")
    assert Route.objects.exists()
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"place": 1}'))
    with pytest.raises(CommandError, match="no plan"):
        call_command("seed_demo", "--chain")


def test_every_hop_has_an_organisation_of_its_own() -> None:
    for hops in range(2, MOST_HOPS + 1):
        chosen = sides(hops)
        assert len(chosen) == hops + 1
        assert len({side.identifier for side in chosen}) == len({side.uri for side in chosen}) == hops + 1


def test_documents_are_handed_over_in_portions() -> None:
    assert _portions(25, 2) == [13, 12]
    assert _portions(3, 1) == [3]
