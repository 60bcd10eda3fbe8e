"""What belongs to each wire profile: its settings, their defaults, and what contradicts what.

Pure: the version and its agreement, parties, identifiers, endpoints and services are loaded before
(`selectors.version`). Times are whole seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partners.choices import Profile, Semantics
from partners.rules.ebms2 import EBMS2
from partners.rules.ebxml import EBXML
from partners.rules.repeatable import REPEATABLE
from partners.rules.rule import Level, Rule, Settings
from partners.rules.streams import STREAM
from partners.rules.transactions import WSAT

__all__ = ["BY_PROFILE", "RULES", "Level", "Rule", "Settings", "defaults"]

BY_PROFILE: Mapping[str, Settings] = {
    Profile.EBXML: EBXML,
    Profile.REPEATABLE: REPEATABLE,
    Profile.STREAM: STREAM,
    Profile.WSAT: WSAT,
    Profile.EBMS2: EBMS2,
}
RULES: tuple[Rule, ...] = tuple(dict.fromkeys(rule for profile in BY_PROFILE.values() for rule in profile.rules))


def defaults(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a new agreement of these terms has where the model's defaults do not fit."""
    profile = BY_PROFILE.get(terms.get("profile", Profile.EBXML))
    if profile is None:
        return {}
    reliable = terms.get("semantics", Semantics.ONCE_AND_ONLY_ONCE) == Semantics.ONCE_AND_ONLY_ONCE
    if "semantics" in profile.names and not reliable:
        # Retries are for reliable messages; without acknowledgements there is nothing to retry on.
        return {**profile.defaults, "retries": 0}
    return dict(profile.defaults)
