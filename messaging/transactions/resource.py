"""What people can do to an atomic transaction and to its participants, for buttons, dialogs and the API."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from messaging.profiles.wsat import asking, settling
from messaging.resource import Verb

VERBS: Mapping[str, Verb] = {
    verb.slug: verb
    for verb in (
        Verb(
            "commit",
            "Commit",
            "check",
            "primary",
            partial(asking.transaction_ask, verb="commit"),
            (
                "All participants are asked for their votes, the volatile ones first.",
                "When all vote yes, the decision is written and everybody is told to commit.",
                "One no, or no answer before the time is over, and it is rolled back everywhere.",
            ),
            "Once the decision is written, nobody can take it back.",
            ("The application that began it is gone", "Asked for by the application's owner"),
            "is asked to commit",
            "Ask for the commit",
        ),
        Verb(
            "rollback",
            "Roll back",
            "arrow-back-up",
            "danger",
            partial(asking.transaction_ask, verb="rollback"),
            (
                "Every participant is told to undo what it prepared. Nobody's data changes.",
                "A document that is handed over in it waits, and is handed over again.",
            ),
            "A transaction that is rolled back cannot be committed any more: it has to be begun again.",
            ("The application that began it is gone", "A participant hangs", "Begun by mistake"),
            "is being rolled back",
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
            "Commit here",
            "check",
            "danger",
            partial(settling.enlistment_settle, outcome="commit"),
            (
                "What this hub prepared is committed now, without the coordinator's word.",
                "When the coordinator says Rollback later, it is told that the outcomes contradict each other, and an "
                "incident opens.",
            ),
            "",
            ("Their operator says that it was committed",),
            "is settled",
        ),
        Verb(
            "rollback",
            "Roll back here",
            "arrow-back-up",
            "danger",
            partial(settling.enlistment_settle, outcome="rollback"),
            (
                "What this hub prepared is undone now, without the coordinator's word.",
                "When the coordinator says Commit later, it is told that the outcomes contradict each other, and an "
                "incident opens.",
            ),
            "",
            ("Their operator says that it was rolled back",),
            "is settled",
        ),
        Verb(
            "forget",
            "Give up",
            "player-skip-forward",
            "danger",
            partial(settling.enlistment_settle, outcome="forget"),
            (
                "The participant is not told the outcome any more, and counts as done.",
                "The transaction ends when nobody else is left.",
            ),
            "",
            ("The system over there does not exist any more", "Their operator settled it by hand"),
            "is settled",
        ),
    )
}
