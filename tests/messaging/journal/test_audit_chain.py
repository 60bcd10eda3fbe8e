"""The chain of the audit log: what is sealed cannot be changed, removed or put in between without its showing."""

from __future__ import annotations

import io
import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from messaging.access.services import audit_chain
from messaging.access.services.audit_chain import START, Head
from messaging.exceptions import InvalidSubmission
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Incident
from rmhub.clock import frozen
from tests.messaging.factories import partner_side

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = Actor("ann", "console", "192.0.2.9", "req-1", "totp")


def entries(count: int) -> list[AuditEntry]:
    """Sealed entries, the oldest first."""
    pair = partner_side().outbound
    for number in range(count):
        audit.record(
            ANN, "pair.pause", pair, reason=f"why № {number}", before={"n": number, "x": 1.5}, after={"é": [None]}
        )
    audit_chain.seal_due()
    return list(AuditEntry.objects.order_by("number"))


def change(entry: AuditEntry, **fields: object) -> None:
    """What somebody does who can write to the database."""
    AuditEntry.objects.filter(pk=entry.pk).update(**fields)


def test_entries_are_sealed_one_behind_the_other() -> None:
    made = entries(3)
    assert [entry.number for entry in made] == [1, 2, 3]
    assert [entry.digest for entry in made] == [
        audit_chain.digest(made[0], START),
        audit_chain.digest(made[1], made[0].digest),
        audit_chain.digest(made[2], made[1].digest),
    ]
    assert audit_chain.head() == Head(3, made[2].digest)
    assert audit_chain.seal() == 0
    audit.record(ANN, "pair.release", partner_side().outbound)
    found = audit_chain.verify()
    assert (found.holds, found.first, found.last, found.checked, found.unsealed) == (True, 1, 3, 3, 1)
    assert audit_chain.seal() == 1
    assert AuditEntry.objects.get(number=4).verb == "pair.release"


def test_the_digest_is_what_the_documentation_says() -> None:
    """Written out once more, so that a chain can be checked without this code (docs/audit.md)."""
    import hashlib
    import json

    [entry] = entries(1)
    members = [
        *("actor", "after", "authentication", "address", "before", "digest", "id", "interface", "number"),
        *("object_id", "object_name", "object_type", "reason", "request_id", "result", "verb"),
    ]
    said = {name: getattr(entry, name) for name in members if name != "digest"}
    said |= {"id": entry.pk.hex, "at": entry.at.astimezone(UTC).isoformat(timespec="microseconds")}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    assert entry.digest == hashlib.sha256(("0" * 64 + "\n" + text).encode("ascii")).hexdigest()


def test_an_empty_log_holds() -> None:
    found = audit_chain.verify()
    assert (found.holds, found.checked, found.head, found.begins_at) == (True, 0, Head(), 0)
    assert audit_chain.look() is True


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("actor", "bob"),
        ("reason", ""),
        ("at", AT),
        ("before", {"n": 2, "x": 1.25}),
        ("after", {}),
        ("result", "denied"),
        ("object_id", "pair_0"),
        ("authentication", "token"),
        ("address", "192.0.2.8"),
        ("digest", "0" * 64),
    ],
)
def test_every_change_of_a_sealed_entry_shows(field: str, value: object) -> None:
    made = entries(5)
    change(made[2], **{field: value})
    found = audit_chain.verify()
    assert not found.holds
    assert (found.breaks[0].number, found.breaks[0].entry) == (3, made[2].public_id)
    # Another digest breaks what stands on it, too.
    assert found.holds_from == (5 if field == "digest" else 4)


def test_entries_that_are_taken_out_show() -> None:
    made = entries(6)
    AuditEntry.objects.filter(number__in=(3, 4)).delete()
    found = audit_chain.verify()
    [gap] = found.breaks
    assert (gap.number, gap.entry, gap.why, found.holds_from) == (4, "", "Missing: 3 to 4.", 5)
    assert made[5].number == 6


def test_two_that_change_places_show() -> None:
    made = entries(4)
    change(made[1], number=99)
    change(made[2], number=2)
    change(made[1], number=3)
    assert [one.number for one in audit_chain.verify().breaks] == [2, 3, 4]


def test_an_old_part_that_was_removed_as_a_whole_is_no_break() -> None:
    entries(5)
    AuditEntry.objects.filter(number__lte=2).delete()
    found = audit_chain.verify()
    assert (found.holds, found.begins_at, found.first, found.checked) == (True, 3, 3, 3)


def test_the_end_that_is_cut_off_shows_by_a_head_that_was_noted() -> None:
    made = entries(4)
    noted = audit_chain.head()
    assert audit_chain.verify(expect=noted).holds
    AuditEntry.objects.filter(number=4).delete()
    assert audit_chain.verify().holds, "the chain alone cannot know"
    found = audit_chain.verify(expect=noted)
    assert (found.holds, found.breaks[0].why) == (False, "Missing: the chain ends at 3.")
    assert audit_chain.verify(expect=Head(3, made[2].digest)).holds


def test_a_chain_that_was_made_anew_shows_by_a_head_that_was_noted() -> None:
    made = entries(3)
    noted = audit_chain.head()
    change(made[0], reason="another", number=None, digest="")
    AuditEntry.objects.update(number=None, digest="")
    audit_chain.seal_due()
    assert audit_chain.verify().holds
    assert not audit_chain.verify(expect=noted).holds


def test_a_part_is_checked_against_what_it_follows() -> None:
    made = entries(6)
    change(made[1], actor="bob")
    assert audit_chain.verify(first=3, limit=2).checked == 2
    assert audit_chain.verify(first=3).holds
    assert not audit_chain.verify(first=2, limit=1).holds
    with pytest.raises(InvalidSubmission):
        audit_chain.verify(first=0)


def test_the_background_look_opens_an_incident() -> None:
    made = entries(3)
    with frozen(AT):
        assert audit_chain.look() is True
        change(made[2], reason="something else")
        assert audit_chain.look() is False
        assert audit_chain.look() is False
    incident = Incident.objects.get()
    assert (incident.cause, incident.occurrences) == ("audit_chain_broken", 2)
    assert incident.detail == "Entry 3: It is not what was sealed."


def test_the_background_look_comes_by_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    made = entries(7)
    monkeypatch.setattr(audit_chain, "LOOKED_AT_ONCE", 2)
    monkeypatch.setattr(audit_chain, "NEWEST", 1)
    change(made[0], reason="something else")
    seen = []
    for minute in range(4):
        with frozen(AT + timedelta(minutes=minute)):
            seen.append(audit_chain.look())
    assert seen.count(False) == 1


@pytest.mark.django_db(transaction=True)
def test_two_processes_do_not_seal_at_once() -> None:
    pair = partner_side().outbound
    for _ in range(20):
        audit.record(ANN, "pair.pause", pair)
    start = threading.Barrier(4)

    def run() -> None:
        try:
            start.wait(120)
            audit_chain.seal(limit=7)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    audit_chain.seal_due()
    assert sorted(AuditEntry.objects.values_list("number", flat=True)) == list(range(1, 21))
    assert audit_chain.verify().holds


def test_the_command_says_whether_it_holds() -> None:
    out = io.StringIO()
    call_command("audit", "verify", stdout=out)
    assert "nothing is sealed yet" in out.getvalue()
    made = entries(3)
    call_command("audit", "verify", stdout=out)
    assert "3 entries checked, 1 to 3" in out.getvalue()
    assert f"head 3:{made[2].digest}" in out.getvalue()
    change(made[1], actor="bob")
    with pytest.raises(CommandError, match="from entry 3 on it is intact"):
        call_command("audit", "verify", stdout=out)
    assert f"entry 2 {made[1].public_id}: It is not what was sealed." in out.getvalue()
    call_command("audit", "verify", first=3, stdout=out)
    for wrong in ("nonsense", "3:abc"):
        with pytest.raises(CommandError):
            call_command("audit", "verify", f"--expect={wrong}", stdout=out)
    with pytest.raises(CommandError):
        call_command("audit", "verify", f"--expect=9:{'a' * 64}", stdout=out)
    audit.record(ANN, "pair.pause", partner_side().outbound)
    call_command("audit", "seal", stdout=out)
    assert "1 entries sealed" in out.getvalue()
