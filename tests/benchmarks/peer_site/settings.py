"""One of two AS2 parties, sender or receiver, with a database of its own. The rest is as Django makes it."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

SIDE = os.environ["PEER_SIDE"]
RECEIVER_URL = os.environ["PEER_RECEIVER_URL"]
_database = urlsplit(os.environ["PEER_DATABASE_URL"])

SECRET_KEY = "a benchmark on loopback has no secrets"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "peer_site.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
STATIC_URL = "/static/"
KEYS = os.environ["PEER_KEYS"]
MEDIA_ROOT = os.environ["PEER_MEDIA"]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "pyas2",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database.path.lstrip("/"),
        "USER": unquote(_database.username or ""),
        "PASSWORD": unquote(_database.password or ""),
        "HOST": _database.hostname,
        "PORT": _database.port,
        # Kept connections are a kindness to the peer: Django's default would open one for every message.
        "CONN_MAX_AGE": 60,
    }
}
PYAS2 = {"DATA_DIR": None, "MDN_URL": f"{RECEIVER_URL}/pyas2/as2receive"}
LOGGING = {"version": 1, "disable_existing_loggers": False, "root": {"level": "WARNING", "handlers": []}}
