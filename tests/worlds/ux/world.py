"""The large demo world: two hundred partners, ninety days of traffic, and every kind of trouble an operator meets."""

from __future__ import annotations

import json
from collections.abc import Callable

from django.contrib.auth.models import Group, User

from messaging.demo import seeding
from messaging.journal.audit import Actor
from messaging.messages import attributes
from messaging.models import Access, TrafficCursor, feed
from partners import registry
from partners.models import Agreement
from rmhub.roles import ADMIN_SCOPES, ORDER, Role
from tests.worlds.ux import bulk, certificates, directory, newcomer, transactions, troubles
from tests.worlds.ux.plan import EXPIRED, TROUBLES, Plan

PASSWORD = "correct horse battery"
ADMIN = Actor("admin", "console")
PIAS = "tpa:ux:p20"  # the agreement of a partner without trouble, whose portal pia sees
# What every invoice is found by: name -> where its document has it.
ATTRIBUTES = {"invoice": "/Invoice/ID", "customer": "/Invoice/CustomerID", "currency": "/Invoice/DocumentCurrencyCode"}
# The shift, and what each may do.
CREW = {"mona": Role.OPERATOR, "ines": Role.VIEWER}


def make(plan: Plan, say: Callable[[str], None]) -> dict[str, object]:
    """Fills an empty database. Returns names and ids that a visitor needs; `facts.json` in the folder holds them too.

    Raises ValueError when there are partners already.
    """
    certificates.write(plan.folder, plan.now, plan.now - TROUBLES[EXPIRED].since)
    newcomer.write(plan)
    say("partners and agreements")
    lanes = directory.make(plan)
    directory.write_pairs(lanes)
    people()
    for name, path in ATTRIBUTES.items():
        attributes.rule_create(
            actor=ADMIN, reason="people ask for it", name=name, kind="xml", path=path, action="Invoice"
        )
    bulk.write(plan, lanes, say)
    # The hours of the past are counted; what is told next leaves events, which the hub counts itself.
    place = feed.latest()
    TrafficCursor.objects.update_or_create(pk=1, defaults={"xid": place.xid, "event_id": place.id})
    say("what happened lately")
    facts = troubles.happen(plan, lanes)
    facts |= transactions.happen(plan, lanes)
    registry.reset()
    facts |= {
        "port": plan.port,
        "partners_count": plan.partners,
        "folder": str(plan.folder),
        "password": PASSWORD,
        "people": list(everybody()),
        # For whoever checks from outside what the console has done.
        "token": seeding.token("checks", sorted(ADMIN_SCOPES)),
    }
    (plan.folder / "facts.json").write_text(json.dumps(facts, indent=1))
    return facts


def everybody() -> dict[str, Role]:
    """Log-in name -> role; `pia` is of a partner."""
    return {role.value: role for role in ORDER} | CREW | {"pia": Role.PARTNER}


def people() -> None:
    """Users of all roles, with one password: the world holds nothing worth keeping from anybody."""
    seeding.people()
    for name, role in everybody().items():
        user, _ = User.objects.get_or_create(username=name)
        user.set_password(PASSWORD)
        user.save()
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    pia, quiet = User.objects.get(username="pia"), Agreement.objects.filter(tpa_id=PIAS).first()
    if quiet is not None:
        Access.objects.update_or_create(user=pia, defaults={"limited": True, "partner": quiet.partner})
