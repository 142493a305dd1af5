"""ORC: what is written is read, in parts and over restores, as rows and columns; faults named."""

from __future__ import annotations

import io
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import orc

from tests.unit.datastream.connectors.harness import run, run_with_restores
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.file_system import FileEnumeratorProvider
from yarrow.datastream.formats.orc import OrcBulkWriters, OrcColumnarRowInputFormat
from yarrow.datastream.formats.parquet import ParquetBulkWriters
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.table.types import DataTypes

one_file = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=8,
    deadline=None,
)
NUMBERS = Types.ROW_NAMED(["m", "n"], [Types.STRING(), Types.LONG()])


def source(file_format: Any, path: Path, split_bytes: int | None = None) -> FileSource[Any]:
    builder = FileSource.for_bulk_file_format(file_format, str(path))
    if split_bytes is not None:
        builder.set_file_enumerator(FileEnumeratorProvider.default_splittable_file_enumerator(split_bytes))
    return builder.build()


def written(factory: Any, *elements: Any) -> bytes:
    stream = io.BytesIO()
    writer = pickle.loads(pickle.dumps(factory)).create(stream)
    for element in elements:
        if isinstance(element, pa.RecordBatch):
            writer.add_batch(element)
        else:
            writer.add_element(element)
    writer.finish()
    return stream.getvalue()


@pytest.fixture(scope="module")
def of_stripes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of several stripes by pyarrow's own writer, with columns in another order and one more."""
    file = tmp_path_factory.mktemp("orc") / "numbers.orc"
    with orc.ORCWriter(str(file), stripe_size=1 << 14, compression="zlib") as writer:
        for start in range(0, 20_000, 2000):
            numbers = list(range(start, start + 2000))
            writer.write(pa.table({"n": numbers, "x": [0.5] * 2000, "m": [str(n * 7919) for n in numbers]}))
    assert orc.ORCFile(str(file)).nstripes > 2
    return file


@pytest.mark.slow
@one_file
@given(
    st.integers(5000, 50_000), st.integers(2000, 9000), st.integers(3, 9), st.integers(1, 2), st.booleans()
)
def test_every_row_is_in_one_part_and_read_once_over_restores(
    of_stripes: Path, split_bytes: int, max_rows: int, polls: int, parallelism: int, columnar: bool
) -> None:
    file_format = OrcColumnarRowInputFormat(NUMBERS, batch_size=4096, columnar=columnar)
    rows = run_with_restores(source(file_format, of_stripes, split_bytes), parallelism, max_rows, polls)
    assert sorted(row["n"] for row in rows) == list(range(20_000))
    assert all(row["m"] == str(row["n"] * 7919) for row in rows[::997])


ALL = DataTypes.ROW(
    [
        DataTypes.FIELD("money", DataTypes.DECIMAL(6, 2)),
        DataTypes.FIELD("day", DataTypes.DATE()),
        DataTypes.FIELD("at", DataTypes.TIMESTAMP(6)),
        DataTypes.FIELD("list", DataTypes.ARRAY(DataTypes.INT())),
        DataTypes.FIELD("map", DataTypes.MAP(DataTypes.STRING(), DataTypes.BIGINT())),
        DataTypes.FIELD("inner", DataTypes.ROW([DataTypes.FIELD("flag", DataTypes.BOOLEAN())])),
        DataTypes.FIELD("bytes", DataTypes.BYTES()),
    ]
)
ROWS = [
    Row(
        money=Decimal("-12.30"), day=date(1969, 7, 20), at=datetime(2020, 2, 29, 1, 2, 3, 456789),
        list=[1, None], map={"k": 2**40}, inner=Row(flag=True), bytes=b"\0x",
    ),
    Row(money=None, day=None, at=None, list=None, map=None, inner=None, bytes=None),
]  # fmt: skip


def test_values_come_back_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "f.orc").write_bytes(written(OrcBulkWriters.for_row_type(ALL), *ROWS))
    assert run(source(OrcColumnarRowInputFormat(ALL, columnar=False), tmp_path / "f.orc")) == ROWS
    undeclared = run(source(OrcColumnarRowInputFormat(columnar=False), tmp_path / "f.orc"))
    assert [row.at for row in undeclared] == [row.at for row in ROWS]


def test_columns_are_written_and_read(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"m": ["a", "b"], "n": [1, 2]})
    factory = OrcBulkWriters.for_row_type(NUMBERS, {"orc.compress": "SNAPPY", "orc.stripe.size": "65536"})
    assert FileSink.for_bulk_format("/out", factory).build().accepts_columns
    (tmp_path / "f.orc").write_bytes(written(factory, ("z", 0), batch))
    assert orc.ORCFile(str(tmp_path / "f.orc")).compression == "SNAPPY"
    found = source(OrcColumnarRowInputFormat(), tmp_path / "f.orc")
    schema = found.produced_schema()
    assert schema is not None and schema.names == ["m", "n"]
    assert run(found) == [{"m": "z", "n": 0}, {"m": "a", "n": 1}, {"m": "b", "n": 2}]
    assert found.scanned_format is None


def test_a_file_without_rows_has_its_columns(tmp_path: Path) -> None:
    (tmp_path / "f.orc").write_bytes(written(OrcBulkWriters.for_row_type(NUMBERS)))
    assert run(source(OrcColumnarRowInputFormat(NUMBERS), tmp_path / "f.orc")) == []


def test_what_is_no_orc_file_is_told(tmp_path: Path, of_stripes: Path) -> None:
    (tmp_path / "text").write_text("some text")
    with pytest.raises(FileFormatError, match="text is no ORC file"):
        run(source(OrcColumnarRowInputFormat(NUMBERS), tmp_path / "text"))
    damaged = bytearray(of_stripes.read_bytes())
    damaged[3:2000] = bytes(1997)
    (tmp_path / "d.orc").write_bytes(damaged)
    with pytest.raises(FileFormatError, match=r"d\.orc: stripe 0 is damaged"):
        run(source(OrcColumnarRowInputFormat(NUMBERS), tmp_path / "d.orc"))
    missing = Types.ROW_NAMED(["gone"], [Types.LONG()])
    with pytest.raises(FileFormatError, match=r"numbers\.orc: the columns \['gone'\]"):
        run(source(OrcColumnarRowInputFormat(missing), of_stripes))


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"orc.magic": "1"}, r"the properties \['orc\.magic'\] are not known; there are orc\.compress"),
        ({"orc.compress": "rar"}, r"orc\.compress = 'rar' cannot be"),
        ({"orc.stripe.size": "much"}, r"orc\.stripe\.size = 'much' cannot be"),
        ({"orc.bloom.filter.columns": "gone"}, r"orc\.bloom\.filter\.columns = 'gone' cannot be"),
    ],
)
def test_wrong_properties_are_refused_when_the_program_is_built(
    properties: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        OrcBulkWriters.for_row_type(NUMBERS, properties)


def test_what_orc_lacks_is_refused_when_the_program_is_built() -> None:
    with pytest.raises(InvalidProgramError, match="ORC has no column for 'at' of type time64"):
        OrcBulkWriters.for_row_type(Types.ROW_NAMED(["at"], [Types.SQL_TIME()]))
    with pytest.raises(UnsupportedFeatureError, match="hadoop_config"):
        OrcBulkWriters.for_row_type(NUMBERS, hadoop_config=object())


def test_a_value_that_does_not_fit_is_told_by_row_and_column() -> None:
    with pytest.raises(FileFormatError, match="row 1 of the batch: 'x' does not fit column 'n'"):
        written(OrcBulkWriters.for_row_type(NUMBERS), ("a", 1), ("b", "x"))


US = pa.timestamp("us")
FIRST, LAST = datetime(1677, 9, 21, 0, 12, 43, 145225), datetime(2262, 4, 11, 23, 47, 16, 854775)


@pytest.mark.parametrize(
    ("kind", "wrap"),
    [
        (US, lambda at: at),
        (pa.timestamp("us", "UTC"), lambda at: at.replace(tzinfo=UTC)),
        (pa.list_(US), lambda at: [at]),
        (pa.large_list(US), lambda at: [at]),
        (pa.map_(pa.string(), US), lambda at: {"k": at}),
        (pa.map_(US, pa.string()), lambda at: {at: "v"}),
        (pa.struct([("x", pa.list_(US))]), lambda at: {"x": [at]}),
    ],
)
def test_instants_that_readers_lack_are_refused_by_column_and_row(
    tmp_path: Path, kind: pa.DataType, wrap: Any
) -> None:
    schema = pa.schema([("n", pa.int64()), ("at", kind)])
    factory = OrcBulkWriters.for_row_type(schema)
    rows = [(0, wrap(FIRST)), (1, wrap(LAST)), (2, None)]
    (tmp_path / "f.orc").write_bytes(written(factory, *rows))
    found = run(source(OrcColumnarRowInputFormat(schema, columnar=False), tmp_path / "f.orc"))
    assert len(found) == 3
    tick = timedelta(microseconds=1)
    for wrong in (FIRST - tick, LAST + tick, datetime.min, datetime.max):
        message = "row 3 of the batch: .* does not fit column 'at' .* from 1677-09-21 .* to 2262-04-11"
        with pytest.raises(FileFormatError, match=message):
            written(factory, *rows, (3, wrap(wrong)))


def test_columns_with_instants_that_readers_lack_are_refused_in_a_slice() -> None:
    schema = pa.schema([("at", pa.map_(pa.string(), US))])
    batch = pa.RecordBatch.from_pylist([{"at": [("k", datetime.min)]}, {"at": [("k", FIRST)]}], schema=schema)
    assert written(OrcBulkWriters.for_row_type(schema), batch.slice(1))
    with pytest.raises(FileFormatError, match="row 0 of the batch"):
        written(OrcBulkWriters.for_row_type(schema), batch)


def test_instants_behind_a_null_are_not_written() -> None:
    hidden = pa.MapArray.from_arrays(
        [0, 1, 2], ["a", "b"], pa.array([datetime.min, FIRST], US), mask=pa.array([True, False])
    )
    batch = pa.record_batch([hidden], names=["at"])
    assert written(OrcBulkWriters.for_row_type(batch.schema), batch)


@pytest.mark.parametrize(
    ("kind", "number", "fits"),
    [
        (pa.timestamp("ns"), -(2**63) + 1, True),
        (pa.timestamp("ns"), -(2**63), False),
        (pa.timestamp("s"), 9223372036, True),
        (pa.timestamp("s"), 9223372037, False),
        (pa.date64(), -62135596800000, False),
    ],
)
def test_the_range_of_instants_of_every_unit(kind: pa.DataType, number: int, fits: bool) -> None:
    factory = OrcBulkWriters.for_row_type(pa.schema([("at", kind)]))
    batch = pa.RecordBatch.from_arrays([pa.array([number], pa.int64()).cast(kind)], ["at"])
    if fits:
        assert written(factory, batch)
    else:
        with pytest.raises(FileFormatError, match=r"row 0 of the batch: .* does not fit column 'at'"):
            written(factory, batch)


def test_a_dot_in_a_name_is_no_way_into_a_struct(tmp_path: Path) -> None:
    schema = pa.schema([("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())])), ("c.d", pa.int64())])
    row = {"a.b": 1, "a": {"b": 2}, "c.d": 3}
    (tmp_path / "f.orc").write_bytes(written(OrcBulkWriters.for_row_type(schema), row))
    assert run(source(OrcColumnarRowInputFormat(schema), tmp_path / "f.orc")) == [row]
    for name in schema.names:
        chosen = pa.schema([schema.field(name)])
        assert run(source(OrcColumnarRowInputFormat(chosen), tmp_path / "f.orc")) == [{name: row[name]}]


@pytest.mark.parametrize("writers", [OrcBulkWriters, ParquetBulkWriters])
def test_rows_that_do_not_fit_the_columns_are_told_by_row(writers: Any) -> None:
    factory = writers.for_row_type(NUMBERS)
    for wrong in (None, 5, "ab", {"m"}, object()):
        with pytest.raises(FileFormatError, match="row 1 of the batch: a Row, tuple, list or dict"):
            written(factory, ("a", 1), wrong)
    with pytest.raises(
        FileFormatError, match="row 1 of the batch: rows of 1 fields do not fit the 2 columns"
    ):
        written(factory, ("a", 1), ("b",))
    without_null = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    for nulls in ({"n": None}, pa.RecordBatch.from_pydict({"n": pa.array([None], pa.int64())})):
        with pytest.raises(FileFormatError, match="row 0 of the batch: column 'n' is declared without nulls"):
            written(writers.for_row_type(without_null), nulls)


@pytest.mark.parametrize("writers", [OrcBulkWriters, ParquetBulkWriters])
def test_rows_of_several_kinds_are_one_batch(tmp_path: Path, writers: Any) -> None:
    rows = [("a", 1), {"n": 2, "m": "b"}, ["c", 3], Row("d", 4), Row(m="e", n=5)]
    (tmp_path / "f").write_bytes(written(writers.for_row_type(NUMBERS), *rows))
    table = orc.read_table(tmp_path / "f") if writers is OrcBulkWriters else pq.read_table(tmp_path / "f")
    assert table.to_pydict() == {"m": ["a", "b", "c", "d", "e"], "n": [1, 2, 3, 4, 5]}


@pytest.mark.parametrize("writers", [OrcBulkWriters, ParquetBulkWriters])
def test_columns_that_no_file_has_are_refused_when_the_program_is_built(writers: Any) -> None:
    with pytest.raises(InvalidProgramError, match="the row type has no columns"):
        writers.for_row_type(pa.schema([]))
    with pytest.raises(InvalidProgramError, match=r"several columns \['n'\]"):
        writers.for_row_type(pa.schema([("n", pa.int64()), ("n", pa.string())]))
    with pytest.raises(InvalidProgramError, match="no column for 'n' of type month_day_nano_interval"):
        writers.for_row_type(pa.schema([("n", pa.month_day_nano_interval())]))


def test_a_column_that_a_file_has_twice_is_told(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "N"])
    orc.write_table(table, tmp_path / "f.orc")
    one = Types.ROW_NAMED(["n"], [Types.LONG()])
    assert run(source(OrcColumnarRowInputFormat(one), tmp_path / "f.orc")) == [{"n": 1}]
    with pytest.raises(FileFormatError, match=r"f\.orc: the columns \['n'\] are in the file several times"):
        run(source(OrcColumnarRowInputFormat(one, is_case_sensitive=False), tmp_path / "f.orc"))
