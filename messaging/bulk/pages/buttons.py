"""Bulk jobs as buttons of lists and as plans that a person confirms: words, effects and fields of each action.

The actions themselves are `services.actions`'; a test holds this table against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging.bulk.services.actions import ACTIONS
from messaging.bulk.services.plans import MAX_STAGGER
from messaging.console.access import person
from messaging.console.lists import BulkAction
from messaging.deliveries.pages.decisions import DELIVERY, MESSAGE, Many
from messaging.journal.incidents import may_own
from messaging.models import BulkJob
from rmhub.language import gettext_lazy, pgettext_lazy


@dataclass(frozen=True, slots=True)
class Option:
    """A choice of a field: value and words."""

    value: str
    label: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter that a person gives when they execute a plan. `kind`: radio, select or number."""

    name: str
    label: str
    kind: str
    options: tuple[Option, ...] = ()
    hint: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class BulkVerb:
    """How one action is shown. `what`: which objects it is about. In `effects`, {waiting} stands for the number of
    documents in the queues of the pairs.
    """

    action: str
    label: str
    icon: str
    what: str
    effects: tuple[str, ...]
    forever: str
    presets: tuple[str, ...]
    heavy: bool = False

    @property
    def scope(self) -> str:
        return ACTIONS[self.action].scope

    @property
    def takes(self) -> tuple[str, ...]:
        return ACTIONS[self.action].takes


def actions(request: HttpRequest, *names: str, labels: Mapping[str, str] = MappingProxyType({})) -> list[BulkAction]:
    """The buttons of a list's selection; those that the person's role does not have say so.

    A decision about deliveries has it behind a colon: `settle_deliveries:duplicate`. `labels`: other words than the
    verb's, for lists whose rows are not its objects.
    """
    who = person(request)
    found = []
    for name in names:
        action, __, decision = name.partition(":")
        verb = VERBS[action]
        label, icon = (DELIVERY[decision].label, DELIVERY[decision].icon) if decision else (verb.label, verb.icon)
        missing = who.lacks(verb.scope)
        why_not = _("Needs the role {role}.").format(role=missing) if missing else ""
        found.append(BulkAction(name, labels.get(name, label), icon, why_not))
    return found


def verb_of(job: BulkJob) -> BulkVerb:
    """The words of a job's action; those of a decision about documents are the decision's own."""
    verb = VERBS[job.action]
    if job.action == "redeliver_failed":
        return replace(
            verb, effects=tuple(DELIVERY["resubmit"].effects(Many(job.total, _("the trigger"), failed=True)))
        )
    table = {"settle_deliveries": DELIVERY, "settle_messages": MESSAGE}.get(job.action)
    choice = table.get(str(job.parameters.get("decision", ""))) if table is not None else None
    if choice is None:
        return verb
    where = "" if job.action == "settle_messages" else _("the trigger")
    return replace(
        verb,
        label=choice.label,
        icon=choice.icon,
        effects=tuple(choice.effects(Many(job.total, where))),
        forever=choice.forever,
        presets=choice.presets,
        heavy=choice.heavy,
    )


def objects(verb: BulkVerb, count: int) -> str:
    """Words for so many objects, with a place for their {count}."""
    return {
        "pairs": ngettext("{count} pair", "{count} pairs", count),
        "incidents": ngettext("{count} incident", "{count} incidents", count),
        "messages": ngettext("{count} message", "{count} messages", count),
        "documents": ngettext("{count} document", "{count} documents", count),
    }[verb.what]


def fields(verb: BulkVerb, job: BulkJob, me: str) -> list[Field]:
    """What the plan's form asks for, beside the reason."""
    made = {
        "mode": Field(
            "mode", _("How each pair begins"), "radio", _MODES, value=str(job.parameters.get("mode", "probe"))
        ),
        "stagger": Field(
            "stagger",
            _("Seconds between two pairs"),
            "number",
            hint=_("0 to {most}. Spares a partner that is just up again.").format(most=MAX_STAGGER),
            value=str(job.parameters.get("stagger", 0)),
        ),
    }
    if "owner" in verb.takes:
        people = tuple(Option(name, name) for name in may_own())
        made["owner"] = Field("owner", _("Owner"), "select", people, value=str(job.parameters.get("owner") or me))
    return [made[name] for name in verb.takes]


_MODES = (
    Option(
        "probe",
        gettext_lazy("Probe first"),
        gettext_lazy("One message, without retries; the rest follows when the partner has it."),
    ),
    Option("all", gettext_lazy("All at once"), gettext_lazy("What waits goes out at once, in its order.")),
)


_LIGHT = gettext_lazy("Nothing here is irreversible.")
_UNSENT = gettext_lazy("What has been sent cannot be unsent.")
VERBS: Mapping[str, BulkVerb] = {
    verb.action: verb
    for verb in (
        BulkVerb(
            "pairs_pause",
            gettext_lazy("Pause"),
            "player-pause",
            "pairs",
            (
                gettext_lazy("From now on nothing is sent on these pairs. Attempts that are on the wire are finished."),
                gettext_lazy("Applications can go on submitting; what they submit waits until the pairs are released."),
            ),
            gettext_lazy("Nothing here is irreversible: release the pairs and they go on."),
            (gettext_lazy("Partner's maintenance window"), gettext_lazy("Investigation")),
        ),
        BulkVerb(
            "pairs_resume",
            gettext_lazy("Resume"),
            "player-play",
            "pairs",
            (
                gettext_lazy(
                    "The pairs go on one after the other: {waiting} documents in their queues go out in their order."
                ),
                gettext_lazy("Each begins with the message that it stopped at: the same id, the same octets."),
                gettext_lazy(
                    "The retry counters start at zero. Open incidents of these pairs are resolved with your reason."
                ),
            ),
            _UNSENT,
            (
                gettext_lazy("Partner fixed their firewall"),
                gettext_lazy("Partner's server is up again"),
                gettext_lazy("Certificate replaced"),
            ),
            heavy=True,
        ),
        BulkVerb(
            "pairs_release",
            gettext_lazy("Release"),
            "player-play",
            "pairs",
            (gettext_lazy("What is due goes out at once: {waiting} documents are in the queues of these pairs."),),
            _UNSENT,
            (gettext_lazy("Maintenance is over"), gettext_lazy("Investigation is done")),
        ),
        BulkVerb(
            "pairs_clear_resync",
            gettext_lazy("Clear resync"),
            "arrows-exchange",
            "pairs",
            (
                gettext_lazy(
                    "You say for all of these pairs that both sides were compared; your reason is the evidence."
                ),
                gettext_lazy(
                    "Documents that come in on them are new again, unless the hub knows them: what a partner still "
                    "repeats from the time that is missing here is processed a second time."
                ),
                gettext_lazy(
                    "Documents that are in doubt stay so. The incidents about the lost memory are resolved with your "
                    "reason."
                ),
            ),
            gettext_lazy("The hub does not look for repeats from that time any more."),
            (
                gettext_lazy("Compared with the partners' lists: nothing is missing"),
                gettext_lazy("What was missing was sent again, and settled"),
            ),
            heavy=True,
        ),
        BulkVerb(
            "incidents_acknowledge",
            gettext_lazy("Acknowledge"),
            "check",
            "incidents",
            (gettext_lazy("You become the owner of each: everybody sees that somebody works on it."),),
            _LIGHT,
            (gettext_lazy("I am looking at it"),),
        ),
        BulkVerb(
            "incidents_assign",
            gettext_lazy("Assign"),
            "user",
            "incidents",
            (gettext_lazy("The person owns each of them from now on; they count as acknowledged."),),
            _LIGHT,
            (gettext_lazy("Their partner"),),
        ),
        BulkVerb(
            "incidents_resolve",
            gettext_lazy("Resolve"),
            "circle-check",
            "incidents",
            (
                gettext_lazy(
                    "Each is closed with your reason. One whose cause is still there opens again as a new incident."
                ),
            ),
            gettext_lazy("A resolved incident is not opened again; a new problem opens a new incident."),
            (gettext_lazy("Fixed on the partner's side"), gettext_lazy("Fixed on our side")),
        ),
        BulkVerb(
            "messages_resubmit",
            gettext_lazy("Resubmit as new"),
            "arrow-forward-up",
            "messages",
            (
                gettext_lazy(
                    "Each document is submitted again as a new message with a new MessageId; the old messages stay as "
                    "they are."
                ),
                gettext_lazy(
                    "The partner cannot see that it is the same document: if they have it, they process it a second "
                    "time."
                ),
            ),
            _UNSENT,
            (gettext_lazy("Partner says they do not have them"), gettext_lazy("Partner lost them")),
            heavy=True,
        ),
        BulkVerb(
            "messages_cancel",
            pgettext_lazy("message", "Cancel"),
            "ban",
            "messages",
            (gettext_lazy("Each leaves its queue and is never sent. Its sender is notified by an event."),),
            gettext_lazy(
                "A cancelled message is never sent again; it can only be submitted again, under another MessageId."
            ),
            (gettext_lazy("Submitted by mistake"), gettext_lazy("Sent by other means")),
            heavy=True,
        ),
        BulkVerb(
            "messages_export",
            gettext_lazy("Export documents"),
            "download",
            "messages",
            (
                gettext_lazy(
                    "The documents of these messages are checked, and lie ready as one ZIP file with an index on the "
                    "job's page."
                ),
                gettext_lazy("Nothing is changed. The audit log keeps who took them, and why."),
            ),
            _LIGHT,
            (gettext_lazy("Asked for by the partner"), gettext_lazy("Needed for an audit")),
        ),
        BulkVerb(
            "messages_attributes",
            gettext_lazy("Take attributes again"),
            "refresh",
            "messages",
            (
                gettext_lazy(
                    "The attributes of each message are taken from its documents again, by the rules that hold now."
                ),
                gettext_lazy("What no rule finds another value for stays as it is."),
            ),
            _LIGHT,
            (gettext_lazy("New rule"), gettext_lazy("Corrected rule")),
        ),
        BulkVerb(
            "ask_partner",
            gettext_lazy("Ask the partner"),
            "message-question",
            "messages",
            (
                gettext_lazy(
                    "Each partner is asked what has become of each message. Nothing is changed on either side."
                ),
            ),
            _LIGHT,
            (gettext_lazy("Evidence for what is in doubt"),),
        ),
        BulkVerb(
            "ask_application",
            gettext_lazy("Ask the application"),
            "message-question",
            "documents",
            (
                gettext_lazy("Each document is decided again, and its trigger's resolver is asked."),
                gettext_lazy(
                    "If it says NEW, the document is processed; DUPLICATE, it is discarded; anything else, it is in "
                    "doubt again."
                ),
            ),
            gettext_lazy("The resolver decides, or it is in doubt again."),
            (gettext_lazy("The resolver is up again"), gettext_lazy("The resolver was corrected")),
        ),
        BulkVerb(
            "redeliver_failed",
            gettext_lazy("Process again"),
            "arrow-forward-up",
            "documents",
            (),
            DELIVERY["resubmit"].forever,
            DELIVERY["resubmit"].presets,
            heavy=True,
        ),
        BulkVerb("settle_deliveries", gettext_lazy("Settle"), "check", "documents", (), "", ()),
        BulkVerb("settle_messages", gettext_lazy("Settle"), "check", "messages", (), "", ()),
    )
}
