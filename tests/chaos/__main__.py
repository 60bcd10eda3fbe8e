"""`make chaos`: every fault while documents of all profiles go both ways.

Exit status 1 when a promise was broken or recovery took too long.
"""

from __future__ import annotations

import argparse
import os
import sys

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "rmhub.settings"
django.setup()

from tests.chaos.faults import FULL, SHORT  # noqa: E402
from tests.chaos.run import HEAD, RECOVERY, Row, run  # noqa: E402

PROFILES = ("ebxml", "stream", "repeatable")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--profile", action="append", choices=PROFILES, help="only this one (may be given again)")
    parser.add_argument("--only", action="append", help="only faults with this in their name (may be given again)")
    parser.add_argument("--short", action="store_true", help="the faults of the test")
    parser.add_argument("--logs", action="store_true", help="print what the processes say")
    options = parser.parse_args()
    faults = [
        fault
        for fault in (SHORT if options.short else FULL)
        if not options.only or any(part.lower() in fault.name.lower() for part in options.only)
    ]
    if not faults:
        parser.error("no fault has such a name")
    print(HEAD, flush=True)
    broken = False
    rows: list[Row] = []
    try:
        run(options.profile or PROFILES, faults, log=lambda said: print(said, flush=True), logs=options.logs, rows=rows)
    except AssertionError as found:
        broken = True
        print(found, flush=True)
    slow = [row for row in rows if row.recovery is None or row.recovery > RECOVERY]
    for row in slow:
        print(f"{row.fault.name}: recovery took longer than {RECOVERY:g} s")
    return 1 if broken or slow or not all(row.kept for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
