"""A caller of the API, as the tests use it: a token of a user with a role, and JSON in and out."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import Group, User
from django.test import Client

from messaging.access.services import tokens
from messaging.journal import incidents
from messaging.journal.audit import Actor
from messaging.models import Incident, Pair
from rmhub import clock
from rmhub.roles import ADMIN_SCOPES, Role, scopes_of
from tests.messaging.factories import ACTION, SERVICE, PartnerSide, link, submit, work

PROBLEM = "application/problem+json"
REASON = {"reason": "because the test says so"}
_count = itertools.count(1)


def make_user(role: Role | None = Role.ADMIN, name: str = "", password: str | None = None) -> User:
    """An active user with a role (None: without any), who can log in if there is a password."""
    user = User.objects.create_user(username=name or f"{role or 'nobody'}{next(_count)}", password=password)
    if role is not None:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    return user


def make_token(user: User, scopes: Iterable[str] | None = None, **fields: Any) -> str:
    """The secret of a new token of the user; with all scopes of their role unless told."""
    _, secret = tokens.token_create(
        owner=user,
        name=fields.pop("name", "test"),
        scopes=scopes_of(user) if scopes is None else scopes,
        actor=Actor("test"),
        granted_by=ADMIN_SCOPES,
        **fields,
    )
    return secret


@dataclass(slots=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    content: bytes
    json: Any = field(default=None)

    @property
    def etag(self) -> str:
        return self.headers["etag"]

    @property
    def code(self) -> str:
        """The problem's code; fails when the answer is no well-formed problem."""
        assert self.headers["content-type"] == PROBLEM, (self.status, self.headers, self.content[:300])
        assert self.json["status"] == self.status
        assert self.json["type"] == f"/api/v1/problems/{self.json['code'].replace('_', '-')}"
        assert self.json["request_id"] == self.headers["x-request-id"]
        assert self.json["title"] and self.json["detail"] and self.json["instance"].startswith("/")
        assert isinstance(self.json["retryable"], bool)
        return str(self.json["code"])


class Api:
    """`api.get("/pairs")`: paths are relative to /api/v1."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self.client = Client(raise_request_exception=False)

    def call(
        self, method: str, path: str, body: Any = None, *, query: dict[str, str] | None = None, **headers: str
    ) -> Answer:
        """`body`: bytes as they are, anything else as JSON. `headers`: If_Match="..." and so on."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        kind = sent.pop("Content-Type", "application/json")
        octets = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        answer = self.client.generic(
            method, f"/api/v1{path}", octets, content_type=kind if octets else "", headers=sent, query_params=query
        )
        got = {name.lower(): value for name, value in answer.items()}
        is_json = "json" in got.get("content-type", "")
        content = answer.getvalue() if answer.streaming else answer.content
        return Answer(answer.status_code, got, content, json.loads(content) if is_json and content else None)

    def get(self, path: str, query: dict[str, str] | None = None, **headers: str) -> Answer:
        return self.call("GET", path, query=query, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.call("POST", path, body, **headers)

    def patch(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.call("PATCH", path, body, **headers)

    def delete(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.call("DELETE", path, body, **headers)

    def submit(self, body: Any, key: str = "") -> Answer:
        """POST /messages under a key (a new one unless given)."""
        return self.post("/messages", body, Idempotency_Key=f'"{key or uuid.uuid4()}"')


def submission(partner: PartnerSide, **changes: Any) -> dict[str, Any]:
    """A body of POST /messages for this partner."""
    body: dict[str, Any] = {
        "agreement": partner.terms.tpa_id,
        "service": SERVICE,
        "action": ACTION,
        "payloads": [{"content_base64": "PE9yZGVyLz4=", "content_type": "application/xml"}],
    }
    return {**body, **changes}


def in_flight(partner: PartnerSide) -> Pair:
    """The partner's outbound pair with one message handed over and not acknowledged."""
    with link():
        submit(partner)
        work()
    return partner.outbound


def suspended(partner: PartnerSide) -> Pair:
    """The partner's outbound pair, suspended by an Error message, with an incident."""
    with link() as wire:
        submit(partner)
        work()
        partner.send(partner.error(wire.last))
    return partner.outbound


def make_incident(pair: Pair | None = None, cause: str = "ack_timeout") -> Incident:
    """An open incident."""
    return incidents.incident_open(pair=pair, cause=cause, now=clock.now(), detail="Nobody answers.")[0]
