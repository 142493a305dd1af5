"""The harness with several subtasks: rows go where a job would send them, and state follows its keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.gated_calls import Gated, new_gates
from yarrow.common import Duration, Types
from yarrow.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from yarrow.runtime.data.elements import RowBatch, Watermark
from yarrow.testing import FragmentFailedError, HarnessState, OperatorHarness


class Count(KeyedProcessFunction[Any, Any, Any]):
    """Emits how often a key has come."""

    def open(self, runtime_context: Any) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value, count


def counts(rows: Any) -> Any:
    return rows.key_by(lambda row: row, Types.LONG()).process(Count())


class Subtask(MapFunction[Any, Any]):
    """Tells which subtask a row has come to."""

    def open(self, runtime_context: Any) -> None:
        self._index = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        return value, self._index


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@settings(max_examples=8)
@given(
    parts=st.lists(
        st.tuples(st.integers(1, 4), st.lists(st.integers(0, 9), max_size=20)), min_size=1, max_size=4
    )
)
def test_counts_are_those_of_one_run(backend: str, parts: list[tuple[int, list[int]]]) -> None:
    found: list[Any] = []
    seen: list[int] = []
    expected = []
    harness = OperatorHarness(counts, types=[Types.LONG()], configuration={"state.backend.type": backend})
    for parallelism, rows in parts:
        harness = harness.restarted(parallelism=parallelism)
        if rows:
            harness.push(*rows)
        found += harness.take()
        for row in rows:
            seen.append(row)
            expected.append((row, seen.count(row)))
    harness.close()
    assert sorted(found) == sorted(expected)


def in_parallel(parallelism: int) -> HarnessState:
    return HarnessState(parallelism=parallelism)


def test_rows_without_keys_go_in_turn_and_watermarks_to_all() -> None:
    with OperatorHarness(lambda rows: rows.map(Subtask()), state=in_parallel(3)) as harness:
        harness.push(*range(6))
        assert sorted(harness.output) == [(n, n % 3) for n in range(6)]
        harness.watermark(7)
        assert harness.controls() == [Watermark(7)] * 3
        assert len(harness.tasks) == 3


def test_a_partitioner_of_the_program_is_asked() -> None:
    def fragment(rows: Any) -> Any:
        return rows.partition_custom(lambda key, number: (key + 1) % number, lambda row: row).map(Subtask())

    with OperatorHarness(fragment, state=in_parallel(4)) as harness:
        harness.push(*range(4))
        assert sorted(harness.output) == [(0, 1), (1, 2), (2, 3), (3, 0)]


class Rules(BroadcastProcessFunction[Any, Any, Any]):
    """Emits each row with the last rule."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value, ctx.get_broadcast_state(RULES).get("rule")

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put("rule", value)


RULES: MapStateDescriptor[str, str] = MapStateDescriptor("rules", Types.STRING(), Types.STRING())


def test_broadcast_rows_reach_all_subtasks_and_outlast_a_restart() -> None:
    def fragment(rows: Any, rules: Any) -> Any:
        return rows.connect(rules.broadcast(RULES)).process(Rules())

    with OperatorHarness(fragment, inputs=2, state=in_parallel(2)) as harness:
        harness.push("new", input=1)
        harness.push(1, 2)
        assert sorted(harness.output) == [(1, "new"), (2, "new")]
        with harness.restarted(parallelism=3) as again:
            again.push(1, 2, 3)
            assert sorted(again.output) == [(1, "new"), (2, "new"), (3, "new")]


def test_columns_go_to_the_subtasks_of_their_keys() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])

    def batch(*rows: tuple[str, int]) -> pa.RecordBatch:
        return pa.record_batch({"k": [k for k, _ in rows], "v": [v for _, v in rows]}, schema=schema)

    def rows_of(harness: OperatorHarness) -> list[dict[str, Any]]:
        return [row for made in harness.record_batches() for row in made.to_pylist()]

    with OperatorHarness(lambda rows: rows.key_by("k").sum("v"), types=[schema]) as harness:
        harness.push_batch(batch(("a", 1), ("b", 2), ("a", 3)))
        with harness.restarted(parallelism=4) as again:
            again.push_batch(batch(("a", 10), ("b", 20), ("c", 30)))
            found = sorted((row["k"], row["v_sum"]) for row in rows_of(again))
            assert found == [("a", 14), ("b", 22), ("c", 30)]


def test_a_new_version_of_the_program_takes_the_state() -> None:
    with OperatorHarness(lambda rows: counts(rows).uid("counts")) as harness:
        harness.push(1, 1)
        renamed = harness.restarted(
            fragment=lambda rows: counts(rows).uid("counts").map(lambda found: found[1])
        )
        with renamed:
            renamed.push(1)
            assert renamed.output == [3]


def test_the_clock_is_that_of_the_snapshot() -> None:
    with OperatorHarness(counts) as harness:
        harness.advance(5)
        snapshot = harness.snapshot()
        harness.advance(5)
        with harness.restarted(snapshot) as again:
            assert again.clock.epoch_ms() == 5000


class Collected(KeyedProcessFunction[Any, Any, Any]):
    """Emits the rows of a key so far; the list changes in place."""

    def open(self, runtime_context: Any) -> None:
        self._rows = runtime_context.get_state(ValueStateDescriptor("rows"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        rows = self._rows.value() or []
        rows.append(value)
        self._rows.update(rows)
        yield rows


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_what_comes_while_a_snapshot_is_written_is_not_in_it(backend: str) -> None:
    def fragment(rows: Any) -> Any:
        return rows.key_by(lambda row: row % 2).process(Collected())

    with OperatorHarness(fragment, configuration={"state.backend.type": backend}) as harness:
        harness.push(1, 2)
        snapshot = harness.snapshot(lambda: harness.push(3, 4))
        assert harness.output == [[1], [2], [1, 3], [2, 4]]
        before = [element for element in harness.before_cut() if isinstance(element, RowBatch)]
        assert [row for batch in before for row in batch.rows] == [[1], [2]]
        with harness.restarted(snapshot) as again:
            again.push(5, 6)
            assert again.output == [[1, 5], [2, 6]]


def test_a_result_that_comes_while_a_snapshot_is_written_is_behind_the_cut() -> None:
    gates = new_gates()
    with OperatorHarness(
        lambda rows: AsyncDataStream.unordered_wait(rows, Gated(), Duration.of_minutes(1), 2)
    ) as harness:
        harness.push("a")
        gates.until(lambda: gates.begun == ["a"])

        def has_come() -> bool:
            harness.run()
            return bool(harness.output)

        def answer() -> None:
            gates.release("a", ["answer"])
            gates.until(has_come)

        harness.snapshot(answer)
        assert harness.output == ["answer"]
        assert not [element for element in harness.before_cut() if isinstance(element, RowBatch)]


class Failing(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep(0.01)
        raise ValueError(f"no answer for {value}")


def test_finish_tells_of_an_asynchronous_call_that_has_failed() -> None:
    def fragment(rows: Any) -> Any:
        return AsyncDataStream.ordered_wait(rows, Failing(), Duration.of_seconds(60), 10)

    with OperatorHarness(fragment) as harness:
        harness.push(7)
        with pytest.raises(FragmentFailedError, match="no answer for 7") as failed:
            harness.finish()
        assert failed.value.cause.record == "7" and failed.value.cause.operator_name == "async wait operator"


def test_finish_ends_inputs_at_the_maximum_of_event_time() -> None:
    with OperatorHarness(lambda rows: rows.map(lambda row: row)) as harness:
        harness.push(1)
        harness.finish()
        assert harness.output == [1]
        assert harness.controls()[0] == Watermark(2**63 - 1)
