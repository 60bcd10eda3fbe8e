"""Rules that cover parts of payloads for people below a role: columns of the list, and the form."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from messaging.choices import MaskKind
from messaging.console.forms import Group, PartnerField, SettingsForm
from messaging.console.resource import Column, ListPage, Pages
from messaging.messages.masks import MASKS, SETTINGS
from messaging.models import PayloadMask
from messaging.models.document_rule import DocumentRule
from messaging.templatetags.hub import middle
from rmhub.language import gettext_lazy
from rmhub.roles import Role


def _name(rule: PayloadMask) -> SafeString:
    href = reverse("console:mask", args=[rule.public_id])
    return format_html('<a class="strong" data-open href="{}">{}</a>', href, rule.name)


def _covers(rule: PayloadMask) -> SafeString:
    kind = MaskKind(rule.kind).label
    return format_html('<span class="text-faint">{}</span> <span class="mono wrap">{}</span>', kind, rule.path)


def documents_of(rule: DocumentRule) -> SafeString | str:
    """Whose documents, and of which service and action, a rule is about."""
    who = str(rule.partner or _("all partners"))
    words = [word for word in (rule.service, getattr(rule, "action", "")) if word]
    if not words:
        return who
    return format_html('{}, <span class="clip" title="{}">{}</span>', who, ", ".join(words), middle(words[-1], 30))


def _state(rule: PayloadMask) -> SafeString | str:
    return _("On") if rule.enabled else format_html('<span class="text-faint">{}</span>', _("Off"))


def _delete(rule: PayloadMask) -> SafeString:
    return format_html(
        '<a class="btn btn-sm" href="{}" data-dialog>{}<span class="visually-hidden"> {}</span></a>',
        reverse("console:mask-delete", args=[rule.public_id]),
        _("Delete…"),
        rule.name,
    )


# What models call so by the names of their fields.
NAMES = {
    "name": gettext_lazy("Name"),
    "path": gettext_lazy("Path"),
    "service": gettext_lazy("Service"),
    "action": gettext_lazy("Action"),
}


class DocumentRuleForm(SettingsForm):
    """The settings of a rule about documents, of all partners or of one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["partner"].label = _("Partner")


class MaskForm(DocumentRuleForm):
    """The settings of a mask."""

    groups = (
        Group(gettext_lazy("What it covers"), ("name", "kind", "path")),
        Group(gettext_lazy("Where, and for whom"), ("partner", "service", "visible_to", "enabled")),
    )
    partner = PartnerField(PayloadMask.partner, blank=gettext_lazy("All partners"))

    class Meta:
        model = PayloadMask
        fields = SETTINGS
        labels = NAMES


PAGES = Pages(
    resource=MASKS,
    listing=ListPage(
        lead=gettext_lazy(
            "Rules that cover parts of payloads for people below a role: on the screen, in downloads and in the API. "
            "What is stored and sent stays as it is."
        ),
        caption=gettext_lazy("Rules that cover parts of payloads, by name"),
        columns=(
            Column(gettext_lazy("Name"), _name),
            Column(gettext_lazy("Covers"), _covers),
            Column(gettext_lazy("Applies to"), documents_of),
            Column(
                gettext_lazy("Seen by"),
                lambda rule: Role.ADMIN.value if rule.visible_to == Role.ADMIN else _("operator and above"),
            ),
            Column(gettext_lazy("State"), _state),
            Column(gettext_lazy("Delete"), _delete, "verb"),
        ),
        filters=(),
        icon="eye",
        none_yet=gettext_lazy("No mask yet."),
        what_then=gettext_lazy("Everybody who may read payloads sees all of them."),
    ),
    form=MaskForm,
    made=gettext_lazy("covers what it names from now on."),
    now=lambda rule: rule.path,
)
