#!/usr/bin/env python
"""Command line of RM Hub."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmhub.settings")
    from rmhub.commandline import run

    run(sys.argv)


if __name__ == "__main__":
    main()
