"""A transport that writes to a folder is offered, checked, looked at, and brings messages there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from messaging.journal.audit import Actor
from messaging.models import Message, Transmission
from messaging.pairs.services import probing
from partners.models import Endpoint
from tests.messaging.api.client import REASON, Api
from tests.messaging.factories import ORDER, partner_side, submit, work
from tests.partners.factories import make_agreement, make_endpoint, make_party

pytestmark = pytest.mark.django_db


def test_it_is_offered(browser: Client, openapi: dict[str, Any]) -> None:
    form = browser.get(reverse("console:endpoint-new", args=[make_party().public_id])).content.decode()
    assert 'value="folder"' in form and "Folder" in form
    names = openapi["components"]["schemas"]["EndpointBodyRequest"]["properties"]["transport"]["enum"]
    assert names == ["http", "smtp", "sftp", "folder"]


def test_its_addresses_are_checked(admin: Api, tmp_path: Path) -> None:
    body = {"party": make_party().public_id, "transport": "folder", **REASON}
    wrong = admin.post("/endpoints", {**body, "uri": "https://files.example/"})
    assert [one["pointer"] for one in wrong.json["errors"]] == ["#/uri", "#/error_uri"]
    wrong = admin.post("/endpoints", {**body, "uri": tmp_path.as_uri(), "host_key": "SHA256:" + 43 * "x"})
    assert [one["pointer"] for one in wrong.json["errors"]] == ["#/host_key"]
    assert admin.post("/endpoints", {**body, "uri": tmp_path.as_uri()}).json["transport"] == "folder"


def test_messages_go_there(tmp_path: Path) -> None:
    folder = tmp_path / "outgoing"
    endpoint = make_endpoint(make_party(), folder.as_uri(), transport="folder")
    side = partner_side(
        make_agreement(partner=endpoint.party, partner_endpoint=endpoint, transport_retries=0, retry_interval=3600)
    )
    assert _looked(endpoint) == (False, [("folder", "failed")])
    message = submit(side)
    work()
    assert Transmission.objects.get(message=message).cause == "file_failed"
    folder.mkdir()
    assert _looked(endpoint) == (True, [("folder", "ok")])
    other = submit(side, semantics="BestEffort")
    work()
    (file,) = folder.iterdir()
    assert ORDER in file.read_bytes() and other.message_id.encode() in file.read_bytes()
    assert Message.objects.get(pk=other.pk).state == "sent"


def _looked(endpoint: Endpoint) -> tuple[bool, list[tuple[str, str]]]:
    report = probing.probe(endpoint_id=endpoint.pk, actor=Actor("ann"))
    return report.ok, [(step["name"], step["verdict"]) for step in report.steps]
