"""set_max_input_drift on a running operator: what is read, barriers, idle and ended streams, unions, a model."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.common import Duration, Types
from yarrow.datastream import CoMapFunction, DataStream
from yarrow.runtime.data.elements import CheckpointBarrier
from yarrow.testing.operator_harness import OperatorHarness

DRIFT = 10


class Sides(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return (0, value)

    def map2(self, value: Any) -> Any:
        return (1, value)


def connected(first: DataStream, second: DataStream) -> DataStream:
    return first.connect(second).map(Sides()).set_max_input_drift(Duration.of_millis(DRIFT))


def united(first: DataStream, second: DataStream) -> DataStream:
    one = first.map(lambda value: (0, value)).disable_chaining()
    other = second.map(lambda value: (1, value)).disable_chaining()
    return one.union(other).rebalance().map(lambda row: row).set_max_input_drift(Duration.of_millis(DRIFT))


@pytest.mark.parametrize("fragment", [connected, united])
def test_the_stream_ahead_is_read_when_the_other_has_come_so_far(fragment: Any) -> None:
    with OperatorHarness(fragment, inputs=2) as harness:
        harness.push("a", input=0, timestamps=[1])
        harness.watermark(100, input=0)
        harness.push("b", input=0, timestamps=[101])
        assert harness.output == [(0, "a")]
        harness.watermark(80, input=1)
        harness.push("c", input=1, timestamps=[81])
        assert harness.output == [(0, "a"), (1, "c")]
        harness.watermark(90, input=1)
        assert harness.output == [(0, "a"), (1, "c"), (0, "b")]


def test_an_idle_stream_and_an_ended_one_let_the_other_go_on() -> None:
    for let_go in (OperatorHarness.idle, OperatorHarness.end):
        with OperatorHarness(connected, inputs=2) as harness:
            harness.watermark(100, input=0)
            harness.push("b", input=0)
            assert harness.output == []
            let_go(harness, input=1)
            assert harness.output == [(0, "b")]


def test_a_stream_that_is_active_again_is_waited_for() -> None:
    with OperatorHarness(connected, inputs=2) as harness:
        harness.watermark(100, input=0)
        harness.idle(input=1)
        harness.push("a", input=0)
        harness.idle(False, input=1)
        harness.push("b", input=0)
        assert harness.output == [(0, "a")]
        harness.watermark(95, input=1)
        assert harness.output == [(0, "a"), (0, "b")]


def test_the_barriers_of_a_checkpoint_pass() -> None:
    with OperatorHarness(connected, inputs=2) as harness:
        harness.watermark(100, input=0)
        harness.push("before", input=0)
        harness.barrier(1, input=0)
        harness.push("behind", input=0)
        assert harness.output == []
        # The other stream is blocked behind its barrier: the one ahead is read up to its own.
        harness.barrier(1, input=1)
        assert harness.output == [(0, "before")]
        assert [e.checkpoint_id for e in harness.controls() if isinstance(e, CheckpointBarrier)] == [1]
        harness.watermark(90, input=1)
        assert harness.output == [(0, "before"), (0, "behind")]


class Model:
    """The same in plain Python: a stream is read while it is not ahead of the other by more than the drift."""

    def __init__(self) -> None:
        self.queues: tuple[deque[Any], deque[Any]] = (deque(), deque())
        self.times: list[int | None] = [None, None]
        self.ended = [False, False]
        self.rows: set[Any] = set()

    def _holds(self, side: int) -> bool:
        own, other = self.times[side], self.times[1 - side]
        if self.ended[1 - side] or own is None:
            return False
        return other is None or own - other > DRIFT

    def send(self, side: int, element: Any) -> None:
        self.queues[side].append(element)
        moved = True
        while moved:
            moved = False
            for index in (0, 1):
                if self.queues[index] and not self._holds(index):
                    self._take(index, self.queues[index].popleft())
                    moved = True

    def _take(self, side: int, element: Any) -> None:
        kind, value = element
        if kind == "row":
            self.rows.add((side, value))
        elif kind == "end":
            self.ended[side] = True
        else:
            former = self.times[side]
            self.times[side] = value if former is None else max(former, value)


SENT = st.lists(
    st.tuples(st.integers(0, 1), st.one_of(st.just("row"), st.integers(0, 60))), min_size=1, max_size=25
)


@settings(max_examples=30, deadline=None)
@given(SENT, st.integers(0, 1))
def test_it_reads_what_the_model_reads(sent: list[tuple[int, Any]], ends_first: int) -> None:
    model = Model()
    with OperatorHarness(connected, inputs=2, types=[Types.LONG(), Types.LONG()]) as harness:
        for number, (side, what) in enumerate(sent):
            if what == "row":
                harness.push(number, input=side)
                model.send(side, ("row", number))
            else:
                harness.watermark(what, input=side)
                model.send(side, ("time", what))
            assert set(harness.output) == model.rows
        for side in (ends_first, 1 - ends_first):
            harness.end(side)
            model.send(side, ("end", None))
            assert set(harness.output) == model.rows
        assert len(harness.output) == sum(what == "row" for _, what in sent)
        for side in (0, 1):
            own = [value for at, value in harness.output if at == side]
            assert own == sorted(own)
