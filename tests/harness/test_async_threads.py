"""Asynchronous functions whose clients know no asyncio: threads call them, as many at a time as the program says."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tests.harness.test_async_functions import has_finished
from tests.support.gated_calls import GIVE_UP_SECONDS, loop_is_idle, run_until
from yarrow.common.time import Duration
from yarrow.datastream import AsyncDataStream
from yarrow.datastream.async_retry_predicates import has_exception_predicate
from yarrow.datastream.functions import AsyncBatchFunction, AsyncFunction, AsyncRetryStrategy
from yarrow.runtime.common.clock import ManualClock
from yarrow.testing.operator_harness import Fragment, FragmentFailedError, OperatorHarness

MINUTE = Duration.of_minutes(1)


class Calls:
    """The calls of a test, and which of them may go on."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.begun: list[Any] = []
        self.threads: set[threading.Thread] = set()
        self.answers: dict[Any, list[Any]] = {}
        self.open = 0

    def wait(self, value: Any) -> Any:
        with self.changed:
            self.begun.append(value)
            self.threads.add(threading.current_thread())
            self.open += 1
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: bool(self.answers.get(value)), GIVE_UP_SECONDS)
            self.open -= 1
            answer = self.answers[value].pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def release(self, value: Any, answer: Any) -> None:
        with self.changed:
            self.answers.setdefault(value, []).append(answer)
            self.changed.notify_all()

    def end(self, value: Any) -> None:
        """Answers the call of a job that has ended, whose thread ends with it."""
        self.release(value, [])
        self.until_threads_end()

    def until_threads_end(self) -> None:
        for thread in self.threads:
            thread.join(GIVE_UP_SECONDS)
            assert not thread.is_alive()

    def until_open(self, number: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.open == number, GIVE_UP_SECONDS), self.begun


calls = Calls()


class Blocking(AsyncFunction[Any, Any]):
    def async_invoke(self, value: Any) -> list[Any]:
        answer: list[Any] = calls.wait(value)
        return answer

    def timeout(self, value: Any) -> list[Any]:
        return [f"late {value}"]


@pytest.fixture(autouse=True)
def gated() -> Iterator[Calls]:
    global calls
    calls = Calls()
    yield calls
    assert loop_is_idle()


def in_threads(number: int, *, ordered: bool = True, timeout: Duration = MINUTE) -> Fragment:
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    return lambda rows: wait(rows, Blocking(), timeout, 10, threads=number)


@pytest.mark.parametrize("ordered", [True, False])
def test_so_many_calls_run_at_a_time(ordered: bool) -> None:
    with OperatorHarness(in_threads(2, ordered=ordered)) as harness:
        harness.push("a", "b", "c")
        calls.until_open(2)
        assert calls.begun == ["a", "b"]
        calls.release("b", ["B"])
        with calls.changed:
            assert calls.changed.wait_for(lambda: calls.begun == ["a", "b", "c"], GIVE_UP_SECONDS)
        calls.release("c", ["C"])
        calls.release("a", ["A"])
        harness.end()
        run_until(harness, lambda: has_finished(harness))
        assert sorted(harness.output) == ["A", "B", "C"]
        assert harness.output == ["A", "B", "C"] or not ordered
        names = {each.name for each in calls.threads}
        assert names == {"async wait operator, calls 0", "async wait operator, calls 1"}
    calls.until_threads_end()


def test_errors_and_attempts_hold() -> None:
    strategy = AsyncRetryStrategy.fixed_delay(1, 1, None, has_exception_predicate)
    with OperatorHarness(
        lambda rows: AsyncDataStream.unordered_wait_with_retry(rows, Blocking(), MINUTE, strategy, threads=1)
    ) as harness:
        harness.push("a")
        calls.release("a", OSError("the line is down"))
        calls.release("a", ["A"])
        run_until(harness, lambda: harness.output == ["A"])
        harness.push("b")
        calls.release("b", OSError("first"))
        calls.release("b", StopIteration("second"))
        with pytest.raises(FragmentFailedError):
            run_until(harness, lambda: False)
        assert harness.failures[0].record == "'b'"
        assert "calling_threads" not in harness.failures[0].stacktrace


def test_time_is_over_also_for_calls_that_wait_for_a_thread(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "yarrow.container.operators.asynchronous.waiting_calls._CLOSE_SECONDS", GIVE_UP_SECONDS
    )
    with OperatorHarness(in_threads(1, timeout=Duration.of_seconds(5))) as harness:
        harness.push("a", "b")
        calls.until_open(1)

        def both_are_late() -> bool:
            # The event loop may take b after the first call of this, and the time of b begins only then.
            harness.advance(6)
            return len(harness.output) == 2

        run_until(harness, both_are_late)
        assert harness.output == ["late a", "late b"]
        # The thread is taken until its call returns.
        harness.push("c")
        calls.release("a", ["too late"])
        calls.release("c", ["C"])
        run_until(harness, lambda: len(harness.output) == 3)
        assert harness.output[2:] == ["C"]
        assert calls.begun == ["a", "c"], "nobody waited for b any more"
    assert not caplog.records


def test_a_call_that_does_not_end_is_told_when_the_task_ends(caplog: pytest.LogCaptureFixture) -> None:
    with OperatorHarness(in_threads(1)) as harness, caplog.at_level(logging.WARNING):
        harness.push("a")
        calls.until_open(1)
        harness.tasks[0].cancel()
        (record,) = caplog.records
        assert "'async wait operator': calls of Blocking go on" in record.getMessage()
    calls.end("a")


def test_a_call_that_ends_after_its_job_disturbs_nobody() -> None:
    with OperatorHarness(in_threads(1)) as harness:
        harness.push("a")
        calls.until_open(1)
    calls.end("a")


class Clocked(AsyncBatchFunction):
    """Calls take so many seconds of a latency of 200 ms, however many rows they have."""

    max_rows = 8
    latency = Duration.of_millis(200)
    clock: ClassVar[ManualClock]
    seconds: ClassVar[float]
    sizes: ClassVar[list[int]]

    def async_invoke(self, values: list[int]) -> list[int]:
        Clocked.clock.advance(Clocked.seconds)
        Clocked.sizes.append(len(values))
        return values


# Calls move the clock. Where all calls must be full, no row may be due while a slice of the others is on its way.
@pytest.mark.parametrize(
    ("seconds", "smaller", "wait"), [(0.15, 0, MINUTE), (0.25, 6, Duration.of_millis(10))]
)
def test_calls_for_many_rows_stay_full_though_they_wait_for_a_thread(
    monkeypatch: pytest.MonkeyPatch, seconds: float, smaller: int, wait: Duration
) -> None:
    """Above the latency, a few smaller calls show that fewer rows do not help."""
    monkeypatch.setattr(Clocked, "max_wait", wait)
    Clocked.clock, Clocked.sizes, Clocked.seconds = ManualClock(1_000_000), [], seconds
    with OperatorHarness(
        lambda rows: AsyncDataStream.ordered_wait(rows, Clocked(), MINUTE, 64, threads=1), clock=Clocked.clock
    ) as harness:
        for turn in range(1, 7):
            harness.push(*range(64))
            run_until(harness, lambda number=64 * turn: len(harness.output) == number)  # type: ignore[misc]
        assert sum(size < 8 for size in Clocked.sizes) <= smaller
        assert Clocked.sizes[-8:] == [8] * 8


def test_rows_wait_for_others_while_all_threads_have_calls(gated: Calls) -> None:
    with OperatorHarness(
        lambda rows: AsyncDataStream.ordered_wait(rows, BlockingBatches(), MINUTE, 8, threads=1)
    ) as harness:
        for value in range(8):
            # Each row waits for longer than a batch does.
            harness.push(value)
            harness.advance(1)
        gated.until_open(1)
        for sent in ((0,), (1, 2, 3, 4), (5, 6, 7)):
            gated.release(sent, list(sent))
        run_until(harness, lambda: harness.output == list(range(8)))
        assert gated.begun == [(0,), (1, 2, 3, 4), (5, 6, 7)]


class BlockingBatches(AsyncBatchFunction):
    max_rows = 4

    def async_invoke(self, values: list[Any]) -> list[Any]:
        answer: list[Any] = calls.wait(tuple(values))
        return answer
