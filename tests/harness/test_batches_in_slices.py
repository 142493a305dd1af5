"""A function that makes many record batches of one: mails, credit, cancels and cuts come between two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tests.support.kept_snapshots import KeptSnapshots
from tests.unit.runtime.snapshot.memory_output import MemoryOutput
from yarrow.datastream.data_stream import DataStream
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import ArrowBatch, BarrierAlignment, CheckpointBarrier
from yarrow.testing.operator_harness import HarnessState, OperatorHarness

SCHEMA = pa.schema([("n", pa.int64())])
#: Batches that one batch of input becomes.
PARTS = 6


class World:
    """What the function has done, and what it does at its next batch."""

    made: ClassVar[list[int]] = []
    closed: ClassVar[list[int]] = []
    at: ClassVar[dict[int, Callable[[], None]]] = {}


@pytest.fixture(autouse=True)
def world() -> None:
    World.made.clear()
    World.closed.clear()
    World.at.clear()


def cut_up(batch: Any) -> Iterator[Any]:
    try:
        for part in range(PARTS):
            World.made.append(part)
            World.at.get(part, lambda: None)()
            yield pa.record_batch([[number * 10 + part for number in batch.column("n").to_pylist()]], SCHEMA)
    finally:
        World.closed.append(len(World.made))


def kept(batch: Any) -> Any:
    return batch


def first(stream: DataStream) -> DataStream:
    return stream.map_batches(cut_up, SCHEMA)


def in_the_middle(stream: DataStream) -> DataStream:
    return stream.map_batches(kept, SCHEMA).map_batches(cut_up, SCHEMA).map_batches(kept, SCHEMA)


FRAGMENTS = pytest.mark.parametrize("fragment", [first, in_the_middle])


def batch(*numbers: int) -> Any:
    return pa.record_batch([list(numbers)], SCHEMA)


def numbers_of(harness: OperatorHarness) -> list[int]:
    return [number for made in harness.record_batches() for number in made.column("n").to_pylist()]


@FRAGMENTS
def test_a_mail_comes_between_two_batches(fragment: Callable[[DataStream], DataStream]) -> None:
    with OperatorHarness(fragment, types=[SCHEMA]) as harness:
        (task,) = harness.tasks
        ran: list[int] = []
        World.at[2] = lambda: task.post(lambda: ran.append(len(World.made)))
        harness.push_batch(batch(1))
        assert ran == [3], "the mail of the third batch ran before the fourth was made"
        assert World.closed == [PARTS]
        assert numbers_of(harness) == list(range(10, 10 + PARTS))


@FRAGMENTS
def test_no_batch_is_made_that_has_no_credit(fragment: Callable[[DataStream], DataStream]) -> None:
    with OperatorHarness(fragment, types=[SCHEMA], output_credit=1) as harness:
        (task,) = harness.tasks
        task.slices.length = 0.0
        harness.hold_outputs = True
        harness.push_batch(batch(1))
        harness.push_batch(batch(2))
        assert 0 < len(World.made) < PARTS and not World.closed
        assert task.inputs.has_data
        harness.hold_outputs = False
        harness.run()
        # The next batch of input is taken when the one before has become all of its own.
        assert numbers_of(harness) == [*range(10, 10 + PARTS), *range(20, 20 + PARTS)]


@FRAGMENTS
def test_a_cancel_comes_between_two_batches_and_closes_the_generator(
    fragment: Callable[[DataStream], DataStream],
) -> None:
    with OperatorHarness(fragment, types=[SCHEMA]) as harness:
        (task,) = harness.tasks
        World.at[2] = lambda: task.post(task.cancel)
        harness.push_batch(batch(1))
        assert World.made == [0, 1, 2] and World.closed == [3]


def test_a_failure_in_the_middle_names_the_operator() -> None:
    def fail() -> None:
        raise ZeroDivisionError("at the third")

    World.at[2] = fail
    with (
        pytest.raises(Exception, match=r"at the third[\s\S]*Cut Up"),
        OperatorHarness(
            lambda stream: stream.map_batches(kept, SCHEMA).map_batches(cut_up, SCHEMA).name("Cut Up"),
            types=[SCHEMA],
        ) as harness,
    ):
        harness.push_batch(batch(1))


@FRAGMENTS
def test_a_barrier_that_overtakes_leaves_nothing_of_a_batch_behind(
    fragment: Callable[[DataStream], DataStream],
) -> None:
    snapshots = KeptSnapshots()
    location = CheckpointLocation(directory="")
    options = CheckpointOptions(kind=SnapshotKind.CHECKPOINT, location=location, unaligned=True)
    barrier = CheckpointBarrier(1, 0, BarrierAlignment.UNALIGNED, options)
    with OperatorHarness(
        fragment,
        types=[SCHEMA],
        output_credit=1,
        state=HarnessState(snapshots=snapshots),
        configuration={"execution.checkpointing.unaligned.forced": "true"},
    ) as harness:
        (task,) = harness.tasks
        task.slices.length = 0.0
        harness.hold_outputs = True
        harness.push_batch(batch(1))
        assert len(World.made) < PARTS
        harness.send(barrier)
        # It does not wait for credit, but what the batch brings forth is before it.
        assert World.made == list(range(PARTS)) and len(snapshots.taken) == 1
        snapshots.taken[0].write(MemoryOutput())
        harness.hold_outputs = False
        harness.run()
        elements = harness.elements()
        found = [
            element.batch.column("n").to_pylist() for element in elements if isinstance(element, ArrowBatch)
        ]
        assert [number for numbers in found for number in numbers] == list(range(10, 10 + PARTS)), (
            "each row once"
        )


def test_all_consumers_in_the_chain_get_each_batch_in_its_order() -> None:
    def two_readers(stream: DataStream) -> list[DataStream]:
        made = stream.map_batches(cut_up, SCHEMA)
        return [made.map_batches(kept, SCHEMA), made.map_batches(kept, SCHEMA)]

    with OperatorHarness(two_readers, types=[SCHEMA]) as harness:
        for task in harness.tasks:
            task.slices.length = 0.0
        harness.push_batch(batch(1, 2))
        for output in range(2):
            rows = [row["n"] for made in harness.record_batches(output) for row in made.to_pylist()]
            assert rows == [number * 10 + part for part in range(PARTS) for number in (1, 2)]
