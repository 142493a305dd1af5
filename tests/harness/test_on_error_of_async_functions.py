"""on_error of asynchronous functions: which records are left out, where their letters leave, and each once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import tests.support.gated_calls as support
from tests.support.gated_calls import Gated, Gates, loop_is_idle, new_gates, run_until
from yarrow.common.time import Duration
from yarrow.common.typeinfo import Types
from yarrow.datastream import AsyncDataStream, DataStream
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.functions import AsyncBatchFunction, AsyncRetryStrategy
from yarrow.runtime.data.keys import encode_key
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

MINUTE = Duration.of_minutes(1)
ROWS = ("a", "b", "c")


@pytest.fixture(name="gates")
def _gates() -> Iterator[Gates]:
    yield new_gates()
    assert loop_is_idle(), "an operator has not released the event loop"


def with_letters(stream: DataStream) -> list[DataStream]:
    stream = stream.uid("the function").on_error("dead_letter")
    return [stream, stream.dead_letters()]


def waiting(function: Any, how: str = "ordered", capacity: int = 6, timeout: Duration = MINUTE) -> Any:
    def fragment(rows: DataStream) -> list[DataStream]:
        if how == "by_key":
            keyed = rows.key_by(lambda row: row[0], Types.STRING())
            return with_letters(AsyncDataStream.ordered_by_key(keyed, function, timeout, capacity))
        wait = AsyncDataStream.ordered_wait if how == "ordered" else AsyncDataStream.unordered_wait
        return with_letters(wait(rows, function, timeout, capacity))

    return fragment


def raws(harness: OperatorHarness) -> list[Any]:
    load = serializer_for(Types.STRING()).load_rows
    return [row for letter in harness.outputs(1) for row in load(letter.raw)]


@pytest.mark.parametrize("how", ["ordered", "unordered", "by_key"])
def test_a_failed_call_leaves_a_letter_in_its_place(how: str, gates: Gates) -> None:
    with OperatorHarness(waiting(Gated(), how), types=[Types.STRING()]) as harness:
        harness.push("a1", "a2", "b1", timestamps=[1, 2, 3])
        gates.release("a2", ValueError("no a2"))
        gates.release("b1", ["B1"])
        gates.until(lambda: gates.open_calls == 1)
        early = {"ordered": [], "unordered": ["a2"], "by_key": []}[how]
        run_until(harness, lambda: raws(harness) == early and len(harness.outputs(0)) == (how != "ordered"))
        gates.release("a1", ["A1"])
        run_until(harness, lambda: raws(harness) == ["a2"] and len(harness.outputs(0)) == 2)
        assert sorted(harness.outputs(0)) == ["A1", "B1"]
        letter: DeadLetter = harness.outputs(1)[0]
        assert (letter.operator, letter.error, letter.error_class) == (
            "the function",
            "ValueError: no a2",
            "ValueError",
        )
        assert (letter.timestamp, letter.input, letter.position) == (2, 0, -1)
        assert "gates.wait(value)" in letter.traceback
        assert letter.key == (encode_key("a") if how == "by_key" else None)
        assert harness.metrics()["async_wait_operator.numRecordsInErrors"] == 1


def test_what_the_last_attempt_or_the_time_out_leaves_counts(gates: Gates) -> None:
    once_more = AsyncRetryStrategy.fixed_delay(1, 1, None, lambda error: isinstance(error, ConnectionError))

    def fragment(rows: DataStream) -> list[DataStream]:
        limit = Duration.of_seconds(5)
        return with_letters(AsyncDataStream.ordered_wait_with_retry(rows, Gated(), limit, once_more, 6))

    with OperatorHarness(fragment, types=[Types.STRING()]) as harness:
        harness.push("a", "b", "c")
        gates.release("a", ConnectionError("first"))
        gates.release("a", ["A"])
        gates.release("b", ConnectionError("first"))
        gates.release("b", ConnectionError("last"))
        gates.until(lambda: gates.open_calls == 1)
        harness.advance(6)
        run_until(harness, lambda: len(harness.outputs(1)) == 2)
        assert harness.outputs(0) == ["A"]
        assert [letter.error_class for letter in harness.outputs(1)] == ["ConnectionError", "TimeoutError"]
        assert "ConnectionError: last" in harness.outputs(1)[0].error
        assert gates.cancelled == ["c"]


def test_skip_leaves_nothing(gates: Gates) -> None:
    def fragment(rows: DataStream) -> DataStream:
        return AsyncDataStream.ordered_wait(rows, Gated(), MINUTE, 4).on_error("skip")

    with OperatorHarness(fragment) as harness:
        harness.push("a", "b")
        gates.release("a", ValueError("no"))
        gates.release("b", ["B"])
        run_until(harness, lambda: harness.output == ["B"])
        assert harness.metrics()["async_wait_operator.numRecordsInErrors"] == 1


@pytest.mark.parametrize("answer", [MemoryError("full"), SystemExit(3)])
def test_errors_of_no_record_fail_the_job(answer: BaseException, gates: Gates) -> None:
    with (
        pytest.raises(FragmentFailedError, match=r"full|SystemExit"),
        OperatorHarness(waiting(Gated())) as harness,
    ):
        harness.push("a")
        gates.release("a", answer)
        run_until(harness, lambda: False)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [({"max_per_minute": 2}, "3 records within a minute"), ({"max_share": 0.4}, "3 of the latest 6 records")],
)
def test_past_a_bound_the_job_fails(bounds: dict[str, Any], expected: str, gates: Gates) -> None:
    def fragment(rows: DataStream) -> DataStream:
        return AsyncDataStream.ordered_wait(rows, Gated(), MINUTE, 9).on_error("skip", **bounds)

    with (
        pytest.raises(FragmentFailedError, match=f"(?s)failed at {expected}"),
        OperatorHarness(fragment) as harness,
    ):
        for value in range(6):
            harness.push(value)
            gates.release(value, ValueError("no") if value % 2 else [value])
        harness.end()
        run_until(harness, lambda: False)


@pytest.mark.parametrize("how", ["ordered", "unordered"])
@pytest.mark.parametrize("done", [done for n in range(4) for done in itertools.combinations(ROWS, n)])
def test_a_crash_loses_no_letter_and_doubles_none(done: tuple[str, ...], how: str) -> None:
    """`b` fails. What has not left before the snapshot is called again behind the restore."""

    def answer(row: str) -> Any:
        return ValueError(f"no {row}") if row == "b" else [row.upper()]

    gates = new_gates()
    with OperatorHarness(waiting(Gated(), how), types=[Types.STRING()]) as harness:
        harness.push(*ROWS)
        for row in done:
            gates.release(row, answer(row))
        left = list(itertools.takewhile(done.__contains__, ROWS)) if how == "ordered" else [*done]
        run_until(harness, lambda: len(harness.outputs(0)) + len(harness.outputs(1)) == len(left))
        before = harness.outputs(0), raws(harness)
        snapshot = harness.snapshot()
        gates = new_gates()
        with harness.restarted(snapshot) as again:
            for row in ROWS:
                if row not in left:
                    gates.release(row, answer(row))
            run_until(again, lambda: len(again.outputs(0)) + len(again.outputs(1)) == len(ROWS) - len(left))
            assert sorted(before[0] + again.outputs(0)) == ["A", "C"]
            assert before[1] + raws(again) == ["b"]


class Batches(AsyncBatchFunction):
    """Doubles numbers; a call with a multiple of five fails as a whole."""

    max_rows = 8
    max_wait = Duration.of_millis(10)

    async def async_invoke(self, values: Any) -> Any:
        support.gates.begun.append(tuple(values))
        if any(value % 5 == 0 for value in values):
            raise ValueError("one of them")
        return [2 * value for value in values]


class BlockingBatches(Batches):
    def async_invoke(self, values: Any) -> Any:
        support.gates.begun.append(tuple(values))
        if any(value % 5 == 0 for value in values):
            raise ValueError("one of them")
        return [2 * value for value in values]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("threads", [0, 2])
def test_a_call_for_many_rows_is_divided(threads: int, ordered: bool, gates: Gates) -> None:
    def fragment(rows: DataStream) -> list[DataStream]:
        function = BlockingBatches() if threads else Batches()
        wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
        return with_letters(wait(rows, function, MINUTE, 20, threads=threads))

    numbers = list(range(1, 41))
    good = [2 * number for number in numbers if number % 5]
    with OperatorHarness(fragment, types=[Types.LONG()]) as harness:
        harness.push(*numbers)
        harness.end()

        def all_have_left() -> bool:
            # Rows wait for others by the clock of the harness.
            harness.advance(0.02)
            return len(harness.outputs(0)) + len(harness.outputs(1)) == len(numbers)

        run_until(harness, all_have_left)
        found = harness.outputs(0)
        assert found == good if ordered else sorted(found) == good
        load = serializer_for(Types.LONG()).load_rows
        bad = [number for letter in harness.outputs(1) for number in load(letter.raw)]
        assert bad == [5, 10, 15, 20, 25, 30, 35, 40] if ordered else sorted(bad) == list(range(5, 41, 5))
        # Each failing row was at last called alone, and once.
        assert sorted(call[0] for call in gates.begun if len(call) == 1 and call[0] % 5 == 0) == list(
            range(5, 41, 5)
        )
