"""Causes of mail: rows of `messaging.causes`."""

from __future__ import annotations

from messaging.causes.cause import Row

MAIL: tuple[Row, ...] = (
    (
        "mail_not_set_up",
        "Mail is not set up",
        "No mail server is named for this endpoint, or a URI of the agreement is not a mail address.",
        "Enter a mail server in the endpoint or set RMHUB_SMTP_RELAY, and give both endpoints mailto: URIs.",
        False,
    ),
    (
        "smtp_4xx",
        "Mail server: temporary failure",
        "The mail server could not take the mail for the moment (SMTP 4yz).",
        "It is retried by itself. If it goes on, read its answer: a full mailbox and greylisting are usual.",
        True,
    ),
    (
        "smtp_5xx",
        "Mail server: permanent failure",
        "The mail server has refused the mail permanently (SMTP 5yz).",
        "Read its answer: usually the address is unknown there, or the mail is too large. Correct the endpoint, or ask "
        "the server's operator.",
        False,
    ),
    (
        "smtp_auth",
        "Log-in to the mail server refused",
        "The mail server does not accept our log-in, or wants one that we have not stored.",
        "Compare the partner's outbound credential, or the user name of RMHUB_SMTP_RELAY, with what the server's owner "
        "has for us.",
        False,
    ),
    (
        "starttls_unavailable",
        "No encryption offered",
        "The mail server does not offer STARTTLS, so the mail was not sent.",
        "Ask its owner to switch it on. In a network of your own, smtp:// sends without encryption.",
        False,
    ),
    (
        "mail_bounced",
        "Mail bounced",
        "A mail server accepted the mail, and reported later that it could not be delivered.",
        "Read what it says in the message's timeline: usually the mailbox is unknown or full. The message is retried.",
        True,
    ),
    (
        "mailbox_failed",
        "Mailbox: server failed",
        "The mail server answered a command with an error, or in a way that the hub does not understand.",
        "It is tried again by itself. If it goes on, read what the server says, and ask its owner.",
        True,
    ),
)
REFUSALS: dict[str, str] = {
    "sender_unproved": "The mail's sender is not authenticated",
    "bounce_unknown": "A report about an unknown mail",
    "not_a_report": "A mail server's report that cannot be read",
}
