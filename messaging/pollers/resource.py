"""Pollers, as one declaration: what console and API are made of."""

from __future__ import annotations

from messaging.pollers import selectors
from messaging.pollers.services import changes
from messaging.resource import Resource, Verb, deletion

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
            "Poll now",
            "refresh",
            "primary",
            changes.poller_look,
            ("The hub polls it at once, or right after the poll that is under way.",),
            _STORED,
            ("The partner says that something lies there", "Fixed"),
            "is polled",
            "Poll it now",
            scope="pairs:operate",
        ),
        Verb(
            "enable",
            "Switch on",
            "power",
            "primary",
            changes.poller_enable,
            ("The hub polls it at once, and from then on at its interval.",),
            _STORED,
            ("Used again",),
            "is on",
            "Poll it again, from now on",
        ),
        Verb(
            "disable",
            "Switch off",
            "power",
            "danger",
            changes.poller_disable,
            (
                "The hub does not poll it any more.",
                "What partners leave there waits, and is not acknowledged meanwhile.",
            ),
            "Nothing here is irreversible: switch it on and it goes on.",
            ("Maintenance of the server", "Investigation"),
            "is off",
            "Stop polling it; what is there waits",
        ),
        deletion(
            changes.poller_delete,
            ("The hub does not poll it any more, and deletes its secret.", "What lies there stays there."),
            "The poller is",
            presets=("Not used any more",),
        ),
    ),
)
