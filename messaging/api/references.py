"""What callers name things by: ids, codes, numbers."""

from __future__ import annotations

import uuid

from django.core.exceptions import ObjectDoesNotExist

from messaging.access.selectors.reach import read_id
from messaging.api.problems import Problem
from messaging.deliveries.selectors import triggers
from messaging.exceptions import NotFound
from messaging.pairs.selectors import pairs
from partners import selectors
from rmhub.ids import BadPublicId


def id_of(prefix: str, text: str) -> uuid.UUID:
    """The UUID of a path's id. Raises Problem (404)."""
    try:
        return read_id(prefix, text)
    except BadPublicId as error:
        raise Problem("not_found", str(error)) from error


def pair_id_of(reference: str | None) -> uuid.UUID | None:
    """The pair that a filter names by id or code. Raises Problem (400)."""
    if not reference:
        return None
    try:
        return pairs.pair(reference).pk
    except NotFound as error:
        raise _bad_filter("pair", error.detail) from error


def trigger_id_of(reference: str | None) -> uuid.UUID | None:
    """The trigger that a filter names by id or name. Raises Problem (400)."""
    if not reference:
        return None
    try:
        return triggers.trigger(reference).pk
    except NotFound as error:
        raise _bad_filter("trigger", error.detail) from error


def agreement_id_of(reference: str | None) -> uuid.UUID | None:
    """The agreement that a filter names by id or TPAId. Raises Problem (400)."""
    if not reference:
        return None
    try:
        return selectors.agreement(read_id("agr", reference)).pk
    except (BadPublicId, ObjectDoesNotExist):
        found = selectors.agreements().filter(tpa_id=reference).first()
    if found is None:
        raise _bad_filter("agreement", f"There is no agreement {reference}.")
    return found.pk


def _bad_filter(name: str, detail: str) -> Problem:
    errors = [{"parameter": name, "code": "not_found", "detail": detail}]
    return Problem("invalid_parameter", f"{name}: {detail}", errors=errors)
