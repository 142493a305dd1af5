"""Record batches that watermarks and timers bring forth: in slices, cut by barriers, with the watermark behind them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.support.kept_snapshots import KeptSnapshots
from tests.support.sorting import sorted_by
from tests.support.sorting.sorting_operator import SortingOperator
from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.container.fragment import FragmentFailedError
from yarrow.container.operators.base import RestoredState
from yarrow.datastream.data_stream import DataStream
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import (
    MAX_TIMESTAMP,
    ArrowBatch,
    BarrierAlignment,
    CheckpointBarrier,
    EndOfData,
    StreamElement,
    Watermark,
)
from yarrow.testing.operator_harness import HarnessState, OperatorHarness

SCHEMA = pa.schema([("at", pa.int64()), ("name", pa.string())])


def batch(*times: int) -> Any:
    return pa.record_batch([list(times), [f"n{time}" for time in times]], schema=SCHEMA)


def sorting(rows: int = 3, **options: Any) -> OperatorHarness:
    return OperatorHarness(
        lambda stream: sorted_by(stream, "at", most_rows=rows),
        types=[SCHEMA],
        **options,
    )


def seen(elements: list[StreamElement]) -> list[Any]:
    """The times of each batch, "end" for the end of data, and other control elements as they are."""
    return [
        element.batch.column("at").to_pylist()
        if isinstance(element, ArrowBatch)
        else "end"
        if isinstance(element, EndOfData)
        else element
        for element in elements
    ]


def test_a_watermark_goes_on_behind_the_batches_that_it_brings_forth() -> None:
    with sorting() as harness:
        # Slices of no length emit one batch each, which the exchange sends behind it.
        harness.tasks[0].slices.length = 0.0
        harness.push_batch(batch(7, 3, 9))
        harness.push_batch(batch(1, 20, 5))
        assert harness.elements() == []
        harness.watermark(9)
        harness.push_batch(batch(12, 11))
        harness.end()
        assert seen(harness.elements()) == [
            [1, 3, 5],
            [7, 9],
            Watermark(9),
            "end",
        ]
        assert harness.elements()[0].timestamps.to_pylist() == [1, 3, 5]  # type: ignore[union-attr]
        assert harness.record_batches()[1].to_pydict() == {"at": [7, 9], "name": ["n7", "n9"]}
        assert harness.metrics()["Sort.numRecordsOut"] == 5


def test_the_end_of_time_brings_forth_the_rest() -> None:
    with sorting(rows=10) as harness:
        harness.push_batch(batch(4, 2))
        harness.watermark(MAX_TIMESTAMP)
        harness.end()
        assert seen(harness.elements()) == [[2, 4], Watermark(MAX_TIMESTAMP), "end"]


def unaligned(checkpoint_id: int) -> CheckpointBarrier:
    location = CheckpointLocation(directory="")
    options = CheckpointOptions(kind=SnapshotKind.CHECKPOINT, location=location, unaligned=True)
    return CheckpointBarrier(checkpoint_id, 0, BarrierAlignment.UNALIGNED, options)


def test_a_barrier_comes_between_two_slices_and_the_rest_is_in_the_state() -> None:
    snapshots = KeptSnapshots()
    configuration = {"execution.checkpointing.unaligned.forced": "true"}
    with sorting(
        output_credit=1, state=HarnessState(snapshots=snapshots), configuration=configuration
    ) as harness:
        (task,) = harness.tasks
        # One batch a slice; those behind wait for credit.
        task.slices.length = 0.0
        harness.push_batch(batch(*range(12, 0, -1)))
        harness.hold_outputs = True
        harness.watermark(9)
        assert task.inputs.watermarks.firing
        harness.send(unaligned(1))
        assert len(snapshots.taken) == 1, "cut before all had fired"
        states = snapshots.taken[0].write(MemoryOutput())
        harness.hold_outputs = False
        harness.run()
        found = seen(harness.elements())
        place = next(at for at, each in enumerate(found) if isinstance(each, CheckpointBarrier))
        before = [time for times in found[:place] if isinstance(times, list) for time in times]
        rest = [time for times in found[place:] if isinstance(times, list) for time in times]
        assert before + rest == list(range(1, 10)) and rest, "each row once, in order"
        assert found[-1] == Watermark(9)
        vertex = task.environment.task_name, harness.graph.vertices[1].id

    def restore(graph: Any) -> Any:
        return graph, {vertex[1]: RestoredState(1, states, read_inline)}

    with sorting(state=HarnessState(restore=restore), configuration=configuration) as harness:
        harness.watermark(9)
        restored = [time for times in seen(harness.elements()) if isinstance(times, list) for time in times]
        # Where the barrier overtook a batch behind the operator, that batch is among the records in flight instead.
        assert restored == rest[-len(restored) :] and len(rest) - len(restored) <= 6
        harness.watermark(MAX_TIMESTAMP)
        assert seen(harness.elements())[-2:] == [[10, 11, 12], Watermark(MAX_TIMESTAMP)]


def test_processing_time_timers_emit_batches_slice_by_slice() -> None:
    with OperatorHarness(
        lambda stream: sorted_by(stream, "at", most_rows=2, wait_ms=50), types=[SCHEMA]
    ) as harness:
        (task,) = harness.tasks
        task.slices.length = 0.0
        harness.push_batch(batch(5, 1))
        harness.advance(0.03)
        harness.push_batch(batch(4))
        assert harness.elements() == []
        harness.advance(0.02)
        assert seen(harness.elements()) == [[1, 4], [5]]
        harness.advance(1)
        harness.push_batch(batch(2))
        harness.advance(0.05)
        assert seen(harness.elements())[2:] == [[2]]


@pytest.mark.parametrize("at_head", [True, False])
def test_batches_flow_through_the_chain_behind_before_the_watermark(at_head: bool) -> None:
    def fragment(stream: DataStream) -> DataStream:
        rows = stream.map_batches(lambda records: records, SCHEMA)
        return sorted_by(rows, "at", most_rows=2, at_head=at_head).to_rows().map(lambda row: row.name)

    with OperatorHarness(fragment, types=[SCHEMA]) as harness:
        assert len(harness.tasks) == (2 if at_head else 1)
        harness.push_batch(batch(3, 2, 1))
        harness.watermark(5)
        assert harness.output == ["n1", "n2", "n3"]
        assert harness.timestamps() == [1, 2, 3]
        assert harness.controls() == [Watermark(5)]


def test_an_error_names_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: SortingOperator, deadline: float) -> Iterator[ArrowBatch]:
        yield ArrowBatch(batch(1))
        raise ValueError("no more batches")

    monkeypatch.setattr(SortingOperator, "fire_event_timers", fails)
    with pytest.raises(FragmentFailedError) as raised, sorting() as harness:
        harness.watermark(5)
    assert (raised.value.cause.operator_name, raised.value.cause.message) == ("Sort", "no more batches")
