"""What contradicts what in the terms of ebXML Messaging 2.0."""

from __future__ import annotations

from typing import Any

import pytest

from partners import services
from partners.models import Credential
from partners.rules import BY_PROFILE
from tests.partners.factories import make_agreement, make_endpoint, make_party

pytestmark = pytest.mark.django_db

GOOD = {"profile": "ebms2", "retries": 3, "retry_interval": 300, "time_to_live": 0}


def codes(**terms: Any) -> set[str]:
    """The rules that an agreement with these terms breaks."""
    version = make_agreement(activate=False, **{**GOOD, **terms})
    return {problem.code for problem in services.version_validate(version=version)}


def test_the_terms_that_a_new_agreement_begins_with_contradict_nothing() -> None:
    assert codes() == codes(**BY_PROFILE["ebms2"].defaults) == set()


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        ({"retry_interval": 0}, "retry_interval_missing"),
        ({"semantics": "AtMostOnce"}, "retries_without_acknowledgement"),
        ({"partner_window": 1199}, "persist_duration_short"),
        ({"partner_window": 401 * 86_400}, "persist_duration_long"),
        ({"time_to_live": 300}, "time_to_live_before_retry"),
        ({"message_order": True, "semantics": "BestEffort", "retries": 0}, "order_without_once"),
        ({"message_order": True, "sync_reply": "mshSignalsOnly"}, "order_with_sync_reply"),
        ({"signatures": "messages", "signature_algorithm": "rsa-sha1"}, "signature_weak"),
        ({"signatures": "receipts", "semantics": "BestEffort", "retries": 0}, "receipts_without_acknowledgements"),
        ({"signatures": "messages"}, "own_signer_missing"),
        ({"signatures": "messages"}, "partner_signer_missing"),
        ({"encryption": "smime-aes128"}, "own_decrypter_missing"),
        ({"encryption": "smime-aes128"}, "partner_recipient_missing"),
        ({"encryption": "smime-aes128"}, "encryption_without_signatures"),
        ({"encryption": "smime-aes128", "max_message_bytes": 20 * 1024 * 1024 + 1}, "too_large_to_encrypt"),
    ],
)
def test_a_contradiction_is_found_and_what_is_just_right_is_not(terms: dict[str, Any], code: str) -> None:
    assert code in codes(**terms)
    assert code not in codes()


def test_only_http_has_a_response() -> None:
    partner = make_party()
    mail = make_endpoint(partner, uri="mailto:orders@partner.example", transport="smtp")
    assert "sync_reply_not_http" in codes(partner=partner, partner_endpoint=mail, sync_reply="mshSignalsOnly")


@pytest.mark.parametrize("window", [1200, 86_400])
def test_a_persist_duration_that_lasts_for_all_retries_is_long_enough(window: int) -> None:
    assert "persist_duration_short" not in codes(partner_window=window)


def test_certificates_for_messages_are_missed_until_both_sides_have_one() -> None:
    terms = {"signatures": "receipts", "encryption": "smime-aes256"}
    version = make_agreement(activate=False, **{**GOOD, **terms})
    missing = ["own_signer_missing", "partner_signer_missing", "own_decrypter_missing", "partner_recipient_missing"]
    for kind in ("signing", "encryption"):
        for direction in ("outbound", "inbound"):
            assert [one.code for one in services.version_validate(version=version)] == missing
            Credential.objects.create(party=version.agreement.partner, direction=direction, kind=kind)
            missing = missing[1:]
    assert services.version_validate(version=version) == []
