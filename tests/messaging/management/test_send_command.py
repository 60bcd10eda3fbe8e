"""`manage.py send`: a document handed over from the command line, or a sentence that says why not."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from messaging.models import Message, Pair, Payload
from tests.messaging.factories import PartnerSide, decoded, link, partner_side, work
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db


@pytest.fixture
def order(tmp_path: Path) -> Path:
    path = tmp_path / "order 1.xml"
    path.write_bytes(b"<Order/>")
    return path


@pytest.fixture
def partner() -> PartnerSide:
    return partner_side(make_agreement(allowed=[("urn:orders", "New", "send"), ("urn:orders", "Back", "receive")]))


def send(path: Path, *arguments: str) -> tuple[str, str]:
    """(standard output, standard error)."""
    out, err = io.StringIO(), io.StringIO()
    call_command("send", str(path), *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def refused(path: Path, *arguments: str) -> str:
    with pytest.raises(CommandError) as error:
        send(path, *arguments)
    assert error.value.returncode == 2
    assert not Message.objects.exists()
    return str(error.value)


def test_a_file_is_stored_with_what_the_agreement_leaves_no_choice_about(order: Path, partner: PartnerSide) -> None:
    out, err = send(order, "--agreement", partner.terms.tpa_id)
    message, payload = Message.objects.get(), Payload.objects.get()
    assert (message.state, message.service, message.action) == ("queued", "urn:orders", "New")
    assert message.submitted_by.startswith("command:")
    assert (payload.filename, payload.content_type, payload.label) == ("order 1.xml", "application/xml", "New")
    assert message.public_id in out
    assert message.message_id in out
    assert err == ""
    with link() as wire:
        work()
    assert decoded(wire.last).payloads[0].content == b"<Order/>"


def test_what_is_named_is_taken(order: Path, partner: PartnerSide) -> None:
    out, _ = send(
        order,
        *("--agreement", partner.terms.tpa_id, "--service", "urn:orders", "--action", "New", "--json"),
        *("--content-type", "text/plain", "--message-id", "m@x", "--conversation-id", "c"),
    )
    message = Message.objects.get()
    assert json.loads(out) == {
        "id": message.public_id,
        "message_id": "m@x",
        "document_id": "m@x",
        "state": "queued",
    }
    assert (message.conversation_id, Payload.objects.get().content_type) == ("c", "text/plain")


def test_an_unknown_kind_of_file_is_octets(tmp_path: Path, partner: PartnerSide) -> None:
    path = tmp_path / "data.unknownkind"
    path.write_bytes(b"\x00\xff")
    send(path, "--agreement", partner.terms.tpa_id)
    assert Payload.objects.get().content_type == "application/octet-stream"


def test_a_long_action_is_no_reason_to_refuse(order: Path) -> None:
    partner = partner_side(make_agreement(allowed=[("urn:orders", "A" * 200, "send")]))
    send(order, "--agreement", partner.terms.tpa_id)
    assert Payload.objects.get().label == "A" * 120


def test_a_pair_that_is_held_is_said(order: Path, partner: PartnerSide) -> None:
    Pair.objects.filter(pk=partner.outbound.pk).update(gate="paused")
    _, err = send(order, "--agreement", partner.terms.tpa_id)
    assert "paused" in err


def test_what_is_wrong_is_said(order: Path, tmp_path: Path, partner: PartnerSide) -> None:
    tpa_id = partner.terms.tpa_id
    assert "none.xml: No such file" in refused(tmp_path / "none.xml", "--agreement", tpa_id)
    assert "directory" in refused(tmp_path, "--agreement", tpa_id)
    assert "'tpa:none' is active" in refused(order, "--agreement", "tpa:none")
    assert "outside_agreement" in refused(order, "--agreement", tpa_id, "--action", "Other")
    assert "message_id" in refused(order, "--agreement", tpa_id, "--message-id", "a b")


def test_where_there_is_a_choice_it_must_be_made(order: Path) -> None:
    two = partner_side(make_agreement(allowed=[("urn:a", "New", "send"), ("urn:b", "New", "both")]))
    assert "--service: urn:a, urn:b" in refused(order, "--agreement", two.terms.tpa_id)
    actions = partner_side(make_agreement(allowed=[("urn:a", "New", "send"), ("urn:a", "Old", "send")]))
    assert "--action: New, Old" in refused(order, "--agreement", actions.terms.tpa_id)
    every = partner_side(make_agreement(allowed=[("urn:a", "*", "send")]))
    assert "Name the action with --action." in refused(order, "--agreement", every.terms.tpa_id)
    none = partner_side(make_agreement(allowed=[("urn:a", "New", "receive")]))
    assert "lets us send nothing" in refused(order, "--agreement", none.terms.tpa_id)
