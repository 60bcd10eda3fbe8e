"""docs/causes.md, made from the list of causes: `python -m tests.messaging.causes.causes_page`."""

from __future__ import annotations

import os

import django

from messaging import causes
from tests import ROOT

DOCUMENT = ROOT / "docs" / "causes.md"


def rendered() -> str:
    """The page's text."""
    lines = [
        "# Causes",
        "",
        "Why something went wrong, as a stable code. Codes are on pairs, messages, transmissions and incidents, in the "
        "API and in events; the console shows the words, and links each code to its page *Causes* (`/causes/`). In the "
        "API `GET /api/v1/causes` is this list. *Time fixes it* says whether waiting or trying again may be enough.",
        "",
        "This page is made from `messaging/causes`; a test fails when it is stale.",
    ]
    groups = dict.fromkeys(cause.group for cause in causes.CAUSES.values())
    for group in groups:
        lines += ["", f"## {group}", "", "| code | what happened | what to do | time fixes it |"]
        lines += ["| --- | --- | --- | --- |"]
        lines += [
            f"| `{cause.code}` | **{cause.label}.** {cause.sentence} | {cause.action} | "
            f"{'yes' if cause.retryable else 'no'} |"
            for cause in causes.CAUSES.values()
            if cause.group == group
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    DOCUMENT.write_text(rendered())
