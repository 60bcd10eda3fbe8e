"""After a new key was put in front of RMHUB_SECRET_KEYS: everything that is encrypted at rest, under that key."""

from __future__ import annotations

import base64
import copy

from django.db import models, transaction

from messaging.models import NotificationRule, OnboardingDraft, SecondFactor, Trigger, WebhookEndpoint
from partners import services
from partners.secrets import reencrypt

# (model, columns): every secret of this app that lies in a column of its own.
COLUMNS: tuple[tuple[type[models.Model], tuple[str, ...]], ...] = (
    (WebhookEndpoint, ("secret_encrypted", "previous_secret_encrypted")),
    (Trigger, ("secret_encrypted",)),
    (SecondFactor, ("secret_encrypted",)),
    (NotificationRule, ("secret_encrypted",)),
)


def secrets_reencrypt() -> int:
    """Encrypts all stored secrets under the first key, so that older keys can be dropped. Returns how many.

    Raises SecretUnreadable, and then changes none of them.
    """
    with transaction.atomic():
        count = services.credentials_reencrypt()
        for model, columns in COLUMNS:
            for row in model._default_manager.select_for_update().order_by("pk"):
                kept = [name for name in columns if bytes(getattr(row, name))]
                for name in kept:
                    setattr(row, name, reencrypt(getattr(row, name)))
                if kept:
                    row.save(update_fields=kept)
                    count += len(kept)
        for draft in OnboardingDraft.objects.select_for_update().order_by("pk"):
            data = copy.deepcopy(draft.data)
            held = [step for step in data.values() if isinstance(step, dict) and step.get("secret")]
            for step in held:
                step["secret"] = base64.b64encode(reencrypt(base64.b64decode(step["secret"]))).decode()
            if held:
                draft.data = data
                draft.save(update_fields=["data"])
                count += len(held)
    return count
