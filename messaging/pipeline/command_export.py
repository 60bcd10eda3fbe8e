"""`manage.py pipeline export-log PARTNER`: our own log in the form in which partners send theirs."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from django.core.management.base import CommandError
from django.utils.dateparse import parse_date, parse_datetime


class Output(Protocol):
    """A command's stdout."""

    def write(self, msg: str) -> object: ...


def add_arguments(parser: ArgumentParser) -> None:
    """Of this subcommand."""
    parser.add_argument("partner", help="the partner's name or id (par_...)")
    parser.add_argument("--agreement", default="", metavar="TPAID", help="only under this agreement (TPAId or id)")
    parser.add_argument(
        "--from", dest="begin", default="", metavar="DATE", help="inclusive: 2026-01-31, or with a time"
    )
    parser.add_argument("--to", dest="end", default="", metavar="DATE", help="exclusive")
    parser.add_argument("--into", default="", metavar="FOLDER", help="where log.csv and log.parquet are written")


def handle(options: Mapping[str, Any], stdout: Output) -> None:
    """Runs the export here and now, and says where the files are."""
    from messaging.choices import Interface
    from messaging.journal.audit import Actor
    from messaging.models import PipelineRun
    from messaging.pipeline import driver, session
    from messaging.report_choices import RunState
    from messaging.reports.selectors import pipeline
    from messaging.reports.services import partner_logs
    from messaging.reports.services import runs as pipeline_runs

    party, agreement = _named(options["partner"], options["agreement"])
    run = partner_logs.export_request(
        party_id=party,
        agreement_id=agreement,
        actor=Actor(f"command:{getpass.getuser()}", Interface.COMMAND),
        range_from=_instant("--from", options["begin"]),
        range_to=_instant("--to", options["end"]),
    )
    claimed = pipeline_runs.claim_run(run.pk, worker=f"{socket.gethostname()}:{os.getpid()}")
    if claimed is None:
        raise CommandError(f"Another run is in work; {run.public_id} waits for `manage.py pipeline serve`.")
    stdout.write(f"{run.public_id}: our log of what was exchanged with {options['partner']}")
    try:
        driver.execute(claimed)
    finally:
        session.stop()
    ended = PipelineRun.objects.get(pk=run.pk)
    if ended.state != RunState.SUCCEEDED:
        raise CommandError(ended.error or f"{run.public_id} was {ended.get_state_display().lower()}.")
    for artifact in ended.artifacts:
        path = pipeline.artifact(ended, artifact["name"])
        if options["into"]:
            into = Path(options["into"])
            into.mkdir(parents=True, exist_ok=True)
            path = Path(shutil.copy(path, into / artifact["name"]))
        stdout.write(f"{path}  {artifact['rows']:,} rows, sha256 {artifact['sha256']}")


def _named(partner: str, agreement: str) -> tuple[Any, Any]:
    from partners.models import Agreement, Party
    from rmhub.ids import BadPublicId, read_public_id

    try:
        party = Party.objects.filter(pk=read_public_id("par", partner)).first()
    except BadPublicId:
        party = Party.objects.filter(name=partner).first()
    if party is None:
        raise CommandError(f"There is no party {partner}, by name or id.", returncode=2)
    if not agreement:
        return party.pk, None
    try:
        found = Agreement.objects.filter(pk=read_public_id("agr", agreement)).first()
    except BadPublicId:
        found = Agreement.objects.filter(tpa_id=agreement).first()
    if found is None:
        raise CommandError(f"There is no agreement {agreement}, by TPAId or id.", returncode=2)
    return party.pk, found.pk


def _instant(name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        day = parse_date(text)
        at = datetime(day.year, day.month, day.day, tzinfo=UTC) if day else parse_datetime(text)
    except ValueError:
        at = None
    if at is None:
        raise CommandError(f"{name} {text}: a day or a time, such as 2026-01-31 or 2026-01-31T12:00Z.", returncode=2)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
