"""Causes of mail: rows of `messaging.causes`."""

from __future__ import annotations

from messaging.causes.cause import Row
from rmhub.language import gettext_lazy as _

MAIL: tuple[Row, ...] = (
    (
        "mail_not_set_up",
        _("Mail is not set up"),
        _("No mail server is named for this endpoint, or a URI of the agreement is not a mail address."),
        _("Enter a mail server in the endpoint or set RMHUB_SMTP_RELAY, and give both endpoints mailto: URIs."),
        False,
    ),
    (
        "smtp_4xx",
        _("Mail server: temporary failure"),
        _("The mail server could not take the mail for the moment (SMTP 4yz)."),
        _("It is retried by itself. If it goes on, read its answer: a full mailbox and greylisting are usual."),
        True,
    ),
    (
        "smtp_5xx",
        _("Mail server: permanent failure"),
        _("The mail server has refused the mail permanently (SMTP 5yz)."),
        _(
            "Read its answer: usually the address is unknown there, or the mail is too large. Correct the endpoint, or "
            "ask the server's operator."
        ),
        False,
    ),
    (
        "smtp_auth",
        _("Log-in to the mail server refused"),
        _("The mail server does not accept our log-in, or wants one that we have not stored."),
        _(
            "Compare the partner's outbound credential, or the user name of RMHUB_SMTP_RELAY, with what the server's "
            "owner has for us."
        ),
        False,
    ),
    (
        "starttls_unavailable",
        _("No encryption offered"),
        _("The mail server does not offer STARTTLS, so the mail was not sent."),
        _("Ask its owner to switch it on. In a network of your own, smtp:// sends without encryption."),
        False,
    ),
    (
        "mail_bounced",
        _("Mail bounced"),
        _("A mail server accepted the mail, and reported later that it could not be delivered."),
        _(
            "Read what it says in the message's timeline: usually the mailbox is unknown or full. The message is "
            "retried."
        ),
        True,
    ),
    (
        "mailbox_failed",
        _("Mailbox: server failed"),
        _("The mail server answered a command with an error, or in a way that the hub does not understand."),
        _("It is tried again by itself. If it goes on, read what the server says, and ask its owner."),
        True,
    ),
)
REFUSALS: dict[str, str] = {
    "sender_unproved": _("The mail's sender is not authenticated"),
    "bounce_unknown": _("A report about an unknown mail"),
    "not_a_report": _("A mail server's report that cannot be read"),
}
