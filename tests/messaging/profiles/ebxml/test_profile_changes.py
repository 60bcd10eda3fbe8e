"""X06: how a pair sends is changed only when nothing is on its way; and what slips in meanwhile still gets through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from messaging.engine import pairs
from messaging.exceptions import WrongState
from messaging.journal.audit import Actor
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import AuditEntry, Message
from messaging.onboarding.services import changing as onboarding
from messaging.pairs.services import operating
from partners import registry, services
from partners.models import AgreementVersion
from tests.messaging.factories import LOST, Link, PartnerSide, answered, link, partner_side, submit, work
from tests.partners.factories import make_endpoint

pytestmark = pytest.mark.django_db
ANA = Actor("ana", "console")


@pytest.fixture
def wire() -> Iterator[Link]:
    with link(answered()) as found:
        yield found


def draft(side: PartnerSide, **terms: Any) -> AgreementVersion:
    before = AgreementVersion.objects.get(pk=side.terms.version_id)
    made = services.version_new(agreement=before.agreement)
    return services.version_edit(version=made, **terms)


def activate(version: AgreementVersion) -> AgreementVersion:
    try:
        return onboarding.version_activate(
            agreement_id=version.agreement_id, number=version.number, actor=ANA, reason="New terms agreed."
        )
    finally:
        registry.reset()


def other_endpoint(side: PartnerSide) -> dict[str, Any]:
    return {"partner_endpoint": make_endpoint(AgreementVersion.objects.get(pk=side.terms.version_id).agreement.partner)}


CHANGES = {
    "to requests": ({}, lambda side: {"profile": "repeatable"}),
    "to a stream": ({}, lambda side: {"profile": "stream"}),
    "from a stream": ({"profile": "stream"}, lambda side: {"profile": "ebxml"}),
    "to ebXML": ({"profile": "repeatable"}, lambda side: {"profile": "ebxml"}),
    "other endpoints": ({}, other_endpoint),
    "other endpoints of requests": ({"profile": "repeatable"}, other_endpoint),
    "no order": ({"profile": "repeatable", "ordered": True}, lambda side: {"ordered": False}),
}


@pytest.mark.parametrize(("before", "change"), CHANGES.values(), ids=CHANGES)
def test_x06_refused_until_the_pair_is_drained(before: dict[str, Any], change: Any, wire: Link) -> None:
    side = partner_side(**before)
    message = submit(side)
    wire.answer = LOST
    work()
    version = draft(side, **change(side))
    with pytest.raises(WrongState) as caught:
        activate(version)
    assert caught.value.code == "pair_not_drained"
    assert "1 message of this agreement is still open on" in caught.value.detail
    assert registry.current().by_tpa_id(side.terms.tpa_id).number == 1
    assert not AuditEntry.objects.filter(verb="agreement.activate").exists()
    operating.message_cancel(message_id=message.pk, actor=ANA, reason="Not needed any more.")
    assert activate(version).state == "active"
    entry = AuditEntry.objects.get(verb="agreement.activate")
    assert (entry.actor, entry.before["state"], entry.after["state"]) == ("ana", "draft", "active")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"timeout": 90}),
        ({"profile": "repeatable"}, {"partner_window": 7200, "repeat_interval": 30}),
        ({"profile": "repeatable"}, {"ordered": True}),
        ({"profile": "repeatable"}, {"max_in_flight": 2}),
        ({"profile": "stream"}, {"max_in_flight": 32, "resend_schedule": "60,600"}),
    ],
)
def test_x06_other_terms_can_change_at_any_time(before: dict[str, Any], after: dict[str, Any], wire: Link) -> None:
    side = partner_side(**before)
    submit(side)
    assert activate(draft(side, **after)).state == "active"


def test_x06_a_message_in_doubt_is_at_its_end(wire: Link) -> None:
    """A person settles it whatever the pair has become."""
    side = partner_side(profile="repeatable")
    message = submit(side)
    wire.answer = answered(412, "rejected")
    work()
    assert activate(draft(side, profile="ebxml")).state == "active"
    message.refresh_from_db()
    assert message.state == "in_doubt"


@pytest.mark.parametrize(("first", "second"), [("ebxml", "repeatable"), ("repeatable", "ebxml")])
def test_a_straggler_of_the_profile_before_is_sent_as_it_was_submitted(first: str, second: str, wire: Link) -> None:
    """Another process may have taken it in the moment before it knew of the new version."""
    side = partner_side(profile=first)
    wire.answer = LOST
    straggler = submit(side)
    work()
    assert Message.objects.get(pk=straggler.pk).state in ("sending", "retrying", "awaiting_ack")
    services.version_activate(version=draft(side, profile=second))  # below the check of `onboarding`
    registry.reset()
    pairs.reset()
    message_submit(
        agreement=side.terms.tpa_id,
        service="urn:orders",
        action="NewOrder",
        payloads=[NewPayload(b"<New/>", "application/xml")],
    )
    work()
    # The new one waits for the end of the old one, and goes out in its own way after it.
    assert len(wire.parcels) == 1
    operating.message_cancel(message_id=straggler.pk, actor=ANA, reason="Drained by hand.")
    wire.answer = answered()
    work()
    assert len(wire.parcels) == 2
    sent = dict(wire.last.headers)
    assert ("Repeatability-Request-ID" in sent) == (second == "repeatable")
    assert wire.last.content_type.startswith("application/xml" if second == "repeatable" else "multipart/related")
