"""Strict writer of the ebms2 profile (OASIS ebXML Messaging 2.0; valid by msg-header-2_0.xsd and envelope.xsd).

Nothing here depends on the clock or on chance: equal envelopes give equal octets, which are stored once and sent on
every retry. Whoever signs puts the ds:Signature into `soap_document` and encloses that.
"""

from __future__ import annotations

from messaging.protocol import document_ids
from messaging.protocol.codecs import related
from messaging.protocol.codecs.ebms2_lexical import (
    DS,
    EB,
    MAX_ORDER,
    NAMESPACE,
    NEXT,
    PACKAGING,
    SERVICE,
    SOAP,
    VERSION,
    XLINK,
    format_time,
    has_scheme,
    is_base64,
    is_language,
    is_reference,
)
from messaging.protocol.codecs.ebms2_parts import canonical
from messaging.protocol.codecs.mime import content_id_keys, refers_to
from messaging.protocol.codecs.xml import free_text, identifier, parse_document, required
from messaging.protocol.envelope import (
    Acknowledgment,
    Digest,
    DocumentReference,
    Ebms2,
    Ebms2Kind,
    Ebms2Options,
    Envelope,
    ErrorInfo,
    MessageOrder,
    PartyId,
    Semantics,
    StatusReport,
    Wire,
)
from messaging.protocol.errors import EncodeError, NotAMessage, Severity

DEFAULT_OPTIONS = Ebms2Options()

_NAMESPACES = f'xmlns:SOAP="{SOAP}" xmlns:eb="{EB}" xmlns:xlink="{XLINK}" xmlns:ds="{DS}"'
_DUPLICATE_ELIMINATION = "<eb:DuplicateElimination/>\r\n"
_NEVER_ANSWERED = (Ebms2Kind.ACKNOWLEDGMENT, Ebms2Kind.ERROR)


def encode(envelope: Envelope, options: Ebms2Options = DEFAULT_OPTIONS) -> Wire:
    """The octets of `envelope`, ready to be frozen; `Wire.join` takes the payloads' contents in their order.

    Raises EncodeError for an envelope that breaks a rule of its kind, or has a value that the wire cannot carry.
    """
    return enclose(envelope, soap_document(envelope, options), options)


def enclose(envelope: Envelope, document: bytes, options: Ebms2Options = DEFAULT_OPTIONS) -> Wire:
    """The octets of a message whose SOAP envelope (UTF-8) is there already, signed perhaps. Raises EncodeError."""
    if not (envelope.payloads or options.multipart):
        return related.alone(PACKAGING, document)
    return related.enclose(PACKAGING, document, envelope.payloads, envelope.message_id)


def soap_document(envelope: Envelope, options: Ebms2Options = DEFAULT_OPTIONS) -> bytes:
    """The SOAP envelope in UTF-8, CRLF at each line end. Raises EncodeError as `encode` does."""
    ebms = envelope.ebms
    if ebms is None:
        raise EncodeError("an envelope of this profile has an `ebms`")
    _check(envelope, ebms)
    _check_documents(envelope)
    write = _Elements(options)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\r\n'
        f"<SOAP:Envelope {_NAMESPACES}>\r\n"
        "<SOAP:Header>\r\n"
        f"{write.message_header(envelope, ebms)}"
        f"{write.signals(ebms)}"
        f"{_own_block(envelope.document_id)}"
        "</SOAP:Header>\r\n"
        "<SOAP:Body>\r\n"
        f"{write.manifest(envelope.manifest)}"
        f"{'' if ebms.status is None else write.status(ebms.status)}"
        "</SOAP:Body>\r\n"
        "</SOAP:Envelope>\r\n"
    ).encode()


def _own_block(document_id: str) -> str:
    """The document's id, which decides what becomes of it, so that a signature is over it. Others pass it over."""
    return f'<DocumentId xmlns="{NAMESPACE}">{identifier(document_id)}</DocumentId>\r\n' if document_id else ""


def _check(envelope: Envelope, ebms: Ebms2) -> None:
    """Rules that concern more than one value; single values are checked where they are written."""
    kind = ebms.kind
    if envelope.version != VERSION:
        raise EncodeError(f"version {envelope.version!r} cannot be written, only {VERSION}")
    if ebms.signed:
        raise EncodeError("a signature is not written, but put into what is written")
    if envelope.routing:
        raise EncodeError("ebMS 2.0 has no RoutingHeader")
    if (envelope.message_type, envelope.semantics) != (kind.message_type, ebms.semantics):
        raise EncodeError(f"a message of kind {kind} is {kind.message_type}, and as `ebms` has it {ebms.semantics}")
    if kind is Ebms2Kind.BUSINESS:
        if envelope.service == SERVICE:
            raise EncodeError(f"the service {SERVICE} is that of signals")
        if not ebms.service_type and not has_scheme(envelope.service):
            raise EncodeError(f"the service {envelope.service[:80]!r} has no type and is no URI")
        for party in (*envelope.from_parties, *envelope.to_parties):
            if not party.context and not has_scheme(party.value):
                raise EncodeError(f"the party {party.value[:80]!r} has no type and is no URI")
    elif (envelope.service, envelope.action) != (SERVICE, kind):
        raise EncodeError(f"a message of kind {kind} has the service {SERVICE} and the action {kind}")
    elif envelope.payloads or envelope.manifest or envelope.document_id:
        raise EncodeError(f"a message of kind {kind} has no payload")
    if kind in _NEVER_ANSWERED and (ebms.duplicate_elimination or ebms.ack_requests):
        raise EncodeError(f"a message of kind {kind} has neither DuplicateElimination nor AckRequested")
    if kind is Ebms2Kind.ACKNOWLEDGMENT and not ebms.acknowledgments:
        raise EncodeError("an acknowledgment says what it acknowledges")
    if kind is Ebms2Kind.ERROR and not (ebms.errors and envelope.ref_to_message_id):
        raise EncodeError("an error message says what the error is, and of which message")
    if envelope.error != (ebms.gravest if kind is Ebms2Kind.ERROR else None):
        raise EncodeError("the error of an error message is the gravest of its list; no other message has one")
    _check_status(ebms)
    if ebms.order is not None and (ebms.sync_reply or ebms.semantics is not Semantics.ONCE_AND_ONLY_ONCE):
        raise EncodeError("MessageOrder goes with AckRequested and DuplicateElimination, and without SyncReply")
    for actors in ([one.actor for one in ebms.ack_requests], [one.actor for one in ebms.acknowledgments]):
        if len(set(actors)) < len(actors):
            raise EncodeError("AckRequested and Acknowledgment occur once for each actor")


def _check_status(ebms: Ebms2) -> None:
    report = ebms.status
    if (report is not None) is not (ebms.kind in (Ebms2Kind.STATUS_REQUEST, Ebms2Kind.STATUS_RESPONSE)):
        raise EncodeError("a StatusRequest or StatusResponse names a message, and no other does")
    if report is not None and (report.status is not None) is not (ebms.kind is Ebms2Kind.STATUS_RESPONSE):
        raise EncodeError("a StatusResponse says the status, and a StatusRequest does not")
    if report is not None and report.status is None and report.timestamp is not None:
        raise EncodeError("a StatusRequest has no time of receipt")


def _check_documents(envelope: Envelope) -> None:
    related.check_parts(envelope.payloads, envelope.manifest)
    names = [reference.document_id for reference in envelope.manifest]
    keys = content_id_keys(name[4:] for name in names if name[:4].lower() == "cid:")
    for payload in envelope.payloads:
        if not refers_to(payload.content_id, keys):
            raise EncodeError(f"the Manifest does not name the payload {payload.content_id!r}: it would be dropped")
    for reference in envelope.manifest:
        if not has_scheme(reference.document_id):
            raise EncodeError(f"{reference.document_id[:80]!r} is no cid:, no mid: and no other URI with a scheme")
        if reference.label:
            raise EncodeError(f"ebMS 2.0 has no place for the label {reference.label[:80]!r}, only for a description")
    if envelope.document_id and (sentence := document_ids.fault(envelope.document_id, document_ids.MAX_WIRE)):
        raise EncodeError(f"the document id has to be {sentence}")


class _Elements:
    """Writes each element with its line end, in the order of the schema."""

    def __init__(self, options: Ebms2Options) -> None:
        self.options = options

    def _common(self, name: str, *, header: bool = True) -> str:
        element_id = f' eb:id="{name}"' if self.options.element_ids else ""
        return f' eb:version="{VERSION}"{element_id}' + (' SOAP:mustUnderstand="1"' if header else "")

    def message_header(self, envelope: Envelope, ebms: Ebms2) -> str:
        reference = life = ""
        if envelope.ref_to_message_id:
            reference = f"<eb:RefToMessageId>{identifier(envelope.ref_to_message_id)}</eb:RefToMessageId>\r\n"
        if ebms.time_to_live is not None:
            life = f"<eb:TimeToLive>{format_time(ebms.time_to_live)}</eb:TimeToLive>\r\n"
        return (
            f"<eb:MessageHeader{self._common('MessageHeader')}>\r\n"
            f"<eb:From>{_parties(envelope.from_parties, ebms.from_role)}</eb:From>\r\n"
            f"<eb:To>{_parties(envelope.to_parties, ebms.to_role)}</eb:To>\r\n"
            f"<eb:CPAId>{required(envelope.agreement_id, 'CPAId')}</eb:CPAId>\r\n"
            f"<eb:ConversationId>{required(envelope.conversation_id, 'ConversationId')}</eb:ConversationId>\r\n"
            f"<eb:Service{_type(ebms.service_type)}>{required(envelope.service, 'Service')}</eb:Service>\r\n"
            f"<eb:Action>{required(envelope.action, 'Action')}</eb:Action>\r\n"
            "<eb:MessageData>\r\n"
            f"<eb:MessageId>{required(envelope.message_id, 'MessageId')}</eb:MessageId>\r\n"
            f"<eb:Timestamp>{format_time(envelope.timestamp)}</eb:Timestamp>\r\n"
            f"{reference}{life}"
            "</eb:MessageData>\r\n"
            f"{_DUPLICATE_ELIMINATION * ebms.duplicate_elimination}"
            "</eb:MessageHeader>\r\n"
        )

    def signals(self, ebms: Ebms2) -> str:
        pieces = []
        if ebms.sync_reply:
            pieces.append(f'<eb:SyncReply{self._common("SyncReply")} SOAP:actor="{NEXT}"/>\r\n')
        if ebms.order is not None:
            pieces.append(self._order(ebms.order))
        for request in ebms.ack_requests:
            common = self._common(f"AckRequested-{request.actor.name}")
            signed = "true" if request.signed else "false"
            pieces.append(f'<eb:AckRequested{common} SOAP:actor="{request.actor}" eb:signed="{signed}"/>\r\n')
        pieces += [self._acknowledgment(found) for found in ebms.acknowledgments]
        if ebms.errors:
            pieces.append(self._error_list(ebms.errors))
        return "".join(pieces)

    def _order(self, order: MessageOrder) -> str:
        if not 0 <= order.sequence_number <= MAX_ORDER or (order.reset and order.sequence_number):
            raise EncodeError(f"SequenceNumber {order.sequence_number} is not in 0..{MAX_ORDER}, 0 with Reset")
        status = "Reset" if order.reset else "Continue"
        number = f'<eb:SequenceNumber eb:status="{status}">{order.sequence_number:d}</eb:SequenceNumber>'
        return f"<eb:MessageOrder{self._common('MessageOrder')}>{number}</eb:MessageOrder>\r\n"

    def _acknowledgment(self, found: Acknowledgment) -> str:
        common = self._common(f"Acknowledgment-{found.actor.name}")
        sender = ""
        if found.from_parties or found.from_role:
            sender = f"<eb:From>{_parties(found.from_parties, found.from_role)}</eb:From>\r\n"
        return (
            f'<eb:Acknowledgment{common} SOAP:actor="{found.actor}">\r\n'
            f"<eb:Timestamp>{format_time(found.timestamp)}</eb:Timestamp>\r\n"
            f"<eb:RefToMessageId>{required(found.ref_to_message_id, 'RefToMessageId')}</eb:RefToMessageId>\r\n"
            f"{sender}{''.join([_digest(digest) for digest in found.digests])}"
            "</eb:Acknowledgment>\r\n"
        )

    def _error_list(self, errors: tuple[ErrorInfo, ...]) -> str:
        highest = max(errors, key=lambda error: error.severity is Severity.ERROR).severity
        written = "".join([_error(error) for error in errors])
        common = self._common("ErrorList")
        return f'<eb:ErrorList{common} eb:highestSeverity="{highest}">\r\n{written}</eb:ErrorList>\r\n'

    def manifest(self, references: tuple[DocumentReference, ...]) -> str:
        if not references:
            return ""
        written = "".join([_reference(reference) for reference in references])
        return f"<eb:Manifest{self._common('Manifest', header=False)}>\r\n{written}</eb:Manifest>\r\n"

    def status(self, report: StatusReport) -> str:
        name = "StatusRequest" if report.status is None else "StatusResponse"
        status = "" if report.status is None else f' eb:messageStatus="{report.status}"'
        moment = ""
        if report.timestamp is not None:
            moment = f"<eb:Timestamp>{format_time(report.timestamp)}</eb:Timestamp>\r\n"
        return (
            f"<eb:{name}{self._common(name, header=False)}{status}>\r\n"
            f"<eb:RefToMessageId>{required(report.ref_to_message_id, 'RefToMessageId')}</eb:RefToMessageId>\r\n"
            f"{moment}"
            f"</eb:{name}>\r\n"
        )


def _type(value: str) -> str:
    return f' eb:type="{identifier(value)}"' if value else ""


def _uri(value: str, what: str) -> str:
    if not value or not is_reference(value):
        raise EncodeError(f"{what} {value[:80]!r} is no URI with all characters escaped that need it (RFC 3986)")
    return identifier(value)


def _parties(parties: tuple[PartyId, ...], role: str) -> str:
    if not parties:
        raise EncodeError("From and To need a PartyId each")
    pieces = [f"<eb:PartyId{_type(party.context)}>{required(party.value, 'PartyId')}</eb:PartyId>" for party in parties]
    if role:
        pieces.append(f"<eb:Role>{identifier(role)}</eb:Role>")
    return "".join(pieces)


def _error(error: ErrorInfo) -> str:
    if error.severity is Severity.TRANSIENT or error.min_retry_secs is not None:
        raise EncodeError("ebMS 2.0 has no transient errors: the transport asks to come again (HTTP 503)")
    location = f' eb:location="{identifier(error.location)}"' if error.location else ""
    words = ""
    if error.description:
        words = f'<eb:Description xml:lang="en">{free_text(error.description)}</eb:Description>'
    code = required(error.code, "ErrorCode")
    return f'<eb:Error eb:errorCode="{code}" eb:severity="{error.severity}"{location}>{words}</eb:Error>\r\n'


def _reference(reference: DocumentReference) -> str:
    role = f' xlink:role="{_uri(reference.role, "role")}"' if reference.role else ""
    pieces = [f'<eb:Reference xlink:type="simple" xlink:href="{_uri(reference.document_id, "href")}"{role}>']
    for schema in reference.schemas:
        version = f' eb:version="{identifier(schema.version)}"' if schema.version else ""
        pieces.append(f'<eb:Schema eb:location="{_uri(schema.location, "schema")}"{version}/>')
    if reference.description:
        if not is_language(reference.language):
            raise EncodeError(f"{reference.language!r} is no language tag")
        words = free_text(reference.description)
        pieces.append(f'<eb:Description xml:lang="{reference.language}">{words}</eb:Description>')
    pieces.append("</eb:Reference>\r\n")
    return "".join(pieces)


def _digest(digest: Digest) -> str:
    if not is_base64(digest.value):
        raise EncodeError(f"digest {digest.value[:80]!r} is not base64")
    transforms = ""
    for transform in digest.transforms:
        algorithm = _uri(transform.algorithm, "algorithm")
        transforms += f'<ds:Transform Algorithm="{algorithm}">{_canonical(transform.parameters)}</ds:Transform>\r\n'
    if transforms:
        transforms = f"<ds:Transforms>\r\n{transforms}</ds:Transforms>\r\n"
    uri = _uri(digest.uri, "URI") if digest.uri else ""  # the empty one is the message's own document
    method = _uri(digest.method, "algorithm")
    return (
        f'<ds:Reference URI="{uri}">\r\n'
        f"{transforms}"
        f'<ds:DigestMethod Algorithm="{method}"/>\r\n'
        f"<ds:DigestValue>{digest.value}</ds:DigestValue>\r\n"
        "</ds:Reference>\r\n"
    )


def _canonical(parameters: str) -> str:
    """The parameters of a transform as they are: what reads them has to find them unchanged."""
    if not parameters:
        return ""
    try:
        found = canonical(parse_document(f"<eb:x {_NAMESPACES}>{parameters}</eb:x>".encode()))
    except (NotAMessage, ValueError) as error:
        raise EncodeError(f"the parameters of a transform cannot be written: {error}") from error
    if found != parameters:
        raise EncodeError("the parameters of a transform are not in exclusive canonical form")
    return parameters
