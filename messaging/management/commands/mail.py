"""`manage.py mail`: the partners' mail entrance as a process of its own (docs/mail.md)."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from messaging.entrance.smtp_server import Entrance, Options, serve


class Command(BaseCommand):
    help = "Takes mail for the hub's own endpoints by SMTP, at RMHUB_SMTP_LISTEN (docs/mail.md)."

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.RMHUB_SMTP_LISTEN is None:
            raise CommandError("Set RMHUB_SMTP_LISTEN to host:port, such as 0.0.0.0:25, to take mail by SMTP.")
        host, port = settings.RMHUB_SMTP_LISTEN
        try:
            entrance = Entrance(entrance_options())
        except OSError as error:
            raise CommandError(f"The certificate RMHUB_SMTP_TLS_CERT cannot be used: {error}") from error
        try:
            asyncio.run(_until_stopped(entrance, host, port))
        except OSError as error:
            raise CommandError(f"Cannot take mail at {host or '*'}:{port}: {error}") from error
        finally:
            entrance.close()


def entrance_options() -> Options:
    """The entrance as the settings have it."""
    return Options(
        name=settings.RMHUB_SMTP_NAME,
        max_message_bytes=settings.RMHUB_MAX_MESSAGE_BYTES,
        certificate=settings.RMHUB_SMTP_TLS_CERT,
        key=settings.RMHUB_SMTP_TLS_KEY,
        relays=tuple(settings.RMHUB_SMTP_TRUSTED_RELAYS),
        checker=settings.RMHUB_SMTP_TRUSTED_CHECKER,
        connections=settings.RMHUB_SMTP_CONNECTIONS,
    )


async def _until_stopped(entrance: Entrance, host: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(entrance, host, port, stop)
