"""Handlers of the usual kinds, made from what is particular to each: a list, one item, an action on one.

What is said beside it (`id`, `scope`, `summary`, `path` ...) is what `operation` takes; the tag is the first word of
the id, unless it is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import page_of, validated
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters

Shape = type[Serializer]
Handler = Callable[..., Response]


def listed(
    rows: Callable[..., QuerySet[Any]],
    shape: Shape,
    *,
    order: Sequence[str],
    filters: Sequence[Param] = (),
    problems: Sequence[str] = (),
    **said: Any,
) -> Handler:
    """A list: `rows(**filters, **path)` are its rows, by the filters that were given."""

    @operation(
        parameters=(*filters, *PAGING),
        responses={200: page_of(shape)},
        problems=("invalid_cursor", "cursor_mismatch", *problems),
        **_tagged(said),
    )
    def get(self: Endpoint, request: Request, **path: str) -> Response:
        values, limit, place = read_list(request, filters)
        given = {name: value for name, value in values.items() if value is not None}
        page = keyset.page(rows(**given, **path), order=order, limit=limit, place=place)
        return listing(request, values, page, shape)

    return get


def shown(
    find: Callable[..., Any], shape: Shape, *, parameters: Sequence[Param] = (), etag: bool = True, **said: Any
) -> Handler:
    """One item, which `find(**path)` finds; it takes the values of all parameters too."""

    @operation(parameters=parameters, responses={200: shape}, **_tagged(said))
    def get(self: Endpoint, request: Request, **path: str) -> Response:
        data = dict(shape(find(**path, **read_parameters(request, parameters))).data)
        return item(request, data) if etag else Response(data)

    return get


def done(act: Callable[..., Any], body: Shape, shape: Shape, **said: Any) -> Handler:
    """An action: `act(actor=, **path, **body)` does it and returns the item as it is then."""

    @operation(request=body, responses={200: shape}, **_tagged(said))
    def post(self: Endpoint, request: Request, **path: str) -> Response:
        read_parameters(request, ())
        values = validated(body, request.data)
        return item(request, shape(act(actor=actor_of(request), **path, **values)).data)

    return post


def _tagged(said: dict[str, Any]) -> dict[str, Any]:
    return {"tag": said["id"].partition("_")[0], **said}
