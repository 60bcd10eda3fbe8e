"""What waits on a pair as a ZIP file: a copy before it is skipped."""

from __future__ import annotations

import csv
import io
import zipfile

import pytest

from messaging.exceptions import NotFound, WrongState
from messaging.journal.audit import Actor
from messaging.messages import masks
from messaging.models import AuditEntry, Message, Payload
from messaging.pairs.services import exporting
from rmhub.ids import uuid7
from rmhub.roles import Role
from tests.messaging.factories import REFUSED, PartnerSide, link, partner_side, submit, work

pytestmark = pytest.mark.django_db

ANN = Actor("ann", "console")


def stuck(count: int = 3) -> PartnerSide:
    side = partner_side()
    for number in range(count):
        submit(side, b"<Order>%d</Order>" % number)
    with link(REFUSED):
        work()
    return side


def opened(export: exporting.Export) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(b"".join(export.chunks)))


def index(archive: zipfile.ZipFile) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(archive.read("index.csv").decode())))


def test_it_has_the_documents_in_their_order_and_an_index() -> None:
    side = stuck()
    export = exporting.pair_export(pair_id=side.outbound.pk, actor=ANN)
    archive = opened(export)
    rows = index(archive)
    messages = list(Message.objects.filter(pair=side.outbound).order_by("position"))
    assert [row["id"] for row in rows] == [message.public_id for message in messages]
    assert [archive.read(row["file"]) for row in rows] == [b"<Order>%d</Order>" % number for number in range(3)]
    assert rows[0]["sequence_number"] == "1" and rows[1]["sequence_number"] == ""
    assert rows[2]["sha256"] == Payload.objects.get(message=messages[2]).sha256
    assert archive.testzip() is None
    assert export.filename.endswith("-queue.zip") and ">" not in export.filename


def test_who_took_them_is_in_the_audit_log() -> None:
    side = stuck()
    list(exporting.pair_export(pair_id=side.outbound.pk, actor=ANN).chunks)
    entry = AuditEntry.objects.get(verb="pair.export")
    assert (entry.actor, entry.after["messages"]) == ("ann", 3)
    assert AuditEntry.objects.filter(verb="payload.read", actor="ann").count() == 3


def test_the_first_in_line_alone() -> None:
    side = stuck()
    rows = index(opened(exporting.pair_export(pair_id=side.outbound.pk, actor=ANN, which="head")))
    assert [row["place"] for row in rows] == ["1"]
    assert rows[0]["sequence_number"] == "1"


def test_a_file_that_is_missing_and_names_that_are_paths() -> None:
    side = stuck(2)
    first, second = Payload.objects.filter(message__pair=side.outbound).order_by("id")
    Payload.objects.filter(pk=first.pk).update(content=None, stored_as="ab/gone")
    Payload.objects.filter(pk=second.pk).update(filename="../../etc/passwd")
    Message.objects.filter(pk=second.message_id).update(message_id="=cmd()@us")
    archive = opened(exporting.pair_export(pair_id=side.outbound.pk, actor=ANN))
    rows = index(archive)
    assert rows[0]["file"].startswith("(") and rows[0]["sha256"] == first.sha256
    assert rows[1]["file"] == "00002/1-etc-passwd"
    assert rows[1]["message_id"] == "'=cmd()@us"
    assert not any(".." in name or name.startswith("/") for name in archive.namelist())


def test_what_is_covered_for_a_role_is_covered_in_the_file() -> None:
    side = partner_side()
    submit(side, b"<Order><Iban>DE02120300000000202051</Iban></Order>")
    masks.mask_create(actor=ANN, reason="privacy", name="IBAN", kind="xml", path="//Iban", visible_to="admin")
    taken = {
        role: opened(exporting.pair_export(pair_id=side.outbound.pk, actor=ANN, role=role))
        for role in (None, Role.ADMIN)
    }
    name = index(taken[Role.ADMIN])[0]["file"]
    assert b"DE0212" not in taken[None].read(name)
    assert b"DE0212" in taken[Role.ADMIN].read(name)


def test_nothing_to_export_is_said() -> None:
    side = partner_side()
    with pytest.raises(WrongState, match="nothing to export"):
        exporting.pair_export(pair_id=side.outbound.pk, actor=ANN)
    with pytest.raises(NotFound):
        exporting.pair_export(pair_id=uuid7(), actor=ANN)
    assert not AuditEntry.objects.filter(verb="pair.export").exists()
