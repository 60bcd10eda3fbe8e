"""POST /messages: stored before it is answered, once for each Idempotency-Key."""

from __future__ import annotations

import base64
import hashlib
import threading
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart

from messaging.journal.audit import Actor
from messaging.models import Event, Message, Payload
from messaging.pairs.services import operating
from rmhub.roles import Role
from tests.messaging.api.client import PROBLEM, Answer, Api, make_token, make_user, submission, suspended
from tests.messaging.factories import ACTION, SERVICE, PartnerSide, partner_side

pytestmark = pytest.mark.django_db


def form(api: Api, partner: PartnerSide, key: str = "form-1", **fields: Any) -> Answer:
    data = {"agreement": partner.terms.tpa_id, "service": SERVICE, "action": ACTION, **fields}
    octets = encode_multipart(BOUNDARY, data)
    return api.call("POST", "/messages", octets, Idempotency_Key=key, Content_Type=MULTIPART_CONTENT)


def test_a_document_is_accepted(admin: Api, partner: PartnerSide) -> None:
    content = b"<Order>\xc3\xa4</Order>"
    payload = {
        "content_base64": base64.b64encode(content).decode(),
        "content_type": "application/xml",
        "filename": "order.xml",
        "label": "PO",
        "sha256": hashlib.sha256(content).hexdigest().upper(),
    }
    body = submission(
        partner, payloads=[payload], conversation_id="c-77", message_id="inv-9@acme", ref_to_message_id="r"
    )
    answer = admin.submit(body)
    assert answer.status == 202
    message = Message.objects.get()
    assert answer.headers["location"] == f"/api/v1/messages/{message.public_id}"
    assert answer.json == {
        "id": message.public_id,
        "state": "queued",
        "message_id": "inv-9@acme",
        "document_id": "inv-9@acme",
        "conversation_id": "c-77",
        "ref_to_message_id": "r",
        "agreement": answer.json["agreement"],
        "pair": {"id": partner.outbound.public_id, "code": partner.outbound.code},
        "service": SERVICE,
        "action": ACTION,
        "semantics": "OnceAndOnlyOnce",
        "position": 1,
        "size": len(content),
        "created_at": answer.json["created_at"],
        "warnings": [],
    }
    assert answer.json["agreement"]["tpa_id"] == partner.terms.tpa_id
    stored = Payload.objects.get()
    assert (bytes(stored.content), stored.filename, stored.label) == (content, "order.xml", "PO")
    assert message.submitted_by.startswith("admin")
    # The ETag is that of the message, so that the first look costs nothing if nothing happened.
    assert admin.get(answer.headers["location"].removeprefix("/api/v1"), If_None_Match=answer.etag).status == 304


def test_a_form_with_files_is_the_same(admin: Api, partner: PartnerSide) -> None:
    files = [
        SimpleUploadedFile("order.xml", b"<Order/>", "application/xml"),
        SimpleUploadedFile("drawing.bin", bytes(range(256)), "application/octet-stream"),
    ]
    answer = form(admin, partner, payload=files, label=["PO", "Drawing"], conversation_id="c-1")
    assert answer.status == 202, answer.json
    rows = list(Payload.objects.order_by("number").values_list("filename", "content_type", "label", "size"))
    assert rows == [
        ("order.xml", "application/xml", "PO", 8),
        ("drawing.bin", "application/octet-stream", "Drawing", 256),
    ]
    assert bytes(Payload.objects.get(number=2).content) == bytes(range(256))


def test_a_message_of_a_stream_may_say_how_long_it_lives(admin: Api) -> None:
    side = partner_side(profile="stream", time_to_live=3600, memory_window=86_400)
    assert admin.submit(submission(side, time_to_live=60)).status == 202
    file = SimpleUploadedFile("order.xml", b"<Order/>", "application/xml")
    assert form(admin, side, payload=file, time_to_live="60").status == 202
    lives = {message.expires_at - message.created_at for message in Message.objects.all()}  # type: ignore[operator]
    assert all(59 < life.total_seconds() < 61 for life in lives)
    for wrong, code in ((0, "min_value"), ("60", "invalid"), (True, "invalid"), (3601, "invalid")):
        answer = admin.submit(submission(side, time_to_live=wrong), key=f"wrong-{wrong}")
        assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "#/time_to_live"), wrong
        assert answer.json["errors"][0]["code"] == code


def test_a_full_queue_says_when_to_come_again(admin: Api, partner: PartnerSide, settings: Any) -> None:
    settings.RMHUB_PAIR_QUEUE = 1
    assert admin.submit(submission(partner), "key-1").status == 202
    refused = admin.submit(submission(partner), "key-2")
    assert (refused.status, refused.code, refused.json["retryable"]) == (429, "pair_queue_full", True)
    assert refused.headers["retry-after"] == "60"
    settings.RMHUB_PAIR_QUEUE = 2
    assert admin.submit(submission(partner), "key-2").status == 202


def test_a_form_says_what_is_wrong(admin: Api, partner: PartnerSide) -> None:
    file = SimpleUploadedFile("order.xml", b"<Order/>", "application/xml")
    assert form(admin, partner).json["errors"][0]["pointer"] == "#/payload"
    assert form(admin, partner, payload="text").json["errors"][0]["pointer"].startswith("#/payload")
    labels = form(admin, partner, payload=file, label=["a", "b"])
    assert (labels.status, labels.json["errors"][0]["pointer"]) == (422, "#/label")
    file.seek(0)
    unknown = form(admin, partner, payload=file, priority="high")
    assert (unknown.json["errors"][0]["pointer"], unknown.json["errors"][0]["code"]) == ("#/priority", "unknown_field")
    assert not Message.objects.exists()


def test_a_repeat_answers_the_first_receipt(admin: Api, partner: PartnerSide) -> None:
    body = submission(partner)
    first = admin.submit(body, "key-1")
    assert "idempotent-replayed" not in first.headers
    operating.pair_pause(pair_id=partner.outbound.pk, actor=Actor("test"), reason="maintenance")
    message = Message.objects.get()
    Message.objects.update(state="delivered")
    for again in (admin.submit(body, "key-1"), admin.post("/messages", body, Idempotency_Key="key-1")):
        assert (again.status, again.headers["idempotent-replayed"]) == (202, "true")
        assert again.json == first.json
        assert again.headers["location"] == first.headers["location"]
    assert Message.objects.get().pk == message.pk
    assert Event.objects.filter(type="message.accepted").count() == 1


def test_a_key_names_one_submission(admin: Api, partner: PartnerSide) -> None:
    admin.submit(submission(partner), "key-1")
    for change in ({"action": "ChangeOrder"}, {"payloads": [{"content_base64": "eA=="}]}, {"conversation_id": "c"}):
        answer = admin.submit(submission(partner, **change), "key-1")
        assert (answer.status, answer.code) == (422, "idempotency_key_reused")
    assert Message.objects.count() == 1


def test_keys_belong_to_the_owner_of_the_token(partner: PartnerSide) -> None:
    alice, bob = make_user(Role.OPERATOR), make_user(Role.OPERATOR)
    body = submission(partner)
    first = Api(make_token(alice)).submit(body, "k")
    replaced = Api(make_token(alice, name="another")).submit(body, "k")
    other = Api(make_token(bob)).submit(body, "k")
    assert replaced.json["id"] == first.json["id"]
    assert other.json["id"] != first.json["id"]


@pytest.mark.parametrize("key", ["", '""', "a b", "ä", "x" * 256, "\x7f"])
def test_a_key_is_needed(admin: Api, partner: PartnerSide, key: str) -> None:
    answer = admin.post("/messages", submission(partner), Idempotency_Key=key)
    code = "invalid_header" if key else "idempotency_key_missing"
    assert (answer.status, answer.code) == (400, code)
    assert admin.post("/messages", submission(partner)).code == "idempotency_key_missing"
    assert admin.post("/messages", b'{"agreement": ').code == "malformed_body"


def test_a_message_id_goes_out_once(admin: Api, partner: PartnerSide) -> None:
    first = admin.submit(submission(partner, message_id="inv-9@acme"))
    answer = admin.submit(submission(partner, message_id="inv-9@acme"))
    assert (answer.status, answer.code) == (409, "duplicate_message_id")
    identifier = first.json["id"]
    assert answer.json["existing"] == {"id": identifier, "href": f"/api/v1/messages/{identifier}"}


def test_a_stopped_pair_takes_it_and_warns(admin: Api, partner: PartnerSide) -> None:
    suspended(partner)
    answer = admin.submit(submission(partner))
    assert answer.status == 202
    assert [warning["code"] for warning in answer.json["warnings"]] == ["pair_suspended"]


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"agreement": "tpa:nobody"}, "#/agreement", "unknown_agreement"),
        ({"agreement": 7}, "#/agreement", "invalid"),
        ({"service": "urn:unknown"}, "#/service", "outside_agreement"),
        ({"service": ""}, "#/service", "blank"),
        ({"service": None}, "#/service", "null"),
        ({"action": "x" * 256}, "#/action", "max_length"),
        ({"message_id": " a"}, "#/message_id", "invalid"),
        ({"message_id": "<a@b>"}, "#/message_id", "invalid"),
        ({"message_id": "a\x00b"}, "#/message_id", "null_characters_not_allowed"),
        ({"message_id": "\ud800"}, "#/message_id", "surrogate_characters_not_allowed"),
        ({"semantics": "Sometimes"}, "#/semantics", "invalid_choice"),
        ({"expires_at": "2026-11-22T10:00:00Z"}, "#/expires_at", "unknown_field"),
        ({"time_to_live": 60}, "#/time_to_live", "invalid"),  # no stream
        ({"\ud800": 1}, "#/?", "unknown_field"),
        ({"a/b~c": 1}, "#/a~1b~0c", "unknown_field"),
        ({"payloads": []}, "#/payloads", "empty"),
        ({"payloads": "x"}, "#/payloads", "not_a_list"),
        ({"payloads": [7]}, "#/payloads/0", "invalid"),
        ({"payloads": [{"content_base64": "PA=="}, {}]}, "#/payloads/1/content_base64", "required"),
        ({"payloads": [{"content_base64": "!"}]}, "#/payloads/0/content_base64", "invalid"),
        ({"payloads": [{"content_base64": "PA==", "sha256": "0" * 64}]}, "#/payloads/0/sha256", "digest_mismatch"),
        ({"payloads": [{"content_base64": "PA==", "content_type": "xml"}]}, "#/payloads", "invalid"),
        ({"payloads": [{"content_base64": "PA==", "colour": 1}]}, "#/payloads/0/colour", "unknown_field"),
        ({"payloads": [{"content_base64": "PA=="}] * 1001}, "#/payloads", "max_length"),
    ],
)
def test_what_is_wrong_is_pointed_at(
    admin: Api, partner: PartnerSide, change: dict[str, Any], pointer: str, code: str
) -> None:
    answer = admin.submit(submission(partner, **change))
    assert answer.status == 422
    assert answer.code in ("invalid_submission", "unknown_agreement", "outside_agreement")
    assert (pointer, code) in [(error["pointer"], error["code"]) for error in answer.json["errors"]], answer.json
    assert all(error["detail"] for error in answer.json["errors"])
    assert not Message.objects.exists()


def test_all_that_is_wrong_is_said_at_once(admin: Api) -> None:
    answer = admin.submit({"payloads": [{}], "x": 1})
    pointers = {error["pointer"] for error in answer.json["errors"]}
    assert pointers == {"#/agreement", "#/service", "#/action", "#/payloads/0/content_base64", "#/x"}


def test_bodies_are_bounded_before_they_are_read(admin: Api, partner: PartnerSide, settings: Any) -> None:
    settings.RMHUB_MAX_MESSAGE_BYTES = 1024
    body = submission(partner, payloads=[{"content_base64": base64.b64encode(b"x" * 2048).decode()}])
    answer = admin.submit(body)
    assert (answer.status, answer.code) == (413, "message_too_large")
    # Declared and never sent: whoever waited for it would wait for ever.
    headers = {"Authorization": f"Bearer {admin.token}", "Idempotency-Key": "k", "Content-Length": "99999999999"}
    huge = Client().generic("POST", "/api/v1/messages", b"{", content_type="application/json", headers=headers)
    assert (huge.status_code, huge.json()["code"], huge["Content-Type"]) == (413, "body_too_large", PROBLEM)
    assert not Message.objects.exists()


@pytest.mark.parametrize("as_form", [False, True])
def test_large_documents_within_the_limit_are_taken(admin: Api, partner: PartnerSide, as_form: bool) -> None:
    """Larger than DATA_UPLOAD_MAX_MEMORY_SIZE (2.5 MB) and FILE_UPLOAD_MAX_MEMORY_SIZE."""
    content = bytes(range(256)) * 4 * 4096
    if as_form:
        answer = form(admin, partner, payload=SimpleUploadedFile("big.bin", content, "application/octet-stream"))
    else:
        body = submission(partner, payloads=[{"content_base64": base64.b64encode(content).decode()}])
        answer = admin.submit(body)
    assert answer.status == 202, answer.json
    assert Payload.objects.get().sha256 == hashlib.sha256(content).hexdigest()
    path = f"/messages/{answer.json['id']}/payloads/1"
    assert admin.get(path).content == content


def test_a_form_of_a_console_session(partner: PartnerSide, settings: Any) -> None:
    """The check of the CSRF token reads the form before the API does."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user(Role.OPERATOR, "olga"))
    client.get("/api/v1/docs")
    file = SimpleUploadedFile("order.xml", b"<Order/>", "application/xml")
    fields = {"agreement": partner.terms.tpa_id, "service": SERVICE, "action": ACTION, "payload": file}
    headers = {"Idempotency-Key": "k", "X-CSRFToken": client.cookies["csrftoken"].value}
    answer = client.post("/api/v1/messages", fields, headers=headers)
    assert answer.status_code == 202, answer.json()
    assert Message.objects.get().submitted_by == "olga"
    file.seek(0)
    assert client.post("/api/v1/messages", fields, headers={"Idempotency-Key": "k2"}).json()["code"] == "csrf_failed"
    settings.RMHUB_MAX_MESSAGE_BYTES = 1024
    fields["payload"] = SimpleUploadedFile("order.xml", b"x" * 2_000_000, "application/xml")
    assert client.post("/api/v1/messages", fields, headers=headers).json()["code"] == "body_too_large"


def test_chunked_bodies_are_asked_for_their_length(admin: Api) -> None:
    answer = admin.call("POST", "/messages", None, Idempotency_Key="k", Transfer_Encoding="chunked")
    assert (answer.status, answer.code) == (411, "length_required")


def test_a_submission_costs_a_fixed_number_of_queries(admin: Api, partner: PartnerSide) -> None:
    from django.test.utils import CaptureQueriesContext

    admin.submit(submission(partner))
    counts = []
    for number in (1, 5):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            admin.submit(submission(partner, payloads=[{"content_base64": "PA=="}] * number))
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 9, [query["sql"][:90] for query in queries.captured_queries]


@pytest.mark.django_db(transaction=True)
def test_the_same_key_at_the_same_moment_stores_one_message(partner: PartnerSide) -> None:
    token = make_token(make_user(Role.OPERATOR))
    body = submission(partner)
    start = threading.Barrier(8)
    answers: list[Answer] = []

    def submit() -> None:
        api = Api(token)
        start.wait()
        try:
            answers.append(api.submit(body, "same-key"))
        finally:
            connection.close()

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [202] * 8
    assert len({answer.json["id"] for answer in answers}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    assert Message.objects.count() == 1
    assert partner.outbound.queued == 1


@pytest.mark.django_db(transaction=True)
def test_the_same_key_with_another_document_at_the_same_moment(partner: PartnerSide) -> None:
    token = make_token(make_user(Role.OPERATOR))
    start = threading.Barrier(6)
    answers: list[Answer] = []

    def submit(number: int) -> None:
        start.wait()
        try:
            answers.append(Api(token).submit(submission(partner, conversation_id=f"c-{number}"), "same-key"))
        finally:
            connection.close()

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status for answer in answers) == [202, 422, 422, 422, 422, 422]
    assert Message.objects.count() == 1
