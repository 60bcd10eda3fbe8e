"""Which rules cover parts of a payload for somebody of a role: below services and selectors, because both ask."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q

from messaging.models import Message, PayloadMask
from rmhub.roles import ORDER, Role


def of_message(message: Message, role: Role | None) -> list[PayloadMask]:
    """The enabled rules for a message's documents that somebody of this role must not see behind.

    `role` None: all of them. The message's pair has to be loaded, or is read.
    """
    found = PayloadMask.objects.filter(Q(partner__isnull=True) | Q(partner=message.pair.partner_id), enabled=True)
    found = found.filter(service__in=["", message.service]).order_by("name")
    return [one for one in found if not sees(one, role)]


def sees(rule: PayloadMask, role: Role | None) -> bool:
    """Whether somebody of this role sees what the rule covers."""
    if role is None or rule.visible_to not in list(Role):
        return False
    return ORDER.index(role) >= ORDER.index(Role(rule.visible_to))


def needed(rules: Sequence[PayloadMask]) -> str:
    """The lowest role that sees behind all of these rules."""
    ranks = [ORDER.index(Role(rule.visible_to)) for rule in rules if rule.visible_to in list(Role)]
    return ORDER[max(ranks, default=len(ORDER) - 1)].value
