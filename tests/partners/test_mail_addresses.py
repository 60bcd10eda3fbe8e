"""mailto: URIs and mail servers, as endpoints have them."""

from __future__ import annotations

import pytest

from partners import services
from partners.addresses import host_of, mailbox, normalise_uri
from partners.exceptions import InvalidInput
from partners.transports import SMTP, mail_server, uri_fault
from tests.partners.factories import make_agreement, make_endpoint, make_party


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("mailto:orders@partner.example", None),
        ("MAILTO:Orders+edi@Partner.example", None),
        ("mailto:a%2Bb@partner.example", None),
        ("", "uri_missing"),
        ("https://partner.example/msh", "uri_scheme"),
        ("orders@partner.example", "uri_scheme"),
        ("mailto://orders@partner.example", "uri_mailbox"),
        ("mailto:orders", "uri_mailbox"),
        ("mailto:", "uri_mailbox"),
        ("mailto:@partner.example", "uri_mailbox"),
        ("mailto:a@b@c", "uri_mailbox"),
        ("mailto:a@b,c@d", "uri_mailbox"),
        ("mailto:a%0D%0ABcc:x@partner.example", "uri_mailbox"),
        ("mailto:a@partner..example", "uri_mailbox"),
        ("mailto:a@-partner.example", "uri_mailbox"),
        ("mailto:" + "a" * 250 + "@partner.example", "uri_mailbox"),
        ("mailto:orders@partner.example?subject=x", "uri_fields"),
        ("mailto:orders@partner.example#x", "uri_fields"),
        ("mailto:order desk@partner.example", "uri_characters"),
        ("mailto:bestellung@größe.example", "uri_characters"),
    ],
)
def test_what_is_wrong_with_a_mail_address(uri: str, code: str | None) -> None:
    fault = uri_fault(uri, "smtp")
    assert (fault and fault[0]) == code
    if fault:
        assert len(fault[1]) > 30 and fault[1].endswith(".")
    assert bool(mailbox(uri)) is (code is None)


def test_domains_know_no_capitals_and_local_parts_may() -> None:
    assert normalise_uri(" MAILTO:Orders@Partner.EXAMPLE ") == "mailto:Orders@partner.example"
    assert mailbox("mailto:Or%64ers@Partner.EXAMPLE") == "Orders@partner.example"


@pytest.mark.parametrize(
    ("uri", "host"),
    [
        ("mailto:a@Mail.example", "mail.example"),
        ("https://Msh.example:8443/x", "msh.example"),
        ("urn:x", ""),
        ("http://[::1", ""),
    ],
)
def test_the_host_of_a_uri(uri: str, host: str) -> None:
    assert host_of(uri) == host


def test_servers_have_the_usual_ports_and_percent_encoded_passwords() -> None:
    server = mail_server("smtp+starttls://hub%40us:p%3Aw%2F@Relay.example")
    assert (server.scheme, server.host, server.port) == ("smtp+starttls", "relay.example", 587)
    assert (server.username, server.password) == ("hub@us", "p:w/")
    assert "p:w" not in repr(server)
    assert [mail_server(f"{scheme}://a").port for scheme in ("smtp", "smtps")] == [25, 465]
    assert mail_server("smtp://a:2525/").port == 2525


@pytest.mark.parametrize(
    ("server", "code"),
    [
        ("", None),
        ("smtp+starttls://relay.example", None),
        ("smtps://relay.example:4650", None),
        ("relay.example", "server_malformed"),
        ("https://relay.example", "server_malformed"),
        ("smtps://", "server_malformed"),
        ("smtps://relay.example/x", "server_malformed"),
        ("smtps://relay.example:0", "server_malformed"),
        ("smtps://relay.example:99999", "server_malformed"),
        ("smtps://hub:secret@relay.example", "server_userinfo"),
    ],
)
def test_what_is_wrong_with_a_mail_server(server: str, code: str | None) -> None:
    fault = SMTP.server_fault(server)
    assert (fault and fault[0]) == code
    assert "secret" not in str(fault)


@pytest.mark.django_db
def test_an_endpoint_says_what_is_wrong_with_its_mail_address_and_server() -> None:
    party = make_party()
    with pytest.raises(InvalidInput) as caught:
        make_endpoint(party, "https://partner.example", transport="smtp")
    assert "mailto:orders@partner.example" in str(caught.value.errors)
    with pytest.raises(InvalidInput) as caught:
        make_endpoint(party, "mailto:a@partner.example", transport="smtp", server="smtps://u:pw@relay.example")
    assert "credential" in str(caught.value.errors["server"])
    assert "pw" not in str(caught.value.errors)


@pytest.mark.django_db
def test_two_spellings_of_one_mailbox_are_one_endpoint() -> None:
    make_endpoint(make_party(), "mailto:orders@partner.example", transport="smtp")
    with pytest.raises(InvalidInput):
        make_endpoint(make_party(), "mailto:orders@PARTNER.example", transport="smtp")


@pytest.mark.django_db
def test_a_timeout_for_mail_is_no_matter_of_seconds() -> None:
    version = make_agreement(
        own_endpoint=make_endpoint(make_party(own=True), "mailto:a@us.example", transport="smtp"),
        partner_endpoint=make_endpoint(make_party(), "mailto:b@them.example", transport="smtp"),
        activate=False,
        timeout=299,
    )
    assert [problem.code for problem in services.version_validate(version=version)] == ["mail_timeout_short"]
