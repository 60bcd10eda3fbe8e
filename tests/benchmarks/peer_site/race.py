"""Posts the same message twice at the same moment, again and again, and counts how often it was delivered twice.

    python -m peer_site.race TRIALS

Prints a JSON line: trials, answers (what the two said, and how often), delivered_twice.
"""

from __future__ import annotations

import collections
import json
import sys
import threading
from pathlib import Path

import django
import requests


def main() -> None:
    trials = int(sys.argv[1])
    django.setup()
    from django.conf import settings
    from pyas2.models import Organization, Partner
    from pyas2lib import Message as As2Message

    organization = Organization.objects.get()
    partner = Partner.objects.get()
    inbox = (
        Path(settings.MEDIA_ROOT).parent / "receiver" / "messages" / partner.as2_name / "inbox" / organization.as2_name
    )
    answers: collections.Counter[str] = collections.Counter()
    twice = 0
    for trial in range(trials):
        built = As2Message(sender=organization.as2org, receiver=partner.as2partner)
        built.build(
            b"x" * 2000,
            filename=f"race{trial}.edi",
            subject="race",
            content_type=partner.content_type,
            disposition_notification_to="bench@example.org",
        )
        # What a message brings is one more file in the inbox; the trials come one after the other.
        before = _files(inbox)
        said: list[str] = []
        gate = threading.Barrier(2)

        def post(
            gate: threading.Barrier = gate,
            said: list[str] = said,
            headers: dict = built.headers,
            body: bytes = built.content,
        ) -> None:
            gate.wait()
            said.append(_said(requests.post(partner.target_url, headers=headers, data=body, timeout=30)))

        both = [threading.Thread(target=post) for _ in range(2)]
        for each in both:
            each.start()
        for each in both:
            each.join()
        answers[" + ".join(sorted(said))] += 1
        twice += _files(inbox) - before > 1
    print(json.dumps({"trials": trials, "answers": dict(answers), "delivered_twice": twice}))


def _files(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


def _said(answer: requests.Response) -> str:
    if answer.status_code != 200:
        return f"HTTP {answer.status_code}"
    text = answer.text.lower()
    return "duplicate" if "duplicate" in text else "processed" if "processed" in text else "other"


if __name__ == "__main__":
    main()
