"""What one rule is: a query that finds what contradicts an invariant, one row for each violation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """`id`: stable, for `--rule`. `title`: what holds. `source`: where that is said (I: conformance, D: DESIGN.md).

    `sql` takes no parameters and returns a row for each violation: the ids that name it, and what contradicts what. It
    is run in one snapshot, so rows of one transaction are all there or not at all. It must be silent about whatever a
    purge, a restore, a person's decision or a changed agreement leaves behind.
    """

    id: str
    title: str
    source: str
    sql: str


# How an object of a table is named in the audit log.
def named(prefix: str, column: str) -> str:
    """SQL for `rmhub.ids.public_id`."""
    return f"'{prefix}_' || replace({column}::text, '-', '')"


# A clock of another machine, or a wait for a lock, may put times of neighbours in another order.
NEAR = "interval '1 minute'"
