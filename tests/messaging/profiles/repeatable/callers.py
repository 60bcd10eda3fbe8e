"""A partner that sends repeatable requests as any HTTP client would, and the applications that answer them.

`caller(...)` makes a partner with an agreement of this profile; `Caller.post` goes through the real view. `T` is the
present of these tests: agreements remember for two hours, five minutes of clock skew are allowed, nothing was lost.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpResponse
from django.test import Client

from messaging import applications
from messaging.applications import Document, Reply, Service
from messaging.choices import ServiceKind
from messaging.engine import memory as hub_memory
from messaging.engine import pairs, subscriptions
from messaging.models import Delivery, Message, Pair, Rejection, RememberedRequest, Trigger
from messaging.protocol.codecs.repeatable import imf_fixdate
from partners import registry
from partners.choices import Profile
from partners.models import AgreementVersion
from partners.terms import Terms
from tests.partners.factories import basic, make_agreement, make_credential

T = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
WINDOW, SKEW = 2 * HOUR, 5 * MINUTE
ORDERS, NEW_ORDER = "urn:orders", "NewOrder"
BODY = b"<Order/>"

_count = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Caller:
    """The partner of one agreement."""

    terms: Terms
    authorization: str

    @property
    def path(self) -> str:
        return f"/exchange/{self.terms.tpa_id}/"

    @property
    def pair(self) -> Pair:
        """The pair on which it sends to us, as it is now in the database."""
        return Pair.objects.get(pk=pairs.inbound_pair_id(self.terms))

    def post(
        self,
        request_id: str | None = None,
        first_sent: datetime | str | None = T,
        *,
        body: bytes = BODY,
        content_type: str = "application/xml",
        method: str = "POST",
        path: str = "",
        headers: dict[str, str] | None = None,
        authorization: str | None = None,
    ) -> HttpResponse:
        """One request; None leaves the header out. What the view raises comes out here."""
        sent = dict(headers or {})
        if request_id is not None:
            sent["Repeatability-Request-ID"] = request_id
        if first_sent is not None:
            sent["Repeatability-First-Sent"] = (
                imf_fixdate(first_sent) if isinstance(first_sent, datetime) else first_sent
            )
        shown = self.authorization if authorization is None else authorization
        if shown:
            sent["Authorization"] = shown
        return Client().generic(method, path or self.path, body, content_type, headers=sent)

    def get(self, method: str = "GET", path: str = "", **headers: str) -> HttpResponse:
        """Asks what is told; `headers` with `_` for `-`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return Client().generic(method, path or self.path, headers={"Authorization": self.authorization, **sent})

    def delete(self, what: str) -> HttpResponse:
        """DELETE /exchange/$..."""
        return Client().generic("DELETE", f"/exchange/{what}", headers={"Authorization": self.authorization})


def caller(version: AgreementVersion | None = None, **terms: Any) -> Caller:
    """The partner of `version`, or of a new agreement with these terms."""
    settings: dict[str, Any] = {
        "profile": Profile.REPEATABLE,
        "memory_window": int(WINDOW.total_seconds()),
        "clock_skew": int(SKEW.total_seconds()),
        "allowed": ((ORDERS, NEW_ORDER, "both"),),
        **terms,
    }
    version = version or make_agreement(**settings)
    credential, password = make_credential(version.agreement.partner)
    return Caller(registry.current().version(version.pk), basic(credential.username, password))


def remembering_since(start: datetime) -> None:
    """This hub has remembered everything since then."""
    row = hub_memory.check(start)
    row.memory_start = start
    row.forgotten_through = start.replace(hour=0, minute=0, second=0, microsecond=0)
    row.save()


def new_id() -> str:
    return str(uuid.uuid4())


@dataclass(slots=True)
class Application:
    """A callable that answers; counts its executions."""

    trigger: Trigger
    documents: list[Document]

    @property
    def executions(self) -> int:
        return len(self.documents)


@contextmanager
def application(behave: Service | None = None, **settings: Any) -> Iterator[Application]:
    """An application that answers requests by `behave`, by default with 200 and how often it was executed."""
    name = f"test.{next(_count)}"
    documents: list[Document] = []

    def serve(document: Document) -> Reply | None:
        documents.append(document)
        if behave is not None:
            return behave(document)
        return Reply(200, json.dumps({"executions": len(documents)}).encode(), "application/json")

    applications.service(name)(serve)
    values: dict[str, Any] = {
        "name": name,
        "kind": ServiceKind.CALLABLE,
        "callable_name": name,
        "answers": True,
        "ordered": False,
        **settings,
    }
    trigger = Trigger.objects.create(**values)
    subscriptions.current.forget()
    try:
        yield Application(trigger, documents)
    finally:
        applications.SERVICES.pop(name)
        subscriptions.current.forget()


def result(answer: HttpResponse) -> str | None:
    """`Repeatability-Result` of the answer; None without it."""
    return answer.get("Repeatability-Result")


def code(answer: HttpResponse) -> str:
    """The code of a problem, which has all members that every problem has."""
    assert answer["Content-Type"] == "application/problem+json", answer.content
    problem = json.loads(answer.content)
    assert problem["status"] == answer.status_code
    assert problem["title"]
    assert problem["detail"].endswith((".", "?")), problem["detail"]
    kind, _, named = problem["type"].rpartition("/")
    assert kind == "/problems"
    return str(named)


def brief(answer: HttpResponse) -> tuple[int, str | None, str]:
    """Status, result and, for a problem, its code."""
    failed = answer.status_code >= 400 and answer.get("Content-Type") == "application/problem+json"
    return answer.status_code, result(answer), code(answer) if failed else ""


def stored() -> tuple[list[Any], ...]:
    """Everything that a request which is refused must leave as it is (X03)."""
    return (
        list(Message.objects.order_by("pk").values_list("pk", "state")),
        list(Delivery.objects.order_by("pk").values_list("pk", "state")),
        list(
            RememberedRequest.objects.order_by("sender_id", "request_id").values_list(
                "sender_id", "request_id", "state", "status", "body"
            )
        ),
    )


def refusals() -> list[tuple[str, int]]:
    """Reason and status of what was written down as refused."""
    return list(Rejection.objects.order_by("pk").values_list("reason", "http_status"))
