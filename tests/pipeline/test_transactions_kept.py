"""Messages of atomic transactions in the archive and in the lake: kept with what they were, and in no report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from messaging.archive.services import message_rows
from messaging.engine import preparing
from messaging.models import Coordination, CoordinationMessage, Enlistment, Message, Payload
from messaging.pipeline.extract import select
from messaging.pipeline.schemas import ENTITIES
from messaging.profiles.wsat import outgoing
from messaging.protocol.atomic.words import Protocol
from partners import registry
from rmhub import clock
from tests.messaging.conftest import static_folder, woken  # noqa: F401
from tests.messaging.factories import link, work
from tests.messaging.profiles.wsat.test_outgoing import Octets
from tests.partners.factories import make_agreement
from tests.pipeline import archives
from tests.pipeline.archives import PURGE, Scene, T


@pytest.fixture
def scene(db: None, settings: Any, tmp_path: Path) -> Iterator[Scene]:
    settings.RMHUB_ARCHIVE_DIR = tmp_path / "archive"
    with clock.frozen(T) as frozen:
        archives.switch_on()
        yield Scene(frozen)


@pytest.fixture
def told(scene: Scene) -> Message:
    """A Committed that was taken, of a transaction that is over."""
    terms = registry.current().version(make_agreement(profile="wsat").pk)
    now = clock.now()
    coordination = Coordination.objects.create(
        identifier="urn:uuid:tx-1", phase="committed", created_at=now, changed_at=now, ended_at=now
    )
    enlistment = Enlistment.objects.create(
        coordination=coordination,
        protocol=Protocol.COMPLETION,
        agreement_version_id=terms.version_id,
        peer_address=f"{terms.partner_uri}/initiator",
        created_at=now,
    )
    message = outgoing.send(
        coordination=coordination,
        enlistment=enlistment,
        terms=terms,
        kind="Committed",
        to=enlistment.peer_address,
        body=Octets(b"<Envelope>Committed</Envelope>"),
        message_id="urn:uuid:committed",
        now=now,
    )
    with link():
        work()
    return Message.objects.get(pk=message.pk)


def facts(message: Message) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT to_jsonb(t)::text FROM messaging_coordinationmessage t WHERE t.message_id = %s", [message.pk]
        )
        (row,) = cursor.fetchall()
    return dict(json.loads(row[0]))


def test_it_goes_to_the_archive_and_comes_back_with_what_it_was(scene: Scene, told: Message) -> None:
    before = archives.rows_of(told), facts(told)
    scene.move(PURGE)

    archives.gone(told)

    assert not CoordinationMessage.objects.exists()
    archives.restore(message=told.pk)
    assert (archives.rows_of(told), facts(told)) == before
    body = preparing.stored_body(Message.objects.get(pk=told.pk), list(Payload.objects.filter(message=told)))
    assert body == b"<Envelope>Committed</Envelope>"


def test_it_comes_back_without_a_transaction_that_is_not_there_any_more(scene: Scene, told: Message) -> None:
    scene.move(PURGE)
    archives.gone(told)
    Coordination.objects.all().delete()

    archives.restore(message=told.pk)

    found = facts(told)
    assert (found["kind"], found["coordination_id"], found["enlistment_id"]) == ("Committed", None, None)


def test_what_belongs_to_an_open_transaction_stays(scene: Scene, told: Message) -> None:
    Coordination.objects.update(ended_at=None, phase="committing")
    scene.move(PURGE + timedelta(days=30))

    archives.archive()

    assert message_rows.proofs([told.pk])
    archives.lake_has_all()
    archives.purge()
    assert Message.objects.filter(pk=told.pk).exists()


def test_no_report_is_about_it(scene: Scene, told: Message) -> None:
    messages = ENTITIES["messages"]
    with connection.cursor() as cursor:
        cursor.execute(select(messages, "true"))
        names = [column.name for column in cursor.description]
        ids = {row[names.index("id")] for row in cursor.fetchall()}

    assert told.pk not in ids and str(told.pk) not in {str(one) for one in ids}
    assert len(ids) == Message.objects.count() - 1
