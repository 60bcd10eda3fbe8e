"""What a repeatable request says (spec 2): how it is identified, and what of its agreement it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from messaging import storage
from messaging.engine import pairs
from messaging.entrance.refusals import Arrival
from messaging.profiles.repeatable import remembering
from messaging.profiles.repeatable.admitting import Item
from messaging.protocol import document_ids
from messaging.protocol.codecs import repeatable
from messaging.protocol.codecs.repeatable import HeaderProblem, Identity
from messaging.routing.services import routing
from messaging.routing.services.routing import Road
from partners.choices import ExchangeIdentity, ExchangeMode, Profile, Semantics
from partners.terms import Principal, Terms
from rmhub.ids import uuid7

ASKING = ("GET", "HEAD", "OPTIONS")
REQUESTS = ("POST", "PUT")
ALLOW = ", ".join((*ASKING, *REQUESTS))

# Names the receiver of a request that is not for this hub: type:value of a party identifier.
_TO = "RM-To"
_LONGEST = {"RM-Service": 255, "RM-Action": 255, "RM-Conversation-ID": 512, "RM-Ref-To-Message-ID": 512}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Arrival):
    """One HTTP request. `path`: what follows /exchange/, decoded. `target`: the whole path and query, as it came.

    `headers`: lower-case name -> its values.
    """

    method: str
    path: str
    target: str
    headers: Mapping[str, Sequence[str]]


@dataclass(slots=True)
class Refused(Exception):
    """A problem to answer with, a code of the catalogue; without `detail` its sentence. `note` is for our people."""

    code: str
    detail: str = ""
    note: str = ""
    retry_after: int | None = None
    headers: dict[str, str] = field(default_factory=dict)


def read_identity(request: Request) -> Identity | None:
    try:
        return repeatable.read(request.headers)
    except HeaderProblem as error:
        raise Refused(error.code, error.detail) from error


def read_item(request: Request, principal: Principal, terms: Terms, identity: Identity | None) -> Item:
    """What is to be admitted. Raises Refused for what shows without looking at what is remembered."""
    remembers = terms.semantics != Semantics.BEST_EFFORT
    if request.method not in REQUESTS:
        if identity is not None:
            raise Refused("not-repeatable", f"{request.method} is not repeatable here; POST and PUT are.")
        raise Refused("method-not-allowed", headers={"Allow": ALLOW})
    if identity is not None and not remembers:
        raise Refused(
            "not-repeatable",
            f"Agreement {terms.tpa_id} is for requests that are not remembered: leave the headers off.",
        )
    if remembers:
        identity = _as_agreed(identity, terms)
    if len(request.body) > terms.max_message_bytes:
        raise Refused(
            "message-too-large",
            f"{len(request.body)} bytes; agreement {terms.tpa_id} allows {terms.max_message_bytes}.",
        )
    given = {name: _given(request, name) for name in _LONGEST}
    to = _given(request, _TO)
    road = _road(to, given["RM-Service"], identity, len(request.body), terms) if to else None
    if road is not None:
        service, action = _named(given["RM-Service"], given["RM-Action"])
    else:
        service, action = _service(terms, given["RM-Service"], given["RM-Action"])
    document_id = _document_id(request)
    said = [request.target, *given.values(), *([to] if to else [])]
    if document_id:
        said.append(f"{document_ids.HEADER}: {document_id}")
    digest = storage.digest(request.body)
    return Item(
        terms=terms,
        principal=principal,
        pair_id=pairs.inbound_pair_id(terms),
        request_id=identity.request_id if identity else str(uuid7()),
        first_sent=identity.first_sent if identity else None,
        content=repeatable.fingerprint(request.method, "\n".join(said), request.content_type, digest),
        client_id=identity.client_id if identity else "",
        body=request.body,
        content_type=request.content_type,
        digest=digest,
        service=service,
        action=action,
        conversation_id=given["RM-Conversation-ID"],
        ref_to_message_id=given["RM-Ref-To-Message-ID"],
        document_id=document_id,
        remembered=remembers,
        road=road,
        by_ebxml_too=remembering.has_others(principal.party_id, Profile.REPEATABLE),
        remote_address=request.remote_address,
        traceparent=request.traceparent,
    )


def _road(to: str, service: str, identity: Identity | None, size: int, terms: Terms) -> Road | None:
    """The way of a request for somebody else. Whether it is taken is decided with its memory; here only what never can
    be. Raises Refused.
    """
    context, colon, value = to.partition(":")
    if not colon or not context or not value:
        raise Refused("malformed-header", f"{_TO} is the type and value of a party identifier, such as DUNS:123456789.")
    road = routing.road_of_other_profile(
        [(context, value)], service, identity.request_id if identity else "", [size], terms
    )
    if road is not None and terms.exchange_mode == ExchangeMode.SYNCHRONOUS:
        raise Refused("not-routed", f"Agreement {terms.tpa_id} is for requests that our own applications answer.")
    return road


def _named(service: str, action: str) -> tuple[str, str]:
    """What is passed on is of no agreement of ours, so it has to say itself what it is."""
    if not service or not action:
        raise Refused("service-not-named", f"A request with {_TO} names its service and action: RM-Service, RM-Action.")
    return service, action


def _as_agreed(identity: Identity | None, terms: Terms) -> Identity:
    """The identity, when it is of the kind that the agreement names."""
    by_key = terms.exchange_identity == ExchangeIdentity.KEY
    if identity is None or (identity.by_key and not by_key):
        wanted = (
            f"{repeatable.IDEMPOTENCY_KEY}, a string in double quotes"
            if by_key
            else f"{repeatable.REQUEST_ID} and {repeatable.FIRST_SENT}"
        )
        raise Refused(
            "header-missing",
            f"Agreement {terms.tpa_id} delivers once and only once, so each request needs {wanted}; the same with every"
            " copy of it.",
        )
    if by_key and not identity.by_key:
        raise Refused(
            "not-repeatable",
            f"Agreement {terms.tpa_id} identifies requests by {repeatable.IDEMPOTENCY_KEY}, not by these headers.",
        )
    return identity


def _given(request: Request, name: str) -> str:
    """The value of one of our own headers, percent-decoded; "" when it is not there."""
    values = request.headers.get(name.lower(), ())
    longest = _LONGEST.get(name, 512)
    if not values:
        return ""
    try:
        value = unquote(values[0].strip(), errors="strict")
    except UnicodeDecodeError:
        value = "\x00"
    if len(values) > 1 or len(value) > longest or not value.isprintable():
        raise Refused(
            "malformed-header",
            f"{name} has to be one value of at most {longest} characters; what is not ASCII is percent-encoded.",
        )
    return value


def _document_id(request: Request) -> str:
    value = _given(request, document_ids.HEADER)
    if value and (sentence := document_ids.fault(value, document_ids.MAX_WIRE)):
        raise Refused("malformed-header", f"{document_ids.HEADER} has to be {sentence}")
    return value


def _service(terms: Terms, service: str, action: str) -> tuple[str, str]:
    """Which of the agreement's services and actions is meant; what is not said has to be the only possible one."""
    receivable = sorted((known, of) for known, of, way in terms.services if way != "send")
    listed = "; ".join(f"{known} / {of}" for known, of in receivable) or "none"
    if service and action:
        if not terms.allows(service, action, "receive"):
            raise Refused(
                "outside-agreement",
                f"{service} / {action} is not in agreement {terms.tpa_id}. We receive: {listed}.",
            )
        return service, action
    meant = [(known, of) for known, of in receivable if service in ("", known) and (action in ("", of) or of == "*")]
    if not meant:
        raise Refused(
            "outside-agreement",
            f"{service or 'any service'} / {action or 'any action'} is not in agreement {terms.tpa_id}."
            f" We receive: {listed}.",
        )
    known, of = meant[0]
    chosen = action or of
    if len(meant) > 1 or chosen == "*":
        raise Refused(
            "service-not-named", f"Name service and action with RM-Service and RM-Action. We receive: {listed}."
        )
    return known, chosen
