"""Two inputs of record batches: keys, state on both backends, watermarks, barriers, ends, rescaling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.support.kept_snapshots import KeptSnapshots
from tests.support.lookup import looked_up
from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.common.configuration import Configuration
from yarrow.container.fragment import Fragment, FragmentFailedError, FragmentSubtask
from yarrow.container.operators.base import RestoredState
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import ArrowBatch, CheckpointBarrier, EndOfData, Watermark, WatermarkStatus
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import StreamKind
from yarrow.runtime.snapshot.handles import OperatorSubtaskState
from yarrow.testing.operator_harness import HarnessState, OperatorHarness

BACKENDS = ["hashmap", "rocksdb"]
FACTS = pa.schema([("city", pa.string()), ("day", pa.int32()), ("amount", pa.int64())])
#: The same keys in columns of other names and types, which are equal keys.
TABLE = pa.schema([("at", pa.int64()), ("name", pa.large_string()), ("price", pa.int64())])


def facts(*rows: tuple[Any, ...]) -> Any:
    return pa.RecordBatch.from_pylist([dict(zip(FACTS.names, row, strict=True)) for row in rows], FACTS)


def table(*rows: tuple[Any, ...]) -> Any:
    return pa.RecordBatch.from_pylist([dict(zip(TABLE.names, row, strict=True)) for row in rows], TABLE)


def joined(first: DataStream, second: DataStream) -> DataStream:
    return looked_up(first.key_by("city", "day"), second.key_by("name", "at"))


def harness(backend: str, **options: Any) -> OperatorHarness:
    return OperatorHarness(
        joined,
        inputs=2,
        types=[FACTS, TABLE],
        configuration={"state.backend.type": backend},
        **options,
    )


def rows_of(running: OperatorHarness) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in running.record_batches() for row in batch.to_pylist()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_facts_meet_the_row_of_their_key_whichever_comes_first(backend: str) -> None:
    with harness(backend) as running:
        running.push_batch(table((1, "Rom", 10), (2, "Rom", 20), (1, None, 30)), input=1)
        running.push_batch(facts(("Rom", 2, 5), ("Oslo", 1, 6), (None, 1, 7), ("Rom", 1, 8)))
        assert rows_of(running) == [("Rom", 2, 5, 20), (None, 1, 7, 30), ("Rom", 1, 8, 10)]
        running.push_batch(facts(("Oslo", 1, 9)))
        running.push_batch(table((1, "Oslo", 40), (2, "Rom", 21)), input=1)
        running.push_batch(facts(("Rom", 2, 1), ("Oslo", 1, 2)))
        assert rows_of(running)[3:] == [
            ("Oslo", 1, 6, 40),
            ("Oslo", 1, 9, 40),
            ("Rom", 2, 1, 21),
            ("Oslo", 1, 2, 40),
        ]
        assert running.record_batches()[0].schema == pa.schema([*FACTS, TABLE.field("price")])
        assert running.metrics()["Lookup.numRecordsIn"] == 12


def controls(running: OperatorHarness) -> list[Any]:
    """Watermarks as their times, and a word for each other control element."""
    shown: list[Any] = []
    for element in running.controls():
        if isinstance(element, Watermark):
            shown.append(element.timestamp)
        elif isinstance(element, WatermarkStatus):
            shown.append("idle" if element.idle else "active")
        else:
            shown.append("end" if isinstance(element, EndOfData) else element)
    return shown


def test_watermarks_of_both_inputs_are_merged_and_an_end_counts_no_more() -> None:
    with harness("hashmap") as running:
        running.watermark(5)
        running.watermark(3, input=1)
        running.watermark(9, input=1)
        assert controls(running) == [3, 5]
        running.idle(input=1)
        running.watermark(20)
        running.idle()
        assert controls(running) == [3, 5, 20, "idle"]
        running.idle(False)
        running.end(input=1)
        running.watermark(30)
        assert controls(running) == [3, 5, 20, "idle", "active", 30]
        running.end(input=0)
        assert controls(running)[6:] == ["end"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_barrier_of_one_input_holds_its_batches_until_the_other_has_come(backend: str) -> None:
    snapshots = KeptSnapshots()
    location = CheckpointLocation(directory="")
    barrier = CheckpointBarrier(
        1, 0, options=CheckpointOptions(kind=SnapshotKind.SAVEPOINT, location=location)
    )
    with harness(backend, state=HarnessState(snapshots=snapshots)) as running:
        running.push_batch(table((1, "Rom", 10)), input=1)
        running.push_batch(facts(("Oslo", 1, 1)))
        running.send(barrier, 0)
        running.push_batch(facts(("Rom", 1, 2)))
        assert rows_of(running) == [] and snapshots.taken == [], (
            "held: the table may still change before its barrier"
        )
        running.push_batch(table((1, "Rom", 11), (3, "Rom", 12)), input=1)
        running.send(barrier, 1)
        (snapshot,) = snapshots.taken
        taken = snapshot.write(MemoryOutput())
        snapshot.settled()
        assert rows_of(running) == [("Rom", 1, 2, 11)]
        vertex = running.graph.vertices[-2].id
        assert running.graph.vertex(vertex).head.name == "Lookup"

    def restore(graph: JobGraph) -> Any:
        return graph, {JobVertexID(vertex): RestoredState(1, taken, read_inline)}

    for other in BACKENDS:
        with harness(other, state=HarnessState(restore=restore)) as running:
            running.push_batch(facts(("Rom", 1, 2), ("Rom", 3, 3)))
            running.push_batch(table((1, "Oslo", 40)), input=1)
            assert rows_of(running) == [("Rom", 1, 2, 11), ("Rom", 3, 3, 12), ("Oslo", 1, 1, 40)]


def job(parallelism: int, backend: str) -> JobGraph:
    """Two sources, each with a map behind it, and the join at this parallelism."""
    configuration = Configuration.from_dict({"state.backend.type": backend})
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
    env.set_buffer_timeout(0).set_max_parallelism(128)
    streams = []
    for name, schema in (("facts", FACTS), ("table", TABLE)):
        source = env.from_collection([1]).disable_chaining().name(name)
        source.transformation.output_kind = StreamKind.COLUMNAR
        streams.append(source.map_batches(lambda batch: batch, schema).disable_chaining().name(f"map {name}"))
    made = joined(*streams).set_parallelism(parallelism)
    made.map_batches(lambda batch: batch).disable_chaining().name("out").set_parallelism(1)
    return env.get_job_graph("join")


def run_at(
    parallelism: int, backend: str, given: Sequence[OperatorSubtaskState], batches: Sequence[tuple[str, Any]]
) -> tuple[list[tuple[Any, ...]], list[OperatorSubtaskState], int]:
    """Runs the join on batches and cuts it: rows, the state of all subtasks, and how many subtasks have some."""
    graph = job(parallelism, backend)
    by_name = {vertex.head.name: vertex for vertex in graph.vertices}
    join, out = by_name["Lookup"], FragmentSubtask(by_name["out"].id)
    inside = [FragmentSubtask(by_name[name].id) for name in ("map facts", "map table")]
    subtasks = [FragmentSubtask(join.id, number) for number in range(parallelism)]
    keyed = tuple(handle for state in given for handle in state.keyed)
    restored = {
        subtask: RestoredState(1, {join.head.id: OperatorSubtaskState(keyed=keyed)}, read_inline)
        for subtask in subtasks
    }
    with Fragment(
        graph,
        Settings({}).overlay(graph.configuration, "the job"),
        ManualClock(),
        subtasks=[*inside, *subtasks],
        restored=restored if given else None,
    ) as fragment:
        fragment.start()
        for name, batch in batches:
            fragment.push(ArrowBatch(batch), FragmentSubtask(by_name[f"Source: {name}"].id))
        states = fragment.snapshot(2, MemoryOutput())
        found = [each.batch for each in fragment.elements[out] if isinstance(each, ArrowBatch)]
        rows = [tuple(row.values()) for batch in found for row in batch.to_pylist()]
        kept = [states.get(subtask, {}).get(join.head.id) for subtask in subtasks]
        return rows, [state for state in kept if state is not None], len([s for s in kept if s is not None])


@pytest.mark.parametrize("backend", BACKENDS)
def test_rescaled_each_key_finds_its_row_and_its_facts(backend: str) -> None:
    states: list[OperatorSubtaskState] = []
    expected, got = [], []
    for step, parallelism in enumerate((2, 3, 1)):
        prices = [(day, f"c{step}", 100 * step + day) for day in range(20)]
        sold = [(f"c{of}", day, 1000 * step + day) for of in range(3) for day in range(20)]
        rows, states, used = run_at(
            parallelism, backend, states, [("facts", facts(*sold)), ("table", table(*prices))]
        )
        assert used == parallelism, "each subtask has some of the keys"
        got += rows
        for city, day, amount in sold:
            expected.append((city, day, amount, 100 * int(city[1:]) + day))
    assert sorted(got) == sorted(expected)


def test_an_error_in_a_batch_names_the_operator_and_the_column() -> None:
    wrong = pa.schema([("city", pa.string()), ("day", pa.list_(pa.int64())), ("amount", pa.int64())])
    with pytest.raises(FragmentFailedError) as raised, harness("hashmap") as running:
        running.push_batch(pa.RecordBatch.from_pylist([{"city": "Rom", "day": [1], "amount": 1}], wrong))
    cause = raised.value.cause
    assert cause.operator_name == "Lookup"
    assert "key column 'day': a column of Arrow type list" in cause.message
