"""Schemas that documents have to fit: list, page, form, and the trial on a stored message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from messaging.choices import MaskKind, SchemaEffect
from messaging.console.access import requires
from messaging.console.forms import Group, PartnerField
from messaging.console.rendering import page
from messaging.console.resource import Column, ListPage, Pages, table
from messaging.exceptions import ApplicationError
from messaging.messages import schemas
from messaging.messages.pages.masks import NAMES, DocumentRuleForm, documents_of
from messaging.messages.schemas import FILES, SCHEMAS, SETTINGS
from messaging.messages.selectors import messages
from messaging.models import DocumentSchema, Message
from messaging.protocol import selecting
from messaging.protocol.document_schemas import MAX_FILE
from messaging.protocol.edi_messages import Fault
from messaging.templatetags.hub import ago
from rmhub.language import gettext_lazy

_FILES = {"xml": "schema.xsd", "json": "schema.json", "edi": "segments.txt"}
_EFFECTS = {
    SchemaEffect.REFUSE: gettext_lazy("refused"),
    SchemaEffect.HOLD: gettext_lazy("held"),
    SchemaEffect.FLAG: gettext_lazy("flagged"),
}


def _name(rule: DocumentSchema) -> SafeString:
    href = reverse("console:schema", args=[rule.public_id])
    said = '<a class="strong" data-open href="{}">{}</a> <span class="text-faint">{}</span>'
    return format_html(said, href, rule.name, _("version {number}").format(number=rule.number))


def _then(effect: str) -> str:
    return _EFFECTS.get(SchemaEffect(effect), _("not checked"))


def _state(rule: DocumentSchema) -> SafeString | str:
    return _("On") if rule.enabled else format_html('<span class="text-faint">{}</span>', _("Off"))


class FilesInput(forms.ClearableFileInput):
    """Takes several files."""

    allow_multiple_selected = True


class FilesField(forms.FileField):
    """Files that are chosen together, as a list."""

    widget = FilesInput

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile]:
        chosen = data if isinstance(data, list | tuple) else [data] if data else []
        return [super(FilesField, self).clean(one, initial) for one in chosen]


class SchemaForm(DocumentRuleForm):
    """The settings of a schema, and its files."""

    groups: ClassVar[tuple[Group, ...]] = (
        Group(
            gettext_lazy("The schema"),
            ("name", "kind", "text", "upload", "main", "number"),
            gettext_lazy("its text, or its files"),
        ),
        Group(gettext_lazy("Which documents have to fit it"), ("partner", "service", "action")),
        Group(gettext_lazy("What happens to those that do not"), ("on_submission", "on_receipt", "enabled")),
    )
    note = gettext_lazy(
        "A new text, or new files, make a new version. Without them, you choose which version is in use."
    )
    partner = PartnerField(DocumentSchema.partner, blank=gettext_lazy("All partners"))
    text = forms.CharField(
        label=gettext_lazy("Text"),
        widget=forms.Textarea,
        help_text=gettext_lazy(
            "EDIFACT and X12: the first line names the message, INVOIC D 96A or 850 004010, or is * for a check of "
            "envelopes only. Each other line is a segment, BGM M 1 needs 1 2, or a group, SG1 C 99, whose lines are "
            "indented."
        ),
    )
    upload = FilesField(
        label=gettext_lazy("… or its files"),
        help_text=gettext_lazy("With all files that it includes: nothing is read from elsewhere."),
    )
    main = forms.CharField(
        label=gettext_lazy("Main file"),
        help_text=gettext_lazy("The name of the one that documents are checked against, where there are several."),
    )
    number = forms.TypedChoiceField(label=gettext_lazy("Number"), coerce=int)

    class Meta:
        model = DocumentSchema
        fields = SETTINGS
        labels = NAMES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["text"].css = " field-tall"  # type: ignore[attr-defined]
        if self.instance._state.adding:
            del self.fields["number"]
            first, *others = self.groups
            names = tuple(name for name in first.fields if name != "number")
            self.groups = (Group(first.title, names, first.lead), *others)  # type: ignore[misc]
        else:
            known = schemas.versions(self.instance)
            self.fields["number"].choices = [  # type: ignore[attr-defined]
                (
                    one.number,
                    _("{number}, of {time} UTC, by {who}").format(
                        number=one.number, time=f"{one.created_at:%Y-%m-%d %H:%M}", who=one.created_by
                    ),
                )
                for one in known
            ]

    def clean(self) -> dict[str, Any]:
        """Read the files."""
        given: dict[str, Any] = super().clean() or self.cleaned_data
        text = given.get("text") or ""
        chosen: list[UploadedFile] = given.get("upload") or []
        main = (given.get("main") or "").strip()
        if text.strip() and chosen:
            self.add_error("upload", _("Give either a text or files, not both."))
        if any((one.size or 0) > MAX_FILE for one in chosen):
            self.add_error("upload", _("A file of a schema has at most {most} MiB.").format(most=MAX_FILE >> 20))
            return given
        found = [(one.name or "", selecting.text_of(one.read(), "")) for one in chosen]
        if any(content is None for __, content in found):
            self.add_error("upload", _("One of the files is not text."))
        if main and main not in dict(found):
            self.add_error("main", _("It is not among the files."))
        elif len(found) > 1 and not main:
            self.add_error("main", _("Name the file that documents are checked against."))
        found.sort(key=lambda one: one[0] != main)
        if text.strip():
            found = [(_FILES.get(given.get("kind") or "", "schema"), text.replace("\r\n", "\n"))]
        given[FILES] = [(name, content or "") for name, content in found]
        return given

    def refuse(self, errors: Mapping[str, list[str]]) -> None:
        """Put what is wrong with the files beside what they were given in."""
        beside = "text" if (self.cleaned_data.get("text") or "").strip() else "upload"
        super().refuse({beside if name == FILES else name: sentences for name, sentences in errors.items()})

    @property
    def settings(self) -> dict[str, Any]:
        """The values that were read, with the files."""
        return {name: self.cleaned_data[name] for name in (*SETTINGS, FILES) if name in self.cleaned_data}


def _shown(rule: DocumentSchema) -> dict[str, Any]:
    return {
        "files": schemas.files_of(rule),
        "versions": table(
            _("Versions of the schema, newest first"),
            (
                Column(_("Version"), lambda one: one.number, "num"),
                Column(_("Given"), lambda one: ago(one.created_at), "nowrap", zoned=True),
                Column(_("By"), lambda one: one.created_by),
                Column(_("Files"), lambda one: ", ".join(name for name, __ in one.files), "wrap"),
                Column(_("Use"), lambda one: _("in use") if one.number == rule.number else ""),
            ),
            schemas.versions(rule),
        ),
        "kind_label": MaskKind(rule.kind).label,
        "on_submission": _then(rule.on_submission),
        "on_receipt": _then(rule.on_receipt),
    }


class SchemaPages(Pages):
    """With a page that tries the schema on a stored message."""

    def urls(self) -> list[URLPattern]:
        trial = requires(SCHEMAS.reads)(self._trial)
        return [*super().urls(), path("schemas/<str:reference>/trial/", trial, name="schema-trial")]

    def _trial(self, request: HttpRequest, reference: str) -> HttpResponse:
        """What the schema says of the documents of `?message=`, an id or a MessageId."""
        rule = self._one(reference)
        wanted = request.GET.get("message", "").strip()[:512].replace("\x00", "")
        context: dict[str, Any] = {"object": rule, "wanted": wanted, "trouble": "", "message": None, "documents": []}
        if wanted:
            try:
                context["message"] = message = messages.message_by_reference(wanted)
                context["documents"] = [
                    (
                        one,
                        faults_table(one.faults, _("Faults of document {number}").format(number=one.payload.number)),
                    )
                    for one in schemas.tried(rule, message)
                ]
            except ApplicationError as error:
                context["trouble"] = error.detail
        return page(request, "console/messages/schema_trial.html", context)


def faults_table(faults: list[Fault], caption: str) -> dict[str, Any]:
    """A table of faults."""
    columns = (
        Column(_("Line"), lambda fault: fault.line or "", "num"),
        Column(_("Column"), lambda fault: fault.column or "", "num"),
        Column(_("What does not fit"), _fault, "wrap"),
    )
    known = (any(fault.line for fault in faults), any(fault.column for fault in faults), True)
    return table(caption, [column for column, is_known in zip(columns, known, strict=True) if is_known], faults)


def _fault(fault: Fault) -> SafeString:
    place = format_html('<div class="mono text-faint wrap">{}</div>', fault.path) if fault.path else ""
    return format_html("{}{}", fault.text, place)


def faults_of(message: Message) -> dict[str, Any] | None:
    """What is shown of a message's faults; None: it has none."""
    kept = message.schema_faults
    if not kept:
        return None
    return {**kept, "table": faults_table([Fault(*one) for one in kept["faults"]], _("What does not fit"))}


PAGES = SchemaPages(
    resource=SCHEMAS,
    listing=ListPage(
        lead=gettext_lazy(
            "What documents have to look like: XML Schema, JSON Schema, or the segments of an EDIFACT or X12 message. "
            "What our applications submit is refused or flagged when it does not fit; what partners send is "
            "acknowledged in any case, and flagged or held for a person."
        ),
        caption=gettext_lazy("Schemas, by name"),
        columns=(
            Column(gettext_lazy("Schema"), _name),
            Column(gettext_lazy("Documents"), lambda rule: MaskKind(rule.kind).label),
            Column(gettext_lazy("Applies to"), documents_of),
            Column(gettext_lazy("Submitted"), lambda rule: _then(rule.on_submission)),
            Column(gettext_lazy("Received"), lambda rule: _then(rule.on_receipt)),
            Column(gettext_lazy("State"), _state),
        ),
        filters=(),
        icon="file-code",
        none_yet=gettext_lazy("No schema yet."),
        what_then=gettext_lazy("Documents are passed on as they are: nobody looks at what is in them."),
    ),
    form=SchemaForm,
    made=gettext_lazy("checks documents from now on."),
    template="console/messages/schema.html",
    shown=_shown,
)
