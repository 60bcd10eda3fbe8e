"""Octets as they are stored: compressed, and the same again when they are read (`models.base.OctetsField`).

What messages of one kind have in common makes up most of a frame, and all of it is the same in each of millions of
rows. So they are deflated with what such octets usually hold as a dictionary (RFC 1950, "preset dictionary").
"""

from __future__ import annotations

import zlib

# The first octet of what is stored: how the others are to be read.
_AS_IT_IS, _WITH_DICTIONARY_1 = b"\x00", b"\x01"
_RAW = -15  # deflate without a header: the column says what it is

# What ebXML messages look like, in the order of a message; what comes most often is nearest to the end.
# What is stored can be read with the very same dictionary only: change nothing here, add a further one.
_DICTIONARY_1 = (
    b'Content-Disposition: attachment; filename="orders.edi"\r\n'
    b'Content-Type: application/edifact\r\nContent-Type: application/json\r\nContent-Type: text/plain; charset="UTF-8"'
    b'Content-Type: application/xml; charset="UTF-8"\r\nContent-Length: 113\r\n\r\n'
    b"<Error><ErrorCode>InvalidSequenceNumber</ErrorCode><Severity>Transient</Severity><Severity>Error</Severity>"
    b'<ErrorDescription xml:lang="en"></ErrorDescription><MinRetrySecs>60</MinRetrySecs></Error>\r\n'
    b'        <PartyId context="URI">https://</PartyId>\r\n'
    b'      <DocumentDescription xml:lang="en"></DocumentDescription>\r\n'
    b'MessageType="Error">\r\n  <Header>\r\n    <From><PartyId context="GLN">\r\n'
    b"      <DeliverySemantics>AtMostOnce</DeliverySemantics>\r\n"
    b"      <RefToMessageId>ack-01a2169b0@</RefToMessageId>\r\n    </MessageData>\r\n    <ReliableMessagingInfo>\r\n"
    b"      <DeliverySemantics>BestEffort</DeliverySemantics>\r\n    </ReliableMessagingInfo>\r\n  </Header>\r\n"
    b'Version="0.21" MessageType="Acknowledgement">\r\n  <Header>\r\n    <From><PartyId context="URI">http://127.0.0.1:/'
    b'ebxml/msh</PartyId></From>\r\n    <To><PartyId context="URI">https://.example/ebxml</PartyId></To>\r\n'
    b"    <TPAInfo>\r\n      <TPAId>tpa:</TPAId>\r\n      <ConversationId>conv-01a2169b0@</ConversationId>\r\n"
    b"      <ServiceInterface></ServiceInterface>\r\n      <Action></Action>\r\n    </TPAInfo>\r\n    <MessageData>\r\n"
    b"      <MessageId>ack-01a2169b0"
    b"\x00\x02\x00\x00\x07\x00\x00\x00\x34--rm080-01a2169b0\r\nContent-ID: <hdr.01a2169b0@.example>\r\n"
    b'Content-Type: application/vnd.eb+xml; version="0.21"; charset="UTF-8"\r\nContent-Length: 1348\r\n\r\n'
    b'<?xml version="1.0" encoding="UTF-8"?>\r\n<ebXMLHeader xmlns="http://www.ebxml.org/namespaces/messageHeader" '
    b'Version="0.21" MessageType="Normal">\r\n  <Manifest>\r\n    <DocumentReference>\r\n'
    b"      <DocumentLabel>Document</DocumentLabel>\r\n      <DocumentId>cid:p1.01a2169b0@</DocumentId>\r\n"
    b"    </DocumentReference>\r\n  </Manifest>\r\n  <Header>\r\n"
    b'    <From><PartyId context="DUNS">000000001</PartyId></From>\r\n'
    b'    <To><PartyId context="DUNS">000000002</PartyId></To>\r\n    <TPAInfo>\r\n      <TPAId>tpa:</TPAId>\r\n'
    b"      <ConversationId>conv-01a2169b0@</ConversationId>\r\n      <ServiceInterface>urn:</ServiceInterface>\r\n"
    b"      <Action>NewOrder</Action>\r\n    </TPAInfo>\r\n    <MessageData>\r\n      <MessageId>01a2169b0@"
    b"</MessageId>\r\n      <TimeStamp>20261126T120000.000Z</TimeStamp>\r\n    </MessageData>\r\n"
    b"    <ReliableMessagingInfo>\r\n"
    b"      <DeliverySemantics>OnceAndOnlyOnce</DeliverySemantics>\r\n    </ReliableMessagingInfo>\r\n  </Header>\r\n"
    b"  <RoutingHeader>\r\n    <SenderURI>http://127.0.0.1:/ebxml/msh</SenderURI>\r\n"
    b"    <ReceiverURI>https://.example/ebxml/msh</ReceiverURI>\r\n"
    b"    <ErrorURI>https://.example/ebxml/errors</ErrorURI>\r\n    <Timestamp>20261126T120000.000Z</Timestamp>\r\n"
    b"    <SequenceNumber>000000001</SequenceNumber>\r\n  </RoutingHeader>\r\n</ebXMLHeader>\r\n\r\n"
    b"--rm080-01a2169b0\r\nContent-ID: <p1.01a2169b0@.example>\r\n"
    b'Content-Disposition: attachment; filename="order.xml"\r\n'
    b"Content-Type: application/xml\r\nContent-Length: 4096\r\n\r\n\r\n--rm080-01a2169b0--\r\n"
)
_COMPRESSOR = zlib.compressobj(6, zlib.DEFLATED, _RAW, 8, zlib.Z_DEFAULT_STRATEGY, _DICTIONARY_1)


class OctetsDamaged(ValueError):
    """What is stored is not what was stored."""


def pack(octets: bytes | memoryview) -> bytes:
    """What is stored of these octets: at most one more than they are."""
    once = _COMPRESSOR.copy()  # it has read the dictionary already
    found = once.compress(octets) + once.flush()
    return _WITH_DICTIONARY_1 + found if len(found) < len(octets) else _AS_IT_IS + bytes(octets)


def unpack(stored: bytes | memoryview) -> bytes:
    """The octets that were packed. Raises OctetsDamaged."""
    data = bytes(stored)
    if data[:1] == _AS_IT_IS:
        return data[1:]
    if data[:1] != _WITH_DICTIONARY_1:
        raise OctetsDamaged("it does not begin as stored octets do")
    reader = zlib.decompressobj(_RAW, _DICTIONARY_1)
    try:
        found = reader.decompress(data[1:])
    except zlib.error as error:
        raise OctetsDamaged(str(error)) from error
    if not reader.eof or reader.unused_data:
        raise OctetsDamaged("it does not end where it should")
    return found
