"""Bulk jobs as buttons of lists and as plans that a person confirms: words, effects and fields of each action.

The actions themselves are `services.actions`'; a test holds this table against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from django.http import HttpRequest

from messaging.bulk.services.actions import ACTIONS
from messaging.bulk.services.plans import MAX_STAGGER
from messaging.console.access import person
from messaging.console.lists import BulkAction
from messaging.deliveries.pages.decisions import DELIVERY, MESSAGE, Many
from messaging.journal.incidents import may_own
from messaging.models import BulkJob


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
    """How one action is shown. `what`: its objects in the plural. In `effects`, {waiting} stands for the number of
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
        action, _, decision = name.partition(":")
        verb = VERBS[action]
        label, icon = (DELIVERY[decision].group_label, DELIVERY[decision].icon) if decision else (verb.label, verb.icon)
        missing = who.lacks(verb.scope)
        found.append(BulkAction(name, labels.get(name, label), icon, f"Needs the role {missing}." if missing else ""))
    return found


def verb_of(job: BulkJob) -> BulkVerb:
    """The words of a job's action; those of a decision about documents are the decision's own."""
    verb = VERBS[job.action]
    if job.action == "redeliver_failed":
        return replace(verb, effects=tuple(DELIVERY["resubmit"].effects(Many(job.total, "the trigger", failed=True))))
    table = {"settle_deliveries": DELIVERY, "settle_messages": MESSAGE}.get(job.action)
    choice = table.get(str(job.parameters.get("decision", ""))) if table is not None else None
    if choice is None:
        return verb
    return replace(
        verb,
        label=choice.group_label,
        icon=choice.icon,
        effects=tuple(choice.effects(Many(job.total, "each" if job.action == "settle_messages" else "the trigger"))),
        forever=choice.forever,
        presets=choice.presets,
        heavy=choice.heavy,
    )


def fields(verb: BulkVerb, job: BulkJob, me: str) -> list[Field]:
    """What the plan's form asks for, beside the reason."""
    made = {
        "mode": Field("mode", "How each pair begins", "radio", _MODES, value=str(job.parameters.get("mode", "probe"))),
        "stagger": Field(
            "stagger",
            "Seconds between two pairs",
            "number",
            hint=f"0 to {MAX_STAGGER}. Spares a partner that is just up again.",
            value=str(job.parameters.get("stagger", 0)),
        ),
    }
    if "owner" in verb.takes:
        people = tuple(Option(name, name) for name in may_own())
        made["owner"] = Field("owner", "Owner", "select", people, value=str(job.parameters.get("owner") or me))
    return [made[name] for name in verb.takes]


_MODES = (
    Option("probe", "Probe first", "One message, without retries; the rest follows when the partner has it."),
    Option("all", "All at once", "What waits goes out at once, in its order."),
)


_LIGHT = "Nothing here is irreversible."
_UNSENT = "What has been sent cannot be unsent."
VERBS: Mapping[str, BulkVerb] = {
    verb.action: verb
    for verb in (
        BulkVerb(
            "pairs_pause",
            "Pause",
            "player-pause",
            "pairs",
            (
                "From now on nothing is sent on these pairs. Attempts that are on the wire are finished.",
                "Applications can go on submitting; what they submit waits until the pairs are released.",
            ),
            "Nothing here is irreversible: release the pairs and they go on.",
            ("Partner's maintenance window", "Investigation"),
        ),
        BulkVerb(
            "pairs_resume",
            "Resume",
            "player-play",
            "pairs",
            (
                "The pairs go on one after the other: {waiting} documents in their queues go out in their order.",
                "Each begins with the message that it stopped at: the same id, the same octets.",
                "The retry counters start at zero. Open incidents of these pairs are resolved with your reason.",
            ),
            _UNSENT,
            ("Partner fixed their firewall", "Partner's server is up again", "Certificate replaced"),
            heavy=True,
        ),
        BulkVerb(
            "pairs_release",
            "Release",
            "player-play",
            "pairs",
            ("What is due goes out at once: {waiting} documents are in the queues of these pairs.",),
            _UNSENT,
            ("Maintenance is over", "Investigation is done"),
        ),
        BulkVerb(
            "pairs_clear_resync",
            "Clear resync",
            "arrows-exchange",
            "pairs",
            (
                "You say for all of these pairs that both sides were compared; your reason is the evidence.",
                "Documents that come in on them are new again, unless the hub knows them: what a partner still repeats "
                "from the time that is missing here is processed a second time.",
                "Documents that are in doubt stay so. The incidents about the lost memory are resolved with your "
                "reason.",
            ),
            "The hub does not look for repeats from that time any more.",
            ("Compared with the partners' lists: nothing is missing", "What was missing was sent again, and settled"),
            heavy=True,
        ),
        BulkVerb(
            "incidents_acknowledge",
            "Acknowledge",
            "check",
            "incidents",
            ("You become the owner of each: everybody sees that somebody works on it.",),
            _LIGHT,
            ("I am looking at it",),
        ),
        BulkVerb(
            "incidents_assign",
            "Assign",
            "user",
            "incidents",
            ("The person owns each of them from now on; they count as acknowledged.",),
            _LIGHT,
            ("Their partner",),
        ),
        BulkVerb(
            "incidents_resolve",
            "Resolve",
            "circle-check",
            "incidents",
            ("Each is closed with your reason. One whose cause is still there opens again as a new incident.",),
            "A resolved incident is not opened again; a new problem opens a new incident.",
            ("Fixed on the partner's side", "Fixed on our side"),
        ),
        BulkVerb(
            "messages_resubmit",
            "Resubmit as new",
            "arrow-forward-up",
            "messages",
            (
                "Each document is submitted again as a new message with a new MessageId; the old messages stay as they "
                "are.",
                "The partner cannot see that it is the same document: if they have it, they process it a second time.",
            ),
            _UNSENT,
            ("Partner says they do not have them", "Partner lost them"),
            heavy=True,
        ),
        BulkVerb(
            "messages_cancel",
            "Cancel",
            "ban",
            "messages",
            ("Each leaves its queue and is never sent. Its sender is notified by an event.",),
            "A cancelled message is never sent again; it can only be submitted again, under another MessageId.",
            ("Submitted by mistake", "Sent by other means"),
            heavy=True,
        ),
        BulkVerb(
            "messages_export",
            "Export documents",
            "download",
            "messages",
            (
                "The documents of these messages are checked, and lie ready as one ZIP file with an index on the job's "
                "page.",
                "Nothing is changed. The audit log keeps who took them, and why.",
            ),
            _LIGHT,
            ("Asked for by the partner", "Needed for an audit"),
        ),
        BulkVerb(
            "messages_attributes",
            "Take attributes again",
            "refresh",
            "messages",
            (
                "The attributes of each message are taken from its documents again, by the rules that hold now.",
                "What no rule finds another value for stays as it is.",
            ),
            _LIGHT,
            ("New rule", "Corrected rule"),
        ),
        BulkVerb(
            "ask_partner",
            "Ask the partner",
            "message-question",
            "messages",
            ("Each partner is asked what has become of each message. Nothing is changed on either side.",),
            _LIGHT,
            ("Evidence for what is in doubt",),
        ),
        BulkVerb(
            "ask_application",
            "Ask the application",
            "message-question",
            "documents",
            (
                "Each document is decided again, and its trigger's resolver is asked.",
                "If it says NEW, the document is processed; DUPLICATE, it is discarded; anything else, it is in doubt "
                "again.",
            ),
            "The resolver decides, or it is in doubt again.",
            ("The resolver is up again", "The resolver was corrected"),
        ),
        BulkVerb(
            "redeliver_failed",
            "Process again",
            "arrow-forward-up",
            "documents",
            (),
            DELIVERY["resubmit"].forever,
            DELIVERY["resubmit"].presets,
            heavy=True,
        ),
        BulkVerb("settle_deliveries", "Settle", "check", "documents", (), "", ()),
        BulkVerb("settle_messages", "Settle", "check", "messages", (), "", ()),
    )
}
