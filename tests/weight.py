"""Prints what the code weighs: `python -m tests.weight [output of pytest --durations=0]`.

Lines by room, files that name one thing (how many files a change of it touches), questions that only a profile should
answer, templates, hand-written tables; and the slowest tests, when the output of a run is given.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

BASE = Path(__file__).resolve().parent.parent
PRODUCT = ("rmhub", "partners", "messaging")
# What a change is likely to be about: settings of an agreement, transports, profiles, kinds of objects.
PROBES = (
    *("transport_retries", "memory_window", "repeat_interval", "sftp", "smtp", "ebxml", "repeatable"),
    *("routes", "notification_rule", "legal_hold"),
)
PROFILE_QUESTION = re.compile(
    r"\b(is_(atomic|repeatable|stream)|carries_(requests|stream|transactions))\(|\bProfile\.[A-Z]"
)
SLOWEST = 60


def product() -> Iterator[Path]:
    """Python files that run in production, without migrations."""
    for folder in PRODUCT:
        yield from (path for path in sorted((BASE / folder).rglob("*.py")) if "migrations" not in path.parts)


def room(path: Path) -> str:
    """The package that a file belongs to: two levels below the top, or one where there are only two."""
    parts = path.relative_to(BASE).parts[:-1]
    return "/".join(parts[:2])


def main(durations: str | None) -> None:
    """Prints the tables."""
    texts = {path: path.read_text(encoding="utf-8") for path in product()}
    lines, files = Counter[str](), Counter[str]()
    for path, text in texts.items():
        lines[room(path)] += text.count("\n")
        files[room(path)] += 1
    print(f"{'room':32} {'lines':>7} {'files':>6}")
    for name in sorted(lines):
        print(f"{name:32} {lines[name]:7,} {files[name]:6}")
    print(f"{'product':32} {sum(lines.values()):7,} {sum(files.values()):6}")
    tests = [path.read_text(encoding="utf-8") for path in (BASE / "tests").rglob("*.py")]
    print(f"{'tests':32} {sum(text.count(chr(10)) for text in tests):7,} {len(tests):6}")
    print("\nproduction files that name it")
    for word in PROBES:
        naming = re.compile(rf"(?<![a-z]){word}(?![a-z])")
        print(f"  {word:30} {sum(bool(naming.search(text)) for text in texts.values()):4}")
    outside = {
        path: len(PROFILE_QUESTION.findall(text)) for path, text in texts.items() if "profiles" not in path.parts
    }
    asking = [count for count in outside.values() if count]
    print(f"\nquestions which profile it is, outside of profiles: {sum(asking)} in {len(asking)} files")
    templates = [path.read_text(encoding="utf-8") for path in (BASE / "templates").rglob("*.html")]
    print(f"templates: {len(templates)}; tables written by hand: {sum(text.count('<table') for text in templates)}")
    if durations is None:
        return
    found = re.findall(r"^ *([\d.]+)s (call|setup|teardown) +(\S.*)$", Path(durations).read_text(), flags=re.M)
    print(f"\nslowest {SLOWEST} of {sum(float(seconds) for seconds, _, _ in found):,.0f} s")
    for seconds, part, name in sorted(found, key=lambda one: -float(one[0]))[:SLOWEST]:
        print(f"  {float(seconds):7.1f} {part:8} {name}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
