"""The Celery application. Tasks carry wake-ups only; what is due stands in the database."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmhub.settings")

app = Celery("rmhub")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
