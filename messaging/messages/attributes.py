"""Rules that take attributes from documents: made, changed, deleted; and taken again from what is stored already."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from messaging.engine import attributes, subscriptions
from messaging.exceptions import NotFound
from messaging.journal import changing
from messaging.journal.audit import Actor
from messaging.messages.selectors.search_terms import KEYS
from messaging.models import AttributeRule, Message
from messaging.models.base import existing
from messaging.protocol import selecting
from messaging.resource import Resource, deletion
from rmhub import clock
from rmhub.language import gettext_lazy

SETTINGS = ("name", "kind", "path", "partner", "service", "action", "shown", "enabled")


def rules() -> QuerySet[AttributeRule]:
    """All rules with their partners, by name."""
    return AttributeRule.objects.select_related("partner").order_by("name", "id")


def rule(attribute_id: uuid.UUID) -> AttributeRule:
    """One rule. Raises NotFound."""
    return existing(rules(), attribute_id)


def rule_create(*, actor: Actor, reason: str, **values: Any) -> AttributeRule:
    """Make a rule. `partner`: id of the only partner whose documents it is about. Raises InvalidSubmission by field."""
    now = clock.now()
    made = AttributeRule(created_at=now, updated_at=now)
    made = changing.made("attribute.create", made, values, SETTINGS, _wrong, actor, reason)
    attributes.known.forget()
    return made


def rule_update(
    *, attribute_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None, **values: Any
) -> AttributeRule:
    """Change what is given; it holds for what comes from now on. Raises NotFound, Stale, InvalidSubmission by field."""
    changed = changing.changed(
        "attribute.update", rules(), attribute_id, values, SETTINGS, actor, reason, expected_version, check=_wrong
    )
    attributes.known.forget()
    return changed


def rule_delete(*, attribute_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> None:
    """What it has taken stays with the messages. Raises NotFound, Stale, InvalidSubmission."""
    changing.deleted("attribute.delete", rules(), attribute_id, SETTINGS, actor, reason, expected_version)
    attributes.known.forget()


def _wrong(made: AttributeRule) -> dict[str, list[str]]:
    """What the fields alone do not say: a name that can be searched for, and a path of its kind."""
    errors = {}
    if not attributes.NAME.fullmatch(made.name):
        errors["name"] = [_("A small letter, then small letters, digits, _ or -: invoice, or order-number.")]
    elif made.name in KEYS:
        errors["name"] = [_("{name}: is a search term of its own already. Choose another name.").format(name=made.name)]
    try:
        selecting.check(made.kind, made.path)
    except ValueError as error:
        errors["path"] = [_("Write {error}.").format(error=error)]
    return errors


def message_take(*, message_id: uuid.UUID, actor: Actor, reason: str) -> Message:
    """Take the attributes of a stored message from its documents again, by the rules that hold now.

    What no rule finds another value for stays: what its application gave, too. Raises NotFound.
    """
    with transaction.atomic():
        found = Message.objects.filter(pk=message_id).select_related("pair").defer("wire_frame")
        message = found.select_for_update(of=("self",), no_key=True).first()
        if message is None:
            raise NotFound(_("It has left the store."))
        taken = attributes.of_documents(
            subscriptions.stored(message),
            partner_id=message.pair.partner_id,
            service=message.service,
            action=message.action,
            given=message.attributes,
        )
        if taken != message.attributes:
            message.attributes = taken
            message.save(update_fields=["attributes"])
    return message


ATTRIBUTES = Resource(
    name=gettext_noop("attribute"),
    plural=gettext_noop("attributes"),
    prefix="atr",
    reads="attributes:manage",
    changes="attributes:manage",
    rows=rules,
    one=rule,
    order=("name", "id"),
    create=rule_create,
    update=rule_update,
    possible=lambda rule: ("delete",),
    verbs=(
        deletion(
            rule_delete,
            (
                gettext_lazy("Messages that come from now on are not found by what it took."),
                gettext_lazy("What it has taken from stored messages stays: they are found by it as before."),
            ),
        ),
    ),
)
