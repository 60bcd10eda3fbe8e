"""Which Chromium the browser tests and the scorecard drive, and how it is started."""

from __future__ import annotations

import os
import shutil

CHROMIUM = os.environ.get("RMHUB_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or ""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
]
