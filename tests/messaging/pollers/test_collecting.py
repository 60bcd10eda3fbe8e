"""What partners leave in a folder: stored once whatever dies in between, whole files only, and no path tricks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from django.db import OperationalError

from messaging.choices import MessageState
from messaging.entrance.refusals import Arrival
from messaging.models import Delivery, Message, Rejection, Signal
from messaging.pollers.services import collecting, collecting_files
from messaging.protocol.codecs import entity_file
from messaging.protocol.envelope import MessageType
from partners.models import Party
from partners.terms import Presented
from rmhub import clock
from tests.messaging.deliveries.stage import application, make_trigger, verdict
from tests.messaging.deliveries.stage import work as deliver
from tests.messaging.factories import ORDER, decoded, partner_side, submit, work
from tests.messaging.pollers.scene import Scene, age_of, look, scene
from tests.messaging.transports.sftp_server import SftpServer
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db


@pytest.fixture
def files(server: SftpServer) -> Scene:
    return scene(server)


def names(files: Scene, folder: str = "") -> list[str]:
    """What lies in our folder, or in a folder of it."""
    return sorted(entry.name for entry in (files.ours / folder).iterdir() if entry.is_file())


def test_a_message_goes_out_as_a_file_and_its_acknowledgement_comes_back_as_one(files: Scene) -> None:
    message = submit(files.partner)
    work()
    (parcel,) = files.reads()
    assert decoded(parcel).message_id == message.message_id
    assert decoded(parcel).payloads[0].content == ORDER
    message.refresh_from_db()
    assert message.state == MessageState.AWAITING_ACK
    assert files.sends(files.partner.acknowledgement(parcel), "ack").ok
    (found,) = look()
    assert (found.taken, found.cause) == (1, "")
    message.refresh_from_db()
    assert message.state == MessageState.DELIVERED
    assert names(files) == []


def test_a_message_comes_in_as_a_file_and_our_acknowledgement_goes_out_as_one(files: Scene) -> None:
    arrival = files.partner.message(1)
    assert files.sends(arrival).ok
    assert look()[0].taken == 1
    stored = Message.objects.get(direction="in")
    assert (stored.message_id, stored.state) == (decoded(arrival).message_id, MessageState.RECEIVED)
    work()
    (answer,) = files.reads()
    assert decoded(answer).message_type is MessageType.ACKNOWLEDGEMENT
    assert decoded(answer).ref_to_message_id == stored.message_id
    assert names(files) == []


def test_w47_a_file_under_an_agreement_by_http_has_a_count_that_nobody_knows(files: Scene) -> None:
    """The agreement says where we send to; the folder is where the document came from."""
    with application() as app:
        make_trigger(app, use_history=False, resolver="http")
        app.plan("/resolver", verdict("DUPLICATE"))
        by_http = partner_side(make_agreement(partner=Party.objects.get(pk=files.partner.terms.partner_id)))
        assert by_http.terms.transport == "http"
        assert files.sends(by_http.message(1)).ok
        assert look()[0].taken == 1
        delivery = Delivery.objects.get()
        assert delivery.redelivery_count == -1
        deliver()
        delivery.refresh_from_db()
    assert (delivery.state, app.documents) == ("duplicate", [])


def test_an_error_message_is_a_file_too(files: Scene) -> None:
    assert files.sends(files.partner.message(7)).ok  # 1 would be in order
    look()
    work()
    (answer,) = files.reads()
    assert decoded(answer).message_type is MessageType.ERROR
    assert not Message.objects.exists()


def test_the_name_of_our_file_is_the_same_for_every_copy_and_tells_the_kinds_apart(files: Scene) -> None:
    submit(files.partner)
    files.sends(files.partner.message(1))
    look()
    work()
    kinds = sorted(file.name.split("-")[0] for file in files.theirs.iterdir())
    assert kinds == ["ack", "message"]


def test_the_hub_dies_between_read_and_store(files: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    files.sends(files.partner.message(1))

    def dies(*args: object, **named: object) -> int:
        raise OperationalError("the database went away")

    with monkeypatch.context() as patch:
        patch.setattr(collecting_files, "receive", dies)
        (found,) = look()
    assert (found.taken, found.cause) == (0, "internal_error")
    assert len(names(files)) == 1 and not Message.objects.exists()
    files.state()
    _due(files)
    assert look()[0].taken == 1
    assert Message.objects.count() == 1 and names(files) == []


def test_the_hub_dies_between_store_and_delete(files: Scene, server: SftpServer) -> None:
    files.sends(files.partner.message(1))

    def dies(path: str) -> None:
        server.drop_connections()
        raise OSError(5, "gone")

    server.rules.before["remove"] = dies
    assert look()[0].cause == "connection_reset"
    assert Message.objects.count() == 1 and len(names(files)) == 1  # stored, and still there
    server.rules.before.clear()
    _due(files)
    assert look()[0].taken == 1
    stored = Message.objects.get()
    assert (stored.copies, names(files)) == (1, [])  # a repeat, discarded
    work()
    answers = [decoded(parcel) for parcel in files.reads()]
    assert {answer.ref_to_message_id for answer in answers} == {stored.message_id}


def test_a_file_that_is_being_written_under_its_final_name_is_not_taken_before_it_is_whole(files: Scene) -> None:
    arrival = files.partner.message(1)
    content = entity_file.pack(arrival.content_type, arrival.body)
    file = files.leaves_bytes("order.ebxml", content[: len(content) // 2])
    (found,) = look()
    assert (found.taken, found.refused) == (0, 0)
    assert not Rejection.objects.exists() and file.exists()
    file.write_bytes(content)
    _due(files)
    assert look()[0].taken == 1
    assert Message.objects.count() == 1


def test_a_file_that_never_becomes_whole_is_set_aside_after_an_hour(files: Scene) -> None:
    arrival = files.partner.message(1)
    content = entity_file.pack(arrival.content_type, arrival.body)
    files.leaves_bytes("order.ebxml", content[:-10], age=collecting_files.INCOMPLETE_SECONDS + 60)
    assert look()[0].refused == 1
    assert names(files, "failed") == ["order.ebxml", "order.ebxml.reason.txt"]
    assert "Content-Length" in (files.ours / "failed/order.ebxml.reason.txt").read_text()


def test_without_a_length_a_file_is_taken_once_nobody_has_written_for_a_minute(files: Scene) -> None:
    arrival = files.partner.message(1)
    content = f"Content-Type: {arrival.content_type}\r\n\r\n".encode() + arrival.body
    file = files.leaves_bytes("order.ebxml", content)
    assert look()[0].taken == 0 and file.exists()
    age_of(file, 120)
    _due(files)
    assert look()[0].taken == 1


def test_temporary_names_are_not_read_whatever_is_in_them(files: Scene) -> None:
    arrival = files.partner.message(1)
    for name in (".message.ebxml.0a1b.tmp", "order.ebxml.tmp", "order.ebxml.part", "order.txt"):
        files.leaves(arrival, name, age=500)
    (found,) = look()
    assert (found.taken, found.refused, Message.objects.count()) == (0, 0, 0)
    assert found.detail.endswith("not that of a complete file: 3.")  # so that a person sees a partner's wrong naming


def test_oldest_first_so_that_numbers_come_in_their_order(files: Scene) -> None:
    for number, age in ((1, 300), (2, 200), (3, 100)):
        files.leaves(files.partner.message(number), f"z{9 - number}.ebxml", age=age)
    assert look()[0].taken == 3
    numbers = Message.objects.order_by("position").values_list("sequence_number", flat=True)
    assert list(numbers) == [1, 2, 3]
    assert files.partner.inbound.rejected == 0


def test_done_is_kept_where_the_folder_is_there(files: Scene) -> None:
    (files.ours / "done").mkdir()
    files.leaves(files.partner.message(1), "order.ebxml")
    files.leaves_bytes("../in/done/order.ebxml", b"an older one of that name")
    assert look()[0].taken == 1
    kept = names(files, "done")
    assert len(kept) == 2 and "order.ebxml" in kept and names(files) == []
    assert (files.ours / "done/order.ebxml").read_bytes() == b"an older one of that name"


def test_what_is_no_message_goes_to_failed_with_its_reason_and_a_rejection(files: Scene) -> None:
    files.leaves(Arrival("text/plain", b"Hello", Presented()), "hello.ebxml")
    files.leaves_bytes("bare.ebxml", b"no header here", age=120_000)
    found = look()[0]
    assert (found.taken, found.refused, found.cause) == (0, 2, "")
    assert names(files) == []
    failed = ["bare.ebxml", "bare.ebxml.reason.txt", "hello.ebxml", "hello.ebxml.reason.txt"]
    assert names(files, "failed") == failed
    assert set(Rejection.objects.values_list("party_name", flat=True)) == {files.partner.terms.partner_name}
    assert Rejection.objects.count() == 2


def test_nothing_is_moved_or_written_through_a_link_named_failed(files: Scene, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    files.leaves_bytes("bare.ebxml", b"no headers", age=7200)
    (files.ours / "failed").symlink_to(elsewhere)
    (found,) = look()
    assert (found.cause, found.permanent) == ("folder_closed", True) and "failed is a link" in found.detail
    assert list(elsewhere.iterdir()) == [] and (files.ours / "bare.ebxml").exists()


def test_a_reason_is_not_written_onto_a_link_that_waits_there(files: Scene, tmp_path: Path) -> None:
    files.leaves_bytes("bare.ebxml", b"no headers", age=7200)
    (files.ours / "failed").mkdir()
    planted = tmp_path / "planted"
    (files.ours / "failed/bare.ebxml.reason.txt").symlink_to(planted)
    look()
    assert not planted.exists() and (files.ours / "failed/bare.ebxml").exists()


def test_a_message_of_another_partner_is_refused_whoever_wrote_it(files: Scene) -> None:
    other = partner_side()
    files.leaves(other.message(1), "order.ebxml")
    assert (look()[0].taken, names(files)) == (1, []), "as one that names no agreement: an Error message says so"
    rejection = Rejection.objects.get()
    assert (rejection.reason, rejection.party_name) == ("wrong_partner", files.partner.terms.partner_name)
    assert not Message.objects.exists() and Signal.objects.get().error_code == "ValueNotRecognized"


def test_a_file_that_is_too_large_is_not_read(files: Scene, server: SftpServer, settings: object) -> None:
    settings.RMHUB_MAX_MESSAGE_BYTES = 4096  # type: ignore[attr-defined]
    files.leaves_bytes("big.ebxml", b"x" * 40_000)
    assert look()[0].refused == 1
    assert Rejection.objects.get().reason == "body_too_large"
    assert not any(operation == "read" for operation, _ in server.rules.calls)
    assert "big.ebxml" in names(files, "failed")


@pytest.mark.parametrize("becomes", [lambda content: content + b"more", lambda content: content[:-20]])
def test_a_file_that_changes_while_it_is_read_is_left_for_the_next_look(
    files: Scene, server: SftpServer, becomes: Callable[[bytes], bytes]
) -> None:
    arrival = files.partner.message(1)
    content = f"Content-Type: {arrival.content_type}\r\n\r\n".encode() + arrival.body
    file = files.leaves_bytes("order.ebxml", content, age=120)

    def changes(path: str) -> None:
        server.rules.before.clear()
        file.write_bytes(becomes(content))

    server.rules.before["open"] = changes
    assert look()[0].taken == 0 and not Message.objects.exists() and file.exists()


def test_path_tricks(files: Scene, server: SftpServer) -> None:
    """Symbolic links, folders, and names that lead elsewhere: neither read, nor moved, nor deleted."""
    secret = server.rules.root / "secret.ebxml"
    arrival = files.partner.message(1)
    secret.write_bytes(entity_file.pack(arrival.content_type, arrival.body))
    os.symlink(secret, files.ours / "link.ebxml")
    (files.ours / "folder.ebxml").mkdir()
    server.rules.extra_names = [
        "../secret.ebxml",
        "..",
        "a/../../secret.ebxml",
        "x\x00.ebxml",
        "-rf.ebxml",
        "/secret.ebxml",
    ]
    (found,) = look()
    assert (found.taken, found.refused) == (0, 0)
    assert secret.exists() and not Message.objects.exists() and not Rejection.objects.exists()
    touched = {path for operation, path in server.rules.calls if operation in ("open", "lstat", "remove", "rename")}
    assert touched == set()


def test_a_file_that_turns_into_a_link_after_the_listing_is_not_read(files: Scene, server: SftpServer) -> None:
    secret = server.rules.root / "secret.ebxml"
    file = files.leaves(files.partner.message(1), "order.ebxml")
    secret.write_bytes(file.read_bytes())

    def turned(path: str) -> None:
        server.rules.before.clear()
        file.unlink()
        file.symlink_to(secret)

    server.rules.before["lstat"] = turned
    assert look()[0].taken == 0
    assert not Message.objects.exists() and secret.exists()


def test_one_file_that_is_closed_to_us_does_not_keep_those_behind_it(files: Scene, server: SftpServer) -> None:
    files.leaves(files.partner.message(1), "a.ebxml", age=100)
    files.leaves(files.partner.message(1, "other@partner.example"), "closed.ebxml", age=200)

    def closed(path: str) -> None:
        if path.endswith("closed.ebxml"):
            raise PermissionError(13, "closed")

    server.rules.before["open"] = closed
    (found,) = look()
    assert (found.taken, found.cause, found.permanent) == (1, "folder_closed", True)
    assert "closed.ebxml" in found.detail


def test_a_file_that_may_not_be_taken_away_stops_the_look_and_tells(files: Scene, server: SftpServer) -> None:
    """Else every look would take it for a repeat, and acknowledge it once more."""
    files.sends(files.partner.message(1))

    def closed(path: str) -> None:
        raise PermissionError(13, "closed")

    server.rules.before["remove"] = closed
    (found,) = look()
    assert (found.cause, found.permanent) == ("folder_closed", True)
    assert Message.objects.count() == 1


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"host_key": "SHA256:" + "A" * 43}, "host_key_mismatch"),
        ({"login": None}, "login_missing"),
        ({"partner": None}, "internal_error"),
        ({"url": "sftp://127.0.0.1:1/in/"}, "connect_refused"),
    ],
)
def test_what_keeps_a_look_from_being_made(files: Scene, change: dict[str, object], cause: str) -> None:
    assert look(lambda one: replace(one, **change))[0].cause == cause  # type: ignore[arg-type]
    assert files.state().cause == cause


def test_a_look_ends_with_its_time_and_the_next_goes_on(files: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 4):
        files.leaves(files.partner.message(number), f"{number}.ebxml", age=100 - number)
    monkeypatch.setattr(collecting_files, "MOST_ITEMS", 2)
    (found,) = look()
    assert (found.taken, found.more) == (2, True)
    assert look()[0].taken == 1  # due at once
    assert look(lambda one: replace(one, until=0.0)) == []  # and then after the interval


def test_two_at_once_and_the_file_goes_under_the_hands_of_the_second(files: Scene, server: SftpServer) -> None:
    files.sends(files.partner.message(1))

    def quicker(path: str) -> None:
        server.rules.before.clear()
        for file in files.ours.glob("*.ebxml"):
            file.unlink()

    server.rules.before["remove"] = quicker
    (found,) = look()
    assert (found.taken, found.cause) == (1, "")
    assert Message.objects.count() == 1 and Signal.objects.count() == 1


def _due(files: Scene) -> None:
    state = files.state()
    state.due_at = clock.now()
    state.save()


def test_a_worker_that_ends_finishes_the_file_that_it_is_at_and_begins_no_other(
    files: Scene, server: SftpServer
) -> None:
    for number in (1, 2):
        files.leaves(files.partner.message(number), f"{number}.ebxml", age=100 - number)
    server.rules.before["open"] = lambda path: collecting.ending.set()
    try:
        (found,) = look()
    finally:
        collecting.ending.clear()
    assert (found.taken, found.more) == (1, True)
    assert names(files) == ["2.ebxml"]
