"""Handlers of the usual kinds, made from what is particular to each: a list, one item, an action on one.

What is said beside it (`id`, `scope`, `summary`, `path` ...) is what `operation` takes; the tag is the first word of
the id, unless it is another one. `ids`: path parameters that are public ids, with their prefixes; functions are called
with the UUIDs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from django.db.models import QuerySet
from django.views.decorators.debug import sensitive_variables
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import page_of, validated
from messaging.api.pagination import PAGING, listing, read_list, sort_parameter
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of

Shape = type[Serializer]
Handler = Callable[..., Response]
Ids = Mapping[str, str]

_NO_IDS: Ids = MappingProxyType({})


def listed(
    rows: Callable[..., QuerySet[Any]],
    shape: Shape,
    *,
    order: Sequence[str] | Mapping[str, Sequence[str]],
    filters: Sequence[Param] = (),
    ids: Ids = _NO_IDS,
    problems: Sequence[str] = (),
    represent: Callable[[list[Any]], list[Any]] | None = None,
    **said: Any,
) -> Handler:
    """A list: `rows(**filters, **path)` are its rows, by the filters that were given.

    `order`: of its rows; where the caller chooses it, those that there are, by their names. The first is the default.
    `represent`: makes a page's rows what `shape` describes, where the serializer does not.
    """
    orders = order if isinstance(order, Mapping) else {}
    known = (*filters, sort_parameter(*orders)) if orders else filters

    @operation(
        parameters=(*known, *PAGING),
        responses={200: page_of(shape)},
        problems=("invalid_cursor", "cursor_mismatch", *problems),
        **_said(said, ids),
    )
    def get(self: Endpoint, request: Request, **path: str) -> Response:
        values, limit, place = read_list(request, known)
        given = {name: value for name, value in values.items() if value is not None}
        chosen = orders[given.pop("sort")] if orders else order
        page = keyset.page(rows(**given, **_keys(path, ids)), order=tuple(chosen), limit=limit, place=place)
        return listing(request, values, page, represent or shape)

    return get


def shown(
    find: Callable[..., Any],
    shape: Shape,
    *,
    parameters: Sequence[Param] = (),
    etag: bool = True,
    ids: Ids = _NO_IDS,
    **said: Any,
) -> Handler:
    """One item, which `find(**path)` finds; it takes the values of all parameters too."""

    @operation(parameters=parameters, responses={200: shape}, **_said(said, ids))
    def get(self: Endpoint, request: Request, **path: str) -> Response:
        values = read_parameters(request, parameters)
        row = find(**_keys(path, ids), **values)
        data = dict(shape(row).data)
        return item(request, data) if etag else Response(data)

    return get


def done(
    act: Callable[..., Any], body: Shape, shape: Shape, *, ids: Ids = _NO_IDS, etag: bool = True, **said: Any
) -> Handler:
    """An action: `act(actor=, **path, **body)` does it and returns the item as it is then."""

    @operation(request=body, responses={200: shape}, **_said(said, ids))
    @sensitive_variables()
    def post(self: Endpoint, request: Request, **path: str) -> Response:
        read_parameters(request, ())
        values = validated(body, request.data)
        data = dict(shape(act(actor=actor_of(request), **_keys(path, ids), **values)).data)
        return item(request, data) if etag else Response(data)

    return post


def _keys(path: Mapping[str, str], ids: Ids) -> dict[str, Any]:
    return {name: id_of(ids[name], text) if name in ids else text for name, text in path.items()}


def _said(said: dict[str, Any], ids: Ids) -> dict[str, Any]:
    path = {name: f"Id of the {name.removesuffix('_id')} (`{prefix}_...`)." for name, prefix in ids.items()}
    return {"tag": said["id"].partition("_")[0], **said, "path": {**path, **said.get("path", {})}}
