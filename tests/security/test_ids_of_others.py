"""X28: ids of partners that somebody may not see, in every spelling, at every page and every operation of the API.

They are answered like ids that nothing has, and change nothing. Nothing here knows single views: the tables of URLs and
the examples of bodies do.
"""

from __future__ import annotations

import ast
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import URLPattern, reverse

from messaging.access.selectors import reach
from messaging.api.examples import BODIES
from messaging.models import AuditEntry
from messaging.urls.api import urlpatterns as api_patterns
from partners.models import Party
from rmhub.ids import BadPublicId, parse, read_public_id
from rmhub.roles import SCOPES, Role
from tests.messaging.access.test_visibility import ARGUMENTS, limited
from tests.messaging.api.client import Api, make_token
from tests.messaging.console.pages import PAGES
from tests.messaging.console.scenes import World
from tests.messaging.factories import make_agreement, partner_side, submit
from tests.sizes import ALL

Spelling = Callable[[str, uuid.UUID], str]
# Those that `read_public_id` takes, and those that a reader more generous than it would take.
TAKEN: dict[str, Spelling] = {
    "as-shown": lambda prefix, key: f"{prefix}_{key.hex}",
    "bare": lambda prefix, key: key.hex,
    "bare-hyphens": lambda prefix, key: str(key),
}
REFUSED: dict[str, Spelling] = {
    "hyphens": lambda prefix, key: f"{prefix}_{key}",
    "capitals": lambda prefix, key: f"{prefix}_{key.hex.upper()}",
    "capital-prefix": lambda prefix, key: f"{prefix.upper()}_{key.hex}",
    "bare-capitals": lambda prefix, key: str(key).upper(),
    "braces": lambda prefix, key: f"{prefix}_{{{key}}}",
    "bare-braces": lambda prefix, key: f"{{{key}}}",
    "urn": lambda prefix, key: f"{prefix}_urn:uuid:{key}",
    "bare-urn": lambda prefix, key: f"urn:uuid:{key}",
    "stray-hyphens": lambda prefix, key: f"{prefix}_{'-'.join(key.hex)}",
    "sign-for-zero": lambda prefix, key: f"{prefix}_+{key.hex[1:]}",
    "blank-for-zero": lambda prefix, key: f"{prefix}_ {key.hex[1:]}",
    "wide-digits": lambda prefix, key: f"{prefix}_{key.hex.translate(_WIDE)}",
    "twice-the-prefix": lambda prefix, key: f"{prefix}_{prefix}_{key.hex}",
}
_WIDE = {ord(digit): ord(digit) + 0xFEE0 for digit in "0123456789"}
_ID = re.compile(r"([a-z]{2,5})_([0-9a-f]{32})")
# Parameters of lists -> what they name.
_QUERY = {
    **{"pair": "pair", "message": "msg", "party": "par", "partner": "par", "agreement": "agr", "trigger": "trg"},
    **{"transaction": "txn", "incident": "inc", "log": "plog", "endpoint": "end", "object": "pair", "q": "msg"},
}
_METHODS = ("GET", "POST", "PATCH", "DELETE")


def test_the_parser_takes_the_canonical_forms_and_no_other() -> None:
    key = uuid.UUID("0192f3f2-f3e4-7a5f-b0c1-d2e3f4a5b6c7")
    for name, spelled in TAKEN.items():
        assert read_public_id("pair", spelled("pair", key)) == key, name
    for name, spelled in REFUSED.items():
        assert parse(spelled("pair", key)) is None, name
        with pytest.raises(BadPublicId):
            read_public_id("pair", spelled("pair", key))
    with pytest.raises(BadPublicId):
        read_public_id("pair", f"msg_{key.hex}")


def test_shells_read_ids_through_reach_alone() -> None:
    """What `read_public_id` gives was not looked for under the caller's limits."""
    root = Path(reach.__file__).parents[2]
    shells = [path for path in root.rglob("*.py") if {"api", "console", "pages"} & {*path.parts, path.stem}]
    assert len(shells) > 50
    for path in sorted(shells):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "name", None)
            assert name not in ("read_public_id", "parse_public_id"), path


@dataclass(frozen=True, slots=True)
class Outsider:
    """Somebody with every role who may see one partner only, beside a world that is not theirs."""

    world: World
    page: Client
    api: Api


@pytest.fixture
def outsider(scene: World) -> Outsider:
    version = make_agreement()
    Party.objects.filter(pk=version.agreement.partner_id).update(name="Within Reach")
    near = partner_side(version)
    submit(near)
    client = limited("lim", Role.ADMIN, Party.objects.get(pk=near.terms.partner_id))
    return Outsider(scene, client, Api(make_token(User.objects.get(username="lim"), scopes=SCOPES[Role.ADMIN])))


def _stored() -> dict[str, str]:
    """A digest of every table of ours, but of what a refused request may leave: an entry of the audit log, counts."""
    left = {"AuditEntry", "UserSession", "ApiToken", "Preference", "SavedView", "SecondFactor", "LoginThrottle"}
    found = {}
    with connection.cursor() as cursor:
        for model in [*apps.get_app_config("messaging").get_models(), *apps.get_app_config("partners").get_models()]:
            if model.__name__ not in left:
                table = connection.ops.quote_name(model._meta.db_table)
                cursor.execute(f"SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM {table} t")
                found[model.__name__] = cursor.fetchone()[0]
    about = AuditEntry.objects.filter(result="done").exclude(object_type__in=("savedview", "preference"))
    return {**found, "done": str(about.count())}


def _respelled(values: Any, spelled: Callable[[str], str]) -> Any:
    """The same with every id in it spelled otherwise."""
    if isinstance(values, dict):
        return {name: _respelled(value, spelled) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_respelled(value, spelled) for value in values]
    return spelled(values) if isinstance(values, str) and _ID.fullmatch(values) else values


def _hidden(world: World) -> dict[str, uuid.UUID]:
    """Prefix -> the key of something of that kind that belongs to a partner out of reach."""
    ids = [make(world) for make in ARGUMENTS.values()]
    found = {form[1]: uuid.UUID(form[2]) for text in ids if (form := _ID.fullmatch(text)) is not None}
    found["inc"] = world.incident.pk
    assert {"pair", "msg", "del", "trg", "par", "agr", "end", "txn", "enl", "att", "sig", "plog"} <= set(found)
    return {prefix: key for prefix, key in found.items() if prefix in reach.OWNED}


def _calls(world: World, hidden: dict[str, uuid.UUID], spelled: Callable[[str], str]) -> Iterator[tuple[str, str, Any]]:
    """(method, path, body or query) of every operation of the API that an id can be given to."""
    for pattern in api_patterns:
        assert isinstance(pattern, URLPattern)
        values = {name: ARGUMENTS[name](world) for name in pattern.pattern.converters}
        values["incident"] = world.incident.public_id
        values = {name: values[name] for name in pattern.pattern.converters}
        path = reverse(f"api:{pattern.name}", kwargs={name: _respelled(one, spelled) for name, one in values.items()})
        path = path.removeprefix("/api/v1")
        view = getattr(pattern.callback, "cls", None)
        for method in _METHODS:
            handler = getattr(view, method.lower(), None)
            if handler is None:
                continue
            if any(_ID.fullmatch(one) and one[:3] != "ses" for one in values.values()):
                yield method, path, _body(handler, hidden, spelled)
            elif method == "GET":
                for name, prefix in _QUERY.items():
                    yield method, path, {name: spelled(f"{prefix}_{hidden[prefix].hex}")}
            else:
                yield method, path, _body(handler, hidden, spelled)


def _body(handler: Any, hidden: dict[str, uuid.UUID], spelled: Callable[[str], str]) -> Any:
    """The example of the operation's body, about what is hidden."""
    name = handler.operation_id
    body = BODIES[name][1] if name in BODIES else {"reason": "because the test says so"}

    def theirs(text: str) -> str:
        prefix = text.partition("_")[0]
        return spelled(f"{prefix}_{hidden[prefix].hex}") if prefix in hidden else text

    return _respelled(body, theirs)


# What stands in an answer and is never the same twice.
_PASSING = re.compile(r"req_[0-9a-f]{32}")


def _nothing(key: uuid.UUID) -> uuid.UUID:
    """An id that nothing has, made of one that something has; and the way back."""
    return uuid.UUID(int=key.int ^ 0xFFFF)


def _said(status: int, content: bytes, keys: Iterable[uuid.UUID]) -> tuple[int, str]:
    """An answer, without the ids that it was asked about."""
    text = _PASSING.sub("", content.decode())
    for key in keys:
        for spelled in (key.hex, str(key)):
            text = text.replace(spelled, "ID")
    return status, text


def _spellers(spelling: str) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """How ids as they are shown become ids of others, and ids of nothing."""
    spell = {**TAKEN, **REFUSED}[spelling]

    def theirs(text: str) -> str:
        prefix, _, key = text.partition("_")
        return spell(prefix, uuid.UUID(key))

    def nobodys(text: str) -> str:
        prefix, _, key = text.partition("_")
        return spell(prefix, _nothing(uuid.UUID(key)) if prefix in reach.OWNED else uuid.UUID(key))

    return theirs, nobodys


@pytest.mark.django_db
@pytest.mark.parametrize("spelling", [pytest.param(name, id=f"X28-{name}") for name in TAKEN])
def test_no_operation_of_the_api_tells_ids_of_others_from_ids_of_nothing(outsider: Outsider, spelling: str) -> None:
    world, hidden = outsider.world, _hidden(outsider.world)
    before = _stored()
    keys = [key for one in hidden.values() for key in (one, _nothing(one))]
    told, unlike = 0, []
    theirs, nobodys = (list(_calls(world, hidden, speller)) for speller in _spellers(spelling))
    for (method, path, body), (_, empty_path, empty_body) in zip(theirs, nobodys, strict=True):
        answers = []
        for one, sent in ((path, body), (empty_path, empty_body)):
            is_query = method == "GET"
            key = f'"{uuid.uuid4()}"'
            answer = outsider.api.call(
                method,
                one,
                None if is_query else sent,
                query=sent if is_query and path.count("_") == 0 else None,
                If_Match="*",
                Idempotency_Key=key,
            )
            answers.append(_said(answer.status, answer.content, keys))
        told += answers[0][0] == 404
        if answers[0] != answers[1]:
            unlike.append((method, path, body, *answers))
    assert not unlike, unlike
    assert len(theirs) > 300 and told > 40
    assert _stored() == before


@pytest.mark.django_db
def test_x28_no_operation_of_the_api_takes_an_id_in_another_spelling(outsider: Outsider) -> None:
    world, hidden = outsider.world, _hidden(outsider.world)
    before = _stored()
    # The parser refuses each of them, and nothing else reads ids: two tests above. So three show it for the operations.
    for spelling in REFUSED if ALL else ("hyphens", "bare-capitals", "urn"):
        for method, path, body in _calls(world, hidden, _spellers(spelling)[0]):
            if method != "GET" and "_" in path:
                answer = outsider.api.call(method, path, body, If_Match="*")
                assert 400 <= answer.status < 500, (spelling, method, path, body, answer.content)
    assert _stored() == before


@pytest.mark.django_db
@pytest.mark.parametrize(
    "spelling",
    [pytest.param(name, id=f"X28-{name}") for name in (*TAKEN, *(("bare-capitals", "urn") if ALL else ()), "hyphens")],
)
def test_no_page_takes_an_id_of_others(outsider: Outsider, spelling: str) -> None:
    world, hidden = outsider.world, _hidden(outsider.world)
    pages = [(page, [str(one) for one in page.arguments(world)]) for page in PAGES if page.role is not None]
    before = _stored()
    speller, _ = _spellers(spelling)
    asked = 0
    for page, given in pages:
        if not any((form := _ID.fullmatch(one)) and form[1] in reach.OWNED for one in given):
            continue
        url = reverse(f"console:{page.name}", args=[_respelled(one, speller) for one in given])
        if page.get:
            assert outsider.page.get(url).status_code in (403, 404), url
        if page.post is not None:
            post = {**page.post, "reason": "because the test says so", "confirm": "yes"}
            assert outsider.page.post(url, post).status_code in (403, 404), url
        asked += 1
    # What forms send: every name that some form has, with an id of its kind.
    fields = {
        **_QUERY,
        "party_id": "par",
        "partner_id": "par",
        "endpoint_id": "end",
        "onward": "agr",
        "clone_of": "agr",
    }
    sent = {name: speller(f"{prefix}_{hidden[prefix].hex}") for name, prefix in fields.items()}
    for page, given in pages:
        if given:
            continue
        if page.get:
            text = outsider.page.get(page.url(world), sent).content.decode(errors="replace")
            assert world.pair.code not in text and world.partner.name not in text, page.name
        if page.post is not None:
            outsider.page.post(page.url(world), {**page.post, **sent, "reason": "because the test says so"})
    assert asked > 60
    assert _stored() == before
