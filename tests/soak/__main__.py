"""`make soak`: two hubs at half of what they can carry, for two hours (ARGS="--minutes 20" for less).

Each hub has two machines. Those of the second machine are killed or asked to end all the time; every few minutes the
archive takes what has ended and the store forgets it. Prints a line a minute; leaves table, charts and all samples in
var/soak. Exit status 1: a promise was broken, or something grew that should not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "rmhub.settings"
django.setup()

from rmhub.hubs import BASE  # noqa: E402
from tests.benchmarks import machine  # noqa: E402
from tests.soak import report  # noqa: E402
from tests.soak.run import Plan, soak  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=0.0, help="documents/s on both hubs; 0 = half of what they carry")
    parser.add_argument("--logs", action="store_true", help="print what the processes say")
    chosen = parser.parse_args()
    plan = Plan(seconds=chosen.minutes * 60, rate=chosen.rate)
    found = soak(plan, lambda said: print(said, flush=True), logs=chosen.logs)
    folder = BASE / "var" / "soak"
    folder.mkdir(parents=True, exist_ok=True)
    at = folder / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    facts = {"commit": machine.commit(BASE), "machine": machine.facts()}
    at.with_suffix(".json").write_text(json.dumps({**facts, **asdict(found)}, indent=1))
    at.with_suffix(".svg").write_text(report.svg(found.samples))
    text = report.text(found)
    at.with_suffix(".md").write_text(text)
    print(f"\n{text}\n{at}.md, .svg and .json have all of it")
    return 0 if not found.broken and not report.grown(found.samples) else 1


if __name__ == "__main__":
    sys.exit(main())
