"""Partners' logs: taken in by upload, API and folder, read into our columns, and our own written in the same form."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from messaging.exceptions import InvalidSubmission, TooLarge
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, PartnerLog, PipelineRun
from messaging.pipeline import partner_logs as reader
from messaging.pipeline.partner_logs import LOG_COLUMNS, LOG_SCHEMA, UnreadableLog
from messaging.pipeline.runner import Runner
from messaging.reports.services import log_folder, partner_logs
from messaging.reports.services import runs as pipeline_runs
from partners import log_columns
from partners.models import Party
from tests.partners.factories import make_agreement, make_party

ANA = Actor("ana", "console")
DIGEST = "ab" * 32
THEIRS = {"message_id": "MsgId", "direction": "Way", "at": "When", "digest": "Hash", "sequence_number": "Seq"}
HEADER = "MsgId;Way;When;Hash;Seq\n"


def read(tmp_path: Path, content: str | bytes, mapping: dict[str, Any] | None = None) -> tuple[list[Any], Any]:
    """(rows, what `normalise` says) of a log."""
    source = tmp_path / "log"
    source.write_bytes(content.encode() if isinstance(content, str) else content)
    found = reader.normalise(source, mapping or {}, tmp_path / "out.parquet")
    return pq.read_table(tmp_path / "out.parquet").to_pylist(), found


def refusal(content: bytes | str, tmp_path: Path) -> str:
    """The sentence with which a file is refused at the entrance."""
    path = tmp_path / "refused"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InvalidSubmission) as caught:
        partner_logs.read_head(path)
    return caught.value.errors["file"][0]


# ---- the mapping ----


def test_a_mapping_that_contradicts_itself_is_told_all_at_once() -> None:
    faults = log_columns.faults(
        {
            "at": "",
            "digest": "d",
            "status": "d",
            "colour": "x",
            "digest_of": "soul",
            "sent_values": ["a"],
            "received_values": ["A"],
        }
    )
    said = " ".join(faults)
    for part in (
        "colour: no such",
        "at: the name",
        "d: one of",
        "message_id: say",
        "digest_of: body or payload",
        "direction: name its column",
        "a: it cannot mean",
    ):
        assert part in said, part
    assert log_columns.faults([]) and log_columns.faults("x")
    assert log_columns.faults({"message_id": "id", "direction": "way", "direction_is": "sent"})
    assert log_columns.faults({}) == []
    assert log_columns.faults({**THEIRS, "digest_of": "payload", "sent_values": ["TX"]}) == []


def test_columns_are_found_by_name_and_by_case_where_that_is_clear() -> None:
    places, problems = log_columns.located(THEIRS, ["when", "MSGID", "way", "Hash", "hash", "Seq"])
    assert (places, problems) == ({"message_id": 1, "direction": 2, "at": 0, "digest": 3, "sequence_number": 5}, [])
    _, problems = log_columns.located(THEIRS, ["MsgId", "Way", "Way", "When", "Hash"])
    assert problems == [
        "direction: the log has 2 columns called Way; give each a name of its own.",
        "sequence_number: the log has no column Seq. Its columns are MsgId, Way, Way, When, Hash: map one of them.",
    ]


def test_without_a_mapping_the_columns_are_those_of_our_export() -> None:
    assert log_columns.located({}, LOG_COLUMNS)[1] == []
    assert log_columns.located({}, ["direction", "message_id"]) == ({"message_id": 1, "direction": 0}, [])
    assert "message_id" in log_columns.located({}, ["a", "b"])[1][0]


def test_a_word_that_the_mapping_gives_one_side_is_no_longer_the_other_sides() -> None:
    sent, received = log_columns.sides({"received_values": ["OUT"]})
    assert received == {"out"}
    assert "out" not in sent and "sent" in sent
    sent, received = log_columns.sides({"sent_values": ["IN"]})
    assert (sent, "in" in received, "received" in received) == ({"in"}, False, True)


def test_a_mapping_is_proposed_by_usual_names() -> None:
    header = ["Message-ID", "Direction", "Time Stamp", "SHA256", "Seq. No", "Comment"]
    assert log_columns.proposed(header) == {
        "message_id": "Message-ID",
        "direction": "Direction",
        "at": "Time Stamp",
        "digest": "SHA256",
        "sequence_number": "Seq. No",
    }


# ---- the head of a file ----


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\n \n", "no line with text"),
        ("id,x\n".encode("utf-16"), "UTF-16"),
        (b"id,name\n1,M\xfcller\n", "0xfc in line 2 is not UTF-8"),
        (b"id,\x00\n", "zero byte at position 3"),
        (b"PK\x03\x04rest", "ZIP"),
        (b"\x1f\x8bxx", "gzip"),
        (b"PAR1" + b"x" * 40, "end is missing"),
        (b'id,"x\n' + b"a" * 300_000, "cannot be read as CSV"),
        (b"a," * 600_000, "longer than 1024 KiB"),
        (b"a" * 2_000_000, "cannot be read as CSV"),
        (b"a" + b"," * 5000, "5001 columns"),
    ],
)
def test_what_is_no_log_is_refused_at_the_entrance(content: bytes, says: str, tmp_path: Path) -> None:
    assert says in refusal(content, tmp_path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_quotes_and_a_byte_order_mark(delimiter: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    line = delimiter.join(('"a\nb;,c"', " id ", "x"))
    path.write_bytes(b"\xef\xbb\xbf\r\n" + line.encode() + b"\r\n" + delimiter.join("123").encode())
    head = partner_logs.read_head(path, rows=5)
    assert (head.delimiter, head.columns, head.rows) == (delimiter, ("a\nb;,c", "id", "x"), (("1", "2", "3"),))


# ---- reading ----


def test_every_form_of_every_column(tmp_path: Path) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    epoch = int(noon.timestamp())
    times = {
        "2026-01-31T12:00:00Z": noon,
        "2026-01-31 12:00:00": noon,
        "2026-01-31T13:00:00+01:00": noon,
        "2026-01-31 14:00:00.000000999 +0200": noon,
        "2026-01-31t12:00:00,250z": noon + timedelta(milliseconds=250),
        "2026-01-31 12:00 UTC": noon,
        "2026-01-31": noon - timedelta(hours=12),
        str(epoch): noon,
        f"{epoch}.5": noon + timedelta(milliseconds=500),
        f"{epoch}000": noon,
        f"{epoch}000000": noon,
        f"{epoch}000000000": noon,
        "": None,
    }
    ways = ["out", "IN", "Sent", "received"]
    lines = [
        f'm{n};{ways[n % 4]};"{text}";{DIGEST.upper() if n % 2 else "sha256:" + DIGEST};{n:09d}'
        for n, text in enumerate(times)
    ]
    rows, found = read(tmp_path, HEADER + "\r\n".join(lines), THEIRS)
    assert (found.errors, found.rows) == ([], len(times))
    assert [row["at"] for row in rows] == list(times.values())
    # It is the partner's log: what they sent, came in here.
    assert [row["direction"] for row in rows[:4]] == ["in", "out", "in", "out"]
    assert {row["digest"] for row in rows} == {DIGEST}
    assert [row["sequence_number"] for row in rows] == list(range(len(times)))
    assert {row["status"] for row in rows} == {""}
    assert (found.first_at, found.last_at) == (noon - timedelta(hours=12), noon + timedelta(milliseconds=500))


def test_values_of_the_direction_are_the_partners_own(tmp_path: Path) -> None:
    mapping = {"message_id": "id", "direction": "d", "sent_values": ["in"], "received_values": ["Raus"]}
    rows, found = read(tmp_path, "id,d\na,IN\nb,raus\nc,out\n", mapping)
    assert [(row["message_id"], row["direction"]) for row in rows] == [("a", "in"), ("b", "out")]
    assert found.errors == ["row 4: the direction “out” means neither sent nor received"]
    rows, _ = read(tmp_path, "id,d\na,x\n", {"message_id": "id", "direction_is": "received"})
    assert rows[0]["direction"] == "out"


def test_rows_that_cannot_be_read_are_counted_and_located(tmp_path: Path) -> None:
    lines = [
        "good;in;;;",
        ";in;;;",
        "short;in",
        '"a\nb";in;;;',
        "x;in;31.01.2026;;",
        "x;in;2026-02-30;;",
        "x;in;;abc;",
        "x;in;;;-1",
        "x;sideways;;;",
        "long;in;;;1;6",
        "y" * 513 + ";in;;;",
        "last;in;;;7",
    ]
    rows, found = read(tmp_path, HEADER + "\n\n".join(lines), THEIRS)
    assert [row["message_id"] for row in rows] == ["good", "last"]
    assert [int(error.partition(":")[0].removeprefix("row ")) for error in found.errors] == list(range(3, 13))
    for part, error in zip(
        (
            "MessageId is empty",
            "2 columns",
            "control character",
            "31.01.2026",
            "2026-02-30",
            "“abc” is not a SHA-256",
            "“-1” is not a whole",
            "“sideways”",
            "6 columns",
            "more than 512",
        ),
        found.errors,
        strict=True,
    ):
        assert part in error
    assert found.sentence().startswith("10 of 12 rows cannot be read: row 3: ")


def test_another_encoding_deep_in_the_file_is_located_too(tmp_path: Path) -> None:
    good = b"".join(b"m%d;in;;;\n" % n for n in range(200_000))
    rows, found = read(tmp_path, HEADER.encode() + good + b"M\xfcller;in;;;\n" + b"z;in;;;\n", THEIRS)
    assert len(rows) == 200_001
    assert found.errors == ["row 200,002: message_id has the byte 0xfc, which is not UTF-8"]


def test_a_file_full_of_nonsense_ends_early(tmp_path: Path) -> None:
    with pytest.raises(UnreadableLog, match=r"More than 10,000 rows .* Is the mapping of the columns right"):
        read(tmp_path, HEADER + "x;sideways;;;\n" * 10_100, THEIRS)
    assert not (tmp_path / "out.parquet").exists() and not list(tmp_path.glob(".*"))


def test_a_quotation_mark_that_is_left_open(tmp_path: Path) -> None:
    with pytest.raises(UnreadableLog, match=r"Behind row .* is a quotation mark left open"):
        read(tmp_path, HEADER + 'a;in;;;\n"b;in;;;\n' + "c;in;;;\n" * 700_000, THEIRS)


@pytest.mark.parametrize("content", [HEADER, HEADER.strip(), HEADER + "\n\n"])
def test_a_log_without_rows_is_an_empty_log(content: str, tmp_path: Path) -> None:
    assert read(tmp_path, content, THEIRS)[0] == []


def test_columns_of_another_name_are_told_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(UnreadableLog, match=r"message_id: the log has no column MsgId\. Its columns are id, way"):
        read(tmp_path, "id,way\na,in\n", THEIRS)


def test_parquet_of_another_make(tmp_path: Path) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    table = pa.table(
        {
            "n": pa.array([1, 2], pa.int32()),
            "MsgId": pa.array(["a", "b"]).dictionary_encode(),
            "Way": pa.array([b"sent", None], pa.binary()),
            "When": pa.array([noon, None], pa.timestamp("ns", "Europe/Berlin")),
            "Hash": pa.array([DIGEST, None], pa.large_string()),
            "Seq": pa.array([4, None], pa.int16()),
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    rows, found = read(tmp_path, buffer.getvalue(), THEIRS)
    assert rows == [
        {"message_id": "a", "direction": "in", "at": noon, "digest": DIGEST, "status": "", "sequence_number": 4}
    ]
    assert found.errors == ["row 2: the direction “” means neither sent nor received"]
    naive = pa.table({"message_id": ["a"], "direction": ["in"], "at": pa.array([noon.replace(tzinfo=None)])})
    pq.write_table(naive, tmp_path / "naive")
    assert read(tmp_path, (tmp_path / "naive").read_bytes())[0][0]["at"] == noon
    pq.write_table(pa.table({"message_id": [["a"]], "direction": ["in"]}), tmp_path / "nested")
    with pytest.raises(UnreadableLog, match="message_id has the type list"):
        read(tmp_path, (tmp_path / "nested").read_bytes())
    damaged = bytearray(buffer.getvalue())
    damaged[-20:-8] = b"\xff" * 12
    with pytest.raises(UnreadableLog, match="cannot be read"):
        read(tmp_path, bytes(damaged), THEIRS)


def test_reading_takes_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    source = tmp_path / "log.csv"
    line = f"0192f3f2-f3e4-7a5f-b0c1-d2e3f4a5b6c7@partner.example;in;2026-01-31T12:00:00Z;{DIGEST};17;{'x' * 1024}\n"
    with source.open("wb") as file:
        file.write(HEADER.strip().encode() + b";Rest\n")
        for _ in range(100):
            file.write(line.encode() * 1_000)
    before, held = pa.total_allocated_bytes(), [0]
    reader.normalise(source, THEIRS, tmp_path / "out.parquet", lambda rows: held.append(pa.total_allocated_bytes()))
    # 115 MB of text: what is held are the blocks that Arrow reads ahead.
    assert len(held) > 80
    assert max(held) - before < 48 * 1024 * 1024


# ---- our own ----


def exported(tmp_path: Path) -> tuple[list[dict[str, Any]], dict[str, Path]]:
    """A log of ours with everything that can be awkward, and its files."""
    noon = datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)
    ids = ["m,1", 'm"2', "=cmd|' /C calc'!A0", "+1", "-2", "@x", "'=y", "'plain", "ümlaut@ex", "  m9".strip()]
    rows = [
        {
            "message_id": one,
            "direction": "out" if n % 2 else "in",
            "at": noon + timedelta(hours=n) if n else None,
            "digest": DIGEST if n % 3 else "",
            "status": "acknowledged" if n % 2 else "received",
            "sequence_number": n or None,
        }
        for n, one in enumerate(ids)
    ]
    batches = iter([pa.RecordBatch.from_pylist(rows[:4], LOG_SCHEMA), pa.RecordBatch.from_pylist(rows[4:], LOG_SCHEMA)])
    count, files = reader.write_export(batches, tmp_path / "export", "log")
    assert count == len(rows)
    return rows, files


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_our_export_is_an_acceptable_log_of_the_other_hub(kind: str, tmp_path: Path) -> None:
    rows, files = exported(tmp_path)
    head = partner_logs.read_head(files[f"log.{kind}"])
    assert kind == head.format
    mirrored, found = read(tmp_path, files[f"log.{kind}"].read_bytes())
    assert found.unreadable == 0
    # Seen from the other side: what we sent, they received.
    assert mirrored == [{**row, "direction": "in" if row["direction"] == "out" else "out"} for row in rows]


def test_no_cell_of_our_csv_is_a_formula(tmp_path: Path) -> None:
    import csv

    _, files = exported(tmp_path)
    with files["log.csv"].open(encoding="utf-8", newline="") as file:
        cells = [cell for line in csv.reader(file) for cell in line]
    assert cells[:6] == list(LOG_COLUMNS)
    assert "'=cmd|' /C calc'!A0" in cells and "''=y" in cells and "''plain" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]


# ---- taken in ----


@pytest.fixture
def party(db: None) -> Party:
    return make_party("Globex")


def receive(party: Party, content: bytes = b"message_id,direction\na,in\n", **more: Any) -> partner_logs.Received:
    return partner_logs.log_receive(
        party_id=party.pk, chunks=[content[:5], content[5:]], filename=more.pop("filename", "l.csv"), actor=ANA, **more
    )


def test_a_log_is_stored_once_by_its_content(party: Party) -> None:
    first, again, other = receive(party), receive(party, filename="renamed.csv"), receive(make_party("Initech"))
    assert (first.created, again.created, other.created) == (True, False, True)
    assert again.log == first.log
    path = partner_logs.path_of(first.log)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == first.log.sha256
    assert (first.log.size, first.log.format, first.log.uploaded_by) == (path.stat().st_size, "csv", "ana")
    assert not list((partner_logs.folder() / "incoming").iterdir())
    assert AuditEntry.objects.filter(verb="partner_log.receive").count() == 2


def test_what_is_refused_leaves_nothing_behind(party: Party, settings: Any) -> None:
    settings.RMHUB_PARTNER_LOG_MAX_BYTES = 1024
    with pytest.raises(TooLarge, match="larger than 1,024 bytes"):
        receive(party, b"message_id,direction\n" + b"a,in\n" * 400)
    with pytest.raises(InvalidSubmission, match="UTF-16"):
        receive(party, "id".encode("utf-16"))
    with pytest.raises(InvalidSubmission, match=r"no column message_id\. Its columns are a, b"):
        receive(party, b"a,b\n1,2\n")
    with pytest.raises(InvalidSubmission, match="is ours"):
        receive(make_party("Acme", own=True))
    with pytest.raises(InvalidSubmission, match="later than the beginning"):
        receive(party, range_from=datetime(2026, 1, 2, tzinfo=UTC), range_to=datetime(2026, 1, 1, tzinfo=UTC))
    assert not PartnerLog.objects.exists()
    assert not [path for path in partner_logs.folder().rglob("*") if path.is_file()]


def test_a_console_keeps_what_is_not_mapped_yet(party: Party) -> None:
    received = receive(party, b"a,b\n1,2\n", strict=False)
    assert received.created and "message_id" in received.problems[0]
    with pytest.raises(InvalidSubmission, match="no column message_id"):
        partner_logs.log_reconcile(log_id=received.log.pk, actor=ANA)
    run = partner_logs.log_reconcile(
        log_id=received.log.pk, actor=ANA, columns={"message_id": "a", "direction_is": "sent"}
    )
    log = PartnerLog.objects.get()
    assert (run.job, run.scope, run.parameters["log"]) == ("reconcile", log.public_id, log.public_id)
    assert log.columns == {"message_id": "a", "direction_is": "sent"}


def test_the_agreements_columns_are_used(db: None) -> None:
    version = make_agreement()
    agreement = version.agreement
    agreement.log_columns = {"message_id": "MsgId", "direction": "Way"}
    agreement.save()
    content = b"MsgId,Way\na,in\n"
    by_agreement = receive(agreement.partner, content, agreement_id=agreement.pk)
    assert by_agreement.log.columns == agreement.log_columns
    # All agreements of the partner that say how they write logs say the same.
    by_partner = receive(agreement.partner, content + b"b,in\n")
    assert by_partner.log.columns == agreement.log_columns
    with pytest.raises(InvalidSubmission, match="not an agreement with"):
        receive(make_party("Umbrella"), content, agreement_id=agreement.pk)


# ---- the drop folder ----


@pytest.fixture
def drop(party: Party) -> Iterator[Path]:
    place = log_folder.inbox() / party.name
    place.mkdir(parents=True)
    yield place


def put(place: Path, name: str = "log.csv", content: bytes = b"message_id,direction\na,in\n", age: float = 60) -> Path:
    path = place / name
    path.write_bytes(content)
    changed = path.stat().st_mtime - age
    os.utime(path, (changed, changed))
    return path


def test_a_dropped_log_is_taken_once_and_compared(drop: Path, party: Party) -> None:
    path = put(drop)
    (taken,) = log_folder.take_from_folder()
    log, run = PartnerLog.objects.get(), PipelineRun.objects.get()
    assert (taken.log, taken.run, log.party, log.source) == (log.public_id, run.public_id, party, "system")
    assert (run.job, run.scope, run.requested_by) == ("reconcile", log.public_id, "drop folder")
    assert not path.exists() and partner_logs.path_of(log).exists()
    put(drop, "again.csv")
    (again,) = log_folder.take_from_folder()
    assert again.log == log.public_id and PartnerLog.objects.count() == PipelineRun.objects.count() == 1
    assert log_folder.take_from_folder() == []


def test_a_process_that_died_after_taking_it_in_loses_nothing(
    drop: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(**_: Any) -> None:
        raise Killed

    path = put(drop)
    with monkeypatch.context() as dying:
        dying.setattr(partner_logs, "log_reconcile", killed)
        with pytest.raises(Killed):
            log_folder.take_from_folder()
    assert path.exists() and PartnerLog.objects.count() == 1 and not PipelineRun.objects.exists()
    (taken,) = log_folder.take_from_folder()
    assert PartnerLog.objects.count() == PipelineRun.objects.count() == 1
    assert taken.run == PipelineRun.objects.get().public_id and not path.exists()


def test_what_is_being_written_is_left_alone(drop: Path) -> None:
    put(drop, "a.csv.part")
    put(drop, ".a.csv")
    put(drop, "new.csv", age=0)
    secret = put(drop.parent.parent, "secret.csv")
    (drop / "link.csv").symlink_to(secret)
    (log_folder.inbox() / "linked").symlink_to(drop.parent.parent)
    assert log_folder.take_from_folder() == []
    assert len(list(drop.iterdir())) == 4 and secret.exists()


def test_a_bad_file_is_put_aside_with_a_sentence(drop: Path) -> None:
    put(drop, "bad.csv", b"a,b\n1,2\n")
    stray = log_folder.inbox() / "Nobody"
    stray.mkdir()
    put(stray)
    taken = {one.name: one.error for one in log_folder.take_from_folder()}
    assert "no column message_id" in taken["bad.csv"]
    assert "called like no partner" in taken["log.csv"]
    assert not (drop / "bad.csv").exists() and log_folder.take_from_folder() == []
    kept = {text.read_text(): text.with_suffix(".log").read_bytes() for text in log_folder.rejected().glob("*.txt")}
    (said,) = [text for text in kept if "no column message_id" in text]
    assert said.startswith("Globex: bad.csv\n") and kept[said] == b"a,b\n1,2\n" and len(kept) == 2
    put(drop, "bad.csv", b"a,b\n")
    log_folder.take_from_folder()
    assert len(list(log_folder.rejected().glob("*.log"))) == 3
    assert {path.stat().st_mode & 0o777 for path in log_folder.rejected().iterdir()} == {0o600}


@pytest.mark.parametrize("name", ["rejected", "..\\rejected", "REJECTED"])
def test_nothing_is_written_through_a_link_in_a_partners_folder(drop: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (drop / name).symlink_to(target)
    put(drop, "authorized_keys", b"a,b\n1,2\n")
    (taken,) = log_folder.take_from_folder()
    assert "no column message_id" in taken.error
    assert list(target.iterdir()) == [] and not (drop / "authorized_keys").exists()
    assert [path.name for path in drop.iterdir()] == [name]
    assert all("authorized_keys" not in path.name for path in log_folder.rejected().iterdir())


def test_a_folder_of_a_partner_that_becomes_a_link_is_not_entered(
    drop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, agreed = tmp_path / "elsewhere", drop / "agreed"
    elsewhere.mkdir()
    agreed.mkdir()
    secret = put(elsewhere, "secret.csv")
    seen = log_folder._folders

    def swapped(place: int) -> list[str]:
        found = seen(place)
        if "agreed" in found:
            agreed.rmdir()
            agreed.symlink_to(elsewhere)
        return found

    monkeypatch.setattr(log_folder, "_folders", swapped)
    assert log_folder.take_from_folder() == [] and secret.exists()


def test_a_file_that_becomes_a_link_is_neither_read_nor_put_aside(
    drop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, path = put(tmp_path, "secret.csv"), put(drop)
    seen = log_folder._whole

    def swapped(place: int) -> list[str]:
        found = seen(place)
        path.unlink(missing_ok=True)
        path.symlink_to(secret)
        return found

    monkeypatch.setattr(log_folder, "_whole", swapped)
    assert log_folder.take_from_folder() == []
    assert secret.exists() and not PartnerLog.objects.exists()


def test_pipes_second_names_and_names_that_are_no_text_hold_nothing_up(drop: Path, tmp_path: Path) -> None:
    os.mkfifo(drop / "pipe.csv")
    os.utime(drop / "pipe.csv", (1, 1))
    secret = put(tmp_path, "secret.csv")
    os.link(secret, drop / "second.csv")
    odd = os.fsdecode(b"\xff\xfe")
    (drop / odd).mkdir()
    put(drop / odd, odd)  # neither the folder's name nor the file's is text
    (taken,) = log_folder.take_from_folder()
    assert "is not UTF-8" in taken.error and taken.error.encode() and taken.name.encode()
    assert not PartnerLog.objects.exists() and secret.exists() and (drop / "second.csv").exists()


def test_a_folder_in_it_names_the_agreement(db: None) -> None:
    agreement = make_agreement().agreement
    agreement.log_columns = {"message_id": "id", "direction_is": "sent"}
    agreement.save()
    place = log_folder.inbox() / agreement.partner.public_id / agreement.public_id
    place.mkdir(parents=True)
    put(place, content=b"id\na\n")
    log_folder.take_from_folder()
    assert PartnerLog.objects.get().agreement == agreement


def test_what_a_dead_process_left_is_swept_after_a_day(drop: Path) -> None:
    incoming = partner_logs.folder() / "incoming"
    incoming.mkdir(parents=True)
    old, new = put(incoming, "old.part", age=2 * 86_400), put(incoming, "new.part")
    log_folder.take_from_folder()
    assert new.exists() and not old.exists()


def test_the_pipelines_process_looks_into_it(drop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(drop)
    # No child is to be started here.
    monkeypatch.setattr(pipeline_runs, "claim_next", lambda worker: None)
    monkeypatch.setattr("messaging.pipeline.runner.give_back", lambda: None)
    said: list[str] = []
    assert Runner(said.append).serve(once=True, signals=False) == 0
    log = PartnerLog.objects.get()
    assert said == [f"log.csv taken as {log.public_id}"]
    assert not list(drop.iterdir())
