"""Atomic triggers and their members: what may be set, and that a member's service is reached by one way only."""

from __future__ import annotations

from typing import Any

import pytest

from messaging import applications
from messaging.deliveries.services import triggering
from messaging.engine import subscriptions
from messaging.exceptions import InvalidSubmission, WrongState
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Trigger
from partners.models import Agreement
from rmhub.roles import Role
from tests.messaging.console.scenes import browser
from tests.messaging.profiles.wsat.kit import peer
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db
ANN, WHY = Actor("ann"), "as agreed"
URL = "http://orders.internal:8080/documents"


def make(name: str, **values: Any) -> Trigger:
    return triggering.trigger_create(actor=ANN, reason=WHY, name=name, **values)[0]


def change(trigger: Trigger, **values: Any) -> Trigger:
    return triggering.trigger_update(trigger_id=trigger.pk, actor=ANN, reason=WHY, **values)


def wanted() -> set[str]:
    subscriptions.current.forget()
    return set(
        Trigger.objects.filter(pk__in=[one.trigger_id for one in subscriptions.current()]).values_list(
            "name", flat=True
        )
    )


@pytest.fixture
def whole() -> Trigger:
    return make("books and stock", kind="atomic")


@pytest.fixture
def agreement() -> Agreement:
    return Agreement.objects.get(pk=peer().terms.agreement_id)


@pytest.fixture
def member(whole: Trigger, agreement: Agreement) -> Trigger:
    return make("stock", kind="http", url=URL, member_of_id=whole.pk, atomic_agreement_id=agreement.pk)


def test_a_member_has_no_documents_of_its_own(whole: Trigger, member: Trigger) -> None:
    assert wanted() == {"books and stock"}
    assert list(whole.members.all()) == [member]


@pytest.mark.parametrize(
    ("values", "field", "sentence"),
    [
        ({"answers": True}, "answers", "no single answer"),
        ({"use_history": False}, "use_history", "document history"),
        ({"detect_duplicates": False}, "use_history", "document history"),
        ({"url": URL}, "url", "the kind “http” only"),
    ],
)
def test_settings_that_an_atomic_trigger_cannot_have(values: dict[str, Any], field: str, sentence: str) -> None:
    with pytest.raises(InvalidSubmission) as refused:
        make("whole", kind="atomic", **values)
    assert sentence in refused.value.errors[field][0]


@pytest.mark.parametrize(
    ("values", "field", "sentence"),
    [
        ({"atomic_agreement_id": None}, "atomic_agreement", "profile wsat"),
        ({"kind": "pull", "url": "", "atomic_agreement_id": None}, "member_of", "HTTP service or a callable"),
        ({"kind": "atomic", "url": "", "atomic_agreement_id": None}, "member_of", "HTTP service or a callable"),
        ({"documents": [{"service": "urn:orders", "action": "*"}]}, "documents", "says which documents"),
        ({"monitor": "http", "monitor_url": URL}, "member_of", "a resource monitor"),
        ({"answers": True, "silent_after": 60}, "member_of", "answers to synchronous exchanges, silence"),
        ({"kind": "callable", "url": "", "callable_name": "books"}, "atomic_agreement", "leave it open"),
    ],
)
def test_settings_that_a_member_cannot_have(
    whole: Trigger,
    agreement: Agreement,
    monkeypatch: pytest.MonkeyPatch,
    values: dict[str, Any],
    field: str,
    sentence: str,
) -> None:
    monkeypatch.setitem(applications.SERVICES, "books", lambda document: None)
    right = {"kind": "http", "url": URL, "member_of_id": whole.pk, "atomic_agreement_id": agreement.pk}
    with pytest.raises(InvalidSubmission) as refused:
        make("member", **right | values)
    assert sentence in refused.value.errors[field][0]


def test_only_an_atomic_trigger_has_members(agreement: Agreement) -> None:
    other = make("alone", kind="http", url=URL)
    with pytest.raises(InvalidSubmission) as refused:
        make("member", kind="http", url=URL, member_of_id=other.pk, atomic_agreement_id=agreement.pk)
    assert "not of the kind" in refused.value.errors["member_of"][0]


def test_an_agreement_of_another_profile_is_none_to_take_part_under(whole: Trigger) -> None:
    other = make_agreement().agreement
    with pytest.raises(InvalidSubmission) as refused:
        make("member", kind="http", url=URL, member_of_id=whole.pk, atomic_agreement_id=other.pk)
    assert "profile wsat" in refused.value.errors["atomic_agreement"][0]


def test_two_members_take_part_under_agreements_of_their_own(
    whole: Trigger, agreement: Agreement, member: Trigger
) -> None:
    settings = {"kind": "http", "url": URL, "atomic_agreement_id": agreement.pk}
    with pytest.raises(InvalidSubmission) as caught:
        make("books", member_of_id=whole.pk, **settings)
    (sentence,) = caught.value.errors["atomic_agreement"]
    assert sentence.startswith("stock takes part in books and stock under")
    assert "each member needs an agreement of its own" in sentence

    other = make("books", member_of_id=whole.pk, **settings | {"atomic_agreement_id": peer().terms.agreement_id})
    with pytest.raises(InvalidSubmission) as caught:
        change(other, atomic_agreement_id=agreement.pk)
    assert caught.value.errors["atomic_agreement"] == [sentence]
    change(member, url="http://orders.internal:8080/others")  # itself is not in its own way
    make("elsewhere", member_of_id=make("another", kind="atomic").pk, **settings)


def test_what_took_documents_by_itself_is_disabled_before_it_becomes_a_member(
    whole: Trigger, agreement: Agreement
) -> None:
    alone = make("alone", kind="http", url=URL)
    with pytest.raises(InvalidSubmission) as refused:
        change(alone, member_of_id=whole.pk, atomic_agreement_id=agreement.pk)
    assert "disable it first" in refused.value.errors["member_of"][0]
    triggering.trigger_disable(trigger_id=alone.pk, actor=ANN, reason=WHY)
    assert change(alone, member_of_id=whole.pk, atomic_agreement_id=agreement.pk).state == "active"
    assert wanted() == {"books and stock"}


def test_taken_away_it_is_disabled_and_does_not_take_every_document(whole: Trigger, member: Trigger) -> None:
    assert triggering.allowed_verbs(member) == ("leave",)
    with pytest.raises(WrongState, match="only that can be suspended"):
        triggering.trigger_suspend(trigger_id=member.pk, actor=ANN, reason=WHY)
    left = triggering.trigger_leave(trigger_id=member.pk, actor=ANN, reason=WHY)
    assert (left.state, left.member_of_id, left.atomic_agreement_id) == ("disabled", None, None)
    assert wanted() == {"books and stock"}
    entry = AuditEntry.objects.latest("id")
    assert (entry.verb, entry.before) == ("trigger.leave", {"member_of": "books and stock"})
    with pytest.raises(WrongState, match="not a member"):
        triggering.trigger_leave(trigger_id=member.pk, actor=ANN, reason=WHY)


def test_a_trigger_with_members_keeps_its_kind(whole: Trigger, member: Trigger) -> None:
    with pytest.raises(InvalidSubmission) as refused:
        change(whole, kind="http", url=URL)
    assert "remove them" in refused.value.errors["kind"][0]


@pytest.mark.usefixtures("member")
def test_members_on_the_pages(whole: Trigger) -> None:
    admin = browser(Role.ADMIN)
    page = admin.get(f"/triggers/{whole.public_id}/").content.decode()
    assert "Members" in page and "stock" in page and f"member_of={whole.public_id}" in page
    form = admin.get(f"/triggers/new/?member_of={whole.public_id}").content.decode()
    assert f'<option value="{whole.public_id}" selected' in form
    member = Trigger.objects.get(name="stock")
    page = admin.get(f"/triggers/{member.public_id}/").content.decode()
    assert "Member of" in page and "What books and stock takes" in page
    dialog = admin.get(f"/triggers/{member.public_id}/actions/leave/").content.decode()
    assert "It is disabled" in dialog
