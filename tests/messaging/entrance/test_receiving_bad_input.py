"""What strangers and partners may send us: each case through the real view, and none harms what was accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from unittest import mock

import pytest

from messaging.choices import Direction, SignalKind, SignalState
from messaging.entrance.refusals import Arrival
from messaging.models import Event, Incident, Message, Payload, Rejection, Signal
from messaging.profiles.ebxml import accepting
from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import Limits, MessageType, Semantics
from partners import registry, services
from partners.models import Agreement
from partners.terms import Presented
from tests.messaging.factories import PartnerSide, decoded, link, partner_side, work
from tests.messaging.wire import ERRORS, edited, post, stored
from tests.partners.factories import basic, make_agreement, make_credential, make_endpoint, make_party

pytestmark = pytest.mark.django_db

NUMBER = "<SequenceNumber>000000002</SequenceNumber>"
GARBAGE = "application/octet-stream"


@dataclass(frozen=True)
class Scene:
    """A partner, and another one who has nothing to do with it."""

    partner: PartnerSide

    @cached_property
    def stranger(self) -> PartnerSide:
        return partner_side()

    def next(self) -> Arrival:
        """The message number 2 of the partner, as it should be."""
        return self.partner.message(2, "second@partner.example")


@pytest.fixture
def scene() -> Scene:
    party = make_party("Bad Input Ltd", identifiers=[("DUNS", "555000111")])
    endpoint = make_endpoint(party, "https://msh.bad.example/ebxml", error_uri="https://msh.bad.example/errors")
    return Scene(partner_side(make_agreement(partner_endpoint=endpoint)))


@dataclass(frozen=True)
class Bad:
    """One case: how it is made, what it is answered with, the reason of its Rejection, the Error that it earns."""

    make: Callable[[Scene], Arrival]
    status: int
    reason: str
    code: str = field(default="")


def multipart(*parts: str, boundary: str = "b", end: str = "--b--\r\n") -> bytes:
    return ("".join(f"--{boundary}\r\n{part}\r\n" for part in parts) + end).encode()


def as_multipart(scene: Scene, body: bytes) -> Arrival:
    return Arrival('multipart/related; boundary="b"', body, scene.partner.presented)


def header(document: str) -> str:
    return f"Content-Type: application/vnd.eb+xml\r\n\r\n{document}"


def change(*changes: tuple[str | bytes, str | bytes]) -> Callable[[Scene], Arrival]:
    """The partner's next message with texts replaced."""
    return lambda scene: edited(scene.next(), *changes)


def shown(authorization: Callable[[Scene], str]) -> Callable[[Scene], Arrival]:
    """The partner's next message with another Authorization header."""
    return lambda scene: replace(scene.next(), presented=Presented(authorization=authorization(scene)))


def wrong_password(scene: Scene) -> str:
    credential, _ = make_credential(make_party())
    return basic(credential.username, "not the password")


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
BOMB = f'<?xml version="1.0"?><!DOCTYPE ebXMLHeader [<!ENTITY l0 "lol">{LAUGHS}]><ebXMLHeader>&l9;</ebXMLHeader>'
FILE_ENTITY = '<!DOCTYPE ebXMLHeader [<!ENTITY x SYSTEM "file:///etc/passwd">]><ebXMLHeader>&x;</ebXMLHeader>'

UNREADABLE = {
    "empty body": Bad(lambda s: replace(s.next(), body=b""), 400, "not_mime"),
    "no content type": Bad(lambda s: replace(s.next(), content_type=""), 400, "not_mime"),
    "not mime": Bad(lambda s: replace(s.next(), content_type="text/plain", body=b"hello"), 400, "not_mime"),
    "bytes that are nothing": Bad(lambda s: Arrival(GARBAGE, bytes(range(256)), s.partner.presented), 400, "not_mime"),
    "no boundary": Bad(lambda s: replace(s.next(), content_type="multipart/related"), 400, "not_mime"),
    "another boundary": Bad(
        lambda s: replace(s.next(), content_type="multipart/related; boundary=other"), 400, "not_mime"
    ),
    "no header part": Bad(
        lambda s: as_multipart(s, multipart("Content-Type: application/pdf\r\n\r\nx")), 400, "no_header_part"
    ),
    "no part at all": Bad(lambda s: as_multipart(s, b"--b--\r\n"), 400, "no_header_part"),
    "broken xml": Bad(change(("</ebXMLHeader>", "</ebXMLHeade>")), 400, "xml_not_well_formed"),
    "another document": Bad(lambda s: as_multipart(s, multipart(header("<Order/>"))), 400, "not_ebxml"),
    "entity bomb": Bad(lambda s: as_multipart(s, multipart(header(BOMB))), 400, "dtd_forbidden"),
    "file entity": Bad(lambda s: as_multipart(s, multipart(header(FILE_ENTITY))), 400, "dtd_forbidden"),
    "10,000 parts": Bad(lambda s: as_multipart(s, multipart(*["\r\nx"] * 10_000)), 400, "too_many_parts"),
    "100,000 elements": Bad(
        lambda s: as_multipart(s, multipart(header(f"<ebXMLHeader>{'<a/>' * 100_000}</ebXMLHeader>"))),
        400,
        "too_many_elements",
    ),
    "10,000 levels": Bad(
        lambda s: as_multipart(s, multipart(header("<ebXMLHeader>" + "<a>" * 10_000))), 400, "too_deep"
    ),
    "5 MB header": Bad(
        lambda s: as_multipart(s, multipart(header(f"<ebXMLHeader>{'a' * 5_000_000}</ebXMLHeader>"))),
        400,
        "header_too_large",
    ),
    "100 kB of part headers": Bad(
        lambda s: as_multipart(s, multipart(f"X-A: {'a' * 100_000}\r\n\r\nx")), 400, "part_headers_too_large"
    ),
    "truncated in a payload": Bad(lambda s: replace(s.next(), body=s.next().body[:-25]), 400, "truncated"),
    "truncated in the header": Bad(lambda s: replace(s.next(), body=s.next().body[:400]), 400, "truncated"),
    "no MessageId": Bad(change(("<MessageId>second@partner.example</MessageId>", "")), 400, "missing_message_id"),
    "empty MessageId": Bad(change(("<MessageId>second@partner.example<", "<MessageId> <")), 400, "missing_message_id"),
    "no RoutingHeader": Bad(
        change(("<RoutingHeader>", "<Routing>"), ("</RoutingHeader>", "</Routing>")), 400, "missing_routing_header"
    ),
    "no SenderURI": Bad(
        change(("<SenderURI>https://msh.bad.example/ebxml</SenderURI>", "")), 400, "missing_sender_uri"
    ),
    "NUL in the MessageId": Bad(change(("second@", b"sec\x00ond@")), 400, "xml_not_well_formed"),
    "NUL as a reference": Bad(change(("second@", "sec&#0;ond@")), 400, "xml_not_well_formed"),
    "wrong encoding": Bad(change(("second@", b"sec\xffond@")), 400, "xml_not_well_formed"),
}

UNKNOWN_SENDER = {
    "no credential": Bad(shown(lambda s: ""), 401, "unauthenticated"),
    "wrong password": Bad(shown(wrong_password), 401, "unauthenticated"),
    "unknown user": Bad(shown(lambda s: basic("nobody", "secret")), 401, "unauthenticated"),
    "not base64": Bad(shown(lambda s: "Basic %%%"), 401, "unauthenticated"),
    "unknown scheme": Bad(shown(lambda s: "Negotiate abc"), 401, "unauthenticated"),
    "unknown token": Bad(shown(lambda s: "Bearer a.b"), 401, "unauthenticated"),
}

AGAINST_THE_RULES = {
    "unknown agreement": Bad(
        lambda s: edited(s.next(), (f">{s.partner.terms.tpa_id}<", ">tpa:unknown<")),
        204,
        "unknown_agreement",
        "ValueNotRecognized",
    ),
    "no agreement named": Bad(
        lambda s: edited(s.next(), (f"<TPAId>{s.partner.terms.tpa_id}</TPAId>", "")),
        204,
        "unknown_agreement",
        "ValueNotRecognized",
    ),
    "wrong ReceiverURI": Bad(
        lambda s: edited(s.next(), (f">{s.partner.terms.own_uri}</R", ">https://other.example/msh</R")),
        204,
        "ValueNotRecognized",
        "ValueNotRecognized",
    ),
    "wrong SenderURI": Bad(
        change(("<SenderURI>https://msh.bad.example", "<SenderURI>https://elsewhere.example")),
        204,
        "ValueNotRecognized",
        "ValueNotRecognized",
    ),
    "SenderURI of another partner": Bad(
        lambda s: edited(s.next(), ("https://msh.bad.example/ebxml</S", f"{s.stranger.terms.partner_uri}</S")),
        204,
        "ValueNotRecognized",
        "ValueNotRecognized",
    ),
    "wrong From party": Bad(
        change((">555000111</PartyId></From>", ">555000112</PartyId></From>")),
        204,
        "ValueNotRecognized",
        "ValueNotRecognized",
    ),
    "From of another type": Bad(
        change(('context="DUNS">555000111<', 'context="GLN">555000111<')),
        204,
        "ValueNotRecognized",
        "ValueNotRecognized",
    ),
    "wrong To party": Bad(
        lambda s: edited(s.next(), (f">{s.partner.terms.own_identifiers[0][1]}</PartyId></To>", ">999</PartyId></To>")),
        204,
        "ValueNotRecognized",
        "ValueNotRecognized",
    ),
    "no From party": Bad(
        change(("<From>", "<From/><Other>"), ("</From>", "</Other>")), 204, "NotWellFormed", "NotWellFormed"
    ),
    "service outside the agreement": Bad(
        change((">urn:orders<", ">urn:invoices<")), 204, "ValueNotRecognized", "ValueNotRecognized"
    ),
    "action missing": Bad(change(("<Action>NewOrder</Action>", "")), 204, "NotWellFormed", "NotWellFormed"),
    "no ConversationId": Bad(
        lambda s: edited(s.next(), ("<ConversationId>", "<Conversation>"), ("</ConversationId>", "</Conversation>")),
        204,
        "NotWellFormed",
        "NotWellFormed",
    ),
    "unknown version": Bad(change(('Version="0.21"', 'Version="9.9"')), 204, "NotSupported", "NotSupported"),
    "unknown MessageType": Bad(
        change(('MessageType="Normal"', 'MessageType="Normale"')), 204, "NotSupported", "NotSupported"
    ),
    "unknown semantics": Bad(
        change((">OnceAndOnlyOnce<", ">TwiceAtLeast<")), 204, "ValueNotRecognized", "ValueNotRecognized"
    ),
    "time stamp that is none": Bad(
        lambda s: edited(s.next(), ("<TimeStamp>2", "<TimeStamp>yesterday 2")),
        204,
        "ValueNotRecognized",
        "ValueNotRecognized",
    ),
    "sequence 0": Bad(
        change((NUMBER, "<SequenceNumber>0</SequenceNumber>")), 204, "InvalidSequenceNumber", "InvalidSequenceNumber"
    ),
    "sequence 1,000,000,000": Bad(
        change((NUMBER, "<SequenceNumber>1000000000</SequenceNumber>")),
        204,
        "InvalidSequenceNumber",
        "InvalidSequenceNumber",
    ),
    "sequence in words": Bad(
        change((NUMBER, "<SequenceNumber>two</SequenceNumber>")), 204, "InvalidSequenceNumber", "InvalidSequenceNumber"
    ),
    "sequence in Arabic digits": Bad(
        change((NUMBER, "<SequenceNumber>\u0662</SequenceNumber>")),
        204,
        "InvalidSequenceNumber",
        "InvalidSequenceNumber",
    ),
    "sequence missing": Bad(change((NUMBER, "")), 204, "InvalidSequenceNumber", "InvalidSequenceNumber"),
    "sequence with a gap": Bad(
        change((NUMBER, "<SequenceNumber>3</SequenceNumber>")), 204, "InvalidSequenceNumber", "InvalidSequenceNumber"
    ),
    "MessageId of 1 MB": Bad(
        change(("<MessageId>second@", f"<MessageId>{'a' * 1_000_000}@")),
        204,
        "ValueNotRecognized",
        "ValueNotRecognized",
    ),
    "line break in the MessageId": Bad(
        change(("second@", "sec\nond@")), 204, "ValueNotRecognized", "ValueNotRecognized"
    ),
    "MessageId twice": Bad(
        change(("<MessageId>", "<MessageId>a@b</MessageId><MessageId>")), 204, "NotWellFormed", "NotWellFormed"
    ),
    "payload named and missing": Bad(
        change(("<DocumentId>cid:", "<DocumentId>cid:not-")), 204, "MimeProblem", "MimeProblem"
    ),
    "damaged base64": Bad(
        change(("\r\n\r\n<Order/>", "\r\nContent-Transfer-Encoding: base64\r\n\r\n<Order/>")),
        204,
        "MimeProblem",
        "MimeProblem",
    ),
    "unknown transfer encoding": Bad(
        change(("\r\n\r\n<Order/>", "\r\nContent-Transfer-Encoding: x-mine\r\n\r\n<Order/>")),
        204,
        "MimeProblem",
        "MimeProblem",
    ),
    "1,000 RoutingHeaders": Bad(
        change(("  <RoutingHeader>", "<RoutingHeader/>" * 1000 + "<RoutingHeader>")),
        204,
        "NotSupported",
        "NotSupported",
    ),
}

CASES = UNREADABLE | UNKNOWN_SENDER | AGAINST_THE_RULES


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_and_harms_nothing(scene: Scene, name: str) -> None:
    case = CASES[name]
    partner = scene.partner
    assert post(partner.message(1, "first@partner.example")).status_code == 204
    with link():
        work()  # the acknowledgement of number 1 is out, so that what follows is the bad message's alone
    before, pair, events = stored(), partner.inbound, Event.objects.filter(type="message.received").count()
    bad = case.make(scene)

    answer = post(bad)

    assert (answer.status_code, answer.content) == (case.status, b"")
    assert answer.get("Content-Length", "0") == "0"
    assert ("WWW-Authenticate" in answer) == (case.status == 401)
    rejection = Rejection.objects.get()
    assert (rejection.reason, rejection.http_status) == (case.reason, case.status)
    assert rejection.detail
    assert rejection.size == len(bad.body)
    assert bytes(rejection.sample) == bad.body[:4096]
    assert stored() == before, "nothing of it is stored, and the accepted message is as it was"
    assert Payload.objects.count() == 1
    assert Event.objects.filter(type="message.received").count() == events
    now = partner.inbound
    assert (now.last_sequence, now.last_message_id, now.done) == (pair.last_sequence, pair.last_message_id, pair.done)
    _owes(scene, case.code, bad)

    assert post(scene.next()).status_code == 204
    assert partner.inbound.last_sequence == 2
    assert Message.objects.filter(message_id="second@partner.example", state="received").exists()


def _owes(scene: Scene, code: str, bad: Arrival) -> None:
    """The Error message that goes to the partner's error address, or none at all; never an acknowledgement."""
    with link() as wire:
        work()
    if not code:
        assert wire.parcels == []
        return
    [parcel] = wire.parcels
    error = decoded(parcel)
    assert parcel.address == "https://msh.bad.example/errors"
    assert error.message_type is MessageType.ERROR
    assert error.error is not None
    assert error.error.code == code
    assert error.error.description
    assert error.hop.receiver_uri == "https://msh.bad.example/errors"
    assert error.ref_to_message_id == ebxml.decode(bad.content_type, bad.body).message_id
    signal = Signal.objects.get(kind=SignalKind.ERROR)
    assert (signal.state, signal.error_code) == (SignalState.SENT, code)


@pytest.mark.parametrize("name", ["wrong SenderURI", "sequence 0", "broken xml", "no credential"])
def test_the_entrance_for_errors_is_as_strict(scene: Scene, name: str) -> None:
    case = CASES[name]
    answer = post(case.make(scene), ERRORS)
    assert (answer.status_code, answer.content) == (case.status, b"")
    assert Rejection.objects.get().reason == case.reason
    assert not Message.objects.exists()


@pytest.mark.parametrize("name", ["unknown agreement", "wrong ReceiverURI", "sequence with a gap"])
def test_what_is_against_the_rules_is_refused_each_time_it_comes(scene: Scene, name: str) -> None:
    bad = AGAINST_THE_RULES[name].make(scene)
    assert [post(bad).status_code for _ in range(2)] == [204, 204]
    assert Rejection.objects.count() == Signal.objects.filter(kind=SignalKind.ERROR).count() == 2


def test_an_action_outside_the_agreement_is_refused(scene: Scene) -> None:
    partner = partner_side(make_agreement(allowed=[("urn:orders", "CancelOrder", "both"), ("urn:x", "*", "send")]))
    assert post(partner.message(1)).status_code == 204
    assert post(partner.message(1, service="urn:x", action="y")).status_code == 204
    assert list(Rejection.objects.values_list("reason", flat=True)) == ["ValueNotRecognized"] * 2
    assert not Message.objects.exists()
    assert post(partner.message(1, action="CancelOrder")).status_code == 204
    assert Message.objects.get().action == "CancelOrder"


def test_a_message_larger_than_its_agreement_allows(scene: Scene) -> None:
    partner = partner_side(max_message_bytes=2048)
    big = b"x" * (2048 + Limits().header_document)
    answer = post(partner.message(1, content=big))
    assert (answer.status_code, answer.content) == (413, b"")
    assert Rejection.objects.get().reason == "message_too_large"
    assert post(partner.message(1, content=b"x" * 2048)).status_code == 204


def test_an_agreement_that_is_disabled_takes_nothing_more(scene: Scene) -> None:
    services.agreement_disable(agreement=Agreement.objects.get(pk=scene.partner.terms.agreement_id))
    registry.reset()
    answer = post(scene.partner.message(1))
    assert (answer.status_code, Rejection.objects.get().reason) == (403, "unknown_agreement")
    assert not Signal.objects.exists(), "there is no other agreement under which an Error could go out"


def test_names_that_a_database_cannot_hold_are_made_storable(scene: Scene) -> None:
    """Content types, file names and labels are the partner's: they are cut and cleaned, and never a crash."""
    arrival = edited(
        scene.partner.message(1),
        (
            "Content-Type: application/xml\r\n",
            "Content-Type: application/xml; name*=utf-8''%00; charset=\x00\r\n"
            f"Content-Disposition: attachment; filename*=utf-8''%00{'%C3%A9' * 400}.xml\r\n",
        ),
        ("<DocumentLabel>Order<", f"<DocumentLabel>{'L' * 500}<"),
    )
    assert post(arrival).status_code == 204
    payload = Payload.objects.get()
    assert len(payload.filename) <= 255
    assert "\x00" not in payload.filename + payload.content_type
    assert len(payload.label) == 120


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/related; boundary=b\x00",
        "multipart/related; boundary=\xff",
        "multipart/related; charset*=utf-8'; boundary=b",
        "multipart/related; a*0*=x; a*0=y; a*1*=%zz; boundary=b",
        "multipart/related; charset*=''; =; ;; boundary*=b",
        f"multipart/related; x={'x' * 20_000}; boundary=b",
        "; ; ;",
        "=?utf-8?b?AAAA?=",
    ],
)
def test_content_types_that_are_none(scene: Scene, content_type: str) -> None:
    answer = post(replace(scene.next(), content_type=content_type))
    assert (answer.status_code, answer.content) == (400, b"")
    assert post(scene.partner.message(1)).status_code == 204


def test_a_best_effort_message_needs_no_number_and_gets_no_acknowledgement(scene: Scene) -> None:
    assert post(scene.partner.message(None, semantics=Semantics.BEST_EFFORT)).status_code == 204
    assert Message.objects.get().sequence_number is None
    assert not Signal.objects.exists()


def test_other_content_under_a_known_id_is_kept_out_and_a_person_told(scene: Scene) -> None:
    partner = scene.partner
    first = partner.message(1, "same@partner.example", content=b"<Order n='1'/>")
    assert post(first).status_code == 204
    assert post(partner.message(1, "same@partner.example", content=b"<Order n='2'/>")).status_code == 204
    assert bytes(Payload.objects.get().content) == b"<Order n='1'/>"
    assert Incident.objects.get().cause == "same_id_other_content"
    assert Signal.objects.get(direction=Direction.OUT).owed == 2, "it is acknowledged all the same: it is stored"


def test_one_spoilt_message_does_not_take_its_group_along(scene: Scene) -> None:
    """An item on which the whole group fails is tried alone, and so is each of the others."""
    good = scene.partner.message(1, "good@partner.example")
    write = accepting._write

    def fails_for_poison(batch: accepting.Batch, *rest: object) -> None:
        if any(message.message_id.startswith("poison") for message in batch.messages):
            raise RuntimeError("poison")
        write(batch, *rest)

    with mock.patch.object(accepting, "_write", fails_for_poison):
        with pytest.raises(RuntimeError):
            scene.stranger.send(scene.stranger.message(1, "poison@partner.example"))
        assert post(good).status_code == 204
    assert [message_id for message_id, *_ in stored()] == ["good@partner.example"]
