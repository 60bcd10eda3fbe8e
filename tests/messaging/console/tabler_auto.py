"""`tabler-auto.css`: Tabler's dark rules for pages that follow the system's preference.

Tabler knows `data-bs-theme="dark"` only, and a script would be needed to set it. With these rules
`data-bs-theme="auto"` is dark when the system is, without JavaScript. After an update of Tabler:

    python -m tests.messaging.console.tabler_auto
"""

from __future__ import annotations

import re

from tests import ROOT

FOLDER = ROOT / "static" / "vendor" / "tabler-1.6.1"
_RULE = re.compile(r"([^{}]*)\{([^{}]*)\}")
_DARK = re.compile(r"^(:root)?\[data-bs-theme=dark\](?![^ ]*navbar)")


def made(css: str) -> str:
    """The text of tabler-auto.css for the text of tabler.min.css."""
    rules = []
    for selectors, body in _RULE.findall(css):
        dark = [one.strip() for one in _split(selectors) if _DARK.match(one.strip())]
        # With `:root` in the same list a rule holds in every theme already.
        if dark and ":root" not in selectors.split(","):
            rules.append(",".join(one.replace("=dark]", "=auto]", 1) for one in dark) + "{" + body + "}")
    banner = "/* Made from tabler.min.css (MIT, see LICENSE) by tests/messaging/console/tabler_auto.py. */\n"
    return banner + "@media (prefers-color-scheme:dark){\n" + "\n".join(rules) + "\n}\n"


def _split(text: str) -> list[str]:
    """The selectors of a list; commas inside parentheses or brackets do not part."""
    found, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += sign in "(["
        depth -= sign in ")]"
        if sign == "," and not depth:
            found.append(text[start:at])
            start = at + 1
    return [*found, text[start:]]


if __name__ == "__main__":
    (FOLDER / "tabler-auto.css").write_text(made((FOLDER / "tabler.min.css").read_text()))
