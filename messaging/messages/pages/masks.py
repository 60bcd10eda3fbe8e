"""Rules that cover parts of payloads for people below a role: columns of the list, and the form."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from messaging.choices import MaskKind
from messaging.console.forms import MOST_CHOICES, Group, ReferenceField, SettingsForm
from messaging.console.resource import Column, ListPage, Pages
from messaging.messages.masks import MASKS, SETTINGS
from messaging.models import PayloadMask
from messaging.models.document_rule import DocumentRule
from messaging.templatetags.hub import middle
from partners import selectors as partners
from rmhub.roles import Role


def _name(rule: PayloadMask) -> SafeString:
    href = reverse("console:mask", args=[rule.public_id])
    return format_html('<a class="strong" data-open href="{}">{}</a>', href, rule.name)


def _covers(rule: PayloadMask) -> SafeString:
    kind = MaskKind(rule.kind).label
    return format_html('<span class="text-faint">{}</span> <span class="mono wrap">{}</span>', kind, rule.path)


def documents_of(rule: DocumentRule) -> SafeString | str:
    """Whose documents, and of which service and action, a rule is about."""
    who = str(rule.partner or "all partners")
    words = [word for word in (rule.service, getattr(rule, "action", "")) if word]
    if not words:
        return who
    return format_html('{}, <span class="clip" title="{}">{}</span>', who, ", ".join(words), middle(words[-1], 30))


def _state(rule: PayloadMask) -> SafeString | str:
    return "On" if rule.enabled else format_html('<span class="text-faint">{}</span>', "Off")


def _delete(rule: PayloadMask) -> SafeString:
    return format_html(
        '<a class="btn btn-sm" href="{}" data-dialog>Delete…<span class="visually-hidden"> {}</span></a>',
        reverse("console:mask-delete", args=[rule.public_id]),
        rule.name,
    )


class DocumentRuleForm(SettingsForm):
    """The settings of a rule about documents, of all partners or of one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        theirs = partners.parties(is_own=False)[:MOST_CHOICES]
        self.offer("partner", [(one.public_id, str(one)) for one in theirs])


class MaskForm(DocumentRuleForm):
    """The settings of a mask."""

    groups = (
        Group("What it covers", ("name", "kind", "path")),
        Group("Where, and for whom", ("partner", "service", "visible_to", "enabled")),
    )
    partner = ReferenceField(PayloadMask.partner, prefix="par", blank="All partners")

    class Meta:
        model = PayloadMask
        fields = SETTINGS


PAGES = Pages(
    resource=MASKS,
    listing=ListPage(
        lead="Rules that cover parts of payloads for people below a role: on the screen, in downloads and in the API. "
        "What is stored and sent stays as it is.",
        caption="Rules that cover parts of payloads, by name",
        columns=(
            Column("Name", _name),
            Column("Covers", _covers),
            Column("Of", documents_of),
            Column("Seen by", lambda rule: "admin" if rule.visible_to == Role.ADMIN else "operator and above"),
            Column("State", _state),
            Column("Delete", _delete, "verb"),
        ),
        filters=(),
        icon="eye",
        none_yet="No mask yet.",
        what_then="Everybody who may read payloads sees all of them.",
    ),
    form=MaskForm,
    made="covers what it names from now on.",
    now=lambda rule: rule.path,
)
