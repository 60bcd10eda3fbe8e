"""What browsers load: vendored files as they were checked in, small scripts, and nothing that the CSP forbids."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import re
from pathlib import Path

from django.contrib.staticfiles import finders

from messaging.choices import (
    DeliveryState,
    IncidentState,
    JobState,
    MessageState,
    Outcome,
    SignalState,
    TriggerState,
)
from messaging.console.context import NAVIGATION
from messaging.console.forms import SettingsForm
from messaging.console.looks import LOOKS
from messaging.deliveries.pages import decisions
from messaging.deliveries.resource import TRIGGERS
from messaging.overview import pages
from messaging.pairs.resource import VERBS
from messaging.templatetags.hub import state
from tests import ROOT
from tests.messaging.console import tabler_auto

STATIC = ROOT / "static"
TEMPLATES = ROOT / "templates"


def test_vendored_files_are_the_ones_that_the_readme_names() -> None:
    readme = (STATIC / "vendor" / "README.md").read_text()
    named = re.findall(r"\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|", readme)
    assert len(named) == 3
    for name, digest in named:
        path = STATIC / "vendor" / name
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, name
        assert (path.parent / "LICENSE").exists(), name


def test_the_rules_for_the_systems_preference_belong_to_this_tabler() -> None:
    folder = tabler_auto.FOLDER
    assert (folder / "tabler-auto.css").read_text() == tabler_auto.made((folder / "tabler.min.css").read_text())


def test_no_file_names_another_site_or_a_source_map() -> None:
    for path in STATIC.rglob("*.css"):
        text = path.read_text()
        assert "sourceMappingURL" not in text, path
        assert not re.findall(r"@import|url\(\s*['\"]?(?:https?:)?//", text), path
    for path in TEMPLATES.rglob("*.html"):
        assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", path.read_text()), path


def test_all_scripts_together_stay_under_sixty_kilobytes() -> None:
    found = [finders.find("django_htmx/htmx-2.min.js"), *sorted((STATIC / "console").glob("*.js"))]
    assert all(found)
    assert len(found) > 3
    assert sum(len(gzip.compress(Path(str(path)).read_bytes())) for path in found) < 60 * 1024


def test_what_a_page_waits_for_stays_under_a_hundred_kilobytes() -> None:
    """Its style sheets: nothing is painted before they are there."""
    base = (TEMPLATES / "base.html").read_text()
    sheets = re.findall(r"rel=\"stylesheet\" href=\"{% static '([^']+)' %}\"", base)
    assert len(sheets) == 3
    assert sum(len(gzip.compress((STATIC / name).read_bytes())) for name in sheets) < 100 * 1024


def test_our_scripts_make_no_markup_and_no_code_from_text() -> None:
    script = "".join(path.read_text() for path in (STATIC / "console").glob("*.js"))
    forbidden = r"\.innerHTML|\.outerHTML|insertAdjacent|document\.write|\beval\(|new Function|\.style\b"
    assert not re.findall(forbidden, script)


def test_every_icon_that_is_used_is_in_the_sprite() -> None:
    sprite = set(re.findall(r'<symbol id="([^"]+)"', (STATIC / "vendor/tabler-icons-3.51.0/icons.svg").read_text()))
    code = ROOT / "messaging"
    used = set()
    for path in TEMPLATES.rglob("*.html"):
        text = path.read_text()
        used |= set(re.findall(r'\{% icon "([^"]+)"', text)) | set(re.findall(r'sign="([^"]+)"', text))
    states = (code / "console" / "looks.py").read_text()
    used |= set(re.findall(r'": "([a-z0-9-]+)"', states)) | set(re.findall(r'\), "([a-z0-9-]+)"\)', states))
    used |= {name for path in code.rglob("*.py") for name in re.findall(r'\bicon\("([^"]+)"', path.read_text())}
    used |= {item.icon for _, items in NAVIGATION for item in items} | {verb.icon for verb in VERBS.values()}
    used |= {one.icon for table in (decisions.DELIVERY, decisions.MESSAGE) for one in table.values()}
    used |= {verb.icon for verb in TRIGGERS.verbs}
    assert used <= sprite, used - sprite
    # "inbox" is what an empty list shows when its page names no icon.
    assert sprite <= used | {"inbox"}, f"not used any more: {sorted(sprite - used)}"


def test_the_sheet_of_keys_has_all_of_them() -> None:
    pressed = {"Enter", "Escape"}  # what browsers do with links and dialogs
    for path in TEMPLATES.rglob("*.html"):
        pressed |= set(re.findall(r'data-key="([^"]+)"', path.read_text()))
    scripts = {path.name: path.read_text() for path in (STATIC / "console").glob("*.js")}
    for text in scripts.values():
        pressed |= set(re.findall(r'dataset\.key = "([^"]+)"', text))
        pressed |= set(re.findall(r'\bkey [!=]== "([^"]+)"', text))
    places = re.search(r"PLACES = \{([^}]+)\}", scripts["keys.js"])
    assert places
    pressed |= {f"g {letter}" for letter in re.findall(r"(\w): ", places[1])}
    assert {"a", "z", "d", " ", "X", "g i"} <= pressed
    names = {"Space": " ", "Shift X": "X", "Esc": "Escape", "Ctrl K": "k with Ctrl"}
    told = {names.get(key, key) for _, rows in pages.KEYS for key, _ in rows}
    pressed |= {"k with Ctrl"}
    assert pressed - {"g", "ArrowDown", "ArrowUp"} == told  # g begins a pair; arrows are the palette's


def test_every_state_has_a_look_and_an_icon() -> None:
    """A state that has none breaks each page with such a row on it."""
    states = {
        "message": MessageState,
        "delivery": DeliveryState,
        "trigger": TriggerState,
        "incident": IncidentState,
        "outcome": Outcome,
        "signal": SignalState,
        "job": JobState,
    }
    for kind, known in states.items():
        for value in known:
            assert state(kind, value), (kind, value)
    for looks, icons in LOOKS.values():
        assert looks.keys() == icons.keys()


def test_each_choice_on_which_other_fields_depend_hides_those_it_does_not_have() -> None:
    """The style sheet does it, without a script: with one rule for each choice."""
    importlib.import_module("messaging.urls.console")  # with the forms of all pages
    css = (STATIC / "console" / "console.css").read_text()
    seen = set()
    for form in _below(SettingsForm):
        for governing in {values[0] for values in form.only.values()}:
            field = form.base_fields.get(governing)
            for value, _label in getattr(field, "choices", ()):
                if not value:
                    continue  # nothing is chosen yet
                seen.add((governing, value))
                assert f'[name="{governing}"][value="{value}"]:checked) .only-{governing}' in css, (form, value)
    assert {("profile", "ebms2"), ("kind", "encryption"), ("inbound_kind", "none")} <= seen


def _below(form: type[SettingsForm]) -> list[type[SettingsForm]]:
    return [one for sub in form.__subclasses__() for one in (sub, *_below(sub))]
