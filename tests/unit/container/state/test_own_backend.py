"""A state backend of the user's own in a job: all kinds of state, time to live and timers, checkpoints, restores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.checkpoint_harness import CheckpointHarness
from tests.support.total import Total
from yarrow.common import Duration, Types
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import (
    CustomStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    RuntimeContext,
    StateBackend,
    StreamExecutionEnvironment,
)
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.datastream.state import (
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import CheckpointNotice

#: So many rows that the first job is not at its end before it is cancelled.
KEYS, COUNT = 5, 10_000
OWN = CustomStateBackend("tests.unit.container.state.own_backend:OwnBackend")
END = 1 << 50


class Kinds(KeyedProcessFunction[int, int, Any]):
    """Counts in every kind of state, and tells of it when event time ends."""

    def open(self, runtime_context: RuntimeContext) -> None:
        value: ValueStateDescriptor[int] = ValueStateDescriptor("value", Types.LONG())
        value.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_days(1)).build())
        self.value = runtime_context.get_state(value)
        self.list: ListState[int] = runtime_context.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map: MapState[bool, int] = runtime_context.get_map_state(
            MapStateDescriptor("map", Types.BOOLEAN(), Types.LONG())
        )
        self.reducing = runtime_context.get_reducing_state(
            ReducingStateDescriptor("reducing", lambda a, b: a + b, Types.LONG())
        )
        self.aggregating = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("aggregating", Total(), Types.LONG())
        )

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(END)
        self.value.update((self.value.value() or 0) + 1)
        self.list.add(value)
        self.map.put(value % 2 == 0, (self.map.get(value % 2 == 0) or 0) + 1)
        self.reducing.add(value)
        self.aggregating.add(value)
        yield "row"

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield (
            "total",
            ctx.get_current_key(),
            self.value.value(),
            sorted(self.list.get()),
            dict(sorted(self.map.items())),
            self.reducing.get(),
            self.aggregating.get(),
        )


def job(parallelism: int, backend: StateBackend, rate: float) -> JobGraph:
    """`rate`: rows a second."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    env.set_state_backend(backend)
    source = DataGeneratorSource(lambda i: i, COUNT, RateLimiterStrategy.per_second(rate))
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.key_by(lambda v: v % KEYS).process(Kinds()).uid("kinds").print()
    return env.get_job_graph("kinds")


@pytest.fixture(scope="module")
def workers() -> Iterator[CheckpointHarness]:
    with CheckpointHarness(2, processes=False) as harness:
        yield harness
    harness.close()


@pytest.mark.slow
@pytest.mark.parametrize("then", [OWN, HashMapStateBackend()], ids=["own", "hashmap"])
def test_a_job_goes_on_from_a_checkpoint_of_a_backend_of_ones_own(
    workers: CheckpointHarness, then: StateBackend
) -> None:
    workers.output.clear()
    workers.start(job(2, OWN, 2500))
    workers.until_all(ExecutionState.RUNNING)
    workers.until(lambda: len(workers.output) > 200)
    taken = workers.trigger(1)
    workers.wait_acknowledged(taken)
    workers.notify(1, CheckpointNotice.COMPLETED)
    workers.cancel_and_wait()
    workers.output.clear()
    workers.start(job(3, then, 1e6), taken)
    workers.until_all(ExecutionState.FINISHED)
    rows = [line.partition("> ")[2] or line for line in workers.output]
    assert 0 < rows.count("row") < COUNT, "it went on, and did not begin anew"
    totals = sorted(eval(row) for row in rows if row != "row")
    assert totals == [
        ("total", key, len(numbers), numbers, _halves(numbers), sum(numbers), sum(numbers))
        for key in range(KEYS)
        for numbers in [list(range(key, COUNT, KEYS))]
    ]


def _halves(numbers: list[int]) -> dict[bool, int]:
    even = sum(number % 2 == 0 for number in numbers)
    return {False: len(numbers) - even, True: even}
