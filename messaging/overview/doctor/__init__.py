"""`manage.py doctor`: looks at everything that the hub stands on, from names to clocks, one check after the other.

Each check is a small function that yields findings; the list of them is `CHECKS`. Nothing is changed. Of partners only
the names are looked up, unless whoever calls wants more.
"""

from __future__ import annotations

from messaging.overview.doctor.check import Check, Finding, State, examine
from messaging.overview.doctor.checks import CHECKS, PARTNERS

__all__ = ["CHECKS", "PARTNERS", "Check", "Finding", "State", "examine"]
