"""What is known about an outbound message in doubt, step by step: who could know whether the partner has it.

For what we received it is the evidence of the decision itself (`deliveries.ladder`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from messaging.choices import Direction, MessageState, Outcome, PartnerAnswer, SignalKind
from messaging.deliveries.selectors import in_doubt
from messaging.deliveries.selectors.deliveries import Rung
from messaging.messages.selectors import relatives
from messaging.models import Message, Signal, StatusInquiry, Transmission
from messaging.models.traffic import HAS_IT
from partners.visibility import limit
from rmhub.language import gettext_lazy, inside

_SHOWN = 10  # questions to the partner
_QUESTIONS = {
    "attempts": (gettext_lazy("Attempts"), gettext_lazy("Was it sent?")),
    "window": (gettext_lazy("Repeat window"), gettext_lazy("May it still be sent under the same id?")),
    "acknowledgement": (gettext_lazy("Acknowledgement"), gettext_lazy("Did one come, if late?")),
    "partner": (gettext_lazy("Partner's hub"), gettext_lazy("What does it say about the message?")),
    "reply": (gettext_lazy("Partner's application"), gettext_lazy("Does a message of theirs answer it?")),
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The rungs in their order, and what they speak for.

    `suggestion`: `delivered`, `resubmit` or ""; `because`: a sentence, "" without a suggestion. `inquiries`: the newest
    first. `warning`: why an answer may mislead, "" when it does not.
    """

    message: Message
    rungs: list[Rung]
    inquiries: list[StatusInquiry]
    suggestion: str
    because: str
    warning: str


def of_message(message: Message, now: datetime) -> Evidence:
    """The evidence about one outbound message. Four queries."""
    asked = list(relatives.inquiries(message.pk).order_by("-id")[:_SHOWN])
    last = Transmission.objects.filter(message=message).defer("response").order_by("-id").first()
    kinds = (SignalKind.ACKNOWLEDGEMENT, SignalKind.FINAL)
    signals = Signal.objects.filter(about=message, direction=Direction.IN, kind__in=kinds).defer("body")
    acknowledged = signals.order_by("-id").first()
    replies = Message.objects.filter(
        pair__partner=message.pair.partner_id, direction=Direction.IN, ref_to_message_id=message.message_id
    )
    reply = limit(replies.defer("wire_frame"), "pair__partner").order_by("-id").first()
    said = _telling(asked, last)
    rungs = [
        _attempts(message, last),
        _window(message, now),
        _acknowledgement(acknowledged),
        _partner(said),
        _reply(reply),
    ]
    suggestion, because = _suggestion(acknowledged, said, reply)
    return Evidence(message, rungs, asked, suggestion, because, _warning(message, said, suggestion))


def _telling(asked: list[StatusInquiry], last: Transmission | None) -> StatusInquiry | None:
    """The answer that counts, by the same rule as `models.traffic.partner_said`; else the newest."""
    ended = (last.finished_at or last.started_at) if last is not None else None
    for one in asked:
        if one.answer in HAS_IT:
            return one
        if one.answer == PartnerAnswer.NOT_RECOGNIZED and (ended is None or one.asked_at >= ended):
            return one
    return asked[0] if asked else None


def _rung(
    step: str,
    finding: str,
    verdict: str = "",
    sign: str = "unknown",
    detail: str = "",
    at: datetime | None = None,
    by: str = "",
) -> Rung:
    title, question = _QUESTIONS[step]
    return Rung(step, title, question, finding, verdict, sign, detail, at, by)


def _attempts(message: Message, last: Transmission | None) -> Rung:
    if last is None:
        return _rung("attempts", _("{count}, none of them recorded").format(count=message.attempts))
    how = {
        Outcome.SENT: _("{count}: the last one was handed over"),
        Outcome.FAILED: _("{count}: the last one failed"),
        Outcome.LOST: _("{count}: the outcome of the last one was not recorded"),
        Outcome.ON_THE_WIRE: _("{count}: the last one is on the wire"),
    }[Outcome(last.outcome)]
    ended = last.finished_at or last.started_at
    return _rung("attempts", how.format(count=message.attempts), detail=last.detail, at=ended)


def _window(message: Message, now: datetime) -> Rung:
    if message.expires_at is None:
        return _rung("window", _("Its agreement sets no end"), sign="skipped")
    over = message.expires_at <= now
    return _rung("window", _("No: it is over") if over else _("Yes, until it ends"), at=message.expires_at)


def _acknowledgement(signal: Signal | None) -> Rung:
    if signal is None:
        return _rung("acknowledgement", _("None has come"))
    found = _("{what} came").format(what=signal.get_kind_display())
    return _rung("acknowledgement", found, _("Delivered"), "yes", at=signal.created_at)


def _partner(said: StatusInquiry | None) -> Rung:
    if said is None:
        return _rung("partner", _("Not asked yet"))
    verdict, sign = "", "unknown"
    if said.answer in HAS_IT:
        verdict, sign = _("Delivered"), "yes"
    elif said.answer == PartnerAnswer.NOT_RECOGNIZED:
        verdict, sign = _("Not there"), "no"
    return _rung("partner", said.get_answer_display(), verdict, sign, said.detail, said.asked_at, said.actor)


def _reply(reply: Message | None) -> Rung:
    if reply is None:
        return _rung("reply", _("None refers to it"))
    found = _("{action} of theirs refers to it").format(action=reply.action)
    return _rung("reply", found, _("Processed"), "yes", reply.message_id, reply.created_at)


def _suggestion(acknowledged: Signal | None, said: StatusInquiry | None, reply: Message | None) -> tuple[str, str]:
    if reply is not None:
        return "delivered", _("A message of theirs answers it.")
    if acknowledged is not None:
        return "delivered", _("An acknowledgement came.")
    if said is None:
        return "", ""
    found = in_doubt.suggested(said.answer)
    told = _("The partner says: {answer}.").format(answer=inside(said.get_answer_display()))
    return found, told if found else ""


def _warning(message: Message, said: StatusInquiry | None, suggestion: str) -> str:
    if message.state != MessageState.IN_DOUBT or said is None:
        return ""
    late = message.expires_at is not None and said.asked_at > message.expires_at
    if suggestion == "resubmit" and late:
        return _(
            "It was asked after its memory of ids may have ended: not known there can also mean that it was forgotten."
        )
    return ""
