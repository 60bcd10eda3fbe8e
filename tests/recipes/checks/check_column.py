"""A made-up column is on the page of its list, or in its file."""

from __future__ import annotations

import csv
import io

import pytest
from django.http import StreamingHttpResponse
from django.test import Client
from django.urls import reverse
from lxml import html

from messaging.journal.audit import Actor
from messaging.routing.services.routes import route_create
from tests.messaging.api.client import Api
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db


def test_it_is_on_the_page(browser: Client, admin: Api) -> None:
    values = {"name": "Harbour", "party_context": "DUNS", "party_value": "987654321", "max_hops": 4}
    route_create(actor=Actor("ann"), reason="go-live", onward=make_agreement().agreement.pk, **values)
    page = html.fromstring(browser.get(reverse("console:routes")).content)
    heads = [" ".join(cell.text_content().split()) for cell in page.xpath("//main//thead//th")]
    (row,) = page.xpath("//main//tbody/tr")
    cells = [" ".join(cell.text_content().split()) for cell in row]
    assert heads.index("Hops") == heads.index("Next hop") + 1
    assert cells[heads.index("Hops")] == "4"
    assert admin.get("/routes").json["data"][0]["max_hops"] == 4


def test_it_is_in_the_file(browser: Client) -> None:
    answer = browser.get(reverse("console:transactions"), {"format": "csv"})
    assert isinstance(answer, StreamingHttpResponse)
    heads = next(csv.reader(io.StringIO(answer.getvalue().decode())))
    assert heads.index("days") == heads.index("cause") + 1
    assert "Days" not in browser.get(reverse("console:transactions"), {"view": "all"}).content.decode()
