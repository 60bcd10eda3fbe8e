"""What Spark says when something fails, in one sentence; the rest goes into the run's detail."""

from __future__ import annotations

import re
import traceback

from messaging.exceptions import ApplicationError

LONGEST = 400
# The innermost cause says what happened; the frames before it say where Spark was.
_CAUSE = re.compile(r"^Caused by: (?P<text>.+)$", re.MULTILINE)
_CLASS = re.compile(r"^(?:[a-z_$][\w$]*\.)+(?P<name>[A-Z][\w$]*): ?")
_KNOWN = (
    (
        re.compile(r"java\.lang\.OutOfMemoryError"),
        "Spark ran out of memory: give it more (RMHUB_SPARK_MEMORY), or a shorter range.",
    ),
    (
        re.compile(r"Answer from Java side is empty|Connection refused.*py4j|Py4JNetworkError"),
        "Spark's process ended in the middle; was it killed, or is the machine out of memory?",
    ),
    (
        re.compile(r"All masters are unresponsive|Failed to connect to master|Could not connect to spark://"),
        "The cluster's master does not answer: see SPARK_MASTER and `manage.py pipeline check`.",
    ),
    (
        re.compile(r"JAVA_GATEWAY_EXITED"),
        "Spark's Java process did not start: `manage.py pipeline check` says what is missing.",
    ),
    (
        re.compile(r"StatusCode\.UNAVAILABLE"),
        "The Spark Connect server does not answer: see SPARK_REMOTE and `manage.py pipeline check`.",
    ),
    (
        re.compile(r"maxResultSize"),
        "The result is too large to be published: give Spark more memory (RMHUB_SPARK_MEMORY), or a shorter range.",
    ),
    (re.compile(r"No space left on device"), "The disk is full."),
)


def sentence(error: BaseException) -> str:
    """One sentence for people: ours where the trouble is a known one, else the innermost cause's first line."""
    if isinstance(error, ApplicationError):
        return error.detail
    text = str(error)
    for pattern, known in _KNOWN:
        if pattern.search(text) or pattern.search(type(error).__name__):
            return known
    causes = _CAUSE.findall(text)
    line = causes[-1] if causes else _first_line(text)
    line = _CLASS.sub(lambda match: f"{match['name']}: ", line).strip()
    if not line:
        line = type(error).__name__
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def detail(error: BaseException) -> str:
    """The whole of it, for whoever repairs it."""
    return "".join(traceback.format_exception(error))


def _first_line(text: str) -> str:
    for line in text.splitlines():
        line = line.strip()
        # "An error occurred while calling o52.toArrow." says nothing; the next line does.
        if line and not line.startswith("An error occurred while calling"):
            return line.removeprefix(": ")
    return ""
