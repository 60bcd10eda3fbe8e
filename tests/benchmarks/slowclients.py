"""How well-behaved callers fare while very many others send slowly (`make slowclients`).

A real hub on the loopback interface; partners, a program and a person ask it for a while, first alone, then beside
slow senders of bodies (one byte every two seconds, of a known length and in chunks, at every road) and of headers, who
come again whenever they are cut off. The exit status is 1 when somebody kept less than 90 % of their rate or waited
longer than a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import multiprocessing
import resource
import statistics
import subprocess
import sys
import threading
import time
from base64 import b64encode
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from urllib.parse import urlsplit

from messaging.demo.stage import Link, Parameters, Stage, running

PATHS = ("/ebxml/msh", "/exchange/tpa:nobody/", "/stream/x", "/ws-tx/registration", "/api/v1/messages", "/login/")
EVERY = 2.0  # seconds between two bytes
AGAIN = 5.0  # seconds after which one that was cut off, or refused, comes again: who comes at once is no slow client
KEPT, LONGEST = 0.9, 1.0


@dataclass(slots=True)
class Caller:
    """One who asks at a fixed rate, and makes up for lost time after a late answer; and what came of it."""

    name: str
    path: str
    headers: dict[str, str]
    times: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def run(self, port: int, until: float, rate: float) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        due = time.monotonic()
        while due < until:
            threading.Event().wait(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            try:
                connection.request("GET", self.path, headers=self.headers)
                answer = connection.getresponse()
                answer.read()
                self.wrong += [str(answer.status)] if answer.status != 200 else []
            except (OSError, http.client.HTTPException) as error:
                self.wrong.append(type(error).__name__)
                connection.close()
            self.times.append(time.monotonic() - began)
            due += 1 / rate
        connection.close()


def behaved(stage: Stage) -> list[Caller]:
    """A partner, a program, a person."""
    secret = b64encode(f"partner:{stage.secrets['a_to_b']}".encode()).decode()
    token = stage.tokens[stage.seller.name]
    return [
        Caller("partner", "/partner/echo", {"Authorization": f"Basic {secret}"}),
        Caller("API", "/api/v1/pairs", {"Authorization": f"Bearer {token}"}),
        Caller("console", "/login/", {}),
    ]


def asked(stage: Stage, port: int, seconds: float, rate: float) -> list[Caller]:
    """What they met in so many seconds."""
    callers = behaved(stage)
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=caller.run, args=(port, until, rate)) for caller in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return callers


class Slow:
    """Slow senders, in a process of their own: they must not slow down who measures."""

    def __init__(self, port: int, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._count = count
        self.open, self.cut = context.Value("i", 0), context.Value("i", 0)
        self._process = context.Process(target=send_slowly, args=(port, count, self.open, self.cut), daemon=True)

    def start(self) -> None:
        """Waits until most of them are there; those who are refused at once come and go."""
        self._process.start()
        until = time.monotonic() + 60
        while self.open.value < 1.5 * self._count and time.monotonic() < until:
            threading.Event().wait(0.1)

    def stop(self) -> None:
        self._process.kill()
        self._process.join(30)


def send_slowly(port: int, count: int, open_: Synchronized[int], cut: Synchronized[int]) -> None:
    """So many senders of bodies and as many of headers, for ever."""

    async def again(number: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                await once(number)
            await asyncio.sleep(AGAIN)

    async def once(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        open_.value += 1
        try:
            head, byte = _slow_request(number, bodies=number < count)
            writer.write(head)
            while not reader.at_eof():
                writer.write(byte)
                await writer.drain()
                try:
                    async with asyncio.timeout(EVERY):
                        if not await reader.read(65_536):
                            break
                except TimeoutError:
                    continue
            cut.value += 1
        finally:
            open_.value -= 1
            writer.close()

    async def everybody() -> None:
        await asyncio.gather(*(again(number) for number in range(2 * count)))

    asyncio.run(everybody())


def _slow_request(number: int, *, bodies: bool) -> tuple[bytes, bytes]:
    """What comes at once, and what comes again and again."""
    head = f"POST {PATHS[number % len(PATHS)]} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/xml\r\n"
    if not bodies:
        return f"{head}X-Slow: ".encode(), b"x"
    if number % 5 == 0:
        return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode(), b"1\r\nx\r\n"
    return f"{head}Content-Length: 1000\r\n\r\n".encode(), b"x"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slow", type=int, default=1000, help="how many send bodies slowly, and how many headers")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second of each well-behaved caller")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with running(link=Link(), parameters=Parameters()) as (stage, _):
        port = urlsplit(stage.seller.url).port
        assert port is not None
        # Pages name files that have to be there, as `up` makes them.
        collect = stage.seller.manage("collectstatic", "--noinput", "--verbosity", "0")
        subprocess.run(collect, env=stage.seller.environment(), check=True)
        asked(stage, port, 2, options.rate)  # what is made once is made
        alone = asked(stage, port, options.seconds, options.rate)
        slow = Slow(port, options.slow)
        slow.start()
        beside = asked(stage, port, options.seconds, options.rate)
        print(f"{slow.open.value} slow connections were open at the end; {slow.cut.value} had been cut off.\n")
        slow.stop()
    return report(alone, beside, options.seconds)


def report(alone: list[Caller], beside: list[Caller], seconds: float) -> int:
    """Prints the table; 1 when somebody fared worse than may be."""
    failed = False
    print("| | alone, requests/s | beside | kept | median ms | longest ms | wrong |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for before, after in zip(alone, beside, strict=True):
        kept = len(after.times) / max(1, len(before.times))
        longest = max(after.times)
        failed = failed or kept < KEPT or longest > LONGEST or bool(before.wrong or after.wrong)
        wrong = ", ".join(sorted({*before.wrong, *after.wrong})) or "none"
        print(
            f"| {after.name} | {len(before.times) / seconds:.1f} | {len(after.times) / seconds:.1f} | {kept:.0%} "
            f"| {statistics.median(after.times) * 1000:.0f} | {longest * 1000:.0f} | {wrong} |"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
