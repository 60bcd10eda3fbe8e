"""`manage.py pipeline publish JOB DIRECTORY`: publishes what a submitted job has written."""

from __future__ import annotations

import getpass
import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandParser, OutputWrapper

from messaging.choices import Interface
from messaging.exceptions import InvalidSubmission
from messaging.journal.audit import Actor
from messaging.pipeline import command_run, driver
from messaging.pipeline.command_run import instant
from messaging.reports.catalogue import REPORTS
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock

if TYPE_CHECKING:
    import pyarrow as pa

_FACTS = "_facts"  # as in messaging.pipeline.submitted, which needs PySpark


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("job", choices=list(driver.JOBS), metavar="JOB", help=", ".join(driver.JOBS))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--reason", default="", help="for the audit log")


def handle(options: dict[str, Any], stdout: OutputWrapper) -> int:
    directory: Path = options["directory"]
    facts = _facts(directory, options["job"])
    tables = {table.name: directory / table.name for table in REPORTS[options["job"]].tables}
    missing = [name for name, path in tables.items() if not path.is_dir()]
    if missing:
        raise InvalidSubmission({"directory": [f"{directory} has no {', '.join(missing)}: did the job end well?"]})
    run = pipeline_runs.run_request(
        job=options["job"],
        actor=Actor(f"command:{getpass.getuser()}", Interface.COMMAND),
        parameters={"extract": False},
        due_at=clock.now() + pipeline_runs.LEASE,
        range_from=instant(facts["from"]) if facts["from"] else None,
        range_to=instant(facts["to"]) if facts["to"] else None,
        reason=options["reason"],
    )

    def perform(context: driver.Context) -> None:
        context.progress("Reading the results")
        context.publish(
            {name: _table(path) for name, path in tables.items()},
            data_as_of=datetime.fromisoformat(facts["as_of"]),
            submitted=facts,
        )

    return 0 if command_run.work_on(run, stdout, perform) else 1


def _facts(directory: Path, job: str) -> dict[str, Any]:
    import pyarrow.dataset as ds

    if not (directory / _FACTS / "_SUCCESS").exists():
        raise InvalidSubmission({"directory": [f"{directory} is not what a job has written to the end."]})
    found: dict[str, Any] = json.loads(ds.dataset(directory / _FACTS, format="parquet").to_table()["facts"][0].as_py())
    if found["job"] != job:
        raise InvalidSubmission({"directory": [f"{directory} is the output of {found['job']}, not of {job}."]})
    if found["code"] != driver.code_version():
        raise InvalidSubmission(
            {
                "directory": [
                    f"Its manifest is of other code ({found['code']}, here {driver.code_version()}): run it again."
                ]
            }
        )
    return found


def _table(path: Path) -> pa.Table:
    import pyarrow.dataset as ds

    return ds.dataset(path, format="parquet").to_table()
