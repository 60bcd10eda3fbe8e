"""The plan of a bulk job: which objects it means, fixed when it is made, so that a person confirms what they saw."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import OperationalError, connection, transaction
from django.db.models import Count
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging.bulk.services.actions import ACTIONS, Action, Filter, Rows
from messaging.choices import JobState, PartnerAnswer
from messaging.deliveries.services import settling
from messaging.exceptions import InvalidSubmission
from messaging.journal import incidents
from messaging.journal.audit import Actor
from messaging.models import BulkJob, BulkJobItem
from messaging.models.traffic import HAS_IT
from rmhub import clock
from rmhub.ids import public_id
from rmhub.language import number

MAX_IDS = 10_000
MAX_ITEMS = 100_000
PLAN_SECONDS = 20  # a filter that takes longer to evaluate is refused
PLANNED_FOR = timedelta(hours=1)
MAX_STAGGER = 3600  # seconds between two pairs
MODES = ("probe", "all")
_SAMPLE = 5
_GROUPS = 50
_CANCELLED_BY_DATABASE = "57014"


def job_plan(
    *,
    action: str,
    parameters: Mapping[str, Any],
    actor: Actor,
    ids: Collection[uuid.UUID] | None = None,
    filter: Filter | None = None,
    rows: Rows | None = None,
    chosen: Mapping[str, Any] | None = None,
    what: str = "",
    origin: str = "",
) -> BulkJob:
    """Plans a job and does nothing: it means the objects of `ids`, those of an evidence group (`filter`), or `rows`.

    `rows`: what a list's filters mean, which `chosen` holds as people write them. What the action cannot be done to is
    left out, and counted in the plan. `parameters`: what the action takes; those that people give when they execute it
    may be missing. `filter` names ids as people see them: settle_deliveries {"trigger", "doubt"}, redeliver_failed
    {"trigger"}, settle_messages {"pair", "cause"} or {"answer"}, ask_partner and ask_application any part of these.
    `origin`: the page of ours that it comes from. Raises InvalidSubmission by field.
    """
    kind = action_of(action)
    kept = checked(kind, parameters, planned=True)
    if (ids is not None) + (filter is not None) + (rows is not None) != 1 or (ids is not None and not ids):
        raise InvalidSubmission({"filter": [_("Give either ids or a filter, and not an empty one.")]})
    now = clock.now()
    job = BulkJob(
        action=action,
        parameters=kept,
        what=(what or _described(ids, chosen or filter))[:255],
        state=JobState.PLANNED,
        actor=actor.name[:150],
        interface=actor.interface,
        address=actor.address[:64],
        reason="",
        expires_at=now + PLANNED_FOR,
        created_at=now,
    )
    if ids is not None:
        wanted = set(ids)
        if len(wanted) > MAX_IDS:
            said = _("At most {count}: use a filter for more.").format(count=number(MAX_IDS))
            raise InvalidSubmission({"ids": [said]})
        given = kind.rows().filter(pk__in=wanted)
    elif rows is not None:
        given = kind.rows().filter(pk__in=rows.order_by().values("pk"))
    else:
        assert filter is not None
        if kind.find is None:
            said = _("This action takes the filters of a list: give it as they are there.")
            raise InvalidSubmission({"filter": [said]})
        given = kind.find(filter)
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = '{PLAN_SECONDS}s'")
            job.save(force_insert=True)
            job.total = _take(job, given)
            left_out = len(wanted) - job.total if ids is not None else 0
            _refuse_empty(job, left_out)
            _refuse_mixed(kind, job)
            job.plan = _plan(kind, job, chosen or filter or {}, left_out, origin)
            job.save(update_fields=["total", "plan"])
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL statement_timeout = DEFAULT")
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "") != _CANCELLED_BY_DATABASE:
            raise
        said = _("It takes too long to find what this means: narrow it by a partner, a pair or dates.")
        raise InvalidSubmission({"filter": [said]}) from error
    return job


def action_of(name: str) -> Action:
    """The entry of the table. Raises InvalidSubmission."""
    chosen = ACTIONS.get(name)
    if chosen is None:
        raise InvalidSubmission({"action": [_one_of(ACTIONS)]})
    return chosen


def _one_of(names: Iterable[str]) -> str:
    return _("One of {names}.").format(names=", ".join(names))


def left_out_words(count: int) -> str:
    """Why these were not taken."""
    said = ngettext(
        "{count} of these is not in a state in which this can be done.",
        "{count} of these are not in a state in which this can be done.",
        count,
    )
    return said.format(count=number(count))


def _take(job: BulkJob, rows: Rows) -> int:
    """Writes an item for each row, in one statement: what is meant is fixed before the first one is done."""
    try:
        inner, values = rows.order_by("id").values("id")[: MAX_ITEMS + 1].query.sql_with_params()
    except EmptyResultSet:  # the filter contradicts itself, so that there is nothing to ask the database
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO messaging_bulkjobitem (job_id, object_id, state, detail) "  # noqa: S608  (made by the ORM)
            f"SELECT %s, chosen.id, 'pending', '' FROM ({inner}) AS chosen",
            [job.pk, *values],
        )
        return int(cursor.rowcount)


def _items(kind: Action, job: BulkJob) -> Rows:
    return kind.all().filter(pk__in=BulkJobItem.objects.filter(job=job).values("object_id"))


def _refuse_empty(job: BulkJob, left_out: int) -> None:
    if job.total > MAX_ITEMS:
        said = _("More than {count} match: narrow it.").format(count=number(MAX_ITEMS))
        raise InvalidSubmission({"filter": [said]})
    if job.total:
        return
    if left_out:
        raise InvalidSubmission({"ids": [left_out_words(left_out)]})
    raise InvalidSubmission({"filter": [_("Nothing matches any more: somebody else may have settled it.")]})


def _refuse_mixed(kind: Action, job: BulkJob) -> None:
    """What is true of one of them must be true of all: one evidence group, or one answer of the partner."""
    if not kind.group:
        return
    rows = _items(kind, job).order_by()
    if kind.by_answer and job.parameters.get("decision") != "later":
        answers = set(rows.values_list("answer", flat=True).distinct())
        has_it, unknown = answers & set(HAS_IT), answers & {PartnerAnswer.NOT_RECOGNIZED}
        if has_it and unknown:
            said = _("The partner has some of these and does not know others: settle them by its answer.")
            raise InvalidSubmission({"filter": [said]})
        if len(answers) == 1 and (has_it or unknown):
            return
    groups = list(rows.values_list(*kind.group).distinct()[:2])
    if len(groups) > 1:
        said = _("These differ in {names}: settle one evidence group at a time.")
        raise InvalidSubmission({"ids": [said.format(names=_(" or ").join(kind.group))]})


def _plan(kind: Action, job: BulkJob, chosen: Mapping[str, Any], left_out: int, origin: str) -> dict[str, Any]:
    rows = _items(kind, job)
    counted = rows.order_by().values(*kind.split).annotate(number=Count("pk")).order_by("-number", *kind.split)
    return {
        "filter": dict(chosen),
        "left_out": left_out,
        "groups": [
            {"values": {name.partition("__")[0]: str(row[name]) for name in kind.split}, "count": row["number"]}
            for row in counted[:_GROUPS]
        ]
        if kind.split
        else [],
        "sample": [public_id(kind.prefix, key) for key in rows.order_by("pk").values_list("pk", flat=True)[:_SAMPLE]],
        "origin": origin,
    }


def _described(ids: Collection[uuid.UUID] | None, chosen: Filter | None) -> str:
    if ids is not None:
        return f"{len(set(ids)):,} chosen one by one"
    named = ", ".join(f"{name}: {value}" for name, value in sorted((chosen or {}).items()))
    return named or "all of them"


# --- what a job takes beside its objects and its reason ---


def checked(action: Action, parameters: Mapping[str, Any], *, planned: bool = False) -> dict[str, Any]:
    """The parameters of a job, as they are stored. Raises InvalidSubmission by field.

    `planned`: of a plan, so that what has no default (an owner) may still be missing.
    """
    errors: dict[str, list[str]] = {}
    allowed = {*action.takes, *({"decision", "remind_in"} if action.decisions else set())}
    for name in sorted(set(parameters) - allowed):
        errors[name] = [_("This action does not take it.")]
    kept = _decided(action, parameters, errors) if action.decisions else {}
    for name in action.takes:
        if planned and name in _GIVEN_LAST and parameters.get(name) is None:
            continue
        kept |= _CHECKS[name](parameters.get(name), errors)
    if errors:
        raise InvalidSubmission(errors)
    return kept


def _decided(action: Action, parameters: Mapping[str, Any], errors: dict[str, list[str]]) -> dict[str, Any]:
    decision, remind_in = parameters.get("decision"), parameters.get("remind_in")
    kept: dict[str, Any] = {"decision": decision}
    if decision not in action.decisions:
        errors["decision"] = [_one_of(action.decisions)]
    if remind_in is not None:
        kept["remind_in"] = remind_in
    wants = decision == "later"
    fits = isinstance(remind_in, int) and settling.MIN_REMIND <= remind_in <= settling.MAX_REMIND
    if wants and not fits:
        errors["remind_in"] = [
            _("Seconds, from {least} to {most} (90 days).").format(least=settling.MIN_REMIND, most=settling.MAX_REMIND)
        ]
    elif not wants and remind_in is not None:
        errors["remind_in"] = [_("Only the decision “later” takes a time: leave it out.")]
    return kept


def _mode(given: Any, errors: dict[str, list[str]]) -> dict[str, Any]:
    mode = given or MODES[0]
    if mode not in MODES:
        errors["mode"] = [_one_of(MODES)]
    return {"mode": mode}


def _stagger(given: Any, errors: dict[str, list[str]]) -> dict[str, Any]:
    seconds = 0 if given is None else given
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 <= seconds <= MAX_STAGGER:
        errors["stagger"] = [_("Seconds between two pairs, from 0 to {most}.").format(most=MAX_STAGGER)]
    return {"stagger": seconds}


def _owner(given: Any, errors: dict[str, list[str]]) -> dict[str, Any]:
    if given not in incidents.may_own():
        errors["owner"] = [_("The name of an active user with the role operator.")]
    return {"owner": given}


_GIVEN_LAST = ("owner",)
_CHECKS: Mapping[str, Callable[[Any, dict[str, list[str]]], dict[str, Any]]] = {
    "mode": _mode,
    "stagger": _stagger,
    "owner": _owner,
}
