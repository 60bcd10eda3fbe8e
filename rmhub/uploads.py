"""Files of forms: large ones go to the disk, without a name, so that a crash leaves none behind."""

from __future__ import annotations

import tempfile
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler


class Spooled(FileUploadHandler):
    """Takes what Django's handler of small forms has left, into the folder of large bodies."""

    file: UploadedFile

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        folder = settings.VAR_DIR / "spool"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        spooled = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (closed with the request)
        self.file = UploadedFile(spooled, self.file_name, self.content_type, 0, self.charset)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        self.file.write(raw_data)
        return None

    def file_complete(self, file_size: int) -> UploadedFile:
        self.file.seek(0)
        self.file.size = file_size
        return self.file

    def upload_interrupted(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
