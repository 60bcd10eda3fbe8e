"""Runs a job of the pipeline as if so many seconds had gone by: days of the retention policy pass within a soak.

    python -m tests.soak.later SECONDS JOB

Runs with the environment of a hub. Only this process lives later; the hub's clock and rows stay as they are.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import django
from django.core.management import call_command

if __name__ == "__main__":
    django.setup()
    from rmhub import clock

    seconds, job = sys.argv[1:]
    with clock.frozen(clock.now() + timedelta(seconds=float(seconds))):
        call_command("pipeline", "run", job)
