from __future__ import annotations

from django.http import HttpRequest


def hub(request: HttpRequest) -> dict[str, object]:
    return {}
