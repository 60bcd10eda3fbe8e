"""Pages of atomic transactions: what is the matter, who takes part, what was said, and what a person can do."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from lxml import html

from messaging.causes import CAUSES
from messaging.models import AuditEntry, Coordination, Enlistment, Incident, Message, Pair
from messaging.pairs.selectors import screens
from messaging.profiles.wsat import asking, due, in_doubt, opening, outgoing, settling
from messaging.protocol.atomic.words import Note, Phase, Protocol
from messaging.transactions.selectors import coordinations
from messaging.transactions.selectors.diagnosis import Situation, diagnose
from partners import visibility
from partners.models import Party
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.access.test_visibility import limited
from tests.messaging.console.scenes import browser
from tests.messaging.full_store import multiply
from tests.messaging.profiles.wsat import scenes
from tests.messaging.profiles.wsat.kit import peer

pytestmark = pytest.mark.django_db
WHY = "Asked for by the owner of the shop"


def page(url: str, client: Client | None = None) -> Any:
    answer = (client or browser()).get(url)
    assert answer.status_code == 200, (url, answer.status_code)
    return html.fromstring(answer.content.decode())


def of(one: Coordination) -> str:
    return f"/transactions/{one.public_id}/"


def titled(tree: Any) -> str:
    return str(tree.get_element_by_id("diagnosis").text_content())


def test_the_page_says_what_it_waits_for_and_who_has_voted(time: FrozenClock) -> None:
    one, (stock, _) = scenes.prepared("Stock <b>", "Freight")
    time.move(30)
    assert stock.say(Note.PREPARED) == 202
    tree = page(of(one))
    assert titled(tree) == "Waits for the vote of Freight."
    rows = tree.xpath("//tr[@data-testid='participant']")
    assert [row.get("data-state") for row in rows] == ["active", "prepared", "preparing"]
    assert "Stock <b>" in rows[1].text_content() and "Yes" in rows[1].text_content()
    assert "Prepare" in rows[2].text_content() and "https://peer" in rows[2].text_content()
    assert "What to do:" in tree.text_content()
    assert tree.xpath("//*[@data-testid='time-left']//time[@data-live='until']")


def test_messages_are_drawn_one_arrow_each_with_a_table_beside_it(time: FrozenClock) -> None:
    one, places = scenes.committing("Stock", "Freight")
    slow = Message.objects.get(coordinating__kind="Commit", coordinating__enlistment=places[0].enlistment)
    Message.objects.filter(pk=slow.pk).update(state="retrying", attempts=4, cause="connect_refused")
    tree = page(of(one))
    (svg,) = tree.xpath("//*[local-name()='svg'][@data-testid='sequence']")
    arrows = svg.xpath(".//*[local-name()='g'][@data-kind]")
    assert len(arrows) == one.messages.count()
    (lost,) = [arrow for arrow in arrows if arrow.get("data-outcome") == "lost"]
    assert "Commit ×4" in lost.text_content() and "Connection refused" in lost.text_content()
    assert len(lost.xpath(".//*[contains(@class, 'diagram-cross')]")) == 2
    assert lost.getparent().get("href") == f"/messages/{slow.public_id}/"
    lanes = [text.text_content() for text in svg.xpath(".//*[contains(@class, 'diagram-lane')]")]
    assert lanes[0] == "This hub" and lanes[-2:] == ["Stock", "Freight"]
    table = tree.xpath("//*[@data-testid='sequence-table']/tbody/tr")
    assert len(table) == len(arrows) + 1, "and the commit record"
    assert not tree.xpath("//*[@style] | //style | //main//script")


def test_what_is_not_answered_says_since_when_and_by_whom(time: FrozenClock) -> None:
    one, places = scenes.committing("Stock", "Freight")
    assert places[1].say(Note.COMMITTED) == 202
    waiting = Message.objects.filter(coordinating__kind="Commit", coordinating__enlistment=places[0].enlistment)
    waiting.update(attempts=5, state="awaiting_ack")
    time.move(600)
    tree = page(of(one))
    assert titled(tree) == "Committed, but Stock has not confirmed it."
    assert "Stock was sent Commit 5 times in 10 m and has not answered." in tree.text_content()


def test_a_message_that_never_got_there_was_tried_and_not_sent(time: FrozenClock) -> None:
    one, places = scenes.committing("Stock")
    waiting = Message.objects.filter(coordinating__kind="Commit", coordinating__enlistment=places[0].enlistment)
    waiting.update(attempts=5, state="retrying", cause="connect_refused")
    time.move(50)
    said = page(of(one)).text_content()
    assert "Commit to Stock was tried 5 times in 50 s, and the last attempt failed: connection refused." in said
    assert "has not answered" not in said and "runs and can be reached" in said


def test_a_server_that_takes_messages_is_not_said_to_be_gone(time: FrozenClock) -> None:
    one, places = scenes.committing("Stock")
    waiting = Message.objects.filter(coordinating__kind="Commit", coordinating__enlistment=places[0].enlistment)
    waiting.update(attempts=5, state="awaiting_ack")
    time.move(40)
    Pair.objects.filter(pk=places[0].enlistment.pair_id).update(last_success_at=clock.now())
    time.move(10)
    said = page(of(one)).text_content()
    assert "has not answered. Their server took a message 10 s ago." in said
    assert "Ask them whether the system behind their server runs." in said


def test_a_doubt_says_since_when_and_that_what_held_it_up_is_open_again(time: FrozenClock) -> None:
    one, places = scenes.committing("Stock")
    taker = places[0].enlistment
    with transaction.atomic():
        in_doubt.mark(opening.locked(one.pk), taker, in_doubt.HELD, "Behind a pair that is paused.", clock.now(), [])
    Pair.objects.filter(pk=taker.pair_id).update(gate="paused", changed_at=clock.now())
    time.move(60)
    said = page(of(one)).text_content()
    assert "In doubt for 1 m." in said and "been open again" not in said
    Pair.objects.filter(pk=taker.pair_id).update(gate="open", changed_at=clock.now())
    time.move(5)
    said = page(of(one)).text_content()
    assert "The pair has been open again for 5 s." in said
    assert "Wait: what was held goes out now" in said and "Release the pair" not in said


def test_what_the_hub_itself_has_left_undone_is_said(time: FrozenClock) -> None:
    one, _ = scenes.prepared("Stock")
    time.move(3600)
    said = page(of(one)).text_content()
    assert "the hub's workers are not doing their work" in said
    assert "Check that workers and beat run" in said and "Nothing to do" not in said


def _stated(one: Coordination) -> Situation:
    known = coordinations.coordination(one.pk)
    found = diagnose(known, coordinations.taking_part(known), clock.now(), pending=coordinations.pending(one.pk))
    assert found.headline.endswith(".") and found.headline[0].isupper()
    return found.situation


def test_every_situation_has_its_sentence(time: FrozenClock) -> None:
    here = scenes.begun_here()
    assert _stated(here) == Situation.NOBODY
    joined, _ = scenes.prepared("A")
    assert _stated(joined) == Situation.VOTES
    assert _stated(scenes.committing("B")[0]) == Situation.COMMITTING
    assert _stated(scenes.committed("C")) == Situation.COMMITTED
    assert _stated(scenes.rolled_back()) == Situation.ABORTED
    assert _stated(scenes.voted_no("D", "E")) in (Situation.ABORTING, Situation.ABORTED)
    assert _stated(scenes.doubtful("F")[0]) == Situation.CONTRADICTION
    for phase, situation in (
        (Phase.DECIDING, Situation.DECIDING),
        (Phase.PREPARED, Situation.SUPERIOR),
        (Phase.PREPARING_VOLATILE, Situation.VOTES),
    ):
        Coordination.objects.filter(pk=joined.pk).update(phase=phase)
        assert _stated(joined) == situation
    app = peer("G")
    context = app.create()
    app.register(context, Protocol.DURABLE)
    assert _stated(Coordination.objects.get(identifier=context.identifier)) == Situation.OPEN


def test_all_that_a_transaction_is_given_as_its_cause_is_in_the_list() -> None:
    given = {
        asking.ROLLED_BACK,
        due.EXPIRED,
        due.SUPERIOR_SILENT,
        in_doubt.IN_DOUBT,
        in_doubt.HELD,
        settling.SETTLED,
        in_doubt.REFUSED,
        in_doubt.HEURISTIC,
        outgoing.SILENT,
    }
    assert given <= set(CAUSES)
    assert coordinations.cause_named("expired") == CAUSES["transaction_expired"]


def test_what_was_begun_here_is_committed_with_a_reason(time: FrozenClock) -> None:
    one, client = scenes.begun_here(), browser(Role.OPERATOR)
    dialog = f"{of(one)}actions/commit/"
    tree = page(dialog, client)
    (version,) = tree.xpath("//input[@name='version']/@value")
    refused = client.post(dialog, {"version": version, "reason": ""})
    assert refused.status_code == 422 and "Say why" in refused.content.decode()
    assert client.post(dialog, {"version": "9999", "reason": WHY}).status_code == 409
    assert client.post(dialog, {"reason": WHY}).status_code == 422
    done = client.post(dialog, {"version": version, "reason": WHY})
    assert (done.status_code, done["Location"]) == (303, of(one))
    assert scenes.fresh(one).phase == Phase.COMMITTED
    assert AuditEntry.objects.get(verb="transaction.commit").reason == WHY
    assert client.post(dialog, {"version": "2", "reason": WHY}).status_code == 409


def test_a_partners_is_rolled_back_and_never_committed_from_here(time: FrozenClock) -> None:
    app = peer("Shop")
    context = app.create()
    initiator = app.register(context, Protocol.COMPLETION)
    one = Coordination.objects.get(identifier=context.identifier)
    client = browser(Role.OPERATOR)
    tree = page(of(one), client)
    assert tree.get_element_by_id("verb-commit").get("aria-disabled") == "true"
    assert "A partner began it" in tree.get_element_by_id("why-commit").text_content()
    body = {"version": str(scenes.fresh(one).lock_version), "reason": WHY}
    assert client.post(f"{of(one)}actions/commit/", body).status_code == 409
    assert client.post(f"{of(one)}actions/rollback/", body).status_code == 303
    assert initiator.heard() == ["Aborted"]
    assert titled(page(of(one))).startswith("Rolled back on request.")
    viewer = page(of(scenes.begun_here()), browser(Role.VIEWER))
    assert "Needs the role operator." in viewer.get_element_by_id("why-rollback").text_content()


def test_settling_warns_takes_a_long_reason_and_clears_the_doubt(time: FrozenClock) -> None:
    one, taker = scenes.doubtful("Stock", "Freight")
    client = browser(Role.OPERATOR)
    dialog = f"{of(one)}participants/{taker.public_id}/settle/forget/"
    tree = page(dialog, client)
    assert tree.xpath("//*[@data-testid='warning']")[0].text_content().strip()
    (version,) = tree.xpath("//input[@name='version']/@value")
    assert client.post(dialog, {"version": version, "reason": "short"}).status_code == 422
    assert Enlistment.objects.get(pk=taker.pk).doubt
    done = client.post(dialog, {"version": version, "reason": "Their operator fixed it by hand"})
    assert done.status_code == 303
    assert scenes.fresh(one).doubtful_since is None
    other = scenes.begun_here()
    assert client.get(f"{of(other)}participants/{taker.public_id}/settle/forget/").status_code == 404
    assert client.get(f"{of(one)}participants/{taker.public_id}/settle/nonsense/").status_code == 404


def test_whoever_does_not_see_all_participants_settles_none(time: FrozenClock) -> None:
    one, taker = scenes.doubtful("Stock", "Freight")
    client = limited("lim", Role.OPERATOR, Party.objects.get(name="Stock"))
    button = page(of(one), client).get_element_by_id(f"verb-forget-{taker.public_id}")
    assert button.get("aria-disabled") == "true"
    dialog = f"{of(one)}participants/{taker.public_id}/settle/forget/"
    tree = page(dialog, client)
    assert "whom you may not see" in tree.text_content()
    assert not tree.xpath("//*[@data-testid='settle-do']")
    body = {"version": str(scenes.fresh(one).lock_version), "reason": "Their operator fixed it by hand"}
    refused = client.post(dialog, body)
    assert (refused.status_code, b"whom you may not see" in refused.content) == (409, True)
    assert Enlistment.objects.get(pk=taker.pk).doubt
    assert browser(Role.OPERATOR).post(dialog, body).status_code == 303


def test_what_is_in_doubt_is_everywhere_where_one_looks(time: FrozenClock) -> None:
    one, _ = scenes.doubtful("Stock", "Freight")
    incident = Incident.objects.get(coordination=one)
    client = browser()
    assert page("/", client).get_element_by_id("nav-count-side-transactions").text == "1"
    assert screens.nav_counts().transactions == 1
    for url in ("/", "/in-doubt/?tab=transactions", "/transactions/?doubtful=yes", f"/incidents/{incident}/"):
        assert page(url, client).xpath(f"//a[@href='{of(one)}']"), url
    assert page("/in-doubt/", client).get_element_by_id("tab-transactions").get("aria-current") == "true"
    assert "1 transaction in doubt" in page("/", client).xpath("//*[@data-testid='verdict']")[0].text_content()
    assert page(of(one), client).xpath(f"//a[@href='/incidents/{incident}/']")


def test_transactions_in_doubt_are_groups_with_a_list_and_a_way_to_settle(time: FrozenClock) -> None:
    one, taker = scenes.doubtful("Stock", "Freight")
    assert taker.party is not None
    tree = page("/in-doubt/?tab=transactions", browser(Role.OPERATOR))
    (group,) = tree.xpath("//tr[@data-testid='doubt-group']")
    assert "Stock" in group.text_content() and "Outcomes contradict each other" in group.text_content()
    (href,) = group.xpath(".//a[starts-with(@href, '/transactions/')]/@href")
    assert href == f"/transactions/?doubtful=yes&doubt=heuristic_outcome&party={taker.party.public_id}"
    listed = page(href)
    assert [row.get("id") for row in listed.xpath("//tr[starts-with(@id, 'row-txn')]")] == [f"row-{one.public_id}"]
    assert [chip.xpath("string(span)") for chip in listed.xpath("//li[@class='chip']")] == [
        "Partner: Stock",
        "In doubt: In doubt",
        "In doubt because: Outcomes contradict each other",
    ]
    settle = f"{of(one)}participants/{taker.public_id}/settle/forget/"
    (row,) = tree.xpath("//tr[@data-testid='doubtful-transaction']")
    assert row.xpath(f".//a[@href='{settle}']")[0].text_content().split() == ["Give", "up…", "Stock"]
    (row,) = page("/in-doubt/?tab=transactions", browser(Role.VIEWER)).xpath(
        "//tr[@data-testid='doubtful-transaction']"
    )
    assert not row.xpath(f".//a[@href='{settle}']") and "Needs the role" in row.text_content()


def test_the_counter_of_what_is_in_doubt_has_all_three_tabs(time: FrozenClock) -> None:
    _, taker = scenes.doubtful("Stock", "Freight")
    assert taker.party_id is not None
    assert page("/", browser()).get_element_by_id("nav-count-side-in_doubt").text == "1"
    with visibility.only(frozenset({taker.party_id}), "lim"):
        assert (screens.nav_counts().in_doubt, screens.nav_counts().transactions) == (1, 1)
    with visibility.only(frozenset({uuid4()}), "lim"):
        assert screens.nav_counts().in_doubt == 0


def test_what_is_in_doubt_costs_the_same_however_much_it_is(time: FrozenClock) -> None:
    scenes.doubtful("A")
    client = browser(Role.OPERATOR)

    def queries(url: str) -> int:
        client.get(url)
        with CaptureQueriesContext(connection) as captured:
            assert client.get(url).status_code == 200
        return len(captured)

    urls = ("/in-doubt/?tab=transactions", "/api/v1/in-doubt")
    before = [queries(url) for url in urls]
    for names in ("BC", "DE", "FG"):
        scenes.doubtful(*names)
    assert [queries(url) for url in urls] == before
    assert max(before) <= 25


def test_it_is_found_by_its_identifier_and_ids_and_by_its_messages(time: FrozenClock) -> None:
    one, taker = scenes.doubtful("Stock", "Freight")
    client = browser()
    for text in (one.identifier, one.public_id, taker.public_id):
        assert client.get("/go", {"q": text})["Location"] == of(one), text
    row = one.messages.filter(enlistment=taker).order_by("at").first()
    assert row is not None
    message = page(f"/messages/{row.message.public_id}/", client)
    assert message.xpath(f"//*[@data-testid='transaction'][@href='{of(one)}']")
    assert of(one) in client.get("/transactions/", {"q": row.message.message_id}).content.decode()


def test_the_list_is_narrowed_and_comes_as_a_file(time: FrozenClock) -> None:
    one, taker = scenes.doubtful("Stock", "Freight")
    done = scenes.committed("Other")
    client = browser()
    assert taker.party is not None
    for query, wanted in (
        ("phase=committed", {done}),
        ("doubtful=yes", {one}),
        (f"party={taker.party.public_id}", {one}),
        ("role=coordinator", {one, done}),
        ("role=participant", set()),
        ("from=2026-02-01T00:00", {one, done}),
        ("to=2026-02-01T00:00", set()),
        ("from=nonsense", set()),
        ("party=nonsense", set()),
        ("phase=nonsense", {one, done}),
        (f"q={done.identifier}", {done}),
    ):
        tree = page(f"/transactions/?{query}", client)
        shown = {row.get("id") for row in tree.xpath("//tr[starts-with(@id, 'row-txn')]")}
        assert shown == {f"row-{found.public_id}" for found in wanted}, query
    file = b"".join(client.get("/transactions/?format=csv").streaming_content).decode()  # type: ignore[attr-defined]
    lines = file.splitlines()
    assert lines[0].startswith("id,begun,phase,identifier,beginner,participants") and len(lines) == 3
    assert "Stock, Freight" in file


def test_the_page_costs_the_same_however_many_take_part(time: FrozenClock) -> None:
    few, many = scenes.committing("A")[0], scenes.committing("B", "C", "D", "E")[0]
    client = browser()

    def queries(url: str) -> int:
        client.get(url)
        with CaptureQueriesContext(connection) as captured:
            assert client.get(url).status_code == 200
        return len(captured)

    assert queries(of(few)) == queries(of(many)) <= 22
    before = queries("/transactions/")
    scenes.committing("F", "G")
    assert queries("/transactions/") == before <= 16


def test_the_list_needs_no_scan_of_the_table(time: FrozenClock) -> None:
    one, taker = scenes.doubtful("Stock", "Freight")
    multiply(Coordination, phase="'committed'", doubtful_since="NULL", identifier="'urn:x:' || n", due_at="NULL",
             agreement_version_id="NULL", create_message_id="''")  # fmt: skip
    multiply(Enlistment, "(SELECT id FROM messaging_coordination) AS c", coordination_id="c.id",
             party_id="(SELECT party_id FROM messaging_enlistment WHERE party_id <> t.party_id LIMIT 1)",
             register_message_id="''")  # fmt: skip
    for found in (
        coordinations.coordinations(),
        coordinations.coordinations(doubtful=True),
        coordinations.coordinations(doubt=taker.doubt),
        coordinations.coordinations(doubt=taker.doubt, party_id=taker.party_id),
        coordinations.coordinations(phases=("preparing",)),
        coordinations.coordinations(q=one.identifier),
        coordinations.coordinations(party_id=taker.party_id, begun_gte=clock.now()),
        coordinations.coordinations(begun_gte=clock.now()),
    ):
        with CaptureQueriesContext(connection) as captured:
            coordinations.coordination_page(found, limit=50)
        for query in captured.captured_queries:
            if not query["sql"].startswith("SELECT") or "set_config" in query["sql"]:
                continue
            with connection.cursor() as cursor:
                cursor.execute("EXPLAIN " + query["sql"])
                plan = "\n".join(row[0] for row in cursor.fetchall())
            assert not re.search(r"Seq Scan on messaging_(coordination|enlistment)\b", plan), f"{query['sql']}\n{plan}"


def test_the_commit_record_stands_before_what_it_allows(time: FrozenClock) -> None:
    one, _ = scenes.committing("Stock")
    rows = page(of(one)).xpath("//*[@data-testid='sequence-table']/tbody/tr")
    texts = [" ".join(cell.text_content().strip() for cell in row) for row in rows]
    record = next(number for number, text in enumerate(texts) if "Commit record written" in text)
    told = next(number for number, text in enumerate(texts) if " This hub → Stock Commit" in text)
    voted = next(number for number, text in enumerate(texts) if " Stock → This hub Prepared" in text)
    assert voted < record < told, texts
