"""Fields and the bases of bodies: what comes in is of its JSON type, and every member is known."""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from messaging.access.selectors.reach import read_id
from partners.fields import Seconds
from rmhub.ids import BadPublicId, public_id

_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


class StrictBody(serializers.Serializer):
    """A request's body, or an object in it: members that it does not have are refused, not passed over."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        errors: dict[str, Any] = {}
        if isinstance(data, Mapping):
            for name in data:
                if name not in self.fields:
                    errors[str(name)] = [ErrorDetail("There is no such member.", code="unknown_field")]
        try:
            values: dict[str, Any] = super().to_internal_value(data)
        except ValidationError as error:
            if isinstance(error.detail, Mapping):
                errors = {**error.detail, **errors}
        if errors:
            raise ValidationError(errors)
        return values


class Text(serializers.CharField):
    """A JSON string; numbers are not taken for one."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", 500)
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Whole(serializers.IntegerField):
    """A JSON integer."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return super().to_internal_value(data)


class Flag(serializers.BooleanField):
    """A JSON boolean."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class Instant(serializers.DateTimeField):
    """RFC 3339 with a zone."""

    def to_internal_value(self, value: Any) -> Any:
        if not isinstance(value, str) or not _INSTANT.fullmatch(value):
            raise ValidationError("A time with its zone, such as 2026-01-31T00:00:00Z.", code="invalid")
        return super().to_internal_value(value)


@extend_schema_field({"type": "string", "contentEncoding": "base64"})
class Base64(serializers.Field):
    """Octets as base64 (RFC 4648, 4)."""

    def to_internal_value(self, data: Any) -> bytes:
        if not isinstance(data, str):
            raise ValidationError("Not a valid string.", code="invalid")
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValidationError(f"Not base64: {error}.", code="invalid") from error

    def to_representation(self, value: Any) -> str:
        return base64.b64encode(bytes(value)).decode()


@extend_schema_field({"type": "string"})
class IdIn(serializers.Field):
    """An id of one kind in a body, as a UUID."""

    def __init__(self, prefix: str, **kwargs: Any) -> None:
        self.prefix = prefix
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> uuid.UUID:
        try:
            return read_id(self.prefix, data if isinstance(data, str) else "")
        except BadPublicId as error:
            text = f"An id of the form {self.prefix}_<32 hexadecimal digits>."
            raise ValidationError(text, code="invalid") from error

    def to_representation(self, value: Any) -> str:
        return public_id(self.prefix, value)


class IdOut(serializers.CharField):
    """`msg_0192...`: the public id of a row, or of the row that a foreign key names."""

    def __init__(self, prefix: str, **kwargs: Any) -> None:
        self.prefix = prefix
        super().__init__(read_only=True, **kwargs)

    def to_representation(self, value: Any) -> str:
        return public_id(self.prefix, value)


def in_seconds(model_field: Any) -> dict[str, str]:
    """Return the help text of a length of time, which names its unit."""
    return {"help_text": model_field.help_in_seconds} if isinstance(model_field, Seconds) else {}


class RowSerializer(serializers.ModelSerializer):
    """The representation of a row: what it holds, not what it would take."""

    def build_standard_field(self, field_name: str, model_field: Any) -> tuple[Any, dict[str, Any]]:
        kind, options = super().build_standard_field(field_name, model_field)
        options |= in_seconds(model_field)
        return kind, {key: options[key] for key in ("choices", "child", "help_text", "allow_null") if options.get(key)}

    def get_uniqueness_extra_kwargs(self, *given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return given[2], {}


class ReasonBody(StrictBody):
    """Why it is done: it goes into the audit log."""

    reason = Text(max_length=2000, min_length=3, help_text="Why, for the audit log.")


class OptionalReasonBody(StrictBody):
    """Why it is done, if there is something to say."""

    reason = Text(max_length=2000, required=False, allow_blank=True, default="", help_text="Why, for the audit log.")


def validated(body: type[serializers.Serializer], data: Any) -> dict[str, Any]:
    """The values of a body. Raises ValidationError, with all that is wrong."""
    read = body(data=data)
    read.is_valid(raise_exception=True)
    values: dict[str, Any] = read.validated_data
    return values


def page_of(item: type[serializers.Serializer]) -> type[serializers.Serializer]:
    """The serializer of one page of a list (documentation: `pagination.listing` makes the pages)."""
    name = item.__name__.removesuffix("Serializer")
    members: dict[str, Any] = {
        "data": item(many=True),
        "next_cursor": serializers.CharField(allow_null=True, help_text="Send it as `cursor` for the page behind."),
        "prev_cursor": serializers.CharField(allow_null=True, help_text="Send it as `cursor` for the page before."),
        "has_more": serializers.BooleanField(help_text="Whether there is a page behind this one."),
        "estimated_count": serializers.IntegerField(
            required=False, help_text="With `count=estimate`: about how many rows the list has."
        ),
        "__doc__": f"A page of {name}.",
        "__module__": __name__,
    }
    return type(f"{name}Page", (serializers.Serializer,), members)
