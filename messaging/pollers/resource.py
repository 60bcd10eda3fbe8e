"""Pollers, as one declaration: what console and API are made of."""

from __future__ import annotations

from messaging.pollers import selectors
from messaging.pollers.services import changes
from messaging.resource import Resource, Verb

_STORED = "What is taken from there is stored here; it cannot be put back."

POLLERS = Resource(
    name="poller",
    plural="pollers",
    prefix="poll",
    reads="partners:read",
    changes="partners:write",
    rows=selectors.pollers,
    one=selectors.poller,
    order=("name",),
    create=changes.poller_create,
    update=changes.poller_update,
    possible=lambda poller: (*changes.allowed_verbs(poller), "delete"),
    state=lambda poller: selectors.row(poller).state,
    revision=changes.revision,
    read_revision=str,
    verbs=(
        Verb(
            "look",
            "Look now",
            "refresh",
            "primary",
            changes.poller_look,
            ("The hub looks into it at once, or right after the look that is under way.",),
            _STORED,
            ("The partner says that something lies there", "Mended"),
            "is looked into",
            "Look into it now",
            scope="pairs:operate",
        ),
        Verb(
            "enable",
            "Switch on",
            "power",
            "primary",
            changes.poller_enable,
            ("The hub looks into it at once, and from then on at its interval.",),
            _STORED,
            ("Used again",),
            "is on",
            "Look into it again, from now on",
        ),
        Verb(
            "disable",
            "Switch off",
            "power",
            "danger",
            changes.poller_disable,
            ("The hub looks into it no more.", "What partners leave there waits, and is not acknowledged meanwhile."),
            "Nothing here is final: switch it on and it goes on.",
            ("Maintenance of the server", "Investigation"),
            "is off",
            "Look into it no more; what lies there waits",
        ),
        Verb(
            "delete",
            "Delete",
            "x",
            "danger",
            changes.poller_delete,
            ("The hub looks into it no more and forgets its secret.", "What lies there stays there."),
            "The poller is gone for good; the audit log keeps what it was.",
            ("Not used any more",),
            "is deleted",
        ),
    ),
)
