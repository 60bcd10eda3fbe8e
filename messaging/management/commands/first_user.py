"""`manage.py first_user`: an administrator for a hub that has none yet."""

from __future__ import annotations

import secrets
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.management.base import BaseCommand

from rmhub.roles import ORDER, Role


class Command(BaseCommand):
    help = "Creates the roles, and an administrator with a new password when there is nobody who can log in."

    def handle(self, *args: Any, **options: Any) -> None:
        groups = {role: Group.objects.get_or_create(name=role)[0] for role in ORDER}
        if User.objects.filter(is_active=True).exists():
            return
        password = secrets.token_urlsafe(12)
        user = User.objects.create_user(username="admin", password=password)
        user.groups.add(groups[Role.ADMIN])
        self.stdout.write(f"log-in admin / {password} (shown once; change it after the first log-in)")
