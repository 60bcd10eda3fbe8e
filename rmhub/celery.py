"""The Celery application. Tasks carry wake-ups only; what is due stands in the database."""

from __future__ import annotations

import os

from celery import Celery

from rmhub.commandline import check_settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmhub.settings")
check_settings()

app = Celery("rmhub")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
# Celery would close each thread's database connection before and after every task, and a new one costs more than most
# tasks. The tasks drop broken ones themselves.
app.conf.CELERY_DB_REUSE_MAX = 1_000_000_000
