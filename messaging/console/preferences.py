"""What whoever looks at a page prefers; looked up once a request."""

from __future__ import annotations

from django.http import HttpRequest

from messaging.access.selectors.people import preferences_of
from messaging.models import Preference


def preferences(request: HttpRequest) -> Preference:
    """Of this request's person; as it comes for nobody in particular."""
    known: Preference | None = getattr(request, "_console_preferences", None)
    if known is None:
        # Error pages may be made before the session was read.
        user = getattr(request, "user", None)
        known = preferences_of(user.pk) if user is not None and user.pk is not None else Preference()
        request._console_preferences = known  # type: ignore[attr-defined]
    return known
