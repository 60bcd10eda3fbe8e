"""One trace for each message, across all that happens to it, told to a collector over HTTP; and what is on the wire."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from messaging.engine import handover, kinds, missing
from messaging.engine.claiming import claim_due
from messaging.engine.recording import record
from messaging.models import Message, OutgoingStream, Transmission, WebhookDelivery
from messaging.notifications.services import webhooks
from messaging.protocol.codecs import stream
from messaging.protocol.streams.final import OrderAck
from messaging.transports import Parcel, http
from rmhub import clock, logs, traces
from tests.messaging.api.client import Api, submission
from tests.messaging.deliveries import stage
from tests.messaging.factories import PartnerSide, link, partner_side, submit
from tests.messaging.http_server import read_request, serving
from tests.messaging.profiles.stream.partner import GUID, stream_side
from tests.messaging.profiles.stream.partner import post as post_stream
from tests.messaging.wire import post
from tests.partners.factories import make_agreement
from tests.rmhub.collector import Collector, collecting

pytestmark = pytest.mark.django_db(transaction=True)
OF_APPLICATION = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OF_PARTNER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PRODUCER, CLIENT, CONSUMER = 4, 3, 5  # OTLP's Span.SpanKind


@pytest.fixture
def collector(settings: Any) -> Iterator[Collector]:
    with collecting() as made:
        settings.RMHUB_TRACES_URL = made.url
        yield made
        traces.close()
        connection.close()


class Taking:
    """A partner's server, or anybody's: keeps the headers of each request, and answers with `status`."""

    def __init__(self, status: str = "204 No Content") -> None:
        self.status = status
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []

    def __call__(self, connection: socket.socket) -> None:
        while True:
            head, body = read_request(connection)
            if not head:
                return
            lines = (line.partition(": ") for line in head.decode().split("\r\n")[1:])
            self.headers.append({name.lower(): value for name, _, value in lines})
            self.bodies.append(body)
            connection.sendall(f"HTTP/1.1 {self.status}\r\nContent-Length: 0\r\n\r\n".encode())

    @property
    def traceparents(self) -> list[str | None]:
        return [headers.get("traceparent") for headers in self.headers]


@pytest.fixture
def there() -> Iterator[Taking]:
    """The partner's server."""
    taking = Taking()
    yield taking
    http._pool.clear()


def work() -> int:
    """What a worker does with all that is due: claim, talk over real HTTP, record."""
    jobs = claim_due(limit=64)
    record([(job, kinds.talk(job)) for job in jobs])
    return len(jobs)


def partner_at(url: str, **terms: Any) -> PartnerSide:
    return partner_side(make_agreement(partner_uri=url, **terms))


def links(traceparent: str) -> tuple[tuple[str, str], ...]:
    _, trace, span, _ = traceparent.split("-")
    return ((trace, span),)


def test_a_message_of_an_application_is_one_trace_from_submission_to_acknowledgement(
    admin: Api, collector: Collector, there: Taking
) -> None:
    with serving(there) as server:
        partner = partner_at(server.url)
        body = submission(partner)
        accepted = admin.post("/messages", body, Idempotency_Key='"1"', traceparent=OF_APPLICATION)
        assert accepted.status == 202
        message = Message.objects.get()
        traces.close()  # another process goes on
        assert work() == 1
        came = Parcel(server.url, there.headers[0]["content-type"], there.bodies[0])
        assert post(partner.acknowledgement(came), HTTP_TRACEPARENT=OF_PARTNER).status_code == 204
    traces.close()
    assert Message.objects.get().state == "delivered"
    request, submit, send, acknowledged = (collector.of(name) for name in ("POST", "submit", "send", "acknowledged"))
    assert {span.trace for span in (submit, send, acknowledged)} == {message.pk.hex}
    assert (submit.parent, send.parent, acknowledged.parent) == ("", submit.span, submit.span)
    assert there.traceparents == [send.traceparent]
    assert (submit.kind, send.kind, acknowledged.kind) == (PRODUCER, CLIENT, CONSUMER)
    # The application's own trace leads to that of the message, and back.
    assert (request.trace, request.parent) == links(OF_APPLICATION)[0]
    assert request.links == ((submit.trace, submit.span),) and submit.links == links(request.traceparent)
    assert request.attributes["http.response.status_code"] == 202
    # What the partner says is linked to, and begins nothing.
    assert acknowledged.links == links(OF_PARTNER)
    assert submit.name == f"submit {partner.terms.tpa_id}"
    assert send.attributes["messaging.message.id"] == message.public_id
    assert send.attributes["messaging.destination.name"] == partner.terms.tpa_id
    assert send.attributes["rmhub.attempt"] == 1 and send.attributes["rmhub.profile"] == "ebxml"
    assert not any(span.failed for span in collector.spans)
    # Nothing of documents, and no credential.
    told = b"".join(collector.bodies)
    assert b"<Order" not in told and b"Basic" not in told and b"urn:orders" not in told


def test_a_message_of_a_partner_is_one_trace_from_receipt_to_delivery(collector: Collector, there: Taking) -> None:
    with serving(there) as server, stage.application() as app:
        partner = partner_at(server.url)
        stage.make_trigger(app)
        arrival = partner.message(1)
        assert post(arrival, HTTP_TRACEPARENT=OF_PARTNER).status_code == 204
        assert post(arrival).status_code == 204
        assert work() == 1
        assert work() == 1  # each receipt is acknowledged
        assert stage.work() == 1
    traces.close()
    [first, again] = [span for span in collector.spans if span.operation == "receive"]
    acknowledgements = [span for span in collector.spans if span.operation == "acknowledge"]
    deliver = collector.of("deliver")
    message = Message.objects.get()
    assert {span.trace for span in collector.spans} == {message.pk.hex}
    assert (first.parent, first.links) == ("", links(OF_PARTNER))
    assert (again.attributes["rmhub.event"], again.parent, again.links) == ("message.duplicate", first.span, ())
    assert [span.parent for span in acknowledgements] == [first.span] * 2 and deliver.parent == first.span
    # On the wire each request names its own span.
    assert there.traceparents == [span.traceparent for span in acknowledgements]
    assert [asked.headers["traceparent"] for asked in app.asked] == [deliver.traceparent]
    assert deliver.attributes["rmhub.service"] == "http" and deliver.attributes["http.response.status_code"] == 200


def test_a_receipt_is_in_the_trace_of_its_message_whoever_sends_it(collector: Collector, there: Taking) -> None:
    """Through Valkey, or made anew of the rows."""
    with serving(there) as server:
        partner = partner_at(server.url)
        assert post(partner.message(1)).status_code == 204
        [job] = claim_due(limit=64)
        [of_store] = missing.of_store(
            list(Transmission.objects.select_related("signal")), Message.objects.get().created_at
        )
        handed_over, _ = handover._unpacked(handover._packed(job))
    assert job.about_id == of_store.about_id == handed_over.about_id == Message.objects.get().pk


def test_an_acknowledgement_of_a_stream_ends_the_traces_of_its_messages(collector: Collector) -> None:
    partner = stream_side()
    with link():
        messages = [submit(partner), submit(partner)]  # type: ignore[arg-type]
        work()
        place = OutgoingStream.objects.get()
        answer = stream.order_ack(
            place.source,
            OrderAck(int(place.tx_sequence_id), 2),
            message_id="ack@partner.example",
            to=partner.terms.own_error_uri,
            source=GUID,
            now=clock.now(),
        )
        assert post_stream(partner.arrival(answer), HTTP_TRACEPARENT=OF_PARTNER).status_code == 202
    traces.close()
    told = [span for span in collector.spans if span.operation == "acknowledged"]
    assert {span.trace for span in told} == {message.pk.hex for message in messages}
    assert {(span.name, span.links) for span in told} == {
        (f"acknowledged {partner.terms.tpa_id}", links(OF_PARTNER)),
    }


def test_what_fails_has_its_cause_in_the_trace_and_in_the_log(
    collector: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Taking("503 Hidden Words")
    with serving(there) as server:
        partner = partner_at(server.url, retries=0, transport_retries=0)
        message = submit(partner)
        lines: list[str] = []
        monkeypatch.setattr(caplog.handler, "emit", lambda record: lines.append(logs.JsonFormatter().format(record)))
        with caplog.at_level(logging.WARNING, "messaging.engine.kinds"):
            assert work() == 1
    traces.close()
    send = collector.of("send")
    assert send.failed and send.attributes["error.type"] == "http_5xx"
    assert send.attributes["http.response.status_code"] == 503
    [line] = [json.loads(line) for line in lines]
    assert (line["trace_id"], line["span_id"]) == (message.pk.hex, send.span)
    assert b"Hidden" not in b"".join(collector.bodies)


def test_a_webhook_says_which_message_it_is_about(collector: Collector) -> None:
    hook = Taking()
    with serving(hook) as server:
        webhooks.endpoint_create(url=server.url, types=("message.accepted",), name="", actor=stage.PERSON)
        message = submit(partner_side())
        due = WebhookDelivery.objects.filter(endpoint__enabled=True).select_related("endpoint")
        [delivery] = webhooks.claim(due, timedelta(seconds=60), 10)
        assert webhooks.post(delivery).status == 204
    webhooks._any_pool.clear()
    traces.close()
    webhook = collector.of("webhook")
    assert (webhook.trace, hook.traceparents) == (message.pk.hex, [webhook.traceparent])


def test_what_is_rolled_back_is_not_told(collector: Collector) -> None:
    partner = partner_side()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        submit(partner)
        raise ZeroDivisionError
    kept = submit(partner)
    traces.close()
    assert [span.trace for span in collector.spans] == [kept.pk.hex]


def test_a_collector_that_is_away_changes_nothing(collector: Collector, settings: Any, there: Taking) -> None:
    settings.RMHUB_TRACES_URL = "http://127.0.0.1:1"
    with serving(there) as server, stage.application() as app:
        partner = partner_at(server.url)
        stage.make_trigger(app)
        submit(partner)
        assert post(partner.message(1)).status_code == 204
        assert (work(), stage.work()) == (2, 1)
    assert len(there.headers) == 2 and len(app.asked) == 1
    assert set(Message.objects.values_list("state", flat=True)) == {"awaiting_ack", "received"}


def test_without_a_collector_no_context_is_taken_or_given(there: Taking, admin: Api) -> None:
    with serving(there) as server, stage.application() as app:
        partner = partner_at(server.url)
        stage.make_trigger(app)
        body = submission(partner)
        assert admin.post("/messages", body, Idempotency_Key='"1"', traceparent=OF_APPLICATION).status == 202
        assert post(partner.message(1), HTTP_TRACEPARENT=OF_PARTNER).status_code == 204
        assert (work(), stage.work()) == (2, 1)
    assert there.traceparents == [None, None]
    assert "traceparent" not in app.asked[0].headers
    connection.close()
