"""Texts of strangers stay texts: in pages, in files for spreadsheets and in statements for the database."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.db.models import CharField, TextField
from lxml import html

from messaging.models import AuditEntry, Message
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.pages import DOWNLOADS, PAGES
from tests.messaging.console.scenes import World, browser
from tests.sizes import ALL

pytestmark = pytest.mark.django_db
EVIL = "\"'><script>alert(7)</script><img src=x onerror=alert(7)>{{7*7}}"
# What people, partners and servers write, by the names of the columns.
WRITTEN = frozenset(
    {
        *(
            "name",
            "title",
            "detail",
            "cause_detail",
            "note",
            "reason",
            "text",
            "contact",
            "label",
            "filename",
            "subject",
        ),
        *("description", "error_description", "last_error", "error", "body", "what", "object_name", "party_name"),
        *("message_id", "conversation_id", "ref_to_message_id", "service", "action", "resolution", "comment"),
        *("taken_by", "submitted_by", "created_by", "updated_by", "uploaded_by", "requested_by", "owner", "actor"),
        *(
            "agent",
            "subject",
            "answer_detail",
            "fault_reason",
            "username",
            "begun_by",
            "disabled_reason",
            "tpa_id",
            "remote_address",
        ),
    }
)
SQL = (
    "'",
    "';DROP TABLE messaging_message;--",
    "' OR '1'='1",
    "%' OR 1=1 --",
    "\\",
    "$1",
    "%s",
    "{}",
    "1); SELECT 1 --",
)


def _poison() -> int:
    """Appends what a script would be to every such text of every row. Returns to how many columns."""
    found = 0
    with connection.cursor() as cursor:
        for model in [*apps.get_app_config("messaging").get_models(), *apps.get_app_config("partners").get_models()]:
            for field in model._meta.get_fields():
                is_text = isinstance(field, CharField | TextField) and not getattr(field, "choices", None)
                if not is_text or field.name not in WRITTEN or not model._meta.managed:
                    continue
                table, column = (connection.ops.quote_name(name) for name in (model._meta.db_table, field.column))
                most = field.max_length or 10_000
                # Not beyond its length, and only where something stands; unique texts stay unique by their beginning.
                fits = f"{column} <> '' AND length({column}) <= {most - len(EVIL)}"
                cursor.execute(f"UPDATE {table} SET {column} = {column} || %s WHERE {fits}", [EVIL])
                found += cursor.rowcount > 0
    return found


def test_no_text_that_somebody_wrote_becomes_part_of_a_page(scene: World) -> None:
    addresses = [(page, page.url(scene)) for page in PAGES if page.get and page.name not in (*DOWNLOADS, "login")]
    assert _poison() > 40
    client, shown = browser(), 0
    for _, url in addresses:
        answer = client.get(url)
        if "html" not in answer["Content-Type"] or answer.status_code not in (200, 403, 404):
            continue
        text = answer.content.decode()
        assert "<script>alert" not in text and "onerror=alert(7)>" not in text.replace("onerror=alert(7)&gt;", ""), url
        tree = html.fromstring(text)
        assert not [one for one in tree.iter("script") if not one.get("src", "").startswith("/static/")], url
        assert not tree.xpath("//img[@onerror]"), url
        shown += "alert(7)" in tree.text_content()
    assert shown > 30, "the texts are there, as texts"


def test_no_cell_of_a_download_is_a_formula(scene: World) -> None:
    client = browser()
    lists = [page for page in PAGES if page.get and not page.arguments(scene) and page.role is not None]
    answers = [(page, client.get(page.url(scene), {"format": "csv"})) for page in lists]
    tables = [page for page, answer in answers if answer["Content-Type"].startswith("text/csv")]
    assert len(tables) >= 3
    for formula in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"):
        AuditEntry.objects.update(reason=formula, actor=formula, object_name=formula)
        Message.objects.update(conversation_id=formula, service=formula)
        for page in tables:
            text = client.get(page.url(scene), {"format": "csv"}).getvalue().decode("utf-8-sig")  # type: ignore[attr-defined]
            for row in csv.reader(io.StringIO(text, newline="")):
                assert not [cell for cell in row if cell.startswith(("=", "+", "@", "\t", "\r"))], (page.name, row)


@pytest.mark.parametrize("text", SQL if ALL else SQL[:3])
def test_no_parameter_becomes_part_of_a_statement(scene: World, text: str) -> None:
    before = Message.objects.count()
    api = Api(make_token(make_user(Role.ADMIN)))
    client = browser()
    names = (
        "q",
        "service",
        "party",
        "owner",
        "object",
        "reason",
        "state",
        "cursor",
        "sort",
        "actor",
        "cause",
        "columns",
    )
    for path in (
        "/messages",
        "/pairs",
        "/incidents",
        "/deliveries",
        "/audit-log",
        "/rejections",
        "/tokens",
        "/triggers",
    ):
        for name in names:
            assert api.get(path, {name: text}).status in (200, 400), (path, name)
    for url in ("/messages/", "/pairs/", "/incidents/", "/deliveries/", "/audit/", "/rejections/", "/partners/"):
        answer = client.get(url, dict.fromkeys(names, text))
        assert answer.status_code in (200, 302, 400, 404), url
    assert Message.objects.count() == before


def test_what_a_path_names_is_no_statement(scene: World) -> None:
    api: Any = Api(make_token(make_user(Role.ADMIN)))
    for text in ("'%20OR%20'1'='1", "%27;DROP%20TABLE%20messaging_message;--"):
        for kind in ("messages", "pairs", "triggers", "incidents", "transactions"):
            assert api.get(f"/{kind}/{text}").status == 404, kind
