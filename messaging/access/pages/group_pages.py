"""Partner groups: which partners the same people look after."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse

from messaging.access.selectors import people
from messaging.access.selectors.reach import read_id
from messaging.access.services import partner_groups
from messaging.console.access import actor, requires
from messaging.console.rendering import keyset_page, page, problems, see_other
from messaging.exceptions import InvalidSubmission, WrongState
from partners.models import PartnerGroup
from rmhub.ids import BadPublicId

SCOPE = "users:manage"


@requires(SCOPE)
def group_list(request: HttpRequest) -> HttpResponse:
    """All groups, by name."""
    context = keyset_page(request, "console.groups", people.groups(), order=("name",), filters={})
    return page(request, "console/access/groups.html", context)


@requires(SCOPE, methods=("GET", "POST"))
def group_new(request: HttpRequest) -> HttpResponse:
    """A new group."""
    return _form(request, None)


@requires(SCOPE, methods=("GET", "POST"))
def group_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """A group's name and partners."""
    return _form(request, people.group(read_id("grp", reference)))


@requires(SCOPE, methods=("GET", "POST"))
def group_delete(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of a group that nobody is limited to."""
    group = people.group(read_id("grp", reference))
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        try:
            partner_groups.group_delete(group_id=group.pk, actor=actor(request), reason=_text(request, "reason"))
        except InvalidSubmission as error:
            errors, status = problems(error), 422
        except WrongState as error:
            errors, status = problems(error), 409
        else:
            notices.success(request, f"The group {group.name} is deleted.")
            return see_other("console:groups")
    context = {"group": group, "errors": errors, "given": request.POST}
    fragments = {"dialog": "console/access/group_delete_form.html"}
    return page(request, "console/access/group_delete.html", context, fragments=fragments, status=status)


def _form(request: HttpRequest, group: PartnerGroup | None) -> HttpResponse:
    errors: list[tuple[str, str]] = []
    if request.method == "POST":
        try:
            values: dict[str, Any] = {
                "name": _text(request, "name"),
                "description": _text(request, "description"),
                "partners": _parties(request.POST.getlist("partners")),
                "reason": _text(request, "reason"),
                "actor": actor(request),
            }
            if group is None:
                saved = partner_groups.group_create(**values)
            else:
                saved = partner_groups.group_change(group_id=group.pk, **values)
        except InvalidSubmission as error:
            errors = problems(error)
        else:
            notices.success(request, f"The group {saved.name} is saved.")
            return see_other("console:groups")
        given = {name: _text(request, name) for name in ("name", "description", "reason")}
        chosen = request.POST.getlist("partners")
    elif group is not None:
        given = {"name": group.name, "description": group.description}
        chosen = [party.public_id for party in group.partners.all()]
    else:
        given, chosen = {}, []
    context = {"group": group, "given": given, "chosen": chosen, "parties": people.choosable(), "errors": errors}
    return page(request, "console/access/group_form.html", context, status=422 if errors else 200)


def _parties(texts: list[str]) -> list[uuid.UUID]:
    try:
        return [read_id("par", text) for text in texts]
    except BadPublicId as error:
        raise InvalidSubmission({"partners": ["One of these is no partner (any more)."]}) from error


def _text(request: HttpRequest, name: str) -> str:
    return request.POST.get(name, "").strip().replace("\x00", "")
