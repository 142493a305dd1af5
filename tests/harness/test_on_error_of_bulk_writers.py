"""on_error of FileSinks with bulk formats: files have no byte of a failing row, and the other rows in order."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.support.worker_harness import JobFailedInHarness, WorkerHarness
from yarrow.common.serialization import BulkWriter, BulkWriterFactory, Encoder
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.container.operators.limited_rate import LimitedRate
from yarrow.datastream import DataStream, StreamExecutionEnvironment
from yarrow.datastream.connectors.file_sink_files import PartFile
from yarrow.datastream.connectors.file_system import BucketAssigner, FileSink
from yarrow.datastream.formats.avro import AvroBulkWriters, AvroSchema
from yarrow.datastream.formats.csv import CsvBulkWriters, CsvSchema
from yarrow.datastream.formats.orc import OrcBulkWriters
from yarrow.datastream.formats.parquet import AvroParquetWriters, ParquetBulkWriters
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.elements import ArrowBatch, RowBatch
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.testing.operator_harness import OperatorHarness

ROW_TYPE = Types.ROW_NAMED(["n", "text"], [Types.INT(), Types.STRING()])
AVRO = AvroSchema.parse_string(
    '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}, {"name": "text", "type": "string"}]}'
)
CSV = CsvSchema.builder().add_number_column("n", Types.INT()).add_string_column("text").build()


def rows_of_avro(path: Path) -> Iterator[Any]:
    with path.open("rb") as stream:
        yield from fastavro.reader(stream)


def rows_of_csv(path: Path) -> Iterator[Any]:
    for line in path.read_text().splitlines():
        number, text = line.split(",")
        yield {"n": int(number), "text": text}


def rows_of_parquet(path: Path) -> Any:
    return pq.read_table(path).to_pylist()


def rows_of_orc(path: Path) -> Any:
    return orc.read_table(path).to_pylist()


def parts_of(path: Path, name: str) -> int:
    """The number of a file's row groups, stripes or blocks; 0 for CSV, which has none."""
    if "Parquet" in name:
        return int(pq.ParquetFile(path).num_row_groups)
    if name == "ORC":
        return int(orc.ORCFile(path).nstripes)
    if name == "CSV":
        return 0
    with path.open("rb") as stream:
        return len(list(fastavro.block_reader(stream)))


#: Name -> factory, and what reads a file without the engine.
FORMATS: dict[str, tuple[BulkWriterFactory[Any], Callable[[Path], Any]]] = {
    "Parquet": (ParquetBulkWriters.for_row_type(ROW_TYPE), rows_of_parquet),
    "ORC": (OrcBulkWriters.for_row_type(ROW_TYPE), rows_of_orc),
    "Avro": (AvroBulkWriters.for_generic_record(AVRO), rows_of_avro),
    "Avro, compressed": (AvroBulkWriters.for_generic_record(AVRO, "deflate"), rows_of_avro),
    "Parquet of Avro": (AvroParquetWriters.for_generic_record(AVRO), rows_of_parquet),
    "CSV": (CsvBulkWriters.for_schema(CSV), rows_of_csv),
}


def sink_of(folder: Path, factory: BulkWriterFactory[Any], buckets: BucketAssigner | None = None) -> FileSink:
    builder = FileSink.for_bulk_format(str(folder), factory)
    return builder.with_bucket_assigner(buckets or BucketAssigner.base_path_bucket_assigner()).build()


def letters_of(
    sink: FileSink, policy: str = "dead_letter", **bounds: Any
) -> Callable[[DataStream], list[DataStream]]:
    """A fragment that gives the dead letters of the sink."""

    def fragment(rows: DataStream) -> list[DataStream]:
        end = rows.sink_to(sink).uid("files").on_error(policy, **bounds)
        return [end.dead_letters()] if policy == "dead_letter" else []

    return fragment


def refused(harness: OperatorHarness) -> list[Any]:
    """The rows of the letters."""
    load = serializer_for(None).load_rows
    return [row for letter in harness.outputs(0) for row in load(letter.raw)]


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("bad", [set(), {0}, {99}, {3, 4, 50}, set(range(100))])
def test_failing_rows_become_letters_and_the_others_lie_in_order(
    tmp_path: Path, name: str, bad: set[int]
) -> None:
    factory, read = FORMATS[name]
    rows = [Row(n="none" if n in bad else n, text=f"text {n}") for n in range(100)]
    with OperatorHarness(letters_of(sink_of(tmp_path, factory))) as harness:
        for start in range(0, 100, 25):
            harness.send(RowBatch(rows[start : start + 25]))
        harness.end()
        assert refused(harness) == [rows[n] for n in sorted(bad)]
        for letter in harness.outputs(0):
            assert letter.operator == "files" and "none" in letter.error
    good = [{"n": n, "text": f"text {n}"} for n in range(100) if n not in bad]
    assert [row for path in files_in(tmp_path) for row in read(path)] == good
    # A file is opened for a row that fits.
    assert bool(files_in(tmp_path)) == bool(good)


@pytest.mark.parametrize("name", FORMATS)
def test_skipped_rows_leave_the_file_that_the_others_alone_would_make(tmp_path: Path, name: str) -> None:
    factory, read = FORMATS[name]
    rows = [Row(n=n if n % 7 else "none", text="text " * 10) for n in range(20_000)]
    with WorkerHarness(1, processes=False) as harness:
        for folder, given, policy in (
            ("some", rows, "skip"),
            ("all", [r for r in rows if r.n != "none"], "fail"),
        ):
            env = StreamExecutionEnvironment.get_execution_environment()
            env.set_parallelism(1)
            env.from_collection(given).sink_to(sink_of(tmp_path / folder, factory)).on_error(policy)
            harness.run(env.get_job_graph())
    (some,), (everything,) = files_in(tmp_path / "some"), files_in(tmp_path / "all")
    assert list(read(some)) == list(read(everything))
    # Small parts of a chunk make no small row groups, stripes or blocks.
    assert parts_of(some, name) == parts_of(everything, name)
    # Pages end where chunks do, and the time in which rows come cuts chunks.
    assert some.stat().st_size <= 1.1 * everything.stat().st_size + 100


def columns(numbers: Sequence[int | None]) -> ArrowBatch:
    return ArrowBatch(pa.record_batch([pa.array(numbers, pa.int64())], ["n"]), pa.array(range(len(numbers))))


@pytest.mark.parametrize("factory", [ParquetBulkWriters, OrcBulkWriters])
def test_rows_of_record_batches_become_letters(tmp_path: Path, factory: Any) -> None:
    writers = factory.for_row_type(pa.schema([pa.field("n", pa.int32(), nullable=False)]))
    given = pa.schema([("n", pa.int64())])
    with OperatorHarness(letters_of(sink_of(tmp_path, writers)), types=[given]) as harness:
        harness.send(columns([1, 2, 1 << 40, 4]))
        harness.send(columns([None, 6]))
        harness.send(columns([7, 8]))
        harness.end()
        assert [row.n for row in refused(harness)] == [1 << 40, None]
        assert [letter.timestamp for letter in harness.outputs(0)] == [2, 0]
        assert [n for name, n in harness.metrics().items() if name.endswith("numRecordsInErrors")] == [2]
    (path,) = files_in(tmp_path)
    read = pq.read_table(path) if factory is ParquetBulkWriters else orc.read_table(path)
    assert read["n"].to_pylist() == [1, 2, 4, 6, 7, 8]


@pytest.mark.parametrize(
    ("writers", "kind", "fits"),
    [
        (ParquetBulkWriters, pa.list_, 1 << 40),
        (ParquetBulkWriters, pa.list_view, 1 << 40),
        (OrcBulkWriters, pa.list_, 1 << 30),
    ],
)
def test_an_instant_that_the_files_cannot_hold_is_a_bad_row(
    tmp_path: Path, writers: Any, kind: Any, fits: int
) -> None:
    factory = writers.for_row_type(pa.schema([("at", kind(pa.timestamp("s")))]))
    rows = [Row(at=[fits]), Row(at=[fits, 1 << 60]), Row(at=[2])]
    with OperatorHarness(letters_of(sink_of(tmp_path, factory))) as harness:
        harness.send(RowBatch(rows))
        harness.end()
        assert refused(harness) == [rows[1]]
        assert "Write an instant out of this range as a text" in harness.outputs(0)[0].error
    (path,) = files_in(tmp_path)
    read = pq.read_table(path) if writers is ParquetBulkWriters else orc.read_table(path)
    assert read.num_rows == 2


REQUIRED = pa.field("x", pa.int64(), nullable=False)


@pytest.mark.parametrize("writers", [ParquetBulkWriters, OrcBulkWriters])
@pytest.mark.parametrize(
    ("kind", "good", "bad", "named"),
    [
        (pa.struct([REQUIRED]), {"x": 1}, {"x": None}, "in.x"),
        (pa.list_(REQUIRED), [1, 2], [1, None], "in.x"),
        (pa.map_(pa.string(), REQUIRED), {"k": 1}, {"k": None}, "in.x"),
        (pa.list_(pa.field("s", pa.struct([REQUIRED]))), [{"x": 1}, None], [{"x": None}], "in.s.x"),
    ],
)
def test_a_null_inside_of_a_value_that_may_have_none_is_a_bad_row(
    tmp_path: Path, writers: Any, kind: pa.DataType, good: Any, bad: Any, named: str
) -> None:
    factory = writers.for_row_type(pa.schema([("in", kind)]))
    rows = [Row(**{"in": value}) for value in (good, None, bad, good)]
    with OperatorHarness(letters_of(sink_of(tmp_path, factory))) as harness:
        harness.send(RowBatch(rows))
        harness.end()
        assert refused(harness) == [rows[2]]
        assert f"column {named!r} is declared without nulls" in harness.outputs(0)[0].error
    (path,) = files_in(tmp_path)
    read = pq.read_table(path) if writers is ParquetBulkWriters else orc.read_table(path)
    assert read.num_rows == 3


@pytest.mark.parametrize("writers", [ParquetBulkWriters, OrcBulkWriters])
def test_a_null_inside_of_a_list_of_a_record_batch_is_a_bad_row(tmp_path: Path, writers: Any) -> None:
    factory = writers.for_row_type(pa.schema([("in", pa.list_(REQUIRED))]))
    given = pa.schema([("in", pa.list_(pa.int32()))])
    with OperatorHarness(letters_of(sink_of(tmp_path, factory)), types=[given]) as harness:
        harness.push_batch(
            pa.record_batch([pa.array([[1], None, [2, None], [3]], given[0].type)], schema=given)
        )
        harness.end()
        assert [row["in"] for row in refused(harness)] == [[2, None]]
    (path,) = files_in(tmp_path)
    read = pq.read_table(path) if writers is ParquetBulkWriters else orc.read_table(path)
    assert read["in"].to_pylist() == [[1], None, [3]]


class ByText(BucketAssigner):
    def get_bucket_id(self, element: Any, context: Any) -> str:
        if element.text == "none":
            raise KeyError("no bucket for none")
        return str(element.text)


def test_rows_without_a_bucket_become_letters(tmp_path: Path) -> None:
    factory, read = FORMATS["Parquet"]
    rows = [Row(n=n if n % 5 else "none", text=("a", "b", "none", "../c")[n % 4]) for n in range(40)]
    with OperatorHarness(letters_of(sink_of(tmp_path, factory, ByText()))) as harness:
        harness.send(RowBatch(rows))
        harness.end()
        assert refused(harness) == [row for row in rows if row.n == "none" or row.text in ("none", "../c")]
        told = " ".join(letter.error for letter in harness.outputs(0))
        assert "no bucket for none" in told and "the bucket '../c' lies outside" in told
    for bucket, rest in (("a", 0), ("b", 1)):
        (path,) = files_in(tmp_path / bucket)
        assert [row["n"] for row in read(path)] == [n for n in range(40) if n % 5 and n % 4 == rest]
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_encoded_rows_whose_bucket_lies_outside_become_letters(tmp_path: Path) -> None:
    builder = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    sink = builder.with_bucket_assigner(ByText()).build()
    with OperatorHarness(letters_of(sink)) as harness:
        harness.send(RowBatch([Row(text="a"), Row(text="/b"), Row(text="a")]))
        harness.end()
        assert refused(harness) == [Row(text="/b")]
    (path,) = files_in(tmp_path)
    assert path.read_text().splitlines() == [str(Row(text="a"))] * 2


class Lines(BulkWriter[int]):
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def add_element(self, element: int) -> None:
        self._stream.write(b"%d\n" % element)

    def flush(self) -> None:
        """Nothing is held."""

    def finish(self) -> None:
        """Nothing is held."""


class LineWriters(BulkWriterFactory[int]):
    """A factory of a program's own that tells nothing of rows."""

    def create(self, stream: BinaryIO) -> Lines:
        return Lines(stream)


#: The number of rows in each call of a converter.
CALLS: list[int] = []


class ConvertedLines(Lines):
    def add_converted(self, converted: bytes) -> None:
        self._stream.write(converted)


class ConvertingLineWriters(LineWriters):
    """A factory of a program's own that takes part."""

    tells_refused_rows = True

    def create(self, stream: BinaryIO) -> Lines:
        return ConvertedLines(stream)

    def row_converter(self) -> Callable[[Sequence[int]], bytes]:
        def convert(rows: Sequence[int]) -> bytes:
            CALLS.append(len(rows))
            return b"".join(b"%d\n" % (1 // (row % 10) + row - 1 // (row % 10)) for row in rows)

        return convert


def test_a_factory_of_a_program_takes_part_by_its_capability(tmp_path: Path) -> None:
    with OperatorHarness(letters_of(sink_of(tmp_path, ConvertingLineWriters()))) as harness:
        harness.send(RowBatch(list(range(100))))
        harness.end()
        assert refused(harness) == list(range(0, 100, 10))
        assert "ZeroDivisionError" in harness.outputs(0)[0].error
        assert "in convert" in harness.outputs(0)[0].traceback
    (path,) = files_in(tmp_path)
    assert path.read_text().split() == [str(n) for n in range(100) if n % 10]


def test_a_factory_of_a_program_that_does_not_is_refused(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    end = env.from_collection([1], Types.INT()).sink_to(sink_of(tmp_path, LineWriters()))
    with pytest.raises(InvalidProgramError, match="the sink does not tell which row it refuses"):
        end.on_error("skip")


@pytest.mark.parametrize("step", [1, 2, 10])
def test_rows_are_converted_a_few_times_however_many_fail(tmp_path: Path, step: int) -> None:
    CALLS.clear()
    rows = [0 if n % step == 0 else 1 for n in range(2000)]
    with OperatorHarness(letters_of(sink_of(tmp_path, ConvertingLineWriters()))) as harness:
        harness.send(RowBatch(rows))
        harness.end()
        assert refused(harness) == [0] * rows.count(0)
    # A part is halved from its greatest size once, and then grows again behind each failing row.
    assert sum(CALLS) <= 6 * len(rows) + 2 * 2000


def test_a_full_disk_is_no_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(part: PartFile, converted: Any, rows: int, now: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(PartFile, "write_converted", no_space)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    end = env.from_collection([Row(n=1, text="a")]).sink_to(sink_of(tmp_path, FORMATS["Parquet"][0]))
    end.on_error("skip")
    with (
        WorkerHarness(1, processes=False) as harness,
        pytest.raises(JobFailedInHarness, match="no space left"),
    ):
        harness.run(env.get_job_graph())


@pytest.mark.parametrize("as_columns", [False, True])
def test_past_a_bound_the_job_fails(tmp_path: Path, as_columns: bool) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = [(None if n % 3 == 0 else n,) for n in range(1, 11)]
    rows = env.from_collection(numbers, Types.ROW_NAMED(["n"], [Types.LONG()]))
    stream = rows.to_arrow() if as_columns else rows
    factory = ParquetBulkWriters.for_row_type(pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    stream.sink_to(sink_of(tmp_path, factory)).on_error("skip", max_share=0.2)
    with (
        WorkerHarness(1, processes=False) as harness,
        pytest.raises(JobFailedInHarness, match="failed at 3 of the latest 10 records"),
    ):
        harness.run(env.get_job_graph())


def test_a_limit_in_bytes_counts_rows_that_wait_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[int, int]] = []
    monkeypatch.setattr(LimitedRate, "use", lambda rate, rows, size_bytes: used.append((rows, size_bytes)))
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    rows = [Row(n=n if n % 10 else "none", text="text") for n in range(100)]
    end = env.from_collection(rows).sink_to(sink_of(tmp_path, FORMATS["Parquet"][0])).on_error("skip")
    end.rate_limit(bytes_per_second=1e9)
    with WorkerHarness(1, processes=False) as harness:
        harness.run(env.get_job_graph())
    assert sum(rows for rows, _ in used) == 100
    assert sum(size for _, size in used) >= 90 * 12
