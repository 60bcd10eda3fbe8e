"""Logs with known faults: Parquet files as the lake has them, a partner's log, and the exact list of what is wrong.

    python -m tests.pipeline.planted FOLDER 1000000 --one-in 10000

Everything is computed from the row's number (splitmix64), so ten million rows take a few minutes and little memory, and
the same arguments give the same files. Half of the pairs are inbound; one pair has a tenth of all rows; one pair in ten
goes round at 999,999,999; one message in a hundred has no number; a small trigger takes one service only.
Faults of one pair keep a distance of eight places from each other, so that each is a finding of its own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER as LAST

BEGIN = datetime(2026, 6, 1, tzinfo=UTC)
DAYS = 90
MICROS = 1_000_000
BATCH = 500_000
DISTANCE = 8
SERVICES = (("Orders", "New"), ("Orders", "Change"), ("Invoices", "New"), ("Despatch", "Advice"))
PARTNERS = 20
ALL, SMALL = "all documents", "orders only"
Numbers = np.ndarray[Any, np.dtype[Any]]

# Fault: of which direction its rows are (None: either).
FAULTS: dict[str, str | None] = {
    "jump": None,  # the sender left numbers out
    "vanished": None,  # stored, acknowledged, delivered once; gone with everything
    "ghost_delivery": "in",  # gone, but its delivery is there
    "ghost_ack": None,  # gone, but its acknowledgement is there
    "repeat": None,  # the number of the message before, under another MessageId
    "reset": None,  # begins again at 1
    "bridge": None,  # numbers left out, and the message says so
    "duplicate_id": "in",  # the MessageId of another message of the partner
    "delivered_twice": "in",
    "document_twice": "in",  # the document of a message before, and processed all the same
    "undelivered": "in",
    "lost": None,  # not in the partner's log
    "unknown_here": None,  # in the partner's log only
    "doubled": None,  # twice in the partner's log
    "tampered": None,  # another digest in the partner's log
    "in_doubt": "out",  # given up here, and not in the partner's log
    "in_doubt_arrived": "out",  # given up here, and in the partner's log
    "skipped": "out",  # skipped here, not there: nobody's fault; the sequence begins again
}
RESTARTS = ("reset", "skipped")  # not on a pair that goes round: near its end nobody could tell one from the other
GONE = ("vanished", "ghost_delivery", "ghost_ack")


@dataclass(frozen=True, order=True)
class Finding:
    """What the audit must find; numbers are -1 where it has none."""

    kind: str
    pair: str
    first_number: int
    last_number: int
    count: int
    message_ids: tuple[str, ...]


@dataclass(frozen=True, order=True)
class Difference:
    """What the reconciliation must find."""

    direction: str
    verdict: str
    message_id: str
    our_copies: int
    their_copies: int


@dataclass
class Planted:
    """What was written where, and what must be found."""

    folder: Path
    rows: int
    # What the partner's log says that it covers: a margin of two hours at both ends.
    begin: datetime = BEGIN - timedelta(hours=2)
    end: datetime = BEGIN + timedelta(days=DAYS, hours=2)
    findings: list[Finding] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    agreed: dict[str, int] = field(default_factory=dict)
    pairs: dict[str, dict[str, int]] = field(default_factory=dict)

    def path(self, entity: str) -> Path:
        """The folder of an entity's files; `log` is the partner's log."""
        return self.folder / entity

    def save(self) -> None:
        document = {
            "rows": self.rows,
            "findings": [[*vars(one).values()] for one in sorted(self.findings)],
            "differences": [[*vars(one).values()] for one in sorted(self.differences)],
            "agreed": self.agreed,
            "pairs": self.pairs,
        }
        (self.folder / "expected.json").write_text(json.dumps(document))


def load(folder: Path) -> Planted:
    """What `plant` wrote into the folder before."""
    told = json.loads((folder / "expected.json").read_text())
    found = Planted(folder, told["rows"])
    found.findings = [Finding(*one[:5], tuple(one[5])) for one in told["findings"]]
    found.differences = [Difference(*one) for one in told["differences"]]
    found.agreed, found.pairs = told["agreed"], told["pairs"]
    return found


def mixed(numbers: Numbers, salt: int) -> Numbers:
    """splitmix64: 64 bits of chance for each number."""
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt * 0x632BE59BD9B4E019 % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


_HEX = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], dtype=np.uint8)
_DASHES = np.array([place for place in range(36) if place not in (8, 13, 18, 23)])


def _hex(*words: Numbers) -> Numbers:
    """One row of hexadecimal digits, as bytes, for each row of 64-bit words."""
    octets = np.stack(words, axis=1).astype(">u8").view(np.uint8)
    return _HEX[octets].reshape(len(octets), -1)


def _text(digits: Numbers) -> pa.Array:
    """An Arrow array of texts of one length."""
    rows, width = digits.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digits))]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


def uuids(numbers: Numbers, salt: int, millis: Numbers | None = None) -> pa.Array:
    """UUIDs as text, of version 7 where `millis` (since 1970) are given, else of version 4."""
    high, low = mixed(numbers, salt), mixed(numbers, salt + 1)
    if millis is not None:
        high = (millis.astype(np.uint64) << np.uint64(16)) | (high & np.uint64(0xFFF)) | np.uint64(0x7000)
    else:
        high = (high & ~np.uint64(0xF000)) | np.uint64(0x4000)
    low = (low & np.uint64(2**62 - 1)) | np.uint64(2**63)
    dashed = np.full((len(numbers), 36), ord("-"), dtype=np.uint8)
    dashed[:, _DASHES] = _hex(high, low)
    return _text(dashed)


def digests(numbers: Numbers, salt: int) -> pa.Array:
    """SHA-256s as text."""
    return _text(_hex(*(mixed(numbers, salt + word) for word in range(4))))


@dataclass
class _Rows:
    """All rows before anything is written. `number` is 0 where there is none; `fault` an index into FAULTS + 1."""

    pair: Numbers
    position: Numbers
    number: Numbers
    previous: Numbers
    fault: Numbers
    left_out: Numbers
    inbound: Numbers
    micros: Numbers

    def of(self, name: str) -> Numbers:
        return np.flatnonzero(self.fault == _index(name))


def _index(name: str) -> int:
    return list(FAULTS).index(name) + 1


def _pair_code(pair: int) -> str:
    return f"PARTNER-{pair % PARTNERS:02d}/{pair:03d}"


def _goes_round(pair: Any) -> Any:
    return np.isin(pair % 20, (3, 4))


def _rows(rows: int, pairs: int, one_in: int, random: np.random.Generator) -> _Rows:
    weights = np.r_[0.1, np.full(pairs - 1, 0.9 / (pairs - 1))]
    pair = random.choice(pairs, size=rows, p=weights).astype(np.int32)
    order = np.argsort(pair, kind="stable")
    begins = np.searchsorted(pair[order], np.arange(pairs))
    position = np.empty(rows, np.int64)
    position[order] = np.arange(rows) - begins[pair[order]] + 1
    inbound = pair % 2 == 0
    micros = int(BEGIN.timestamp()) * MICROS + (np.arange(rows) + 1) * (DAYS * 86_400 * MICROS // (rows + 2))
    numbered = random.random(rows) >= 0.01
    fault = _scattered(rows, order, pair, inbound, numbered, one_in, random)
    left_out = np.zeros(rows, np.int64)
    for name in ("jump", "bridge"):
        chosen = np.flatnonzero(fault == _index(name))
        left_out[chosen] = random.integers(1, 4, len(chosen))
    counts = np.bincount(pair, minlength=pairs)
    first = np.where(_goes_round(np.arange(pairs)), LAST - counts // 2, 1)
    number = _numbers(order, pair, numbered, fault, left_out, first)
    previous = np.full(rows, -1, np.int64)
    found = np.flatnonzero(fault == _index("bridge"))
    previous[found] = (number[found] - left_out[found] - 2) % LAST + 1
    return _Rows(pair, position, number, previous, fault, left_out, inbound, micros)


def _scattered(
    rows: int, order: Numbers, pair: Numbers, inbound: Numbers, numbered: Numbers, one_in: int, random: Any
) -> Numbers:
    """Which row has which fault. None lies at a pair's ends, beside one without a number, or near another one."""
    each = max(2, rows // one_in)
    fault = np.zeros(rows, np.int8)
    sorted_pair, fit = pair[order], numbered[order]
    for step in range(1, DISTANCE + 1):
        fit[step:] &= sorted_pair[step:] == sorted_pair[:-step]
        fit[:-step] &= sorted_pair[:-step] == sorted_pair[step:]
        fit[:step] = fit[-step:] = False
    fit[1:] &= numbered[order][:-1]
    fit[:-1] &= numbered[order][1:]
    places = random.permutation(np.flatnonzero(fit))
    wanted = {
        way: [name for name, of in FAULTS.items() for _ in range(each) if of == way] for way in ("in", "out", None)
    }
    taken = np.zeros(rows, bool)
    for place in places:
        if not any(wanted.values()):
            break
        if taken[place - DISTANCE : place + DISTANCE + 1].any():
            continue
        row = order[place]
        way = "in" if inbound[row] else "out"
        names = wanted[way] or wanted[None]
        if _goes_round(pair[row]):
            names = next((left for left in (wanted[way], wanted[None]) if left and left[-1] not in RESTARTS), [])
        if names:
            fault[row] = _index(names.pop())
            taken[place] = True
    if any(wanted.values()):
        raise ValueError(f"{rows} rows have no room for {each} faults of each kind")
    return fault


def _numbers(
    order: Numbers, pair: Numbers, numbered: Numbers, fault: Numbers, left_out: Numbers, first: Numbers
) -> Numbers:
    """The sequence numbers: counted up in the order of each pair, with what the faults do to them."""
    steps = np.ones(len(order), np.int64) + left_out
    steps[fault == _index("repeat")] = 0
    steps[~numbered] = 0
    # Whoever comes after a skipped message, or resets, begins a stretch that counts from 1.
    restarts = fault == _index("reset")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    restarts[order[place[fault == _index("skipped")] + 1]] = True
    ordered_pair, ordered_steps, again = pair[order], steps[order], restarts[order]
    begins = np.r_[True, ordered_pair[1:] != ordered_pair[:-1]]
    total = np.cumsum(ordered_steps)
    stretch = np.maximum.accumulate(np.where(begins | again, np.arange(len(order)), 0))
    base = np.where(again[stretch], 1, first[ordered_pair])
    # The first row of a stretch has `base`, whatever its own step is (1, or 0 without a number).
    counted = base + total - total[stretch] + np.where(numbered[order][stretch], 0, -1)
    found = np.empty(len(order), np.int64)
    found[order] = np.where(numbered[order], (counted - 1) % LAST + 1, 0)
    return found


def plant(folder: Path, rows: int, *, one_in: int = 10_000, pairs: int = 0, seed: int = 1) -> Planted:
    """Writes all entities and the partner's log. Raises ValueError when the faults have no room."""
    random = np.random.default_rng(seed)
    pairs = pairs or max(10, min(500, rows // 2000))
    made = _rows(rows, pairs, one_in, random)
    planted = Planted(folder, rows)
    names = _Names(made, seed)
    for entity, batches in _tables(made, names, seed).items():
        _write(planted.path(entity), batches)
    _write(planted.path("log"), _log(made, names, seed))
    _expect_findings(planted, made, names)
    _expect_differences(planted, made, names)
    _count(planted, made)
    planted.save()
    return planted


class _Names:
    """Ids of rows, as they are written and as they are expected."""

    def __init__(self, made: _Rows, seed: int) -> None:
        self.made, self.salt = made, seed * 1000
        # One that has the MessageId of another message: of the one that comes next in time from the same partner.
        self.alias = np.arange(len(made.pair))
        partner, plain = made.pair % PARTNERS, (made.fault == 0) & made.inbound & (made.number > 0)
        for row in made.of("duplicate_id"):
            near = np.arange(row + 1, min(row + 20_000, len(plain)))
            fit = near[plain[near] & (partner[near] == partner[row])]
            if not len(fit):
                near = np.arange(max(0, row - 20_000), row)
                fit = near[plain[near] & (partner[near] == partner[row])]
            self.alias[row] = fit[0]
            plain[fit[0]] = False
        # Which row brought the document first.
        self.first = np.arange(len(made.pair))
        whole = (made.fault == 0) & made.inbound
        for row in made.of("document_twice"):
            near = np.arange(max(0, row - 20_000), row)
            self.first[row] = near[whole[near] & (made.pair[near] == made.pair[row])][-1]

    def pks(self, rows: Numbers) -> pa.Array:
        return uuids(rows, self.salt + 10, self.made.micros[rows] // 1000)

    def message_ids(self, rows: Numbers) -> pa.Array:
        return uuids(self.alias[rows], self.salt + 20)

    def document_ids(self, rows: Numbers) -> pa.Array:
        return uuids(self.first[rows], self.salt + 60)

    def one(self, row: int) -> str:
        return str(self.message_ids(np.array([row]))[0].as_py())


def _uuid_of(kind: int, number: int) -> str:
    return f"00000000-0000-7000-80{kind:02d}-{number:012d}"


def pair_ids(pairs: Numbers) -> pa.Array:
    known = pa.array([_uuid_of(1, number) for number in range(int(pairs.max()) + 1)])
    return known.take(pa.array(pairs))


def _stamps(micros: Numbers) -> pa.Array:
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def _longs(values: Numbers, null: Numbers | None = None) -> pa.Array:
    return pa.array(values, pa.int64(), mask=null)


def _same(value: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int8), pa.array([value]))


def _chosen(values: Sequence[str], which: Numbers) -> pa.Array:
    return pa.DictionaryArray.from_arrays(which.astype(np.int8), pa.array(list(values)))


def _tables(made: _Rows, names: _Names, seed: int) -> dict[str, Iterator[pa.Table]]:
    pairs = range(int(made.pair.max()) + 1)
    lists: dict[str, dict[str, list[Any]]] = {
        "pairs": {
            "id": [_uuid_of(1, pair) for pair in pairs],
            "code": [_pair_code(pair) for pair in pairs],
            "direction": ["in" if pair % 2 == 0 else "out" for pair in pairs],
            "partner_id": [_uuid_of(2, pair % PARTNERS) for pair in pairs],
            "partner": [f"Partner {pair % PARTNERS}" for pair in pairs],
        },
        "agreements": {
            "id": [_uuid_of(3, partner) for partner in range(PARTNERS)],
            "profile": ["ebxml"] * PARTNERS,
            "memory_window": [86_400 * 30] * PARTNERS,
        },
        "triggers": {
            "id": [_uuid_of(4, 0), _uuid_of(4, 1)],
            "name": [ALL, SMALL],
            "state": ["active"] * 2,
            "history_ttl": [400 * 86_400] * 2,
        },
    }
    tables: dict[str, Iterator[pa.Table]] = {name: iter([_list(columns)]) for name, columns in lists.items()}
    tables["messages"] = _batched(made, lambda rows: _messages(made, names, rows))
    tables["deliveries"] = _batched(made, lambda rows: _deliveries(made, names, rows))
    tables["signals"] = _batched(made, lambda rows: _signals(made, names, rows))
    tables["events"] = _batched(made, lambda rows: _events(made, names, rows))
    return tables


def _list(columns: dict[str, list[Any]]) -> pa.Table:
    whole = {"memory_window": pa.int64(), "history_ttl": pa.int64()}
    return pa.table({name: pa.array(values, whole.get(name, pa.string())) for name, values in columns.items()})


def _batched(made: _Rows, write: Callable[[Numbers], pa.Table]) -> Iterator[pa.Table]:
    for begin in range(0, len(made.pair), BATCH):
        yield write(np.arange(begin, min(begin + BATCH, len(made.pair))))


def _service(rows: Numbers) -> Numbers:
    return mixed(rows, 77) % np.uint64(len(SERVICES))


def _states(made: _Rows, rows: Numbers) -> Numbers:
    """Indexes into `STATES`."""
    found = np.where(made.inbound[rows], 0, 1)
    found[~made.inbound[rows] & (made.number[rows] == 0)] = 2
    found[np.isin(made.fault[rows], [_index("in_doubt"), _index("in_doubt_arrived")])] = 3
    found[made.fault[rows] == _index("skipped")] = 4
    return np.asarray(found)


STATES = ("received", "delivered", "cancelled", "failed", "skipped")


def _messages(made: _Rows, names: _Names, rows: Numbers) -> pa.Table:
    rows = rows[~np.isin(made.fault[rows], [_index(name) for name in GONE])]
    count, numbered = len(rows), made.number[rows] > 0
    service = _service(rows)
    unsent = ~made.inbound[rows] & ~numbered
    return pa.table(
        {
            "id": names.pks(rows),
            "xid": _longs(rows + 1000),
            "direction": _chosen(("out", "in"), made.inbound[rows]),
            "state": _chosen(STATES, _states(made, rows)),
            "pair_id": pair_ids(made.pair[rows]),
            "agreement_version_id": pa.array([_uuid_of(3, n) for n in range(PARTNERS)]).take(
                pa.array(made.pair[rows] % PARTNERS)
            ),
            "semantics": _chosen(("BestEffort", "OnceAndOnlyOnce"), numbered),
            "message_id": names.message_ids(rows),
            "service": _chosen([one for one, _ in SERVICES], service),
            "action": _chosen([one for _, one in SERVICES], service),
            "sequence_number": _longs(made.number[rows], ~numbered),
            "position": _longs(made.position[rows]),
            "previous_number": _longs(made.previous[rows], made.previous[rows] < 0),
            "digest": digests(rows, names.salt + 30),
            "size": _longs(mixed(rows, 5) % np.uint64(50_000)),
            "attempts": _longs(np.ones(count, np.int64)),
            "copies": _longs(np.zeros(count, np.int64)),
            "cause": _same("", count),
            "created_at": _stamps(made.micros[rows]),
            "first_sent_at": pa.array(made.micros[rows] + 50_000, pa.int64(), mask=unsent | made.inbound[rows]).cast(
                pa.timestamp("us", tz="UTC")
            ),
            "completed_at": _stamps(made.micros[rows] + np.where(made.inbound[rows], 0, 400_000)),
        }
    )


def _deliveries(made: _Rows, names: _Names, rows: Numbers) -> pa.Table:
    absent = [_index(name) for name in ("vanished", "ghost_ack", "undelivered")]
    rows = rows[made.inbound[rows] & ~np.isin(made.fault[rows], absent)]
    small = rows[(_service(rows) < 2) & (made.fault[rows] == 0)]
    twice = rows[made.fault[rows] == _index("delivered_twice")]
    found = np.r_[rows, small, twice]
    which = np.r_[np.zeros(len(rows), np.int8), np.ones(len(small), np.int8), np.full(len(twice), 2, np.int8)]
    order = np.argsort(found, kind="stable")
    found, which = found[order], which[order]
    count = len(found)
    return pa.table(
        {
            "id": uuids(found * 3 + which, names.salt + 40, made.micros[found] // 1000),
            "xid": _longs(found + 1000),
            "trigger_id": _chosen((_uuid_of(4, 0), _uuid_of(4, 1)), which == 1),
            "message_pk": names.pks(found),
            "pair_id": pair_ids(made.pair[found]),
            "position": _longs(made.position[found]),
            "state": _same("completed", count),
            "verdict": _same("new", count),
            "sender_id": pa.array([_uuid_of(2, number) for number in range(PARTNERS)]).take(
                pa.array(made.pair[found] % PARTNERS)
            ),
            "document_id": names.document_ids(found),
            "resubmission_of": pa.nulls(count, pa.string()),
            "join_id": pa.nulls(count, pa.string()),
            "created_at": _stamps(made.micros[found]),
            "completed_at": _stamps(made.micros[found] + 900_000),
        }
    )


def _signals(made: _Rows, names: _Names, rows: Numbers) -> pa.Table:
    absent = [_index(name) for name in ("vanished", "ghost_delivery", "in_doubt", "in_doubt_arrived", "skipped")]
    rows = rows[(made.number[rows] > 0) & ~np.isin(made.fault[rows], absent)]
    count = len(rows)
    return pa.table(
        {
            "id": uuids(rows, names.salt + 50, made.micros[rows] // 1000),
            "xid": _longs(rows + 1000),
            "direction": _chosen(("in", "out"), made.inbound[rows]),
            "kind": _same("ack", count),
            "state": _chosen(("matched", "sent"), made.inbound[rows]),
            "pair_id": pair_ids(made.pair[rows]),
            "about_pk": names.pks(rows),
            "ref_to_message_id": names.message_ids(rows),
            "created_at": _stamps(made.micros[rows] + np.where(made.inbound[rows], 0, 400_000)),
        }
    )


def _events(made: _Rows, names: _Names, rows: Numbers) -> pa.Table:
    """What told of their entry: of those that are gone, too."""
    count = len(rows)
    return pa.table(
        {
            "id": _longs(rows + 1),
            "xid": _longs(rows + 1000),
            "at": _stamps(made.micros[rows]),
            "type": _chosen(("message.accepted", "message.received"), made.inbound[rows]),
            "pair_id": pair_ids(made.pair[rows]),
            "message_pk": names.pks(rows),
            "message_id": names.message_ids(rows),
            "sequence_number": _longs(made.number[rows], (made.number[rows] == 0) | ~made.inbound[rows]),
            "rule": pa.nulls(count, pa.string()),
        }
    )


def _log(made: _Rows, names: _Names, seed: int) -> Iterator[pa.Table]:
    """The partner's log: what it received from us and what it sent to us, in the order in which it wrote it."""
    gone = [_index(name) for name in (*GONE, "lost", "in_doubt", "skipped", "duplicate_id")]
    for begin in range(0, len(made.pair), BATCH):
        rows = np.arange(begin, min(begin + BATCH, len(made.pair)))
        rows = rows[~np.isin(made.fault[rows], gone) & (made.inbound[rows] | (made.number[rows] > 0))]
        rows = np.sort(np.r_[rows, rows[made.fault[rows] == _index("doubled")]])
        # What is unknown here stands in for a message of ours that is in the log as well: a row of its own.
        unknown = rows[made.fault[rows] == _index("unknown_here")]
        found = np.r_[rows, unknown]
        strange = np.r_[np.zeros(len(rows), bool), np.ones(len(unknown), bool)]
        salted = np.where(made.fault[found] == _index("tampered"), 1, 0)
        texts = digests(found * 2 + salted, names.salt + 60)
        right = digests(found, names.salt + 30)
        digest = pa.compute.if_else(pa.array((salted == 1) | strange), texts, right)
        message_id = pa.compute.if_else(pa.array(strange), uuids(found, names.salt + 70), names.message_ids(found))
        yield pa.table(
            {
                "message_id": message_id,
                "direction": _chosen(("out", "in"), made.inbound[found]),
                "at": _stamps(made.micros[found] + np.where(made.inbound[found], -120_000, 120_000)),
                "digest": digest,
                "status": _chosen(("received", "sent"), made.inbound[found]),
                "sequence_number": _longs(made.number[found], made.number[found] == 0),
            }
        )


def _write(folder: Path, batches: Iterator[pa.Table]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(batches):
        pq.write_table(table, folder / f"{number:04d}.parquet", compression="zstd")


def _expect_findings(planted: Planted, made: _Rows, names: _Names) -> None:
    place, order = _places(made)
    position_of = place

    def beside(row: int, step: int) -> int:
        """The next row of the same pair, before or after, that is in the store with a number."""
        at = position_of[row]
        while True:
            at += step
            found = order[at]
            if made.number[found] and made.fault[found] not in [_index(name) for name in GONE]:
                return int(found)

    def add(kind: str, row: int, first: int, last: int, count: int, ids: Sequence[int]) -> None:
        proof = tuple(names.one(one) for one in ids)
        planted.findings.append(Finding(kind, _pair_code(made.pair[row]), first, last, count, proof))

    def back(number: int, steps: int) -> int:
        return (number - 1 - steps) % LAST + 1

    for row in made.of("jump"):
        number, gone = int(made.number[row]), int(made.left_out[row])
        add("gap", row, back(number, gone), back(number, 1), gone, [beside(row, -1), row])
    for row in made.of("bridge"):
        number, gone = int(made.number[row]), int(made.left_out[row])
        add("bridge", row, back(number, gone), back(number, 1), gone, [beside(row, -1), row])
    for name in GONE:
        for row in made.of(name):
            number = int(made.number[row])
            add("gap", row, number, number, 1, [beside(row, -1), beside(row, 1)])
    for row in made.of("ghost_delivery"):
        add("delivery_without_acceptance", row, -1, -1, 1, [row])
    for row in made.of("ghost_ack"):
        add("ack_without_storage", row, -1, -1, 1, [row])
    for row in made.of("repeat"):
        number = int(made.number[row])
        add("repeat", row, number, number, 1, [beside(row, -1), row])
    for row in made.of("reset"):
        before = beside(row, -1)
        add("reset", row, int(made.number[before]), 1, 1, [before, row])
    for row in made.of("skipped"):
        add("reset", row, int(made.number[row]), 1, 1, [row, beside(row, 1)])
    for row in made.of("duplicate_id"):
        add("duplicate_id", max(row, int(names.alias[row])), -1, -1, 2, [row])
    for row in made.of("delivered_twice"):
        add("delivered_twice", row, -1, -1, 2, [row])
    for row in made.of("document_twice"):
        add("document_twice", row, -1, -1, 2, [int(names.first[row]), row])
    for row in made.of("undelivered"):
        add("acceptance_without_delivery", row, -1, -1, 1, [row])
    _expect_wraps(planted, made, names, order)


def _places(made: _Rows) -> tuple[Numbers, Numbers]:
    order = np.lexsort((made.position, made.pair))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place, order


def _expect_wraps(planted: Planted, made: _Rows, names: _Names, order: Numbers) -> None:
    here = order[(made.number[order] > 0) & ~np.isin(made.fault[order], [_index(name) for name in GONE])]
    pair, number = made.pair[here], made.number[here]
    for at in np.flatnonzero((pair[1:] == pair[:-1]) & (number[:-1] > LAST - 1000) & (number[1:] < 1000)):
        before, after = here[at], here[at + 1]
        if made.fault[after] == _index("reset") or made.fault[before] == _index("skipped"):
            raise ValueError("a reset fell onto a wrap-around: take another seed")
        ids = (names.one(before), names.one(after))
        code = _pair_code(made.pair[before])
        planted.findings.append(Finding("wrap", code, int(number[at]), int(number[at + 1]), 1, ids))


def _expect_differences(planted: Planted, made: _Rows, names: _Names) -> None:
    def add(verdict: str, row: int, ours: int, theirs: int, message_id: str = "") -> None:
        direction = "in" if made.inbound[row] else "out"
        planted.differences.append(Difference(direction, verdict, message_id or names.one(row), ours, theirs))

    for name, verdict, ours, theirs in (
        ("lost", "lost", 1, 0),
        ("doubled", "doubled", 1, 2),
        ("tampered", "differs", 1, 1),
        ("in_doubt", "in_doubt", 1, 0),
        ("in_doubt_arrived", "in_doubt_arrived", 1, 1),
        ("duplicate_id", "doubled", 2, 1),
    ):
        for row in made.of(name):
            add(verdict, row, ours, theirs)
    for row in made.of("unknown_here"):
        add("unknown_here", row, 0, 1, str(uuids(np.array([row]), names.salt + 70)[0].as_py()))
    gone = np.isin(made.fault, [_index(name) for name in GONE])
    apart = [_index(name) for name in ("lost", "doubled", "tampered", "in_doubt", "in_doubt_arrived", "skipped")]
    alike = ~gone & ~np.isin(made.fault, [*apart, _index("duplicate_id")])
    alike &= made.inbound | (made.number > 0)
    alike[names.alias[made.of("duplicate_id")]] = False
    planted.agreed = {"in": int((alike & made.inbound).sum()), "out": int((alike & ~made.inbound).sum())}


def _count(planted: Planted, made: _Rows) -> None:
    here = (made.number > 0) & ~np.isin(made.fault, [_index(name) for name in GONE])
    counts = np.bincount(made.pair[here], minlength=int(made.pair.max()) + 1)
    for pair, count in enumerate(counts):
        found = {"messages": int(count), "missing": 0, "repeats": 0, "resets": 0, "wraps": 0, "bridged": 0}
        planted.pairs[_pair_code(pair)] = found
    column = {"gap": "missing", "repeat": "repeats", "reset": "resets", "wrap": "wraps", "bridge": "bridged"}
    for finding in planted.findings:
        if finding.kind in column:
            planted.pairs[finding.pair][column[finding.kind]] += finding.count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows", type=int)
    parser.add_argument("--one-in", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    planted = plant(given.folder, given.rows, one_in=given.one_in, seed=given.seed)
    print(f"{planted.rows:,} rows, {len(planted.findings):,} findings, {len(planted.differences):,} differences")


if __name__ == "__main__":
    main()
