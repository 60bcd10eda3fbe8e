"""Why a pair does not take a verb of people now, in the reader's language: the sentences of the protocol's core."""

from __future__ import annotations

from django.utils.translation import gettext

from messaging.protocol.pair_state import Flow, Kind
from messaging.protocol.sender import REFUSALS
from rmhub.language import gettext_lazy

# Those of `REFUSALS`, which knows no languages: catalogs are made of what stands here.
SENTENCES = (
    gettext_lazy("The pair is not suspended."),
    gettext_lazy("No message is in flight."),
    gettext_lazy("An attempt is on the wire; wait for its outcome."),
    gettext_lazy("A message is with the receiver; wait for its answer, or until the pair gives up."),
    gettext_lazy("The pair is suspended; resume it."),
    gettext_lazy("The pair is suspended already."),
)


def refused(flow: Flow, kind: Kind) -> str:
    """Return why the verb is not possible in this state."""
    return gettext(REFUSALS[(flow, kind)])
