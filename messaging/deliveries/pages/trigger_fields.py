"""The fields of a trigger's form, in their groups: labels, help, and for which kinds each is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from messaging.choices import Consult, JoinType, ResolverFailure, RetryUntil, ServiceKind, WhenExhausted


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `kind`: text, password, number, time, switch, choice, select, lines or codes.

    `only`: shown for these values of that field; the style sheet has a rule for each such field.
    """

    name: str
    label: str
    kind: str
    hint: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    only: tuple[str, tuple[str, ...]] | None = None
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Fields under one heading. `folded`: closed as long as nothing in it is set or wrong."""

    title: str
    lead: str
    fields: tuple[Field, ...]
    folded: bool = False


_HTTP, _CALLABLE, _PULL = ServiceKind.HTTP.value, ServiceKind.CALLABLE.value, ServiceKind.PULL.value
_ATOMIC = ServiceKind.ATOMIC.value
_ASK_HTTP, _ASK_CALLABLE = Consult.HTTP.value, Consult.CALLABLE.value

GROUPS: tuple[Group, ...] = (
    Group(
        "Application",
        "",
        (Field("name", "Name", "text", "What the application is called, e.g. “ERP orders”. It stands on every page."),),
    ),
    Group(
        "Which documents",
        "All of these have to fit; what is left open fits everything.",
        (
            Field("party_id", "Partner", "select", choices=(("", "Every partner"),)),
            Field("agreement_id", "Agreement", "select", choices=(("", "Every agreement"),)),
            Field(
                "documents",
                "Services and actions",
                "lines",
                "One a line: the service, a bar, the action. * stands for any action. Empty: every document.",
                placeholder="urn:orders | NewOrder",
            ),
        ),
    ),
    Group(
        "Service",
        "What processes the documents.",
        (
            Field("kind", "Kind", "choice", choices=tuple((one.value, one.label) for one in ServiceKind)),
            Field(
                "url",
                "URL",
                "text",
                "Documents are posted here, signed as Standard Webhooks describes. Private addresses are allowed.",
                only=("kind", (_HTTP,)),
                placeholder="http://orders.internal:8080/documents",
            ),
            Field(
                "callable_name",
                "Callable",
                "select",
                "What the installed applications register. It runs in the transaction of the document history.",
                choices=(("", "Choose one"),),
                only=("kind", (_CALLABLE,)),
            ),
            Field(
                "member_of_id",
                "Member of",
                "select",
                "An atomic trigger: its documents are processed here and by its other members, or nowhere.",
                choices=(("", "None: it has documents of its own"),),
                only=("kind", (_HTTP, _CALLABLE)),
            ),
            Field(
                "atomic_agreement_id",
                "Takes part under",
                "select",
                "Members: the agreement for atomic transactions under which the application registers and votes.",
                choices=(("", "No agreement"),),
                only=("kind", (_HTTP,)),
            ),
            Field(
                "timeout",
                "Time-out",
                "time",
                "The longest that the service may take. After it, nobody knows whether it has finished. "
                "All or nothing: what is not decided then is rolled back.",
                only=("kind", (_HTTP, _CALLABLE, _ATOMIC)),
            ),
            Field(
                "retry_statuses",
                "“Not now” statuses",
                "codes",
                "HTTP statuses that promise: not processed, try again later.",
                only=("kind", (_HTTP,)),
            ),
            Field(
                "lease_seconds",
                "Lease",
                "time",
                "How long a consumer may keep a document that it took.",
                only=("kind", (_PULL,)),
            ),
            Field(
                "answers",
                "Its response answers synchronous exchanges",
                "switch",
                "For agreements of the repeatable profile: the partner gets what the service responds.",
                only=("kind", (_HTTP, _CALLABLE)),
            ),
        ),
    ),
    Group(
        "Duplicates",
        "The three steps of the decision: redelivery count, document history, resolver.",
        (
            Field("detect_duplicates", "Detect duplicates", "switch", "Off: every copy is processed again."),
            Field(
                "use_history",
                "Use the document history",
                "switch",
                "Remembers what was begun and what was completed. Off: only the redelivery count speaks.",
            ),
            Field("history_ttl", "History time to live", "time", "A copy that comes later than this is new again."),
            Field(
                "document_id_path",
                "Document id in the document",
                "text",
                "Where a document holds its own id: //Order/ID (names without prefixes), $.order.id or BGM+2. Empty: "
                "it goes by the id that its sender gave, else by the MessageId.",
            ),
            Field("resolver", "Resolver", "choice", "", tuple((one.value, one.label) for one in Consult)),
            Field(
                "resolver_url",
                "Resolver URL",
                "text",
                "Asked whether the application has processed a document; answers NEW, DUPLICATE or IN_DOUBT.",
                only=("resolver", (_ASK_HTTP,)),
            ),
            Field(
                "resolver_callable",
                "Resolver callable",
                "select",
                choices=(("", "Choose one"),),
                only=("resolver", (_ASK_CALLABLE,)),
            ),
            Field(
                "resolver_failure",
                "When resolver or history cannot answer now",
                "choice",
                choices=tuple((one.value, one.label) for one in ResolverFailure),
            ),
        ),
    ),
    Group(
        "When the service is not available",
        "Only what certainly was not processed is retried. A service that ends with an error is not.",
        (
            Field(
                "retry_until",
                "Retry until",
                "choice",
                choices=tuple((one.value, one.label) for one in RetryUntil),
                only=("kind", (_HTTP, _CALLABLE, _ATOMIC)),
            ),
            Field(
                "max_retries",
                "Max retries",
                "number",
                "0: none. The document is tried once and so many times more.",
                only=("kind", (_HTTP, _CALLABLE, _ATOMIC)),
            ),
            Field("retry_interval", "Retry interval", "time", only=("kind", (_HTTP, _CALLABLE, _ATOMIC))),
            Field(
                "when_exhausted",
                "When retries are used up",
                "choice",
                choices=tuple((one.value, one.label) for one in WhenExhausted),
            ),
        ),
    ),
    Group(
        "Order",
        "",
        (
            Field(
                "ordered",
                "In order, pair by pair",
                "switch",
                "A document waits until the one before it on the same pair is done. Off: as they come.",
            ),
            Field("concurrency", "At the same time", "number", "1 to 64 documents; in order: of so many pairs."),
            Field(
                "suspend_on_error",
                "Suspend when the service ends with an error",
                "switch",
                "Nothing goes on behind a document that the service failed on, until somebody has looked.",
                only=("ordered", ("on",)),
            ),
        ),
    ),
    Group(
        "Resource monitor",
        "Asked while the trigger is suspended for trouble; its yes resumes the trigger.",
        (
            Field("monitor", "Monitor", "choice", choices=tuple((one.value, one.label) for one in Consult)),
            Field(
                "monitor_url",
                "Monitor URL",
                "text",
                "Answers 200 with true, or {“isAvailable”: true}.",
                only=("monitor", (_ASK_HTTP,)),
            ),
            Field(
                "monitor_callable",
                "Monitor callable",
                "select",
                choices=(("", "Choose one"),),
                only=("monitor", (_ASK_CALLABLE,)),
            ),
            Field("monitor_interval", "Interval", "time", only=("monitor", (_ASK_HTTP, _ASK_CALLABLE))),
        ),
        folded=True,
    ),
    Group(
        "Joins and silence",
        "",
        (
            Field(
                "join_type",
                "Join documents of one conversation",
                "choice",
                "All: processed together when each type has come. Only one: the first; the others are discarded.",
                tuple((one.value, one.label) for one in JoinType),
            ),
            Field(
                "join_timeout", "Join time-out", "time", "What has come to a join that stays incomplete is discarded."
            ),
            Field(
                "silent_after", "Silent after", "time", "Without a document for so long it is an incident. 0: never."
            ),
        ),
        folded=True,
    ),
)
FIELDS: Mapping[str, Field] = {field.name: field for group in GROUPS for field in group.fields}
