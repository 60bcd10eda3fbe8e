"""Entrance of the receiving party's web server."""

from __future__ import annotations

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
