"""The audit log by the API: its filters, what was refused, and whether its chain holds."""

from __future__ import annotations

import pytest

from messaging.access.services import audit_chain
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import AuditEntry
from tests.messaging.api.client import REASON, Api, make_incident
from tests.messaging.factories import PartnerSide

pytestmark = pytest.mark.django_db


def test_people_find_entries_by_what_they_call_things(admin: Api, partner: PartnerSide) -> None:
    pair, incident = partner.outbound, make_incident()
    audit.record(Actor("olga", "console", authentication="totp"), "pair.resume", pair, reason="Firewall is open again")
    audit.record(Actor("olga (token ERP)", "api"), "pair.pause", pair, reason="maintenance")
    audit.record(Actor("olga2", "api"), "incident.comment", incident)
    verbs = lambda **query: [row["verb"] for row in admin.get("/audit-log", query).json["data"]]  # noqa: E731
    assert verbs(object=pair.code) == verbs(object=pair.public_id) == ["pair.pause", "pair.resume"]
    assert verbs(object=pair.code.lower(), verb="pair.resume") == ["pair.resume"]
    assert verbs(object=str(incident)) == ["incident.comment"]
    assert verbs(actor="olga") == ["pair.pause", "pair.resume"]
    assert verbs(verb="pair.", actor="olga (token ERP)") == ["pair.pause"]
    assert verbs(interface="console") == verbs(text="firewall") == ["pair.resume"]
    (row,) = admin.get("/audit-log", {"text": "firewall"}).json["data"]
    assert (row["authentication"], row["result"], row["number"], row["digest"]) == ("totp", "done", None, "")
    assert admin.get("/audit-log", {"result": "maybe"}).code == "invalid_parameter"


def test_what_was_refused_is_in_it(admin: Api, viewer: Api, partner: PartnerSide) -> None:
    pair = partner.outbound
    assert viewer.post(f"/pairs/{pair.public_id}/resume", REASON, If_Match="*").status == 403
    assert viewer.get("/notification-rules").status == 403
    (row,) = admin.get("/audit-log", {"result": "denied"}).json["data"]
    assert (row["verb"], row["object_id"], row["object_name"]) == ("pair.resume", pair.public_id, pair.public_id)
    assert (row["after"], row["authentication"]) == ({"required": "pairs:operate"}, "token")
    assert row["actor"].startswith("viewer")


def test_the_chain(admin: Api, partner: PartnerSide) -> None:
    empty = admin.get("/audit-log/chain").json
    assert (empty["holds"], empty["head"]["number"]) == (True, 0)
    for _ in range(4):
        audit.record(Actor("ann"), "pair.pause", partner.outbound)
    audit_chain.seal_due()
    found = admin.get("/audit-log/chain").json
    count = AuditEntry.objects.count()
    assert (found["holds"], found["checked"], found["next"], found["unsealed"]) == (True, count, None, 0)
    head = f"{found['head']['number']}:{found['head']['digest']}"
    assert admin.get("/audit-log/chain", {"expect": head}).json["holds"]
    part = admin.get("/audit-log/chain", {"first": "2", "limit": "1"}).json
    assert (part["first"], part["last"], part["next"]) == (2, 2, 3)
    AuditEntry.objects.filter(number=2).update(reason="something else")
    broken = admin.get("/audit-log/chain").json
    assert (broken["holds"], broken["holds_from"], broken["breaks"][0]["number"]) == (False, 3, 2)
    for wrong in ({"expect": "3:abc"}, {"first": "0"}, {"limit": "10001"}):
        assert admin.get("/audit-log/chain", wrong).code == "invalid_parameter"
