"""/uploads: documents that come in parts, each with its owner, its offset and its day; and what becomes of them."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import uuid
from pathlib import Path
from time import time as wall_time
from typing import Any

import pytest
from django.db import connection

from messaging.exceptions import WrongOffset
from messaging.messages.services import uploading
from messaging.models import Message, Payload, Upload
from messaging.overview.services import housekeeping
from messaging.storage import base, parts
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests import buckets
from tests.messaging.api.client import Answer, Api, make_token, make_user, submission
from tests.messaging.factories import PartnerSide

pytestmark = pytest.mark.django_db

CONTENT = b"0123456789" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def begin(api: Api, content: bytes = CONTENT, **more: Any) -> str:
    answer = api.post("/uploads", {"size": len(content), **more})
    assert answer.status == 201, answer.json
    return str(answer.json["id"])


def send(api: Api, upload: str, offset: int | str, part: bytes, kind: str = "application/octet-stream") -> Answer:
    return api.patch(f"/uploads/{upload}", part, Upload_Offset=str(offset), Content_Type=kind)


def sent(api: Api, content: bytes = CONTENT, **more: Any) -> str:
    """The id of an upload that is whole."""
    upload = begin(api, content, **more)
    assert send(api, upload, 0, content).status == 204
    return upload


def of(partner: PartnerSide, *uploads: str, **more: Any) -> dict[str, Any]:
    """A submission of uploads."""
    payloads = [{"upload": upload, "content_type": "application/xml", **more} for upload in uploads]
    return submission(partner, payloads=payloads)


def fault(answer: Answer) -> tuple[int, str, str, str]:
    [error] = answer.json["errors"]
    return answer.status, answer.code, error["pointer"], error["code"]


def files() -> list[str]:
    return sorted(path.name for path in parts.folder().glob("*"))


@pytest.fixture(autouse=True)
def store(tmp_path: Path, settings: Any) -> None:
    settings.RMHUB_STORE_DIR = tmp_path / "store"


@pytest.mark.django_db(transaction=True)
def test_a_document_comes_in_parts_and_is_submitted(admin: Api, partner: PartnerSide) -> None:
    begun = admin.post("/uploads", {"size": len(CONTENT), "sha256": DIGEST.upper()})
    upload = begun.json["id"]
    assert begun.headers["location"] == f"/api/v1/uploads/{upload}" and begun.headers["upload-offset"] == "0"
    assert begun.json["received"] == 0 and begun.json["message"] is None
    first = send(admin, upload, 0, CONTENT[:4000])
    assert (first.status, first.headers["upload-offset"], first.content) == (204, "4000", b"")
    asked = admin.call("HEAD", f"/uploads/{upload}")
    assert (asked.status, asked.headers["upload-offset"], asked.headers["cache-control"]) == (200, "4000", "no-store")
    assert admin.get(f"/uploads/{upload}").json["received"] == 4000
    last = send(admin, upload, 4000, CONTENT[4000:], "application/offset+octet-stream")
    assert (last.status, last.headers["upload-offset"]) == (204, "10000")
    answer = admin.submit(of(partner, upload, filename="order.xml", label="PO", sha256=DIGEST), "key-1")
    assert answer.status == 202, answer.json
    [payload] = Payload.objects.all()
    assert bytes(payload.content or b"") == CONTENT and payload.sha256 == DIGEST
    assert (payload.content_type, payload.filename, payload.label) == ("application/xml", "order.xml", "PO")
    assert admin.get(f"/uploads/{upload}").json["message"] == answer.json["id"]
    assert files() == []


def test_a_part_that_does_not_go_on_is_refused_with_the_offset(admin: Api) -> None:
    upload = begin(admin)
    assert send(admin, upload, 0, CONTENT[:100]).status == 204
    for offset in (0, 99, 101, 10_000):
        answer = send(admin, upload, offset, b"x" * 10)
        assert (answer.status, answer.code) == (409, "upload_offset_mismatch")
        assert (answer.json["offset"], answer.headers["upload-offset"]) == (100, "100")
    beyond = send(admin, upload, 100, CONTENT)
    assert (beyond.status, beyond.code) == (413, "body_too_large")
    for wrong in ("", "-1", "1e3", "0x64"):
        assert send(admin, upload, wrong, b"x").code == "invalid_header"
    assert send(admin, upload, 100, b"{}", "application/json").code == "unsupported_media_type"
    assert send(admin, upload, 100, b"").headers["upload-offset"] == "100"
    assert send(admin, upload, 100, CONTENT[100:]).status == 204
    assert parts.whole(Upload.objects.get().pk, len(CONTENT)).sha256 == DIGEST


def test_what_a_crash_left_behind_the_offset_does_not_count(admin: Api) -> None:
    upload = begin(admin)
    assert send(admin, upload, 0, CONTENT[:100]).status == 204
    with (parts.folder() / files()[0]).open("ab") as file:
        file.write(b"never counted" * 1000)
    assert send(admin, upload, 100, CONTENT[100:]).status == 204
    assert parts.whole(Upload.objects.get().pk, len(CONTENT)).sha256 == DIGEST


def test_each_has_their_own_uploads(admin: Api, partner: PartnerSide) -> None:
    upload = sent(admin)
    stranger = Api(make_token(make_user(Role.ADMIN)))
    for method in ("GET", "HEAD", "DELETE"):
        assert stranger.call(method, f"/uploads/{upload}").status == 404
    assert send(stranger, upload, 10_000, b"").status == 404
    assert stranger.get("/uploads").json["data"] == []
    assert fault(stranger.submit(of(partner, upload))) == (
        *(422, "invalid_submission"),
        *("#/payloads/0/upload", "not_found"),
    )
    assert [one["id"] for one in admin.get("/uploads").json["data"]] == [upload]
    viewer = Api(make_token(make_user(Role.VIEWER)))
    assert viewer.post("/uploads", {"size": 1}).code == "missing_scope"
    assert admin.submit(of(partner, upload)).status == 202


def test_only_what_is_whole_and_what_it_was_said_to_be_is_taken(admin: Api, partner: PartnerSide) -> None:
    upload = begin(admin)
    send(admin, upload, 0, CONTENT[:100])
    assert fault(admin.submit(of(partner, upload)))[2:] == ("#/payloads/0/upload", "incomplete")
    wrong = sent(admin, sha256="0" * 64)
    assert fault(admin.submit(of(partner, wrong)))[2:] == ("#/payloads/0/sha256", "digest_mismatch")
    right = sent(admin)
    assert fault(admin.submit(of(partner, right, sha256="0" * 64)))[2:] == ("#/payloads/0/sha256", "digest_mismatch")
    assert fault(admin.submit(of(partner, right, right)))[2:] == ("#/payloads/1/upload", "used")
    both = submission(partner, payloads=[{"upload": right, "content_base64": "eA=="}])
    assert fault(admin.submit(both))[2:] == ("#/payloads/0/content_base64", "required")
    assert fault(admin.submit(submission(partner, payloads=[{}])))[2:] == ("#/payloads/0/content_base64", "required")
    assert not Message.objects.exists()
    assert admin.submit(of(partner, right)).status == 202


@pytest.mark.django_db(transaction=True)
def test_it_is_used_once_and_its_submission_may_be_repeated(admin: Api, partner: PartnerSide) -> None:
    upload = sent(admin)
    first = admin.submit(of(partner, upload), "key-1")
    again = admin.submit(of(partner, upload), "key-1")
    assert (again.status, again.headers["idempotent-replayed"], again.json["id"]) == (202, "true", first.json["id"])
    assert fault(admin.submit(of(partner, upload), "key-2"))[2:] == ("#/payloads/0/upload", "used")
    assert admin.submit(of(partner, sent(admin)), "key-1").code == "idempotency_key_reused"
    assert send(admin, upload, 10_000, b"").code == "wrong_state"
    # However late it comes.
    assert admin.delete(f"/uploads/{upload}").status == 204
    assert admin.submit(of(partner, upload), "key-1").headers["idempotent-replayed"] == "true"
    assert Message.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("keys", [("same", "same"), ("one", "other")])
def test_two_submissions_at_once_store_one_message(admin: Api, partner: PartnerSide, keys: tuple[str, str]) -> None:
    for _ in range(5):
        upload = sent(admin)
        gate = threading.Barrier(2)
        found: list[Answer] = []

        def submit(key: str, upload: str = upload, gate: Any = gate, found: list[Answer] = found) -> None:
            gate.wait()
            found.append(Api(admin.token).submit(of(partner, upload), f"{upload}-{key}"))
            connection.close()

        threads = [threading.Thread(target=submit, args=(key,)) for key in keys]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if keys[0] == keys[1]:
            assert {answer.status for answer in found} == {202} and len({answer.json["id"] for answer in found}) == 1
        else:
            assert sorted(answer.status for answer in found) == [202, 422], [answer.json for answer in found]
    assert Message.objects.count() == 5


def test_one_part_at_a_time(admin: Api) -> None:
    upload = begin(admin)
    row = Upload.objects.get()

    class Slow(io.BytesIO):
        """Another request comes while this part is read."""

        def read(self, size: int | None = -1) -> bytes:
            if not seen:
                seen.append(send(admin, upload, 0, b"the other"))
            return super().read(size)

    seen: list[Answer] = []
    moved = uploading.upload_append(upload_id=row.pk, owner=row.owner, offset=0, length=4, source=Slow(b"this"))
    assert moved.received == 4
    assert (seen[0].status, seen[0].code, seen[0].json["offset"]) == (409, "upload_offset_mismatch", 0)
    with pytest.raises(WrongOffset):
        uploading.upload_append(upload_id=row.pk, owner=row.owner, offset=0, length=4, source=io.BytesIO(b"late"))
    assert (parts.folder() / row.pk.hex).read_bytes() == b"this"


def test_an_upload_that_is_deleted_while_a_part_comes_is_gone(admin: Api) -> None:
    upload = begin(admin)
    row = Upload.objects.get()

    class Deleted(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            admin.delete(f"/uploads/{upload}")
            return super().read(size)

    with pytest.raises(Exception, match="deleted"):
        uploading.upload_append(upload_id=row.pk, owner=row.owner, offset=0, length=4, source=Deleted(b"this"))
    assert files() == [] and send(admin, upload, 0, b"x").status == 404


def test_how_much_and_how_many(admin: Api, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.RMHUB_MAX_MESSAGE_BYTES = 5000
    settings.RMHUB_UPLOADS_OPEN = 2
    assert admin.post("/uploads", {"size": 5001}).code == "message_too_large"
    for wrong in (0, -1, "5", 1.5, None):
        assert admin.post("/uploads", {"size": wrong}).code == "invalid_submission"
    first = begin(admin, b"x" * 5000)
    monkeypatch.setattr(parts, "free", lambda: 9999)
    assert admin.post("/uploads", {"size": 5000}).code == "store_full"
    assert send(admin, first, 0, b"x").status == 204
    begin(admin, b"x" * 5000)
    many = admin.post("/uploads", {"size": 1})
    assert (many.status, many.code) == (409, "too_many_uploads")
    monkeypatch.undo()
    begin(Api(make_token(make_user(Role.OPERATOR))), b"x")
    assert admin.delete(f"/uploads/{first}").status == 204
    begin(admin, b"x")


@pytest.mark.django_db(transaction=True)
def test_what_nobody_goes_on_with_is_swept_after_a_day(admin: Api, partner: PartnerSide, time: FrozenClock) -> None:
    left, going, used = begin(admin), begin(admin), sent(admin)
    for upload in (left, going):
        send(admin, upload, 0, CONTENT[:10])
    assert admin.submit(of(partner, used)).status == 202
    stranger = parts.folder() / uuid.uuid4().hex
    stranger.touch()
    time.move(23 * 3600)
    send(admin, going, 10, CONTENT[10:20])
    for path in parts.folder().iterdir():
        old = wall_time() - base.YOUNG_SECONDS - 60
        os.utime(path, (old, old))
    (parts.folder() / ".nfs0001").touch()
    time.move(2 * 3600)
    assert "uploads dropped 2" in housekeeping.run()
    assert [row.public_id for row in Upload.objects.all()] == [going]
    assert files() == [".nfs0001", uuid.UUID(going[4:]).hex]
    assert send(admin, going, 20, CONTENT[20:]).status == 204
    assert send(admin, left, 10, b"x").status == 404


@pytest.mark.django_db(transaction=True)
def test_with_a_bucket_it_lies_in_the_folder_until_it_is_submitted(
    admin: Api, partner: PartnerSide, settings: Any
) -> None:
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 1000
    with buckets.server() as endpoint:
        settings.RMHUB_STORE_URL = bucket = buckets.new_bucket(endpoint)
        settings.RMHUB_STORE_ACCESS_KEY, settings.RMHUB_STORE_SECRET_KEY = buckets.KEY, buckets.SECRET
        upload = sent(admin)
        assert len(files()) == 1
        assert admin.submit(of(partner, upload)).status == 202
        stored_as = Payload.objects.get().stored_as
        found = buckets.client(endpoint).get_object(Bucket=bucket.name, Key=bucket.prefix + stored_as)
        assert found["Body"].read() == CONTENT and files() == []


def test_a_file_that_is_not_there_is_said(admin: Api, partner: PartnerSide) -> None:
    """Restored without it, or another web server's folder."""
    upload, whole = begin(admin), sent(admin)
    send(admin, upload, 0, CONTENT[:10])
    for name in files():
        (parts.folder() / name).unlink()
    assert send(admin, upload, 10, CONTENT[10:20]).code == "payload_missing"
    assert admin.submit(of(partner, whole)).code == "payload_missing"
    assert admin.get(f"/uploads/{upload}").json["received"] == 10
