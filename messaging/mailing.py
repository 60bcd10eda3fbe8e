"""Mail to people, by the mail server that the settings name. Documents never go this way."""

from __future__ import annotations

import smtplib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from messaging.transports.base import printable
from partners.transports import MailServer, mail_server

TIMEOUT = 10  # seconds for each step of the talk with the mail server


def is_set_up() -> bool:
    """Whether the settings name a mail server."""
    return bool(settings.RMHUB_MAIL_SERVER or settings.RMHUB_SMTP_RELAY)


def send(to: Sequence[str], subject: str, body: str, headers: Mapping[str, str] = MappingProxyType({})) -> str:
    """Sends one mail to all of these addresses; without the database. Returns why it was not sent, "" if it was."""
    try:
        server = _server()
    except ValueError as error:
        return str(error)
    message = EmailMessage(
        subject=subject,
        body=body,
        from_email=settings.RMHUB_MAIL_FROM,
        to=list(to),
        headers={"Auto-Submitted": "auto-generated", **headers},
        connection=_connection(server),
    )
    try:
        message.send()
    except smtplib.SMTPRecipientsRefused as error:
        refused = ", ".join(f"{address}: {said[0]}" for address, said in error.recipients.items())
        return printable(f"The mail server refused the recipients ({refused}).")
    except smtplib.SMTPException as error:
        return printable(f"The mail server did not take it: {error}")
    except (OSError, ValueError) as error:
        return printable(f"The mail server could not be reached: {error}")
    return ""


def _server() -> MailServer:
    """Raises ValueError with a sentence for people."""
    url = settings.RMHUB_MAIL_SERVER or settings.RMHUB_SMTP_RELAY
    if not url:
        raise ValueError("No mail server is set up: RMHUB_MAIL_SERVER or RMHUB_SMTP_RELAY names one.")
    server = mail_server(url)
    if server.username and (refused := server.login_refusal()):
        raise ValueError(refused)
    return server


def _connection(server: MailServer) -> Any:
    """Certificates are checked by the backend; each step has its own time limit."""
    return get_connection(
        host=server.host,
        port=server.port,
        username=server.username,
        password=server.password,
        use_tls=server.starttls,
        use_ssl=server.tls,
        timeout=TIMEOUT,
    )
