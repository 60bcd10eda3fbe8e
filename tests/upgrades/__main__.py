"""`make side-by-side`: the code of the previous commit and that of today on the same tables, under traffic.

Today's migrations make the tables. A hub of the old code works on them, then old and new processes side by side, then
the old ones end one after the other, and the new ones go on. A partner's hub sends and receives over a link that loses
and repeats. Both codes run in the Python environment of today's. Exit status 1: something is broken; 2: the old code
cannot be run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "rmhub.settings"
django.setup()

from tests.upgrades.revision import Unusable, checked_out  # noqa: E402
from tests.upgrades.run import side_by_side, text  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.upgrades", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--revision", default="HEAD~1", help="the old code: a commit, tag or branch (HEAD~1)")
    parser.add_argument("--documents", type=int, default=100, help="from each hub in each phase, at least (100)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--logs", action="store_true", help="print what the processes say")
    options = parser.parse_args()

    def log(line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)

    try:
        with checked_out(options.revision) as old:
            found = side_by_side(old, log, documents=options.documents, logs=options.logs)
    except Unusable as error:
        print(f"Not tried: {error}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(found), indent=1) if options.json else text(found))
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
