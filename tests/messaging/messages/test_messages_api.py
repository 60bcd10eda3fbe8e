"""Looking messages up: lists and filters, octets, attempts, and cancelling."""

from __future__ import annotations

import base64
import hashlib
import io
import random
import zipfile
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging import storage
from messaging.api.conditional import check_unchanged
from messaging.journal.audit import Actor
from messaging.messages.api import verbs as views
from messaging.messages.selectors import finding
from messaging.messages.selectors import messages as selectors
from messaging.messages.selectors.finding import MessageFilters, message_page
from messaging.messages.services import disclosing
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import AuditEntry, Message, Payload, Signal, Transmission
from partners import visibility
from tests.messaging.api.client import REASON, Api, in_flight, suspended
from tests.messaging.factories import ACTION, SERVICE, PartnerSide, link, partner_side, submit, work
from tests.partners.factories import make_agreement, make_endpoint, make_party

pytestmark = pytest.mark.django_db


def ids(answer: Any) -> list[str]:
    assert answer.status == 200, answer.json
    return [row["id"] for row in answer.json["data"]]


def test_filters_narrow_the_list(admin: Api, partner: PartnerSide) -> None:
    other = partner_side()
    first = submit(partner, conversation_id="c-1", message_id="m-1@acme")
    second = submit(partner, conversation_id="c-1", ref_to_message_id="m-1@acme")
    third = submit(other)
    partner.send(partner.message(1, "in-1@partner"))
    received = Message.objects.get(direction="in")
    agreement = first.agreement_version.agreement
    newest = [received.public_id, third.public_id, second.public_id, first.public_id]
    assert ids(admin.get("/messages")) == newest
    assert ids(admin.get("/messages", {"sort": "created_at"})) == newest[::-1]
    ours = newest[2:]
    for query, expected in (
        ({"state": "received"}, newest[:1]),
        ({"state": "received,queued"}, newest),
        ({"direction": "in"}, newest[:1]),
        ({"pair": partner.outbound.code}, ours),
        ({"pair": partner.outbound.public_id}, ours),
        ({"partner": agreement.partner.public_id}, [newest[0], *ours]),
        ({"partner": agreement.partner.public_id, "direction": "out"}, ours),
        ({"agreement": agreement.public_id}, [newest[0], *ours]),
        ({"agreement": agreement.tpa_id}, [newest[0], *ours]),
        ({"agreement": agreement.tpa_id, "pair": other.outbound.code}, []),
        ({"service": SERVICE, "action": ACTION, "direction": "out"}, newest[1:]),
        ({"service": "urn:none"}, []),
        ({"conversation": "c-1"}, ours),
        ({"ref": "m-1@acme"}, [second.public_id]),
        ({"q": "m-1@acme"}, [first.public_id]),
        ({"q": "c-1"}, ours),
        ({"q": third.public_id}, [third.public_id]),
        ({"q": "nothing"}, []),
        ({"q": "m-1@"}, [first.public_id]),
        ({"q": "state:queued dir:out"}, newest[1:]),
        ({"q": f"pair:{partner.outbound.code} conv:c-1 m-1@acme"}, [first.public_id]),
        ({"q": f'partner:"{agreement.partner.name}" state:received'}, newest[:1]),
        ({"q": "size>1k"}, []),
        ({"q": "size<1k attempts<1", "direction": "out"}, newest[1:]),
        ({"attempts_gt": "0"}, []),
        ({"size_gt": "7", "size_lt": "9"}, newest),
        ({"error": "ack_timeout"}, []),
        ({"q": "after:2020-01-01 before:2021-01-01"}, []),
        ({"q": "after:1h"}, newest),
        ({"created_gte": "2020-01-01T00:00:00Z"}, newest),
        ({"created_lt": "2020-01-01T00:00:00+02:00"}, []),
        ({"created_gte": second.created_at.isoformat(), "created_lt": received.created_at.isoformat()}, newest[1:3]),
        ({"created_gte": "0001-01-01T00:00:00Z", "created_lt": "9999-12-31T23:59:59Z"}, newest),
    ):
        assert ids(admin.get("/messages", query)) == expected, query


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"colour": "red"}, "unknown_parameter"),
        ({"sort": "size"}, "invalid_parameter"),
        ({"state": "queued,lost"}, "invalid_parameter"),
        ({"direction": "up"}, "invalid_parameter"),
        ({"pair": "NO>PAIR"}, "invalid_parameter"),
        ({"partner": "Globex"}, "invalid_parameter"),
        ({"agreement": "tpa:none"}, "invalid_parameter"),
        ({"created_gte": "yesterday"}, "invalid_parameter"),
        ({"created_gte": "2026-01-01T00:00:00"}, "invalid_parameter"),
        ({"created_lt": "2026-13-01T00:00:00Z"}, "invalid_parameter"),
        ({"q": "a\x00b"}, "invalid_parameter"),
        ({"q": ""}, "invalid_parameter"),
        ({"q": "state:lost"}, "invalid_parameter"),
        ({"q": "partner:Nobody-has-this-name"}, "invalid_parameter"),
        ({"q": "size:12"}, "invalid_parameter"),
        ({"q": "after:someday"}, "invalid_parameter"),
        ({"size_gt": "1k"}, "invalid_parameter"),
        ({"service": "x" * 601}, "invalid_parameter"),
    ],
)
def test_parameters_are_checked(admin: Api, query: dict[str, str], code: str) -> None:
    answer = admin.get("/messages", query)
    assert (answer.status, answer.code) == (400, code)
    assert answer.json["errors"][0]["parameter"] == next(iter(query))


def test_a_term_that_there_is_not_is_said_unless_it_is_an_id(admin: Api, partner: PartnerSide) -> None:
    message = submit(partner, message_id="tag:order-1")
    for query in ("tag:order-1", "tag:order", "dir:out tag:order-1"):
        assert ids(admin.get("/messages", {"q": query})) == [message.public_id]
    for query, word in (("tag:x", "tag:x"), ("state:queued colour:red", "colour:red"), ("latency>2s", "latency>2s")):
        answer = admin.get("/messages", {"q": query})
        assert (answer.status, answer.code) == (400, "invalid_parameter")
        (error,) = answer.json["errors"]
        assert error["parameter"] == "q" and f"“{word}”" in error["detail"] and "attempts" in error["detail"]
    for query in ('"tag:x"', "urn:uuid:0192f3f2"):
        assert ids(admin.get("/messages", {"q": query})) == []


def test_a_parameter_twice_is_refused(admin: Api) -> None:
    assert admin.get("/messages?state=queued&state=failed").code == "invalid_parameter"


def test_pages_of_a_partner_with_several_pairs_are_complete(admin: Api) -> None:
    """Each pair is probed on its own; together they must give the same rows as one list."""
    own, other = make_party(own=True), make_party()
    sides = [
        partner_side(make_agreement(own_endpoint=make_endpoint(own), partner_endpoint=make_endpoint(other)))
        for _ in range(3)
    ]
    made = [submit(sides[number % 3]).public_id for number in range(11)]
    for sort, expected in (("-created_at", made[::-1]), ("created_at", made)):
        seen, cursor = [], {}
        while True:
            answer = admin.get("/messages", {"partner": other.public_id, "limit": "4", "sort": sort, **cursor})
            seen += ids(answer)
            if not answer.json["has_more"]:
                break
            cursor = {"cursor": answer.json["next_cursor"]}
        assert seen == expected
        back = admin.get(
            "/messages", {"partner": other.public_id, "limit": "4", "sort": sort, "cursor": answer.json["prev_cursor"]}
        )
        assert ids(back) == expected[4:8]


def test_lists_do_not_count_and_do_not_grow(admin: Api, partner: PartnerSide, django_assert_num_queries: Any) -> None:
    for _ in range(5):
        submit(partner)
    admin.get("/messages")
    with django_assert_num_queries(4) as queries:  # savepoint (2), time limit, rows
        assert len(ids(admin.get("/messages"))) == 5
    said = " ".join(query["sql"] for query in queries.captured_queries).upper()
    assert "COUNT(" not in said and "OFFSET" not in said and "WIRE_FRAME" not in said


@pytest.fixture
def many(partner: PartnerSide) -> Message:
    """20,000 messages of one pair and one of another, with the statistics that PostgreSQL plans by. Returns the one."""
    submit(partner)
    # Two minutes apart, back into the past; the ids say so too, as those of UUIDv7 do.
    made_at = "now() - n * interval '2 minutes'"
    millis = f"lpad(to_hex((extract(epoch FROM {made_at}) * 1000)::bigint), 12, '0')"
    own = {
        "id": f"({millis} || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid",
        "message_id": "'copy-' || n",
        "conversation_id": "'conversation-' || n",
        "created_at": made_at,
        "state": "CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'delivered' END",
    }
    columns = [field.column for field in Message._meta.concrete_fields if not field.generated]
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO messaging_message ({', '.join(columns)})"
            f" SELECT {', '.join(own.get(column, column) for column in columns)}"
            " FROM messaging_message CROSS JOIN generate_series(1, 20000) AS n"
        )
        cursor.execute("ANALYZE messaging_message")
    return submit(partner_side())


def _plans(filters: MessageFilters) -> list[str]:
    """How PostgreSQL runs each query of a search over the messages."""
    with CaptureQueriesContext(connection) as queries:
        message_page(filters, limit=50)
    found = []
    for query in queries.captured_queries:
        if 'FROM "messaging_message"' in query["sql"]:
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {query['sql']}")
                found.append("\n".join(row[0] for row in cursor.fetchall()))
    return found


def test_searches_use_an_index(many: Message, monkeypatch: pytest.MonkeyPatch) -> None:
    one = many
    monkeypatch.setattr(finding, "SCANNED", 300)  # a small part of the store, as with millions of messages
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "messaging_message_pkey"),
        ({"pair_id": one.pair_id}, "message_by_pair"),
        ({"states": ("failed",)}, "message_open"),
        ({"states": ("failed", "in_doubt")}, "message_open"),
        ({"cause": "ack_timeout"}, "message_open"),
        ({"q": one.message_id}, "message_by_id_text"),
        ({"q": one.message_id[:9]}, "message_by_id_text"),
        ({"conversation": one.conversation_id}, "message_by_conversation"),
        ({"ref": "m-1@acme"}, "message_by_ref"),
        ({"created_gte": one.created_at}, "messaging_message_pkey"),
        ({"created_lt": one.created_at, "action": "None"}, "messaging_message_pkey"),
        ({"size_gt": 10**6}, "messaging_message_pkey"),
        ({"attempts_gt": 3, "pair_id": one.pair_id}, "message_by_pair"),
        ({"direction": "in"}, "messaging_message_pkey"),
    ]
    for filters, index in cases:
        plans = _plans(MessageFilters(**filters))
        assert any(index in plan for plan in plans), (filters, plans)
        for plan in plans:
            assert "Seq Scan on messaging_message" not in plan, (filters, plan)


def test_a_limited_person_is_served_by_the_indexes_of_their_pairs(many: Message) -> None:
    with visibility.only(frozenset({many.pair.partner_id})):
        plans = _plans(MessageFilters())
        assert [row.pk for row in message_page(MessageFilters()).rows] == [many.pk]
    assert any("message_by_pair" in plan for plan in plans)
    assert all("Seq Scan on messaging_message" not in plan for plan in plans)


def test_what_no_index_serves_is_looked_for_in_portions(many: Message, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows far apart are all found, page by page and back again, while each request looks through a portion."""
    monkeypatch.setattr(finding, "SCANNED", 3000)
    wanted = list(
        Message.objects.filter(message_id__in=[f"copy-{n}" for n in (17, 9000, 9001, 19_999)]).order_by("-id")
    )
    Message.objects.filter(pk__in=[row.pk for row in wanted]).update(size=5_000_000)
    filters = MessageFilters(size_gt=10**6)
    for oldest_first in (False, True):
        place, seen, pages = None, [], 0
        while True:
            page = message_page(filters, limit=2, oldest_first=oldest_first, place=place)
            seen += page.rows
            pages += 1
            if page.following is None:
                break
            place = page.following
        assert seen == (wanted[::-1] if oldest_first else wanted)
        assert 7 <= pages <= 12
        back: list[Message] = []
        while page.previous is not None:
            page = message_page(filters, limit=2, oldest_first=oldest_first, place=page.previous)
            back = [*page.rows, *back]
        assert [*back, *seen[len(back) :]] == seen and len(back) >= 3


def test_an_empty_portion_says_how_far_it_was_looked(many: Message, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "SCANNED", 3000)
    page = message_page(MessageFilters(action="Nothing"), limit=50)
    assert page.rows == [] and page.following is not None
    reached = finding.looked_back_to(page, 50)
    assert reached is not None
    assert abs(reached - Message.objects.get(message_id="copy-2999").created_at).total_seconds() < 600
    assert finding.looked_back_to(message_page(MessageFilters(), limit=50), 50) is None


def test_a_beginning_that_too_many_ids_have_is_refused(many: Message, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {row.message_id for row in message_page(MessageFilters(q="copy-1999"), limit=50).rows} == {
        "copy-1999",
    }
    assert len(message_page(MessageFilters(q="copy-1998"), limit=50).rows) == 1
    Message.objects.filter(message_id="copy-1999").delete()
    assert len(message_page(MessageFilters(q="copy-1999"), limit=50).rows) == 10
    with pytest.raises(selectors.TooBroad, match="give more of the id"):
        message_page(MessageFilters(q="copy-"), limit=50)


def test_about_how_many_there_are_comes_from_the_statistics(many: Message) -> None:
    assert 15_000 < finding.planned(MessageFilters()) < 25_000
    assert 100 < finding.planned(MessageFilters(states=("failed",))) < 400
    assert finding.planned(MessageFilters(q="nobody-has-this-id")) <= 1
    with CaptureQueriesContext(connection) as queries:
        finding.planned(MessageFilters(direction="out"))
    assert all(query["sql"].startswith(("EXPLAIN", "SAVEPOINT", "RELEASE", "SELECT set_config")) for query in queries)


def test_a_partner_of_several_pairs_is_probed_pair_by_pair(many: Message) -> None:
    with CaptureQueriesContext(connection) as queries:
        page = message_page(MessageFilters(partner_id=many.pair.partner_id), limit=50)
    assert [row.pk for row in page.rows] == [many.pk]
    sql = next(query["sql"] for query in queries.captured_queries if "messaging_message" in query["sql"])
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "message_by_pair" in plan and "messaging_message_pkey" not in plan, plan


def test_a_search_that_takes_too_long_says_how_to_narrow_it(
    admin: Api, partner: PartnerSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(partner)

    def slow(queryset: Any) -> Any:
        return queryset.extra(where=["pg_sleep(5) IS NOT NULL"])

    monkeypatch.setattr(selectors, "SECONDS", 0.05)
    monkeypatch.setattr(finding, "with_names", slow)
    answer = admin.get("/messages")
    assert (answer.status, answer.code) == (422, "query_too_broad")
    assert "created_gte" in answer.json["detail"]


def test_one_message_by_id_or_wire_id(admin: Api, partner: PartnerSide) -> None:
    message = submit(partner, message_id="inv-9@acme")
    by_id = admin.get(f"/messages/{message.public_id}")
    assert by_id.json == admin.get("/messages/inv-9@acme").json == admin.get(f"/messages/{message.pk}").json
    assert by_id.json["payloads"][0]["sha256"] == hashlib.sha256(b"<Order/>").hexdigest()
    assert by_id.json["partner"]["name"] == partner.terms.partner_name
    assert by_id.json["allowed_actions"] == ["cancel"]


@pytest.mark.parametrize(
    "reference", ["msg_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7", "nothing@nowhere", "pair_x", "%00", "ä%ff"]
)
def test_unknown_messages_are_not_found(admin: Api, reference: str) -> None:
    for below in ("", "/payloads/1", "/wire", "/transmissions", "/signals", "/events"):
        answer = admin.get(f"/messages/{reference}{below}")
        assert (answer.status, answer.code) == (404, "not_found"), below


def test_the_estimate_is_about_what_q_finds_too(admin: Api, partner: PartnerSide) -> None:
    for _ in range(3):
        submit(partner)
    answer = admin.get("/messages", {"q": "no-such-id", "count": "estimate"})
    assert (answer.json["data"], answer.json["estimated_count"]) == ([], 0)


def test_a_wire_id_that_two_messages_have_is_ambiguous(admin: Api, partner: PartnerSide) -> None:
    submit(partner, message_id="twin@acme")
    partner.send(partner.message(1, "twin@acme"))
    answer = admin.get("/messages/twin@acme")
    assert (answer.status, answer.code) == (409, "ambiguous_message_id")
    assert len(ids(admin.get("/messages", {"q": "twin@acme"}))) == 2


def test_an_unchanged_message_is_not_sent_again(admin: Api, partner: PartnerSide) -> None:
    message = submit(partner)
    path = f"/messages/{message.public_id}"
    first = admin.get(path)
    for known in (first.etag, f"W/{first.etag}", f'"x", {first.etag}', "*"):
        again = admin.get(path, If_None_Match=known)
        assert (again.status, again.content, again.etag) == (304, b"", first.etag)
    with link():
        work()
    changed = admin.get(path, If_None_Match=first.etag)
    assert (changed.status, changed.json["state"]) == (200, "awaiting_ack")
    assert changed.etag != first.etag
    assert first.headers["cache-control"] == "private, no-cache"


def test_a_payload_comes_as_it_was_handed_in(admin: Api, partner: PartnerSide) -> None:
    content = bytes(range(256)) * 3
    message = message_submit(
        agreement=partner.terms.tpa_id,
        service=SERVICE,
        action=ACTION,
        payloads=[NewPayload(content, "text/html; charset=utf-8", 'ä"order.html')],
    ).message
    answer = admin.get(f"/messages/{message.public_id}/payloads/1", Accept="text/html")
    assert (answer.status, answer.content) == (200, content)
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    expected = {
        "content-type": "text/html; charset=utf-8",
        "content-disposition": "attachment; filename*=utf-8''%C3%A4_order.html",
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; sandbox",
        "digest": f"sha-256={digest}",
        "repr-digest": f"sha-256=:{digest}:",
        "accept-ranges": "bytes",
        "content-length": str(len(content)),
    }
    assert {name: answer.headers[name] for name in expected} == expected
    entry = AuditEntry.objects.get(verb="payload.read")
    assert (entry.object_id, entry.after["payload"]) == (message.public_id, 1)
    again = admin.get(f"/messages/{message.public_id}/payloads/1", If_None_Match=answer.etag)
    assert (again.status, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("asked", "status", "content", "said"),
    [
        ("bytes=0-3", 206, b"<Ord", "bytes 0-3/8"),
        ("bytes=2-", 206, b"rder/>", "bytes 2-7/8"),
        ("bytes=-2", 206, b"/>", "bytes 6-7/8"),
        ("bytes=-99", 206, b"<Order/>", "bytes 0-7/8"),
        ("bytes=4-99", 206, b"er/>", "bytes 4-7/8"),
        ("bytes=0-0", 206, b"<", "bytes 0-0/8"),
        ("bytes=8-", 416, None, "bytes */8"),
        ("bytes=-0", 416, None, "bytes */8"),
        ("bytes=5-2", 200, b"<Order/>", None),
        ("bytes=-", 200, b"<Order/>", None),
        ("bytes=0-1,3-4", 200, b"<Order/>", None),
        ("lines=1-2", 200, b"<Order/>", None),
        ("bytes=" + "9" * 30 + "-", 200, b"<Order/>", None),
    ],
)
def test_ranges(
    admin: Api, partner: PartnerSide, asked: str, status: int, content: bytes | None, said: str | None
) -> None:
    path = f"/messages/{submit(partner).public_id}/payloads/1"
    answer = admin.get(path, Range=asked)
    assert answer.status == status
    assert answer.headers.get("content-range") == said
    if content is None:
        assert answer.code == "range_not_satisfiable"
    else:
        assert answer.content == content


def test_a_range_of_another_version_is_the_whole(admin: Api, partner: PartnerSide) -> None:
    path = f"/messages/{submit(partner).public_id}/payloads/1"
    etag = admin.get(path).etag
    assert admin.get(path, Range="bytes=0-3", If_Range=etag).status == 206
    assert admin.get(path, Range="bytes=0-3", If_Range='"other"').status == 200


@pytest.mark.parametrize("number", ["0", "2", "x", "-1", "99999", "1" * 40, "²"])
def test_payloads_that_are_not_there(admin: Api, partner: PartnerSide, number: str) -> None:
    answer = admin.get(f"/messages/{submit(partner).public_id}/payloads/{number}")
    assert (answer.status, answer.code) == (404, "not_found")


def test_a_lost_payload_file_is_said(admin: Api, partner: PartnerSide) -> None:
    message = submit(partner)
    Payload.objects.update(content=None, stored_as="ab/none")
    answer = admin.get(f"/messages/{message.public_id}/payloads/1")
    assert (answer.status, answer.code) == (503, "payload_missing")


def test_a_name_that_a_partner_made_up_stays_a_name(admin: Api, partner: PartnerSide) -> None:
    message = submit(partner)
    Payload.objects.update(filename="../../x\r\nSet-Cookie: a=b", content_type="text/html\r\nX: y")
    answer = admin.get(f"/messages/{message.public_id}/payloads/1")
    assert answer.status == 200
    assert answer.headers["content-disposition"] == 'attachment; filename=".._.._x__Set-Cookie: a=b"'
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "set-cookie" not in answer.headers


def test_the_wire_shows_exactly_what_was_sent_and_received(admin: Api, partner: PartnerSide) -> None:
    message = submit(partner)
    assert admin.get(f"/messages/{message.public_id}/wire").code == "wire_not_prepared"
    with link() as wire:
        work()
    answer = admin.get(f"/messages/{message.public_id}/wire")
    assert (answer.content, answer.headers["content-type"]) == (wire.last.body, wire.last.content_type)
    arrival = partner.message(1, "in-1@partner")
    partner.send(arrival)
    received = admin.get("/messages/in-1@partner/wire")
    assert (received.content, received.headers["content-type"]) == (arrival.body, arrival.content_type)
    assert AuditEntry.objects.filter(verb="message.read_wire").count() == 2


@pytest.mark.parametrize("asked", ["bytes=0-99", "bytes=1000-299999", "bytes=299000-301500", "bytes=-5000"])
def test_what_is_large_comes_as_it_was_on_the_wire_and_was_not_held(
    admin: Api, partner: PartnerSide, settings: Any, asked: str
) -> None:
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 1000
    content = b"".join(b"%07d\n" % number for number in range(60_000))
    message = submit(partner, content)
    with link() as wire:
        work()
    octets, path = wire.last.octets, f"/messages/{message.public_id}/wire"
    assert disclosing.wire_open(message_id=message.pk, actor=Actor("ann"), as_file=True).large is not None
    whole = admin.get(path)
    assert (whole.content, whole.headers["content-length"]) == (octets, str(len(octets)))
    begin, end = asked.removeprefix("bytes=").split("-")
    wanted = octets[int(begin) : int(end) + 1] if begin else octets[-int(end) :]
    part = admin.get(path, Range=asked)
    assert (part.status, part.content) == (206, wanted)


def test_a_zip_file_of_large_documents_is_not_held(
    admin: Api, partner: PartnerSide, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 1000
    contents = [random.Random(1).randbytes(700_000), b"small", b"b" * 300_000]
    message = message_submit(
        agreement=partner.terms.tpa_id,
        service=SERVICE,
        action=ACTION,
        payloads=[NewPayload(content) for content in contents],
    ).message

    def hold(*_: object) -> bytes:
        raise AssertionError("it is held")

    monkeypatch.setattr(storage, "load", hold)
    path = f"/messages/{message.public_id}/documents"
    answer = admin.get(path)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as packed:
        assert [packed.read(name) for name in packed.namelist()] == contents
    assert admin.get(path).content == answer.content, "the same octets whenever"
    assert (
        answer.headers["repr-digest"]
        == f"sha-256=:{base64.b64encode(hashlib.sha256(answer.content).digest()).decode()}:"
    )


def test_attempts_signals_and_history(admin: Api, partner: PartnerSide) -> None:
    with link() as wire:
        message = submit(partner)
        work()
        acknowledgement = partner.acknowledgement(wire.last)
        partner.send(acknowledgement)
    Transmission.objects.update(response=b"HTTP/1.1 204 No Content\r\n\r\n")
    path = f"/messages/{message.public_id}"
    (attempt,) = admin.get(f"{path}/transmissions").json["data"]
    assert (attempt["number"], attempt["outcome"], attempt["http_status"]) == (1, "sent", 204)
    response = admin.get(f"/transmissions/{attempt['id']}/response")
    assert response.content == b"HTTP/1.1 204 No Content\r\n\r\n"
    (signal,) = admin.get(f"{path}/signals").json["data"]
    assert (signal["kind"], signal["direction"], signal["state"]) == ("ack", "in", "matched")
    octets = admin.get(f"/signals/{signal['id']}/wire")
    assert (octets.content, octets.headers["content-type"]) == (acknowledgement.body, acknowledgement.content_type)
    kinds = [event["type"] for event in admin.get(f"{path}/events").json["data"]]
    assert kinds == ["message.accepted", "message.delivered"]
    for gone in ("/transmissions/att_x/response", "/signals/sig_x/wire"):
        assert admin.get(gone).code == "not_found"
    assert Signal.objects.count() == 1


def test_a_message_that_waits_is_cancelled(admin: Api, partner: PartnerSide) -> None:
    message = submit(partner)
    path = f"/messages/{message.public_id}"
    etag = admin.get(path).etag
    answer = admin.post(f"{path}/cancel", REASON, If_Match=etag)
    assert (answer.status, answer.json["state"], answer.json["allowed_actions"]) == (200, "cancelled", ["resubmit"])
    assert answer.etag == admin.get(path).etag != etag
    assert AuditEntry.objects.get(verb="message.cancel").reason == REASON["reason"]
    again = admin.post(f"{path}/cancel", REASON)
    assert (again.status, again.code, again.json["current_state"]) == (409, "wrong_state", "cancelled")


def test_a_message_in_flight_is_skipped_by_cancelling(admin: Api, partner: PartnerSide) -> None:
    pair = in_flight(partner)
    path = f"/messages/msg_{pair.in_flight_id.hex}"  # type: ignore[union-attr]
    for known, code in (({}, "precondition_required"), ({"If_Match": '"old"'}, "stale")):
        refused = admin.post(f"{path}/cancel", REASON, **known)
        assert (refused.status, refused.code) == (428 if code == "precondition_required" else 412, code)
    assert admin.get(path).json["state"] == "awaiting_ack" and partner.outbound.last_sequence == 1
    answer = admin.post(f"{path}/cancel", REASON, If_Match=admin.get(path).etag)
    assert (answer.status, answer.json["state"]) == (200, "cancelled")
    assert partner.outbound.last_sequence == 0
    again = admin.post(f"{path}/cancel", REASON)
    assert (again.status, again.code) == (409, "wrong_state"), "what is done is told first"


def test_who_saw_a_message_wait_does_not_skip_it(
    admin: Api, partner: PartnerSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = submit(partner)
    path = f"/messages/{message.public_id}"
    etag = admin.get(path).etag

    def sent_meanwhile(*args: Any, **kwargs: Any) -> None:
        check_unchanged(*args, **kwargs)
        with link():
            work()

    monkeypatch.setattr(views, "check_unchanged", sent_meanwhile)
    refused = admin.post(f"{path}/cancel", REASON, If_Match=etag)
    assert (refused.status, refused.code) == (412, "stale")
    assert Message.objects.get(pk=message.pk).state == "awaiting_ack"
    assert not AuditEntry.objects.filter(verb="message.cancel").exists()


def test_cancelling_checks_what_it_is_given(admin: Api, partner: PartnerSide) -> None:
    message = submit(partner)
    path = f"/messages/{message.public_id}/cancel"
    for body, pointer in (({}, "#/reason"), ({"reason": "  "}, "#/reason"), ({"reason": 7}, "#/reason")):
        answer = admin.post(path, body)
        assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, pointer)
    assert admin.post(path, {**REASON, "x": 1}).json["errors"][0]["code"] == "unknown_field"
    assert admin.post(path, REASON, If_Match='"old"').code == "stale"
    assert admin.post(path + "?x=1", REASON).code == "unknown_parameter"
    partner.send(partner.message(1, "in-1@partner"))
    assert admin.post("/messages/in-1@partner/cancel", REASON).code == "not_found"
    assert Message.objects.get(pk=message.pk).state == "queued"


def test_cancelling_a_message_that_failed_frees_the_pair(admin: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    path = f"/messages/msg_{pair.in_flight_id.hex}/cancel"  # type: ignore[union-attr]
    answer = admin.post(path, REASON, If_Match="*")
    assert (answer.status, partner.outbound.flow) == (200, "idle")
