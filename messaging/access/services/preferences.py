"""What people set for themselves: zone, shortcuts, columns; and lists with their filters under a name, the team's too.

What one keeps for oneself needs no reason and is not in the audit log. What everybody sees is everybody's business:
sharing a view, changing or deleting a shared one is in it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import parse_qsl, urlencode
from zoneinfo import available_timezones

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from messaging.exceptions import InvalidSubmission, NotFound, Stale
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import Preference, SavedView
from rmhub import clock
from rmhub.ids import public_id
from rmhub.language import number

SHARE = "views:share"
MOST = 200  # of one person
# Parameters that say where in a list one is, and not which list it is.
PLACE = frozenset({"cursor", "at", "view", "format"})
_PAGE = re.compile(r"[a-z][a-z0-9-]{0,19}", re.ASCII)
_COLUMN = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
_MOST_COLUMNS = 60
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def preference_update(
    *,
    user: User,
    zone: str | None = None,
    language: str | None = None,
    shortcuts: bool | None = None,
    columns: Mapping[str, Sequence[str] | None] | None = None,
) -> Preference:
    """Changes what is given. `columns`: list -> the columns to hide there; None = as the list comes.

    Raises InvalidSubmission by field.
    """
    errors: dict[str, list[str]] = {}
    if zone is not None and zone not in ("UTC", "local") and zone not in available_timezones():
        errors["zone"] = [_("UTC, local (the browser's), or an IANA name such as Europe/Berlin.")]
    if language and language not in dict(settings.LANGUAGES):
        errors["language"] = [
            _("One of {names}, or empty for the browser's.").format(names=", ".join(dict(settings.LANGUAGES)))
        ]
    for name, hidden in (columns or {}).items():
        if not all(_COLUMN.fullmatch(text) for text in (name, *(hidden or ()))) or len(hidden or ()) > _MOST_COLUMNS:
            errors["columns"] = [_("Names of lists, each with the names of its columns that are hidden.")]
    if errors:
        raise InvalidSubmission(errors)
    with transaction.atomic():
        Preference.objects.get_or_create(user=user)
        row = Preference.objects.select_for_update().get(pk=user.pk)
        if zone is not None:
            row.zone = zone
        if language is not None:
            row.language = language
        if shortcuts is not None:
            row.shortcuts = shortcuts
        for name, hidden in (columns or {}).items():
            if hidden is None:
                row.columns.pop(name, None)
            else:
                row.columns[name] = list(dict.fromkeys(hidden))
        if len(row.columns) > _MOST_COLUMNS:
            raise InvalidSubmission({"columns": [_("At most {count} lists.").format(count=_MOST_COLUMNS)]})
        row.save()
    return row


def canonical(query: str) -> str:
    """A query string without what is empty and what only says the place."""
    pairs = parse_qsl(query.lstrip("?"), max_num_fields=100)
    return urlencode([(name, value) for name, value in pairs if name not in PLACE and value])


def view_create(
    *,
    owner: User,
    scopes: Iterable[str],
    page: str,
    name: str,
    query: str,
    actor: Actor,
    shared: bool = False,
    is_default: bool = False,
) -> SavedView:
    """Saves a view; one of that name is replaced. `scopes` are those of whoever does it.

    Raises InvalidSubmission by field.
    """
    name, kept = _checked(page=page, name=name, query=query)
    _may_share(shared, scopes)
    now = clock.now()
    with transaction.atomic():
        mine = SavedView.objects.select_for_update().filter(owner=owner)
        row = mine.filter(page=page, name=name).first()
        if row is None:
            if mine.count() >= MOST:
                raise InvalidSubmission(
                    {"name": [_("You have {count} saved views: delete one first.").format(count=MOST)]}
                )
            row = SavedView(owner=owner, page=page, name=name, created_at=now)
        before = _facts(row) if row.shared else {}
        if is_default:
            mine.filter(page=page, is_default=True).exclude(pk=row.pk).update(is_default=False)
        row.query, row.shared, row.is_default, row.updated_at = kept, shared, is_default, now
        row.save()
        if shared or before:
            audit.record(actor, "view.share" if shared else "view.unshare", row, before=before, after=_facts(row))
    return row


def view_update(
    *,
    view_id: uuid.UUID,
    user: User,
    scopes: Iterable[str],
    actor: Actor,
    name: str | None = None,
    query: str | None = None,
    shared: bool | None = None,
    is_default: bool | None = None,
    expected: int | None = None,
) -> SavedView:
    """Changes what is given. A team's view may be changed by whoever may share; the default is its owner's own.

    `expected`: the `revision` that the caller has seen. Raises NotFound, Stale, InvalidSubmission by field.
    """
    with transaction.atomic():
        row = _locked(view_id, user, scopes, expected)
        before = _facts(row) if row.shared else {}
        row.name, row.query = _checked(
            page=row.page, name=row.name if name is None else name, query=row.query if query is None else query
        )
        if shared is not None and shared != row.shared:
            _may_share(True, scopes)
            if row.owner_id != user.pk:
                raise InvalidSubmission(
                    {"shared": [_("Only its owner takes it back from the team; you may delete it.")]}
                )
            row.shared = shared
        if is_default is not None:
            if row.owner_id != user.pk:
                raise InvalidSubmission(
                    {"is_default": [_("Only one's own view can be the default: save it as yours.")]}
                )
            if is_default:
                SavedView.objects.filter(owner=user, page=row.page, is_default=True).update(is_default=False)
            row.is_default = is_default
        row.updated_at = clock.now()
        try:
            with transaction.atomic():
                row.save()
        except IntegrityError as error:
            raise InvalidSubmission({"name": [_("There is a view of this name already.")]}) from error
        if before or row.shared:
            audit.record(actor, "view.update", row, before=before, after=_facts(row))
    return row


def view_delete(
    *, view_id: uuid.UUID, user: User, scopes: Iterable[str], actor: Actor, expected: int | None = None
) -> None:
    """One's own, or with the scope to share also the team's. Raises NotFound, Stale, InvalidSubmission."""
    with transaction.atomic():
        row = _locked(view_id, user, scopes, expected)
        if row.shared:
            audit.record(actor, "view.delete", row, before=_facts(row))
        row.delete()


def revision(view: SavedView) -> int:
    """What changes whenever the view does."""
    return round(view.updated_at.timestamp() * 1_000_000)


def _locked(view_id: uuid.UUID, user: User, scopes: Iterable[str], expected: int | None) -> SavedView:
    row = SavedView.objects.select_for_update(of=("self",)).select_related("owner").filter(pk=view_id).first()
    if row is None or (row.owner_id != user.pk and not row.shared):
        raise NotFound(_("There is no saved view {id}.").format(id=public_id("view", view_id)))
    if row.owner_id != user.pk:
        _may_share(True, scopes)
    if expected is not None and expected != revision(row):
        raise Stale(_("Somebody has changed this view meanwhile: look at it again."), version=revision(row))
    return row


def _may_share(shared: bool, scopes: Iterable[str]) -> None:
    if shared and SHARE not in set(scopes):
        raise InvalidSubmission({"shared": [_("Views of the team need the role operator (scope views:share).")]})


def _checked(*, page: str, name: str, query: str) -> tuple[str, str]:
    """The name and the query as they are kept."""
    errors: dict[str, list[str]] = {}
    name = name.strip()
    if not _PAGE.fullmatch(page):
        errors["page"] = [_("The name of a list, such as messages.")]
    if not 1 <= len(name) <= 80 or _CONTROL.search(name):
        errors["name"] = [_("Give it a name of at most 80 characters.")]
    kept = ""
    try:
        kept = canonical(query)
    except ValueError:
        errors["query"] = [_("This is not a query string.")]
    if len(kept) > 2000 or _CONTROL.search(kept):
        errors["query"] = [_("At most {count} characters of filters.").format(count=number(2000))]
    if errors:
        raise InvalidSubmission(errors)
    return name, kept


def _facts(view: SavedView) -> dict[str, object]:
    return {"page": view.page, "name": view.name, "query": view.query, "shared": view.shared}
