"""Sends for some seconds, each of N processes one message after the other, as the peer's own `sendas2message` does.

    python -m peer_site.send PROCESSES WARM_UP_SECONDS SECONDS

Prints a JSON line when the warm-up is over, and one with what was sent after it: end and latency (ms) of each message.
"""

from __future__ import annotations

import collections
import json
import multiprocessing
import sys
import time
from typing import Any

BODY = (b"UNB+UNOA:1+A+B+240101:0000+1'\r\n" * 133)[:4096]


def run(number: int, seconds: float, gate: Any, results: Any) -> None:
    """One sender, for so many seconds after all have been loaded."""
    import django

    django.setup()
    from pyas2.models import Message, Organization, Partner
    from pyas2lib import Message as As2Message

    organization = Organization.objects.get()
    partner = Partner.objects.get()
    done: list[tuple[float, float]] = []
    states: collections.Counter[str] = collections.Counter()
    example = ""
    gate.wait()
    stop_at = time.time() + seconds
    while (begun := time.time()) < stop_at:
        name = f"f{number}_{len(done)}.edi"
        built = As2Message(sender=organization.as2org, receiver=partner.as2partner)
        built.build(
            BODY,
            filename=name,
            subject=partner.subject,
            content_type=partner.content_type,
            disposition_notification_to="bench@example.org",
        )
        message, _ = Message.objects.create_from_as2message(
            as2message=built, payload=BODY, filename=name, direction="OUT", status="P"
        )
        message.send_message(built.headers, built.content)
        ended = time.time()
        states[message.status] += 1
        if message.status != "S":
            example = example or (message.detailed_status or "")[-500:]
        done.append((ended, (ended - begun) * 1000))
    results.put((done, dict(states), example))


def main() -> None:
    processes, warm, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    results: Any = multiprocessing.Queue()
    gate: Any = multiprocessing.Barrier(processes + 1)
    senders = [
        multiprocessing.Process(target=run, args=(number, warm + seconds, gate, results)) for number in range(processes)
    ]
    for sender in senders:
        sender.start()
    gate.wait(120)
    time.sleep(warm)
    print(json.dumps({"began": time.time()}), flush=True)
    found = [results.get() for _ in senders]
    for sender in senders:
        sender.join()
    states: collections.Counter[str] = collections.Counter()
    for _, counted, _ in found:
        states.update(counted)
    print(
        json.dumps(
            {
                "messages": [message for done, _, _ in found for message in done],
                "states": dict(states),
                "example": next((example for _, _, example in found if example), ""),
            }
        )
    )


if __name__ == "__main__":
    main()
