"""`manage.py send FILE --agreement ID`: hands a document over, like an application would."""

from __future__ import annotations

import getpass
import json
import mimetypes
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from messaging.exceptions import ApplicationError
from messaging.messages.services.submitting import NewPayload, message_submit
from partners import registry


class Command(BaseCommand):
    help = "Stores a document for the partner of an agreement; the workers send it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="the document")
        parser.add_argument("--agreement", required=True, help="TPAId of the agreement")
        parser.add_argument("--service", default="", help="default: the agreement's only service")
        parser.add_argument("--action", default="", help="default: the agreement's only action")
        parser.add_argument("--content-type", default="", help="default: guessed from the file's name")
        parser.add_argument("--message-id", default="", help="default: a new one")
        parser.add_argument(
            "--document-id",
            default="",
            help="what the document is called: its receiver processes it once, whatever message brings it "
            "(default: the MessageId)",
        )
        parser.add_argument("--conversation-id", default="")
        parser.add_argument(
            "--time-to-live", type=int, help="streams: seconds until it expires (default: the agreement's)"
        )
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        try:
            content = path.read_bytes()
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror or error}", returncode=2) from error
        service, action = _service_and_action(options)
        kind = options["content_type"] or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        try:
            submission = message_submit(
                agreement=options["agreement"],
                service=service,
                action=action,
                payloads=[NewPayload(content, kind, path.name, action[:120])],
                message_id=options["message_id"],
                conversation_id=options["conversation_id"],
                submitted_by=f"command:{getpass.getuser()}",
                time_to_live=options["time_to_live"],
                document_id=options["document_id"],
            )
        except ApplicationError as error:
            raise CommandError(f"{error.code}: {error.detail}", returncode=2) from error
        message = submission.message
        if options["json"]:
            found = {"id": message.public_id, "message_id": message.message_id, "document_id": message.identifies}
            self.stdout.write(json.dumps({**found, "state": message.state}))
            return
        self.stdout.write(f"{message.public_id} {message.message_id}: stored, number {message.position} of its pair")
        for _, sentence in submission.warnings:
            self.stderr.write(sentence)


def _service_and_action(options: dict[str, Any]) -> tuple[str, str]:
    """What is named, else the only one that the agreement allows us to send. Raises CommandError."""
    terms = registry.current().by_tpa_id(options["agreement"])
    if terms is None:
        raise CommandError(f"No agreement with TPAId {options['agreement']!r} is active.", returncode=2)
    services = {service for service, _, direction in terms.services if direction in ("send", "both")}
    if not services:
        raise CommandError(f"Agreement {terms.tpa_id} lets us send nothing.", returncode=2)
    service = options["service"] or (services.pop() if len(services) == 1 else "")
    if not service:
        raise CommandError(f"Name one with --service: {', '.join(sorted(services))}.", returncode=2)
    actions = {action for known, action, way in terms.services if known == service and way in ("send", "both")} - {"*"}
    action = options["action"] or (actions.pop() if len(actions) == 1 else "")
    if not action:
        known = f": {', '.join(sorted(actions))}" if actions else ""
        raise CommandError(f"Name the action with --action{known}.", returncode=2)
    return service, action
