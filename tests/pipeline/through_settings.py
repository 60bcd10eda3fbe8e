"""Computes a job where SPARK_MASTER or SPARK_REMOTE says, as a process of its own (tests of clusters).

python -m tests.pipeline.through_settings JOB MANIFEST OUTPUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import django

django.setup()

from messaging.pipeline import session, submitted  # noqa: E402


def main(job: str, manifest: str, output: str) -> None:
    description = json.loads(Path(manifest).read_text())
    submitted.compute(session.get("rmhub test", rows=session.SMALL + 1), job, description, output, description["lake"])
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
