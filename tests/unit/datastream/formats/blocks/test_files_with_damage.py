"""on_error of files of blocks: damage costs its block, a row that does not fit costs itself, each letter comes once."""

from __future__ import annotations

import io
import json
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.unit.datastream.connectors.harness import SourceHarness, as_stored
from yarrow.datastream.connectors.dead_letters import RECORD_BYTES, RECORD_SHOWN, DeadLetter
from yarrow.datastream.connectors.file_format import (
    FileFormat,
    FileFormatError,
    FilePosition,
    FileSourceSplit,
)
from yarrow.datastream.connectors.file_source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceError,
)
from yarrow.datastream.formats.avro import AvroBulkFormat, AvroSchema
from yarrow.datastream.formats.blocks import left_out
from yarrow.datastream.formats.orc import OrcColumnarRowInputFormat
from yarrow.datastream.formats.parquet import AvroParquetReaders, ParquetColumnarRowInputFormat

LONG = pa.schema([("n", pa.int64())])
RECORD = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}%s]}'
LETTER = ', {"name": "e", "type": {"type": "enum", "name": "E", "symbols": [%s]}}'
NARROW = AvroSchema.parse_string(RECORD % (LETTER % '"A", "B"'))
WIDE = RECORD % (LETTER % '"A", "B", "C"')


def read_all(
    file_format: FileFormat[Any], path: Path, *, max_rows: int = 100, policy: str = "dead_letter"
) -> tuple[list[int], list[DeadLetter], int]:
    """The numbers, the letters and the count of errors of a source that is restored after each poll."""
    source = FileSource(
        file_format.on_error(policy),
        [str(path)],
        FileEnumeratorProvider.default_splittable_file_enumerator(1 << 20),
    )
    numbers: list[int] = []
    letters: list[DeadLetter] = []
    errors, state, ended = 0, None, False
    while not ended:
        harness = SourceHarness(source, 1, state)
        ended = harness.poll(max_rows=max_rows) is None
        state = as_stored(harness.snapshot())
        numbers += [row["n"] if isinstance(row, dict) else row.n for row in harness.rows]
        letters += [letter for _, letter in harness.side]
        errors += harness.num_errors
        harness.close()
    return numbers, letters, errors


def parquet_with_a_damaged_group(path: Path) -> None:
    """Four row groups of 25 rows; a page of the third has another checksum."""
    table = pa.table({"n": range(100), "t": [f"text {n}" for n in range(100)]})
    sink = io.BytesIO()
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, sink, row_group_size=25, **options)
    damaged = bytearray(sink.getvalue())
    damaged[damaged.find(b"text 60")] ^= 0xFF
    path.write_bytes(damaged)


BOTH = pa.schema([("n", pa.int64()), ("t", pa.string())])
BOTH_OF_AVRO = AvroSchema.parse_string(RECORD % ', {"name": "t", "type": "string"}')


@pytest.mark.parametrize("max_rows", [1, 7, 100])
@pytest.mark.parametrize(
    "file_format",
    [
        ParquetColumnarRowInputFormat(BOTH, batch_size=10),
        ParquetColumnarRowInputFormat(BOTH, batch_size=10, columnar=False),
        AvroParquetReaders.for_generic_record(BOTH_OF_AVRO),
    ],
)
def test_a_row_group_that_cannot_be_read_costs_itself(
    tmp_path: Path, file_format: FileFormat[Any], max_rows: int
) -> None:
    parquet_with_a_damaged_group(tmp_path / "file")
    numbers, letters, errors = read_all(file_format, tmp_path / "file", max_rows=max_rows)
    assert numbers == [*range(50), *range(75, 100)] and errors == 25
    (letter,) = letters
    assert (letter.split, letter.position, letter.encoding) == (str(tmp_path / "file"), 51, RECORD_SHOWN)
    assert letter.raw == b"row group 2, rows 51 to 75 of the file" and letter.error_class == "OSError"
    assert "CRC" in letter.error and letter.system == "files"


def test_a_group_that_breaks_within_costs_its_rest(tmp_path: Path) -> None:
    table = pa.table({"n": range(3000), "t": [f"text {n}" for n in range(3000)]})
    sink = io.BytesIO()
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, sink, row_group_size=2000, data_page_size=1000, write_batch_size=50, **options)
    damaged = bytearray(sink.getvalue())
    damaged[damaged.find(b"text 1523")] ^= 0xFF
    (tmp_path / "file").write_bytes(damaged)
    numbers, (letter,), errors = read_all(
        ParquetColumnarRowInputFormat(BOTH, batch_size=100), tmp_path / "file", max_rows=64
    )
    lost = letter.position - 1
    assert 1000 < lost <= 1500 and lost % 100 == 0
    assert numbers == [*range(lost), *range(2000, 3000)] and errors == 2000 - lost
    assert letter.raw == b"row group 0, rows %d to 2000 of the file" % (lost + 1)


def test_a_damaged_stripe_costs_itself(tmp_path: Path) -> None:
    sink = io.BytesIO()
    texts = [str(n * 7919 % 10007) * 5 for n in range(20000)]
    table = pa.table({"n": range(20000), "t": texts})
    orc.write_table(table, sink, compression="zlib", stripe_size=60_000)
    stripes = orc.ORCFile(io.BytesIO(sink.getvalue())).nstripes
    assert stripes > 1
    damaged = bytearray(sink.getvalue())
    first = orc.ORCFile(io.BytesIO(sink.getvalue())).read_stripe(0).num_rows
    for byte in range(2000, 2040):
        damaged[byte] ^= 0x5A
    (tmp_path / "file").write_bytes(damaged)
    numbers, (letter,), errors = read_all(OrcColumnarRowInputFormat(BOTH), tmp_path / "file", max_rows=5000)
    assert numbers == list(range(first, 20000)) and errors == 1
    assert (letter.position, letter.raw) == (1, b"stripe 0, all rows")


@pytest.mark.parametrize("max_rows", [1, 3, 100])
@pytest.mark.parametrize("columnar", [True, False])
def test_a_value_that_does_not_fit_the_declared_type_costs_its_row(
    tmp_path: Path, columnar: bool, max_rows: int
) -> None:
    texts = ["x" if n in (0, 7, 8, 19) else str(n) for n in range(20)]
    pq.write_table(pa.table({"n": texts}), tmp_path / "file", row_group_size=12)
    file_format = ParquetColumnarRowInputFormat(LONG, batch_size=5, columnar=columnar)
    numbers, letters, errors = read_all(file_format, tmp_path / "file", max_rows=max_rows)
    assert numbers == [n for n in range(20) if texts[n] != "x"] and errors == 4
    assert [letter.position for letter in letters] == [1, 8, 9, 20]
    assert letters[3].error.startswith("row group 1, row 20 of the file: ArrowInvalid: ")
    assert all(letter.encoding == RECORD_BYTES for letter in letters)
    assert pa.ipc.open_stream(letters[0].raw).read_all().to_pylist() == [{"n": "x"}]
    assert b"2" not in (letters[1].raw or b""), "no value of another row"


def test_letters_of_rows_are_read_by_a_repaired_program(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": ["1", "x"]}), tmp_path / "file")
    _, (letter,), _ = read_all(ParquetColumnarRowInputFormat(LONG), tmp_path / "file")
    repaired = ParquetColumnarRowInputFormat(pa.schema([("n", pa.string())]))
    source = FileSource.for_bulk_file_format(repaired, str(tmp_path / "file")).build()
    read = source.letter_reader()
    assert read is not None
    rows: Any = read(letter).rows
    assert rows.to_pylist() == [{"n": "x"}]
    same = FileSource.for_bulk_file_format(
        ParquetColumnarRowInputFormat(LONG).on_error("dead_letter"), str(tmp_path / "file")
    ).build()
    read = same.letter_reader()
    assert read is not None
    again = read(letter)
    assert not len(again.rows) and again.num_errors == 1 and again.side is not None
    assert again.side[0][1].position == letter.position and again.side[0][1].raw == letter.raw
    failing = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(LONG), str(tmp_path)).build()
    read = failing.letter_reader()
    assert read is not None
    with pytest.raises(FileFormatError, match="does not have the declared type"):
        read(letter)


@pytest.mark.parametrize(
    ("file_format", "content", "expected"),
    [
        (ParquetColumnarRowInputFormat(LONG), b"nonsense", "ArrowInvalid: Parquet magic bytes"),
        (OrcColumnarRowInputFormat(LONG), b"nonsense", "OSError: Not an ORC file"),
        (AvroBulkFormat(NARROW), b"nonsense", "ValueError: "),
        (AvroBulkFormat(), b"", "ValueError: cannot read header"),
    ],
)
def test_a_file_that_is_none_of_its_format_is_one_letter(
    tmp_path: Path, file_format: FileFormat[Any], content: bytes, expected: str
) -> None:
    (tmp_path / "file").write_bytes(content)
    numbers, letters, errors = read_all(file_format, tmp_path / "file")
    (letter,) = letters
    assert (numbers, errors, letter.position, letter.raw) == ([], 1, 0, b"the file")
    assert letter.error.startswith(f"the file: {expected}")
    assert read_all(file_format, tmp_path / "file", policy="skip") == ([], [], 1)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (pa.table({"m": [1]}), r"columns \['n'\] are not among"),
        (pa.table({"n": [[1]]}), "No match|Unsupported|cast"),
    ],
)
def test_a_file_of_other_columns_is_one_letter(tmp_path: Path, table: pa.Table, expected: str) -> None:
    pq.write_table(table, tmp_path / "file")
    numbers, (letter,), _ = read_all(ParquetColumnarRowInputFormat(LONG), tmp_path / "file")
    assert numbers == [] and letter.raw == b"the file"
    assert re.search(expected, letter.error)


def test_of_several_splits_of_such_a_file_one_tells(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"nonsense" * 10)
    file_format = ParquetColumnarRowInputFormat(LONG).on_error("dead_letter")
    splits = FileEnumeratorProvider.default_splittable_file_enumerator(16)
    harness = SourceHarness(FileSource(file_format, [str(tmp_path / "file")], splits), 2)
    harness.run()
    assert len(harness.assigned) == 5 and len(harness.side) == 1
    # A split that had been begun tells what its reader has lost.
    begun = FileSourceSplit("s", str(tmp_path / "file"), 16, 16, 80, FilePosition(1, 0))
    reader = file_format.create_reader(begun)
    found = reader.read(10)
    assert found is not None and found.num_errors == 1 and reader.read(10) is None


class _Unreachable(io.FileIO):
    """A file of a machine that is gone."""

    def read(self, size: int | None = -1) -> bytes:
        raise OSError("the connection is gone")


def test_an_error_of_the_file_system_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet_with_a_damaged_group(tmp_path / "file")
    monkeypatch.setattr(left_out, "file_system_for", lambda _: SimpleNamespace(open=_Unreachable))
    file_format = ParquetColumnarRowInputFormat(BOTH).on_error("skip")
    source = FileSource.for_bulk_file_format(file_format, str(tmp_path / "file")).build()
    with pytest.raises(FileSourceError, match="the connection is gone"):
        SourceHarness(source).run()


@pytest.mark.parametrize("checks", [True, False])
def test_damaged_pages_name_their_file_without_on_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checks: bool
) -> None:
    path = tmp_path / "damaged"
    texts = [f"text {number}" for number in range(5000)]
    pq.write_table(pa.table({"t": texts}), path, use_dictionary=False, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[2000:2008] = b"\xff" * 8
    path.write_bytes(content)
    opened = partial(pq.ParquetFile, page_checksum_verification=checks)
    file_format = ParquetColumnarRowInputFormat(pa.schema([("t", pa.string())]))
    monkeypatch.setattr(pq, "ParquetFile", lambda stream, **_: opened(stream))
    size = path.stat().st_size
    reader = file_format.create_reader(FileSourceSplit("0", str(path), 0, size, size))
    with pytest.raises(FileFormatError, match=f"^{re.escape(str(path))} cannot be read: .*(CRC|snappy)"):
        reader.read(10_000)
    reader.close()


def avro_file(path: Path, codec: str, marked: set[int]) -> bytes:
    """A hundred records in blocks of about ten; the marked ones have a symbol that programs may lack."""
    sink = io.BytesIO()
    records = [{"n": n, "e": "C" if n in marked else "A"} for n in range(100)]
    schema = fastavro.parse_schema(json.loads(WIDE))
    fastavro.writer(sink, schema, records, sync_interval=20, codec=codec)
    path.write_bytes(sink.getvalue())
    return sink.getvalue()


@pytest.mark.parametrize("max_rows", [1, 3, 100])
@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_an_avro_record_that_does_not_fit_the_schema_costs_itself(
    tmp_path: Path, codec: str, max_rows: int
) -> None:
    marked = {0, 14, 15, 99}
    avro_file(tmp_path / "file", codec, marked)
    numbers, letters, errors = read_all(AvroBulkFormat(NARROW), tmp_path / "file", max_rows=max_rows)
    assert numbers == [n for n in range(100) if n not in marked] and errors == 4
    assert "record 1 of the block: SchemaResolutionError: C not found" in letters[0].error
    parse = AvroBulkFormat().record_parser("file")
    assert [row["n"] for letter in letters for row in parse(letter).rows] == sorted(marked)
    again = AvroBulkFormat(NARROW).on_error("dead_letter").record_parser("file")(letters[0])
    assert again.rows == [] and again.num_errors == 1


@pytest.mark.parametrize("max_rows", [1, 100])
def test_a_damaged_avro_block_costs_itself(tmp_path: Path, max_rows: int) -> None:
    content = bytearray(avro_file(tmp_path / "file", "deflate", set()))
    blocks = [
        (block.offset, block.offset + block.size, [row["n"] for row in block])
        for block in fastavro.block_reader(io.BytesIO(content))
    ]
    begin, end, lost = blocks[3]
    content[begin + 2 : end - 16] = bytes(end - begin - 18)
    (tmp_path / "file").write_bytes(content)
    numbers, (letter,), errors = read_all(AvroBulkFormat(), tmp_path / "file", max_rows=max_rows)
    assert numbers == [n for n in range(100) if n not in lost] and errors == len(lost)
    assert (letter.position, letter.raw) == (begin, f"block at byte {begin}, bytes to {end}".encode())


def test_a_block_with_a_damaged_head_or_marker_ends_at_the_next_marker(tmp_path: Path) -> None:
    content = avro_file(tmp_path / "file", "null", set())
    blocks = [
        (block.offset, block.offset + block.size, [row["n"] for row in block])
        for block in fastavro.block_reader(io.BytesIO(content))
    ]
    for change, lost, last in ((blocks[3][0], blocks[3][2], 3), (blocks[3][1] - 1, [], 4)):
        damaged = bytearray(content)
        damaged[change] ^= 0xFF
        (tmp_path / "file").write_bytes(damaged)
        numbers, (letter,), _ = read_all(AvroBulkFormat(), tmp_path / "file")
        # Without its marker a block is lost with the next one.
        missing = lost or [*blocks[3][2], *blocks[4][2]]
        assert numbers == [n for n in range(100) if n not in missing]
        assert letter.raw == f"block at byte {blocks[3][0]}, bytes to {blocks[last][1]}".encode()


def test_a_block_that_claims_more_bytes_than_any_memory_has_costs_itself(tmp_path: Path) -> None:
    content = avro_file(tmp_path / "file", "null", set())
    blocks = list(fastavro.block_reader(io.BytesIO(content)))
    begin, end = blocks[3].offset, blocks[4].offset
    # The number of bytes, of which each block of this file has less than 64, stands in the second byte of the head.
    (tmp_path / "file").write_bytes(content[: begin + 1] + b"\xfe" * 8 + b"\x7f" + content[begin + 2 :])
    numbers, (letter,), errors = read_all(AvroBulkFormat(), tmp_path / "file")
    lost = [row["n"] for row in blocks[3]]
    assert numbers == [n for n in range(100) if n not in lost] and errors == 1
    assert letter.raw == f"block at byte {begin}, bytes to {end + 8}".encode()


def test_a_block_that_claims_more_records_than_it_has_bytes_counts_one_error(tmp_path: Path) -> None:
    content = avro_file(tmp_path / "file", "null", set())
    begin = list(fastavro.block_reader(io.BytesIO(content)))[3].offset
    # The number of records stands in the first byte of the head.
    (tmp_path / "file").write_bytes(content[:begin] + b"\xfe\xff\xff\xff\x7f" + content[begin + 1 :])
    numbers, letters, errors = read_all(AvroBulkFormat(), tmp_path / "file")
    assert numbers == list(range(100)) and len(letters) == errors == 1
    assert b"and those behind it of the block" in (letters[0].raw or b"")


def test_a_damaged_block_that_claims_more_records_than_it_has_bytes_counts_one_error(tmp_path: Path) -> None:
    content = avro_file(tmp_path / "file", "deflate", set())
    blocks = list(fastavro.block_reader(io.BytesIO(content)))
    begin = blocks[3].offset
    # The number of records, the number of bytes, and compressed bytes that are none.
    head = b"\xfe\xff\xff\xff\x7f" + content[begin + 1 : begin + 2]
    (tmp_path / "file").write_bytes(content[:begin] + head + b"\xff" * 8 + content[begin + 10 :])
    numbers, (letter,), errors = read_all(AvroBulkFormat(), tmp_path / "file")
    lost = [row["n"] for row in blocks[3]]
    assert numbers == [n for n in range(100) if n not in lost] and errors == 1
    assert letter.position == begin


def test_a_file_that_ends_too_early_loses_its_last_block(tmp_path: Path) -> None:
    content = avro_file(tmp_path / "file", "deflate", set())
    blocks = list(fastavro.block_reader(io.BytesIO(content)))
    (tmp_path / "file").write_bytes(content[:-10])
    numbers, (letter,), errors = read_all(AvroBulkFormat(), tmp_path / "file")
    assert numbers == list(range(100 - blocks[-1].num_records)) and errors == 1
    assert letter.position == blocks[-1].offset


@pytest.mark.parametrize("part", [64, 100, 1000])
def test_parts_of_a_damaged_avro_file_lose_the_same(tmp_path: Path, part: int) -> None:
    content = bytearray(avro_file(tmp_path / "file", "null", set()))
    blocks = list(fastavro.block_reader(io.BytesIO(content)))
    content[blocks[3].offset + blocks[3].size - 1] ^= 0xFF
    (tmp_path / "file").write_bytes(content)
    splits = FileEnumeratorProvider.default_splittable_file_enumerator(part)
    source = FileSource(AvroBulkFormat().on_error("dead_letter"), [str(tmp_path / "file")], splits)
    harness = SourceHarness(source, 3)
    whole, letters, _ = read_all(AvroBulkFormat(), tmp_path / "file")
    assert sorted(row["n"] for row in harness.run()) == whole
    assert [letter.position for _, letter in harness.side] == [each.position for each in letters]


def test_a_scan_would_not_leave_out_anything_so_there_is_none(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "file")
    builder = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(LONG), str(tmp_path / "file"))
    assert builder.build().scanned_format == "parquet"
    assert builder.on_error("skip").build().scanned_format is None
