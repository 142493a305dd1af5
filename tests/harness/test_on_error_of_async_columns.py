"""on_error of asynchronous functions of record batches: a failed call is divided, each failing row is one letter."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import tests.support.gated_calls as support
from tests.support.gated_calls import Gates, loop_is_idle, new_gates, run_until
from yarrow.common.time import Duration
from yarrow.datastream import AsyncDataStream, DataStream
from yarrow.datastream.connectors.dead_letters import RECORD_PICKLED, DeadLetter
from yarrow.datastream.functions import AsyncBatchFunction
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

MINUTE = Duration.of_minutes(1)
N = pa.schema([("n", pa.int64())])


@pytest.fixture(name="gates")
def _gates() -> Iterator[Gates]:
    yield new_gates()
    assert loop_is_idle(), "an operator has not released the event loop"


class Doubling(AsyncBatchFunction):
    """Doubles numbers; a call with a multiple of five fails as a whole."""

    max_rows = 8
    max_wait = Duration.of_millis(10)

    async def async_invoke(self, values: Any) -> Any:
        numbers = values.column("n").to_pylist()
        support.gates.begun.append(tuple(numbers))
        if any(number % 5 == 0 for number in numbers):
            raise ValueError(f"one of {numbers}")
        return pa.record_batch([pa.array([2 * number for number in numbers])], N)


class Blocking(Doubling):
    def async_invoke(self, values: Any) -> Any:
        numbers = values.column("n").to_pylist()
        support.gates.begun.append(tuple(numbers))
        if any(number % 5 == 0 for number in numbers):
            raise ValueError(f"one of {numbers}")
        return pa.record_batch([pa.array([2 * number for number in numbers])], N)


class Gated(Doubling):
    """Gives for the rows of a call what the test releases for them."""

    max_rows = 4

    async def async_invoke(self, values: Any) -> Any:
        return await support.gates.wait(tuple(values.column("n").to_pylist()))


def with_letters(
    function: AsyncBatchFunction, *, ordered: bool = True, threads: int = 0, capacity: int = 40, **bounds: Any
) -> Any:
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait

    def fragment(rows: DataStream) -> list[DataStream]:
        made = wait(rows, function, MINUTE, capacity, threads=threads)
        made = made.uid("the function").on_error("dead_letter", **bounds)
        return [made.to_rows(), made.dead_letters()]

    return fragment


def columns(*numbers: int, stamps: bool = False) -> ArrowBatch:
    made = pa.record_batch([pa.array(numbers, pa.int64())], N)
    return ArrowBatch(made, pa.array([100 + number for number in numbers]) if stamps else None)


def found(harness: OperatorHarness) -> list[int]:
    return [row.n for row in harness.outputs(0)]


def bad(harness: OperatorHarness) -> list[int]:
    load = serializer_for(None).load_rows
    return [row.n for letter in harness.outputs(1) for row in load(letter.raw)]


def run_in_time(harness: OperatorHarness, condition: Callable[[], bool]) -> None:
    """Run until the condition holds; rows wait for others by the clock of the harness."""

    def holds() -> bool:
        harness.advance(0.02)
        return condition()

    run_until(harness, holds)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("threads", [0, 2])
def test_a_failed_call_costs_its_failing_rows(gates: Gates, threads: int, ordered: bool) -> None:
    function = Blocking() if threads else Doubling()
    with OperatorHarness(with_letters(function, ordered=ordered, threads=threads), types=[N]) as harness:
        harness.send(columns(*range(1, 21), stamps=True))
        harness.send(columns(21, stamps=True))
        harness.send(columns(*range(22, 31), stamps=True))
        harness.end()
        run_in_time(harness, lambda: len(found(harness)) + len(bad(harness)) == 30)
        good = [2 * number for number in range(1, 31) if number % 5]
        assert found(harness) == good if ordered else sorted(found(harness)) == good
        fives = list(range(5, 31, 5))
        assert bad(harness) == fives if ordered else sorted(bad(harness)) == fives
        assert sorted(call[0] for call in gates.begun if len(call) == 1 and call[0] % 5 == 0) == fives
        assert harness.metrics()["async_wait_operator.numRecordsInErrors"] == 6
        letter: DeadLetter = harness.outputs(1)[0]
        assert (letter.operator, letter.encoding) == ("the function", RECORD_PICKLED)
        assert letter.timestamp == 100 + bad(harness)[0] and "raise ValueError" in letter.traceback
        stamped = sorted(zip(found(harness), harness.timestamps(), strict=True))
        assert stamped == [(each, 100 + each // 2) for each in good]


def test_a_value_that_does_not_fit_its_declared_column_costs_its_row(gates: Gates) -> None:
    small = pa.schema([pa.field("n", pa.int8(), nullable=False)])

    def fragment(rows: DataStream) -> list[DataStream]:
        made = AsyncDataStream.ordered_wait(rows, Doubling(), MINUTE, 40, small).on_error("dead_letter")
        return [made.to_rows(), made.dead_letters()]

    with OperatorHarness(fragment, types=[N]) as harness:
        harness.send(columns(1, 99, 3))
        harness.end()
        run_in_time(harness, lambda: len(found(harness)) + len(bad(harness)) == 3)
        assert (found(harness), bad(harness)) == ([2, 6], [99])


def test_results_of_other_columns_fail_the_job(gates: Gates) -> None:
    other = pa.schema([("text", pa.string())])

    def fragment(rows: DataStream) -> DataStream:
        return AsyncDataStream.ordered_wait(rows, Doubling(), MINUTE, 40, other).on_error("skip")

    with (
        pytest.raises(FragmentFailedError, match="async_invoke"),
        OperatorHarness(fragment, types=[N]) as harness,
    ):
        harness.send(columns(1, 2))
        harness.end()
        run_in_time(harness, lambda: False)


def test_past_a_bound_the_job_fails(gates: Gates) -> None:
    with (
        pytest.raises(FragmentFailedError, match="failed at 4 of the latest 20 records"),
        OperatorHarness(with_letters(Doubling(), max_share=0.1), types=[N]) as harness,
    ):
        harness.send(columns(*range(1, 21)))
        harness.end()
        run_in_time(harness, lambda: False)


PARTS = ((1, 2), (3,), (4,))


@pytest.mark.parametrize("done", [done for n in range(4) for done in itertools.combinations(PARTS, n)])
def test_a_crash_while_a_piece_is_divided_loses_no_row_and_doubles_none(
    done: tuple[tuple[int, ...], ...],
) -> None:
    """3 fails. A piece is in flight as a whole until all its parts have results; then all of it has left."""

    def release(running: OperatorHarness, open_gates: Gates, *calls: tuple[int, ...]) -> None:
        for call in calls:
            running.advance(0.02)
            run_until(running, partial(open_gates.begun.__contains__, call))
            open_gates.release(call, ValueError(f"{call}") if 3 in call else columns(*call).batch)

    gates = new_gates()
    with OperatorHarness(with_letters(Gated()), types=[N]) as harness:
        harness.send(columns(1, 2, 3, 4, stamps=True))
        harness.send(columns(5, stamps=True))
        harness.advance(0.02)
        release(harness, gates, *((1, 2, 3, 4), (3, 4), *done))
        whole = len(done) == len(PARTS)
        run_until(harness, lambda: gates.open_calls == 1 + len(PARTS) - len(done))
        run_until(harness, lambda: len(found(harness)) == (3 if whole else 0))
        before = found(harness), bad(harness)
        assert before == (([1, 2, 4], [3]) if whole else ([], []))
        snapshot = harness.snapshot()
        gates = new_gates()
        with harness.restarted(snapshot) as again:
            release(again, gates, *(((5,),) if whole else ((1, 2, 3, 4), (3, 4), *PARTS, (5,))))
            run_in_time(again, lambda: len(found(again)) + len(bad(again)) == (1 if whole else 5))
            assert before[0] + found(again) == [1, 2, 4, 5]
            assert before[1] + bad(again) == [3]
    assert loop_is_idle()
