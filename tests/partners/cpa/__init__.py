"""Agreements that tests read, and how they change a copy of one."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache

from partners.cpa.reading import Reading, read
from tests import FIXTURES

NOW = datetime(2026, 11, 28, 21, tzinfo=UTC)
NAV = "nav-35065.xml"
BEST_EFFORT = "digikoppeling-cpaStubEBF.be.http.unsigned.xml"
RELIABLE = "digikoppeling-cpaStubEBF.rm.http.unsigned.xml"
SIGNED = "digikoppeling-cpaStubEBF.rm.https.signed.xml"
EBIOT = ("ebiot-CPAT1.xml", "ebiot-CPAT1-4-I.xml", "ebiot-CPAT2-2-1.xml", "ebiot-CPAT5.xml")
ALL = (NAV, BEST_EFFORT, RELIABLE, SIGNED, *EBIOT)


def octets(name: str) -> bytes:
    return (FIXTURES / "cpa" / name).read_bytes()


@cache
def reading(name: str) -> Reading:
    return read(octets(name), NOW)


def changed(name: str, *replacements: tuple[str, str], times: int = 1) -> bytes:
    """A fixture in which the first so many occurrences of each text are replaced; each must be there."""
    text = octets(name).decode()
    for old, new in replacements:
        assert text.count(old) >= times, old
        text = text.replace(old, new, times)
    return text.encode()
