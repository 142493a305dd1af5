"""Asynchronous functions in the operator harness: order, watermarks, capacity, timeouts, failures, the end of input."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.gated_calls import Deferred, Forgiving, Gated, Gates, loop_is_idle, new_gates, run_until
from yarrow.common.time import Duration
from yarrow.common.typeinfo import Types
from yarrow.container.metrics.time_accounting import Phase
from yarrow.datastream import AsyncDataStream
from yarrow.datastream.functions import AsyncFunction
from yarrow.runtime.data.elements import Watermark, WatermarkStatus
from yarrow.runtime.graph.states import ExecutionState
from yarrow.testing.operator_harness import Fragment, FragmentFailedError, OperatorHarness

MINUTE = Duration.of_minutes(1)


@pytest.fixture(params=["uvloop", "asyncio"])
def on_loop(request: pytest.FixtureRequest) -> dict[str, str]:
    """The configuration of a job whose functions run on this library's loop."""
    return {"python.event-loop": request.param}


@pytest.fixture
def gates() -> Iterator[Gates]:
    yield new_gates()
    assert loop_is_idle(), "an operator has not released the event loop"


def waiting(
    function: AsyncFunction[Any, Any], *, ordered: bool = True, capacity: int = 4, timeout: Duration = MINUTE
) -> Fragment:
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    return lambda rows: wait(rows, function, timeout, capacity)


def has_finished(harness: OperatorHarness) -> bool:
    return [state for _, state in harness.states].count(ExecutionState.FINISHED) == len(harness.tasks)


def test_ordered_results_wait_for_those_before(gates: Gates) -> None:
    with OperatorHarness(waiting(Gated())) as harness:
        harness.push("a", "b", "c", timestamps=[1, 2, 3])
        gates.release("b", ["B"])
        gates.release("c", [])
        gates.release("a", ["A", "AA"])
        run_until(harness, lambda: len(harness.output) == 3)
        assert harness.output == ["A", "AA", "B"]
        assert harness.timestamps() == [1, 1, 2]


def test_unordered_results_leave_as_they_come_but_never_past_a_watermark(gates: Gates) -> None:
    with OperatorHarness(waiting(Gated(), ordered=False)) as harness:
        harness.push("a", "b", timestamps=[1, 2])
        harness.watermark(5)
        harness.push("c", timestamps=[6])
        gates.release("b", ["B"])
        run_until(harness, lambda: harness.output == ["B"])
        gates.release("c", ["C"])
        gates.until(lambda: gates.open_calls == 1)
        gates.release("a", ["A"])
        run_until(harness, lambda: len(harness.output) == 3)
        assert harness.output == ["B", "A", "C"]
        assert harness.timestamps() == [2, 1, 6]
        kinds = [e.rows if not isinstance(e, Watermark) else e.timestamp for e in harness.elements()]  # type: ignore[union-attr]
        assert kinds.index(5) == kinds.index(["C"]) - 1, "the watermark leaves between A and C"


def test_watermarks_and_idleness_keep_their_places(gates: Gates) -> None:
    with OperatorHarness(waiting(Gated())) as harness:
        harness.watermark(1)
        assert harness.controls() == [Watermark(1)], "nothing is in flight"
        harness.push("a")
        harness.watermark(2)
        harness.idle()
        assert harness.controls() == [Watermark(1)]
        gates.release("a", ["A"])
        run_until(harness, lambda: len(harness.controls()) == 3)
        *marks, status = harness.controls()
        assert marks == [Watermark(1), Watermark(2)]
        assert isinstance(status, WatermarkStatus) and status.idle


def test_capacity_counts_what_has_not_been_emitted(gates: Gates) -> None:
    with OperatorHarness(waiting(Gated(), capacity=2)) as harness:
        harness.push("a", "b", "c", "d")
        gates.release("b", ["B"])
        run_until(harness, lambda: gates.open_calls == 1)
        assert gates.begun == ["a", "b"], "b's result waits for a's, so c has no room"
        assert harness.metrics()["async_wait_operator.asyncCallsInFlight"] == 2
        gates.release("a", ["A"])
        run_until(harness, lambda: len(gates.begun) == 4)
        gates.release("c", ["C"])
        gates.release("d", ["D"])
        run_until(harness, lambda: harness.output == ["A", "B", "C", "D"])
        assert gates.most_open_calls == 2


def test_a_barrier_passes_a_full_queue(gates: Gates) -> None:
    with OperatorHarness(waiting(Gated(), capacity=1)) as harness:
        harness.push("a")
        harness.barrier(1)
        assert len(harness.controls()) == 1
        gates.release("a", ["A"])
        run_until(harness, lambda: harness.output == ["A"])


def test_an_aligned_barrier_behind_records_waits_until_these_are_taken(gates: Gates) -> None:
    with OperatorHarness(waiting(Gated(), capacity=1)) as harness:
        harness.push("a", "b")
        harness.barrier(1)
        assert harness.controls() == []
        gates.release("a", ["A"])
        run_until(harness, lambda: len(harness.controls()) == 1)
        assert harness.output == ["A"], "b is state of the checkpoint"
        gates.release("b", ["B"])
        run_until(harness, lambda: harness.output == ["A", "B"])


def test_a_barrier_passes_while_the_last_results_are_awaited(gates: Gates) -> None:
    with OperatorHarness(waiting(Gated())) as harness:
        harness.push("a")
        harness.end()
        harness.barrier(1)
        assert len(harness.controls()) == 1
        gates.release("a", ["A"])
        run_until(harness, lambda: has_finished(harness))
        assert harness.output == ["A"]


def test_the_end_of_the_input_waits_for_all_results(gates: Gates) -> None:
    with OperatorHarness(waiting(Gated())) as harness:
        harness.push("a", "b")
        harness.end()
        assert ExecutionState.FINISHED not in [state for _, state in harness.states]
        gates.release("a", ["A"])
        gates.release("b", ["B"])
        run_until(harness, lambda: has_finished(harness))
        assert harness.output == ["A", "B"]
        assert gates.closed == 1


def test_a_timeout_cancels_the_call_and_asks_timeout(gates: Gates, on_loop: dict[str, str]) -> None:
    with OperatorHarness(
        waiting(Forgiving(), timeout=Duration.of_seconds(5)), configuration=on_loop
    ) as harness:
        harness.push("a", "b")
        gates.release("b", ["B"])
        gates.until(lambda: gates.begun == ["a", "b"])
        harness.advance(6)
        run_until(harness, lambda: len(harness.output) == 2)
        assert harness.output == ["late a", "B"]
        gates.until(lambda: gates.cancelled == ["a"])
        # The coroutine's place is taken by another.
        harness.push("c", "d", "e", "f")
        gates.until(lambda: gates.open_calls == 4)
        for value in "cdef":
            gates.release(value, [value])
        run_until(harness, lambda: len(harness.output) == 6)
        assert harness.metrics()["async_wait_operator.asyncTimeouts"] == 1


def test_metrics_tell_the_oldest_call(gates: Gates) -> None:
    oldest = "async_wait_operator.asyncOldestCallMs"
    with OperatorHarness(waiting(Gated())) as harness:
        assert harness.metrics()[oldest] == 0
        harness.push("a")
        gates.until(lambda: gates.begun == ["a"])
        harness.advance(3)
        harness.push("b")
        gates.until(lambda: gates.begun == ["a", "b"])
        harness.advance(1)
        assert harness.metrics()[oldest] == 4000
        gates.release("a", ["A"])
        run_until(harness, lambda: harness.output == ["A"])
        assert harness.metrics()[oldest] == 1000


class Stubborn(AsyncFunction[Any, Any]):
    """Gives a result although it was cancelled."""

    async def async_invoke(self, value: Any) -> list[Any]:
        import tests.support.gated_calls as support

        try:
            return [await support.gates.wait(value)]
        except asyncio.CancelledError:
            return ["too late"]

    def timeout(self, value: Any) -> list[Any]:
        return ["in time"]


def test_of_a_timeout_and_a_result_one_wins(gates: Gates) -> None:
    with OperatorHarness(waiting(Stubborn(), ordered=False)) as harness:
        harness.push("a")
        gates.until(lambda: gates.begun == ["a"])
        harness.advance(61)
        run_until(harness, lambda: len(harness.output) == 1)
        gates.until(lambda: gates.cancelled == ["a"])
        harness.push("b")
        gates.release("b", "B")
        harness.end()
        run_until(harness, lambda: has_finished(harness))
        assert harness.output == ["in time", "B"]


def test_without_timeout_method_the_job_fails_with_the_record(gates: Gates) -> None:
    with OperatorHarness(waiting(Gated())) as harness:
        harness.push("a")
        gates.until(lambda: gates.begun == ["a"])
        harness.advance(61)
        with pytest.raises(FragmentFailedError):
            run_until(harness, lambda: False)
        cause = harness.failures[0]
        assert (cause.exception_name, cause.operator_name) == ("builtins.TimeoutError", "async wait operator")
        assert cause.record == "'a'"


class Failing(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        raise ValueError(f"no answer for {value}")


def test_an_exception_is_told_with_operator_record_and_the_users_line(gates: Gates) -> None:
    with OperatorHarness(waiting(Failing())) as harness:
        with pytest.raises(FragmentFailedError):
            harness.push("a")
            run_until(harness, lambda: False)
        cause = harness.failures[0]
        assert (cause.exception_name, cause.message) == ("builtins.ValueError", "no answer for a")
        assert (cause.operator_name, cause.record) == ("async wait operator", "'a'")
        assert 'raise ValueError(f"no answer for {value}")' in cause.stacktrace
        assert "call_runner" not in cause.stacktrace


@pytest.mark.parametrize("answer", [None, "A", ("A",)])
def test_results_that_are_no_list_are_refused(gates: Gates, answer: Any) -> None:
    with OperatorHarness(waiting(Gated())) as harness:
        harness.push("a")
        gates.release("a", answer)
        with pytest.raises(FragmentFailedError):
            run_until(harness, lambda: False)
        assert "expected a list of results" in harness.failures[0].message
        assert harness.failures[0].record == "'a'"


def test_cancel_ends_calls_and_closes_the_function(
    gates: Gates, on_loop: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with OperatorHarness(waiting(Gated(), capacity=1), configuration=on_loop) as harness:
        harness.push("a", "b")
        gates.until(lambda: gates.begun == ["a"])
        assert harness.tasks[0].time.phase is Phase.BACK_PRESSURED
        harness.tasks[0].cancel()
        gates.until(lambda: gates.cancelled == ["a"])
        assert harness.states[-1][1] is ExecutionState.CANCELED
        assert gates.closed == 1
        assert not caplog.records, "no call went on"


def test_results_wait_for_credit(gates: Gates) -> None:
    with OperatorHarness(waiting(Gated()), output_credit=1) as harness:
        harness.hold_outputs = True
        harness.push("a", "b", "c")
        gates.release("a", ["A"])
        run_until(harness, lambda: harness.metrics()["async_wait_operator.asyncCallsInFlight"] == 2)
        gates.release("b", ["B"])
        run_until(harness, lambda: harness.tasks[0].chain.head.next_timer() is not None)
        assert harness.metrics()["async_wait_operator.asyncCallsInFlight"] == 2, "there is no credit for B"
        harness.hold_outputs = False
        run_until(harness, lambda: harness.output == ["A", "B"])
        gates.release("c", ["C"])
        run_until(harness, lambda: harness.output == ["A", "B", "C"])


BLOCKED = threading.Event()


class Blocking(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        BLOCKED.wait(30)  # this line blocks
        return [value]


def test_a_function_that_blocks_the_loop_is_named_with_its_line(
    gates: Gates, on_loop: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    BLOCKED.clear()
    with (
        OperatorHarness(waiting(Blocking()), configuration=on_loop) as harness,
        caplog.at_level(logging.WARNING),
    ):
        harness.push("a")
        # The task looks at the event loop once a second.
        for _ in range(300):
            harness.run()
            if caplog.records:
                break
            harness.tasks[0].chain.head.await_results(0.1)
        BLOCKED.set()
        run_until(harness, lambda: harness.output == ["a"])
    (record,) = caplog.records
    line = Blocking.async_invoke.__code__.co_firstlineno + 1
    assert f"test_async_functions.py:{line} in async_invoke" in record.getMessage()
    assert "'async wait operator'" in record.getMessage()


@pytest.mark.parametrize("ordered", [True, False])
def test_many_records_each_once(gates: Gates, on_loop: dict[str, str], ordered: bool) -> None:
    def fragment(rows: Any) -> Any:
        wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
        return wait(rows.map(int, Types.LONG()), Deferred(), MINUTE, 7, Types.LONG()).map(
            lambda n: n, Types.LONG()
        )

    with OperatorHarness(fragment, configuration=on_loop) as harness:
        for begin in range(0, 500, 50):
            harness.push(*range(begin, begin + 50))
            harness.watermark(begin)
        harness.end()
        run_until(harness, lambda: has_finished(harness))
        expected = [each for number in range(500) for each in (number, 2 * number)]
        if ordered:
            assert harness.output == expected
        else:
            assert sorted(harness.output) == sorted(expected)
            assert harness.output != expected, "the later ones were faster"
        marks = [mark.timestamp for mark in harness.controls() if isinstance(mark, Watermark)]
        assert marks == list(range(0, 500, 50))
