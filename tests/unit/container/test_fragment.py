"""Subtasks of a graph run in the calling thread: what comes in and out, what is cut, and what is restored from it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.cep import CEP, Pattern
from yarrow.common import Row, Time, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.container.fragment import Fragment, FragmentFailedError, FragmentSubtask, subtasks_of
from yarrow.container.operators.base import RestoredState
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.datastream.functions import CheckpointedFunction, MapFunction
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.elements import CheckpointBarrier, EndOfData, RowBatch
from yarrow.runtime.data.key_groups import key_group_of, key_group_range_for_operator_index
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState

NUMBERS = range(64)


class Counts(MapFunction[Any, Any], CheckpointedFunction):
    """Has a state that cannot be cut while `broken` is set."""

    broken = False

    def map(self, value: Any) -> Any:
        if value == "fail":
            raise ValueError("a row that fails")
        return value

    def initialize_state(self, context: Any) -> None:
        return None

    def snapshot_state(self, context: Any) -> None:
        if self.broken:
            raise RuntimeError("this state cannot be cut")


def sums(parallelism: int) -> JobGraph:
    """Source -> sum by key -> print, each a vertex of its own."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    env.set_buffer_timeout(0)
    keyed = env.from_collection([1]).rebalance().key_by(lambda pair: pair[0])
    keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).print().disable_chaining()
    return env.get_job_graph("sums")


def fragment_of(graph: JobGraph, *subtasks: FragmentSubtask, **options: Any) -> Fragment:
    return Fragment(graph, Settings({}), ManualClock(), subtasks=subtasks or None, **options)


def rows_to(fragment: Fragment, consumer: FragmentSubtask) -> list[Any]:
    return [row for e in fragment.elements[consumer] if isinstance(e, RowBatch) for row in e.rows]


def keys_of(subtask: int, parallelism: int) -> list[int]:
    own = key_group_range_for_operator_index(128, parallelism, subtask)
    return [number for number in NUMBERS if own.holds(key_group_of(number, 128))]


def test_one_subtask_runs_alone_and_goes_on_from_its_snapshot() -> None:
    graph = sums(2)
    source, summed, sink = graph.vertices
    for number in range(2):
        subtask, behind = FragmentSubtask(summed.id, number), FragmentSubtask(sink.id, number)
        keys = keys_of(number, 2)
        with fragment_of(graph, subtask) as fragment:
            fragment.start()
            fragment.push(RowBatch([(key, 1) for key in keys], None), FragmentSubtask(source.id))
            assert rows_to(fragment, behind) == [(key, 1) for key in keys]
            states = fragment.snapshot(7, MemoryOutput())
            assert states.keys() == {subtask}
            fragment.push(RowBatch([(keys[0], 100)], None), FragmentSubtask(source.id))
            assert rows_to(fragment, behind)[-1] == (keys[0], 101)
        restored = {subtask: RestoredState(7, states[subtask], read_inline)}
        with fragment_of(graph, subtask, restored=restored) as fragment:
            fragment.start()
            fragment.push(RowBatch([(keys[0], 5)], None), FragmentSubtask(source.id))
            assert rows_to(fragment, behind) == [(keys[0], 6)], "not what came behind the cut"


def test_subtasks_exchange_rows_among_themselves() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.set_buffer_timeout(0)
    mapped = env.from_collection([1]).rebalance().map(lambda number: (number, 1))
    mapped.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).print()
    graph = env.get_job_graph("exchange")
    source = FragmentSubtask(graph.vertices[0].id)
    lines: list[str] = []
    inside = [subtask for subtask in subtasks_of(graph) if subtask != source]
    with fragment_of(graph, *inside, write_output=lines.append) as fragment:
        fragment.start()
        assert len(fragment.tasks) == 4
        # Both subtasks of the map read this source: each row comes twice.
        fragment.push(RowBatch(list(NUMBERS), None), source)
        shown = [line.partition("> ")[2] for text in lines for line in text.splitlines()]
        assert sorted(shown) == sorted(str((number, count)) for number in NUMBERS for count in (1, 2))
        fragment.push(EndOfData(), source)
        assert [state for _, state in fragment.states].count(ExecutionState.FINISHED) == 4


def test_a_whole_job_is_cut_from_its_sources_on() -> None:
    graph = sums(1)
    with fragment_of(graph) as fragment:
        fragment.start()
        states = fragment.snapshot(1, MemoryOutput())
        source = graph.vertices[0]
        assert FragmentSubtask(source.id) in states
        assert source.operators[0].id in states[FragmentSubtask(source.id)]


def counting(broken: bool) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    function = Counts()
    function.broken = broken
    env.from_collection([1]).disable_chaining().map(function).name("counts").print()
    return env.get_job_graph("counting")


def test_a_state_that_cannot_be_cut_is_told_and_the_fragment_goes_on() -> None:
    graph = counting(broken=True)
    source, counts = graph.vertices
    with fragment_of(graph, FragmentSubtask(counts.id)) as fragment:
        fragment.start()
        with pytest.raises(OperatorFailure, match="counts") as declined:
            fragment.snapshot(1, MemoryOutput())
        assert str(declined.value.cause) == "this state cannot be cut"
        (task,) = fragment.tasks
        assert task.life.is_live
        # A barrier that nobody asked for is cut and dropped: the task does not wait for it at its end.
        producer = FragmentSubtask(source.id)
        fragment.push(CheckpointBarrier(2, 0), producer)
        fragment.push(EndOfData(), producer)
        assert fragment.states[-1][1] is ExecutionState.FINISHED


def test_a_failure_is_raised_as_a_worker_would_report_it() -> None:
    graph = counting(broken=False)
    source, counts = graph.vertices
    with fragment_of(graph, FragmentSubtask(counts.id)) as fragment:
        fragment.start()
        with pytest.raises(FragmentFailedError, match="a row that fails") as failed:
            fragment.push(RowBatch(["fail"], None), FragmentSubtask(source.id))
        assert failed.value.cause.exception_name == "builtins.ValueError"
        assert fragment.failures == [failed.value.cause]


def test_generated_code_is_asked_for_before_it_runs() -> None:
    graph = sums(2)
    summed = FragmentSubtask(graph.vertices[1].id)
    with fragment_of(graph, summed) as fragment:
        (source,) = fragment.generated_code(summed)
        assert "def input_0(rows" in source
    with fragment_of(graph, summed) as fragment:
        fragment.start()
        with pytest.raises(RuntimeError, match="ask before start"):
            fragment.generated_code(summed)


class At(TimestampAssigner):
    """The number of a row is its time."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value.at  # type: ignore[no-any-return]


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_the_loop_of_a_pattern_is_part_of_the_code(columns: bool) -> None:
    def never(row: Any) -> bool:
        raise AssertionError("nobody calls a function")

    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    row_type = Types.ROW_NAMED(["k", "at"], [Types.STRING(), Types.LONG()])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    rows = env.from_collection([Row(k="a", at=1)], row_type).assign_timestamps_and_watermarks(strategy)
    condition: Any = pc.field("at") > 1 if columns else never
    keyed: Any = rows.to_arrow().key_by("k") if columns else rows.key_by(never)
    # Columns alone would run as arrays, without this loop.
    pattern = Pattern.begin("a").where(condition).followed_by("b").where(never).within(Time.seconds(1))
    CEP.pattern(keyed, pattern).select(never).print()
    graph = env.get_job_graph("pattern")
    vertex = next(each for each in graph.vertices if any("CEP" in own.name for own in each.operators))
    subtask = FragmentSubtask(vertex.id)
    with fragment_of(graph, subtask) as fragment:
        sources = fragment.generated_code(subtask)
    (loop,) = [source for source in sources if "def match_rows" in source]
    compile(loop, "loop", "exec")


def test_an_operator_by_itself_has_the_state_that_is_restored() -> None:
    graph = sums(2)
    source, summed, _ = graph.vertices
    subtask = FragmentSubtask(summed.id, 1)
    with fragment_of(graph, subtask) as fragment:
        fragment.start()
        fragment.push(RowBatch([(key, 1) for key in keys_of(1, 2)], None), FragmentSubtask(source.id))
        states = fragment.snapshot(1, MemoryOutput())
    with fragment_of(
        graph, subtask, restored={subtask: RestoredState(1, states[subtask], read_inline)}
    ) as it:
        context = it.context(subtask)
        assert context.restored_checkpoint_id == 1
        assert context.environment.subtask == 1
        operator = it.operator(subtask)
        operator.open()
        backend = operator.context.state
        assert isinstance(backend, HeapKeyedStateBackend)
        (name,) = backend.registrations
        assert sorted(backend.state_keys(name)) == keys_of(1, 2)
        operator.close()
        backend.dispose()


def test_what_state_makes_on_disk_ends_with_the_fragment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for the code of a job with RocksDB finds no database in the folder at hand."""
    monkeypatch.chdir(tmp_path)
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    graph, settings = sums(1), Settings({"state.backend.type": "rocksdb"})
    with Fragment(graph, settings, ManualClock()) as fragment:
        assert [fragment.generated_code(subtask) for subtask in subtasks_of(graph)]
    assert list(tmp_path.rglob("*")) == [temporary]
