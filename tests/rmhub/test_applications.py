"""Django apps that are named in RMHUB_APPS run in the hub's processes and register their callables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import ROOT

APP = """
from django.apps import AppConfig


class OrdersConfig(AppConfig):
    name = "acme_orders"

    def ready(self) -> None:
        from messaging.applications import service

        service("orders.import")(lambda document: None)
"""
LOOK = "import django; django.setup(); from messaging.applications import SERVICES; print(*SERVICES)"


def test_an_app_of_the_installation_registers_its_services(tmp_path: Path) -> None:
    (tmp_path / "acme_orders").mkdir()
    (tmp_path / "acme_orders/__init__.py").touch()
    (tmp_path / "acme_orders/apps.py").write_text(APP)
    known = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
        "DJANGO_SETTINGS_MODULE": "rmhub.settings",
        "RMHUB_VAR": str(tmp_path),
        "RMHUB_APPS": "acme_orders",
    }
    looked = subprocess.run([sys.executable, "-c", LOOK], env=known, capture_output=True, text=True, check=True)
    assert looked.stdout.split() == ["orders.import"]
