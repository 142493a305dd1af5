"""A subtask between its gate and its outputs: credit, mails between slices, control elements, broken peers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from yarrow.container.metrics.time_accounting import Phase, TimeAccounting
from yarrow.container.task.stream_task import VERDICT_SECONDS
from yarrow.container.task.task_life import TaskStage
from yarrow.datastream import CoProcessFunction, KeyedProcessFunction
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import (
    CheckpointBarrier,
    EndOfData,
    LatencyMarker,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from yarrow.runtime.graph.states import ExecutionState
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness


def two_stages(stream: Any) -> Any:
    return stream.map(lambda v: v).rebalance().map(lambda v: v)


def test_control_elements_travel_through_chain_and_exchange_in_their_places() -> None:
    with OperatorHarness(two_stages) as harness:
        harness.push(1)
        harness.watermark(10)
        harness.push(2)
        harness.barrier(5)
        harness.send(LatencyMarker(0, "ab" * 16, 0))
        harness.idle()
        harness.idle(False)
        harness.push(3)
        harness.end()
        kinds = [type(element) for element in harness.elements()]
        assert kinds == [
            RowBatch, Watermark, RowBatch, CheckpointBarrier, LatencyMarker, WatermarkStatus, WatermarkStatus,
            RowBatch, EndOfData,
        ]  # fmt: skip
        assert harness.output == [1, 2, 3]


def test_watermark_and_status_of_two_inputs() -> None:
    def union(a: Any, b: Any) -> Any:
        return a.connect(b).process(Nothing())

    with OperatorHarness(union, inputs=2) as harness:
        harness.watermark(10)
        assert harness.controls() == []
        harness.watermark(20, input=1)
        assert harness.controls() == [Watermark(10)]
        harness.idle(input=0)
        assert harness.controls()[1:] == [Watermark(20)]
        harness.idle(input=1)
        status = harness.controls()[-1]
        assert isinstance(status, WatermarkStatus) and status.idle
        harness.idle(False, input=1)
        status = harness.controls()[-1]
        assert isinstance(status, WatermarkStatus) and not status.idle
        assert len(harness.controls()) == 4


class Nothing(CoProcessFunction[Any, Any, Any]):
    """A two-input function that emits nothing."""

    def process_element1(self, value: Any, ctx: Any) -> None:
        return None

    def process_element2(self, value: Any, ctx: Any) -> None:
        return None


def test_barriers_of_two_channels_are_aligned() -> None:
    with OperatorHarness(lambda a, b: a.union(b).map(lambda v: v), inputs=2) as harness:
        harness.barrier(1)
        harness.push("behind the barrier")
        harness.push("before the barrier", input=1)
        assert harness.output == ["before the barrier"]
        harness.barrier(1, input=1)
        assert [type(e) for e in harness.elements()] == [RowBatch, CheckpointBarrier, RowBatch]


def test_without_credit_a_task_takes_nothing_and_sleeps() -> None:
    with OperatorHarness(lambda s: s.map(lambda v: v), output_credit=2) as harness:
        harness.hold_outputs = True
        (task,) = harness.tasks
        for number in range(20):
            harness.push(number)
        assert task.time.phase is Phase.BACK_PRESSURED
        assert harness.metrics()["isBackPressured"] == 1
        assert harness.metrics()["Shuffle.Netty.Output.Buffers.outputQueueLength"] <= 1
        assert task.records_in <= 4
        # It is woken by credit alone: any other answer would have the thread spin.
        assert task.seconds_until_due(perf_counter()) is None
        harness.hold_outputs = False
        harness.run()
        assert harness.output == list(range(20))
        assert task.time.phase.name == "IDLE"


def test_back_pressure_reaches_the_task_before() -> None:
    configuration = {"taskmanager.network.channel.credit-batches": "2"}
    with OperatorHarness(two_stages, output_credit=2, configuration=configuration) as harness:
        harness.hold_outputs = True
        for number in range(60):
            harness.push(number)
        assert [task.time.phase for task in harness.tasks] == [Phase.BACK_PRESSURED] * 2
        assert all(task.gate.queued <= 60 for task in harness.tasks)
        assert harness.tasks[1].gate.queued <= 3
        assert harness.tasks[0].records_in < 12
        harness.hold_outputs = False
        harness.run()
        assert harness.output == list(range(60))


class Ticking(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_processing_time_timer(1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield from [ctx.get_current_key()] * 100


def test_timers_wait_for_credit_too() -> None:
    configuration = {"execution.batch.max-rows": "10"}
    with OperatorHarness(
        lambda s: s.key_by(lambda v: v).process(Ticking()), output_credit=1, configuration=configuration
    ) as harness:
        (task,) = harness.tasks
        task.slices.length = 0.0
        harness.push(*range(50))
        harness.hold_outputs = True
        harness.advance(1)
        # One timer a slice of no length, and the slice after it finds no credit.
        assert task.partitions[0].queued <= 11
        assert task.seconds_until_due(perf_counter()) is None
        harness.hold_outputs = False
        harness.run()
        assert sorted(harness.output) == sorted(list(range(50)) * 100)


def test_a_peer_that_broke_off_leaves_time_for_the_verdict() -> None:
    with OperatorHarness(lambda s: s.map(lambda v: v)) as harness:
        harness.push(1)
        for channel in harness.fragment.inputs[harness._inputs[0]]:
            channel.close("the connection to worker x broke")
        harness.run()
        (task,) = harness.tasks
        assert task.life.stage is TaskStage.AWAITING_VERDICT
        assert harness.output == [1]
        due = task.seconds_until_due(perf_counter())
        assert due is not None and due <= VERDICT_SECONDS
        harness.advance(VERDICT_SECONDS / 2)
        with pytest.raises(FragmentFailedError) as failed:
            harness.advance(VERDICT_SECONDS / 2)
        assert failed.value.cause.exception_name.endswith("ChannelFailedError")
        assert "worker x broke" in failed.value.cause.message
        assert len(harness.failures) == 1


def test_a_verdict_in_time_is_a_cancel() -> None:
    with OperatorHarness(lambda s: s.map(lambda v: v)) as harness:
        for channel in harness.fragment.inputs[harness._inputs[0]]:
            channel.close("broke")
        harness.run()
    assert [state for _, state in harness.states][-1] is ExecutionState.CANCELED
    assert harness.failures == []


class Slow:
    """Takes longer than a slice for a row; at row 5 it does something to a task."""

    def __init__(self, act: Any) -> None:
        self.rows = 0
        self.act = act

    def __call__(self, value: Any) -> Any:
        end = perf_counter() + 0.006
        while perf_counter() < end:
            pass
        self.rows += 1
        if self.rows == 5:
            self.act()
        return value


SLOW: list[Slow] = []


def slow(value: Any) -> Any:
    return SLOW[0](value)


@pytest.mark.parametrize("upstream", [False, True])
def test_a_mail_waits_for_a_row_or_two(upstream: bool) -> None:
    seen: list[int] = []

    def act() -> None:
        task = harness.tasks[0 if upstream else 1]
        task.post(lambda: seen.append(SLOW[0].rows))

    SLOW[:] = [Slow(act)]
    with OperatorHarness(lambda s: s.map(lambda v: v).rebalance().map(slow)) as harness:
        harness.push(*range(12))
        assert len(harness.output) == 12
    assert len(seen) == 1
    assert seen[0] - 5 <= 2


def test_cancel_and_barrier_at_the_source_wait_for_a_row_or_two() -> None:
    sent: list[int] = []

    def barrier() -> None:
        first = harness.tasks[0]

        def inject() -> None:
            first.broadcast(CheckpointBarrier(1, 0))
            sent.append(SLOW[0].rows)

        first.post(inject)

    SLOW[:] = [Slow(barrier)]
    with OperatorHarness(lambda s: s.map(lambda v: v).rebalance().map(slow)) as harness:
        harness.push(*range(8))
        assert sent[0] - 5 <= 2
        assert any(isinstance(element, CheckpointBarrier) for element in harness.elements())
    SLOW[:] = [Slow(lambda: harness.tasks[1].post(harness.tasks[1].cancel))]
    with OperatorHarness(lambda s: s.map(lambda v: v).rebalance().map(slow)) as harness:
        harness.push(*range(100))
        assert SLOW[0].rows - 5 <= 2
        assert harness.tasks[1].life.stage is TaskStage.ENDED


CUT: list[Any] = []


def suddenly_slow(value: int) -> int:
    """Quick rows make a large chunk; at row 9,000 another thread has something for the task."""
    if value == 9_000:
        poster = threading.Thread(target=CUT[0])
        poster.start()
        poster.join()
    CUT.append(value)
    return value


@pytest.mark.parametrize("timestamps", [False, True])
def test_a_mail_from_another_thread_ends_a_chunk_of_thousands_of_rows(timestamps: bool) -> None:
    seen: list[int] = []
    rows = 12_000
    with OperatorHarness(lambda s: s.map(suddenly_slow)) as harness:
        (task,) = harness.tasks
        CUT[:] = [lambda: task.post(lambda: seen.append(CUT[-1]))]
        stamps = list(range(rows)) if timestamps else None
        harness.push(*range(rows), timestamps=stamps)
        assert harness.output == list(range(rows))
        assert harness.timestamps() == (stamps if timestamps else [None] * rows)
        assert seen == [9_000]
        assert harness.metrics()["Map.numRecordsIn"] == harness.metrics()["numRecordsIn"] == rows


def test_mail_delays_are_measured() -> None:
    with OperatorHarness(lambda s: s.map(lambda v: v)) as harness:
        (task,) = harness.tasks
        task.post(lambda: None)
        assert harness.metrics()["mailboxQueueSize"] == 1
        harness.run()
        assert task.mail_delays.count == 1
        assert harness.metrics()["mailboxQueueSize"] == 0


def test_a_mail_that_raises_fails_the_task_once() -> None:
    def bad() -> None:
        raise ValueError("mail")

    with OperatorHarness(lambda s: s.map(lambda v: v)) as harness:
        (task,) = harness.tasks
        task.post(bad)
        task.post(bad)
        with pytest.raises(FragmentFailedError, match="ValueError: mail"):
            harness.run()
        task.fail(ValueError("late"))
        task.cancel()
        assert len(harness.failures) == 1
        assert [state for _, state in harness.states][-1] is ExecutionState.FAILED


def test_latency_markers_are_measured_where_they_arrive() -> None:
    with OperatorHarness(two_stages) as harness:
        harness.clock.advance(1)
        harness.send(LatencyMarker(300, "ab" * 16, 0))
        assert sum(isinstance(element, LatencyMarker) for element in harness.elements()) == 1
        for index, task in enumerate(harness.tasks):
            operator = task.chain._vertex.operators[0].id
            name = f"latency.source_id.{'ab' * 16}.operator_id.{operator}.operator_subtask_index.0.latency"
            assert harness.metrics(index)[f"{name}_mean"] == 700
            assert harness.metrics(index)[f"{name}_p99"] == 700


def test_times_of_phases_add_up() -> None:
    times = TimeAccounting(0.0)
    times.enter(Phase.BUSY, 1.0)
    times.enter(Phase.BACK_PRESSURED, 1.5)
    times.enter(Phase.IDLE, 3.0)
    times.enter(Phase.HARD_BACK_PRESSURED, 4.0)
    assert times.totals_ms(4.25) == [500.0, 2000.0, 1500.0, 250.0]
    assert sum(times.per_second(4.25)) == pytest.approx(1000)
