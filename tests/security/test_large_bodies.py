"""Large bodies at a real web server: refused with an answer, worked on within a budget, and given back."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3

from messaging.models import Message
from rmhub.front.bodies import Budget, Full, Pace, TooLarge, fetch
from rmhub.roles import Role
from tests.messaging.api.client import make_token, make_user
from tests.messaging.factories import partner_side
from tests.messaging.profiles.repeatable.hubs import hubs
from tests.security.raw import Caller

MIB = 1024 * 1024


def test_a_budget_serves_in_turn_and_gives_up_in_time() -> None:
    async def story() -> None:
        budget = Budget(10)
        assert await budget.take(6, 0) == 6
        with pytest.raises(Full):
            await budget.take(6, 0)
        waiting = asyncio.create_task(budget.take(6, 60))
        behind = asyncio.create_task(budget.take(1, 60))
        await asyncio.sleep(0)
        assert not behind.done(), "who comes later waits, or the large ones would never have their turn"
        budget.give(6)
        assert (await waiting, await behind, budget.free) == (6, 1, 3)
        gone = asyncio.create_task(budget.take(5, 60))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        budget.give(7)
        assert budget.free == 10
        assert await budget.take(50, 0) == 10, "what is larger than all is worked on alone"

    asyncio.run(story())


def test_a_pace_gives_time_first_and_then_by_the_byte() -> None:
    pace = Pace(grace=10, rate=100, longest=60)
    assert [pace.until(1000, size) for size in (0, 100, 4999, 50_000)] == [1010, 1011, pytest.approx(1059.99), 1060]


def test_a_body_of_no_declared_length_is_read_up_to_the_limit_and_no_further(tmp_path: Path) -> None:
    """In chunks it could go on until the disk is full."""
    read: list[int] = []

    async def endless() -> dict[str, object]:
        read.append(1000)
        return {"type": "http.request", "body": b"x" * 1000, "more_body": len(read) < 1000}

    with ThreadPoolExecutor(1) as disk, pytest.raises(TooLarge):
        asyncio.run(fetch(endless, 100_000, Pace(grace=3600, rate=1, longest=7200), tmp_path, disk))
    assert len(read) == 101
    assert not list(tmp_path.iterdir())


@pytest.mark.django_db(transaction=True)
def test_what_is_too_large_is_told_so_on_a_connection_that_holds(tmp_path: Path) -> None:
    """The sender is in the middle of it, and hears the answer all the same."""
    partner = partner_side()
    token = {"Authorization": f"Bearer {make_token(make_user(Role.OPERATOR))}", "Idempotency-Key": "a"}
    shown = {"Authorization": partner.presented.authorization, "Content-Type": "text/xml"}
    files = [(f"file{number}", (f"{number}.xml", b"x" * 200_000)) for number in range(200)]
    form, kind = urllib3.encode_multipart_formdata(files)
    many, of_many = urllib3.encode_multipart_formdata([(name, (one, b"x")) for name, (one, _) in files[:150]])
    asked = (
        ("/api/v1/messages", b"[" + b" " * 75 * MIB + b"]", {**token, "Content-Type": "application/json"}),
        ("/api/v1/messages", form, {**token, "Content-Type": kind}),
        ("/api/v1/messages", many, {**token, "Content-Type": of_many}),
        ("/ebxml/msh", b"x" * 55 * MIB, shown),
        ("/exchange/tpa:x/", b"x" * 55 * MIB, shown),
    )
    with hubs(tmp_path) as (hub,):
        for path, body, headers in asked:
            answer = urllib3.request("POST", hub.url + path, body=body, headers=headers, timeout=60, retries=False)
            assert answer.status == 413, path
            if path.startswith("/api"):
                said = json.loads(answer.data)
                assert said["code"] == "body_too_large" and "DATA_UPLOAD" not in said["detail"]


@pytest.mark.django_db(transaction=True)
def test_large_bodies_take_turns_and_are_refused_when_there_is_no_room(tmp_path: Path) -> None:
    partner = partner_side()
    bodies = [partner.message(None, content=b"%d" % number * 3 * MIB, semantics="BestEffort") for number in range(6)]
    little = {"RMHUB_BODY_MEMORY_BYTES": str(4 * MIB)}

    def send(url: str, number: int) -> int:
        arrival = bodies[number]
        shown = {"Authorization": partner.presented.authorization, "Content-Type": arrival.content_type}
        answer = urllib3.request(
            "POST", f"{url}/ebxml/msh", body=arrival.body, headers=shown, timeout=60, retries=False
        )
        return answer.status

    with hubs(tmp_path, more={**little, "RMHUB_BODY_WAIT_SECONDS": "60"}) as (hub,), ThreadPoolExecutor(6) as threads:
        assert list(threads.map(lambda number: send(hub.url, number), range(6))) == [204] * 6
    assert Message.objects.count() == 6
    assert not any((tmp_path / "var" / "spool").iterdir()), "they have no names, so that a crash leaves none behind"


@pytest.mark.django_db(transaction=True)
def test_without_room_on_the_disk_the_answer_is_503_and_when_to_come_again(tmp_path: Path) -> None:
    partner = partner_side()
    token = f"Authorization: Bearer {make_token(make_user(Role.OPERATOR))}"
    shown = f"Authorization: {partner.presented.authorization}"
    large = f"Content-Length: {2 * MIB}"
    with hubs(tmp_path, more={"RMHUB_BODY_SPOOL_BYTES": str(3 * MIB), "RMHUB_BODY_GRACE_SECONDS": "600"}) as (hub,):
        first = Caller(hub.port).head("POST", "/ebxml/msh", shown, large, "Expect: 100-continue")
        assert first.socket.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"  # its place is taken
        second = Caller(hub.port).head("POST", "/ebxml/msh", shown, large).answer()
        assert (second.status, second.headers["retry-after"], second.body) == (503, "5", b"")
        about = (token, "Content-Type: application/json", "Idempotency-Key: a", large)
        third = Caller(hub.port).head("POST", "/api/v1/messages", *about).answer()
        assert (third.status, third.headers["retry-after"]) == (503, "5")
        assert json.loads(third.body)["code"] == "overloaded"
        first.close()
