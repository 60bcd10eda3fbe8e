"""Many partners at once, from a CSV file: each row becomes a party, its endpoint and, after the pattern of an agreement
that there is, an agreement. What is read is a bundle, so that dry run, report and all-or-nothing are those of bundles.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext as _

from messaging.exceptions import InvalidSubmission
from messaging.onboarding.services import bundle_format
from messaging.onboarding.services.bundle_format import Bundle
from messaging.protocol import selecting
from partners import selectors
from partners.choices import VersionState
from partners.models import Agreement

COLUMNS = (*bundle_format.PARTY_TEXTS, "identifiers", "groups", "uri", "address", "transport", "tpa_id", "title")
_ROW = re.compile(r"(?:parties|agreements)\[([0-9]+)\]\.?")
_SEPARATORS = ",;\t|"


def read(content: str | bytes, template: str = "") -> Bundle:
    """The bundle of a CSV file whose first row has the headings (`COLUMNS`; `name` has to be there).

    Several identifiers (`DUNS:123456789`) or groups in a cell are separated by semicolons or bars. `template`: TPAId of
    the agreement whose own side, terms, services and transport the new ones get; without it no agreements are made.
    Raises InvalidSubmission (field `bundle`) with the line of whatever is wrong, or (field `template`).
    """
    text = content if isinstance(content, str) else selecting.text_of(content, "")
    if text is None or len(text) > bundle_format.MAX_BYTES:
        raise InvalidSubmission({"bundle": [_("A CSV file of at most 8 MiB is needed here.")]})
    pattern = _pattern(template) if template else None
    problems: list[str] = []
    lines: list[int] = []
    parties: list[dict[str, Any]] = []
    agreements: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for line, row in _rows(text, problems):
        lines.append(line)
        name = row.get("name", "")
        if name and (before := seen.setdefault(name, line)) != line:
            problems.append(
                _("line {line}: {name} is in line {before} already.").format(line=line, name=name, before=before)
            )
        parties.append(_party(row, line, pattern, problems))
        if pattern is None:
            continue
        if not row.get("tpa_id") or not row.get("uri"):
            problems.append(_("line {line}: an agreement needs tpa_id and uri.").format(line=line))
        agreements.append(
            {
                **pattern,
                "tpa_id": row.get("tpa_id", ""),
                "name": row.get("title", ""),
                "partner": name,
                "partner_endpoint": row.get("uri", ""),
                # So that an import which activates puts it in force.
                "state": VersionState.ACTIVE.value,
            }
        )
    if not problems and not lines:
        problems.append(_("The file has no row below its headings."))
    if problems:
        raise InvalidSubmission({"bundle": problems})
    for one in agreements:
        del one["transport"]
    document: dict[str, Any] = {"parties": parties, "agreements": agreements}
    document |= {"format": bundle_format.FORMAT, "version": bundle_format.VERSION}
    try:
        return replace(bundle_format.read_document(document), by_name=True)
    except InvalidSubmission as error:
        said = [
            _ROW.sub(lambda match: _("line {line}, ").format(line=lines[int(match[1])]), text)
            for text in error.errors["bundle"]
        ]
        raise InvalidSubmission({"bundle": list(dict.fromkeys(said))}) from error


def _pattern(template: str) -> dict[str, Any]:
    """What the agreements of a file have in common, and the transport of their endpoints."""
    known = Agreement.objects.filter(tpa_id=template).first()
    version = selectors.current_version(known) if known is not None else None
    if known is None or version is None:
        raise InvalidSubmission({"template": [_("There is no agreement {template}.").format(template=template)]})
    found = selectors.version(version.pk)
    return {**bundle_format.write_agreement(known, found), "transport": found.partner_endpoint.transport}


def _rows(text: str, problems: list[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, heading -> cell without blanks around it) of each row that is not empty."""
    text = text.lstrip("\ufeff")
    head = text.partition("\n")[0]
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=max(_SEPARATORS, key=head.count), strict=True)
    try:
        names = [name.strip().casefold().replace(" ", "_") for name in next(rows, [])]
        if unknown := [name for name in names if name not in COLUMNS]:
            problems.append(
                _("line 1: there is no column {column}; they are {columns}.").format(
                    column=unknown[0] or _("(empty)"), columns=", ".join(COLUMNS)
                )
            )
            return
        if "name" not in names:
            problems.append(_("line 1: the column name is needed."))
            return
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) > len(names):
                problems.append(_("line {line}: it has more cells than there are headings.").format(line=rows.line_num))
                continue
            yield rows.line_num, {name: cell.strip() for name, cell in zip(names, row, strict=False)}
    except csv.Error as error:
        problems.append(_("line {line}: {error}.").format(line=rows.line_num, error=error))


def _party(row: dict[str, str], line: int, pattern: dict[str, Any] | None, problems: list[str]) -> dict[str, Any]:
    party: dict[str, Any] = {name: row[name] for name in bundle_format.PARTY_TEXTS if row.get(name)}
    party["name"] = row.get("name", "")
    if row.get("identifiers"):
        party["identifiers"] = []
        for one in _several(row["identifiers"]):
            kind, colon, value = (part.strip() for part in one.partition(":"))
            if not colon:
                problems.append(
                    _("line {line}, identifiers: write {identifier} with its type, such as DUNS:123456789.").format(
                        line=line, identifier=one
                    )
                )
            party["identifiers"].append({"type": kind, "value": value})
    if row.get("groups"):
        party["groups"] = _several(row["groups"])
    if row.get("uri"):
        transport = row.get("transport") or (pattern["transport"] if pattern is not None else "")
        endpoint = {"uri": row["uri"], "address": row.get("address", ""), "transport": transport}
        party["endpoints"] = [{name: text for name, text in endpoint.items() if text}]
    elif row.get("address"):
        problems.append(_("line {line}: an address belongs to an endpoint, which has a uri.").format(line=line))
    return party


def _several(cell: str) -> list[str]:
    return [one.strip() for one in re.split(r"[;|]", cell) if one.strip()]
