"""The codec of the ebms2 profile: bytes to Envelope and back (OASIS ebXML Messaging 2.0; wire-ebxml 3).

    decode           tolerant reader (ebms2_reader; its elements are in ebms2_parts, the rules of SOAP in ebms2_soap)
    soap_of, digests_of                   what a signature is over, and what it says of that
    encode           strict writer; soap_document and enclose are its two steps, between which a message is signed
    acknowledgement, error_message, status_request, status_response, ping, pong      the signals (ebms2_answers)

It is the only place that knows how a message of this profile looks on the wire. A message is one of the kinds of
`Ebms2Kind`; status and ping are Normal messages to all that knows only `MessageType`, because they may be answered with
an error.
"""

from __future__ import annotations

from messaging.protocol.codecs.ebms2_answers import (
    acknowledgement,
    error_message,
    may_answer_with_error,
    ping,
    pong,
    status_request,
    status_response,
)
from messaging.protocol.codecs.ebms2_lexical import SERVICE, SOAP_ACTION, VERSION
from messaging.protocol.codecs.ebms2_reader import decode, digests_of, soap_of
from messaging.protocol.codecs.ebms2_writer import enclose, encode, soap_document

__all__ = [
    "SERVICE",
    "SOAP_ACTION",
    "VERSION",
    "acknowledgement",
    "decode",
    "digests_of",
    "enclose",
    "encode",
    "error_message",
    "may_answer_with_error",
    "ping",
    "pong",
    "soap_document",
    "soap_of",
    "status_request",
    "status_response",
]
