"""A new key goes in front, everything is encrypted under it, and the old key can be dropped."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.core.management import CommandError, call_command

from messaging.access.services import rekeying
from messaging.journal.audit import Actor
from messaging.models import NotificationRule, SecondFactor, WebhookEndpoint
from messaging.notifications.services import webhooks
from partners.models import Party
from partners.secrets import decrypt, encrypt
from rmhub import clock
from tests.messaging.console.scenes import trigger_for, user
from tests.messaging.factories import partner_side
from tests.partners.factories import make_outbound_credential

pytestmark = pytest.mark.django_db


def _stored(settings: Any) -> str:
    old = Fernet.generate_key().decode()
    settings.RMHUB_SECRET_KEYS = [old]
    partner = partner_side()
    make_outbound_credential(Party.objects.get(pk=partner.terms.partner_id), secret="shown-to-them")
    webhooks.endpoint_create(url="http://127.0.0.1:9/hook", types=[], name="ERP", actor=Actor("ana"))
    trigger_for(partner, "Warehouse")
    SecondFactor.objects.create(user=user(None), secret_encrypted=encrypt("TOTP"), created_at=clock.now())
    now = clock.now()
    secret = encrypt("https://chat.example/hook")
    NotificationRule.objects.create(
        name="Chat", events=["incident.opened"], secret_encrypted=secret, created_at=now, updated_at=now
    )
    return old


def test_every_column_with_a_secret_is_in_the_table() -> None:
    known = {(model, name) for model, columns in rekeying.COLUMNS for name in columns}
    found = {
        (model, column.name)
        for model in apps.get_app_config("messaging").get_models()
        for column in model._meta.concrete_fields
        if column.name.endswith("_encrypted")
    }
    assert found == known


def test_all_secrets_are_readable_without_the_old_key(settings: Any) -> None:
    old, new = _stored(settings), Fernet.generate_key().decode()
    settings.RMHUB_SECRET_KEYS = [new, old]
    assert rekeying.secrets_reencrypt() >= 5
    settings.RMHUB_SECRET_KEYS = [new]
    for model, columns in rekeying.COLUMNS:
        for row in model._default_manager.all():
            for name in columns:
                if held := bytes(getattr(row, name)):
                    assert decrypt(held)


def test_a_lost_key_changes_nothing_and_says_so(settings: Any) -> None:
    _stored(settings)
    before = bytes(WebhookEndpoint.objects.get().secret_encrypted)
    settings.RMHUB_SECRET_KEYS = [Fernet.generate_key().decode()]
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("reencrypt")
    assert bytes(WebhookEndpoint.objects.get().secret_encrypted) == before
