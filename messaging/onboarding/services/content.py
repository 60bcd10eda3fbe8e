"""Parties, endpoints, agreements and credentials as the audit log holds them, and what names their present content."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any

from django.db import models

from partners import certificates
from partners.models import ENDPOINT, TERMS, Agreement, AgreementVersion, Credential, Endpoint, Party


def revision(row: models.Model) -> str:
    """Names the present content of a party, endpoint, agreement or version: it changes when they do (ETag)."""
    described = json.dumps(describe(row), sort_keys=True, default=str)
    return hashlib.sha256(described.encode()).hexdigest()[:20]


def describe(row: models.Model) -> dict[str, Any]:
    """A row as the audit log holds it. Never a secret."""
    if isinstance(row, Party):
        identifiers = [[item.context, item.value] for item in row.identifiers.all()]
        return {
            "name": row.name,
            "is_own": row.is_own,
            "contact": row.contact,
            "identifiers": identifiers,
            "time_zone": row.time_zone,
            "hours": row.hours,
            "groups": sorted(group.name for group in row.groups.all()),
            "archived_at": _text(row.archived_at),
        }
    if isinstance(row, Endpoint):
        texts = {name: getattr(row, name) for name in ENDPOINT if name != "trusted_certificates"}
        return texts | {"certificates": _certificates(row)}
    if isinstance(row, Agreement):
        versions = [[version.number, version.state] for version in row.versions.all()]
        return {"tpa_id": row.tpa_id, "name": row.name, "log_columns": row.log_columns, "versions": versions}
    if isinstance(row, AgreementVersion):
        found: dict[str, Any] = {name: getattr(row, name) for name in TERMS}
        found["number"], found["state"] = row.number, row.state
        found["own_endpoint"], found["partner_endpoint"] = row.own_endpoint.public_id, row.partner_endpoint.public_id
        found["services"] = [[item.service, item.action, item.direction] for item in row.services.all()]
        return found
    assert isinstance(row, Credential)
    return {
        "party": row.party.name,
        "direction": row.direction,
        "kind": row.kind,
        "label": row.label,
        "username": row.username,
        "fingerprint": row.fingerprint,
        "valid_from": _text(row.valid_from),
        "valid_until": _text(row.valid_until),
        "revoked_at": _text(row.revoked_at),
    }


def _certificates(endpoint: Endpoint) -> list[dict[str, str]]:
    """Those that its server may show, by what tells them apart."""
    return [
        {"title": one.title, "fingerprint": one.fingerprint, "ends": one.not_after.isoformat()}
        for one in certificates.read(endpoint.trusted_certificates)
    ]


def _text(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
