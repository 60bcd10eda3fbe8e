"""A partner that we reach by mail, and mails as it writes them."""

from __future__ import annotations

import base64
import smtplib
import ssl
from dataclasses import dataclass

from messaging.entrance.refusals import Arrival
from messaging.entrance.smtp_server import Options
from messaging.protocol.codecs.mail import Heading, write_mail
from partners.terms import Presented
from rmhub import clock
from tests.messaging.entrance.mail.servers import Certificates, Relay, Running
from tests.messaging.factories import PartnerSide, partner_side
from tests.partners.factories import make_agreement, make_endpoint, make_party

OURS, OUR_ERRORS = "orders@us.example", "errors@us.example"
THEIRS, THEIR_ERRORS = "msh@partner.example", "errors@partner.example"


def mail_partner(relay: Relay | None = None, **terms: object) -> PartnerSide:
    """The partner of a new agreement by mail; what we send goes to `relay`."""
    own, partner = make_party(own=True), make_party()
    server = f"smtp://127.0.0.1:{relay.port}" if relay else ""
    version = make_agreement(
        own_endpoint=make_endpoint(own, f"mailto:{OURS}", error_uri=f"mailto:{OUR_ERRORS}", transport="smtp"),
        partner_endpoint=make_endpoint(
            partner, f"mailto:{THEIRS}", error_uri=f"mailto:{THEIR_ERRORS}", transport="smtp", server=server
        ),
        **terms,
    )
    return partner_side(version)


def mail_of(arrival: Arrival, *, sender: str = THEIRS, recipient: str = OURS, message_id: str = "m@partner") -> bytes:
    """The arrival as the partner's own hub mails it."""
    heading = Heading(sender, recipient, message_id, clock.now())
    return write_mail(heading, arrival.content_type, arrival.body)


def password_of(presented: Presented) -> tuple[str, str]:
    """User name and password of a Basic credential."""
    user, _, password = base64.b64decode(presented.authorization.removeprefix("Basic ")).decode().partition(":")
    return user, password


@dataclass(slots=True)
class Client:
    """smtplib as a partner's mail server uses it."""

    smtp: smtplib.SMTP

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.smtp.close()

    def transaction(
        self, octets: bytes, *, sender: str = THEIRS, recipients: tuple[str, ...] = (OURS,)
    ) -> tuple[int, str]:
        """MAIL, RCPT, DATA: the first answer that is no success, else the last."""
        answers = [self.smtp.mail(sender)]
        for recipient in recipients:
            if answers[-1][0] < 300:
                answers.append(self.smtp.rcpt(recipient))
        if answers[-1][0] < 300:
            answers.append(self.smtp.data(octets))
        else:
            self.smtp.rset()
        code, text = answers[-1]
        return code, text.decode()


def client(
    running: Running, *, tls: Certificates | None = None, login: tuple[str, str] | None = None, plain: bool = False
) -> Client:
    """Connects to our entrance; with STARTTLS and a log-in when they are given."""
    smtp = smtplib.SMTP("127.0.0.1", running.port, local_hostname="partner.example", timeout=120)
    try:
        _prepare(smtp, tls, login, plain)
    except smtplib.SMTPException:
        smtp.close()
        raise
    return Client(smtp)


def _prepare(smtp: smtplib.SMTP, tls: Certificates | None, login: tuple[str, str] | None, plain: bool) -> None:
    smtp.ehlo()
    if tls is not None:
        context = ssl.create_default_context(cafile=str(tls.ca))
        smtp._host = "localhost"  # type: ignore[attr-defined]
        smtp.starttls(context=context)
        smtp.ehlo()
    if login is not None:
        smtp.user, smtp.password = login
        smtp.auth("PLAIN" if plain else "LOGIN", smtp.auth_plain if plain else smtp.auth_login)


def options(**changes: object) -> Options:
    """The entrance's options, with a relay on loopback trusted unless `relays` says otherwise."""
    import ipaddress

    fields: dict[str, object] = {
        "name": "hub.example",
        "max_message_bytes": 1024 * 1024,
        "relays": (ipaddress.ip_network("127.0.0.0/8"),),
        **changes,
    }
    return Options(**fields)  # type: ignore[arg-type]
