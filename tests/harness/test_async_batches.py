"""Functions that get many rows or columns at once: when calls begin, order, errors, and rows in flight as state."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tests.support.gated_calls as support
from tests.harness.test_async_functions import has_finished
from tests.harness.test_async_functions_restored import barrier, before_barrier
from tests.support.gated_calls import Gates, loop_is_idle, new_gates, run_until
from tests.support.kept_snapshots import KeptSnapshots
from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.common.time import Duration
from yarrow.common.typeinfo import Types
from yarrow.container.operators.base import RestoredState
from yarrow.datastream import AsyncDataStream
from yarrow.datastream.functions import AsyncBatchFunction, AsyncRetryStrategy
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.data.elements import ArrowBatch, RowBatch, Watermark
from yarrow.testing.operator_harness import Fragment, FragmentFailedError, HarnessState, OperatorHarness

MINUTE = Duration.of_minutes(1)
N = pa.schema([("n", pa.int64())])
ROWS_OF_BATCH = "async_wait_operator.asyncBatchRows"


class GatedBatches(AsyncBatchFunction):
    """Gives for the rows of a call what the test releases for them."""

    max_rows = 3
    max_wait = Duration.of_millis(50)

    async def async_invoke(self, values: Any) -> Any:
        if isinstance(values, pa.RecordBatch):
            return await support.gates.wait(tuple(values.column("n").to_pylist()))
        return await support.gates.wait(tuple(values))


class Forgiving(GatedBatches):
    def timeout(self, values: Any) -> Any:
        return [f"late {value}" for value in values]


@pytest.fixture
def gates() -> Iterator[Gates]:
    yield new_gates()
    assert loop_is_idle()


def in_batches(
    function: AsyncBatchFunction | None = None, *, ordered: bool = True, capacity: int = 6
) -> Fragment:
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    return lambda rows: wait(rows, function or GatedBatches(), MINUTE, capacity)


def doubled(values: tuple[int, ...]) -> list[int]:
    return [2 * value for value in values]


def release(gates: Gates, *calls: tuple[int, ...]) -> None:
    for call in calls:
        gates.release(call, doubled(call))


def test_a_call_begins_with_enough_rows_or_when_a_row_has_waited(gates: Gates) -> None:
    with OperatorHarness(in_batches()) as harness:
        harness.push(1, 2, 3, 4, timestamps=[1, 2, 3, 4])
        gates.until(lambda: gates.begun == [(1, 2, 3)])
        harness.advance(0.049)
        release(gates, (1, 2, 3))
        run_until(harness, lambda: harness.output == [2, 4, 6])
        assert gates.begun == [(1, 2, 3)], "4 has not waited long enough"
        harness.advance(0.001)
        release(gates, (4,))
        run_until(harness, lambda: harness.output == [2, 4, 6, 8])
        assert harness.timestamps() == [1, 2, 3, 4]


def test_nothing_waits_for_others_at_the_end_or_in_a_full_queue(gates: Gates) -> None:
    with OperatorHarness(in_batches(capacity=4)) as harness:
        harness.push(1, 2, 3, 4, 5)
        gates.until(lambda: gates.begun == [(1, 2, 3), (4,)])
        release(gates, (1, 2, 3), (4,))
        run_until(harness, lambda: len(harness.output) == 4)
        harness.watermark(2**63 - 1)
        harness.end()
        release(gates, (5,))
        run_until(harness, lambda: has_finished(harness))
        assert harness.output == [2, 4, 6, 8, 10]


@pytest.mark.parametrize("ordered", [True, False])
def test_order_and_watermarks(gates: Gates, ordered: bool) -> None:
    with OperatorHarness(in_batches(ordered=ordered, capacity=9)) as harness:
        harness.push(1, 2, 3, 4, 5, 6)
        harness.watermark(7)
        harness.push(7, 8, 9)
        release(gates, (7, 8, 9), (4, 5, 6))
        run_until(harness, lambda: len(harness.output) == (0 if ordered else 3))
        release(gates, (1, 2, 3))
        run_until(harness, lambda: len(harness.output) == 9)
        first = [2, 4, 6, 8, 10, 12] if ordered else [8, 10, 12, 2, 4, 6]
        assert harness.output == [*first, 14, 16, 18]
        elements = harness.elements()
        rows = sum(len(e.rows) for e in elements[: elements.index(Watermark(7))] if isinstance(e, RowBatch))
        assert rows == 6


class Emptying(AsyncBatchFunction):
    """Takes the rows out of its list, and fails once."""

    max_rows = 3

    def __init__(self) -> None:
        self._fails = True

    async def async_invoke(self, values: Any) -> Any:
        answers = []
        while values:
            answers.append(values.pop(0) + "!")
        fails, self._fails = self._fails, False
        if fails:
            raise ConnectionError("once more")
        return answers


@pytest.mark.parametrize("kind", [None, Types.STRING()], ids=["undeclared", "declared"])
def test_a_function_may_change_the_list_of_its_rows(kind: Any) -> None:
    again = AsyncRetryStrategy.fixed_delay(3, 1, None, lambda error: isinstance(error, ConnectionError))

    def calls(rows: Any) -> Any:
        return AsyncDataStream.ordered_wait_with_retry(
            rows.map(lambda row: row, kind), Emptying(), MINUTE, again, 6
        )

    with OperatorHarness(calls) as harness:
        harness.push("a", "b", "c")

        def answered() -> bool:
            harness.advance(0.001)
            return harness.output == ["a!", "b!", "c!"]

        run_until(harness, answered)


def test_by_key_a_batch_holds_rows_of_all_keys(gates: Gates) -> None:
    def fragment(rows: Any) -> Any:
        return AsyncDataStream.ordered_by_key(rows.key_by(lambda n: n % 2), GatedBatches(), MINUTE)

    with OperatorHarness(fragment) as harness:
        harness.push(1, 3, 5, 2, 7, 4)
        release(gates, (2, 7, 4))
        run_until(harness, lambda: harness.output == [4, 8])
        release(gates, (1, 3, 5))
        run_until(harness, lambda: len(harness.output) == 6)
        assert harness.output == [4, 8, 2, 6, 10, 14]


def test_a_timeout_gives_results_of_the_whole_call(gates: Gates) -> None:
    with OperatorHarness(in_batches(Forgiving())) as harness:
        harness.push(1, 2, 3)
        gates.until(lambda: gates.open_calls == 1)
        harness.advance(61)
        run_until(harness, lambda: harness.output == ["late 1", "late 2", "late 3"])
        gates.until(lambda: gates.cancelled == [(1, 2, 3)])
        assert harness.metrics()["async_wait_operator.asyncTimeouts"] == 1
        assert harness.metrics()[ROWS_OF_BATCH] == 2, "the call was slow"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((2, 4, 6), "expected a list with one result for each row"),
        ([2, 4], "async_invoke returned 2 results for 3 rows"),
        (ValueError("no model"), "no model"),
    ],
)
def test_wrong_results_are_told_with_the_rows(gates: Gates, answer: Any, message: str) -> None:
    with OperatorHarness(in_batches()) as harness:
        harness.push(1, 2, 3)
        gates.release((1, 2, 3), answer)
        with pytest.raises(FragmentFailedError, match=message):
            run_until(harness, lambda: False)
        assert harness.failures[0].record == "1 and 2 more of its batch"


# Columns: the function gets and returns record batches.


def batch(*numbers: int, stamps: bool = False, kinds: bytes | None = None) -> ArrowBatch:
    times = pa.array(numbers, pa.int64()) if stamps else None
    return ArrowBatch(pa.record_batch({"n": pa.array(numbers, pa.int64())}, schema=N), times, kinds)


def columns_of(*numbers: int, name: str = "doubled") -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(numbers, pa.int64())})


def numbers_in(elements: list[Any]) -> list[int]:
    return [n for e in elements if isinstance(e, ArrowBatch) for n in e.batch.column(0).to_pylist()]


def columnar(function: AsyncBatchFunction | None = None, **options: Any) -> Fragment:
    return in_batches(function, **options)


def test_record_batches_are_cut_and_joined_for_calls(gates: Gates) -> None:
    with OperatorHarness(columnar(capacity=9), types=[N]) as harness:
        harness.send(batch(1, 2, 3, 4, stamps=True, kinds=b"\x00\x01\x02\x03"))
        harness.send(batch(5, 6))
        harness.watermark(9)
        gates.until(lambda: gates.begun == [(1, 2, 3), (4, 5, 6)])
        gates.release((4, 5, 6), columns_of(8, 10, 12))
        gates.release((1, 2, 3), columns_of(2, 4, 6))
        run_until(harness, lambda: len(numbers_in(harness.elements())) == 6)
        found = [e for e in harness.elements() if isinstance(e, ArrowBatch)]
        assert numbers_in(list(found)) == [2, 4, 6, 8, 10, 12]
        stamps = [t for e in found for t in (e.timestamps.to_pylist() if e.timestamps else [None] * len(e))]
        assert stamps == [1, 2, 3, 4, None, None]
        assert b"".join(e.kinds or bytes(len(e)) for e in found) == b"\x00\x01\x02\x03\x00\x00"
        assert harness.elements()[-1] == Watermark(9)


def test_a_record_batch_enters_as_far_as_there_is_room(gates: Gates) -> None:
    snapshots = KeptSnapshots()
    with OperatorHarness(
        columnar(capacity=4),
        types=[N],
        state=HarnessState(snapshots=snapshots),
        configuration={"execution.checkpointing.unaligned.forced": "true"},
    ) as harness:
        harness.send(batch(*range(10)))
        gates.until(lambda: gates.begun == [(0, 1, 2), (3,)])
        harness.send(barrier(SnapshotKind.CHECKPOINT, unaligned=True))
        (state,) = snapshots.taken[0].write(MemoryOutput()).values()
        assert len(state.operator[0].states[0].elements) == 2, "two pieces are in flight"
        assert state.channels, "the rest of the batch is in the channel"
        for call in ((0, 1, 2), (3,), (4, 5, 6), (7,), (8, 9)):
            harness.advance(0.05)
            gates.release(call, columns_of(*call))
            run_until(harness, lambda last=call[-1]: numbers_in(harness.elements())[-1:] == [last])  # type: ignore[misc]
        assert numbers_in(harness.elements()) == list(range(10))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([2, 4, 6], "expected a pyarrow RecordBatch"),
        (columns_of(2, 4), "async_invoke returned 2 results for 3 rows"),
        (columns_of(2, 4, 6, name="other"), r"expected the columns \['doubled'\], got \['other'\]"),
    ],
)
def test_wrong_record_batches_are_told(gates: Gates, answer: Any, message: str) -> None:
    def fragment(rows: Any) -> Any:
        return AsyncDataStream.ordered_wait(
            rows, GatedBatches(), MINUTE, 6, pa.schema([("doubled", pa.int64())])
        )

    with OperatorHarness(fragment, types=[N]) as harness:
        harness.send(batch(1, 2, 3))
        gates.release((1, 2, 3), answer)
        with pytest.raises(FragmentFailedError, match=message):
            run_until(harness, lambda: False)
        assert harness.failures[0].record == "(3 rows with the columns n)"


# Rows in flight are state, whether their call has begun or not.

ALL = (1, 2, 3, 4, 5, 6, 7)
CALLS = ((1, 2, 3), (4, 5, 6))
POSITIONS = [
    (before, done)
    for before in range(len(ALL) + 1)
    for number in range(before // 3 + 1)
    for done in itertools.combinations(CALLS[: before // 3], number)
]


@pytest.mark.slow
@pytest.mark.parametrize("in_columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(("before", "done"), POSITIONS)
def test_a_crash_at_each_position(
    before: int, done: tuple[tuple[int, ...], ...], ordered: bool, in_columns: bool
) -> None:
    fragment = in_batches(ordered=ordered, capacity=20)
    types = [N if in_columns else Types.LONG()]

    def push(harness: OperatorHarness, numbers: tuple[int, ...]) -> None:
        if in_columns and numbers:
            harness.send(batch(*numbers, stamps=True))
        elif numbers:
            harness.push(*numbers, timestamps=list(numbers))

    def answered(call: tuple[int, ...]) -> Any:
        return columns_of(*call) if in_columns else list(call)

    def emitted(harness: OperatorHarness) -> list[int]:
        return numbers_in(harness.elements()) if in_columns else harness.output

    leaving = [call for call in CALLS if call in done]
    if ordered:
        leaving = list(itertools.takewhile(done.__contains__, CALLS))
    gates, snapshots = new_gates(), KeptSnapshots()
    with OperatorHarness(fragment, types=types, state=HarnessState(snapshots=snapshots)) as harness:
        push(harness, ALL[:before])
        for call in done:
            gates.release(call, answered(call))
        run_until(harness, lambda: len(emitted(harness)) == 3 * len(leaving))
        harness.barrier(1)
        states = snapshots.taken[0].write(MemoryOutput())
        vertex = harness.graph.vertices[1].id
        push(harness, ALL[before:])
        kept = sorted(n for call in leaving for n in call)
        assert in_columns or sorted(before_barrier(harness)) == kept
    again = [n for n in ALL if n not in kept]

    gates = new_gates()
    state = HarnessState(restore=lambda graph: (graph, {vertex: RestoredState(1, states, read_inline)}))
    with OperatorHarness(fragment, types=types, state=state) as harness:
        push(harness, ALL[before:])
        harness.advance(0.05)
        while len(emitted(harness)) < len(again):
            gates.until(lambda: gates.open_calls > 0)
            call = gates.begun[-gates.open_calls]
            number = len(emitted(harness)) + len(call)
            gates.release(call, answered(call))
            run_until(harness, lambda number=number: len(emitted(harness)) >= number)  # type: ignore[misc]
        assert [n for call in gates.begun for n in call] == again, "those before the barrier begin first"
        assert sorted(emitted(harness)) == again
