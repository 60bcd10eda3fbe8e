"""What runs now and then: pairs follow their agreements, tables that strangers can fill keep their bounds, and what may
be forgotten is forgotten.
"""

from __future__ import annotations

from django.db.models import Q

from messaging.access.services import audit_chain, sessions
from messaging.bulk.services import jobs
from messaging.deliveries.services import monitoring
from messaging.engine import circuits, forgetting, pairs
from messaging.engine import memory as hub_memory
from messaging.entrance import throttling
from messaging.messages.services import uploading
from messaging.models import Rejection
from messaging.notifications.services import notifying, webhook_deliveries
from messaging.onboarding.services import certificate_watch
from messaging.pairs.services import silence
from messaging.profiles.ebms2 import ordering
from messaging.profiles.stream import moving
from messaging.profiles.wsat import due
from messaging.sla.services import watching
from rmhub import clock

REJECTIONS_KEPT = 20_000


def run() -> str:
    """One round; safe at any time and in several workers at once."""
    made = pairs.ensure_pairs()
    closed = pairs.close_unagreed()
    dropped = drop_old_rejections()
    forgotten = remember_and_forget()
    expired = moving.expire_waiting()
    waiting = ordering.watch(clock.now())
    watched = monitoring.watch()
    down = circuits.watch()
    silent = silence.look(clock.now())
    ending = certificate_watch.watch()
    missed = watching.watch(clock.now())
    sound = audit_chain.look()
    notifying.drop_old(clock.now())
    throttling.forget(clock.now())
    sessions.forget(clock.now())
    webhook_deliveries.drop_old(clock.now())
    jobs.forget_old()
    uploads = uploading.sweep()
    transactions = due.forget_old(clock.now())
    return (
        f"pairs made {made}, disabled or enabled {closed}, rejections dropped {dropped}, days forgotten {forgotten}, "
        f"expired unsent {expired}, pairs that wait for something missing {waiting}, "
        f"transactions forgotten {transactions}, uploads dropped {uploads}, "
        f"servers unreachable {down}, partners with something that expires soon {ending}, "
        f"pairs silent or heard again {silent}, targets at risk or missed {missed}, "
        f"audit chain {'holds' if sound else 'is broken'}, {watched}"
    )


def remember_and_forget() -> int:
    """The heartbeat of the memory (spec 2), the days that it needs next, and those that it needs no more."""
    now = clock.now()
    hub_memory.check(now)
    forgetting.ensure_ahead(now)
    return forgetting.drop_due(now)


def drop_old_rejections(*, keep: int = REJECTIONS_KEPT) -> int:
    """Keeps the newest rejections: whoever is refused all day must not fill the disk. Returns how many went.

    Those of partners and those of nobody we know are kept apart, so that strangers cannot push out what partners need.
    """
    gone = 0
    nobodys = Q(party_name="")
    for share in (nobodys, ~nobodys):
        of_share = Rejection.objects.filter(share)
        edge = of_share.order_by("-id").values_list("id", flat=True)[keep : keep + 1].first()
        if edge is not None:
            gone += of_share.filter(id__lte=edge).delete()[0]
    return gone
