"""What people can do to an atomic transaction and to its participants, for buttons, dialogs and the API."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from messaging.profiles.wsat import asking, settling
from messaging.resource import Verb
from rmhub.language import gettext_lazy as _

VERBS: Mapping[str, Verb] = {
    verb.slug: verb
    for verb in (
        Verb(
            "commit",
            _("Commit"),
            "check",
            "primary",
            partial(asking.transaction_ask, verb="commit"),
            (
                _("All participants are asked for their votes, the volatile ones first."),
                _("When all vote yes, the decision is written and everybody is told to commit."),
                _("One no, or no answer before the time is over, and it is rolled back everywhere."),
            ),
            _("Once the decision is written, nobody can take it back."),
            (
                _("The application that began it is gone"),
                _("Asked for by the application's owner"),
            ),
            _("is asked to commit"),
            "Ask for the commit",
        ),
        Verb(
            "rollback",
            _("Roll back"),
            "arrow-back-up",
            "danger",
            partial(asking.transaction_ask, verb="rollback"),
            (
                _("Every participant is told to undo what it prepared. Nobody's data changes."),
                _("A document that is handed over in it waits, and is handed over again."),
            ),
            _("A transaction that is rolled back cannot be committed any more: it has to be begun again."),
            (
                _("The application that began it is gone"),
                _("A participant hangs"),
                _("Begun by mistake"),
            ),
            _("is being rolled back"),
            "Roll a transaction back",
        ),
    )
}
# Heuristic decisions about a participant; `profiles.wsat.settling.WARNINGS` says what each can break.
SETTLEMENTS: Mapping[str, Verb] = {
    one.slug: one
    for one in (
        Verb(
            "commit",
            _("Commit here"),
            "check",
            "danger",
            partial(settling.enlistment_settle, outcome="commit"),
            (
                _("What this hub prepared is committed now, without the coordinator's word."),
                _(
                    "When the coordinator says Rollback later, it is told that the outcomes contradict each other, and "
                    "an incident opens."
                ),
            ),
            "",
            (_("Their operator says that it was committed"),),
            _("is settled"),
        ),
        Verb(
            "rollback",
            _("Roll back here"),
            "arrow-back-up",
            "danger",
            partial(settling.enlistment_settle, outcome="rollback"),
            (
                _("What this hub prepared is undone now, without the coordinator's word."),
                _(
                    "When the coordinator says Commit later, it is told that the outcomes contradict each other, and "
                    "an incident opens."
                ),
            ),
            "",
            (_("Their operator says that it was rolled back"),),
            _("is settled"),
        ),
        Verb(
            "forget",
            _("Give up"),
            "player-skip-forward",
            "danger",
            partial(settling.enlistment_settle, outcome="forget"),
            (
                _("The participant is not told the outcome any more, and counts as done."),
                _("The transaction ends when nobody else is left."),
            ),
            "",
            (
                _("The system over there does not exist any more"),
                _("Their operator settled it by hand"),
            ),
            _("is settled"),
        ),
    )
}
