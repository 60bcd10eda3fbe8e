"""What the processes print, as lines with the process's name in front."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TextIO

Output = Callable[[str, str], None]
"""Takes the name of a process and one line that it printed, without the line's end."""

COLOURS = (36, 32, 33, 35, 34, 31)  # ANSI: cyan, green, yellow, magenta, blue, red
LONGEST = 64 * 1024


class Lines:
    """Cuts the bytes of one process into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that are complete with this chunk; a line that never ends is cut so that memory stays bounded."""
        *complete, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST:
            complete.append(self._rest)
            self._rest = b""
        return [_text(line) for line in complete]

    def flush(self) -> list[str]:
        """What the process printed last without a line's end, if anything."""
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest else []


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")


class Console:
    """Prints lines as ``name | line``; names are coloured on a terminal and nowhere else (files, pipes, CI)."""

    def __init__(self, names: Iterable[str], stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        distinct = list(dict.fromkeys(names))
        self._width = max((len(name) for name in distinct), default=0)
        self._colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(distinct)}
        self._terminal = self._stream.isatty()

    def __call__(self, name: str, line: str) -> None:
        """Print one line. A reader that has gone away (``| head``) must not take the processes down with it."""
        label = f"{name:<{self._width}} |"
        if self._terminal:
            label = f"\x1b[{self._colours.get(name, 37)}m{label}\x1b[0m"
        try:
            self._stream.write(f"{label} {line}\n")
            self._stream.flush()
        except (BrokenPipeError, ValueError):
            pass
