from __future__ import annotations

from django.apps import AppConfig


class PartnersConfig(AppConfig):
    name = "partners"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Trading partners"

    def ready(self) -> None:
        from partners import checks  # noqa: F401  (registers the system checks)
