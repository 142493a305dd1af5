"""Dead letters of a function through a failure of the job: each comes once, as the rows do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.dataset import dataset

from tests.support.failing_functions import FailsOnceBehindACheckpoint
from yarrow.common import Encoder
from yarrow.common.restart_strategy import RestartStrategies
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import OutputTag, StreamExecutionEnvironment
from yarrow.datastream.connectors import DEAD_LETTERS, DeadLetter
from yarrow.datastream.connectors.dead_letter_table import DeadLetterTable
from yarrow.datastream.connectors.dead_letter_table.letter_columns import letters_of_batch
from yarrow.datastream.connectors.file_system import FileSink, FileSource
from yarrow.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from yarrow.embedded.mini_cluster import mini_cluster
from yarrow.runtime.data.serializers.serializers import serializer_for

pytestmark = pytest.mark.cluster

ROWS = 40_000


def fails_at_tens(value: int) -> int:
    if value % 10 == 3:
        raise ValueError(f"no {value}")
    return value


def test_letters_of_a_function_come_once_over_a_failure(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(20)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 10))
    numbers = env.from_sequence(1, ROWS).map(lambda number: number, Types.LONG())
    parsed = numbers.map(fails_at_tens, Types.LONG()).on_error("dead_letter", max_share=0.5)
    letters = parsed.dead_letters().map(lambda letter: letter.error)
    both = parsed.map(str).union(letters).map(FailsOnceBehindACheckpoint(tmp_path / "failed"))
    with mini_cluster(processes=False), both.execute_and_collect() as rows:
        found = sorted(rows)
    expected = [f"ValueError: no {n}" if n % 10 == 3 else str(n) for n in range(1, ROWS + 1)]
    assert found == sorted(expected)
    assert (tmp_path / "failed").exists()


def damaged_files(folder: Path) -> None:
    """40000 rows in three files; the second file has a damaged row group and two values that are no numbers."""
    folder.mkdir()
    for number in range(3):
        first = number * 15_000
        texts = [str(n) if n not in (15_007, 29_999) else f"<{n}>" for n in range(first, first + 15_000)]
        table = pa.table({"n": texts[: ROWS - first], "t": ["text"] * len(texts[: ROWS - first])})
        options: dict[str, Any] = {
            "row_group_size": 1000,
            "use_dictionary": False,
            "write_page_checksum": True,
        }
        pq.write_table(table, folder / str(number), compression="none", **options)
    (folder / "none").write_bytes(b"nonsense")
    damaged = bytearray((folder / "1").read_bytes())
    damaged[damaged.find(b"20123")] ^= 1
    (folder / "1").write_bytes(damaged)


def test_letters_of_damaged_files_come_once_over_a_failure(tmp_path: Path) -> None:
    damaged_files(tmp_path / "in")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(20)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 10))
    file_format = ParquetColumnarRowInputFormat(pa.schema([("n", pa.int64())]), columnar=False)
    builder = FileSource.for_bulk_file_format(file_format, str(tmp_path / "in"))
    source = builder.on_error("dead_letter", max_share=0.5).build()
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers of files")
    letters = numbers.get_side_output(OutputTag(DEAD_LETTERS))
    told = letters.map(lambda letter: f"{Path(letter.split).name} {letter.position} {letter.operator}")
    both = (
        numbers.map(lambda row: str(row.n)).union(told).map(FailsOnceBehindACheckpoint(tmp_path / "failed"))
    )
    with mini_cluster(processes=False), both.execute_and_collect() as rows:
        found = sorted(rows)
    bad = {15_007, 29_999, *range(20_000, 21_000)}
    places = [f"{place} numbers of files" for place in ("1 8", "1 15000", "1 5001", "none 0")]
    assert found == sorted([*(str(n) for n in range(ROWS) if n not in bad), *places])
    assert (tmp_path / "failed").exists()


def test_letters_lie_once_in_files_under_the_guarantee_of_the_job(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1).enable_checkpointing(20)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 10))
    parsed = env.from_sequence(1, 2000).map(fails_at_tens, Types.LONG()).uid("parse").on_error("dead_letter")
    parsed.map(FailsOnceBehindACheckpoint(tmp_path / "failed")).print()
    files = FileSink.for_row_format(str(tmp_path / "letters"), Encoder.simple_string_encoder()).build()
    parsed.dead_letters().map(DeadLetter.to_json, Types.STRING()).sink_to(files)
    with mini_cluster(processes=False):
        env.execute("letters to files")
    assert (tmp_path / "failed").exists()
    found = [path for path in (tmp_path / "letters").rglob("*") if path.is_file()]
    assert found and not [path for path in found if path.name.startswith((".", "_"))]
    letters = [DeadLetter.from_json(line) for path in found for line in path.read_text().splitlines()]
    assert sorted(letter.error for letter in letters) == sorted(
        f"ValueError: no {number}" for number in range(3, 2001, 10)
    )
    assert {letter.operator for letter in letters} == {"parse"}


def test_letters_lie_once_in_a_table_by_columns(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(20)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 10))
    numbers = env.from_sequence(1, 4000).map(lambda number: number, Types.LONG())
    parsed = numbers.map(fails_at_tens, Types.LONG()).uid("parse").on_error("dead_letter")
    parsed.map(FailsOnceBehindACheckpoint(tmp_path / "failed")).print()
    began_ms = time.time_ns() // 1_000_000
    parsed.dead_letters().sink_to(DeadLetterTable(str(tmp_path / "letters")))
    with mini_cluster(processes=False):
        env.execute("letters to a table")
    assert (tmp_path / "failed").exists()
    table = dataset(tmp_path / "letters", partitioning="hive").to_table()
    expected = {f"ValueError: no {number}" for number in range(3, 4001, 10)}
    assert sorted(table["error"].to_pylist()) == sorted(expected)
    assert set(table["operator"].to_pylist()) == {"parse"}
    assert set(table["error_class"].to_pylist()) == {"ValueError"}
    assert all(each >= began_ms for each in table["failed_at"].cast("int64").to_pylist())
    assert table["day"].to_pylist() == [f"{each:%Y-%m-%d}" for each in table["failed_at"].to_pylist()]
    read = [row for batch in table.to_batches() for row in letters_of_batch(batch)]
    load = serializer_for(Types.LONG()).load_rows
    assert {f"ValueError: no {number}" for row in read for number in load(row.raw or b"")} == expected


def test_rows_that_a_bulk_format_refuses_and_their_letters_lie_once_in_files(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(20)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 10))
    numbers = env.from_sequence(1, 4000).map(FailsOnceBehindACheckpoint(tmp_path / "failed"))
    # Every tenth number is no number of the column.
    rows = numbers.map(lambda number: Row(n=f"<{number}>" if number % 10 == 3 else number))
    schema = pa.schema([("n", pa.int64())])
    files = FileSink.for_bulk_format(str(tmp_path / "rows"), ParquetBulkWriters.for_row_type(schema)).build()
    end = rows.sink_to(files).uid("files").on_error("dead_letter", max_share=0.5)
    end.dead_letters().sink_to(DeadLetterTable(str(tmp_path / "letters")))
    with mini_cluster(processes=False):
        env.execute("rows and letters to files")
    assert (tmp_path / "failed").exists()
    written = dataset(tmp_path / "rows").to_table()["n"].to_pylist()
    assert sorted(written) == [number for number in range(1, 4001) if number % 10 != 3]
    table = dataset(tmp_path / "letters", partitioning="hive").to_table()
    letters = [letter for batch in table.to_batches() for letter in letters_of_batch(batch)]
    load = serializer_for(None).load_rows
    refused = [row.n for letter in letters for row in load(letter.raw or b"")]
    assert sorted(refused) == sorted(f"<{number}>" for number in range(3, 4001, 10))
    assert {letter.operator for letter in letters} == {"files"}
