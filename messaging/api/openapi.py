"""The OpenAPI document, made from the views (docs/openapi.yaml is its committed copy)."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import yaml
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import process_webhooks
from drf_spectacular.settings import patched_settings
from drf_spectacular.utils import OpenApiResponse, OpenApiWebhook, extend_schema

from messaging.api import examples
from messaging.api.catalogue import CODES
from messaging.journal.events import TYPES
from messaging.notifications.api.webhooks import WebhookBodySerializer

_TAGS = (
    ("messages", "Submit documents, and follow every message through its attempts, octets and acknowledgements."),
    ("pairs", "Sender-Receiver pairs: the unit of ordering, and what is repaired when something stops."),
    ("triggers", "Which documents go to which service of which application."),
    ("deliveries", "Documents on their way to applications, and the queues from which applications take them."),
    ("transactions", "Work of several systems with one outcome (WS-AtomicTransaction): begun, joined, committed."),
    ("in-doubt", "What no rule can decide: a person does, one by one or many at once."),
    ("bulk-operations", "One action over many objects: planned, executed, followed, cancelled."),
    ("memory", "How far back the ids of repeatable requests are remembered."),
    ("events", "What happened, in order: a feed to pull."),
    ("webhooks", "What happened, pushed to you and signed."),
    ("incidents", "What a person must look at, and what was refused."),
    ("notifications", "Who is notified of what, by mail or webhook."),
    ("circuits", "Partners' servers that could not be reached lately."),
    ("parties", "Organisations and their messaging services."),
    ("agreements", "Trading partner agreements, in versions."),
    ("routes", "Where messages for parties that are not ours go next."),
    ("pollers", "Mailboxes and folders that the hub polls for what partners left there."),
    ("credentials", "Proof of identity between us and partners."),
    ("live", "The last hour by pair, as the live watch counts it."),
    ("reports", "What the data pipeline found out, and partners' logs that ours are compared with."),
    ("pipeline", "Runs of the data pipeline."),
    ("archive", "What has left the store, how it comes back, and what must not leave."),
    ("tokens", "Who may use this API."),
    ("users", "People, where they are logged in, and the groups of partners that they can be limited to."),
    ("preferences", "Users' console preferences, and the lists that they saved."),
    ("audit", "Who did what, and why."),
    ("hub", "The hub about itself."),
)
_DESCRIPTION = """\
Submit documents, follow them, and operate the hub. Whatever the console does is here too.

Every answer that is not 2xx is an RFC 9457 problem (`application/problem+json`) with a stable `code`.
Lists page by an opaque cursor. Verbs that change state need the item's ETag in `If-Match`, and a reason.
The integrator's guide: [The REST API](/help/api/); ten minutes with it: [the tutorial](/help/tutorial/).
"""


class _TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "messaging.api.authentication.TokenAuthentication"
    name = "apiToken"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer rmh_live_...`"}


class _SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "messaging.api.authentication.ConsoleSessionAuthentication"
    name = "consoleSession"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": "sessionid",
            "description": "The console's session; requests that change something send X-CSRFToken too.",
        }


_SIGNED = (
    ("webhook-id", "The delivery's id: the same over all attempts. Recognise repeats by it."),
    ("webhook-timestamp", "Seconds since 1970 of this attempt. Refuse what is older than five minutes."),
    ("webhook-signature", "`v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body` with the whsec_ key."),
)


def _webhook(kind: str) -> OpenApiWebhook:
    return OpenApiWebhook(
        kind,
        extend_schema(
            operation_id=f"webhook_{kind.replace('.', '_')}",
            tags=["webhooks"],
            summary=f"{kind} happened",
            description="Answer 2xx within 15 s; anything else is tried again over some three days. 410 switches the "
            "endpoint off. Verify the signature before you read the body.",
            request=WebhookBodySerializer,
            responses={"2XX": OpenApiResponse(description="Taken.")},
            examples=[examples.of_event(kind)],
        ),
    )


class SchemaWarnings(Exception):
    """The views are not fully described; the warnings are on standard error."""


def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document. Needs no database. Raises SchemaWarnings."""
    patches = {
        "DESCRIPTION": _DESCRIPTION,
        "TAGS": [{"name": name, "description": text} for name, text in _TAGS],
        # Not the default hook for enumerations: those of `state` differ everywhere, and its names for them say nothing.
        "POSTPROCESSING_HOOKS": ["messaging.api.openapi.add_webhooks"],
        "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
        "COMPONENT_SPLIT_PATCH": False,  # bodies of changes have their own serializers
    }
    with patched_settings(patches):
        generator = SchemaGenerator(urlconf="rmhub.urls")  # type: ignore[no-untyped-call]
        made: dict[str, Any] = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    if GENERATOR_STATS:
        raise SchemaWarnings("drf-spectacular had something to warn of; see above")
    cleaned: dict[str, Any] = _without_marks(made)
    return cleaned


def _without_marks(value: Any) -> Any:
    """The same without drf-spectacular's marks for the hook that is not used."""
    if isinstance(value, dict):
        return {name: _without_marks(below) for name, below in value.items() if name != "x-spec-enum-id"}
    return [_without_marks(below) for below in value] if isinstance(value, list) else value


def add_webhooks(result: dict[str, Any], generator: SchemaGenerator, **kwargs: Any) -> dict[str, Any]:
    """drf-spectacular's hook: its WEBHOOKS setting takes names of constants only, and ours come from a list."""
    result["webhooks"] = process_webhooks([_webhook(kind) for kind in TYPES], generator.registry)
    for path_item in result["webhooks"].values():
        path_item["post"]["parameters"] = [
            {"name": name, "in": "header", "required": True, "description": text, "schema": {"type": "string"}}
            for name, text in _SIGNED
        ]
    result["components"] = generator.registry.build({})
    for name, schema in result["components"]["schemas"].items():
        if name.endswith("Request") and name != "WebhookBodyRequest":
            schema["additionalProperties"] = False  # StrictBody refuses members that it does not know
    return result


@cache
def document_yaml() -> str:
    """The document as docs/openapi.yaml holds it; made once a process."""
    return yaml.safe_dump(
        json.loads(json.dumps(document(), default=str)), sort_keys=False, allow_unicode=True, width=120
    )


@cache
def document_json() -> bytes:
    """The document as the hub serves it; made once a process."""
    return json.dumps(document(), default=str).encode()


def problems_markdown() -> str:
    """docs/api-problems.md."""
    lines = [
        "# Problems",
        "",
        "Every answer of the API that is not 2xx is a problem (RFC 9457, `application/problem+json`). `code` is",
        "stable: programs decide by it, and by nothing else. `detail` is for people and may change. `retryable` says",
        "whether the same request, unchanged, may succeed later. Further members, where they help:",
        "",
        "| member | with | says |",
        "| --- | --- | --- |",
        "| `errors` | 400, 422 | of each wrong value: `pointer` (RFC 6901) or `parameter`, `code`, `detail` |",
        "| `required_scope` | 403 | the scope that the caller lacks |",
        "| `current_state`, `allowed_actions` | 409 | the state that forbids it, and what that state allows |",
        "| `existing` | 409 | id and href of what is there already |",
        "| `checks` | 503 of `/health` | what was looked at |",
        "| `parts` | 503 of `/health` | how each part is, and since when |",
        "",
        "The hub serves this list at `/api/v1/problems`. `manage.py openapi` writes this page.",
        "",
        "| code | status | retry | meaning, and what to do |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{row.code}` | {row.status} | {'yes' if row.retryable else 'no'} | **{row.title}.** {row.meaning} |"
        for row in CODES.values()
    ]
    return "\n".join(lines) + "\n"
