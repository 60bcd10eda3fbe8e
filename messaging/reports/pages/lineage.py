"""Where the numbers of a run come from, as its `facts` tell: input files and rows, transactions, code, time by step."""

from __future__ import annotations

from typing import Any

from messaging.models import PipelineRun

# Facts that have a place of their own on the page.
_TOLD = frozenset({"entities", "seconds", "code", "worker", "spark", "generation", "through_xid", "as_of"})


def lineage(run: PipelineRun) -> dict[str, Any]:
    """What `facts` say of the run's inputs, code and steps; the rest as it is.

    Of an extract, `entities` are the rows that it took up, of a report the files and rows that it read.
    """
    facts = run.facts
    entities = {
        name: one if isinstance(one, dict) else {"rows": one} for name, one in (facts.get("entities") or {}).items()
    }
    return {
        "entities": sorted(entities.items()),
        "files": sum(one.get("files") or 0 for one in entities.values()),
        "rows": sum(one.get("rows") or 0 for one in entities.values()),
        "seconds": sorted((facts.get("seconds") or {}).items(), key=lambda step: -step[1]),
        **{name: facts.get(name) for name in ("code", "worker", "spark", "generation", "through_xid")},
        "others": {name: value for name, value in facts.items() if name not in _TOLD and value not in (None, "", [])},
    }
