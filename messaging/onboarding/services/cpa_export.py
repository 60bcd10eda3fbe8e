"""Agreements of ebXML Messaging 2.0 as CPA 2.0 documents, which this hub and others can import."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from django.utils.translation import gettext as _

from messaging.exceptions import InvalidSubmission
from messaging.protocol.codecs.ebms2_lexical import has_scheme
from partners import certificates, selectors, transports
from partners.choices import (
    CredentialDirection,
    CredentialKind,
    Encryption,
    Profile,
    Semantics,
    Signatures,
    VersionState,
)
from partners.cpa import model
from partners.cpa.channels import (
    Algorithm,
    Channel,
    DigitalEnvelope,
    DocExchange,
    Endpoint,
    EndpointType,
    MessageBinding,
    Namespace,
    NonRepudiation,
    Protocol,
    Reliability,
    Requirement,
    SyncReply,
    Transport,
    TransportReceiver,
    TransportSecurity,
    TransportSender,
)
from partners.cpa.holding import ALGORITHMS, CIPHER_NAMES
from partners.cpa.writing import CpaUnwritable, write
from partners.models import AgreementVersion, Party
from partners.models import Endpoint as OurEndpoint
from rmhub import clock

_NO_END = datetime(2099, 12, 31, 23, 59, 59, tzinfo=UTC)  # a CPA has an end, and an agreement here has none
_HEADER = "http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd"
_TO_PARTY = "urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH"
_DSIG = "http://www.w3.org/2000/09/xmldsig#"
_SIGNALS, _MESSAGES = "package-signals", "package-messages"


def cpa_export(*, version: AgreementVersion) -> bytes:
    """The document of a version (`partners.selectors.version`), in UTF-8. Raises InvalidSubmission (field `cpa`) with
    what it would need.
    """
    if lacks := list(_lacking(version)):
        raise InvalidSubmission({"cpa": lacks})
    try:
        return write(_cpa(version))
    except CpaUnwritable as error:
        raise InvalidSubmission({"cpa": [str(error)]}) from error


def _lacking(version: AgreementVersion) -> list[str]:
    if version.profile != Profile.EBMS2:
        return [_("Only agreements of ebXML Messaging 2.0 are CPAs.")]
    lacks = []
    allowed = list(version.services.all())
    if not version.own_role or not version.partner_role:
        lacks.append(_("A CPA names the roles of both sides: enter them in the agreement."))
    if not allowed:
        lacks.append(_("A CPA names its services and actions: enter them in the agreement."))
    lacks += [
        _("A CPA names each action, and all are allowed of {service}: enter them instead of *.").format(
            service=one.service
        )
        for one in allowed
        if one.action == "*"
    ]
    written = {transports.HTTP.name, transports.SMTP.name}
    if not {version.own_endpoint.transport, version.partner_endpoint.transport} <= written:
        lacks.append(_("A CPA has addresses of HTTP and mail only: choose other endpoints."))
    agreement = version.agreement
    for party in (agreement.own_party, agreement.partner):
        if not party.identifiers.all():
            lacks.append(_("{party} has no identifier: enter one.").format(party=party))
            continue
        if version.signatures != Signatures.NONE and not _proofs(version, party, CredentialKind.SIGNING):
            lacks.append(_("The certificate with which {party} signs is missing: store it.").format(party=party))
        if version.encryption != Encryption.NONE and not _proofs(version, party, CredentialKind.ENCRYPTION):
            lacks.append(
                _("The certificate for what is encrypted for {party} is missing: store it.").format(party=party)
            )
    return lacks


def _proofs(version: AgreementVersion, party: Party, kind: CredentialKind) -> list[bytes]:
    """The certificates (DER) of one side that are valid now and known here, newest first; ours are with the partner."""
    ours = party.pk == version.agreement.own_party_id
    direction = CredentialDirection.OUTBOUND if ours else CredentialDirection.INBOUND
    stored = selectors.credentials(party_id=version.agreement.partner_id)
    now = clock.now()
    return [
        der
        for one in stored.filter(direction=direction, kind=kind, revoked_at=None)
        if one.certificate and (one.valid_from is None or one.valid_from <= now)
        if one.valid_until is None or one.valid_until > now
        for der in _ders(one.certificate)[:1]
    ]


def _ders(pem: str) -> list[bytes]:
    """The certificates of a PEM text that has been checked."""
    read = (x509.load_pem_x509_certificate(one.pem.encode()) for one in certificates.read(pem))
    return [one.public_bytes(Encoding.DER) for one in read]


def _cpa(version: AgreementVersion) -> model.Cpa:
    agreed = version.state in (VersionState.ACTIVE, VersionState.DISABLED)
    start = (version.activated_at or version.created_at).replace(microsecond=0)
    return model.Cpa(
        id=version.agreement.tpa_id,
        version=str(version.number),
        status=model.Status.AGREED if agreed else model.Status.PROPOSED,
        start=start.astimezone(UTC),
        end=_NO_END,
        parties=(_party(version, ours=True), _party(version, ours=False)),
        simple_parts=(
            model.SimplePart("part-header", "text/xml", namespaces=(Namespace(_HEADER, _HEADER, "2.0"),)),
            model.SimplePart("part-document", "application/octet-stream"),
        ),
        packagings=(
            _packaging(_SIGNALS, "composite-signals", ("part-header",)),
            _packaging(_MESSAGES, "composite-messages", ("part-header", "part-document")),
        ),
    )


def _packaging(name: str, composite: str, parts: Sequence[str]) -> model.Packaging:
    constituents = tuple(model.Constituent(one) for one in parts)
    container = model.Container(composite, False, "multipart/related", constituents, "type=text/xml")
    return model.Packaging(name, parse=True, generate=True, composites=((container,),))


def _party(version: AgreementVersion, *, ours: bool) -> model.Party:
    agreement = version.agreement
    party = agreement.own_party if ours else agreement.partner
    endpoint = version.own_endpoint if ours else version.partner_endpoint
    prefix = "own" if ours else "partner"
    signers = _proofs(version, party, CredentialKind.SIGNING)[:1] if version.signatures != Signatures.NONE else []
    encrypts = version.encryption != Encryption.NONE
    recipients = _proofs(version, party, CredentialKind.ENCRYPTION)[:1] if encrypts else []
    clients = _proofs(version, party, CredentialKind.CERTIFICATE)[:1]
    # Of the partner's servers: they stand in our part, as what we trust.
    trusted = _ders(version.partner_endpoint.trusted_certificates) if ours else []
    named = [
        *((f"{prefix}-signing", der) for der in signers),
        *((f"{prefix}-encryption", der) for der in recipients),
        *((f"{prefix}-client", der) for der in clients),
        *((f"{prefix}-trusted-{number}", der) for number, der in enumerate(trusted, start=1)),
    ]
    anchors = tuple(f"{prefix}-trusted-{number}" for number, _der in enumerate(trusted, start=1))
    security = _security(f"{prefix}-client" if clients else "", f"{prefix}-servers" if anchors else "")
    channel = Channel(
        id=f"{prefix}-channel",
        transport=_transport(f"{prefix}-transport", endpoint, security),
        doc_exchange=_exchange(version, prefix),
        sync_reply=SyncReply(version.sync_reply),
        ack_requested=_always(version.semantics == Semantics.ONCE_AND_ONLY_ONCE),
        ack_signature_requested=_always(version.signatures == Signatures.RECEIPTS),
        duplicate_elimination=_always(version.semantics != Semantics.BEST_EFFORT),
        actor=_TO_PARTY,
    )
    return model.Party(
        name=party.name,
        ids=tuple(model.PartyId(one.value, one.context) for one in party.identifiers.all()),
        references=(endpoint.uri,),
        roles=_roles(version, ours=ours),
        channels=(channel,),
        default_channel_id=channel.id,
        default_package_id=_SIGNALS,
        certificates=tuple(model.Certificate(name, der) for name, der in named),
        security_details=(model.SecurityDetails(f"{prefix}-servers", anchors),) if anchors else (),
    )


def _always(value: bool) -> Requirement:
    return Requirement.ALWAYS if value else Requirement.NEVER


def _security(certificate_id: str, security_id: str) -> TransportSecurity | None:
    if not certificate_id and not security_id:
        return None
    return TransportSecurity(Protocol("TLS", "1.2"), certificate_id, security_id)


def _transport(name: str, endpoint: OurEndpoint, security: TransportSecurity | None) -> Transport:
    protocol = Protocol("SMTP") if endpoint.transport == transports.SMTP.name else Protocol("HTTP", "1.1")
    endpoints = [Endpoint(endpoint.uri)]
    if endpoint.error_uri != endpoint.uri:
        endpoints.append(Endpoint(endpoint.error_uri, EndpointType.ERROR))
    receiver = TransportReceiver(protocol, tuple(endpoints))
    return Transport(name, TransportSender(protocol, security=security), receiver)


def _exchange(version: AgreementVersion, prefix: str) -> DocExchange:
    reliability = None
    persist = None
    if version.semantics == Semantics.ONCE_AND_ONLY_ONCE:
        interval = timedelta(seconds=version.retry_interval)
        reliability = Reliability(version.message_order, version.retries, interval)
        persist = timedelta(seconds=version.partner_window)
    sender, receiver = (
        MessageBinding(
            "2.0",
            reliability=reliability,
            persist_duration=persist,
            non_repudiation=_signing(version, signer),
            envelope=_envelope(version, recipient),
        )
        for signer, recipient in ((f"{prefix}-signing", ""), ("", f"{prefix}-encryption"))
    )
    return DocExchange(f"{prefix}-exchange", sender, receiver)


def _signing(version: AgreementVersion, certificate_id: str) -> NonRepudiation | None:
    if version.signatures == Signatures.NONE:
        return None
    name, digest = next(
        (uri, digest) for uri, (known, digest) in ALGORITHMS.items() if known == version.signature_algorithm
    )
    return NonRepudiation(Protocol(_DSIG), digest, (Algorithm(name, w3c=name),), certificate_id)


def _envelope(version: AgreementVersion, certificate_id: str) -> DigitalEnvelope | None:
    if version.encryption == Encryption.NONE:
        return None
    name = CIPHER_NAMES[version.encryption]
    return DigitalEnvelope(Protocol("S/MIME", "4.0"), (Algorithm(name, w3c=name),), certificate_id)


def _roles(version: AgreementVersion, *, ours: bool) -> tuple[model.Role, ...]:
    """One for each service. Bindings have the ids of the document's order, on both sides the same."""
    prefix, other = ("own", "partner") if ours else ("partner", "own")
    by_service: dict[str, dict[str, list[model.ActionBinding]]] = {}
    for number, one in enumerate(version.services.all(), start=1):
        found = by_service.setdefault(one.service, {"send": [], "receive": []})
        for direction in ("send", "receive") if one.direction == "both" else (one.direction,):
            sends = (direction == "send") is ours
            found["send" if sends else "receive"].append(
                model.ActionBinding(
                    id=f"{prefix}-{direction}-{number}",
                    action=one.action,
                    package_id=_MESSAGES,
                    channel_ids=(f"{prefix}-channel",),
                    other_id=f"{other}-{direction}-{number}",
                    signed=version.signatures != Signatures.NONE,
                    signed_receipt=version.signatures == Signatures.RECEIPTS,
                    confidential=model.Confidentiality.PERSISTENT if version.encryption != Encryption.NONE else None,
                )
            )
    return tuple(
        model.Role(
            name=version.own_role if ours else version.partner_role,
            href=f"#{prefix}",
            process=model.ProcessSpecification(service, "1.0", "#process"),
            service=service,
            service_type="" if has_scheme(service) else "string",
            can_send=tuple(found["send"]),
            can_receive=tuple(found["receive"]),
        )
        for service, found in by_service.items()
    )
