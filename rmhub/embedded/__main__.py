"""``python -m rmhub.embedded status | stop | remove``, for the folder in RMHUB_VAR or ``var``."""

from __future__ import annotations

import argparse
import sys

from rmhub.embedded import EmbeddedError, default_var, lifecycle


def main() -> int:
    """Exit code 0; 1 when it went wrong, or when ``status`` finds no running servers."""
    parser = argparse.ArgumentParser(prog="python -m rmhub.embedded", description="The embedded servers.")
    parser.add_argument("action", choices=["status", "stop", "remove"])
    action = parser.parse_args().action
    var = default_var()
    try:
        if action == "status":
            found = lifecycle.running(var)
            print(f"running in {var}" if found else f"not running in {var}")
            return 0 if found else 1
        (lifecycle.stop if action == "stop" else lifecycle.remove)(var)
    except EmbeddedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
