"""Results of asynchronous functions in the order of each key, also over crashes and at other parallelisms."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest

from tests.support.gated_calls import GIVE_UP_SECONDS, Gated, Gates, loop_is_idle, new_gates, run_until
from tests.support.restarted_job import CANONICAL, OWN, RestartedJob
from yarrow.common.time import Duration
from yarrow.common.typeinfo import Types
from yarrow.container.operators.asynchronous.waiting_calls import WaitingCallsOperator
from yarrow.datastream import AsyncDataStream, DataStream
from yarrow.datastream.async_retry_predicates import has_exception_predicate
from yarrow.datastream.functions import AsyncBatchFunction, AsyncFunction, AsyncRetryStrategy
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.elements import RowBatch, Watermark
from yarrow.testing.operator_harness import Fragment, FragmentFailedError, OperatorHarness

MINUTE = Duration.of_minutes(1)
ROW = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.fixture
def gates() -> Iterator[Gates]:
    yield new_gates()
    assert loop_is_idle()


def by_key(capacity: int = 10, function: AsyncFunction[Any, Any] | None = None, **options: Any) -> Fragment:
    return lambda rows: AsyncDataStream.ordered_by_key(
        rows.key_by(lambda row: row[0], Types.STRING()), function or Gated(), MINUTE, capacity, **options
    )


def test_a_slow_call_holds_back_its_own_key_alone(gates: Gates) -> None:
    with OperatorHarness(by_key()) as harness:
        harness.push(("a", 1), ("b", 2), ("a", 3), timestamps=[1, 2, 3])
        gates.until(lambda: gates.open_calls == 3)  # the calls of a key overlap
        gates.release(("a", 3), ["second of a"])
        gates.release(("b", 2), ["b"])
        run_until(harness, lambda: harness.output == ["b"])
        gates.release(("a", 1), ["first of a"])
        run_until(harness, lambda: len(harness.output) == 3)
        assert harness.output == ["b", "first of a", "second of a"]
        assert harness.timestamps() == [2, 1, 3]


def test_results_never_pass_a_watermark(gates: Gates) -> None:
    with OperatorHarness(by_key()) as harness:
        harness.push(("a", 1))
        harness.watermark(5)
        harness.push(("b", 2))
        gates.release(("b", 2), ["b"])
        gates.until(lambda: gates.open_calls == 1)
        harness.run()
        assert harness.output == []
        gates.release(("a", 1), ["a"])
        run_until(harness, lambda: len(harness.output) == 2)
        kinds = [e.rows if isinstance(e, RowBatch) else e for e in harness.elements()]
        assert kinds == [["a"], Watermark(5), ["b"]]


def test_a_repeated_call_keeps_its_place(gates: Gates) -> None:
    strategy = AsyncRetryStrategy.fixed_delay(1, 1, None, has_exception_predicate)
    with OperatorHarness(by_key(async_retry_strategy=strategy)) as harness:
        harness.push(("a", 1), ("a", 2))
        gates.release(("a", 2), ["second"])
        gates.release(("a", 1), OSError("the line is down"))
        gates.release(("a", 1), ["first"])
        run_until(harness, lambda: len(harness.output) == 2)
        assert harness.output == ["first", "second"]


class Failing(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> Any:
        return "no list"


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered by key", "unordered"])
def test_an_error_tells_the_key(gates: Gates, ordered: bool) -> None:
    def unordered(rows: Any) -> DataStream:
        return AsyncDataStream.unordered_wait(rows.key_by(lambda row: row[0]), Failing(), MINUTE)

    with OperatorHarness(by_key(function=Failing()) if ordered else unordered) as harness:
        with pytest.raises(FragmentFailedError, match="expected a list of results"):
            harness.push(("a", 1))
            run_until(harness, lambda: False)
        cause = harness.failures[0]
        assert (cause.operator_name, cause.record) == ("async wait operator", "('a', 1) (of the key 'a')")


class Doubled(AsyncBatchFunction):
    def async_invoke(self, values: list[Any]) -> list[Any]:
        return [(key, 2 * number) for key, number in values]


def test_other_functions_capacities_and_parallelisms_take_what_was_in_flight(gates: Gates) -> None:
    """Records in flight of an AsyncFunction go to threads, many at a time."""
    with OperatorHarness(lookups, types=[ROW]) as harness:
        harness.push(("a", 1), ("b", 2), ("a", 3))
        snapshot = harness.snapshot()

        def in_threads(rows: DataStream) -> DataStream:
            keyed = rows.key_by(lambda row: row[0], Types.STRING())
            return AsyncDataStream.ordered_by_key(keyed, Doubled(), MINUTE, 64, ROW, threads=2).uid("lookups")

        with harness.restarted(snapshot, parallelism=4, fragment=in_threads) as again:
            again.push(("b", 4))
            again.finish()
            assert [row for row in again.output if row[0] == "a"] == [("a", 2), ("a", 6)]
            assert [row for row in again.output if row[0] == "b"] == [("b", 4), ("b", 8)]


def test_another_order_does_not_take_what_was_in_flight(gates: Gates) -> None:
    """Records of a key could be restored by different subtasks."""
    with OperatorHarness(lookups, types=[ROW]) as harness:
        harness.push(("a", 1))
        with pytest.raises(FragmentFailedError, match="Ask for the state as it was"):
            harness.restarted(
                fragment=lambda rows: AsyncDataStream.ordered_wait(rows, Gated(), MINUTE, 9, ROW).uid(
                    "lookups"
                )
            )


# Restored at other parallelisms: all records in flight belong to the subtask of their key.

KEYS = "abcde"
OTHER_PARALLELISMS = (1, 4, 2, 3, 1)
#: One record of each key for each parallelism.
ROWS = [(key, number) for number in range(len(OTHER_PARALLELISMS)) for key in KEYS]


def lookups(rows: DataStream) -> DataStream:
    keyed = rows.key_by(lambda row: row[0], Types.STRING())
    return AsyncDataStream.ordered_by_key(keyed, Gated(), MINUTE, 100, ROW).uid("lookups")


def release(gates: Gates, rows: Iterable[Any]) -> None:
    for row in rows:
        gates.release(row, [row])


def take_until(job: RestartedJob, number: int) -> list[tuple[Any, int | None]]:
    """So many results with their timestamps."""
    left: list[tuple[Any, int | None]] = []
    for _ in range(int(GIVE_UP_SECONDS / 0.05)):
        for fragment in job.fragments:
            fragment.run_until_idle()
        left += job.take()
        if len(left) >= number:
            return left
        cast(WaitingCallsOperator, job.operators[0]).arrived.wait(0.05)
    raise AssertionError(f"the job has not come so far: {left}")


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("options", [OWN, CANONICAL], ids=["checkpoint", "savepoint"])
def test_restored_at_other_parallelisms(options: CheckpointOptions, backend: str) -> None:
    job = RestartedJob(lookups)
    left: list[Any] = []
    fed: list[Any] = []
    for number, parallelism in enumerate(OTHER_PARALLELISMS):
        gates = new_gates()
        job.start(parallelism, backend)
        in_flight = [row for row in fed if row not in left]
        gates.until(lambda g=gates, rows=in_flight: sorted(g.begun) == sorted(rows))  # type: ignore[misc]
        coming = ROWS[number * len(KEYS) : (number + 1) * len(KEYS)]
        fed += coming
        job.push(coming)
        # Of one key all records have their results, the last first. Of others only the last one has: it waits.
        done = [row for row in in_flight + coming if row[0] == KEYS[number]][::-1]
        waiting = {row[0] for row in in_flight}
        release(gates, done + [row for row in coming if row not in done and row[0] in waiting])
        left += [row for row, _ in take_until(job, len(done))]
        job.stop(options)
        assert loop_is_idle()
    gates = new_gates()
    job.start(4, backend)
    rest = [row for row in fed if row not in left]
    release(gates, rest[::-1])
    left += [row for row, _ in take_until(job, len(rest))]
    assert sorted(left) == sorted(ROWS)
    for key in KEYS:
        assert [row for row in left if row[0] == key] == [row for row in ROWS if row[0] == key]
    job.stop(options)
    job.start(1, backend)
    (operator,) = job.operators
    assert operator.room == 100, "nothing is in flight any more"
    job.stop(options)


@pytest.mark.parametrize("done", [each for n in range(4) for each in itertools.permutations(range(3), n)])
def test_a_crash_after_any_results_of_two_keys(done: tuple[int, ...]) -> None:
    """Of three records the first and the last have one key; the crash comes when some of them have their results."""
    rows = [("a", 1), ("b", 2), ("a", 3)]
    job = RestartedJob(lookups)
    gates = new_gates()
    job.start(1, "hashmap")
    job.push(rows, [1, 2, 3])
    release(gates, [rows[index] for index in done])
    left = take_until(job, len({0, 1} & {*done}) + ({0, 2} <= {*done}))
    job.stop(OWN)
    gates = new_gates()
    job.start(2, "hashmap")
    missing = [row for row in rows if row not in [row for row, _ in left]]
    gates.until(lambda: sorted(gates.begun) == sorted(missing))
    release(gates, missing[::-1])
    left += take_until(job, len(missing))
    job.stop(OWN)
    assert sorted(left) == [(("a", 1), 1), (("a", 3), 3), (("b", 2), 2)]
    assert left.index((("a", 1), 1)) < left.index((("a", 3), 3))
