"""The cast of the examples: ids and names that mean the same thing wherever they stand."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

AT = "2026-11-22T10:00:00.123456Z"
LATER = "2026-11-22T10:01:00.456789Z"

MESSAGE = "msg_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"
PAIR = "pair_0192f3f2f3e47a5fb0c1d2e3f4a5b6c8"
DELIVERY = "del_0192f3f2f3e47a5fb0c1d2e3f4a5b6c9"
TRIGGER = "trg_0192f3f2f3e47a5fb0c1d2e3f4a5b6ca"
INCIDENT = "inc_0192f3f2f3e47a5fb0c1d2e3f4a5b6cb"
HOOK = "whe_0192f3f2f3e47a5fb0c1d2e3f4a5b6cc"
ACME = "par_0192f3f2f3e47a5fb0c1d2e3f4a5b6cd"
GLOBEX = "par_0192f3f2f3e47a5fb0c1d2e3f4a5b6ce"
AGREEMENT = "agr_0192f3f2f3e47a5fb0c1d2e3f4a5b6cf"
OUR_ENDPOINT = "end_0192f3f2f3e47a5fb0c1d2e3f4a5b6d0"
THEIR_ENDPOINT = "end_0192f3f2f3e47a5fb0c1d2e3f4a5b6d1"
TRANSACTION = "txn_0192f3f2f3e47a5fb0c1d2e3f4a5b6d2"
PARTICIPANT = "enl_0192f3f2f3e47a5fb0c1d2e3f4a5b6d3"
JOB = "job_0192f3f2f3e47a5fb0c1d2e3f4a5b6d4"
ATTEMPT = "att_0192f3f2f3e47a5fb0c1d2e3f4a5b6d5"
ONWARD = "msg_0192f3f2f3e47a5fb0c1d2e3f4a5b6d6"
GROUP = "grp_0192f3f2f3e47a5fb0c1d2e3f4a5b6d7"
RUN = "run_0192f3f2f3e47a5fb0c1d2e3f4a5b6d8"

MESSAGE_ID = "order-4711@acme"
DOCUMENT_ID = "order-4711"
CONVERSATION = "conv-4711@acme"
CODE = "ACME>GLOBEX"
TPA_ID = "tpa:acme-globex"
IDENTIFIER = "urn:uuid:0192f3f2-f3e4-7a5f-b0c1-d2e3f4a5b6d2"
OUR_URI = "https://hub.acme.example/ebxml"
THEIR_URI = "https://msh.globex.example/ebxml"
DIGEST = "70d1fddaf10df96004cedd27ed9293ec5981c053e0d4d07fca4cd602a4630de8"

PAIR_REF: dict[str, Any] = {"id": PAIR, "code": CODE}
ACME_REF: dict[str, Any] = {"id": ACME, "name": "Acme"}
GLOBEX_REF: dict[str, Any] = {"id": GLOBEX, "name": "Globex"}
AGREEMENT_REF: dict[str, Any] = {"id": AGREEMENT, "tpa_id": TPA_ID, "version": 1}


def listed(*rows: dict[str, Any]) -> dict[str, Any]:
    """A page of a list, the only one."""
    return {"data": list(rows), "next_cursor": None, "prev_cursor": None, "has_more": False}


def defaults(model: type[Model], first: str, last: str) -> dict[str, Any]:
    """What a new row has in the fields from `first` to `last`."""
    names = [field.name for field in model._meta.concrete_fields]
    row = model()
    return {name: getattr(row, name) for name in names[names.index(first) : names.index(last) + 1]}
