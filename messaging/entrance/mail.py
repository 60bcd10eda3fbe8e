"""A mail that came in, by SMTP or from a mailbox: a message of a partner, or a report about a mail of ours.

Both entrances call `take` with what they know of the sender; it commits before it returns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from messaging.entrance.refusals import Arrival, refuse
from messaging.profiles.ebxml import bounces
from messaging.profiles.ebxml.receiving import receive
from messaging.protocol.codecs.mail import Mail, entity
from messaging.protocol.codecs.mail_report import Report, read_report
from messaging.protocol.errors import NotAMessage
from messaging.protocol.limits import Limits
from partners.choices import Transport
from partners.terms import Presented, Principal
from rmhub import clock

TOO_EARLY = 425


@dataclass(frozen=True, slots=True)
class Taken:
    """`status` as `receiving.receive` has it: 204 = done with; 400, 401, 403, 413 = refused for good, and written down;
    425 = later. `sentence` says why, for the other side."""

    status: int
    sentence: str = ""


def take(mail: Mail, *, principal: Principal | None, remote_address: str, limits: Limits) -> Taken:
    """Takes one mail. `principal`: who has sent it, proved; None for a mail that nobody vouches for.

    Raises what the database raises when nothing could be stored.
    """
    arrival = Arrival("", mail.octets, Presented(), remote_address, Transport.SMTP)
    try:
        report = read_report(mail, limits)
        if report is not None:
            return _report(report, arrival, principal)
        if principal is None:
            sentence = "Nobody that we trust has checked who sent it, or its sender is no partner."
            return Taken(refuse(arrival, 401, "sender_unproved", f"{sentence} {_from(mail)}"), sentence)
        content_type, body = entity(mail, limits)
    except NotAMessage as error:
        status = refuse(arrival, 400, error.reason, error.detail, principal=principal)
        return Taken(status, error.detail)
    arrival = replace(arrival, content_type=content_type[:1000], body=body)
    if len(body) > limits.body:
        sentence = f"More than {limits.body} bytes."
        return Taken(refuse(arrival, 413, "body_too_large", sentence, principal=principal), sentence)
    return Taken(receive(arrival, limits=limits, principal=principal))


def _report(report: Report, arrival: Arrival, principal: Principal | None) -> Taken:
    try:
        if bounces.take(report, arrival.body, clock.now()):
            return Taken(204)
    except bounces.TooEarly:
        return Taken(TOO_EARLY, "The mail that this is about is still being recorded.")
    sentence = "The report is about no mail of ours."
    detail = f"{sentence} {report.action}: {report.diagnostic}"
    refuse(arrival, 204, "bounce_unknown", detail, principal=principal)
    return Taken(204)


def _from(mail: Mail) -> str:
    return f"From: {mail.first('from')[:200]}"
