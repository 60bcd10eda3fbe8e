"""What the demo sets up: a trigger that can be set up again, and brokers that no two demos share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from messaging.choices import ServiceKind, SlaTarget
from messaging.demo import seeding, stage
from messaging.demo.databases import broker_databases
from messaging.models import Trigger
from messaging.sla import selectors as sla
from partners.choices import DOCUMENT_PROFILES
from partners.secrets import decrypt
from rmhub.local_secrets import local_secrets


@pytest.mark.django_db
def test_the_demos_trigger_follows_the_application_to_its_new_address() -> None:
    first = seeding.trigger("http://127.0.0.1:9001", kind="http", resolver=True)
    second = seeding.trigger("http://127.0.0.1:9002", kind="http", resolver=False)
    trigger = Trigger.objects.get()
    assert (trigger.url, trigger.monitor_url) == ("http://127.0.0.1:9002/documents", "http://127.0.0.1:9002/health")
    assert (trigger.resolver, trigger.resolver_url) == ("none", "")
    assert first != second == decrypt(bytes(trigger.secret_encrypted))
    seeding.trigger("http://127.0.0.1:9003", kind="pull", resolver=True)
    trigger.refresh_from_db()
    assert (trigger.kind, trigger.url) == (ServiceKind.PULL, "")
    assert trigger.resolver_url == "http://127.0.0.1:9003/resolve"


@pytest.mark.django_db
@pytest.mark.parametrize("profile", DOCUMENT_PROFILES)
def test_the_demos_agreements_have_targets_that_can_be_measured(profile: str) -> None:
    sides = (seeding.BUYER, seeding.SELLER)
    seeding.seed(
        seeding.Plan(*sides, "http://127.0.0.1:9001", "a" * 9, "b" * 9, profiles=(profile,), targets=seeding.TARGETS)
    )
    found = [sla.targets(version) for version in sla.in_force()]
    assert found == 4 * [{SlaTarget.ACKNOWLEDGED: (60, 99.0), SlaTarget.PROCESSED: (60, 99.0)}]


def test_demos_that_run_at_the_same_time_use_different_databases_of_a_broker() -> None:
    server = "redis://broker.example/0"
    with broker_databases(server) as first:
        with broker_databases(server) as second, broker_databases("redis://other.example/0") as elsewhere:
            assert first[1] == first[0] + 1
            assert not set(first) & set(second)
            assert elsewhere == first
        with broker_databases(server) as third:
            assert third == second
        with broker_databases(server, 4) as four:
            assert len(set(four) - set(first)) == 4
    assert 0 not in first, "the first is the one that an installation uses"


def test_the_buyers_hub_of_an_installation_shares_its_folders_and_keys_and_the_sellers_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setenv("RMHUB_STORE_DIR", "/srv/store")
    settings.VAR_DIR = tmp_path
    keys = local_secrets(tmp_path)
    monkeypatch.setattr(stage.embedded, "create_database", lambda url, name: f"{url}/{name}")
    monkeypatch.setattr(stage.embedded, "database_url", lambda url, name: f"{url}/{name}")
    seeded = '{"token": "t", "users": {}, "trigger_secret": "", "application_token": ""}'
    monkeypatch.setattr(stage, "each", lambda hubs, *ignored: [seeded] * len(hubs))
    made = stage.set_up(
        database_url="postgresql://127.0.0.1",
        redis_url="redis://127.0.0.1/0",
        var=tmp_path,
        link=stage.Link(),
        parameters=stage.Parameters(),
        ports=(9001, 9002),
        databases=stage.DATABASES,
        redis_numbers=stage.BROKER,
        folders=stage.installation_folders(),
        pipeline=True,
    )
    buyer, seller = made.buyer.environment(), made.seller.environment()
    assert {name: buyer[name] for name in stage.OWN_FOLDERS} == stage.installation_folders()
    assert {seller[name] for name in stage.OWN_FOLDERS} == {""}, "its own, below its own folder"
    assert local_secrets(made.buyer.var) == keys, "what one encrypted, `manage.py send` beside it reads"
    assert local_secrets(made.seller.var) != keys
    names = [process.name for process in made.processes()]
    assert "a-pipeline" in names and "b-pipeline" not in names
