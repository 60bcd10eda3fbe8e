"""The short names of pairs."""

from __future__ import annotations

import pytest

from messaging.engine.pairs import _short


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Müller & Söhne", "MUELLER-SOEHNE"),
        ("Mu\u0308ller", "MUELLER"),
        ("Straßenbau GmbH", "STRASSENBAU-GMBH"),
        ("Ærø Bådeværft", "AEROE-BAADEVAERFT"),
        ("Société Générale", "SOCIETE-GENERALE"),
        ("日本", "PARTY"),
        ("x" * 39 + "-yz", "X" * 39),
    ],
)
def test_names_are_written_in_latin_letters(name: str, code: str) -> None:
    assert _short(name) == code
