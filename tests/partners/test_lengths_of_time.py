"""Lengths of time, written and read in the languages of the console."""

from __future__ import annotations

import pytest
from django.utils import translation

from partners.fields import duration, read_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2 Tage 3 Std", 183_600),
        ("1 jour, 2 heures", 93_600),
        ("5 Minuten", 300),
        ("3 j 30 min", 261_000),
        ("2h30m", 9_000),
        ("1 hour 5 seconds", 3_605),
    ],
)
def test_every_language_is_read(text: str, seconds: int) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("language", ["en-gb", "de", "fr"])
def test_what_is_written_is_read_again(language: str) -> None:
    with translation.override(language):
        assert read_duration(duration(200_105)) == 200_105
        assert read_duration(duration(0)) == 0
