"""The entrance of repeatable requests (spec 2): authenticate, find the agreement, identify, admit, answer.

Names and status codes are those of OASIS Repeatable Requests 1.0; where it leaves something open, protocols.md 2.3 and
2.4 and docs/decisions.md say what. Whatever is refused leaves a `Rejection`, but for those who guess at credentials.
"""

from __future__ import annotations

import logging
import re
import uuid
from typing import NoReturn

from django.db import DatabaseError, IntegrityError, InterfaceError

from messaging.choices import RequestState
from messaging.deliveries.services import attended
from messaging.engine import forgetting
from messaging.engine import memory as hub_memory
from messaging.engine.group import GroupCommit
from messaging.entrance import rate_limits
from messaging.entrance.authentication import Entered
from messaging.entrance.effects import keep_large
from messaging.entrance.refusals import refuse
from messaging.profiles.repeatable import admitting, remembering
from messaging.profiles.repeatable import answers as telling
from messaging.profiles.repeatable.admitting import Item, Outcome
from messaging.profiles.repeatable.answers import (
    ACCEPTED,
    REJECTED,
    Answer,
    acknowledgement,
    problem,
    replay,
    told,
    window_headers,
    window_problem,
)
from messaging.profiles.repeatable.problems import PROBLEMS
from messaging.profiles.repeatable.reading import ALLOW, ASKING, Refused, Request, read_identity, read_item
from messaging.profiles.repeatable.remembering import Remembered
from messaging.protocol.codecs.repeatable import Identity
from messaging.protocol.memory import Refusal, Verdict, refusal
from partners import registry
from partners.choices import Profile
from partners.models import Agreement
from partners.terms import Principal, Terms
from rmhub import clock

log = logging.getLogger(__name__)

_BATCH = re.compile(r"(?P<agreement>.+)/\$batch/?", re.DOTALL)
# The second name in the singular is the standard's, in the plural that of OData's vocabulary.
_CLEAN_UP = re.compile(
    r"(?:.+/)?\$(?P<what>RepeatableRequestWithRequestID|RepeatableRequests?WithClientID)/(?P<id>.+)", re.DOTALL
)
_TRIES = 3
_FAILED = "service_error"  # the cause of a callable that raised, and whose transaction was rolled back


_group: GroupCommit[Item, Outcome] = GroupCommit(admitting.admit)


def exchange(request: Request, principal: Principal) -> Answer:
    """Answers one request of this partner. Raises what the database raises: then nothing was stored, and the caller
    says 503.
    """
    now = clock.now()
    terms: Terms | None = None
    identity: Identity | None = None
    try:
        if cleaned := _CLEAN_UP.fullmatch(request.path):
            return _clean_up(request, principal, cleaned["what"], cleaned["id"])
        batch = _BATCH.fullmatch(request.path)
        terms = _terms(batch["agreement"] if batch else request.path.removesuffix("/"), principal)
        if request.method in ASKING and not batch:
            allowed = {"Allow": ALLOW} if request.method == "OPTIONS" else {}
            return told(telling.of_agreement(terms, hub_memory.ready(now), now), allowed)
        identity = read_identity(request)
        if batch:
            _refuse_batch(identity)
        if identity is not None and (wait := rate_limits.repeat_wait(principal.party_id, identity.request_id)):
            # Not written down, and without a result: an earlier copy may have been executed.
            return problem("repeated-too-fast", result="", retry_after=max(wait, terms.repeat_interval))
        return _answer(read_item(request, principal, terms, identity))
    except Refused as refused:
        return _refuse(request, refused, principal=principal, terms=terms, identity=identity)


def turn_away(request: Request, entered: Entered) -> Answer:
    """The answer to whoever does not come in; written down unless they guess."""
    if entered.noted:
        headers = {"WWW-Authenticate": 'Basic realm="Repeatable requests", charset="UTF-8"'}
        return _refuse(request, Refused(entered.reason, headers=headers))
    return problem(entered.reason.replace("_", "-"), result=_result(request), retry_after=entered.wait)


def refuse_body(request: Request, limit: int, principal: Principal) -> Answer:
    """413 for a body that is larger than this hub takes, and was not read."""
    return _refuse(request, Refused("body-too-large", f"More than {limit} bytes."), principal=principal)


def _terms(tpa_id: str, principal: Principal) -> Terms:
    terms = registry.current().by_tpa_id(tpa_id)
    shown = tpa_id[:200]
    unknown = f"No agreement with TPAId {shown!r} is in force."
    if terms is None:
        if "\x00" not in tpa_id and Agreement.objects.filter(tpa_id=tpa_id, partner=principal.party_id).exists():
            raise Refused("agreement-not-in-force", f"Agreement {shown} is not in force. Ask the hub's operators.")
        raise Refused("unknown-agreement", unknown)
    if terms.hop_party_id != principal.party_id:
        # To whoever asks it is like one that does not exist: nobody learns which agreements others have.
        note = f"{principal.party_name} is not the partner of agreement {terms.tpa_id}."
        raise Refused("unknown-agreement", unknown, note)
    if terms.profile != Profile.REPEATABLE:
        raise Refused("unknown-agreement", f"Agreement {terms.tpa_id} is not for requests: send to {terms.own_uri}.")
    return terms


def _refuse_batch(identity: Identity | None) -> NoReturn:
    """Headers on a batch would promise something for all that is in it (Repeatable Requests, batch requests; G37)."""
    if identity is not None:
        raise Refused("batch-not-repeatable")
    raise Refused("not-repeatable", "This hub takes no batches: send each request by itself, with its own id.")


def _answer(item: Item) -> Answer:
    outcome = _admitted(item)
    known = outcome.known
    match outcome.verdict:
        case Verdict.REFUSE:
            # Written down by the transaction that decided it.
            if outcome.code == Refusal.OUTSIDE_MEMORY_WINDOW and item.first_sent is not None:
                hub_memory.hold(outcome.memory, item.first_sent, outcome.at)
            return _refusal(item, outcome)
        case Verdict.BUSY:
            return _in_work(item)
        case Verdict.EXECUTE if not item.synchronous:
            return acknowledgement(item.request_id, outcome.received_at, remembered=item.remembered)
        case Verdict.REPLAY if known is not None and known.state == RequestState.ACCEPTED:
            return acknowledgement(item.request_id, outcome.received_at)
    assert known is not None
    try:
        return _outcome(item, outcome, known)
    except (DatabaseError, InterfaceError):
        # It is stored and may be executed: "rejected" would not be true. The next copy gets what came of it.
        if not item.remembered:
            raise
        log.exception("the outcome of a request cannot be read now", extra={"action": "exchange_failed"})
        return _in_work(item)


def _outcome(item: Item, outcome: Outcome, known: Remembered) -> Answer:
    """What has come of a synchronous request, which is executed now if nobody has begun with it."""
    detail, retry_after, failed = "", None, False
    # One in doubt is a person's now; one whose process died is taken over, and decided like any document that comes
    # again (spec 4): the resolver may know.
    if outcome.verdict is not Verdict.REPLAY and known.state == RequestState.RUNNING and known.delivery_id is not None:
        finished = attended.run(known.delivery_id)
        detail, retry_after, failed = finished.detail, finished.retry_after, finished.cause == _FAILED
    state, answered = remembering.answer_of(known)
    if answered is not None:
        return replay(answered, remembered=item.remembered)
    if state == RequestState.RUNNING:
        return _in_work(item)
    if state == RequestState.FORGOTTEN:
        raise Refused("forgotten-by-request", headers=window_headers(outcome.memory, outcome.at))
    if state == RequestState.IN_DOUBT:
        raise Refused("in-doubt", headers=window_headers(outcome.memory, outcome.at))
    if failed:
        raise Refused("application-failed", note=detail)
    raise Refused("application-not-ready", note=detail, retry_after=retry_after or item.terms.repeat_interval)


def _admitted(item: Item) -> Outcome:
    keep_large([item.body])
    for left in reversed(range(_TRIES)):
        _make_day(item)
        try:
            return _group.submit(item)
        except (IntegrityError, hub_memory.MemoryChanged) as error:
            # Another process stored the same id by ebXML between our look and our insert, or midnight came between, or
            # this process has not looked at the memory yet. The next look finds it.
            if not left:
                raise
            if isinstance(error, hub_memory.MemoryChanged):
                hub_memory.check(clock.now())
    raise AssertionError("unreachable")


def _make_day(item: Item) -> None:
    """Makes the day that the request is remembered in, where it is missing and the request is not refused for it."""
    now = clock.now()
    day = forgetting.day_of(item.first_sent or now)
    if forgetting.knows(forgetting.REQUESTS, day):
        return
    memory = hub_memory.memory(hub_memory.ready(now), item.terms)
    if item.first_sent is None or refusal(memory, item.first_sent, now) is None:
        try:
            forgetting.ensure_days(forgetting.REQUESTS, [day])
        except forgetting.Forgotten:
            log.debug("the day was dropped this moment; the decision will say so")


def _refusal(item: Item, outcome: Outcome) -> Answer:
    code = outcome.code
    if code in tuple(Refusal):
        assert item.first_sent is not None
        return window_problem(code, outcome.memory, item.first_sent, outcome.at)
    retry_after = outcome.retry_after or (item.terms.repeat_interval if PROBLEMS[code].retryable else None)
    hints = window_headers(outcome.memory, outcome.at) if outcome.status == 412 else None
    return problem(code, outcome.detail, status=outcome.status, retry_after=retry_after, headers=hints)


def _in_work(item: Item) -> Answer:
    return problem("in-work", result=ACCEPTED, retry_after=item.terms.repeat_interval)


def _clean_up(request: Request, principal: Principal, what: str, value: str) -> Answer:
    """204 whether there was something or not (Repeatable Requests, deletion of what is remembered)."""
    if request.method != "DELETE":
        raise Refused("method-not-allowed", headers={"Allow": "DELETE"})
    if value.isascii() and value.isprintable():
        if what == "RepeatableRequestWithRequestID":
            forgotten = remembering.forget(principal.party_id, request_ids={value, _folded(value)})
        else:
            forgotten = remembering.forget(principal.party_id, client_id=value)
        log.info("clean-up", extra={"action": "forgotten", "requests": forgotten, "party": principal.party_name})
    return Answer(204)


def _folded(value: str) -> str:
    """Ids that are UUIDs are the same in upper and lower case."""
    try:
        return str(uuid.UUID(value)) if len(value) == 36 else value
    except ValueError:
        return value


def _refuse(
    request: Request,
    refused: Refused,
    *,
    principal: Principal | None = None,
    terms: Terms | None = None,
    identity: Identity | None = None,
) -> Answer:
    """Writes a refusal down and answers it."""
    kind = PROBLEMS[refused.code]
    status = kind.status
    detail = refused.detail or kind.meaning
    refuse(
        request,
        status,
        kind.reason,
        " ".join(filter(None, (detail, refused.note))),
        principal=principal,
        tpa_id=terms.tpa_id if terms else "",
        message_id=identity.request_id if identity else "",
    )
    return problem(
        refused.code,
        detail,
        status=status,
        result=_result(request),
        retry_after=refused.retry_after,
        headers=refused.headers,
    )


def _result(request: Request) -> str:
    """Whoever only asks gets no `Repeatability-Result` (Repeatable Requests; G24)."""
    return "" if request.method in ASKING else REJECTED
