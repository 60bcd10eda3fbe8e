"""What comes in: bodies of bounded size, JSON that is JSON, and query parameters that exist."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from django.utils.dateparse import parse_datetime
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from messaging.access.selectors.reach import read_id
from messaging.api.problems import Problem
from partners import selectors as partners
from rmhub.ids import BadPublicId

_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
# In a query, an unescaped + is a space: 2026-01-31T00:00:00 01:00.
_LOST_PLUS = re.compile(r"(T.*) (\d\d:\d\d)$")


class StrictJson(BaseParser):
    """RFC 8259 JSON in UTF-8: no NaN, no member twice, no depth that breaks the reader."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            text = stream.read().decode("utf-8")
            return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
        except UnicodeDecodeError as error:
            raise ParseError("The body is not UTF-8.") from error
        except RecursionError as error:
            raise ParseError("The body is nested too deeply.") from error
        except ValueError as error:
            raise ParseError(f"The body is not valid JSON: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same member twice")
    return found


def check_size(request: Request, limit: int) -> None:
    """Refuses a body by its declared length, before a byte of it is read. Raises Problem."""
    declared = request.META.get("CONTENT_LENGTH") or ""
    if request.headers.get("Transfer-Encoding") and not declared:
        raise Problem("length_required")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise Problem("body_too_large", f"The body has {declared[:20]} bytes; this path takes {limit}.")


@dataclass(frozen=True, slots=True)
class Param:
    """One query parameter. `kind`: text, id (with `prefix`), party (also by name or identifier), instant, choice,
    choices (with commas), flag, number.
    """

    name: str
    description: str
    kind: str = "text"
    prefix: str = ""
    choices: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = 0
    default: Any = None


def read_parameters(request: Request, known: Sequence[Param]) -> dict[str, Any]:
    """The value of each known parameter, its default when it is absent. Raises Problem for everything else."""
    by_name = {param.name: param for param in known}
    given: Mapping[str, list[str]] = dict(request.query_params.lists())
    if unknown := sorted(set(given) - set(by_name)):
        takes = ", ".join(sorted(by_name)) or "none"
        errors = [{"parameter": name, "code": "unknown", "detail": "There is no such parameter."} for name in unknown]
        raise Problem("unknown_parameter", f"This path takes: {takes}.", errors=errors)
    values: dict[str, Any] = {param.name: param.default for param in known}
    errors = []
    for name, texts in given.items():
        try:
            if len(texts) > 1:
                raise ValueError("Give it once; several values are separated by commas where they are possible.")
            values[name] = _value(by_name[name], texts[0])
        except ValueError as error:
            errors.append({"parameter": name, "code": "invalid", "detail": str(error)})
    errors += _backwards(values)
    if errors:
        raise Problem("invalid_parameter", "; ".join(f"{e['parameter']}: {e['detail']}" for e in errors), errors=errors)
    return values


def _backwards(values: Mapping[str, Any]) -> list[dict[str, str]]:
    """A range of times (`..._gte` to `..._lt`) in which nothing can lie is a mistake, and no empty list."""
    found = []
    for name, begin in values.items():
        end = values.get(f"{name[:-4]}_lt") if name.endswith("_gte") else None
        if isinstance(begin, datetime) and isinstance(end, datetime) and end <= begin:
            said = f"It must be later than {name}: the range runs backwards."
            found.append({"parameter": f"{name[:-4]}_lt", "code": "invalid", "detail": said})
    return found


def _value(param: Param, text: str) -> Any:
    if not text:
        raise ValueError("It is empty: leave it out, or give it a value.")
    if len(text) > 600 and param.name != "cursor":
        raise ValueError("It is too long.")
    if _CONTROL.search(text):
        raise ValueError("It has a control character in it.")
    match param.kind:
        case "id":
            return _id(param.prefix, text)
        case "party":
            return _party(text)
        case "instant":
            return _instant(text)
        case "choice":
            return _chosen(param, [text])[0]
        case "choices":
            return _chosen(param, text.split(","))
        case "flag":
            return _chosen(param, [text])[0] == "true"
        case "number":
            if not (text.isascii() and text.isdigit() and len(text) < 10):
                raise ValueError("A whole number, please.")
            if not param.minimum <= int(text) <= param.maximum:
                raise ValueError(f"From {param.minimum} to {param.maximum}.")
            return int(text)
    return text


def _id(prefix: str, text: str) -> uuid.UUID:
    try:
        return read_id(prefix, text)
    except BadPublicId as error:
        raise ValueError(f"An id of the form {prefix}_<32 hexadecimal digits>.") from error


def _party(text: str) -> uuid.UUID:
    with suppress(BadPublicId):
        return read_id("par", text)  # whether there is such a party, the list says
    found = list(partners.named(text).values_list("pk", flat=True)[:2])
    if not found:
        raise ValueError("There is no such party: its id, its whole name, or an identifier such as DUNS:123456789.")
    if len(found) > 1:
        raise ValueError("Several parties are called so: use an id.")
    return found[0]


def _instant(text: str) -> datetime:
    try:
        at = parse_datetime(_LOST_PLUS.sub(r"\1+\2", text))
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ValueError("A time with its zone, such as 2026-01-31T00:00:00Z.")
    return at


def _chosen(param: Param, texts: Sequence[str]) -> tuple[str, ...]:
    choices = ("true", "false") if param.kind == "flag" else param.choices
    if strange := [text for text in texts if text not in choices]:
        raise ValueError(f"{strange[0]!r} is not one of {', '.join(choices)}.")
    return tuple(texts)
