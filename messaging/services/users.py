"""What people change about their own access."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from messaging.services import audit
from messaging.services.audit import Actor


@sensitive_variables("password")
def password_change(*, user: AbstractBaseUser, password: str, actor: Actor) -> None:
    """Sets a password that the validators have taken. All other sessions of the user end."""
    with transaction.atomic():
        user.set_password(password)
        user.save(update_fields=["password"])
        audit.record(actor, "user.change_password", user, reason="By the user.")
