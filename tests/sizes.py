"""How much of the tests runs: `make test` takes a choice of many alike, `make test-all` (RMHUB_TESTS=all) takes all."""

from __future__ import annotations

import os

ALL = os.environ.get("RMHUB_TESTS") == "all"
