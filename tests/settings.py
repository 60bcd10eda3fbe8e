"""Settings of the tests: the real ones, with a handful of values changed."""

import os

from tests import servers

servers.ensure()

from rmhub.settings import *  # noqa: E402, F403
from rmhub.settings import DATABASES  # noqa: E402

DATABASES["default"]["TEST"] = {"NAME": os.environ.get("RMHUB_TEST_DB", "test_rmhub")}
DATABASES["default"]["OPTIONS"]["connections"] = 64  # threads of tests keep theirs
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
RMHUB_WEBHOOK_ALLOW_PRIVATE = True
# A test's threads come straight to the services, without the front that lets those wait for whom there is no room yet.
RMHUB_WEB_THREADS = 1024
# Whoever is logged in stays so when a test moves the clock; tests of idle sessions set their own.
RMHUB_SESSION_IDLE = 0
# Test runs share a Valkey; those that are about limits set their own.
RMHUB_RATE_READ = RMHUB_RATE_SUBMIT = RMHUB_RATE_OPERATE = RMHUB_RATE_PARTNER = RMHUB_RATE_REPEATS = 0
