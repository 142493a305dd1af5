"""Records in flight at asynchronous functions are state: a job that crashes anywhere emits each result once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.test_async_functions import waiting
from tests.support.checkpoint_harness import CheckpointHarness, TakenCheckpoint
from tests.support.gated_calls import Gated, new_gates, run_until
from tests.support.kept_snapshots import KeptSnapshots
from tests.support.worker_harness import DEADLINE
from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.common import Configuration
from yarrow.common.time import Duration
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.operators.base import RestoredState
from yarrow.datastream import AsyncDataStream, StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.datastream.functions import (
    AsyncFunction,
    AsyncRetryStrategy,
    KeyedProcessFunction,
    RuntimeContext,
)
from yarrow.datastream.state import ListState, ListStateDescriptor
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import BarrierAlignment, CheckpointBarrier, RowBatch, Watermark
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import CheckpointNotice
from yarrow.testing.operator_harness import HarnessState, OperatorHarness

ROWS = ("a", "b", "c")
#: How many records come before the barrier, and which of them have their results by then.
POSITIONS = [
    (before, done)
    for before in range(len(ROWS) + 1)
    for number in range(before + 1)
    for done in itertools.combinations(ROWS[:before], number)
]


def before_barrier(harness: OperatorHarness) -> list[Any]:
    """The rows that left before the barrier."""
    left = itertools.takewhile(lambda e: not isinstance(e, CheckpointBarrier), harness.elements())
    return [row for element in left if isinstance(element, RowBatch) for row in element.rows]


def leaves_at_once(done: tuple[str, ...], *, ordered: bool) -> int:
    """How many of the results may leave."""
    return len(list(itertools.takewhile(done.__contains__, ROWS))) if ordered else len(done)


class Changing(Gated):
    """Changes the row that it gets, fails once where it is told to, and gives the row when the test releases it."""

    def __init__(self, failures: int = 0) -> None:
        self._failures = failures

    async def async_invoke(self, value: Any) -> list[Any]:
        value.append("changed")
        if self._failures:
            self._failures -= 1
            raise ConnectionError("once more")
        await super().async_invoke(value[0])
        return [value]


def test_a_call_that_begins_anew_gets_its_row_as_it_came() -> None:
    gates = new_gates()
    with OperatorHarness(waiting(Changing(), ordered=True)) as harness:
        harness.push(["a"])
        gates.until(lambda: gates.begun == ["a"])
        snapshot = harness.snapshot()
        gates = new_gates()
        with harness.restarted(snapshot) as again:
            gates.release("a", None)
            run_until(again, lambda: len(again.output) == 1)
            assert again.output == [["a", "changed"]]


def test_each_attempt_gets_its_row_as_it_came() -> None:
    gates = new_gates()
    once_more = AsyncRetryStrategy.fixed_delay(2, 1, None, lambda error: isinstance(error, ConnectionError))

    def fragment(rows: Any) -> Any:
        return AsyncDataStream.unordered_wait_with_retry(
            rows, Changing(1), Duration.of_minutes(1), once_more, 2
        )

    with OperatorHarness(fragment) as harness:
        harness.push(["a"])
        gates.release("a", None)
        run_until(harness, lambda: len(harness.output) == 1)
        assert harness.output == [["a", "changed"]]


@pytest.mark.slow
@pytest.mark.parametrize("declared", [Types.STRING(), None], ids=["declared", "undeclared"])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(("before", "done"), POSITIONS)
def test_a_crash_at_each_position(
    before: int, done: tuple[str, ...], ordered: bool, declared: TypeInformation | None
) -> None:
    gates = new_gates()
    snapshots = KeptSnapshots()
    fragment = waiting(Gated(), ordered=ordered)
    with OperatorHarness(fragment, types=[declared], state=HarnessState(snapshots=snapshots)) as harness:
        harness.push(*ROWS[:before], timestamps=[10 + place for place in range(before)])
        for value in done:
            gates.release(value, [value.upper()])
        leaving = leaves_at_once(done, ordered=ordered)
        run_until(harness, lambda: len(harness.output) == leaving)
        harness.barrier(1)
        (snapshot,) = snapshots.taken
        states = snapshot.write(MemoryOutput())
        # What comes behind the barrier is lost with the crash.
        harness.push(*ROWS[before:])
        kept = before_barrier(harness)
        vertex = harness.graph.vertices[1].id
    in_flight = [row for row in ROWS[:before] if row.upper() not in kept]

    gates = new_gates()
    state = HarnessState(restore=lambda graph: (graph, {vertex: RestoredState(1, states, read_inline)}))
    with OperatorHarness(fragment, types=[declared], state=state) as harness:
        gates.until(lambda: gates.begun == in_flight)
        harness.push(*ROWS[before:])
        for value in [*in_flight, *ROWS[before:]]:
            gates.release(value, [value.upper()])
        run_until(harness, lambda: len(harness.output) == len(in_flight) + len(ROWS) - before)
        stamps = dict(zip(harness.output, harness.timestamps(), strict=True))
        emitted = kept + harness.output
    assert sorted(emitted) == ["A", "B", "C"]
    if ordered:
        assert emitted == ["A", "B", "C"]
    assert all(stamps[row.upper()] == 10 + ROWS.index(row) for row in in_flight)


def test_more_records_in_flight_than_the_capacity_are_restored_in_their_order() -> None:
    gates = new_gates()
    snapshots = KeptSnapshots()
    with OperatorHarness(waiting(Gated(), capacity=10), state=HarnessState(snapshots=snapshots)) as harness:
        harness.push(*range(9))
        harness.barrier(1)
        states = snapshots.taken[0].write(MemoryOutput())
        vertex = harness.graph.vertices[1].id
    gates = new_gates()
    again = KeptSnapshots()
    state = HarnessState(
        restore=lambda graph: (graph, {vertex: RestoredState(1, states, read_inline)}), snapshots=again
    )
    with OperatorHarness(waiting(Gated(), capacity=2), state=state) as harness:
        harness.push(9)
        gates.until(lambda: gates.begun == [0, 1])
        harness.barrier(2)
        for value in range(10):
            gates.release(value, [value])
            run_until(harness, lambda v=value: len(harness.output) == v + 1)  # type: ignore[misc]
        assert harness.output == list(range(10))
        assert gates.most_open_calls == 2
        assert before_barrier(harness) == list(range(8)), (
            "record 9 had no room before, and the barrier is behind it"
        )


def barrier(kind: SnapshotKind, *, unaligned: bool = False) -> CheckpointBarrier:
    options = CheckpointOptions(kind=kind, location=CheckpointLocation(directory=""), unaligned=unaligned)
    alignment = BarrierAlignment.UNALIGNED if unaligned else BarrierAlignment.ALIGNED
    return CheckpointBarrier(1, 0, alignment, options)


def test_an_unaligned_barrier_passes_a_full_queue_with_records_behind_it() -> None:
    gates = new_gates()
    snapshots = KeptSnapshots()
    with OperatorHarness(
        waiting(Gated(), capacity=1),
        state=HarnessState(snapshots=snapshots),
        configuration={"execution.checkpointing.unaligned.forced": "true"},
    ) as harness:
        harness.push("a", "b")
        harness.push("c")
        harness.send(barrier(SnapshotKind.CHECKPOINT, unaligned=True))
        (snapshot,) = snapshots.taken
        (state,) = snapshot.write(MemoryOutput()).values()
        assert len(state.operator[0].states[0].elements) == 1, "a is in flight"
        assert state.channels, "b and c are in the channel"
        for value in "abc":
            gates.release(value, [value])
            run_until(harness, lambda v=value: harness.output[-1:] == [v])  # type: ignore[misc]
        assert before_barrier(harness) == []


def test_a_savepoint_that_drains_the_job_waits_for_all_results() -> None:
    gates = new_gates()
    snapshots = KeptSnapshots()
    with OperatorHarness(waiting(Gated()), state=HarnessState(snapshots=snapshots)) as harness:
        harness.push("a", "b")
        harness.watermark(7)
        gates.release("b", ["B"])
        harness.send(barrier(SnapshotKind.SAVEPOINT_TERMINATE))
        assert not snapshots.taken
        gates.release("a", ["A"])
        run_until(harness, lambda: bool(snapshots.taken))
        assert before_barrier(harness) == ["A", "B"]
        assert harness.controls()[0] == Watermark(7)
        (state,) = snapshots.taken[0].write(MemoryOutput()).values()
        assert state.operator[0].states[0].elements == ()


def test_a_savepoint_that_is_aborted_while_results_are_awaited_is_not_cut() -> None:
    gates = new_gates()
    snapshots = KeptSnapshots()
    with OperatorHarness(waiting(Gated()), state=HarnessState(snapshots=snapshots)) as harness:
        (task,) = harness.tasks
        harness.push("a")
        harness.send(barrier(SnapshotKind.SAVEPOINT_TERMINATE))
        task.checkpoint_aborted(1)
        gates.release("a", ["A"])
        run_until(harness, lambda: harness.output == ["A"])
        harness.run()
        assert not snapshots.taken


# Whole jobs, restored at other parallelisms.

COUNT = 2000
KEYS = 10
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


#: Readers, each of which has a split of its own.
READERS = 2


class Lookup(AsyncFunction[int, Any]):
    """(key, number), after some milliseconds that differ, if a file allows so many numbers of each reader."""

    def __init__(self, allowed: Path) -> None:
        self._allowed = str(allowed)

    async def async_invoke(self, value: int) -> list[Any]:
        while value % (COUNT // READERS) >= self._number_allowed():
            waits_at(Path(self._allowed)).touch()
            await asyncio.sleep(0.005)
        await asyncio.sleep((value * 7919 % 13) / 1000)
        return [(value % KEYS, value)]

    def _number_allowed(self) -> int:
        return int(Path(self._allowed).read_text())


def waits_at(allowed: Path) -> Path:
    """The file that is there once a call waits for a higher number."""
    return allowed.with_suffix(".waits")


def allow(allowed: Path, number: int) -> None:
    """So many numbers of each reader have results; others are in flight until they are allowed, too."""
    new = allowed.with_suffix(".new")
    new.write_text(str(number))
    new.replace(allowed)


class Seen(KeyedProcessFunction[int, Any, str]):
    """Emits now and then, and for the last of a key, all numbers that have come."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen: ListState[int] = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        self._seen.add(value[1])
        seen = list(self._seen)
        if len(seen) >= COUNT // KEYS or len(seen) % 10 == 0:
            yield f"{value[0]}:" + " ".join(map(str, seen))


def job(parallelism: int, allowed: Path, *, ordered: bool) -> JobGraph:
    settings = {"execution.batch.max-rows": "20"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(parallelism)
    # A faster source puts hundreds of records into each batch, which then stand before a barrier.
    source = DataGeneratorSource(
        lambda index: index, COUNT, RateLimiterStrategy.per_second(1000), Types.LONG()
    )
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.set_parallelism(READERS)
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    pairs = wait(numbers.rebalance(), Lookup(allowed), Duration.of_minutes(1), 20, PAIR).uid("lookup")
    pairs.key_by(lambda pair: pair[0], Types.LONG()).process(Seen(), Types.STRING()).uid("seen").print()
    return env.get_job_graph("lookups")


@pytest.fixture(scope="module")
def workers() -> Iterator[CheckpointHarness]:
    narrow = {"taskmanager.network.channel.credit-batches": "1"}
    with CheckpointHarness(1, configuration=narrow) as harness:
        yield harness
    harness.close()


def until_acknowledged(workers: CheckpointHarness, taken: TakenCheckpoint, seconds: float = DEADLINE) -> None:
    """Returns when all tasks have acknowledged the checkpoint. Raises TimeoutError."""
    workers.until(lambda: workers.states.keys() - taken.finished <= taken.acknowledged.keys(), seconds)


def is_acknowledged(workers: CheckpointHarness, taken: TakenCheckpoint) -> bool:
    """Whether all tasks acknowledge the checkpoint in the next moment."""
    try:
        until_acknowledged(workers, taken, 0.1)
    except TimeoutError:
        return False
    return True


def in_flight_state(taken: TakenCheckpoint, graph: JobGraph) -> int:
    """Number of records that the checkpoint holds as state of the asynchronous function."""
    operator = next(o.id for v in graph.vertices for o in v.operators if o.uid == "lookup")
    return sum(
        len(state.elements)
        for part in taken.acknowledged.values()
        if operator in part.states
        for handle in part.states[operator].operator
        for state in handle.states
    )


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("unaligned", [False, True])
def test_restored_at_other_parallelisms(
    workers: CheckpointHarness, tmp_path: Path, ordered: bool, unaligned: bool
) -> None:
    allowed = tmp_path / "allowed"
    taken: TakenCheckpoint | None = None
    lines: list[str] = []
    for number, parallelism in enumerate((1, 2, 4), start=1):
        workers.output.clear()
        workers.checkpoints.clear()
        results, most = (COUNT // READERS * quarter // 4 for quarter in (number, number + 1))
        allow(allowed, results)
        waits_at(allowed).unlink(missing_ok=True)
        graph = job(parallelism, allowed, ordered=ordered)
        workers.start(graph, taken)
        workers.until_all(ExecutionState.RUNNING, ExecutionState.FINISHED)
        workers.until(lambda: len(workers.output) > 5 and waits_at(allowed).exists())
        taken = workers.trigger(number, workers.options(number, unaligned=unaligned))
        # An aligned barrier may stand behind records for which there is room once others have their results. They are
        # far fewer than a quarter. Some of each attempt are left in flight, however long the barrier takes.
        while results < most - 10 and not is_acknowledged(workers, taken):
            results += 10
            allow(allowed, results)
        until_acknowledged(workers, taken)
        workers.notify(number, CheckpointNotice.COMPLETED)
        assert in_flight_state(taken, graph) > 0
        workers.cancel_and_wait()
        lines += workers.output
    allow(allowed, COUNT)
    workers.start(job(3, allowed, ordered=ordered), taken)
    workers.until_all(ExecutionState.FINISHED)
    found: dict[int, list[int]] = {}
    for line in lines + workers.output:
        key, _, numbers = line.rpartition("> ")[2].partition(":")
        values = [int(each) for each in numbers.split()]
        found[int(key)] = max(found.get(int(key), []), values, key=len)
    assert {key: sorted(values) for key, values in found.items()} == {
        key: list(range(key, COUNT, KEYS)) for key in range(KEYS)
    }
