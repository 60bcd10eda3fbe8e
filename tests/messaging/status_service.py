"""A partner's status service on loopback, and messages that it can be asked about."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

from messaging.models import Message
from messaging.transports import http
from partners import registry
from partners.models import AgreementVersion, Endpoint
from rmhub import clock
from tests.messaging.factories import PartnerSide, submit
from tests.messaging.http_server import serving


class StatusService:
    """Answers by MessageId: a status, or raw octets of an answer; `default` for all others. Keeps the requests."""

    def __init__(self, answers: Mapping[str, str | bytes], default: str | bytes = "not_recognized") -> None:
        self.answers = answers
        self.default = default
        self.heads: list[str] = []

    def __call__(self, connection: socket.socket) -> None:
        while True:
            data = b""
            while b"\r\n\r\n" not in data:
                piece = connection.recv(65536)
                if not piece:
                    return
                data += piece
            head = data.decode()
            self.heads.append(head)
            target = head.split(" ", 2)[1]
            (message_id,) = parse_qs(urlsplit(target).query)["message-id"]
            answer = self.answers.get(message_id, self.default)
            if isinstance(answer, bytes):
                connection.sendall(answer)
                if b"Content-Length" not in answer:
                    return
            else:
                connection.sendall(told(json.dumps({"message_id": message_id, "status": answer}).encode()))


def told(body: bytes, status: str = "200 OK") -> bytes:
    """An HTTP answer with this body."""
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@contextmanager
def status_service(
    partner: PartnerSide, answers: Mapping[str, str | bytes] | None = None, default: str | bytes = "not_recognized"
) -> Iterator[StatusService]:
    """The partner's service; its address is entered at the endpoint."""
    service = StatusService(answers or {}, default)
    with serving(service) as server:
        address = f"http://127.0.0.1:{server.port}/partner/"
        version = AgreementVersion.objects.get(pk=partner.terms.version_id)
        Endpoint.objects.filter(pk=version.partner_endpoint_id).update(service_address=address)
        registry.reset()
        try:
            yield service
        finally:
            http._pool.clear()


def messages_in_doubt(partner: PartnerSide, count: int = 1) -> list[Message]:
    """Messages of the repeatable profile that were sent once, and of which nobody knows what became."""
    made = [submit(partner) for _ in range(count)]
    keys = [message.pk for message in made]
    Message.objects.filter(pk__in=keys).update(
        state="in_doubt", cause="outcome_unknown", attempts=1, first_sent_at=clock.now(), due_at=None
    )
    pair = made[0].pair
    pair.queued, pair.out_now = 0, 0
    pair.save(update_fields=["queued", "out_now"])
    return list(Message.objects.filter(pk__in=keys).order_by("id"))
