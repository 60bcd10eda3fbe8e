"""A client of the REST API of RM Hub: submissions, the event feed, pull queues, and the signatures of webhooks.

Standard library only. `Client` is safe to use in many threads at once; each has connections of its own.
"""

from __future__ import annotations

from rmhub_client.client import Client, Document, EventPage, Receipt, Taken, Uploaded, Warned
from rmhub_client.problems import NoAnswer, Problem
from rmhub_client.webhooks import BadSignature, WebhookEvent, check, verify

__all__ = [
    "BadSignature",
    "Client",
    "Document",
    "EventPage",
    "NoAnswer",
    "Problem",
    "Receipt",
    "Taken",
    "Uploaded",
    "Warned",
    "WebhookEvent",
    "check",
    "verify",
]
