"""What operations that change something have in common."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from messaging.api.authentication import actor_of
from messaging.api.conditional import expected_revision
from messaging.api.fields import validated
from messaging.api.reading import read_parameters


def change_of(request: Request, body: type[serializers.Serializer]) -> dict[str, Any]:
    """The body's values, with who changes it (`actor`) and the revision that they saw (`expected`)."""
    read_parameters(request, ())
    expected = expected_revision(request)
    return {"actor": actor_of(request), "expected": expected, **validated(body, request.data)}
