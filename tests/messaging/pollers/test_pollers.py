"""Looks: one worker at a time, leases that run out, waits after failures, and when a person is told."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connections, transaction

from messaging import dispatch
from messaging.choices import IncidentState
from messaging.engine import kinds
from messaging.engine.loop import Engine
from messaging.models import Incident, Message, PollerState
from messaging.pollers.services import collecting_files, pollers
from messaging.pollers.services.collecting import Found, Look
from partners import services
from rmhub import clock
from tests.messaging.engine.test_engine import closing
from tests.messaging.pollers.scene import Scene, scene
from tests.messaging.transports.sftp_server import SftpServer
from tests.rmhub.conditions import eventually

REFUSED = Found(cause="connect_refused", detail="[Errno 111] Connection refused")


@pytest.fixture
def files(db: None, server: SftpServer) -> Scene:
    return scene(server)


def looked(found: Found) -> None:
    """One look at what is due, which comes to this."""
    (job,) = pollers.claim_due(10)
    pollers.record([(job, found)])


def until_due(frozen: clock.FrozenClock, files: Scene) -> None:
    due = files.state().due_at
    assert due is not None
    frozen.move((due - clock.now()).total_seconds())


def test_a_poller_is_claimed_once_and_again_after_its_interval(files: Scene) -> None:
    with clock.frozen(clock.now()) as frozen:
        (job,) = pollers.claim_due(10)
        assert pollers.claim_due(10) == []
        pollers.record([(job, Found(taken=3))])
        state = files.state()
        assert (state.taken, state.failures, state.leased_until) == (3, 0, None)
        assert state.last_success_at == state.last_looked_at == clock.now()
        assert state.due_at == clock.now() + timedelta(seconds=files.poller.interval)
        assert pollers.claim_due(10) == []
        frozen.move((timedelta(seconds=files.poller.interval)).total_seconds())
        assert len(pollers.claim_due(10)) == 1


def test_where_there_was_more_it_is_looked_again_at_once(files: Scene) -> None:
    looked(Found(taken=500, more=True))
    assert len(pollers.claim_due(10)) == 1


def test_what_is_switched_off_is_not_looked_into(files: Scene) -> None:
    services.poller_update(poller=files.poller, enabled=False)
    assert pollers.claim_due(10) == []


def test_a_worker_that_died_is_taken_over_when_its_lease_is_over_and_its_word_counts_no_more(files: Scene) -> None:
    with clock.frozen(clock.now()) as frozen:
        (first,) = pollers.claim_due(10)
        frozen.move((pollers.LEASE - timedelta(seconds=1)).total_seconds())
        assert pollers.claim_due(10) == []
        frozen.move((timedelta(seconds=1)).total_seconds())
        (second,) = pollers.claim_due(10)
        pollers.record([(first, Found(taken=7, cause="internal_error", position="1:7"))])
        state = files.state()
        assert (state.taken, state.cause, state.leased_until) == (0, "", second.leased_until)
        pollers.record([(second, Found(taken=7, position="1:8"))])
        assert (files.state().taken, files.state().position) == (7, "1:8")


def test_each_failure_waits_longer_up_to_a_quarter_of_an_hour(files: Scene) -> None:
    with clock.frozen(clock.now()) as frozen:
        waits = []
        for _ in range(8):
            looked(REFUSED)
            due = files.state().due_at
            assert due is not None
            waits.append(int((due - clock.now()).total_seconds()))
            frozen.move(waits[-1])
        assert waits == [30, 60, 120, 240, 480, 900, 900, 900]
        looked(Found())
        assert files.state().due_at == clock.now() + timedelta(seconds=30)


def test_the_incident_opens_after_several_failures_and_closes_with_a_success(files: Scene) -> None:
    with clock.frozen(clock.now()) as frozen:
        for _ in range(pollers.FAILURES - 1):
            looked(REFUSED)
            until_due(frozen, files)
        assert not Incident.objects.exists()
        looked(REFUSED)
        incident = Incident.objects.get()
        assert (incident.cause, incident.state) == ("poller_failing", IncidentState.OPEN)
        assert files.poller.name in incident.detail and "connect_refused" in incident.detail
        until_due(frozen, files)
        looked(REFUSED)
        incident.refresh_from_db()
        assert (Incident.objects.count(), incident.occurrences) == (1, 2)
        until_due(frozen, files)
        looked(Found(taken=1))
        incident.refresh_from_db()
        assert incident.state == IncidentState.RESOLVED
        state = files.state()
        assert (state.failures, state.cause, state.detail) == (0, "", "")


def test_what_only_a_person_can_mend_is_told_at_once(files: Scene) -> None:
    looked(Found(cause="host_key_mismatch", detail="another key", permanent=True))
    assert Incident.objects.get().state == IncidentState.OPEN


def test_the_incident_stays_while_another_poller_fails(files: Scene) -> None:
    other = services.poller_create(
        endpoint=files.poller.endpoint,
        partner=files.poller.partner,
        name="Second",
        kind="sftp",
        url="sftp://127.0.0.1:2/in/",
        username="hub",
        secret="secret",
        host_key=files.poller.host_key,
    )
    jobs = {job.poller_id: job for job in pollers.claim_due(10)}
    bad = Found(cause="login_refused", permanent=True)
    pollers.record([(jobs[files.poller.pk], bad), (jobs[other.pk], bad)])
    assert Incident.objects.count() == 1
    PollerState.objects.update(due_at=clock.now())
    jobs = {job.poller_id: job for job in pollers.claim_due(10)}
    pollers.record([(jobs[files.poller.pk], Found())])
    assert Incident.objects.get().state == IncidentState.OPEN
    pollers.record([(jobs[other.pk], Found())])
    assert Incident.objects.get().state == IncidentState.RESOLVED


def test_a_look_that_is_asked_for_while_one_is_under_way_comes_after_it(files: Scene) -> None:
    with clock.frozen(clock.now()) as frozen:
        (job,) = pollers.claim_due(10)
        frozen.move((timedelta(seconds=1)).total_seconds())
        PollerState.objects.update(due_at=clock.now())
        pollers.record([(job, Found())])
        assert len(pollers.claim_due(10)) == 1


def test_a_poller_that_is_deleted_while_it_is_looked_into(files: Scene) -> None:
    (job,) = pollers.claim_due(10)
    services.poller_delete(poller=files.poller)
    assert pollers.record([(job, Found(taken=1))]) == [None]
    assert not PollerState.objects.exists()


def test_a_secret_that_cannot_be_decrypted_is_told_and_nothing_is_connected(
    files: Scene, server: SftpServer, settings: object
) -> None:
    from cryptography.fernet import Fernet

    settings.RMHUB_SECRET_KEYS = [Fernet.generate_key().decode()]  # type: ignore[attr-defined]
    (job,) = pollers.claim_due(10)
    assert job.look is None
    pollers.record([(job, Found(cause="encryption_key_missing", permanent=True))])
    assert files.state().cause == "encryption_key_missing" and server.connections == 0


def test_secrets_are_in_no_repr(files: Scene) -> None:
    (job,) = pollers.claim_due(10)
    assert job.look is not None and job.look.login is not None
    assert job.look.login.secret not in repr(job)


@pytest.mark.django_db(transaction=True)
class TestWithRealCommits:
    @pytest.fixture
    def files(self, transactional_db: None, server: SftpServer) -> Scene:
        return scene(server)

    def test_a_look_inside_a_transaction_is_refused(self, files: Scene) -> None:
        (job,) = pollers.claim_due(10)
        with transaction.atomic(), pytest.raises(RuntimeError, match="transaction"):
            pollers.look(job)

    def test_whatever_a_collector_raises_is_recorded(self, files: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(look: Look) -> Found:
            raise ZeroDivisionError

        monkeypatch.setitem(pollers.COLLECTORS, "sftp", fails)
        (job,) = pollers.claim_due(10)
        pollers.record([(job, pollers.look(job))])
        assert (files.state().cause, files.state().detail) == ("internal_error", "ZeroDivisionError")

    def test_two_pollers_at_once_share_the_work(self, files: Scene) -> None:
        for number in range(5):
            services.poller_create(
                endpoint=files.poller.endpoint,
                partner=files.poller.partner,
                name=f"Folder {number}",
                kind="sftp",
                url=files.poller.url,
                username="hub",
                secret="secret",
                host_key=files.poller.host_key,
            )
        claimed: list[list[pollers.Job]] = []
        start = threading.Barrier(3)

        def poll() -> None:
            start.wait()
            claimed.append(pollers.claim_due(4))
            connections.close_all()

        threads = [threading.Thread(target=poll) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ids = [job.poller_id for jobs in claimed for job in jobs]
        assert len(ids) == len(set(ids)) >= 4

    def test_two_looks_at_once_into_one_folder_store_each_message_once(self, files: Scene) -> None:
        """A lease was lost: both workers are at it, and both read the same files."""
        for number in range(1, 4):
            files.leaves(files.partner.message(number), f"{number}.ebxml", age=100 - number)
        (job,) = pollers.claim_due(1)
        PollerState.objects.update(leased_until=None)
        (again,) = pollers.claim_due(1)
        start = threading.Barrier(2)
        found: list[Found] = []

        def collect(one: pollers.Job) -> None:
            start.wait()
            found.append(pollers.look(one))
            connections.close_all()

        threads = [threading.Thread(target=collect, args=(one,)) for one in (job, again)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [one.cause for one in found] == ["", ""]
        assert list(Message.objects.order_by("position").values_list("sequence_number", flat=True)) == [1, 2, 3]
        assert files.partner.inbound.rejected == 0
        assert list(files.ours.iterdir()) == []

    def test_the_engine_looks_and_a_slow_server_holds_one_thread_only(
        self, files: Scene, server: SftpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        released = threading.Event()
        slow = services.poller_create(
            endpoint=files.poller.endpoint,
            partner=files.poller.partner,
            name="A slow one",
            kind="sftp",
            url="sftp://slow.example/in/",
            username="hub",
            secret="secret",
            host_key=files.poller.host_key,
        )

        def collect(look: Look) -> Found:
            if look.poller_id == slow.pk:
                released.wait(600)  # longer than anybody waits below
                return Found()
            return collecting_files.collect(look)

        monkeypatch.setitem(pollers.COLLECTORS, "sftp", collect)
        monkeypatch.setattr(dispatch, "taken", lambda task: None)
        monkeypatch.setattr(dispatch, "busy", lambda task: None)
        files.sends(files.partner.message(1))
        made: Engine[pollers.Job, Found] = closing(Engine(kinds.POLLERS, threads=2, batch=2))
        try:
            assert made.run() == 2
            eventually(lambda: Message.objects.filter(direction="in").exists(), 120)
            eventually(lambda: files.state().taken == 1, 120)
            assert PollerState.objects.get(poller=slow).leased_until is not None
        finally:
            released.set()
            made.close()
        assert PollerState.objects.get(poller=slow).leased_until is None
