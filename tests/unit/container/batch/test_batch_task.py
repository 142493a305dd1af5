"""BatchTasks run the chains of a job: sources by split, exchanges by chunk, results as chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.batch_runner import collect, collecting_graph, run_batch, shuffled
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Types, WatermarkStrategy
from yarrow.common.accumulators import IntCounter
from yarrow.container.batch.batch_task import BatchAttempt, BatchTask
from yarrow.container.batch.split_assignment import SplitAssignmentError, assign
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream import MapFunction, OutputTag, ProcessFunction, RuntimeContext
from yarrow.datastream.connectors import DEAD_LETTERS
from yarrow.datastream.connectors.base import NothingAvailable, SourceReaderContext
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.number_seq import NumberRange, NumberSequenceSource
from yarrow.datastream.connectors.split_reading import OneByOneReader
from yarrow.datastream.formats.json import JsonLinesFormat
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.batch_planner import plan

ODD = OutputTag("odd")


class Parted(ProcessFunction[int, int]):
    """Sends odd numbers aside."""

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield (ODD, value) if value % 2 else value


def test_every_row_of_all_splits_comes_once() -> None:
    env = environment(3)
    numbers = env.from_source(NumberSequenceSource(1, 10_000), WatermarkStrategy.no_watermarks(), "numbers")
    assert sorted(collect(env, numbers.map(lambda n: n * 2))) == list(range(2, 20_001, 2))


def test_side_outputs_and_unions() -> None:
    env = environment()
    parted = env.from_collection(range(100)).rebalance().process(Parted())
    odd = parted.get_side_output(ODD).map(lambda n: -n)
    assert sorted(collect(env, parted.union(odd))) == sorted(-n if n % 2 else n for n in range(100))


def test_rolling_aggregates_emit_each_key_once() -> None:
    env = environment()
    words = [word for word in "abcde" for _ in range(ord(word))]
    counted = env.from_collection(words).map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).sum(1)
    assert Counter(collect(env, counted)) == Counter(Counter(words).items())


def test_prints_in_order_of_partitions() -> None:
    env = environment()
    env.from_collection(range(4)).rebalance().map(str).print("out")
    printed = run_batch(env.get_job_graph()).printed
    assert [line[:6] for line in printed.splitlines()] == ["out:1>"] * 2 + ["out:2>"] * 2


def test_rows_are_dealt_out_alike_in_each_attempt() -> None:
    env = environment(3)
    dealt = env.from_collection(range(1000)).rebalance().map(str).shuffle().map(int).set_parallelism(4)
    graph = collecting_graph(env, dealt)
    assert run_batch(graph).chunks == run_batch(graph, attempt=1).chunks


def test_chunks_of_producers_come_in_any_order() -> None:
    env = environment(4)
    dealt = env.from_collection(range(1000)).rebalance().map(lambda n: n).rebalance().map(lambda n: -n)
    graph = collecting_graph(env, dealt)
    settings = {"execution.batch.max-rows": "7"}
    expected = run_batch(graph, settings)
    for seed in range(3):
        assert run_batch(graph, settings, deal=shuffled(seed)).collected == expected.collected


def test_chunks_beyond_the_memory_are_ordered_on_disk() -> None:
    env = environment(2)
    texts = [f"{n:06}" * 100 for n in range(8000)]
    graph = collecting_graph(env, env.from_collection(texts).rebalance().map(lambda text: text[:6]))
    settings = {"execution.batch.sort-memory": "1 mb", "execution.batch.max-rows": "50"}
    run = run_batch(graph, settings, deal=shuffled(1))
    assert sorted(run.rows()) == [text[:6] for text in texts]
    assert run.collected == run_batch(graph).collected


class Counting(MapFunction[Any, Any]):
    """Counts what it sees."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = IntCounter()
        runtime_context.add_accumulator("seen", self.seen)

    def map(self, value: Any) -> Any:
        self.seen.add(1)
        return value

    def close(self) -> None:
        self.seen.add(1000)


def test_results_of_tasks() -> None:
    env = environment()
    env.from_collection(range(10)).rebalance().map(Counting()).filter(lambda n: n < 5).print()
    graph = env.get_job_graph()
    run = run_batch(graph)
    second = graph.vertices[1]
    found = [run.results[second.id, subtask] for subtask in range(2)]
    assert sum(result.accumulators["seen"] for result in found) == 2010
    assert sum(result.records_in for result in found) == 10
    assert [sum(result.operators[index][1] for result in found) for index in range(3)] == [10, 10, 5]
    assert all(result.bytes_in > 0 for result in found)
    source = run.results[graph.vertices[0].id, 0]
    assert source.records_out == source.records_in == 10


def test_a_failure_names_operator_and_record() -> None:
    env = environment()
    env.from_collection([4, 2, 0]).rebalance().map(lambda n: 8 // n).name("divides").print()
    with pytest.raises(OperatorFailure) as raised:
        run_batch(env.get_job_graph())
    assert raised.value.operator_name == "divides"
    assert raised.value.record == "0"
    assert isinstance(raised.value.cause, ZeroDivisionError)


class FailsLate(MapFunction[Any, Any]):
    """Fails at its close."""

    def map(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        raise OSError("the connection is gone")


def test_a_failed_close_fails_the_task() -> None:
    env = environment()
    env.from_collection([1]).map(FailsLate()).name("late").print()
    with pytest.raises(OperatorFailure) as raised:
        run_batch(env.get_job_graph())
    assert raised.value.operator_name == "late"


class Lives(MapFunction[Any, Any]):
    """Writes its life to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, event: str) -> None:
        with self.path.open("a") as file:
            file.write(event + " ")

    def open(self, runtime_context: RuntimeContext) -> None:
        self.note("open")

    def map(self, value: Any) -> Any:
        self.note("map")
        return 1 // value

    def close(self) -> None:
        self.note("close")


@pytest.mark.parametrize(("values", "life"), [([1, 0], "open map map close "), ([1], "open map close ")])
def test_functions_are_closed_once(tmp_path: Path, values: list[int], life: str) -> None:
    env = environment()
    env.from_collection(values).map(Lives(tmp_path / "life")).set_parallelism(1).print()
    if 0 in values:
        with pytest.raises(OperatorFailure):
            run_batch(env.get_job_graph())
    else:
        run_batch(env.get_job_graph())
    assert (tmp_path / "life").read_text() == life


def test_a_task_that_is_left_early_closes_its_functions(tmp_path: Path) -> None:
    env = environment()
    env.from_collection([1, 1]).map(Lives(tmp_path / "life")).set_parallelism(1).print()
    graph = env.get_job_graph()
    vertex = graph.vertices[0]
    splits = tuple(assign(graph, vertex.id, 1)[0])
    attempt = BatchAttempt(vertex_id=vertex.id, subtask=0, splits=splits)
    task = BatchTask(graph, plan(graph), attempt, Settings(), ManualClock(), tmp_path)
    chunks = task.run([])
    assert next(chunks).rows == 1
    chunks.close()  # type: ignore[attr-defined]
    assert (tmp_path / "life").read_text() == "open map map close "


class Talks(OneByOneReader[int, NumberRange]):
    """Tells its enumerator of each split, and waits for an answer."""

    def open_split(self, split: NumberRange) -> None:
        self._context.send_event_to_enumerator("began")

    def read_split(self, max_rows: int) -> NothingAvailable:
        return NothingAvailable()

    def current_split(self) -> NumberRange:
        raise AssertionError("no split is read")


class TalkingSource(NumberSequenceSource):
    def create_reader(self, context: SourceReaderContext) -> Any:
        return Talks(context)


def test_a_reader_that_talks_with_its_enumerator_fails_by_name() -> None:
    env = environment(1)
    env.from_source(TalkingSource(1, 3), WatermarkStrategy.no_watermarks(), "talks").print()
    with pytest.raises(OperatorFailure) as raised:
        run_batch(env.get_job_graph())
    assert isinstance(raised.value.cause, SplitAssignmentError)
    assert "'Source: talks'" in str(raised.value.cause)


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("lines", ['{"n": 1}\n{"n": "x"}\n{"n": 3}\n', '{"n": "x"}\n{"n": "y"}\n'])
def test_dead_letters_leave_a_source_of_rows_or_columns(tmp_path: Path, columnar: bool, lines: str) -> None:
    """Letters come in chunks of their own, which have no rows and no columns."""
    (tmp_path / "in.json").write_text(lines)
    numbers = JsonLinesFormat(Types.ROW_NAMED(["n"], [Types.LONG()]), columnar)
    builder = FileSource.for_record_stream_format(numbers, str(tmp_path / "in.json"))
    env = environment(1)
    source = builder.on_error("dead_letter").build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    letters = stream.get_side_output(OutputTag(DEAD_LETTERS)).map(
        lambda letter: (letter.operator, letter.raw)
    )
    rows = stream.map(lambda row: row["n"])
    bad = [("numbers", line.encode()) for line in lines.splitlines() if '"x"' in line or '"y"' in line]
    good = [int(line[6:-1]) for line in lines.splitlines() if '"x"' not in line and '"y"' not in line]
    assert sorted(map(str, collect(env, letters.union(rows)))) == sorted(map(str, [*bad, *good]))


def test_damaged_blocks_and_rows_leave_a_source_as_letters(tmp_path: Path) -> None:
    options: dict[str, Any] = {"row_group_size": 5, "use_dictionary": False, "write_page_checksum": True}
    texts = [str(n) if n != 103 else "none" for n in range(100, 120)]
    pq.write_table(pa.table({"n": texts}), tmp_path / "1", compression="none", **options)
    damaged = bytearray((tmp_path / "1").read_bytes())
    damaged[damaged.find(b"112")] ^= 1
    (tmp_path / "1").write_bytes(damaged)
    (tmp_path / "2").write_bytes(b"nonsense")
    columns = ParquetColumnarRowInputFormat(pa.schema([("n", pa.int64())]))
    source = FileSource.for_bulk_file_format(columns, str(tmp_path)).on_error("dead_letter").build()
    env = environment()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("files")
    letters = stream.get_side_output(OutputTag(DEAD_LETTERS)).map(
        lambda letter: (letter.operator, letter.position)
    )
    rows = stream.to_rows().map(lambda row: row.n)
    good = [n for n in range(100, 120) if n != 103 and n // 5 != 22]
    bad = [("files", 0), ("files", 4), ("files", 11)]
    assert sorted(map(str, collect(env, letters.union(rows)))) == sorted(map(str, [*bad, *good]))
