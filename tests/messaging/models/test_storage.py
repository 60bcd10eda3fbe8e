"""Payload bytes: durable before anything names them, found again unchanged, or missed aloud."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest
from django.conf import LazySettings

from messaging import storage
from messaging.storage import PayloadMissing

SMALL, LARGE = b"x" * 100, b"y" * 101


@pytest.fixture(autouse=True)
def root(settings: LazySettings, tmp_path: Path) -> Path:
    settings.RMHUB_STORE_DIR = tmp_path / "store"
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 100
    return tmp_path / "store"


def test_small_payloads_lie_in_the_row(root: Path) -> None:
    kept = storage.keep(SMALL)
    assert (kept.size, kept.content, kept.stored_as) == (100, SMALL, "")
    assert kept.sha256 == hashlib.sha256(SMALL).hexdigest()
    assert storage.load(memoryview(SMALL), "") == SMALL
    assert not root.exists()


def test_large_payloads_lie_in_a_file_that_is_named_by_its_digest(root: Path) -> None:
    kept = storage.keep(LARGE)
    digest = hashlib.sha256(LARGE).hexdigest()
    assert (kept.size, kept.content, kept.stored_as) == (101, None, f"{digest[:2]}/{digest}")
    assert (root / kept.stored_as).read_bytes() == LARGE
    assert storage.load(None, kept.stored_as) == LARGE


def test_the_same_bytes_are_kept_once_and_no_leavings(root: Path) -> None:
    assert storage.keep(LARGE) == storage.keep(LARGE)
    assert [path.name for path in root.glob("*/*")] == [hashlib.sha256(LARGE).hexdigest()]


def test_a_file_and_its_name_are_synced_before_it_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut after the commit must find file and directory entries: bytes, folder, and a folder that is new."""
    synced: list[str] = []

    def note(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        present = sorted(p.name for p in root.glob("*/*") if not p.name.startswith("."))
        synced.append("file" if path.name.startswith(".incoming-") else f"{path.name} with {present}")

    monkeypatch.setattr("os.fsync", note)
    digest = hashlib.sha256(LARGE).hexdigest()
    storage.keep(LARGE)
    assert synced == ["file", f"{digest[:2]} with {[digest]}", f"store with {[digest]}"]


def test_a_write_that_fails_leaves_nothing_behind(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            storage.keep(LARGE)
    assert list(root.glob("*/*")) == []
    assert storage.load(None, storage.keep(LARGE).stored_as) == LARGE


def test_many_threads_may_keep_the_same_bytes(root: Path) -> None:
    start = threading.Barrier(8)
    kept: list[storage.Stored] = []

    def run() -> None:
        start.wait(120)
        kept.append(storage.keep(LARGE))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(kept) == 8
    assert len(set(kept)) == 1
    assert len(list(root.glob("*/*"))) == 1


def test_a_missing_file_says_which(root: Path) -> None:
    kept = storage.keep(LARGE)
    (root / kept.stored_as).unlink()
    with pytest.raises(PayloadMissing, match=kept.stored_as):
        storage.load(None, kept.stored_as)


def test_a_file_that_cannot_be_read_is_as_good_as_missing(root: Path) -> None:
    kept = storage.keep(LARGE)
    (root / kept.stored_as).unlink()
    (root / kept.stored_as).mkdir()
    with pytest.raises(PayloadMissing, match=kept.stored_as):
        storage.load(None, kept.stored_as)


def test_a_machine_without_file_handles_is_not_a_missing_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = storage.keep(LARGE)

    def none_left(path: Path) -> bytes:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Path, "read_bytes", none_left)
    with pytest.raises(OSError, match="Too many"):
        storage.load(None, kept.stored_as)


@pytest.mark.parametrize("damage", [b"", LARGE[:-1], LARGE + b"y", b"z" * 101])
def test_other_bytes_under_its_name_are_never_taken_for_the_payload(root: Path, damage: bytes) -> None:
    kept = storage.keep(LARGE)
    (root / kept.stored_as).write_bytes(damage)
    with pytest.raises(PayloadMissing, match="damaged"):
        storage.load(None, kept.stored_as)


@pytest.mark.parametrize("literals", [[b"whole"], [b"", b""], [b"a\x00", b"\xff", b"", b"\r\n--b--"]])
def test_frames_come_back(literals: list[bytes]) -> None:
    assert list(storage.unpack_frame(memoryview(storage.pack_frame(literals)))) == literals


def test_a_received_body_is_cut_where_its_payloads_lie() -> None:
    frame = storage.cut_frame(b"head|one|two|tail", [(5, 3), (9, 3)])
    assert storage.unpack_frame(frame) == (b"head|", b"|", b"|tail")
    assert storage.unpack_frame(storage.cut_frame(b"no payloads", [])) == (b"no payloads",)
