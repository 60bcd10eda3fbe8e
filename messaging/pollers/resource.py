"""Pollers, as one declaration: what console and API are made of."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from messaging.pollers import selectors
from messaging.pollers.services import changes
from messaging.resource import Resource, Verb, deletion
from rmhub.language import gettext_lazy as _

_STORED = _("What is taken from there is stored here; it cannot be put back.")

POLLERS = Resource(
    name=gettext_noop("poller"),
    plural=gettext_noop("pollers"),
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
            _("Poll now"),
            "refresh",
            "primary",
            changes.poller_look,
            (_("The hub polls it at once, or right after the poll that is under way."),),
            _STORED,
            (_("The partner has put something there"), _("Fixed")),
            _("is polled"),
            "Poll it now",
            scope="pairs:operate",
        ),
        Verb(
            "enable",
            _("Switch on"),
            "power",
            "primary",
            changes.poller_enable,
            (_("The hub polls it at once, and from then on at its interval."),),
            _STORED,
            (_("Used again"),),
            _("is on"),
            "Poll it again, from now on",
        ),
        Verb(
            "disable",
            _("Switch off"),
            "power",
            "danger",
            changes.poller_disable,
            (
                _("The hub does not poll it any more."),
                _("What partners leave there waits, and is not acknowledged meanwhile."),
            ),
            _("Nothing here is irreversible: switch it on and it goes on."),
            (_("Maintenance of the server"), _("Investigation")),
            _("is off"),
            "Stop polling it; what is there waits",
        ),
        deletion(
            changes.poller_delete,
            (
                _("The hub does not poll it any more, and deletes its secret."),
                _("What lies there stays there."),
            ),
            presets=(_("Not used any more"),),
        ),
    ),
)
