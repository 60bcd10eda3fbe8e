"""Rules that take attributes from documents: columns of the list, and the form."""

from __future__ import annotations

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from messaging.choices import DocumentKind
from messaging.console.forms import Group, PartnerField
from messaging.console.resource import Column, ListPage, Pages
from messaging.messages.attributes import ATTRIBUTES, SETTINGS
from messaging.messages.pages.masks import NAMES, DocumentRuleForm, documents_of
from messaging.models import AttributeRule
from rmhub.language import gettext_lazy


def _name(rule: AttributeRule) -> SafeString:
    href = reverse("console:attribute", args=[rule.public_id])
    return format_html('<a class="strong" data-open href="{}">{}</a>', href, rule.name)


def _from(rule: AttributeRule) -> SafeString:
    kind = DocumentKind(rule.kind).label
    return format_html('<span class="text-faint">{}</span> <span class="mono wrap">{}</span>', kind, rule.path)


def _search(rule: AttributeRule) -> SafeString:
    return format_html('<span class="mono">{}:…</span>', rule.name)


def _state(rule: AttributeRule) -> SafeString | str:
    if not rule.enabled:
        return format_html('<span class="text-faint">{}</span>', _("Off"))
    return _("On") if rule.shown else _("On, never shown")


def _delete(rule: AttributeRule) -> SafeString:
    return format_html(
        '<a class="btn btn-sm" href="{}" data-dialog>{}<span class="visually-hidden"> {}</span></a>',
        reverse("console:attribute-delete", args=[rule.public_id]),
        _("Delete…"),
        rule.name,
    )


class AttributeForm(DocumentRuleForm):
    """The settings of a rule."""

    groups = (
        Group(gettext_lazy("What is taken, and from where"), ("name", "kind", "path")),
        Group(gettext_lazy("From whose documents"), ("partner", "service", "action", "shown", "enabled")),
    )
    partner = PartnerField(AttributeRule.partner, blank=gettext_lazy("All partners"))

    class Meta:
        model = AttributeRule
        fields = SETTINGS
        labels = {name: label for name, label in NAMES.items() if name != "name"}


PAGES = Pages(
    resource=ATTRIBUTES,
    listing=ListPage(
        lead=gettext_lazy(
            "Rules that take an attribute, such as the invoice number, from documents when they are stored. Messages "
            "are found by it: invoice:4711, or just 4711. For messages that are stored already, choose them in the "
            "list of messages and take their attributes again."
        ),
        caption=gettext_lazy("Rules that take attributes from documents, by name"),
        columns=(
            Column(gettext_lazy("Attribute"), _name),
            Column(gettext_lazy("Taken from"), _from),
            Column(gettext_lazy("Applies to"), documents_of),
            Column(gettext_lazy("Search"), _search),
            Column(gettext_lazy("State"), _state),
            Column(gettext_lazy("Delete"), _delete, "verb"),
        ),
        filters=(),
        icon="search",
        none_yet=gettext_lazy("No attribute yet."),
        what_then=gettext_lazy("Messages are found by their ids, not by what is in their documents."),
    ),
    form=AttributeForm,
    made=gettext_lazy("is taken from documents that are stored from now on."),
    now=lambda rule: rule.path,
)
