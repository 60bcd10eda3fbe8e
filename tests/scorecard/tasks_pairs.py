"""Tasks about pairs: T1 to T4, T10."""

from __future__ import annotations

import zipfile
from urllib.parse import quote

from tests.scorecard.player import Failed, Player, until
from tests.scorecard.stage import World


def _pair(world: World, code: str) -> dict[str, object]:
    found: dict[str, object] = world.api("GET", f"/pairs/{quote(code)}")
    return found


def why_and_repair(player: Player, world: World) -> None:
    """T1: partner X gets nothing: say why, and fix it (an expired certificate; the new one in a file)."""
    code = world.facts["pairs"]["expired"]
    player.press(f"a[id^=needs-]:has-text('{code}')")
    said = player.sees("diagnosis").inner_text()
    if "certificate" not in said:
        raise Failed(f"the cause is not named: {said[:200]}")
    player.reach("replace-certificate")
    player.give("dialog[open] input[type=file], main input[type=file]", world.folder / "halden-new.pem")
    player.type("reason", "New certificate, by mail from the partner")
    player.press("certificates-replace")
    player.sees(".alert-success")
    player.reach("ping")
    player.sees("[data-testid=probe][data-state=ok], [data-testid=probe] [data-state=ok]")
    player.reach("verb-resume")
    player.type("dialog[open] [name=reason]", "Partner renewed the certificate")
    player.press("dialog[open] [data-testid=submit]")
    player.sees(".alert-success")
    player.stop()
    until(lambda: _pair(world, code)["queued"] == 0 and _pair(world, code)["state"] == "active", "the queue drains")
    seen = [one for one in world.partners("/seen") if one["partner"] == "halden"]
    numbers = [one["sequence"] for one in seen if one["type"].endswith("ormal")]
    if numbers != sorted(numbers) or len(set(numbers)) < 312:
        raise Failed(f"not in order, or not all: {len(numbers)} arrived")
    incidents = world.api("GET", "/incidents?state=resolved")["data"]
    if not any("renewed the certificate" in (one.get("resolution") or "") for one in incidents):
        raise Failed("the incident is not resolved with the reason")


def is_anything_broken(player: Player, world: World) -> None:
    """T2: is anything broken right now, and how many documents are blocked? Read, without a click."""
    broken, blocked = player.read("broken-pairs"), player.read("blocked-documents")
    player.stop()
    suspended = world.api("GET", "/pairs?state=suspended")["data"]
    held = world.api("GET", "/status")
    if int("".join(filter(str.isdigit, broken)) or "0") != len(suspended):
        raise Failed(f"broken pairs: {broken!r} is read, {len(suspended)} are suspended")
    if int("".join(filter(str.isdigit, blocked)) or "0") != held["blocked_documents"]:
        raise Failed(f"blocked: {blocked!r} is read, it is {held['blocked_documents']}")


def resume_the_longest(player: Player, world: World) -> None:
    """T3: resume the pair that is suspended for longest, with the reason "partner fixed firewall"."""
    code = world.facts["pairs"]["longest"]
    head = _pair(world, code)["head"]
    assert isinstance(head, dict)
    player.press(f"a[id^=needs-]:has-text('{code}')")
    player.press("verb-resume")
    player.type("dialog[open] [name=reason], main [name=reason]", "partner fixed firewall")
    player.press("dialog[open] [data-testid=submit], main form [data-testid=submit]")
    player.sees(".alert-success")
    player.stop()
    until(lambda: bool(world.partners(f"/seen?message_id={quote(str(head['message_id']))}")), "it is on the wire")
    (seen, *_) = world.partners(f"/seen?message_id={quote(str(head['message_id']))}")
    stored = world.api("GET", f"/messages/{head['id']}")
    if seen["sequence"] != stored["sequence_number"] or seen["payloads"] != [
        one["sha256"] for one in stored["payloads"]
    ]:
        raise Failed("number or payload on the wire are not those of the document")
    audit = world.api("GET", "/audit-log?verb=pair.resume")["data"]
    if not any(one["reason"] == "partner fixed firewall" for one in audit):
        raise Failed("no audit entry with the reason")


def skip_the_poison(player: Player, world: World) -> None:
    """T4: the head document is poison: skip it, keep a copy, let the rest flow."""
    code = world.facts["pairs"]["poison"]
    head = _pair(world, code)["head"]
    assert isinstance(head, dict)
    player.press(f"a[id^=needs-]:has-text('{code}')")
    player.press("more-open")
    player.press("verb-skip-head")
    with player.page.expect_download() as download:
        player.press("export-head")
    player.type("dialog[open] [name=reason]", "Their mapping refuses the unit PAL")
    player.type("dialog[open] [name=confirm]", code)
    player.press("dialog[open] [data-testid=submit]")
    player.sees(".alert-success")
    player.stop()
    with zipfile.ZipFile(download.value.path()) as copy:
        if not any(b"poison" in copy.read(name) for name in copy.namelist()):
            raise Failed(f"the copy holds {copy.namelist()}, and not the document")
    until(lambda: _pair(world, code)["queued"] == 0 and _pair(world, code)["state"] == "active", "the rest flows")
    if world.api("GET", f"/messages/{head['id']}")["state"] != "skipped":
        raise Failed("the document is not skipped")


def who_resumed(player: Player, world: World) -> None:
    """T10: who resumed pair P last week, and why?"""
    code, known = world.facts["pairs"]["resumed"], world.facts["resumed"]
    player.press("#search")
    player.type("#search", code)
    player.enter()
    player.press("tab-audit")
    text = player.sees("#main").inner_text()
    player.stop()
    (entry,) = (
        one for one in world.api("GET", "/audit-log?verb=pair.resume")["data"] if one["reason"] == known["reason"]
    )
    if not all(wanted in text for wanted in (known["actor"], known["reason"], entry["at"][:16].replace("T", " "))):
        raise Failed("actor, reason or time are not shown")
