"""Asking partners about messages: one from its page, and all that are in doubt from their list."""

from __future__ import annotations

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.utils.http import url_has_allowed_host_and_scheme

from messaging.access.selectors.reach import read_id
from messaging.bulk.services import jobs
from messaging.choices import PartnerAnswer
from messaging.console.access import actor, requires
from messaging.console.rendering import page, problems, see_other
from messaging.exceptions import ApplicationError, InvalidSubmission
from messaging.messages.selectors import inquiries as selectors
from messaging.messages.selectors import messages
from messaging.messages.services import inquiries

SCOPE = "indoubt:resolve"
REASON = "Evidence for what is in doubt"
_FILTERS = ("pair", "cause", "answer")


@requires(SCOPE, methods=("POST",))
def message_ask(request: HttpRequest, reference: str) -> HttpResponse:
    """Asks the partner about one message, and comes back with what it said."""
    message = messages.message(read_id("msg", reference))
    try:
        said = inquiries.ask(message_id=message.pk, actor=actor(request), reason=REASON)
    except ApplicationError as error:
        notices.error(request, error.detail)
    else:
        words = said.get_answer_display()
        if said.answer == PartnerAnswer.NO_ANSWER:
            notices.warning(request, f"{message.pair.partner} gave no answer. {said.detail}".strip())
        else:
            notices.success(request, f"{message.pair.partner} says: {words.lower()}.")
    return _back(request) or see_other("console:message", message.public_id)


@requires(SCOPE, methods=("POST",))
def ask_about_all(request: HttpRequest) -> HttpResponse:
    """Asks about all outbound messages in doubt, or those of one pair, cause or answer: a job, for it may take long."""
    given = {name: request.POST[name][:80] for name in _FILTERS if name in request.POST}
    try:
        made = jobs.job_create(
            action="ask_partner",
            parameters={},
            filter=given,
            what="Messages in doubt" if not given else "",
            actor=actor(request),
            reason=REASON,
        )
    except InvalidSubmission as error:
        notices.error(request, " ".join(text for _, text in problems(error)))
    else:
        notices.success(request, f"Partners are asked about {made.total:,} messages.")
    return _back(request) or see_other("console:doubts")


def _back(request: HttpRequest) -> HttpResponse | None:
    path = request.POST.get("next", "")[:2000]
    ours = path.startswith("/") and url_has_allowed_host_and_scheme(path, allowed_hosts={request.get_host()})
    return see_other(path) if ours else None


@requires("messages:read")
def inquiry_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One question: what was asked, and the answer as it came."""
    found = selectors.inquiry(read_id("inq", reference))
    answer = bytes(found.response or b"").decode("utf-8", "replace")
    return page(
        request, "console/messages/inquiry.html", {"inquiry": found, "message": found.message, "answer": answer}
    )
