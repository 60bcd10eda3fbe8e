"""Makes `tabler-auto.css` out of `tabler.min.css`: Tabler's dark rules for pages that follow the system's preference.

Tabler knows `data-bs-theme="dark"` only, and a script would be needed to set it. With these rules
`data-bs-theme="auto"` is dark when the system is, without JavaScript. Run it after an update of Tabler:

    python static/vendor/dark_by_preference.py static/vendor/tabler-1.6.1
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

RULE = re.compile(r"([^{}]*)\{([^{}]*)\}")
DARK = re.compile(r"^(:root)?\[data-bs-theme=dark\](?![^ ]*navbar)")


def split_selectors(text: str) -> list[str]:
    """The selectors of a list; commas inside parentheses or brackets do not part."""
    found, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += sign in "(["
        depth -= sign in ")]"
        if sign == "," and not depth:
            found.append(text[start:at])
            start = at + 1
    return [*found, text[start:]]


def main(folder: Path) -> None:
    css = (folder / "tabler.min.css").read_text()
    rules = []
    for selectors, body in RULE.findall(css):
        dark = [one.strip() for one in split_selectors(selectors) if DARK.match(one.strip())]
        # `:root` in the same list holds in every theme.
        if dark and ":root" not in selectors.split(","):
            rules.append(",".join(one.replace("=dark]", "=auto]", 1) for one in dark) + "{" + body + "}")
    banner = "/* Made from tabler.min.css (MIT, see LICENSE) by ../dark_by_preference.py. */\n"
    text = banner + "@media (prefers-color-scheme:dark){\n" + "\n".join(rules) + "\n}\n"
    (folder / "tabler-auto.css").write_text(text)
    print(f"{len(rules)} rules")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
