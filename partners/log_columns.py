"""How the columns of a partner's log are called: the mapping that agreements hold and logs are read with. Pure.

A mapping is a JSON object. The six columns of `COLUMNS` name the partner's columns; the settings of `SETTINGS` say what
no column says. An empty mapping means: the columns are called as in our own export. Directions are the partner's own,
since it is the partner's log: what they call sent, we received.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext as _

from rmhub.language import number

COLUMNS = ("message_id", "direction", "at", "digest", "status", "sequence_number")
SETTINGS = ("direction_is", "digest_of", "sent_values", "received_values")
DIRECTION_IS = ("sent", "received")
DIGEST_OF = ("body", "payload")
SENT = ("out", "outbound", "outgoing", "sent", "send", "s", "o")
RECEIVED = ("in", "inbound", "incoming", "received", "receive", "r", "i")
MAX_NAME = 200
MAX_VALUES = 20
# What partners usually call them, as `_plain` writes names; the first that a header has is proposed.
_USUAL: Mapping[str, tuple[str, ...]] = {
    "message_id": ("messageid", "ebmsmessageid", "msgid", "mid", "requestid", "repeatabilityrequestid", "id"),
    "direction": ("direction", "dir", "way", "inout", "flow"),
    "at": ("at", "timestamp", "time", "datetime", "sentat", "receivedat", "createdat", "date", "created", "logtime"),
    "digest": ("digest", "sha256", "hash", "checksum", "bodysha256", "payloadsha256"),
    "status": ("status", "state", "result", "outcome"),
    "sequence_number": ("sequencenumber", "seqno", "seq", "sequence", "seqnr"),
}


def faults(mapping: Any) -> list[str]:
    """Sentences about everything that cannot stand in a mapping; none for one that can."""
    if not isinstance(mapping, Mapping):
        return [_("The columns are an object: our column, and the name that it has in the partner's log.")]
    found: list[str] = []
    if unknown := sorted(str(key) for key in mapping if key not in (*COLUMNS, *SETTINGS)):
        found.append(
            _("{names}: no such column or setting; known are {known}.").format(
                names=", ".join(unknown), known=", ".join((*COLUMNS, *SETTINGS))
            )
        )
    for column in COLUMNS:
        if column in mapping and not _is_name(mapping[column]):
            found.append(
                _("{column}: the name of the partner's column, 1 to {most} characters, please.").format(
                    column=column, most=MAX_NAME
                )
            )
    named = [mapping[column] for column in COLUMNS if _is_name(mapping.get(column))]
    if twice := sorted({name for name in named if named.count(name) > 1}):
        found.append(_("{names}: one of the partner's columns cannot be two of ours.").format(names=", ".join(twice)))
    if named and "message_id" not in mapping:
        found.append(_("message_id: say which of the partner's columns holds the MessageId."))
    for setting, values in (("direction_is", DIRECTION_IS), ("digest_of", DIGEST_OF)):
        if setting in mapping and mapping[setting] not in values:
            found.append(
                _("{setting}: {one} or {other}, please.").format(setting=setting, one=values[0], other=values[1])
            )
    if "direction" in mapping and "direction_is" in mapping:
        found.append(_("direction_is: it is for logs that have no column for the direction, and one is named."))
    if named and "direction" not in mapping and "direction_is" not in mapping:
        found.append(
            _("direction: name its column, or say with direction_is whether all were sent or received by them.")
        )
    found += _value_faults(mapping)
    return found


def _value_faults(mapping: Mapping[str, Any]) -> list[str]:
    found = []
    lists = {}
    for setting in ("sent_values", "received_values"):
        values = mapping.get(setting, [])
        if not isinstance(values, list) or len(values) > MAX_VALUES or not all(_is_name(value) for value in values):
            found.append(
                _("{setting}: a list of at most {most} texts, please.").format(setting=setting, most=MAX_VALUES)
            )
        else:
            lists[setting] = {value.strip().lower() for value in values}
    if both := sorted(lists.get("sent_values", set()) & lists.get("received_values", set())):
        found.append(_("{values}: it cannot mean sent and received.").format(values=", ".join(both)))
    return found


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.strip()) <= MAX_NAME and value.isprintable()


def cleaned(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with its texts trimmed, in the order of `COLUMNS`; `faults` found none in it."""
    found: dict[str, Any] = {}
    for key in (*COLUMNS, *SETTINGS):
        if key in mapping:
            value = mapping[key]
            found[key] = [one.strip() for one in value] if isinstance(value, list) else value.strip()
    return {key: value for key, value in found.items() if value != []}


def located(mapping: Mapping[str, Any], header: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Our column -> its place in the header, and a sentence for each that is not to be found there.

    A name counts as it stands, or without regard to case where that is not ambiguous.
    """
    names = [name.strip() for name in header]
    wanted = {column: mapping[column] for column in COLUMNS if column in mapping}
    if not wanted:
        # Our own export: the message id must be there, and what else it has is read.
        optional = {column: column for column in COLUMNS if column in names}
        wanted = {"message_id": "message_id", **optional}
        if "direction_is" not in mapping:
            wanted.setdefault("direction", "direction")
    places: dict[str, int] = {}
    problems: list[str] = []
    for column, name in wanted.items():
        exact = [place for place, known in enumerate(names) if known == name]
        alike = exact or [place for place, known in enumerate(names) if known.casefold() == name.casefold()]
        if len(alike) == 1:
            places[column] = alike[0]
        elif alike:
            problems.append(
                _("{column}: the log has {count} columns called {name}; give each a name of its own.").format(
                    column=column, count=number(len(alike)), name=name
                )
            )
        else:
            problems.append(
                _("{column}: the log has no column {name}. Its columns are {names}: map one of them.").format(
                    column=column, name=name, names=_listed(names)
                )
            )
    return places, problems


def proposed(header: Sequence[str]) -> dict[str, Any]:
    """A mapping for a header, by the names that are usual; a person looks at it before it is used."""
    plain = [_plain(name) for name in header]
    found: dict[str, Any] = {}
    for column, usual in _USUAL.items():
        place = next((plain.index(name) for name in usual if plain.count(name) == 1), None)
        if place is not None and header[place].strip() not in found.values():
            found[column] = header[place].strip()
    return found


def sides(mapping: Mapping[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    """What the partner's log says for what they sent, and for what they received; lower case."""
    sent = {value.lower() for value in mapping.get("sent_values", ())}
    received = {value.lower() for value in mapping.get("received_values", ())}
    return (
        frozenset(sent or {value for value in SENT if value not in received}),
        frozenset(received or {value for value in RECEIVED if value not in sent}),
    )


def _plain(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name[:60] or _("(without a name)") for name in names[:20])
    if len(names) <= 20:
        return shown
    return _("{names} and {count} more").format(names=shown, count=number(len(names) - 20))
