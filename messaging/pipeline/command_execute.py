"""`manage.py pipeline execute RUN --claim UUID`: what `serve` starts as a child for each run."""

from __future__ import annotations

import os
import signal
import uuid
from types import FrameType
from typing import Any, NoReturn

from django.core.management.base import CommandParser, OutputWrapper

from messaging.pipeline import driver, session
from messaging.reports.services import runs as pipeline_runs

STOPPED = 143
NICE = 10


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("run", type=uuid.UUID)
    parser.add_argument("--claim", type=uuid.UUID, required=True)


def handle(options: dict[str, Any], stdout: OutputWrapper) -> int:
    signal.signal(signal.SIGTERM, _stopped)
    # Live traffic goes first where both run on one machine; Spark's own process inherits it.
    os.nice(NICE)
    run = pipeline_runs.owned(options["run"], options["claim"])
    try:
        return 0 if driver.execute(run) else 1
    except (KeyboardInterrupt, driver.Stopped):
        return STOPPED
    finally:
        session.stop()


def _stopped(number: int, frame: FrameType | None) -> NoReturn:
    raise driver.Stopped
