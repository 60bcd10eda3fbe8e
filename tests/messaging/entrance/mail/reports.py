"""Delivery status notifications as mail servers write them (RFC 3464, appendix A)."""

from __future__ import annotations


def report(
    message_id: str = "",
    *,
    action: str = "failed",
    status: str = "5.1.1",
    diagnostic: str = "smtp; 550 5.1.1 <msh@partner.example>: no such user",
    envelope_id: str = "",
    recipient: str = "orders@us.example",
    more: str = "",
) -> bytes:
    """A report about the mail with this Message-ID (in the returned headers), or this envelope id."""
    envelope = f"Original-Envelope-Id: {envelope_id}\r\n" if envelope_id else ""
    original = (
        "--b\r\nContent-Type: text/rfc822-headers\r\n\r\n"
        f"From: orders@us.example\r\nMessage-ID: <{message_id}>\r\nSubject: ebXML Message\r\n\r\n"
        if message_id
        else ""
    )
    return (
        "Return-Path: <>\r\n"
        "From: MAILER-DAEMON@relay.example (Mail Delivery System)\r\n"
        f"To: {recipient}\r\n"
        "Subject: Undelivered Mail Returned to Sender\r\n"
        f"{more}"
        "MIME-Version: 1.0\r\n"
        'Content-Type: multipart/report; report-type=delivery-status;\r\n\tboundary="b"\r\n\r\n'
        "This is a MIME-encapsulated message.\r\n\r\n"
        "--b\r\nContent-Type: text/plain\r\n\r\nI'm sorry to have to inform you ...\r\n\r\n"
        "--b\r\nContent-Type: message/delivery-status\r\n\r\n"
        f"Reporting-MTA: dns; relay.example\r\n{envelope}Arrival-Date: Sun, 1 Mar 2026 09:00:00 +0000\r\n\r\n"
        "Final-Recipient: rfc822; msh@partner.example\r\n"
        f"Action: {action}\r\nStatus: {status}\r\nDiagnostic-Code: {diagnostic}\r\n\r\n"
        f"{original}--b--\r\n"
    ).encode()
