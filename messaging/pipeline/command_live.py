"""`manage.py pipeline live [--once]`: counts what happens, and raises incidents for what is unusual."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any, Protocol

from django.core.management.base import CommandError


class Output(Protocol):
    """A command's stdout."""

    def write(self, msg: str) -> object: ...


def add_arguments(parser: ArgumentParser) -> None:
    """Of this subcommand."""
    parser.add_argument("--once", action="store_true", help="count what there is, judge it, and end")


def handle(options: Mapping[str, Any], stdout: Output) -> None:
    """Runs until it gets SIGTERM or SIGINT; what it has counted is kept."""
    from messaging.pipeline import errors, java, session
    from messaging.pipeline.live import query
    from messaging.reports.services.live_watch import Superseded

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    def say(line: str) -> None:
        stdout.write(line)

    def begin() -> Any:
        made = query.small_session()
        for number in (signal.SIGTERM, signal.SIGINT):  # Spark puts its own handler in place of ours
            signal.signal(number, lambda *_: stop.set())
        return made

    try:
        query.run(begin, once=options["once"], stop=stop, say=say)
    except (query.Busy, Superseded, java.NoJava, session.SparkMisconfigured) as error:
        raise CommandError(str(error)) from error
    except Exception as error:
        if not stop.is_set():
            raise CommandError(f"The live watch failed: {errors.sentence(error)}") from error
    finally:
        query.end_session()
    say("The live watch has ended.")
