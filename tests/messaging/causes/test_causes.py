"""The closed list of cause codes holds every code that the hub writes."""

from __future__ import annotations

import json
import re

import pytest
from django.urls import reverse
from django.utils import translation
from django.utils.translation import trans_real
from lxml import html

from messaging import causes
from messaging.causes.cause import DOCUMENTATION
from messaging.causes.files import OF_A_LOOK
from messaging.console.words import WORDS, Word
from messaging.models import Transmission
from messaging.overview.serializers import CauseSerializer
from messaging.profiles.ebxml import answering
from messaging.profiles.repeatable.problems import PROBLEMS
from messaging.protocol.errors import ErrorCode
from messaging.templatetags.hub import cause_link
from messaging.transports import http
from rmhub.roles import Role
from tests import ROOT
from tests.messaging.causes import causes_page
from tests.messaging.console.scenes import World, browser
from tests.messaging.console.test_languages import Marking

ROOT = ROOT / "messaging"
# `cause="x"` in calls; what a transport returns; what the acceptance rules report.
WRITTEN = (
    r'cause="([a-z][a-z0-9_]+)"',
    r'return "([a-z_0-9]+)", (?:True|False)',
    r'(?:incident|warning)="([a-z_]+)"',
    r'_fail\(\w+, "([a-z_]+)"',
    r'(?:cause or|warning = "" if [\w.]+ else) "([a-z_]+)"',
)
REASONS = (
    r'NotAMessage\(\s*"([a-z_]+)"',
    r'refuse\(arrival, \d+, "([a-z_]+)"',
    r'Entered\(None, \d+, "([a-z_]+)"',
)


def _found(patterns: tuple[str, ...]) -> set[str]:
    texts = [path.read_text() for path in ROOT.rglob("*.py") if not {"demo", "management"} & set(path.parts)]
    return {code for pattern in patterns for text in texts for code in re.findall(pattern, text)}


def test_every_cause_in_the_code_is_in_the_list() -> None:
    written = _found(WRITTEN)
    assert {"worker_lost", "dns_error", "same_id_other_content", "ack_timeout"} <= written
    assert written <= set(causes.CAUSES), written - set(causes.CAUSES)


def test_every_reason_for_a_refusal_has_words() -> None:
    written = _found(REASONS)
    assert {"unauthenticated", "not_mime"} <= written
    assert written <= set(causes.REFUSALS), written - set(causes.REFUSALS)
    assert causes.refusal_label("something_new") == "Something new"


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_error_of_a_partner_has_a_cause(code: ErrorCode) -> None:
    if code is not ErrorCode.TRANSIENT_ERROR:  # told by its severity, which has a cause of its own
        assert answering.cause_of(str(code)) in causes.CAUSES


@pytest.mark.parametrize("status", [*range(300, 600), 100, 700])
def test_every_http_status_has_a_cause(status: int) -> None:
    assert http.status_cause(status) in causes.CAUSES


def test_texts_are_sentences() -> None:
    for cause in causes.CAUSES.values():
        assert cause.sentence[0].isupper() and cause.sentence.endswith("."), cause.code
        assert cause.action[0].isupper() and cause.action.endswith("."), cause.code
        assert cause.label and not cause.label.endswith("."), cause.code


def test_the_document_is_not_stale() -> None:
    assert causes_page.DOCUMENT.read_text() == causes_page.rendered(), "python -m tests.messaging.causes.causes_page"


@pytest.mark.django_db
def test_the_console_explains_every_code() -> None:
    assert reverse("console:causes") == DOCUMENTATION
    page = html.fromstring(browser(Role.VIEWER).get("/causes/").content)
    shown = {key.removeprefix("cause-") for key in page.xpath("//@id") if key.startswith("cause-")}
    assert shown == set(causes.CAUSES)
    entry = " ".join(page.get_element_by_id("cause-cert_expired").text_content().split())
    known = causes.CAUSES["cert_expired"]
    assert known.sentence in entry and known.action in entry and "Time alone does not fix it." in entry
    assert "Waiting or trying again" in page.get_element_by_id("cause-read_timeout").text_content()


def test_a_code_leads_to_its_place() -> None:
    assert causes.lookup("cert_expired").documentation == "/causes/#cause-cert_expired"
    assert causes.lookup("of_another_version").documentation == "/causes/"
    assert str(cause_link("<b>")) == '<a class="mono" href="/causes/">&lt;b&gt;</a>'
    assert cause_link("") == ""


def test_wherever_a_code_is_shown_it_leads_there(scene: World) -> None:
    client = browser(Role.VIEWER)
    attempt = Transmission.objects.filter(cause="cert_expired").first()
    assert attempt is not None
    for url, cause in (
        (f"/pairs/{scene.pair.code}/", scene.pair.cause),
        (f"/incidents/{scene.incident}/", scene.incident.cause),
        (f"/transmissions/{attempt.public_id}/", attempt.cause),
        (f"/triggers/{scene.stopped.public_id}/", scene.stopped.cause),
    ):
        page = html.fromstring(client.get(url).content)
        assert cause
        assert page.xpath(f"//main//a[@href='/causes/#cause-{cause}']/text()"), url


def test_a_cause_speaks_the_language_of_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trans_real._translations, "de", Marking("de"))  # type: ignore[attr-defined]
    known = causes.CAUSES["cert_expired"]
    english = (known.label, known.sentence, known.action, known.group)
    with translation.override("de"):
        german = (known.label, known.sentence, known.action, known.group)
        assert german == tuple(f"⟦{text}⟧" for text in english) and {type(text) for text in german} == {str}
        assert causes.lookup("").label == "⟦No cause recorded⟧" and causes.lookup("brand_new").label == "Brand new"
        assert causes.refusal_label("busy") == "⟦Too many requests at once⟧"
        assert OF_A_LOOK["dns_error"][1].startswith("⟦Check the address for a typing error")
        assert json.loads(json.dumps(CauseSerializer(known).data))["label"] == german[0]
    assert (known.label, known.sentence, known.action, known.group) == english
    assert PROBLEMS["busy"].title == "Too many requests at once", "what goes over the wire is English"


def test_what_is_stored_of_a_refusal_is_compared_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trans_real._translations, "de", Marking("de"))  # type: ignore[attr-defined]
    with translation.override("de"):
        assert not causes.tells_more("not_mime", "Not a MIME entity.")
        assert causes.tells_more("not_mime", "The first boundary is missing.")
        assert translation.get_language() == "de"


def test_the_glossary_is_sorted_as_it_is_read() -> None:
    terms = [word.term for word in sorted(WORDS, key=lambda word: word.place)]
    assert terms.index("Message") + 1 == terms.index("Needs resync")
    assert Word("skip", "Überspringen", "").place == "uberspringen"
