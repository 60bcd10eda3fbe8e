"""What makes the settings of an agreement version contradict each other: one table of rules for each wire profile.

Pure: the version and its agreement, parties, identifiers, endpoints and services are loaded before
(`selectors.version`). Times are whole seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

from partners.choices import Profile
from partners.rules.common import COMMON
from partners.rules.ebxml import EBXML
from partners.rules.repeatable import REPEATABLE
from partners.rules.rule import Level, Rule
from partners.rules.streams import STREAM
from partners.rules.transactions import DOCUMENTS_ONLY, WSAT

__all__ = ["BY_PROFILE", "RULES", "Level", "Rule"]

BY_PROFILE: Mapping[str, tuple[Rule, ...]] = {
    Profile.EBXML: (*COMMON, *EBXML),
    Profile.REPEATABLE: (*COMMON, *REPEATABLE),
    Profile.STREAM: (*COMMON, *STREAM),
    Profile.WSAT: (*(rule for rule in COMMON if rule.code not in DOCUMENTS_ONLY), *WSAT),
}
RULES: tuple[Rule, ...] = tuple(dict.fromkeys((*COMMON, *EBXML, *REPEATABLE, *STREAM, *WSAT)))
