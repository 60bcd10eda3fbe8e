"""`manage.py pipeline status`: how far the lake is, and the latest runs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser, OutputWrapper

from messaging.models import LakeState, PipelineRun

_SHOWN = 15


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--runs", type=int, default=_SHOWN, help="how many")


def handle(options: dict[str, Any], stdout: OutputWrapper) -> int:
    state = LakeState.objects.filter(pk=1).first()
    if state is None or state.extracted_at is None:
        stdout.write("lake      empty: nothing was extracted yet")
    else:
        stdout.write(f"lake      as of {state.extracted_at:%Y-%m-%d %H:%M:%S} UTC, generation {state.generation}")
    for run in PipelineRun.objects.order_by("-id")[: max(0, options["runs"])]:
        progress = f" {run.step} {run.done}/{run.total}" if run.state == "running" and run.total else f" {run.step}"
        what = run.error or progress.rstrip()
        stdout.write(f"{run.created_at:%m-%d %H:%M} {run.job:9} {run.state:9} {run.public_id} {what}".rstrip())
    return 0
