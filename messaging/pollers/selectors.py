"""Mailboxes and folders that the hub looks into, with how far it is with each."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging.causes import Cause, lookup
from messaging.causes.files import OF_A_LOOK
from messaging.exceptions import NotFound
from messaging.journal.wording import span
from messaging.models import PollerState
from messaging.overview.selectors.health import OVERDUE_SECONDS
from messaging.pairs.selectors.diagnosis_parts import workers_behind
from partners import selectors
from partners.models import Poller
from rmhub import clock
from rmhub.ids import public_id
from rmhub.language import number

STATES = ("ok", "failing", "new", "looking", "off")


@dataclass(frozen=True, slots=True)
class PollerRow:
    """A poller as it is shown at `now`. `state`: one of STATES. `cause`: what was in the way of the last look, if
    anything. What is said of the mailbox or folder is what that look found, with its time: nobody has seen it since.
    """

    poller: Poller
    progress: PollerState
    state: str
    cause: Cause | None
    now: datetime

    @property
    def headline(self) -> str:
        """What is known, and since when."""
        if self.state == "off":
            return _("Switched off: what lies there waits.")
        looked, failures = self.progress.last_looked_at, self.progress.failures
        if failures and self.state == "failing" and looked is not None:
            return ngettext(
                "The last poll failed {time} ago.",
                "The last {count} polls failed, the last one {time} ago.",
                failures,
            ).format(count=number(failures), time=self._since(looked))
        if self.progress.last_success_at is None:
            return _("It has not been polled yet.")
        return _("The poll {time} ago could read it, and took what was there.").format(
            time=self._since(self.progress.last_success_at)
        )

    @property
    def sentence(self) -> str:
        """What was in the way of the last look; "" when nothing was."""
        if self.cause is None or self.state == "off":
            return ""
        said = str(OF_A_LOOK.get(self.cause.code, (self.cause.sentence, ""))[0])
        if not self.changed:
            return said
        return _("Its settings were changed {time} ago, and no poll has ended since. Before: {sentence}").format(
            time=self._since(self.poller.updated_at), sentence=said
        )

    @property
    def advice(self) -> str:
        """What to do about it."""
        if self.cause is None or self.state == "off":
            return ""
        if self.changed:
            return _("Wait for the next poll, which shows whether it works now.")
        return str(OF_A_LOOK.get(self.cause.code, ("", self.cause.action))[1])

    @property
    def outlook(self) -> tuple[str, str]:
        """That the hub itself is late with it, and what to do then; nothing when it is not."""
        due = self.progress.due_at
        leased = self.progress.leased_until is not None and self.progress.leased_until > self.now
        late = (self.now - due).total_seconds() if due is not None and self.poller.enabled and not leased else 0
        return workers_behind(late) if late > OVERDUE_SECONDS else ("", "")

    @property
    def changed(self) -> bool:
        """Whether something else was entered after the look that failed had begun."""
        looked = self.progress.last_looked_at
        return looked is not None and looked < self.poller.updated_at <= self.now

    @property
    def next_look_at(self) -> datetime | None:
        """When it is looked into next; None when never, or right now."""
        return None if self.state in ("off", "looking") else self.progress.due_at

    def _since(self, at: datetime) -> str:
        return span((self.now - at).total_seconds())


def pollers(**filters: Any) -> QuerySet[Poller]:
    """By name, with endpoint, partner and progress, without secrets; filters are those of `partners.selectors`."""
    return selectors.pollers(**filters).select_related("progress")


def poller(poller_id: uuid.UUID) -> Poller:
    """One of them. Raises NotFound."""
    try:
        return pollers().get(pk=poller_id)
    except ObjectDoesNotExist as error:
        raise NotFound(_("There is no poller {id}.").format(id=public_id("poll", poller_id))) from error


def row(poller: Poller, now: datetime | None = None) -> PollerRow:
    """A poller that `pollers` read, with its state."""
    now = now or clock.now()
    progress: Any = getattr(poller, "progress", None) or PollerState(poller=poller)
    cause = lookup(progress.cause) if progress.cause else None
    return PollerRow(poller, progress, _state(poller, progress, now), cause, now)


def _state(poller: Poller, progress: PollerState, now: datetime) -> str:
    if not poller.enabled:
        return "off"
    if progress.failures:
        return "failing"
    if progress.leased_until is not None and progress.leased_until > now:
        return "looking"
    return "ok" if progress.last_success_at else "new"
