"""An attempt as a command line that makes the same request. Secrets are named, never written."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from messaging.models import Message, Signal, Transmission


def command(attempt: Transmission, what: Message | Signal | None, headers: Sequence[tuple[str, str]] = ()) -> str:
    """`curl ...` for what went over HTTP; "" for anything else. The octets are to be downloaded first."""
    if what is None or not attempt.address.startswith(("http://", "https://")):
        return ""
    lines = [f"curl -X POST {shlex.quote(attempt.address)}"]
    lines.append(f"-H {shlex.quote(f'Content-Type: {what.content_type}')}")
    lines += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers]
    lines.append('-H "Authorization: $PARTNER_AUTHORIZATION"')
    lines.append(f"--data-binary @{shlex.quote(f'{what.public_id}.mime')}")
    return " \\\n  ".join(lines)
