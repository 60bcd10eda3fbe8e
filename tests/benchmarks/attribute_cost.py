"""What it costs a message that rules for attributes might be there: the same work with the hook, and without it.

    .venv/bin/python -m tests.benchmarks.attribute_cost          (--blocks 24 --messages 100)

In one process, in turn: documents of 4 KiB are submitted, and as many received, with the code as it is and with the
hook replaced by nothing, one message after the other, so that whatever slows the machine down slows both. CPU time of
this process; the database's is the same. At the end the same with three rules that look into each document.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import django

from rmhub import embedded
from tests.benchmarks.machine import facts as machine_facts

RULES = ("/Order/Number", "/Order/Buyer/@id", "//Line[last()]/Item")
LIMIT = 5.0  # percent


def document() -> bytes:
    """An order of 4 KiB."""
    lines = "".join(f"<Line><Item>Item {number:06d}</Item><Pieces>{number}</Pieces></Line>" for number in range(70))
    return f'<Order><Number>4711</Number><Buyer id="B-9"/>{lines}</Order>'.encode()


@contextmanager
def hub() -> Iterator[None]:
    """An empty database of its own, with the hub's tables; Django is set up for it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # the servers run as another user when we are root
        with embedded.servers(Path(folder), own=False, log=lambda line: None) as servers:
            os.environ |= {
                "DATABASE_URL": embedded.create_database(servers.database_url, "attributes"),
                "REDIS_URL": servers.redis_url,
                "RMHUB_VAR": folder,
                "RMHUB_LOG_LEVEL": "ERROR",
                "DJANGO_SETTINGS_MODULE": "rmhub.settings",
            }
            django.setup()
            from django.core.management import call_command
            from django.db import connection

            call_command("migrate", verbosity=0)
            yield
            connection.close()


def without() -> Any:
    """The hook as if there were none; what an application gives stays."""
    return mock.patch("messaging.engine.attributes.of_documents", lambda *args, given=None, **kwargs: given or None)


def cost(work: Callable[[], None]) -> float:
    """CPU milliseconds of one call."""
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


def compare(work: Callable[[], None], blocks: int, messages: int) -> tuple[list[float], list[float]]:
    """(with the hook, without it): of each block the median of its messages, which have it in turn."""
    on, off = list[float](), list[float]()
    for _ in range(messages):
        work()  # what is loaded once
    for _ in range(blocks):
        hooked, bare = list[float](), list[float]()
        for _ in range(messages):
            hooked.append(cost(work))
            with without():
                bare.append(cost(work))
        on.append(statistics.median(hooked))
        off.append(statistics.median(bare))
    return on, off


def line(what: str, on: list[float], off: list[float]) -> float:
    """Prints a row, and returns by how many percent the hook is dearer: the median of the blocks."""
    more = [100 * (one / other - 1) for one, other in zip(on, off, strict=True)]
    low, middle, high = statistics.quantiles(more, n=4)
    print(
        f"| {what} | {statistics.median(off):.3f} | {statistics.median(on):.3f} | {middle:+.2f} %"
        f" | {low:+.2f} to {high:+.2f} % |",
        flush=True,
    )
    return middle


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--messages", type=int, default=100, help="of a block, with the hook and without it each")
    chosen = parser.parse_args()
    with hub():
        from messaging.journal.audit import Actor
        from messaging.messages import attributes
        from tests.messaging.factories import partner_side, submit

        partner, content, number = partner_side(), document(), 0

        def work() -> None:
            nonlocal number
            number += 1
            submit(partner, content)
            assert partner.send(partner.message(number, content=content)) == 204

        print(f"{len(content)} bytes, {chosen.blocks} blocks of {chosen.messages} messages; {machine_facts()}\n")
        print("| CPU ms for one message submitted and one received | without the hook | with it | more | quartiles |")
        print("| --- | ---: | ---: | ---: | ---: |")
        more = line("no rule", *compare(work, chosen.blocks, chosen.messages))
        for place, path in enumerate(RULES):
            attributes.rule_create(actor=Actor("bench"), reason="to measure", name=f"a{place}", kind="xml", path=path)
        line(f"{len(RULES)} rules", *compare(work, max(2, chosen.blocks // 3), chosen.messages))
    print(f"\nWithout a rule {more:+.2f} %; the budget is {LIMIT:g} %.")
    return 1 if more > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
