"""All settings in one place. What differs between installations comes from the environment (docs/operations.md)."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from csp.constants import NONE, SELF

from rmhub import broker
from rmhub.env import (
    contradiction,
    env_amount,
    env_apps,
    env_bool,
    env_broker,
    env_bucket,
    env_choice,
    env_database,
    env_file,
    env_headers,
    env_hosts,
    env_hour,
    env_int,
    env_keys,
    env_listen,
    env_match,
    env_networks,
    env_origins,
    env_roles,
    env_share,
    env_str,
    env_url,
    gather,
    mail_name,
    refuse,
    refuse_unknown,
)
from rmhub.local_secrets import local_secrets

os.umask(0o077)  # whatever a process of the hub writes is for its own user only
gather()  # what is wrong is told at the end, all of it

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = Path(env_str("RMHUB_VAR") or BASE_DIR / "var")

DEBUG = env_bool("RMHUB_DEBUG", False)
SECRET_KEY = env_str("RMHUB_SECRET_KEY")
# Fernet keys for secrets at rest, comma separated: the first encrypts, all decrypt (rotation).
RMHUB_SECRET_KEYS = env_keys("RMHUB_SECRET_KEYS")

ALLOWED_HOSTS = env_hosts("RMHUB_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]")
CSRF_TRUSTED_ORIGINS = env_origins("RMHUB_TRUSTED_ORIGINS")
# Behind a TLS proxy: secure cookies, HSTS and the redirect to https. Off only for a hub on loopback.
SECURE = env_bool("RMHUB_HTTPS", False)
RMHUB_COOKIE_SUFFIX = env_match("RMHUB_COOKIE_SUFFIX", "", r"[A-Za-z0-9_.-]{1,40}", "hub-1")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE
SECURE_SSL_REDIRECT = SECURE
SECURE_HSTS_SECONDS = env_int("RMHUB_HSTS_SECONDS", 31_536_000 if SECURE else 0, minimum=0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = SECURE
if SECURE:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SESSION_COOKIE_NAME = "__Host-sessionid"
# Two hubs on one machine share the host name, and cookies know no ports: each hub names its own.
elif RMHUB_COOKIE_SUFFIX:
    SESSION_COOKIE_NAME = "sessionid_" + RMHUB_COOKIE_SUFFIX
    CSRF_COOKIE_NAME = "csrftoken_" + RMHUB_COOKIE_SUFFIX
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}
# Networks of the proxies that are believed when they say whom they speak for; from all others such headers are dropped.
RMHUB_TRUSTED_PROXIES = env_networks("RMHUB_TRUSTED_PROXIES")
RMHUB_FORWARDED_HEADER = env_choice("RMHUB_FORWARDED_HEADER", "X-FORWARDED-FOR", ("X-FORWARDED-FOR", "FORWARDED"))
# In this header they hand on the SHA-256 fingerprint of the client's certificate. Empty = no log-in by certificate.
RMHUB_FINGERPRINT_HEADER = env_match("RMHUB_FINGERPRINT_HEADER", "", r"[A-Za-z0-9-]+", "X-Client-Fingerprint")

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django.contrib.postgres",
    "django_htmx",
    "csp",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "rmhub",
    "partners",
    "messaging",
    # Applications that run in the hub's own processes and register callables (messaging.applications).
    *env_apps("RMHUB_APPS"),
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "rmhub.middleware.request_id",
    "rmhub.middleware.permissions_policy",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "rmhub.middleware.BoundedForms",  # before whoever looks for the CSRF token in the form
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "messaging.console.languages.Language",
]
ROOT_URLCONF = "rmhub.urls"
WSGI_APPLICATION = "rmhub.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "messaging.console.context.hub",
            ],
            "builtins": ["django.templatetags.i18n"],
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    [
                        "django.template.loaders.filesystem.Loader",
                        "django.template.loaders.app_directories.Loader",
                    ],
                )
            ],
        },
    }
]

# manage.py starts the embedded servers and sets these two when nobody else did.
_database = env_database("DATABASE_URL", "postgresql://rmhub@127.0.0.1:1/rmhub")
DATABASES = {"default": _database}
_database["CONN_MAX_AGE"] = 0  # given back to the process at the end of a request or task
_database["OPTIONS"] = {
    "connect_timeout": 5,
    # A server that vanished without a word is noticed.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    # Of this process at once, whatever its threads, with those of its locks: a hub (web server, worker, data pipeline)
    # has at most twelve.
    "connections": env_int("RMHUB_DB_CONNECTIONS", 4, minimum=3, maximum=1000),
    "application_name": env_str("RMHUB_PROCESS", "rmhub"),
    # Parameters travel apart from the statement, and a statement that comes again is not planned again
    # (measured: a quarter less CPU in the database). Behind a pooler that shares sessions, set it to 0.
    "server_side_binding": True,
    "prepare_threshold": env_int("RMHUB_PREPARE_THRESHOLD", 3, minimum=0) or None,
    **_database["OPTIONS"],
}
REDIS_URL = env_broker("REDIS_URL", "redis://127.0.0.1:1/0")

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "console:login"
LOGIN_REDIRECT_URL = "console:dashboard"
LOGOUT_REDIRECT_URL = "console:login"
SESSION_COOKIE_AGE = 12 * 3600
# Seconds without a click after which a session ends; 0 = never before its 12 hours. Live regions do not count.
RMHUB_SESSION_IDLE = env_int("RMHUB_SESSION_IDLE", 2 * 3600, minimum=0)
# Everybody who logs in by a password has a second factor: whoever has none sets one up before anything else.
RMHUB_REQUIRE_SECOND_FACTOR = env_bool("RMHUB_REQUIRE_SECOND_FACTOR", False)
# Log-in by the organisation's OpenID provider (docs/users.md). Without an issuer there is none.
RMHUB_OIDC_ISSUER = env_url("RMHUB_OIDC_ISSUER", "", ("https", "http"))
RMHUB_OIDC_CLIENT_ID = env_str("RMHUB_OIDC_CLIENT_ID")
RMHUB_OIDC_CLIENT_SECRET = env_str("RMHUB_OIDC_CLIENT_SECRET")
RMHUB_OIDC_SCOPES = env_str("RMHUB_OIDC_SCOPES", "openid profile email")
RMHUB_OIDC_LABEL = env_str("RMHUB_OIDC_LABEL", "single sign-on")  # what the button says
RMHUB_OIDC_NAME_CLAIM = env_str("RMHUB_OIDC_NAME_CLAIM", "preferred_username")  # becomes the user name
RMHUB_OIDC_ROLE_CLAIM = env_str("RMHUB_OIDC_ROLE_CLAIM")  # e.g. groups; empty = roles are given here
RMHUB_OIDC_ROLES = env_roles("RMHUB_OIDC_ROLES", "admin=admin,operator=operator,viewer=viewer")  # its values -> roles

LANGUAGE_CODE = "en-gb"
LANGUAGES = [("en-gb", "English"), ("de", "Deutsch"), ("fr", "Français")]
LOCALE_PATHS = [BASE_DIR / "rmhub" / "locale"]
TIME_ZONE = "UTC"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

STATIC_URL = "/static/"
STATIC_ROOT = Path(env_str("RMHUB_STATIC_DIR") or VAR_DIR / "static")
STATICFILES_DIRS = [BASE_DIR / "static"]
FILE_UPLOAD_HANDLERS = [
    "django.core.files.uploadhandler.MemoryFileUploadHandler",
    "rmhub.uploads.Spooled",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

# ---- the hub ----
RMHUB_NAME = env_str("RMHUB_NAME", "RM Hub")
RMHUB_ENVIRONMENT = env_str("RMHUB_ENVIRONMENT", "TEST")
# Of mails to addresses that are nobody's user; people choose their own, and the browser's is the default.
RMHUB_LANGUAGE = env_match("RMHUB_LANGUAGE", LANGUAGE_CODE, "en-gb|de|fr", "en-gb, de or fr")
RMHUB_PUBLIC_URL = env_url("RMHUB_PUBLIC_URL", "http://127.0.0.1:8000", ("https", "http")).rstrip("/")
RMHUB_STORE_DIR = Path(env_str("RMHUB_STORE_DIR") or VAR_DIR / "store")
# Instead of that folder: large payloads as objects of a bucket (docs/operations.md, "Payloads in object storage").
RMHUB_STORE_URL = env_bucket("RMHUB_STORE_URL")
RMHUB_STORE_ACCESS_KEY = env_str("RMHUB_STORE_ACCESS_KEY")
RMHUB_STORE_SECRET_KEY = env_str("RMHUB_STORE_SECRET_KEY")
# The data pipeline: its Parquet files, the archive, and where Spark runs (docs/pipeline.md).
RMHUB_LAKE_DIR = Path(env_str("RMHUB_LAKE_DIR") or VAR_DIR / "lake")
RMHUB_ARCHIVE_DIR = Path(env_str("RMHUB_ARCHIVE_DIR") or VAR_DIR / "archive")
SPARK_MASTER = env_str("SPARK_MASTER", "local[*]")
SPARK_REMOTE = env_str("SPARK_REMOTE")
RMHUB_SPARK_MEMORY = env_match("RMHUB_SPARK_MEMORY", "1g", r"\d+[mMgG]", "1g or 2048m")
RMHUB_PIPELINE_DAILY_AT = env_hour("RMHUB_PIPELINE_DAILY_AT", "03:15")  # UTC; empty = not
RMHUB_EXTRACT_MINUTES = env_int("RMHUB_EXTRACT_MINUTES", 0, minimum=0, maximum=1440)  # extracts in between; 0 = none
RMHUB_PARTNER_LOG_MAX_BYTES = env_int("RMHUB_PARTNER_LOG_MAX_BYTES", 2 * 1024**3, minimum=1024)
RMHUB_PIPELINE_LIVE = env_bool("RMHUB_PIPELINE_LIVE", False)  # `up` also starts `manage.py pipeline live`
RMHUB_STORAGE_PRICE_GB_MONTH = env_amount("RMHUB_STORAGE_PRICE_GB_MONTH")  # a number in your currency; empty = no costs
RMHUB_INLINE_PAYLOAD_BYTES = env_int("RMHUB_INLINE_PAYLOAD_BYTES", 1024 * 1024, minimum=0)
RMHUB_PAIR_QUEUE = env_int("RMHUB_PAIR_QUEUE", 1_000_000, minimum=1)  # messages that may wait in one pair
RMHUB_MAX_MESSAGE_BYTES = env_int("RMHUB_MAX_MESSAGE_BYTES", 50 * 1024 * 1024, minimum=1024)
# Of JSON with documents in base64, which is held in memory about five times; forms are read piece by piece.
RMHUB_MAX_JSON_BYTES = env_int("RMHUB_MAX_JSON_BYTES", 70 * 1024 * 1024, minimum=1024)
RMHUB_UPLOADS_OPEN = env_int("RMHUB_UPLOADS_OPEN", 20, minimum=1)  # in parts, not used yet, of one API user
RMHUB_TRANSACTION_SECONDS = env_int("RMHUB_TRANSACTION_SECONDS", 300, minimum=1, maximum=86_400)  # the longest one
RMHUB_TRANSACTION_DAYS = env_int("RMHUB_TRANSACTION_DAYS", 90, minimum=1)  # how long ended ones are kept
RMHUB_TRANSACTION_MESSAGE_BYTES = env_int("RMHUB_TRANSACTION_MESSAGE_BYTES", 64 * 1024, minimum=4096)
RMHUB_TRANSACTION_PARTICIPANTS = env_int("RMHUB_TRANSACTION_PARTICIPANTS", 100, minimum=2)  # registered in one
RMHUB_TRANSACTIONS_OPEN = env_int("RMHUB_TRANSACTIONS_OPEN", 1000, minimum=1)  # of one partner, of one API user
# What the web server asks of those who send bodies (docs/operations.md, "Slow and large bodies").
RMHUB_BODY_GRACE_SECONDS = env_int("RMHUB_BODY_GRACE_SECONDS", 10, minimum=1, maximum=600)
RMHUB_BODY_RATE = env_int("RMHUB_BODY_RATE", 8192, minimum=1)  # bytes a second, on average, after that
RMHUB_BODY_SECONDS = env_int("RMHUB_BODY_SECONDS", 1800, minimum=1)  # at most
RMHUB_BODY_MEMORY_BYTES = env_int("RMHUB_BODY_MEMORY_BYTES", 64 * 1024 * 1024, minimum=1024 * 1024)
RMHUB_BODY_SPOOL_BYTES = env_int("RMHUB_BODY_SPOOL_BYTES", 4 * 1024**3, minimum=1024 * 1024)
RMHUB_BODY_WAIT_SECONDS = env_int("RMHUB_BODY_WAIT_SECONDS", 20, minimum=0, maximum=600)
# A web server that is told to end: so long it only says so (/readyz), and so long it finishes what it has begun.
RMHUB_DRAIN_SECONDS = env_int("RMHUB_DRAIN_SECONDS", 0, minimum=0, maximum=300)
RMHUB_FINISH_SECONDS = env_int("RMHUB_FINISH_SECONDS", 5, minimum=1, maximum=1500)
RMHUB_WEB_THREADS = env_int("RMHUB_WEB_THREADS", 32, minimum=1, maximum=1024)  # requests that are served at once
# So long a message of a stream that has overtaken its predecessor waits for it; 0 = the rules decide at once.
RMHUB_STREAM_HOLD_MS = env_int("RMHUB_STREAM_HOLD_MS", 1000, minimum=0, maximum=10_000)
RMHUB_SWEEP_SECONDS = env_int("RMHUB_SWEEP_SECONDS", 1, minimum=1, maximum=60)
RMHUB_SEND_THREADS = env_int("RMHUB_SEND_THREADS", 16, minimum=1, maximum=256)
RMHUB_SEND_BATCH = env_int("RMHUB_SEND_BATCH", 64, minimum=1, maximum=1000)
RMHUB_POLLER_THREADS = env_int("RMHUB_POLLER_THREADS", 4, minimum=1, maximum=64)  # looks at the same time
RMHUB_DELIVER_THREADS = env_int("RMHUB_DELIVER_THREADS", 32, minimum=1, maximum=256)
# Mail (docs/mail.md). The relay takes mails of endpoints without a server of their own.
_MAIL = ("smtp", "smtp+starttls", "smtps")
RMHUB_SMTP_RELAY = env_url("RMHUB_SMTP_RELAY", "", _MAIL)
RMHUB_SMTP_NAME = env_str("RMHUB_SMTP_NAME") or mail_name(urlsplit(RMHUB_PUBLIC_URL).hostname or "localhost")
RMHUB_SMTP_LISTEN = env_listen("RMHUB_SMTP_LISTEN")  # None = the hub takes no mail by SMTP
RMHUB_SMTP_TLS_CERT = env_file("RMHUB_SMTP_TLS_CERT")  # paths of PEM files
RMHUB_SMTP_TLS_KEY = env_file("RMHUB_SMTP_TLS_KEY")
RMHUB_SMTP_TRUSTED_RELAYS = env_networks("RMHUB_SMTP_TRUSTED_RELAYS")
RMHUB_SMTP_TRUSTED_CHECKER = env_str("RMHUB_SMTP_TRUSTED_CHECKER")
RMHUB_SMTP_CONNECTIONS = env_int("RMHUB_SMTP_CONNECTIONS", 50, minimum=1, maximum=1000)
# Mails to people (docs/notifications.md): by this server, else by the relay.
RMHUB_MAIL_SERVER = env_url("RMHUB_MAIL_SERVER", "", _MAIL)
RMHUB_MAIL_FROM = env_match("RMHUB_MAIL_FROM", f"rmhub@{RMHUB_SMTP_NAME}", r"[^@\s]+@[^@\s]+", "rmhub@hub.example.org")
# Requests a minute of one caller (docs/api.md, "Limits"); 0 = no limit.
RMHUB_RATE_READ = env_int("RMHUB_RATE_READ", 6000, minimum=0)
RMHUB_RATE_SUBMIT = env_int("RMHUB_RATE_SUBMIT", 60_000, minimum=0)
RMHUB_RATE_OPERATE = env_int("RMHUB_RATE_OPERATE", 1200, minimum=0)
RMHUB_RATE_PARTNER = env_int("RMHUB_RATE_PARTNER", 0, minimum=0)  # of one partner at the entrances
RMHUB_RATE_REPEATS = env_int("RMHUB_RATE_REPEATS", 60, minimum=0)  # copies of one repeatable request
# Where the worker answers /metrics; the web server does by its own port. None = not.
RMHUB_METRICS_LISTEN = env_listen("RMHUB_METRICS_LISTEN")
# Where spans of traces go (OTLP over HTTP; docs/operations.md, "Traces"). Without it nothing is traced.
RMHUB_TRACES_URL = env_url("RMHUB_TRACES_URL", "", ("https", "http"))
RMHUB_TRACES_HEADERS = env_headers("RMHUB_TRACES_HEADERS")  # for the collector: a token, mostly
RMHUB_TRACES_SHARE = env_share("RMHUB_TRACES_SHARE", 1.0)  # of all messages that are traced
# Webhooks may not reach private addresses unless the installation says so (demo, tests, an internal bus).
RMHUB_WEBHOOK_ALLOW_PRIVATE = env_bool("RMHUB_WEBHOOK_ALLOW_PRIVATE", False)

# ---- Celery: the broker only wakes workers; the database holds what is due ----
CELERY_BROKER_URL = broker.celery_url(REDIS_URL)
CELERY_BROKER_USE_SSL = broker.celery_tls(REDIS_URL)
CELERY_TIMEZONE = "UTC"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_DEFAULT_QUEUE = "rmhub"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a worker works without a broker, however long that is away
_broker_timeouts = {"socket_timeout": 10, "socket_connect_timeout": 5}
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 300,
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    **_broker_timeouts,
    "retry_on_timeout": True,
    **broker.celery_options(REDIS_URL, _broker_timeouts),
}
CELERY_TASK_PUBLISH_RETRY = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
# Workers look for due work by themselves, every RMHUB_SWEEP_SECONDS; this is the net below that. Nobody looks for the
# last two.
CELERY_BEAT_SCHEDULE = {
    name: {"task": f"messaging.{name}", "schedule": seconds, "options": {"expires": seconds}}
    for name, seconds in {
        "send_due": 60,
        "deliver_due": 60,
        "webhooks_due": 60,
        "jobs_due": 60,
        "pollers_due": 60,
        "transactions_due": 60,
        "monitors_due": 60,
        "traffic_due": 60,
        "notifications_due": 60,
        "audit_seal": 60,
        "pipeline_due": 30,
        "housekeeping": 30,
    }.items()
}
CELERY_BEAT_SCHEDULER = "rmhub.beat:Scheduler"
CELERY_BEAT_SCHEDULE_FILENAME = str(VAR_DIR / f"beat-{RMHUB_COOKIE_SUFFIX or 'hub'}")

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "messaging.api.authentication.TokenAuthentication",
        "messaging.api.authentication.ConsoleSessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["messaging.api.permissions.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": [
        "rest_framework.parsers.JSONParser",
        "rest_framework.parsers.MultiPartParser",
    ],
    "EXCEPTION_HANDLER": "messaging.api.problems.exception_handler",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "UNAUTHENTICATED_USER": None,
}
# The description is made by `manage.py openapi`, which has settings of its own and fails on every warning.
SILENCED_SYSTEM_CHECKS = ["drf_spectacular.W001"]
SPECTACULAR_SETTINGS = {
    "TITLE": "RM Hub API",
    "DESCRIPTION": "Submit documents, follow them, and operate the hub. Everything the console does is here too.",
    "VERSION": "1.0.0",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVERS": [{"url": "/"}],
}

_LINES = {
    "TEXT": ("rmhub.logs.LineFormatter", "rmhub.logs.OneLineFormatter"),
    "JSON": ("rmhub.logs.JsonFormatter", "rmhub.logs.BriefJsonFormatter"),
}
_line, _one_line = _LINES[env_choice("RMHUB_LOG_FORMAT", "TEXT", _LINES)]
RMHUB_ACCESS_LOG = env_bool("RMHUB_ACCESS_LOG", False)  # a line for each request
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"()": _line},
        "one_line": {"()": _one_line},
    },
    "filters": {"once": {"()": "rmhub.logs.OnceAMinute"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["once"]},
        "strangers": {"class": "logging.StreamHandler", "formatter": "one_line"},
    },
    "root": {
        "handlers": ["stderr"],
        "level": env_choice("RMHUB_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")),
    },
    "loggers": {
        "rmhub.access": {"level": "INFO"},  # switched on by a setting of its own
        "django.request": {"level": "ERROR"},
        "django.security": {"handlers": ["strangers"], "propagate": False},
        "celery": {"level": "WARNING"},
        "kombu": {"level": "WARNING"},
        "urllib3": {"level": "ERROR"},
        # Its complaints are about strangers' connections; what we refuse is logged by the entrance itself.
        "mail.log": {"level": "CRITICAL"},
        "paramiko": {"level": "CRITICAL"},  # what it has to say comes as an exception
        "opentelemetry": {"level": "CRITICAL"},  # what becomes of spans is counted, and said by `rmhub.traces`
        "_granian": {"level": "WARNING"},
    },
}

# Settings that cannot all be meant.
contradiction(
    SECURE and bool(env_str("RMHUB_PUBLIC_URL")) and RMHUB_PUBLIC_URL.startswith("http://"),
    "RMHUB_HTTPS=1, but RMHUB_PUBLIC_URL begins with http://: links would lead past TLS",
    "RMHUB_HTTPS",
    "RMHUB_PUBLIC_URL",
)
contradiction(
    bool(RMHUB_FINGERPRINT_HEADER) and not RMHUB_TRUSTED_PROXIES,
    "RMHUB_FINGERPRINT_HEADER is set, but RMHUB_TRUSTED_PROXIES names no proxy: nobody could log in by certificate",
    "RMHUB_FINGERPRINT_HEADER",
    "RMHUB_TRUSTED_PROXIES",
)
contradiction(
    SECURE and not RMHUB_TRUSTED_PROXIES,
    "RMHUB_HTTPS=1, but RMHUB_TRUSTED_PROXIES names no proxy: its X-Forwarded-Proto is not heard, and every page "
    "would redirect to itself",
    "RMHUB_HTTPS",
    "RMHUB_TRUSTED_PROXIES",
)
contradiction(
    bool(RMHUB_OIDC_ISSUER) != bool(RMHUB_OIDC_CLIENT_ID),
    "RMHUB_OIDC_ISSUER and RMHUB_OIDC_CLIENT_ID go together: set both or none",
    "RMHUB_OIDC_ISSUER",
    "RMHUB_OIDC_CLIENT_ID",
)
contradiction(
    bool(RMHUB_TRACES_HEADERS) and not RMHUB_TRACES_URL,
    "RMHUB_TRACES_HEADERS is set, but RMHUB_TRACES_URL names no collector: nothing would be traced",
    "RMHUB_TRACES_HEADERS",
    "RMHUB_TRACES_URL",
)
contradiction(
    bool(RMHUB_STORE_ACCESS_KEY) != bool(RMHUB_STORE_SECRET_KEY),
    "RMHUB_STORE_ACCESS_KEY and RMHUB_STORE_SECRET_KEY go together: set both or none",
    "RMHUB_STORE_ACCESS_KEY",
    "RMHUB_STORE_SECRET_KEY",
)
# Read where no settings are at hand: by the embedded servers, in examples of the console, and by the tests.
refuse_unknown(
    "RMHUB_",
    known_elsewhere=(
        "RMHUB_POSTGRES_BIN",
        "RMHUB_VALKEY_BIN",
        "RMHUB_TOKEN",
        "RMHUB_CHROMIUM",
        "RMHUB_SCHEMATHESIS",
        "RMHUB_SCREENSHOTS",
        "RMHUB_TESTS",
        "RMHUB_TEST_CONNECT",
        "RMHUB_TEST_DB",
    ),
)
refuse()
# Only now: nothing is written for an installation whose settings are wrong.
if not SECRET_KEY or not RMHUB_SECRET_KEYS:
    _local = local_secrets(VAR_DIR)
    SECRET_KEY = SECRET_KEY or _local["secret_key"]
    RMHUB_SECRET_KEYS = RMHUB_SECRET_KEYS or [_local["fernet_key"]]
