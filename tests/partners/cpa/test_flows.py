"""An agreement as each of its parties sees it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from partners.cpa.channels import Requirement
from partners.cpa.flows import Flow, Semantics, View, seen_from
from partners.cpa.reading import read
from tests.partners.cpa import ALL, BEST_EFFORT, NAV, NOW, RELIABLE, changed, octets, reading


def named(flows: tuple[Flow, ...]) -> list[tuple[str, str]]:
    return [(flow.service, flow.action) for flow in flows]


def view(name: str, party_id: str, party_type: str = "") -> View:
    return seen_from(reading(name).cpa, party_id, party_type)


def test_what_a_party_sends_goes_to_the_channel_of_the_other() -> None:
    overheid = view(RELIABLE, "00000000000000000001", "urn:osb:oin")
    assert (overheid.us.name, overheid.them.name) == ("Overheid", "Logius")
    assert named(overheid.sends) == [
        ("osb:afleveren:1.1$1.0", "bevestigAfleveren"),
        ("osb:aanleveren:1.1$1.0", "aanleveren"),
    ]
    assert named(overheid.receives) == [
        ("osb:afleveren:1.1$1.0", "afleveren"),
        ("osb:aanleveren:1.1$1.0", "bevestigAanleveren"),
    ]
    sent, received = overheid.sends[1], overheid.receives[0]
    assert (sent.uri, sent.error_uri) == ("http://localhost:8888/ebms", "http://localhost:8088/ebms")
    assert (received.uri, received.error_uri) == ("http://localhost:8088/ebms", "http://localhost:8888/ebms")
    assert sent.channel.id.startswith("DIGIPOORT_") and sent.sender_channel.id.startswith("OVERHEID_")
    assert (sent.sender_role.name, sent.receiver_role.name) == ("OVERHEID", "DIGIPOORT")
    assert sent.service_type == "urn:osb:services"
    assert (sent.sent.id, sent.received.id) == ("OVERHEID_S_Aanleveren", "DIGIPOORT_R_Aanleveren")
    assert sent.reliability is not None and sent.reliability.retry_interval == timedelta(minutes=5)
    assert sent.persist_duration == timedelta(minutes=30)


@pytest.mark.parametrize("name", ALL)
def test_what_one_party_sends_the_other_receives(name: str) -> None:
    cpa = reading(name).cpa
    first, second = (seen_from(cpa, party.ids[0].id) for party in cpa.parties)
    assert first.sends == second.receives and first.receives == second.sends
    bindings = [one for role in cpa.parties[0].roles for one in (*role.sends(), *role.receives())]
    assert len(first.sends) + len(first.receives) == len(bindings) > 0


def test_nav_mail_and_http() -> None:
    nav = view(NAV, "79768", "HER")
    assert nav.them.name == "SPEARE AS, flytitnhndevelop"
    asked = next(flow for flow in nav.receives if flow.service == "HarBorgerFrikort")
    assert (asked.action, asked.uri) == ("EgenandelForesporsel", "https://nhn-gw-q.nav.no:9443/ebxml/msh")
    assert (asked.sender_role.name, asked.receiver_role.name) == ("Behandler", "Frikortregister")
    told = next(flow for flow in nav.sends if flow.service == "DialogmoteInnkalling")
    assert (told.action, told.uri) == ("MoteInnkalling", "mailto:example@example.com")
    assert told.error_uri == "mailto:example2@example.com"
    assert told.semantics is Semantics.AT_LEAST_ONCE
    assert asked.semantics is Semantics.BEST_EFFORT


@pytest.mark.parametrize(
    ("name", "semantics"),
    [
        (BEST_EFFORT, Semantics.BEST_EFFORT),
        (RELIABLE, Semantics.ONCE_AND_ONLY_ONCE),
        ("ebiot-CPAT1.xml", Semantics.BEST_EFFORT),
        ("ebiot-CPAT1-4-I.xml", Semantics.ONCE_AND_ONLY_ONCE),
        ("ebiot-CPAT2-2-1.xml", Semantics.AT_LEAST_ONCE),
        ("ebiot-CPAT5.xml", Semantics.AT_LEAST_ONCE),
    ],
)
def test_semantics(name: str, semantics: Semantics) -> None:
    cpa = reading(name).cpa
    assert {flow.semantics for flow in seen_from(cpa, cpa.parties[0].ids[0].id).sends} == {semantics}


def test_acknowledgements_without_repetition_promise_nothing_more() -> None:
    """Absent ReliableMessaging is best effort, whatever the channel says (wire-ebxml, section 4)."""
    document = changed(BEST_EFFORT, ('ackRequested="never"', 'ackRequested="always"'), times=2)
    (flow, *_) = seen_from(read(document, NOW).cpa, "00000000000000000000").sends
    assert flow.channel.ack_requested is Requirement.ALWAYS
    assert flow.semantics is Semantics.BEST_EFFORT
    document = changed(BEST_EFFORT, ('duplicateElimination="never"', 'duplicateElimination="always"'), times=2)
    (flow, *_) = seen_from(read(document, NOW).cpa, "00000000000000000000").sends
    assert flow.semantics is Semantics.AT_MOST_ONCE


def test_errors_go_to_the_endpoint_for_errors() -> None:
    endpoint = '<tns:Endpoint tns:uri="http://localhost:8888/ebms" tns:type="allPurpose" />'
    errors = '<tns:Endpoint tns:uri="http://localhost/errors" tns:type="error" />'
    cpa = read(changed(RELIABLE, (endpoint, errors + endpoint)), NOW).cpa
    flow = seen_from(cpa, "00000000000000000000").sends[0]
    assert (flow.error_uri, flow.uri) == ("http://localhost/errors", "http://localhost:8088/ebms")
    assert seen_from(cpa, "00000000000000000000").receives[0].uri == "http://localhost:8888/ebms"


def test_the_first_of_several_channels_is_the_default() -> None:
    reliable = "<tns:ChannelId>OVERHEID_defaultDeliveryChannel_ProfileReliableMessaging</tns:ChannelId>"
    other = "<tns:ChannelId>OVERHEID_defaultDeliveryChannel_ProfileBestEffortSigned</tns:ChannelId>"
    cpa = read(changed(RELIABLE, (reliable, other + reliable), times=4), NOW).cpa
    flow = seen_from(cpa, "00000000000000000000").sends[0]
    assert flow.channel.id == "OVERHEID_defaultDeliveryChannel_ProfileBestEffortSigned"
    assert len(flow.received.channel_ids) == 2


def test_a_synchronous_reply_is_sent_the_other_way() -> None:
    """CanReceive inside of CanSend, and CanSend inside of CanReceive."""
    text = octets(RELIABLE).decode()
    for party, outer, inner in (("DIGIPOORT", "CanSend", "CanReceive"), ("OVERHEID", "CanReceive", "CanSend")):
        start = text.index(f'id="{party}_')
        start = text.index(f"<tns:{inner}>", text.rindex("<tns:PartyInfo", 0, start))
        end = text.index(f"</tns:{inner}>", start) + len(f"</tns:{inner}>")
        moved = text[start:end]
        text = text[:start] + text[end:]
        place = text.index(f"</tns:{outer}>", text.rindex("<tns:ServiceBinding>", 0, start))
        text = text[:place] + moved + text[place:]
    cpa = read(text.encode(), NOW).cpa
    (sending,) = cpa.parties[0].roles[0].can_send
    assert [one.action for one in sending.replies] == ["bevestigAfleveren"]
    assert cpa.parties[0].roles[0].can_receive == ()
    seen = seen_from(cpa, "00000000000000000000")
    assert named(seen.sends)[0] == ("osb:afleveren:1.1$1.0", "afleveren")
    assert named(seen.receives)[0] == ("osb:afleveren:1.1$1.0", "bevestigAfleveren")
    assert len(seen.sends) == len(seen.receives) == 2


def test_what_the_sides_do_not_agree_on_is_not_exchanged() -> None:
    cpa = read(changed(RELIABLE, (">OVERHEID_R_Afleveren<", ">OVERHEID_R_BevestigAanleveren<")), NOW).cpa
    assert named(seen_from(cpa, "00000000000000000000").sends) == [("osb:aanleveren:1.1$1.0", "bevestigAanleveren")]


def test_without_the_id_of_the_other_binding_the_names_decide() -> None:
    document = octets(RELIABLE)
    for name in (b"OVERHEID_R_Afleveren", b"DIGIPOORT_S_Afleveren"):
        document = document.replace(b"<tns:OtherPartyActionBinding>" + name + b"</tns:OtherPartyActionBinding>", b"")
    flow = seen_from(read(document, NOW).cpa, "00000000000000000000").sends[0]
    assert (flow.sent.other_id, flow.received.id) == ("", "OVERHEID_R_Afleveren")


@pytest.mark.parametrize(
    ("party_id", "party_type", "said"),
    [
        ("889640782", "HER", "No party has the id 889640782 (HER)"),
        ("none", "", "No party has the id none in the agreement nav:qass:35065. Its ids: 8141253 (HER) of SPEARE"),
    ],
)
def test_which_party_we_are(party_id: str, party_type: str, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        view(NAV, party_id, party_type)
    assert str(refused.value).startswith(said)


def test_an_id_of_both_parties_needs_its_type() -> None:
    cpa = read(changed(NAV, (">8141253<", ">889640782<")), NOW).cpa
    with pytest.raises(ValueError, match="Both parties have the id 889640782 in"):
        seen_from(cpa, "889640782")
    assert seen_from(cpa, "889640782", "HER").us.name == "SPEARE AS, flytitnhndevelop"
