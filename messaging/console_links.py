"""Addresses of console pages that are handed out to people."""

from __future__ import annotations

from django.conf import settings
from django.urls import reverse

from messaging.access.services.users import Invitation


def invitation_link(invitation: Invitation) -> str:
    """Where the invited person sets their password."""
    return f"{settings.RMHUB_PUBLIC_URL}{reverse('console:invitation', args=[invitation.uid, invitation.token])}"
