"""What messages are found by: attributes that rules take from their documents when these are stored, or that the
application gave with them.

What a document itself says counts before what was said of it, as with document ids. Rules are few and messages are
many, so they are kept in memory and looked up once a second at most, as the triggers are (`subscriptions`).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from messaging import storage
from messaging.engine.subscriptions import Documents
from messaging.models import AttributeRule
from messaging.protocol import selecting
from rmhub.remembered import Remembered

MOST, LONGEST = 20, 200  # attributes of a message; characters of a value
NAME = re.compile(r"[a-z][a-z0-9_-]{0,29}", re.ASCII)


class Rule(NamedTuple):
    """What of a rule decides whether it takes something of a message, and from where."""

    name: str
    kind: str
    path: str
    partner_id: uuid.UUID | None
    service: str
    action: str

    def concerns(self, partner_id: uuid.UUID, service: str, action: str) -> bool:
        """Whether it is about messages of this partner, service and action."""
        return self.partner_id in (None, partner_id) and self.service in ("", service) and self.action in ("", action)


class Known(NamedTuple):
    """`rules`: those that are on. `hidden`: names of attributes whose values are shown nowhere."""

    rules: tuple[Rule, ...]
    names: frozenset[str]
    hidden: frozenset[str]


@Remembered
def known() -> Known:
    """The rules, at most about a second old."""
    rows = list(AttributeRule.objects.order_by("name", "id"))
    rules = tuple(
        Rule(row.name, row.kind, row.path, row.partner_id, row.service, row.action) for row in rows if row.enabled
    )
    hidden = frozenset(row.name for row in rows if not row.shown)
    return Known(rules, frozenset(row.name for row in rows), hidden)


def of_documents(
    documents: Documents,
    *,
    partner_id: uuid.UUID,
    service: str,
    action: str,
    given: Mapping[str, str] | None = None,
) -> dict[str, str] | None:
    """The attributes of a message with these documents; None for none.

    `given`: those that its application gave, or those that it had before: they stay where no rule finds another value.
    What cannot be read has none.
    """
    rules = [rule for rule in known().rules if rule.concerns(partner_id, service, action)]
    found = _taken(rules, documents) if rules else {}
    for name, value in (given or {}).items():
        found.setdefault(name, value)
    return dict(list(found.items())[:MOST]) or None


def _taken(rules: list[Rule], documents: Documents) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        for content, content_type in documents():
            kind = selecting.kind_of(content, content_type)
            for rule in rules:
                if rule.kind == kind and rule.name not in found:
                    value = " ".join(selecting.first_text(content, kind, rule.path).replace("\0", " ").split())
                    if value:
                        found[rule.name] = value[:LONGEST]
    except (storage.PayloadMissing, OSError):
        pass
    return found


def shown(attributes: Mapping[str, str] | None) -> dict[str, str]:
    """Those whose values may be shown."""
    if not attributes:
        return {}
    hidden = known().hidden
    return {name: value for name, value in attributes.items() if name not in hidden}


def faults(given: Mapping[str, str]) -> list[str]:
    """What is wrong with attributes that an application gives, in sentences."""
    wrong = []
    if len(given) > MOST:
        wrong.append(f"At most {MOST} attributes.")
    for name, value in given.items():
        if not NAME.fullmatch(name):
            wrong.append(f"{name[:40]!r} is no name: a small letter, then small letters, digits, _ or -; at most 30.")
        if not value.strip() or len(value) > LONGEST or not value.isprintable():
            wrong.append(f"{name[:40]}: a value has 1 to {LONGEST} characters, and no control characters.")
    return wrong
