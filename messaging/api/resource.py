"""The operations of a kind of object that people set up: list, create, read, change, delete, and its verbs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import models
from django.urls import URLPattern, path
from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import actor_of
from messaging.api.conditional import CONDITIONAL, IF_MATCH, expected_revision, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import Flag, IdIn, ReasonBody, Text, Whole, in_seconds, validated
from messaging.api.handlers import listed
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.resource import Resource, Verb
from partners.fields import Seconds


class SettingsBody(serializers.ModelSerializer, ReasonBody):
    """Settings of an object in a body: types, bounds, choices and help are the model's; the services check the rest."""

    serializer_field_mapping = {
        **serializers.ModelSerializer.serializer_field_mapping,
        models.CharField: Text,
        models.TextField: Text,
        models.PositiveIntegerField: Whole,
        Seconds: Whole,
        models.PositiveSmallIntegerField: Whole,
        models.BooleanField: Flag,
    }
    references: Mapping[str, str] = {}  # foreign key -> prefix of the ids that it takes

    def get_validators(self) -> list[Any]:
        return []  # what is taken already is the service's to say

    def get_uniqueness_extra_kwargs(self, *given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return given[2], {}

    def build_standard_field(self, field_name: str, model_field: Any) -> tuple[Any, dict[str, Any]]:
        kind, options = super().build_standard_field(field_name, model_field)
        options.pop("validators", None)
        options |= in_seconds(model_field)
        if issubclass(kind, Text):
            options |= {"trim_whitespace": False} if model_field.blank else {}
        return kind, options

    def build_relational_field(self, field_name: str, relation_info: Any) -> tuple[Any, dict[str, Any]]:
        field = relation_info.model_field
        optional = {"allow_null": True, "required": False} if field.null else {}
        return IdIn, {"prefix": self.references[field_name], "help_text": field.help_text, **optional}


class ChangesBody(SettingsBody):
    """The same for a change: what is absent stays."""

    def get_fields(self) -> Any:
        fields = super().get_fields()
        for name, field in fields.items():
            field.required = field.required and name == "reason"
        return fields


@dataclass(frozen=True, slots=True)
class Operations:
    """The API of a resource. `detail(row)`: its representation, and what of it the ETag is made from.

    `said`: operation -> (summary, description); without "delete" nothing deletes it, without `body` and `changes`
    nothing makes or changes it. `sorts`: the orders of its list, where the caller chooses one. `made`: what `create`
    answers, where it is more than `detailed`.
    """

    resource: Resource
    shape: type[serializers.Serializer]
    detailed: type[serializers.Serializer]
    detail: Callable[[Any], tuple[Any, Any]]
    filters: tuple[Param, ...]
    said: Mapping[str, tuple[str, str]]
    body: type[SettingsBody] | None = None
    changes: type[ChangesBody] | None = None
    example: OpenApiExample | None = None
    sorts: Mapping[str, tuple[str, ...]] | None = None
    made: type[serializers.Serializer] | None = None

    def urls(self) -> list[URLPattern]:
        """Paths of all operations, under the resource's plural."""
        r = self.resource
        one = f"{r.plural}/<str:{r.name}>"
        verbs = [verb for verb in r.verbs if verb.summary]
        return [
            path(r.plural, self._many().as_view(), name=r.plural),
            path(one, self._single().as_view(), name=r.name),
            *(path(f"{one}/{v.slug}", self._verb(v).as_view(), name=f"{r.name}-{v.slug}") for v in verbs),
        ]

    def _said(self, name: str, scope: str) -> dict[str, Any]:
        summary, description = self.said[name]
        plural = self.resource.plural
        said = {"id": f"{plural.replace('-', '_')}_{name}", "tag": plural, "scope": scope}
        return {**said, "summary": summary, "description": description}

    @property
    def path(self) -> dict[str, str]:
        r = self.resource
        return {r.name: f"Id of the {r.name} (`{r.prefix}_...`){', or its name' if r.by_name else ''}."}

    def _one(self, reference: str) -> Any:
        r = self.resource
        return r.one(reference if r.by_name else id_of(r.prefix, reference))

    def _many(self) -> type[Endpoint]:
        api, r, create, body = self, self.resource, self.resource.create, self.body
        located = OpenApiParameter(
            "Location", str, OpenApiParameter.HEADER, response=[201], description=f"The {r.name}."
        )

        class Many(Endpoint):
            get = listed(
                r.rows, self.shape, order=self.sorts or r.order, filters=self.filters, **self._said("list", r.reads)
            )

            if create is not None and body is not None:

                @operation(
                    **self._said("create", r.changes),
                    request=body,
                    responses={201: self.made or self.detailed},
                    headers=(located,),
                    examples=(self.example,) if self.example is not None else (),
                )
                @sensitive_variables()
                def post(self, request: Request) -> Response:
                    read_parameters(request, ())
                    made = create(actor=actor_of(request), **validated(body, request.data))
                    return api.left(request, made, status=201)

        return Many

    def _single(self) -> type[Endpoint]:
        api, r, update, changes = self, self.resource, self.resource.update, self.changes
        changing: dict[str, Any] = {"path": self.path, "problems": CONDITIONAL, "headers": (IF_MATCH,)}

        class One(Endpoint):
            @operation(**self._said("read", r.reads), path=self.path, responses={200: self.detailed})
            def get(self, request: Request, **named: str) -> Response:
                read_parameters(request, ())
                return api._answer(request, api._one(named[r.name]))

            if update is not None and changes is not None:

                @operation(
                    **self._said("change", r.changes), request=changes, responses={200: self.detailed}, **changing
                )
                def patch(self, request: Request, **named: str) -> Response:
                    return api.do(request, named, update, changes)

            if "delete" in self.said:

                @operation(**self._said("delete", r.changes), request=ReasonBody, responses={204: None}, **changing)
                def delete(self, request: Request, **named: str) -> Response:
                    verb = r.verb("delete")
                    assert verb is not None
                    return api.do(request, named, verb.service, ReasonBody)

        return One

    def _verb(self, verb: Verb) -> type[Endpoint]:
        api, r = self, self.resource

        class OfVerb(Endpoint):
            @operation(
                id=f"{r.plural.replace('-', '_')}_{verb.slug}",
                tag=r.plural,
                scope=r.scope_of(verb.slug),
                summary=verb.summary,
                description=f"Returns the {r.name} in its new state, with its new ETag.",
                path=self.path,
                request=ReasonBody,
                responses={200: self.detailed},
                problems=("wrong_state", *CONDITIONAL),
                headers=(IF_MATCH,),
            )
            def post(self, request: Request, **named: str) -> Response:
                return api.do(request, named, verb.service, ReasonBody)

        return OfVerb

    @sensitive_variables()
    def do(
        self, request: Request, named: Mapping[str, str], service: Callable[..., Any], body: type[ReasonBody]
    ) -> Response:
        """Do it to the object at the version that the caller saw; answer the object as it is then."""
        r = self.resource
        read_parameters(request, ())
        seen = expected_revision(request)
        expected = None if seen is None else r.read_revision(seen)
        values = validated(body, request.data)
        pk = self._one(named[r.name]).pk if r.by_name else id_of(r.prefix, named[r.name])
        left = service(**r.key(pk), actor=actor_of(request), expected_version=expected, **values)
        return self.left(request, left)

    def left(self, request: Request, left: Any, *, status: int = 200) -> Response:
        """Answer what a service returned: the object, None when it is gone."""
        return (
            Response(status=204) if left is None else self._answer(request, self.resource.one(left.pk), status=status)
        )

    def _answer(self, request: Request, row: Any, *, status: int = 200, **headers: str) -> Response:
        data, lasting = self.detail(row)
        if status == 201:
            headers["Location"] = f"/api/v1/{self.resource.plural}/{row.public_id}"
        return item(request, data, revision=self.resource.revision(row), digest_of=lasting, status=status, **headers)
