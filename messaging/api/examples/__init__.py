"""Examples of the OpenAPI document, by operation. Those of a few operations stand with their views instead."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiExample

from messaging.api.examples.answers import ANSWERS
from messaging.api.examples.bodies import BODIES, FORMS
from messaging.api.examples.events import FACTS

NAMES = frozenset({*BODIES, *FORMS, *ANSWERS})


def of(operation: str) -> list[OpenApiExample]:
    """What is here for an operation, named by its id."""
    found = []
    if operation in BODIES:
        title, body = BODIES[operation]
        found.append(OpenApiExample(title, value=body, request_only=True))
    if operation in FORMS:
        title, body = FORMS[operation]
        found.append(OpenApiExample(title, value=body, request_only=True, media_type="multipart/form-data"))
    if operation in ANSWERS:
        found.append(OpenApiExample("An answer", value=ANSWERS[operation], response_only=True))
    return found


def of_event(kind: str) -> OpenApiExample:
    """The body of the webhook that tells of an event of this type."""
    return OpenApiExample(
        kind, value={"type": kind, "timestamp": "2026-11-22T10:00:00.123456+00:00", "data": FACTS[kind]}
    )
