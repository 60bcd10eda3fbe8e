"""WSGI entrance of the web server."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

from rmhub import memory, traces
from rmhub.metrics import timed

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmhub.settings")

django_application = get_wsgi_application()

# They need the app registry.
from messaging.entrance.urls import entrance_first  # noqa: E402
from messaging.overview.probes import probes_first  # noqa: E402

application = probes_first(timed(entrance_first(django_application)))
traces.active()  # now, and not with the first message
memory.settle()
