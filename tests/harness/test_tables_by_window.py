"""An operator that keeps sums by window and drops windows by event time: rescaled, on both backends, to nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.support.window_sums import summed_by_window
from tests.support.window_sums.window_sums_operator import WindowSumsOperator
from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.container.fragment import Fragment, FragmentSubtask
from yarrow.container.operators.base import RestoredState
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.rocksdb.backend import RocksDBKeyedStateBackend
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import RowBatch, Watermark
from yarrow.runtime.data.key_groups import key_group_of
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.snapshot.assignment import assign
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    OperatorState,
    OperatorSubtaskState,
    RocksDBSnapshot,
)

SIZE = 10
KEYS = [*range(40), *(f"k{number}" for number in range(10)), None, 2.5]
CANONICAL = CheckpointOptions(kind=SnapshotKind.SAVEPOINT, location=CheckpointLocation(directory=""))
OWN = CheckpointOptions(kind=SnapshotKind.CHECKPOINT, location=CheckpointLocation(directory=""))


class Job:
    """The operator at one parallelism after another, each begun from what the one before has written."""

    def __init__(self) -> None:
        self._checkpoint_id = 0
        self._metadata: CheckpointMetadata | None = None

    def start(self, parallelism: int, backend: str) -> None:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
        env.set_max_parallelism(16)
        env.set_buffer_timeout(0)
        rows = env.from_collection([1]).rebalance()
        summed = summed_by_window(rows.key_by(lambda row: row[0]), SIZE).uid("sums")
        summed.print().disable_chaining()
        self.graph: JobGraph = env.get_job_graph("sums")
        self._source, self._sums, self._sink = self.graph.vertices
        subtasks = [FragmentSubtask(self._sums.id, number) for number in range(parallelism)]
        restored = {}
        if self._metadata is not None:
            tasks = assign(self._metadata, self.graph).tasks
            for subtask in subtasks:
                states = tasks.get((subtask.vertex_id, subtask.number), {})
                restored[subtask] = RestoredState(self._checkpoint_id, states, read_inline)
        self.fragments = [
            Fragment(
                self.graph, Settings({"state.backend.type": backend}), ManualClock(), subtasks=[subtask],
                restored={subtask: restored[subtask]} if restored else None,
            )
            for subtask in subtasks
        ]  # fmt: skip
        for fragment in self.fragments:
            fragment.start()

    @property
    def operators(self) -> list[WindowSumsOperator]:
        found = [operator for f in self.fragments for task in f.tasks for operator in task.chain.operators]
        assert all(isinstance(operator, WindowSumsOperator) for operator in found)
        return found  # type: ignore[return-value]

    def push(self, rows: list[tuple[Any, int, int]]) -> None:
        """Rows of (key, number, timestamp), each to the subtask of its key."""
        for fragment, operator in zip(self.fragments, self.operators, strict=True):
            state: Any = operator.context.state
            own = [row for row in rows if state.context.key_groups.holds(key_group_of(row[0], 16))]
            batch = RowBatch([row[:2] for row in own], [row[2] for row in own])
            fragment.push(batch, FragmentSubtask(self._source.id))

    def watermark(self, timestamp: int) -> Counter[Any]:
        """The sums that it brings forth: (key, start) -> sum, each once."""
        found: Counter[Any] = Counter()
        for number, fragment in enumerate(self.fragments):
            fragment.push(Watermark(timestamp), FragmentSubtask(self._source.id))
            elements = fragment.elements[FragmentSubtask(self._sink.id, number)]
            for element in elements:
                if isinstance(element, RowBatch):
                    assert element.timestamps == [start + SIZE - 1 for _, start, _ in element.rows]
                    for key, start, total in element.rows:
                        assert (key, start) not in found
                        found[key, start] = total
            elements.clear()
        return found

    def stop(self, options: CheckpointOptions) -> OperatorState:
        """Cuts all subtasks, ends them, and keeps what was cut for the next start."""
        self._checkpoint_id += 1
        subtasks = {}
        operator = self._sums.operators[0]
        for number, fragment in enumerate(self.fragments):
            with fragment:
                states = fragment.snapshot(self._checkpoint_id, MemoryOutput(), options)
                of_subtask = states[FragmentSubtask(self._sums.id, number)]
                subtasks[number] = of_subtask.get(operator.id, OperatorSubtaskState())
        state = OperatorState(
            operator_id=operator.id, name=operator.name, uid=operator.uid,
            parallelism=len(self.fragments), max_parallelism=16, subtasks=subtasks,
        )  # fmt: skip
        self._metadata = CheckpointMetadata(
            engine_version="test", job_id=self.graph.job_id, job_name="sums", checkpoint_id=self._checkpoint_id,
            timestamp_ms=0, kind=options.kind, operators=(state,),
        )  # fmt: skip
        return state


def rows_held(operator: WindowSumsOperator) -> int:
    """Rows in state, counted and not estimated."""
    state = operator.context.state
    if isinstance(state, HeapKeyedStateBackend):
        return state.entries
    assert isinstance(state, RocksDBKeyedStateBackend)
    return state.entries + sum(1 for _ in state._open().database.family("sums").scan(b"", b"\xff\xff"))


@pytest.mark.parametrize(
    ("backends", "options"),
    [
        (["hashmap"] * 3, CANONICAL),
        (["rocksdb"] * 3, CANONICAL),
        (["rocksdb"] * 3, OWN),
        (["hashmap", "rocksdb", "hashmap"], CANONICAL),
    ],
    ids=["heap", "rocksdb-canonical", "rocksdb-native", "from one to the other"],
)
def test_sums_by_window_are_exact_and_leave_nothing(backends: list[str], options: CheckpointOptions) -> None:
    job = Job()
    expected: Counter[Any] = Counter()
    emitted: Counter[Any] = Counter()
    for round_, (parallelism, backend) in enumerate(zip((1, 2, 1), backends, strict=True)):
        job.start(parallelism, backend)
        # Four windows, forth and back, so that one is opened while another is at hand.
        rows = [
            (key, number, 20 * round_ + (7 * number + 3 * position) % 40)
            for number in range(1, 6)
            for position, key in enumerate(KEYS)
        ]
        for key, number, timestamp in rows:
            expected[key, timestamp - timestamp % SIZE] += number
        job.push(rows)
        windows = {window for operator in job.operators for window in operator.tables.windows()}
        assert windows == {TimeWindow(start, start + SIZE) for _, start in (expected - emitted)}
        assert not job.watermark(20 * round_ + 8)
        emitted |= job.watermark(20 * round_ + 19)
        assert emitted == Counter({at: total for at, total in expected.items() if at[1] < 20 * round_ + 20})
        if round_ < 2:
            state = job.stop(options)
            native = [isinstance(h, RocksDBSnapshot) for each in state.subtasks.values() for h in each.keyed]
            assert native == [options is OWN] * parallelism
    emitted |= job.watermark(1000)
    assert emitted == expected
    assert all(rows_held(operator) == 0 and not operator.tables.windows() for operator in job.operators)
    job.push([("late", 1, 5)])
    assert [operator.late for operator in job.operators] == [1]
    assert job.stop(options).subtasks[0].is_empty or options is OWN
