"""The outbox while everybody is at it: workers, those who store answers, and people, without waiting for each other
in a circle."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from django.db import connections, transaction

from messaging.engine import leases, pairs
from messaging.engine.claiming import claim_due
from messaging.engine.recording import record
from messaging.exceptions import ApplicationError
from messaging.journal.audit import Actor
from messaging.models import Coordination, Incident, Message, Pair
from messaging.models.bulk import update_in_order
from messaging.pairs.services import operating
from messaging.profiles.wsat import outgoing
from messaging.transports import Receipt
from rmhub import clock
from tests.messaging.profiles.wsat.test_outgoing import Scene, begun, enlisted, set_up

pytestmark = pytest.mark.django_db(transaction=True)
ROUNDS = 12
ANN = Actor("ann")
ANSWERS = (
    Receipt(ok=True, status=202),
    Receipt(ok=False, status=403, cause="http_401_403", detail="The partner answered HTTP 403.", permanent=True),
    Receipt(ok=False, cause="connect_refused", detail="Connection refused."),
)


def test_no_circle_of_locks(caplog: pytest.LogCaptureFixture) -> None:
    scene = set_up(retries=0, repeat_interval=1, repeat_interval_max=1)
    others = []
    for _ in range(3):
        coordination = begun(scene.terms)
        others.append(Scene(scene.terms, coordination, enlisted(coordination, scene.terms)))
    *everybody, mute = [scene, *others]
    with transaction.atomic():
        mute.send("Commit")
    pair_id = pairs.outbound_pair_id(scene.terms)
    failed: list[BaseException] = []

    def answer(mine: Scene) -> None:
        for number in range(ROUNDS):
            with transaction.atomic():
                Coordination.objects.select_for_update(no_key=True).get(pk=mine.coordination.pk)
                mine.answered()
                mine.send("Commit")
                mine.send("Aborted", awaits=False)
                if number % 3 == 0:
                    outgoing.stop(enlistment=mine.enlistment, now=clock.now())

    def send(_: Scene) -> None:
        for number in range(ROUNDS * 2):
            asleep = Message.objects.filter(due_at__isnull=False, state__in=("awaiting_ack", "retrying"))
            with transaction.atomic():
                update_in_order(asleep, skip_locked=True, due_at=clock.now())
            jobs = claim_due(limit=20)
            record([(job, ANSWERS[(number + place) % 3]) for place, job in enumerate(jobs)])

    def act(_: Scene) -> None:
        for _number in range(ROUNDS):
            for verb in (operating.pair_pause, operating.pair_release, operating.pair_retry_now):
                with suppress(ApplicationError):
                    verb(pair_id=pair_id, actor=ANN, reason="because it has to be")
            mine = Message.objects.filter(state="retrying").exclude(coordinating__enlistment=mute.enlistment)
            message = mine.order_by("?").first()
            if message is not None:
                with suppress(ApplicationError):
                    operating.message_cancel(message_id=message.pk, actor=ANN, reason="because it has to be")

    def bury(_: Scene) -> None:
        for _number in range(ROUNDS):
            leases.release_dead(clock.now())  # whoever claims here has no row of a living worker

    work: list[tuple[Callable[[Scene], None], Scene]] = [(answer, one) for one in everybody]
    work += [(send, scene), (send, scene), (act, scene), (bury, scene)]

    def run(what: Callable[[Scene], None], mine: Scene) -> None:
        try:
            what(mine)
        except BaseException as error:
            failed.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert failed == []
    assert not any(thread.is_alive() for thread in threads)
    assert Pair.objects.get(pk=pair_id).done > 0
    assert Incident.objects.filter(coordination=mute.coordination, cause=outgoing.SILENT).exists()
    assert "silence not reported" not in caplog.text
