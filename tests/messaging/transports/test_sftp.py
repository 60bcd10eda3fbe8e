"""Uploads: whole or not at all under a final name, known servers only, and an answer for everything that goes wrong."""

from __future__ import annotations

import io
import os
import threading

import paramiko
import pytest

from messaging.protocol.codecs import entity_file
from messaging.transports import Parcel, send, sftp, sftp_connection
from messaging.transports.base import Login
from partners.ssh_keys import read_private_key
from tests.messaging.transports.sftp_server import PASSWORD, USER, SftpServer

BODY = b"<Order/>" * 20_000


def parcel(server: SftpServer, /, **changes: object) -> Parcel:
    values: dict[str, object] = {
        "address": server.url("out"),
        "content_type": 'multipart/related; boundary="b"',
        "body": BODY,
        "connect_timeout": 5,
        "read_timeout": 5,
        "host_key": server.host_key,
        "login": Login(USER, PASSWORD),
        "name": "message-0a1b",
    }
    return Parcel(**{**values, **changes})  # type: ignore[arg-type]


def finals(server: SftpServer) -> list[str]:
    return sorted(file.name for file in server.folder("out").iterdir())


def test_a_file_has_its_header_and_its_bytes_exactly(server: SftpServer) -> None:
    body = bytes(range(256)) * 300
    receipt = send("sftp", parcel(server, body=body))
    assert receipt.ok, receipt
    (name,) = finals(server)
    assert name.startswith("message-0a1b-")
    entity = entity_file.unpack((server.folder("out") / name).read_bytes())
    assert (entity.content_type, entity.body, entity.declared) == ('multipart/related; boundary="b"', body, True)


def test_a_reader_that_lists_all_the_time_never_sees_a_part(server: SftpServer) -> None:
    folder, whole = server.folder("out"), entity_file.pack('multipart/related; boundary="b"', BODY)
    seen: list[int] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            for entry in os.scandir(folder):
                if entity_file.is_final(entry.name):
                    seen.append(entry.stat().st_size)

    # The watcher looks at least once between any two chunks.
    def slowly(_: str) -> None:
        before = len(os.listdir(folder))
        assert before >= 1

    server.rules.before["write"] = slowly
    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(5):
        assert send("sftp", parcel(server, name=f"message-{number}")).ok
    while not seen:
        pass
    ended.set()
    watcher.join()
    assert set(seen) == {len(whole)}
    assert sum(operation == "write" for operation, _ in server.rules.calls) == 5 * -(-len(whole) // sftp.CHUNK)


def test_an_upload_that_breaks_off_leaves_nothing_under_a_final_name(server: SftpServer) -> None:
    def full(path: str) -> None:
        if sum(operation == "write" for operation, _ in server.rules.calls) == 3:
            raise OSError(28, "No space left on device")

    server.rules.before["write"] = full
    receipt = send("sftp", parcel(server))
    assert (receipt.ok, receipt.cause, receipt.permanent) == (False, "file_failed", False)
    assert finals(server) == []


def test_what_the_server_says_it_has_written_is_looked_at_before_the_rename(server: SftpServer) -> None:
    server.rules.swallows = True
    assert send("sftp", parcel(server)).cause == "file_failed"
    assert finals(server) == []


def test_a_connection_that_breaks_in_the_middle_is_a_network_failure(server: SftpServer) -> None:
    def broken(path: str) -> None:
        if sum(operation == "write" for operation, _ in server.rules.calls) == 2:
            server.drop_connections()

    server.rules.before["write"] = broken
    receipt = send("sftp", parcel(server))
    assert (receipt.ok, receipt.cause) == (False, "connection_reset")
    assert [name for name in finals(server) if entity_file.is_final(name)] == []


def test_a_copy_that_still_lies_there_unread_is_not_written_again(server: SftpServer) -> None:
    assert send("sftp", parcel(server)).ok
    (name,) = finals(server)
    before = (server.folder("out") / name).stat()
    receipt = send("sftp", parcel(server))
    assert receipt.ok and b"unread" in receipt.response
    assert (server.folder("out") / name).stat() == before
    (server.folder("out") / name).unlink()
    assert send("sftp", parcel(server)).ok  # once it was read, the copy is written
    assert finals(server) == [name]


def test_other_content_has_another_name(server: SftpServer) -> None:
    send("sftp", parcel(server, body=b"one"))
    send("sftp", parcel(server, body=b"two"))
    assert len(finals(server)) == 2


def test_without_posix_rename_a_torn_file_of_that_name_is_an_error_and_a_whole_one_is_kept(server: SftpServer) -> None:
    server.rules.posix_rename = False
    assert send("sftp", parcel(server)).ok
    (name,) = finals(server)
    (server.folder("out") / name).write_bytes(b"torn")
    receipt = send("sftp", parcel(server))
    assert (receipt.ok, receipt.cause) == (False, "file_failed")
    server.rules.posix_rename = True
    assert send("sftp", parcel(server)).ok
    assert entity_file.unpack((server.folder("out") / name).read_bytes()).body == BODY


def test_another_host_key_is_refused_before_the_password_is_shown(server: SftpServer) -> None:
    receipt = send("sftp", parcel(server, host_key="SHA256:" + "A" * 43))
    assert (receipt.ok, receipt.cause, receipt.permanent) == (False, "host_key_mismatch", True)
    assert server.host_key in receipt.detail  # so that a person can compare it with what the owner says
    assert server.rules.logins == []


def test_without_a_host_key_nothing_is_connected(server: SftpServer) -> None:
    receipt = send("sftp", parcel(server, host_key=""))
    assert (receipt.cause, receipt.permanent, server.connections) == ("host_key_missing", True, 0)


def test_while_a_key_is_replaced_both_are_known(server: SftpServer) -> None:
    assert send("sftp", parcel(server, host_key=f"SHA256:{'A' * 43} {server.host_key}")).ok


def test_wrong_password_and_none(server: SftpServer) -> None:
    wrong = send("sftp", parcel(server, login=Login(USER, "wrong")))
    assert (wrong.cause, wrong.permanent) == ("login_refused", True)
    assert "wrong" not in wrong.detail
    none = send("sftp", parcel(server, login=None))
    assert (none.cause, none.permanent) == ("login_missing", True)
    assert finals(server) == []


@pytest.mark.parametrize("key", [paramiko.RSAKey.generate(2048), paramiko.ECDSAKey.generate()], ids=["rsa", "ecdsa"])
def test_log_in_with_a_private_key_as_it_is_stored(server: SftpServer, key: paramiko.PKey) -> None:
    text = io.StringIO()
    key.write_private_key(text)
    stored = read_private_key(text.getvalue())
    assert stored.fingerprint == sftp_connection.fingerprint(key)
    server.rules.key = key
    assert send("sftp", parcel(server, login=Login(USER, stored.pem, is_key=True))).ok
    assert send("sftp", parcel(server, login=Login(USER, PASSWORD), name="other")).cause == "login_refused"


def test_ed25519_key(server: SftpServer) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    made = Ed25519PrivateKey.generate()
    stored = read_private_key(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
    server.rules.key = paramiko.Ed25519Key.from_private_key(io.StringIO(stored.pem))
    assert send("sftp", parcel(server, login=Login(USER, stored.pem, is_key=True))).ok


def test_a_folder_that_is_not_there(server: SftpServer) -> None:
    receipt = send("sftp", parcel(server, address=server.url("nowhere")))
    assert (receipt.cause, receipt.permanent) == ("folder_missing", True)


def test_the_network(server: SftpServer) -> None:
    nobody = send("sftp", parcel(server, address="sftp://127.0.0.1:1/out/"))
    assert (nobody.cause, nobody.permanent) == ("connect_refused", False)
    unknown = send("sftp", parcel(server, address="sftp://nobody.invalid/out/"))
    assert (unknown.cause, unknown.permanent) == ("dns_error", False)


def test_a_server_that_says_nothing_costs_no_more_than_both_timeouts(server: SftpServer) -> None:
    server.rules.silent = True
    receipt = send("sftp", parcel(server, connect_timeout=0.2, read_timeout=0.3))
    assert (receipt.ok, receipt.cause) == (False, "read_timeout")


def test_nor_does_one_that_goes_on_answering_slowly(server: SftpServer) -> None:
    """Each step is in time; all of them together are not."""
    pause = threading.Event()
    server.rules.before["write"] = lambda path: pause.wait(0.4) and None
    receipt = send("sftp", parcel(server, body=BODY * 10, connect_timeout=3, read_timeout=0.5))
    assert (receipt.ok, receipt.cause) == (False, "read_timeout")  # 50 chunks would take 20 s
    pause.set()
    assert [name for name in finals(server) if entity_file.is_final(name)] == []


def test_one_connection_serves_many_and_a_dead_one_is_replaced(server: SftpServer) -> None:
    for number in range(3):
        assert send("sftp", parcel(server, name=f"m{number}")).ok
    assert server.connections == 1
    server.drop_connections()
    assert send("sftp", parcel(server, name="after")).ok
    assert server.connections == 2


def test_the_server_of_the_endpoint_replaces_that_of_the_uri(server: SftpServer) -> None:
    address, elsewhere = "sftp://files.partner.example/out/", f"sftp://127.0.0.1:{server.port}"
    assert send("sftp", parcel(server, address=address, server=elsewhere)).ok
    assert len(finals(server)) == 1


def test_what_dead_uploads_left_is_removed_after_a_day_and_nothing_else(server: SftpServer) -> None:
    from tests.messaging.pollers.scene import age_of

    folder = server.folder("out")
    for name, age in ((".message-1.ebxml.abc.tmp", 90_000), (".message-2.ebxml.abc.tmp", 60), (".other", 90_000)):
        (folder / name).write_bytes(b"part")
        age_of(folder / name, age)
    assert send("sftp", parcel(server)).ok
    assert [name for name in finals(server) if name.startswith(".")] == [".message-2.ebxml.abc.tmp", ".other"]


@pytest.mark.parametrize("address", ["sftp://127.0.0.1/a/../b/", "https://127.0.0.1/a/", "sftp:///a/"])
def test_an_address_that_is_none_is_an_answer_not_an_exception(server: SftpServer, address: str) -> None:
    assert send("sftp", parcel(server, address=address)).permanent
