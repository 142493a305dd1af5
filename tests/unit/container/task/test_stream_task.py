"""A subtask between its gate and its outputs: credit, mails between slices, control elements, broken peers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from yarrow.container.metrics.time_accounting import Phase, TimeAccounting
from yarrow.container.task.slice_sizer import PollSizer, SliceSizer
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


def test_chunks_follow_the_cost_of_a_row() -> None:
    sizer = SliceSizer(0.005)
    assert sizer.rows == 1
    for _ in range(10):
        sizer.measured(sizer.rows, sizer.rows * 1e-7)
    assert sizer.rows == 2048
    # A single slow chunk may have lost its core; several in a row are a slow function.
    sizer.measured(2048, 2048 * 1e-3)
    assert sizer.rows == 512
    sizer.measured(512, 512 * 1e-7)
    assert sizer.rows == 2048
    late = 0.0
    while sizer.rows > 1:
        late += sizer.rows * 1e-3
        sizer.measured(sizer.rows, sizer.rows * 1e-3)
    assert late < 2.048 * 4 / 3
    sizer.measured(0, 1.0)
    assert sizer.rows == 1
    # Nothing but a trial tells that two rows cost twice as much as one.
    sizes = []
    for _ in range(50):
        sizes.append(sizer.rows)
        sizer.measured(sizer.rows, sizer.rows * 0.02)
    assert set(sizes) == {1, 2} and sizes.count(2) <= 2


@pytest.mark.parametrize("fixed", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_chunks_spread_what_a_call_costs_by_itself(fixed: float, noise: float) -> None:
    sizer, random = SliceSizer(0.005), Random(1)
    for _ in range(40):
        seconds = fixed + sizer.rows * 1e-6
        sizer.measured(sizer.rows, seconds * random.lognormvariate(0, noise))
    assert sizer.rows == 2048


def test_a_fixed_cost_is_spread_to_a_tenth_and_no_further() -> None:
    sizer = SliceSizer(0.005)
    for _ in range(100):
        sizer.measured(sizer.rows, 0.01 + sizer.rows * 1e-4)
    assert sizer.rows == pytest.approx(900, abs=20)
    # From now on it is the rows that cost.
    late = 0.0
    while sizer.rows > 1:
        late += sizer.rows * 1e-2
        sizer.measured(sizer.rows, sizer.rows * 1e-2)
    assert late < 9.0 * 4 / 3


def chunks_of(row_seconds: float) -> SliceSizer:
    """The chunks of a chain in which each row takes that long."""
    chunks = SliceSizer(0.005)
    for _ in range(20):
        chunks.measured(chunks.rows, chunks.rows * row_seconds)
    return chunks


def test_a_source_is_asked_for_many_rows_from_the_first_poll_on() -> None:
    quick = chunks_of(1e-6)
    slow = PollSizer(0.005, blocking=False)
    asked = [slow.rows]
    for _ in range(40):
        slow.measured(slow.rows, slow.rows * 1e-3, quick)
        asked.append(slow.rows)
    assert set(asked) == {256, 512} and asked.count(512) <= 2
    for fixed in (0.001, 0.01, 0.1):
        sizer = PollSizer(0.005, blocking=False)
        for _ in range(5):
            assert sizer.rows >= 256
            sizer.measured(sizer.rows, fixed, quick)
        assert sizer.rows == 2048
        for _ in range(500):
            sizer.measured(sizer.rows, fixed + sizer.rows * 1e-7, quick)
            assert sizer.rows == 2048
    blocking = PollSizer(0.005, blocking=True)
    assert blocking.rows == 2048
    blocking.measured(10, 5.0, quick)
    assert blocking.rows == 2048


def test_where_rows_cost_much_behind_the_source_no_more_are_asked_for() -> None:
    sizer, slow = PollSizer(0.005, blocking=False), chunks_of(0.01)
    for _ in range(50):
        sizer.measured(sizer.rows, 0.02, slow)
        assert sizer.rows == 256


def test_chunks_are_longer_where_state_is_read_for_all_of_a_chunk() -> None:
    sizer = SliceSizer(0.005)
    sizer.read_ahead()
    for _ in range(10):
        sizer.measured(sizer.rows, sizer.rows * 1e-5)
    assert sizer.rows == 1000
    for _ in range(10):
        sizer.measured(sizer.rows, sizer.rows * 1e-7)
    assert sizer.rows == 1024


def test_rows_that_state_is_read_for_at_once_fill_four_slices() -> None:
    sizer = SliceSizer.of_reads(0.005)
    for _ in range(10):
        sizer.measured(sizer.rows, sizer.rows * 1e-5)
    assert sizer.rows == pytest.approx(2000, abs=1)
    for _ in range(10):
        sizer.measured(sizer.rows, sizer.rows * 1e-6)
    assert sizer.rows == 4096


def test_times_of_phases_add_up() -> None:
    times = TimeAccounting(0.0)
    times.enter(Phase.BUSY, 1.0)
    times.enter(Phase.BACK_PRESSURED, 1.5)
    times.enter(Phase.IDLE, 3.0)
    times.enter(Phase.HARD_BACK_PRESSURED, 4.0)
    assert times.totals_ms(4.25) == [500.0, 2000.0, 1500.0, 250.0]
    assert sum(times.per_second(4.25)) == pytest.approx(1000)
