"""The catalogs in German and French: complete, of the texts that there are, with their placeholders, and compiled."""

from __future__ import annotations

import gettext
import re
import shutil
import subprocess
from io import BytesIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.utils import translation

from rmhub import language

LOCALES = Path(settings.LOCALE_PATHS[0])
LANGUAGES = [code for code, _ in settings.LANGUAGES if code != settings.LANGUAGE_CODE]
_PLACEHOLDERS = re.compile(r"%\(\w+\)s|\{\w*\}|</?\w+")
Catalog = dict[str | tuple[str, int], str]

with_gettext = pytest.mark.skipif(shutil.which("xgettext") is None, reason="GNU gettext is not installed")


def read(octets: bytes) -> Catalog:
    """Text, or (text, number of the plural form) -> its translation; without the header."""
    known: Catalog = dict(gettext.GNUTranslations(BytesIO(octets))._catalog)  # type: ignore[attr-defined]
    known.pop("", None)
    return known


def compiled(path: Path, *, filled: bool = False) -> Catalog:
    """A catalog as gettext compiles it, without what is not translated; `filled`: each text is its own translation."""
    octets = path.read_bytes()
    if filled:
        octets = subprocess.run(["msgen", "-"], input=octets, capture_output=True, check=True).stdout
    return read(subprocess.run(["msgfmt", "-c", "-o", "-", "-"], input=octets, capture_output=True, check=True).stdout)


@with_gettext
def test_catalogs_have_every_text_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make messages` takes up what has come to be."""
    for code in LANGUAGES:
        (tmp_path / code / "LC_MESSAGES").mkdir(parents=True)
    monkeypatch.setattr(settings, "LOCALE_PATHS", [tmp_path])
    monkeypatch.chdir(settings.BASE_DIR)
    ignored = ["tests/*", "var/*", ".venv/*", "docs/*", "rmhub/locale"]  # else it writes there
    call_command("makemessages", locale=LANGUAGES, ignore_patterns=ignored, no_location=True, verbosity=0)
    for code in LANGUAGES:
        there = compiled(tmp_path / code / "LC_MESSAGES" / "django.po", filled=True)
        ours = compiled(LOCALES / code / "LC_MESSAGES" / "django.po")
        assert {str(key) for key in there.keys() ^ ours.keys()} == set(), code


@with_gettext
@pytest.mark.parametrize("code", LANGUAGES)
def test_what_is_compiled_is_what_is_written(code: str) -> None:
    folder = LOCALES / code / "LC_MESSAGES"
    assert read((folder / "django.mo").read_bytes()) == compiled(folder / "django.po")
    assert "#, fuzzy" not in (folder / "django.po").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", LANGUAGES)
def test_translations_have_the_placeholders_and_elements_of_their_texts(code: str) -> None:
    for key, said in read((LOCALES / code / "LC_MESSAGES" / "django.mo").read_bytes()).items():
        text = key[0] if isinstance(key, tuple) else key
        theirs = sorted(_PLACEHOLDERS.findall(said))
        if isinstance(key, tuple):  # the singular may say its number in words
            continue
        assert theirs == sorted(_PLACEHOLDERS.findall(text.rpartition("\x04")[2])), (text, said)


def test_numbers_are_rounded_and_written_as_the_language_writes_them() -> None:
    assert language.number(1234567) == "1,234,567"
    assert language.number(58.16, 1) == "58.2"
    with translation.override("de"):
        assert language.number(1234.5, 1) == "1.234,5"
    with translation.override("fr"):
        assert language.number(1234.5, 1) == "1\xa0234,5"


def test_a_word_inside_a_sentence_keeps_its_capital_where_the_language_has_it() -> None:
    assert language.inside("Waiting") == "waiting"
    assert language.inside("API token") == "API token"
    with translation.override("de"):
        assert language.inside("Wartet") == "Wartet"
