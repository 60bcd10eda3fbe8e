"""Whatever is thrown at the API, the answer is a problem and not an accident of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from messaging.bulk.services.jobs import job_create
from messaging.journal.audit import Actor
from messaging.models import Delivery
from tests.messaging.access.test_access_api import SCOPES
from tests.messaging.api.client import Api, make_incident, suspended
from tests.messaging.deliveries.documents import documents_from, make_queue
from tests.messaging.factories import partner_side
from tests.partners.factories import make_agreement
from tests.sizes import ALL
from tests.staged import staged

pytestmark = pytest.mark.django_db

MEMBERS = """
    reason expected name is_own contact identifiers party uri transport address connect_timeout tpa_id own_party
    partner own_endpoint partner_endpoint services semantics timeout retries strict_sequence note direction kind
    username secret fingerprint valid_from valid_until url types enabled scopes owner expires_at agreement service
    action message_id payloads label documents url callable_name timeout answers retry_statuses detect_duplicates
    use_history history_ttl document_id document_id_path resolver resolver_url resolver_callable resolver_failure
    retry_until max_retries retry_interval when_exhausted suspend_on_error concurrency ordered lease_seconds monitor
    monitor_url monitor_callable monitor_interval join_type join_timeout silent_after limit seconds consumer claim
    detail delay decision remind_in filter ids job range_from range_to extract columns skip_unreadable verdicts kinds
    run log_columns
""".split()  # noqa: SIM905

BODIES: dict[str, bytes] = {
    "empty": b"",
    "blank": b" ",
    "cut": b'{"reason": "x',
    "no json": b"reason=x",
    "not utf-8": b'{"reason": "\xff\xfe"}',
    "byte order mark": b'\xef\xbb\xbf{"reason": "x"}',
    "nan": b'{"expected": NaN}',
    "infinite": b'{"expected": 1e999}',
    "null": b"null",
    "number": b"7",
    "string": b'"x"',
    "list": b"[]",
    "list of lists": b"[[[]]]",
    "twice": b'{"reason": "a", "reason": "b"}',
    "deep list": b"[" * 200_000,
    "deep object": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "huge number": b'{"expected": ' + b"9" * 5000 + b"}",
    "past every number": b'{"reason": "why", "limit": 1e400, "seconds": -1, "remind_in": 1.5, "delay": true}',
    "ids of others": b'{"reason": "why", "claim": "msg_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7", "ids": ["\\u0000", "del_"],'
    b' "filter": {"trigger": "\\u0000", "doubt": "\\ud800"}, "action": "settle_deliveries", "decision": "duplicate"}',
    "nul in a filter": b'{"reason": "why", "action": "settle_messages", "decision": "delivered",'
    b' "filter": {"pair": "pair_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7", "cause": "\\u0000"}}',
    "nul in a trigger": b'{"reason": "why", "name": "x", "kind": "pull", "callable_name": "a\\u0000",'
    b' "documents": [{"service": "\\u0000", "action": "\\ud800"}]}',
    "large number": b'{"expected": 999999999999999999999999999999, "timeout": 99999999999999999999}',
    "nul in a value": b'{"reason": "a\\u0000b", "name": "a\\u0000", "tpa_id": "\\u0000", "url": "http://x\\u0000"}',
    "nul in a name": b'{"a\\u0000b": 1}',
    "half a pair": b'{"reason": "\\ud800", "name": "\\udfff", "\\ud800": "\\ud800"}',
    "wrong types": json.dumps({name: {"a": [1, None]} for name in MEMBERS}).encode(),
    "lists everywhere": json.dumps({name: [[["x"]], 7] for name in MEMBERS}).encode(),
    "nulls": json.dumps(dict.fromkeys(MEMBERS)).encode(),
    "instants": b'{"reason": "why", "valid_from": "0001-01-01T00:00:00+14:00",'
    b' "valid_until": "9999-12-31T23:59:59-14:00", "expires_at": "0001-01-01T00:00:00+14:00"}',
}
UNREADABLE = {
    *("blank", "cut", "no json", "not utf-8", "byte order mark", "nan", "infinite", "number", "string", "list"),
    *("list of lists", "twice", "deep list", "deep object", "huge number", "nul in a name", "half a pair"),
}
FORMS: dict[str, bytes] = {
    "empty": b"",
    "no end": b'--x\r\nContent-Disposition: form-data; name="payload"; filename="a"\r\n\r\nabc',
    "no name": b"--x\r\nContent-Disposition: form-data\r\n\r\nabc\r\n--x--\r\n",
    "bad encoding": b'--x\r\nContent-Disposition: form-data; name="payload"; filename="a"\r\n'
    b"Content-Transfer-Encoding: base64\r\n\r\n!!!\r\n--x--\r\n",
    "nul": b'--x\r\nContent-Disposition: form-data; name="agreement"\r\n\r\na\x00b\r\n--x--\r\n',
    "not utf-8": b'--x\r\nContent-Disposition: form-data; name="agreement\xff"\r\n\r\n\xff\xfe\r\n--x--\r\n',
    "many fields": b"".join(
        b'--x\r\nContent-Disposition: form-data; name="f%d"\r\n\r\n1\r\n' % number for number in range(1100)
    )
    + b"--x--\r\n",
    "many files": b"".join(
        b'--x\r\nContent-Disposition: form-data; name="payload"; filename="f"\r\n\r\n1\r\n' for _ in range(150)
    )
    + b"--x--\r\n",
    "large field": b'--x\r\nContent-Disposition: form-data; name="agreement"\r\n\r\n'
    + b"a" * 3_000_000
    + b"\r\n--x--\r\n",
}
IDS = ("%00", "%ff%fe", "..", "x" * 3000, "msg_" + "z" * 32, "0" * 32, "%2e%2e%2f", "💥", "'; DROP TABLE", "-1", "null")
QUERIES = (
    "?limit=x",
    "?limit=99999999999999999999",
    "?cursor=",
    "?cursor=%00",
    "?cursor=a:b:c",
    "?%00=1",
    "?q=%00",
    "?q=%ff",
    "?state[]=x",
    "?created_gte=0001-01-01T00:00:00%2B14:00&created_lt=9999-12-31T23:59:59-14:00",
    "?wait=-1",
    "?" + "a=1&" * 2000,
    "?sort=" + "x" * 5000,
)


@pytest.fixture
def world(db: None) -> dict[str, str]:
    """Things that exist, by the path that they belong to."""
    return staged(_world)


def _world() -> dict[str, str]:
    partner = partner_side()
    pair = suspended(partner)
    incident = make_incident()
    trigger = make_queue()
    documents_from(partner, "NewOrder")
    delivery = Delivery.objects.get()
    Delivery.objects.update(state="in_doubt", doubt="started_not_completed", due_at=None)
    job = job_create(
        action="settle_deliveries",
        parameters={"decision": "duplicate"},
        ids=[delivery.pk],
        actor=Actor("test"),
        reason="why not, after all",
    )
    return {
        "pairs": pair.public_id,
        "messages": f"msg_{pair.in_flight_id.hex}",  # type: ignore[union-attr]
        "incidents": incident.public_id,
        "triggers": trigger.public_id,
        "deliveries": delivery.public_id,
        "bulk-operations": job.public_id,
        "agreements": make_agreement(activate=False).agreement.public_id,
        "parties": f"par_{pair.partner_id.hex}",
    }


def operations(*methods: str) -> list[Any]:
    """Parameters (method, path, whether it is the first of the method under its first word)."""
    found, seen = [], set()
    for name in SCOPES:
        method, _, path = name.partition(" ")
        if method in methods:
            first = (method, path.partition("/")[0])
            found.append(pytest.param(method, path, first not in seen, id=name))
            seen.add(first)
    return found


def existing(path: str, world: dict[str, str]) -> str:
    """The path with things that exist, as far as the world has them."""
    known = world.get(path.partition("/")[0], "0192f3f2f3e47a5fb0c1d2e3f4a5b6c7")
    return "/" + path.replace("{}", known, 1).replace("{}", "1")


def refused(answer: Any) -> None:
    assert 400 <= answer.status < 500, (answer.status, answer.content[:500])
    assert answer.code


@pytest.mark.parametrize(("method", "path", "first"), operations("POST", "PATCH", "DELETE"))
def test_junk_bodies(admin: Api, world: dict[str, str], method: str, path: str, first: bool) -> None:
    """What is no object is refused by the reader that all operations share: the first of each kind shows it."""
    for name, body in BODIES.items():
        if name in UNREADABLE and not first and not ALL:
            continue
        answer = admin.call(method, existing(path, world), body, If_Match="*", Idempotency_Key=f"k-{len(name)}")
        # Some bodies are fine for those that need none, or change nothing.
        assert answer.status < 500, (name, answer.status, answer.content[:500])
        if answer.status >= 400:
            assert answer.code, name


@pytest.mark.parametrize("name", FORMS)
def test_junk_forms(admin: Api, name: str) -> None:
    kind = "multipart/form-data; boundary=x"
    refused(admin.call("POST", "/messages", FORMS[name], Idempotency_Key="k", Content_Type=kind))


@pytest.mark.parametrize(
    "kind",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\u00e9",
        "multipart/form-data; boundary=" + "x" * 300,
        "application/json; charset=utf-16",
    ],
)
def test_junk_content_types(admin: Api, kind: str) -> None:
    refused(admin.call("POST", "/messages", b"--x\r\n\r\n--x--", Idempotency_Key="k", Content_Type=kind))


@pytest.mark.parametrize(("method", "path", "first"), operations("GET", "POST", "PATCH", "DELETE"))
def test_junk_ids(admin: Api, method: str, path: str, first: bool) -> None:
    if "{}" not in path:
        return
    body = {"reason": "why not", "expected": 1} if "expect" in path else {"reason": "why not"}
    for junk in IDS if first or ALL else IDS[:1]:
        for place in (path.replace("{}", junk), path.replace("{}", junk, 1).replace("{}", "1")):
            refused(admin.call(method, "/" + place, None if method == "GET" else body, If_Match="*"))


@pytest.mark.parametrize(("method", "path", "first"), operations("GET"))
def test_junk_queries(admin: Api, world: dict[str, str], method: str, path: str, first: bool) -> None:
    for query in QUERIES if first or "{}" not in path or ALL else QUERIES[5:8]:
        answer = admin.call(method, existing(path, world) + query)
        assert answer.status < 500, (query, answer.content[:500])
        if answer.status >= 400:
            assert answer.code, query


@pytest.mark.parametrize(
    "header", ["If_Match", "If_None_Match", "Range", "If_Range", "Accept", "X_Request_Id", "Idempotency_Key"]
)
def test_junk_headers(admin: Api, world: dict[str, str], header: str) -> None:
    for junk in ("", '"', "\x00", "ÿ", "," * 5000, '"a",' * 500, "bytes=", "x" * 9000):
        for path in (f"/messages/{world['messages']}", f"/messages/{world['messages']}/payloads/1", "/pairs"):
            answer = admin.call("GET", path, **{header: junk})
            assert answer.status < 500, (junk, path, answer.content[:300])
        body = {"agreement": "x", "service": "x", "action": "x", "payloads": [{"content_base64": ""}]}
        headers = {"Idempotency_Key": "k", header: junk}
        refused(admin.call("POST", "/messages", body, **headers))
