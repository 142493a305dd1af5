"""Parquet files read without the columns and row groups that nobody wants: rows, positions and errors stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import collecting_graph, run_batch
from tests.unit.datastream.connectors.harness import SourceHarness, run, run_with_restores
from tests.unit.runtime.graph.programs import environment
from yarrow.common import WatermarkStrategy
from yarrow.common.values.conditions import Condition, WantedColumns
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.file_system import FileEnumeratorProvider
from yarrow.datastream.formats.orc import OrcColumnarRowInputFormat
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.runtime.graph.connector_spec import SourceOperator
from yarrow.table.expressions import col

SCHEMA = pa.schema([("n", pa.int64()), ("m", pa.string()), ("o", pa.float64())])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Nine rows in groups of three."""
    found = tmp_path / "numbers.parquet"
    write(found, 9, 3)
    return found


def write(file: Path, count: int, group: int) -> None:
    numbers = list(range(count))
    columns: list[Any] = [numbers, [str(n) for n in numbers], [n / 2 for n in numbers]]
    pq.write_table(pa.table(columns, schema=SCHEMA), file, row_group_size=group)


def source(file: Path, schema: pa.Schema | None = SCHEMA, split_bytes: int = 1 << 20) -> FileSource[Any]:
    provider = FileEnumeratorProvider.default_splittable_file_enumerator(split_bytes)
    return FileSource(ParquetColumnarRowInputFormat(schema, batch_size=2), [str(file)], provider)


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_columns_that_nobody_wants_are_not_decoded(file: Path, schema: pa.Schema | None) -> None:
    rows = run(source(file, schema).narrowed(WantedColumns(("o", "n"))))
    assert rows == [{"n": n, "o": n / 2} for n in range(9)]


def test_row_groups_that_nobody_wants_are_passed_over(file: Path) -> None:
    assert [row["n"] for row in run(source(file).narrowed(WantedColumns(None, col("n") == 4)))] == [3, 4, 5]
    assert run(source(file).narrowed(WantedColumns(("m",), col("n") > 100))) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(0, 40),
    st.booleans(),
)
def test_restored_readers_give_each_wanted_row_once(
    tmp_path: Path, count: int, group: int, max_rows: int, polls: int, least: int, is_cut: bool
) -> None:
    file = tmp_path / "numbers.parquet"
    write(file, count, group)
    condition = col("n") >= least
    read = source(file, split_bytes=100 if is_cut else 1 << 20).narrowed(WantedColumns(("n",), condition))
    rows = [row["n"] for row in run_with_restores(read, 2, max_rows, polls)]
    assert sorted(n for n in rows if n >= least) == list(range(least, count))
    assert len(set(rows)) == len(rows)
    # Groups are left out as a whole.
    assert min(rows, default=least) > least - group


def test_a_position_inside_of_a_group_holds_for_a_program_that_passes_over_it(file: Path) -> None:
    before = SourceHarness(source(file))
    # Two rows of the second group are read.
    before.run(max_rows=1, polls=5)
    state = before.snapshot()
    before.close()
    after = SourceHarness(source(file).narrowed(WantedColumns(("n",), col("n") > 6)), state=state)
    assert [row["n"] for row in after.run()] == [6, 7, 8]
    after.close()
    whole = SourceHarness(source(file), state=state)
    assert [row["n"] for row in whole.run()] == [5, 6, 7, 8]
    whole.close()


def test_a_column_of_another_type_than_declared_is_still_checked(tmp_path: Path) -> None:
    file = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"n": [1], "m": [2**40]}), file)
    declared = pa.schema([("n", pa.int64()), ("m", pa.int32())])
    with pytest.raises(FileFormatError, match="does not have the declared type"):
        run(source(file, declared).narrowed(WantedColumns(("n",))))
    pq.write_table(pa.table({"n": [1], "m": [2]}), file)
    assert run(source(file, declared).narrowed(WantedColumns(("n",)))) == [{"n": 1, "m": 2}]


def test_statistics_of_numbers_that_a_cast_rounds_pass_over_nothing(tmp_path: Path) -> None:
    file = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"f": [0.1], "n": [1]}), file)
    declared = pa.schema([("f", pa.float32()), ("n", pa.int32())])
    # The float of 32 bits that is next to 0.1 lies above it.
    assert len(run(source(file, declared).narrowed(WantedColumns(None, col("f") > 0.1)))) == 1
    # Integers stay what they are.
    assert run(source(file, declared).narrowed(WantedColumns(None, col("n") > 1))) == []


def test_a_column_that_is_not_declared_passes_over_nothing(tmp_path: Path) -> None:
    file = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"n": [1], "m": [2]}), file)
    # The operator behind has to see a row, so that it tells of the column.
    read = source(file, pa.schema([("n", pa.int64())])).narrowed(WantedColumns(None, col("m") > 2))
    assert run(read) == [{"n": 1}]


def test_a_file_that_lacks_a_wanted_column_is_read_whole(file: Path) -> None:
    # The operator behind names the column that is missing, and those that are there.
    assert run(source(file, None).narrowed(WantedColumns(("n", "gone"))))[1] == {"n": 1, "m": "1", "o": 0.5}
    with pytest.raises(FileFormatError, match="gone"):
        run(source(file, SCHEMA.append(pa.field("gone", pa.int64()))).narrowed(WantedColumns(("n",))))


def test_names_with_dots_are_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "dots.parquet"
    pq.write_table(pa.table({"a.b": [1], "c": [2]}), file)
    assert run(source(file, None).narrowed(WantedColumns(("c",)))) == [{"a.b": 1, "c": 2}]


def test_what_can_be_narrowed() -> None:
    formats = [
        (ParquetColumnarRowInputFormat(), True),
        (ParquetColumnarRowInputFormat(SCHEMA, columnar=False), False),
        (ParquetColumnarRowInputFormat(SCHEMA, is_case_sensitive=False), False),
        (OrcColumnarRowInputFormat(SCHEMA), False),
    ]
    for file_format, can in formats:
        read = FileSource.for_bulk_file_format(file_format, "x").build()
        assert read.can_narrow is can


def unchanged(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@pytest.mark.parametrize("condition", [col("n") > 4, ~(col("m") == "3"), (col("o") < 1) | col("n").is_null])
def test_a_program_has_the_rows_of_a_scan_that_reads_everything(file: Path, condition: Condition) -> None:
    found = []
    for is_whole in (False, True):
        env = environment(2)
        rows = env.from_source(source(file, split_bytes=100), WatermarkStrategy.no_watermarks(), "files")
        if is_whole:
            rows = rows.map_batches(unchanged, SCHEMA)
        graph = collecting_graph(env, rows.filter(condition).select("o").map_batches(unchanged))
        spec = graph.vertices[0].head.spec
        assert isinstance(spec, SourceOperator) and bool(spec.wanted) is not is_whole
        found.append(run_batch(graph).rows())
    assert found[0] == found[1] != []
