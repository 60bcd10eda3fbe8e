"""Documents that come in parts, before a message has them."""

from __future__ import annotations

from django.db import models

from messaging.models.base import Identified


class Upload(Identified):
    """A document that somebody hands in part by part. Its octets lie in a file (`storage.parts`); `received` of them
    are on the disk for good, whatever else is in the file.
    """

    PREFIX = "upl"

    owner = models.CharField(max_length=150)
    size = models.BigIntegerField(help_text="Octets of the whole document.")
    received = models.BigIntegerField(default=0, help_text="Octets that are here: the offset of the next part.")
    sha256 = models.CharField(
        max_length=64, blank=True, default="", help_text="What its sender said that it has (hexadecimal)."
    )
    message_id = models.UUIDField(
        null=True, blank=True, help_text="The message that has it now: it is used once. Empty before."
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(help_text="When it is deleted, unless a part comes before that.")

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("owner", "id"), name="upload_of"),
            models.Index(fields=("owner",), name="upload_open", condition=models.Q(message_id=None)),
            models.Index(fields=("expires_at",), name="upload_expires"),
        )

    def __str__(self) -> str:
        return self.public_id
