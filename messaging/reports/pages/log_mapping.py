"""The mapping of a partner's log as a form: what stands in its fields, and what was posted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from partners.log_columns import COLUMNS, located

LABELS: Mapping[str, tuple[str, str]] = {
    "message_id": ("MessageId", "Needed: messages are found by it."),
    "direction": ("Direction", "Whether the partner sent or received the message."),
    "at": ("Time", "ISO 8601, UTC where it has no zone; or seconds or milliseconds since 1970."),
    "digest": ("Digest", "SHA-256 in hexadecimal; without it contents are not compared."),
    "status": ("Status", "In the partner's words."),
    "sequence_number": ("Sequence number", ""),
}


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """One of our columns: what it is called in the log, and what the first rows have there."""

    name: str
    label: str
    hint: str
    value: str
    samples: tuple[str, ...]


def fields(
    mapping: Mapping[str, Any], header: Sequence[str] = (), rows: Sequence[Sequence[str]] = ()
) -> list[MappedColumn]:
    """The six columns as the form shows them."""
    places, _ = located(mapping, header)
    shown = []
    for name in COLUMNS:
        place = places.get(name)
        value = str(mapping.get(name, header[place] if place is not None else ""))
        samples = tuple(row[place] for row in rows if place is not None and place < len(row))
        shown.append(MappedColumn(name, *LABELS[name], value, samples))
    return shown


def posted(given: QueryDict) -> dict[str, Any]:
    """The mapping that a form carries, as `partners.log_columns.faults` looks at it."""
    found: dict[str, Any] = {}
    for name in (*COLUMNS, "direction_is", "digest_of"):
        value = given.get(f"column_{name}", "").strip()
        if value:
            found[name] = value
    for name in ("sent_values", "received_values"):
        values = [one.strip() for one in given.get(f"column_{name}", "").split(",") if one.strip()]
        if values:
            found[name] = values
    return found


def settings_of(mapping: Mapping[str, Any]) -> dict[str, str]:
    """What no column says, as texts."""
    return {
        "direction_is": str(mapping.get("direction_is", "")),
        "digest_of": str(mapping.get("digest_of", "")),
        "sent_values": ", ".join(mapping.get("sent_values", ())),
        "received_values": ", ".join(mapping.get("received_values", ())),
    }
