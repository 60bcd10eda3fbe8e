"""Resubmitting, redelivering, relatives and the ZIP of a message's documents, over the API."""

from __future__ import annotations

import io
import zipfile

import pytest

from messaging.models import AuditEntry, Message
from tests.messaging.api.client import REASON, Api
from tests.messaging.console.scenes import delivered, trigger_for
from tests.messaging.factories import PartnerSide, submit

pytestmark = pytest.mark.django_db


def test_a_message_is_resubmitted_once_for_a_key(admin: Api, partner: PartnerSide) -> None:
    old = delivered(partner)[0]
    path = f"/messages/{old.public_id}/resubmit"
    assert admin.get(f"/messages/{old.public_id}").json["allowed_actions"] == ["resubmit"]
    assert admin.post(path, REASON).code == "idempotency_key_missing"
    first = admin.post(path, REASON, Idempotency_Key="k-1")
    assert first.status == 202, first.json
    again = admin.post(path, REASON, Idempotency_Key="k-1")
    assert (again.status, again.json["id"]) == (202, first.json["id"])
    assert again.headers["idempotent-replayed"] == "true"
    made = admin.get(f"/messages/{first.json['id']}").json
    assert made["resubmitted_from"] == old.public_id
    related = admin.get(f"/messages/{old.public_id}/related").json
    assert [one["id"] for one in related["resubmitted_as"]] == [first.json["id"]]
    assert [one["id"] for one in related["conversation"]] == [first.json["id"]]
    assert related["next"]["id"] == first.json["id"] and related["previous"] is None


def test_what_waits_is_not_resubmitted(admin: Api, partner: PartnerSide) -> None:
    one = submit(partner)
    answer = admin.post(f"/messages/{one.public_id}/resubmit", REASON, Idempotency_Key="k-1")
    assert (answer.status, answer.code, answer.json["current_state"]) == (409, "wrong_state", "queued")
    assert admin.post(f"/messages/{one.public_id}/resubmit", {"reason": "x"}, Idempotency_Key="k").status == 422
    assert admin.post("/messages/nobody/resubmit", REASON, Idempotency_Key="k").status == 404


def test_a_document_is_redelivered(admin: Api, partner: PartnerSide) -> None:
    partner.send(partner.message(1))
    one = Message.objects.get(direction="in")
    path = f"/messages/{one.public_id}/redeliver"
    assert admin.post(path, REASON).code == "wrong_state"
    trigger_for(partner, "late")
    answer = admin.post(path, REASON)
    assert answer.status == 200, answer.json
    assert len(answer.json["deliveries"]) == 1 and answer.json["left_out"] == []


def test_all_documents_come_as_one_file(admin: Api, partner: PartnerSide) -> None:
    one = submit(partner, b"<Invoice/>")
    answer = admin.get(f"/messages/{one.public_id}/documents")
    assert answer.status == 200
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == ["01-Order"]
        assert archive.read("01-Order") == b"<Invoice/>"
    assert answer.content == admin.get(f"/messages/{one.public_id}/documents").content
    assert AuditEntry.objects.filter(verb="payload.read", object_id=one.public_id).count() == 2
