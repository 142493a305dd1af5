"""What the metrics of a task measure: soft and hard back pressure, use of credit, local and remote input, timers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from tests.support.worker_harness import WorkerHarness
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.metrics.metric_registry import MetricRegistry, OperatorMetricGroup
from yarrow.container.operators.sources.source_metrics import SourceMetrics, SplitMetrics
from yarrow.datastream import KeyedProcessFunction, MapFunction, SourceFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.number_seq import NumberRange, NumberSequenceSource
from yarrow.runtime.common.clock import ManualClock, perf_counter
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.testing.operator_harness import OperatorHarness


class Gate:
    """Closed until a test opens it; workers are threads of this process."""

    opened: ClassVar[threading.Event] = threading.Event()


class WaitsAtGate(MapFunction[int, int]):
    """Its second subtask stands still until the gate opens; the other one passes everything."""

    def open(self, runtime_context: Any) -> None:
        self._waits = runtime_context.get_index_of_this_subtask() == 1

    def map(self, value: int) -> int:
        if self._waits:
            Gate.opened.wait(120)
        return value


class Flood(SourceFunction[int]):
    """Emits until it is cancelled."""

    def __init__(self) -> None:
        self._running = True

    def run(self, ctx: Any) -> None:
        number = 0
        while self._running and number < 200_000:
            ctx.collect(number)
            number += 1

    def cancel(self) -> None:
        self._running = False


def flood(env: StreamExecutionEnvironment) -> Any:
    return env.add_source(Flood(), "flood")


def numbers(env: StreamExecutionEnvironment) -> Any:
    return env.from_source(
        NumberSequenceSource(1, 200_000), WatermarkStrategy.no_watermarks(), "flood"
    ).set_parallelism(1)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "pressure"), [(flood, "hard"), (numbers, "soft")])
def test_back_pressure_is_hard_where_user_code_stands_still_in_an_emit(
    source: Callable[[StreamExecutionEnvironment], Any], pressure: str
) -> None:
    Gate.opened.clear()
    with WorkerHarness(2, processes=False, tcp=True) as workers:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
        source(env).rebalance().map(WaitsAtGate()).name("gate").print()
        graph = env.get_job_graph("pressure")
        workers.deploy(graph)
        (vertex,) = [str(vertex.id) for vertex in graph.vertices if "flood" in vertex.name]
        deadline = perf_counter() + 120
        rates: dict[str, float] = {}
        try:
            while rates.get(f"{pressure}BackPressuredTimeMsPerSecond", 0) < 500:
                workers.next_message(deadline)
                for _, report in workers.metrics[-1:]:
                    for task in report.tasks:
                        if task.attempt_id.split("_")[1] == vertex:
                            rates = task.values
        finally:
            Gate.opened.set()
        both = [rates[f"{kind}BackPressuredTimeMsPerSecond"] for kind in ("soft", "hard")]
        assert sum(both) == pytest.approx(rates["backPressuredTimeMsPerSecond"], abs=1)
        if pressure == "soft":
            assert both[1] == 0
        assert rates["isBackPressured"] == 1
        # One of two channels has no credit left.
        assert 0.5 <= rates["Shuffle.Netty.Output.Buffers.outPoolUsage"] <= 1
        workers.finish(120)
        inputs = [values for values in workers.final_metrics.values() if values["numBytesIn"]]
        # The source sits in the first worker: one consumer is beside it, the other in another TaskExecutor.
        local = [(v["numBytesInLocal"] > 0, v["numBytesInRemote"] > 0) for v in inputs]
        assert sorted(local) == [(False, True), (True, False)]


def test_usage_follows_the_credit_that_is_out() -> None:
    def two_stages(stream: Any) -> Any:
        return stream.map(lambda v: v).rebalance().map(lambda v: v)

    configuration = {"taskmanager.network.channel.credit-batches": "2"}
    with OperatorHarness(two_stages, output_credit=2, configuration=configuration) as harness:
        first, second = (task.environment.metrics for task in harness.tasks)

        def usage(name: str) -> list[float]:
            return [registry.values()[name] for registry in (first, second)]

        assert usage("buffers.inPoolUsage") == usage("buffers.outPoolUsage") == [0.0, 0.0]
        harness.hold_outputs = True
        for number in range(60):
            harness.push(number)
        # The second has taken what its own output could still hold.
        assert usage("Shuffle.Netty.Input.Buffers.inPoolUsage") == [1.0, 0.5]
        assert usage("Shuffle.Netty.Output.Buffers.outPoolUsage") == [1.0, 1.0]
        harness.hold_outputs = False
        harness.run()
        assert usage("buffers.inPoolUsage") == [0.0, 0.0]
        # The producer learns of what was taken with every second batch.
        assert all(share <= 0.5 for share in usage("buffers.outPoolUsage"))


class Ticking(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield timestamp


def test_timers_are_counted_when_they_fire() -> None:
    with OperatorHarness(lambda s: s.key_by(lambda v: v % 3).process(Ticking())) as harness:
        harness.push(*range(10))
        assert harness.metrics()["numFiredTimers"] == 0
        harness.watermark(6)
        assert harness.metrics()["numFiredTimers"] == 7
        assert harness.metrics()["KeyedProcess.currentInputWatermark"] == 6


# ---------------------------------------------------------------------- sources


class Source:
    """SourceMetrics with a clock and a watermark by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock(10_000)
        self.registry = MetricRegistry(self.clock)
        self.watermark = MIN_TIMESTAMP
        self.metrics = SourceMetrics(
            OperatorMetricGroup(self.registry, ("s",)), self.clock, lambda: self.watermark
        )

    def values(self) -> dict[str, float]:
        return {name.removeprefix("s."): value for name, value in self.registry.values().items()}


def test_lags_are_absent_without_event_time() -> None:
    source = Source()
    source.metrics.fetched()
    source.metrics.emitted(SourceRecords([1, 2]))
    assert source.values() == {"sourceIdleTime": 0}
    source.watermark = MAX_TIMESTAMP
    assert "watermarkLag" not in source.values()


def test_lags_stand_still_while_a_source_is_idle() -> None:
    source = Source()
    source.metrics.fetched()
    source.clock.advance(2.0)
    source.metrics.emitted(SourceRecords([1, 2], [7_000, 9_000]))
    source.watermark = 8_000
    lags = {"currentFetchEventTimeLag": 1_000, "currentEmitEventTimeLag": 3_000, "watermarkLag": 4_000}
    assert source.values() == {**lags, "sourceIdleTime": 0}
    source.metrics.nothing_there()
    source.clock.advance(5.0)
    source.metrics.nothing_there()
    assert source.values() == {**lags, "sourceIdleTime": 5_000}
    source.metrics.fetched()
    assert source.values()["sourceIdleTime"] == 0
    assert source.values()["currentFetchEventTimeLag"] == 8_000


class Tracker:
    """What SplitMetrics looks at."""

    watermark = 5
    idle = False


def test_a_split_is_measured_while_it_is_held() -> None:
    registry = MetricRegistry(ManualClock())
    tracker: Any = Tracker()
    metrics = SplitMetrics(OperatorMetricGroup(registry, ("s",)), "a.b", tracker)
    prefix = "s.split.a.b.watermark."

    def value(name: str) -> float:
        return registry.values()[prefix + name]

    assert value("currentWatermark") == 5
    assert value("accumulatedActiveTimeMs") > 0
    assert value("accumulatedIdleTimeMs") == 0
    tracker.idle = True
    metrics.changed(paused=False)
    active = value("accumulatedActiveTimeMs")
    assert value("accumulatedIdleTimeMs") > 0
    assert value("accumulatedActiveTimeMs") == active
    tracker.idle = False
    metrics.changed(paused=False)
    assert value("accumulatedActiveTimeMs") > active
    metrics.remove()
    assert registry.values() == {}


def test_a_reader_that_knows_what_is_left_says_so() -> None:
    class Context:
        def request_split(self) -> None:
            return None

    source = NumberSequenceSource(1, 100)
    reader = source.create_reader(Context())  # type: ignore[arg-type]
    assert reader.pending_records() == 0
    reader.add_splits([NumberRange("a", 1, 51), NumberRange("b", 51, 101)])
    assert reader.pending_records() == 100
    reader.poll(30)
    assert reader.pending_records() == 70


def test_a_group_whose_names_change_is_read_each_time() -> None:
    registry = MetricRegistry(ManualClock(0))
    group = OperatorMetricGroup(registry, ("source",))
    now = {"topic.t.offset": 1}
    group.register_group(lambda: now)
    assert registry.values() == {"source.topic.t.offset": 1.0}
    now = {"topic.u.offset": 2}
    assert registry.values() == {"source.topic.u.offset": 2.0}

    def failing() -> dict[str, float]:
        raise ValueError("no answer")

    OperatorMetricGroup(registry, ("sink",)).register_group(failing)
    assert registry.values() == {"source.topic.u.offset": 2.0}, "the others are reported"
    group.unregister()
    assert registry.values() == {}
