"""Sending a document by hand: a new one, a corrected one instead of one that went out before, or a test."""

from __future__ import annotations

import base64
import binascii
import difflib
import mimetypes
from typing import Any

from django import forms
from django.contrib import messages as notices
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import escape
from django.utils.translation import gettext as _

from messaging.access.selectors.reach import read_id
from messaging.choices import Direction, SchemaEffect
from messaging.console.access import actor, person, requires
from messaging.console.filters import address, named
from messaging.console.forms import Group, SettingsForm
from messaging.console.rendering import page, posted, see_other
from messaging.engine import attributes, schemas
from messaging.engine.pairs import outbound_pair_id
from messaging.exceptions import ApplicationError, DoesNotFit, InvalidSubmission, NotFound
from messaging.messages.pages.schemas import faults_table
from messaging.messages.selectors import messages
from messaging.messages.selectors.sendable import sendable, sent_under, takes
from messaging.messages.services import disclosing, resubmitting, sending
from messaging.messages.services.disclosing import Octets
from messaging.messages.services.submitting import NewPayload
from messaging.models import Message, Pair, Payload
from messaging.pairs.selectors.screens import diagnosis_of
from messaging.protocol import selecting
from partners import registry, visibility
from partners import selectors as partners
from partners.terms import Terms
from rmhub import clock
from rmhub.ids import uuid7
from rmhub.language import gettext_lazy
from rmhub.roles import role_of

SCOPE = "messages:write"
# A file that was chosen goes with the form that comes back, so that nobody chooses it again.
KEPT = 256 * 1024
# What is larger is not edited in a form, and not compared.
EDITABLE = 256 * 1024
_BESIDE = {"payloads": "content_type"}  # a submission's field -> the form's
_MOST_OFFERED = 20
_TEST = """<?xml version="1.0" encoding="UTF-8"?>
<Test>
  <From>{own}</From>
  <To>{partner}</To>
  <Text>This is a test document. Nothing has to be done.</Text>
</Test>
"""


class SendForm(SettingsForm):
    """What goes out, and under which names."""

    groups = (
        Group(gettext_lazy("What it is"), ("service", "action")),
        Group(gettext_lazy("The document"), ("text", "file", "content_type"), gettext_lazy("its text, or a file")),
        Group(
            gettext_lazy("Names"),
            ("document_id", "message_id", "conversation_id"),
            gettext_lazy("made up where they are empty"),
            folded=True,
        ),
    )
    service = forms.ChoiceField(label=gettext_lazy("Service"))
    action = forms.CharField(label=gettext_lazy("Action"))
    text = forms.CharField(label=gettext_lazy("Text"), widget=forms.Textarea)
    file = forms.FileField(label=gettext_lazy("… or a file"), allow_empty_file=True)
    content_type = forms.CharField(
        label=gettext_lazy("Content type"),
        help_text=gettext_lazy("Such as application/xml. Empty: what the document looks like."),
    )

    class Meta:
        model = Message
        fields = ("document_id", "message_id", "conversation_id")

    def __init__(self, terms: Terms, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.terms = terms
        sent = sent_under(terms)
        services = list(dict.fromkeys(service for service, __ in sent))
        self.fields["service"].choices = [(one, one) for one in services]  # type: ignore[attr-defined]
        self.actions = list(dict.fromkeys(action for __, action in sent if action != "*"))
        self.fields["action"].widget.attrs["list"] = "actions"
        self.fields["text"].css = " field-tall"  # type: ignore[attr-defined]
        if len(services) == 1:
            self.initial.setdefault("service", services[0])
        if len(self.actions) == 1:
            self.initial.setdefault("action", self.actions[0])

    def payload(self) -> NewPayload | None:
        """The document, or None with the error beside its field."""
        chosen: UploadedFile | None = self.cleaned_data.get("file")
        text = self.cleaned_data.get("text") or ""
        kept = self.data.get("kept", "")
        if chosen is not None:
            content, name = chosen.read(), chosen.name or ""
        elif kept and not text:
            try:
                content, name = base64.b64decode(kept, validate=True), self.data.get("kept_name", "")[:255]
            except binascii.Error:
                content, name = b"", ""
        else:
            # A browser sends the ends of all lines as CR LF; a document that had them so keeps them.
            content, name = (text if self.data.get("crlf") else text.replace("\r\n", "\n")).encode(), ""
        if chosen is not None and text:
            self.add_error("file", _("Give either a text or a file, not both."))
            return None
        if not content and chosen is None:
            self.add_error("text", _("Give the document: its text, or a file."))
            return None
        given = self.cleaned_data.get("content_type") or _type_of(content, name)
        return NewPayload(content, given, name)

    @property
    def chosen(self) -> dict[str, Any]:
        """What else `message_submit` takes."""
        names = ("service", "action", "document_id", "message_id", "conversation_id")
        return {name: (self.cleaned_data.get(name) or "").strip() for name in names}


def _type_of(content: bytes, name: str) -> str:
    kind = selecting.kind_of(content, mimetypes.guess_type(name)[0] or "")
    known = {"xml": "application/xml", "json": "application/json", "edi": "application/edifact", "csv": "text/csv"}
    guessed = known.get(kind) or mimetypes.guess_type(name)[0]
    plain = "application/octet-stream" if selecting.text_of(content, "") is None else "text/plain; charset=utf-8"
    return guessed or plain


@requires(SCOPE, methods=("GET", "POST"))
def message_new(request: HttpRequest) -> HttpResponse:
    """To whom, as long as no agreement is chosen; then the form. `?test=1` fills in a document that says so.

    `?agreement=`: a TPAId, or the partner's name, identifier or id, who may have only one.
    """
    wanted = request.GET.get("agreement", "").strip()[:200].replace("\x00", "")
    offered, missing, alike = _offered(wanted)
    if not wanted or len(offered) != 1:
        if request.method == "POST":
            return see_other("console:message-new")
        context = {
            "wanted": wanted,
            "test": "1" if request.GET.get("test") else "",
            "offered": offered[:_MOST_OFFERED],
            "missing": missing,
            "instead": [(name, address(request, agreement=name)) for name in alike],
        }
        return page(request, "console/messages/send_to.html", context, status=422 if missing else 200)
    terms = offered[0]
    if terms.tpa_id != wanted:
        return HttpResponseRedirect(address(request, agreement=terms.tpa_id))
    initial = {}
    if request.GET.get("test"):
        text = _TEST.format(own=escape(terms.own_party_name), partner=escape(terms.partner_name))
        initial = {"text": text, "document_id": f"test-{uuid7().hex[:12]}"}
    return _form(request, terms, initial, None)


def _offered(wanted: str) -> tuple[list[Terms], str, list[str]]:
    """What can be chosen among, a sentence when that is nothing, and names that may be meant."""
    terms = registry.current().by_tpa_id(wanted)
    if terms is not None and visibility.allows(terms.partner_id):
        found = [terms] if takes(terms) else []
        name, alike = wanted, []
    else:
        partner = named(wanted)
        found = sendable(partner.key) if partner.party is not None or not wanted else []
        name = partner.party.name if partner.party is not None else wanted
        alike = [] if partner.party is not None or not wanted else partners.nobody(wanted)[1]
    if found or not wanted:
        return found, "", []
    return [], _("{name}: no agreement is in force under which documents can be sent.").format(name=name), alike


@requires(SCOPE, methods=("GET", "POST"))
def message_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """The document of a message that is done, to be corrected and sent as a new message."""
    message = messages.message(read_id("msg", reference))
    terms = registry.current().by_tpa_id(message.agreement_version.agreement.tpa_id)
    why_not = resubmitting.why_not_resubmit(message)
    payloads = list(Payload.objects.filter(message=message).order_by("number")[:2])
    if not why_not and terms is None:
        why_not = _("No version of its agreement is in force.")
    if not why_not and (len(payloads) != 1 or payloads[0].size > EDITABLE):
        why_not = _("Only a single document of at most {most} KiB can be edited here.").format(most=EDITABLE // 1024)
    if not why_not and "payloads:read" not in person(request).scopes:
        why_not = _("Needs the role {role}.").format(role=person(request).lacks("payloads:read"))
    if why_not:
        notices.error(request, _("It cannot be edited. {why_not}").format(why_not=why_not))
        return see_other("console:message", message.public_id)
    assert terms is not None
    initial: dict[str, Any] = {}
    if request.method == "GET":
        try:
            octets = disclosing.payload_open(
                message_id=message.pk, number=1, actor=actor(request), role=role_of(request.user)
            )
        except ApplicationError as error:  # covered for this role, or gone
            notices.error(request, _("It cannot be edited. {why_not}").format(why_not=error.detail))
            return see_other("console:message", message.public_id)
        try:
            text = octets.content.decode() if selecting.text_of(octets.content, "") is not None else None
        except UnicodeDecodeError:
            text = None  # sent again it would be UTF-8, whatever it says of itself
        if text is None:
            why_not = _("It is not text in UTF-8: send another file instead.")
            notices.error(request, _("It cannot be edited. {why_not}").format(why_not=why_not))
            return see_other("console:message", message.public_id)
        initial = {
            "service": message.service,
            "action": message.action,
            "text": text,
            "content_type": octets.content_type,
            "document_id": message.identifies,
            "conversation_id": message.conversation_id,
        }
    return _form(request, terms, initial, message)


def _form(request: HttpRequest, terms: Terms, initial: dict[str, Any], replaces: Message | None) -> HttpResponse:
    posting = request.method == "POST"
    form = SendForm(terms, request.POST, request.FILES) if posting else SendForm(terms, initial=initial)
    checked: dict[str, Any] = {}
    payload: NewPayload | None = None
    if posting:
        form.is_valid()
        payload = form.payload()
        if payload is not None and not form.errors:
            if request.POST.get("step") == "check":
                checked = _checked(form, terms, payload)
            else:
                try:
                    return _sent(request, form, terms, payload, replaces)
                except DoesNotFit as error:
                    form.refuse({"text": error.errors["payloads"]})
                except InvalidSubmission as error:
                    form.refuse({_BESIDE.get(name, name): texts for name, texts in error.errors.items()})
                except ApplicationError as error:
                    form.add_error(None, error.detail)
    kept = payload if payload is not None and payload.filename and payload.size <= KEPT else None
    pair = Pair.objects.filter(pk=outbound_pair_id(terms)).first()
    context = {
        "form": form,
        "errors": form.wrong(),
        "terms": terms,
        "pair": pair,
        "pair_state": diagnosis_of(pair, terms, clock.now()).state if pair is not None else "",
        "replaces": replaces,
        "checked": checked,
        "once": request.POST.get("once") or uuid7().hex,
        "crlf": request.POST.get("crlf") or ("on" if "\r\n" in initial.get("text", "") else ""),
        "kept": base64.b64encode(kept.read()).decode() if kept is not None else "",
        "kept_name": kept.filename if kept is not None else "",
        "given": {"reason": request.POST.get("reason", "")},
        "presets": (_("Asked for by the partner"), _("A test"), _("The first one was wrong")),
    }
    return page(request, "console/messages/send.html", context, status=422 if form.errors else 200)


def _sent(
    request: HttpRequest, form: SendForm, terms: Terms, payload: NewPayload, replaces: Message | None
) -> HttpResponse:
    submission = sending.document_send(
        actor=actor(request),
        reason=posted(request, "reason"),
        replaces=replaces.pk if replaces is not None else None,
        # Two presses of one form make one message.
        idempotency_key=f"send-{request.POST.get('once', '')[:64]}",
        agreement=terms.tpa_id,
        payloads=[payload],
        **form.chosen,
    )
    said = " ".join(text for __, text in submission.warnings)
    stored = _("The document is stored and goes out in its turn.")
    (notices.warning if said else notices.success)(request, said or stored)
    return see_other("console:message", submission.message.public_id)


def _checked(form: SendForm, terms: Terms, payload: NewPayload) -> dict[str, Any]:
    """What would go out, as it would be found afterwards."""
    found = attributes.of_documents(
        lambda: [(payload.read(), payload.content_type)],
        partner_id=terms.partner_id,
        service=form.chosen["service"],
        action=form.chosen["action"],
    )
    misfit = schemas.misfit(
        lambda: [(payload.read(), payload.content_type)],
        partner_id=terms.partner_id,
        service=form.chosen["service"],
        action=form.chosen["action"],
        direction=Direction.OUT,
    )
    kind = selecting.kind_of(payload.read(), payload.content_type)
    trouble = ""
    try:
        if kind == "xml":
            selecting.xml(payload.read())
        elif kind == "json":
            selecting.json_document(payload.read())
        elif kind == "edi":
            list(selecting.segments(selecting.edi(selecting.decoded(payload.read(), payload.content_type))))
    except selecting.Unreadable as error:
        trouble = str(error)
    return {
        "size": payload.size,
        "content_type": payload.content_type,
        "attributes": attributes.shown(found),
        "hidden": len(found or {}) - len(attributes.shown(found)),
        "trouble": trouble,
        "misfit": misfit,
        "faults": faults_table(list(misfit.faults), _("What does not fit")) if misfit is not None else None,
        "refused": misfit is not None and misfit.rule.on_submission == SchemaEffect.REFUSE,
        "too_large": payload.size > terms.max_message_bytes,
    }


@requires("payloads:read")
def message_difference(request: HttpRequest, reference: str) -> HttpResponse:
    """A corrected document beside the one that it replaces, line by line. Reading both is in the audit log."""
    message = messages.message(read_id("msg", reference))
    before = messages.in_store(message.resubmitted_from_id)
    if before is None:
        raise NotFound(_("The message that this one replaces has left the store."))
    context: dict[str, Any] = {"message": message, "before": before, "trouble": "", "lines": []}
    try:
        old, new = _text(request, before), _text(request, message)
    except ApplicationError as error:
        context["trouble"] = error.detail
    else:
        shown = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3)
        context["lines"] = [(line[:1], line) for line in list(shown)[2:]]
    return page(request, "console/messages/difference.html", context)


def _text(request: HttpRequest, message: Message) -> str:
    octets: Octets = disclosing.payload_view(
        message_id=message.pk, number=1, actor=actor(request), role=role_of(request.user)
    )
    text = selecting.text_of(octets.content, octets.content_type) if len(octets.content) <= EDITABLE else None
    if text is None:
        raise NotFound(
            _("Documents that are not text, or are larger than {most} KiB, are not compared.").format(
                most=EDITABLE // 1024
            )
        )
    return text
