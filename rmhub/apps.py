from __future__ import annotations

from django.apps import AppConfig


class RmhubConfig(AppConfig):
    name = "rmhub"
    verbose_name = "RM Hub"
