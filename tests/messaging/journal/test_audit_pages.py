"""The audit log as people read it: who did what and why, what can be undone, whether the chain is intact."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest
from django.test import Client
from lxml import html

from messaging.access.services import audit_chain
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Message, Pair
from messaging.pairs.services import operating
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import browser, suspended
from tests.messaging.factories import PartnerSide, partner_side
from tests.staged import staged

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Trouble:
    """A pair that stopped, the message that it stopped at, and a partner whose pairs flow."""

    pair: Pair
    outbound: Message
    flowing: PartnerSide


@pytest.fixture
def scene(db: None, time: FrozenClock) -> Trouble:
    return staged(_trouble, time)


def _trouble(time: FrozenClock) -> Trouble:
    stuck = suspended(time)
    audit.record(Actor("ana", "console"), "trigger.create", stuck.outbound)
    return Trouble(stuck.outbound, Message.objects.order_by("position")[0], partner_side())


def rows(client: Client, query: str) -> list[html.HtmlElement]:
    return html.fromstring(client.get(f"/audit/?{query}").content).xpath("//tr[@data-testid='entry']")


def test_who_resumed_the_pair_last_week_and_why(scene: Trouble, time: FrozenClock) -> None:
    operating.pair_resume(pair_id=scene.pair.pk, actor=Actor("olga", "console"), reason="Certificate renewed")
    time.move(7 * 86_400)
    audit.record(Actor("ann"), "pair.resume", scene.flowing.outbound, reason="another pair")
    client = browser(Role.VIEWER)
    day = f"{clock.now() - timedelta(days=7):%Y-%m-%d}"
    (row,) = rows(client, f"object_id={scene.pair.code}&verb=pair.resume&after={day}T00:00")
    words = " ".join(row.text_content().split())
    assert "olga" in words and "Certificate renewed" in words
    assert rows(client, f"object_id={scene.pair.code}&verb=pair.resume&before={day}") == []
    assert "A time such as" in client.get("/audit/?after=yesterday").content.decode()


def test_an_action_with_an_inverse_leads_to_it(scene: Trouble) -> None:
    operating.pair_pause(pair_id=scene.flowing.outbound.pk, actor=Actor("olga"), reason="maintenance")
    (row,) = rows(browser(Role.OPERATOR), "verb=pair.pause")
    (undo,) = row.xpath(".//a[@data-testid='undo']")
    assert undo.get("href") == f"/pairs/{scene.flowing.outbound.code.replace('>', '%3E')}/actions/release/"
    assert browser(Role.OPERATOR).get(undo.get("href")).status_code == 200
    (row,) = rows(browser(Role.VIEWER), "verb=pair.pause")
    assert not row.xpath(".//a[@data-testid='undo']")


def test_what_was_refused_is_shown_as_such(scene: Trouble) -> None:
    viewer = browser(Role.VIEWER, "vera")
    url = f"/pairs/{scene.pair.code}/actions/resume/"
    assert viewer.post(url, {"reason": "let me"}).status_code == 403
    assert viewer.get(url).status_code == 403, "to look is not to try"
    assert viewer.get(f"/messages/{scene.outbound.public_id}/payloads/1/").status_code == 403
    found = rows(browser(), "result=denied&actor=vera")
    assert [row.get("data-verb") for row in found] == ["payload.get", "pair.resume"]
    entry = AuditEntry.objects.get(verb="pair.resume", result="denied")
    assert (entry.object_id, entry.after, entry.authentication) == (
        scene.pair.public_id, {"required": "pairs:operate"}, "session",
    )  # fmt: skip


def test_the_way_and_the_proof_are_shown(scene: Trouble) -> None:
    audit.record(Actor("olga", "console", "192.0.2.9", authentication="totp"), "x.y", scene.pair)
    (row,) = rows(browser(), "verb=x.y&interface=console")
    assert "Console, Password and one-time code · 192.0.2.9" in " ".join(row.text_content().split())
    file = b"".join(browser().get("/audit/?verb=x.y&format=csv")).decode().splitlines()
    assert len(file) == 2 and "totp" in file[1]


def test_the_chain_is_looked_at(scene: Trouble) -> None:
    client = browser(Role.VIEWER)

    def state(query: str = "") -> str:
        page = html.fromstring(client.get(f"/audit/chain/{query}").content)
        return str(page.xpath("//*[@data-testid='chain']/@data-state")[0])

    assert "Nothing is sealed yet." in client.get("/audit/chain/").content.decode()
    for _ in range(4):
        audit.record(Actor("ana"), "pair.pause", scene.pair)
    audit_chain.seal_due()
    assert state() == "holds"
    page = html.fromstring(client.get("/audit/chain/").content)
    head = page.xpath("//*[@data-testid='head']")[0].text_content().strip()
    assert state(f"?expect={head}") == "holds"
    AuditEntry.objects.filter(number=2).update(reason="something else")
    assert state() == "broken"
    assert state("?from=3") == "holds"
    AuditEntry.objects.filter(number=audit_chain.head().number).delete()
    assert state(f"?from=3&expect={head}") == "broken"
    for wrong in ("?from=x", "?from=0", "?expect=7", "?from=99999999"):
        assert client.get(f"/audit/chain/{wrong}").status_code == 200


def test_known_people_and_verbs_are_offered(scene: Trouble) -> None:
    page = html.fromstring(browser().get("/audit/").content)
    verbs = page.xpath("//datalist[@id='offered-verb']/option/@value")
    assert "trigger.create" in verbs and verbs == sorted(verbs)
    assert "ana" in page.xpath("//datalist[@id='offered-actor']/option/@value")
