"""Which rules cover parts of a payload for somebody of a role: below services and selectors, because both ask."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.db.models import Q

from messaging.models import Message, PayloadMask
from rmhub.roles import ORDER, Role

_MOST_COPIES = 200


def of_message(message: Message, role: Role | None) -> list[PayloadMask]:
    """The enabled rules for a message's documents that somebody of this role must not see behind.

    `role` None: all of them. A copy that was passed on has the same documents: a rule that holds for one of them holds
    for all, and so does one of the partner behind a router.
    """
    rules = [one for one in PayloadMask.objects.filter(enabled=True).order_by("name") if not sees(one, role)]
    if not rules:
        return []
    copies = _copies(message)
    return [rule for rule in rules if any(_concerns(rule, *copy) for copy in copies)]


def of_refused(party_name: str, role: Role | None) -> list[PayloadMask]:
    """The rules that may concern something that was refused: nobody knows what service it was for, or whole what it is.

    `party_name` "": it may be anybody's.
    """
    found = PayloadMask.objects.filter(enabled=True)
    if party_name:
        found = found.filter(Q(partner__isnull=True) | Q(partner__name=party_name))
    return [one for one in found.order_by("name") if not sees(one, role)]


def _concerns(rule: PayloadMask, hop: uuid.UUID | None, partner: uuid.UUID | None, service: str) -> bool:
    return rule.partner_id in (None, hop, partner) and rule.service in ("", service)


def _copies(message: Message) -> list[tuple[uuid.UUID | None, uuid.UUID | None, str]]:
    """(the hop's party, the agreement's partner, service) of the message and all that it was passed on from and as."""
    ids, new = {message.pk}, {message.pk}
    while new and len(ids) < _MOST_COPIES:
        around = Message.objects.filter(Q(pk__in=new) | Q(forwarded_from__in=new))
        pairs = around.values_list("pk", "forwarded_from")
        new = {one for pair in pairs for one in pair if one is not None} - ids
        ids |= new
    known = Message.objects.filter(pk__in=ids)
    return list(known.values_list("pair__partner", "agreement_version__agreement__partner", "service"))


def sees(rule: PayloadMask, role: Role | None) -> bool:
    """Whether somebody of this role sees what the rule covers."""
    if role not in ORDER or rule.visible_to not in ORDER:
        return False
    return ORDER.index(role) >= ORDER.index(Role(rule.visible_to))


def needed(rules: Sequence[PayloadMask]) -> str:
    """The lowest role that sees behind all of these rules."""
    ranks = [ORDER.index(Role(rule.visible_to)) for rule in rules if rule.visible_to in ORDER]
    return ORDER[max(ranks, default=len(ORDER) - 1)].value
