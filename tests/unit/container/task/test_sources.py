"""Sources on a worker: rows, failures, cancel, bounded handover; print, accumulators and metrics of what they feed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from tests.support.worker_harness import JobFailedInHarness, WorkerHarness
from yarrow.common.accumulators import IntCounter
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.operators.sources import source_function
from yarrow.container.protocol.worker_protocol import MetricsReport, TaskStateChanged
from yarrow.datastream import (
    CoMapFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    SourceFunction,
    StreamExecutionEnvironment,
)
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import TaskExecutionStateUpdate


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerHarness]:
    with WorkerHarness(1, processes=False) as harness:
        yield harness


def environment(parallelism: int = 1) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)


def run(workers: WorkerHarness, env: StreamExecutionEnvironment) -> list[str]:
    workers.output.clear()
    workers.run(env.get_job_graph("sources"))
    return list(workers.output)


def until(workers: WorkerHarness, condition: Callable[[], bool]) -> None:
    """Takes messages until the condition holds."""
    deadline = perf_counter() + 60
    while not condition():
        workers.next_message(deadline)


class Numbers(SourceFunction[int]):
    """Emits one list, changed before each collect."""

    def run(self, ctx: Any) -> None:
        shared: list[int] = []
        for number in range(5):
            shared.append(number)
            ctx.collect(shared)
        shared.append(99)

    def cancel(self) -> None:
        Calls.made.append("cancel")

    def close(self) -> None:
        Calls.made.append("close")


class Calls:
    """What the functions of this module were called with; workers are threads of this process."""

    made: ClassVar[list[str]] = []
    emitted: ClassVar[list[int]] = [0]
    go: ClassVar[threading.Event] = threading.Event()


def test_what_a_source_function_collected_is_fixed(workers: WorkerHarness) -> None:
    Calls.made.clear()
    env = environment()
    env.add_source(Numbers()).print()
    assert run(workers, env) == [str(list(range(n + 1))) for n in range(5)]
    # It came to its end by itself: nothing was cancelled.
    assert Calls.made == ["close"]


class Broken(SourceFunction[int]):
    def run(self, ctx: Any) -> None:
        ctx.collect(1)
        raise LookupError("the source broke")

    def cancel(self) -> None:
        return None


def test_a_source_function_that_raises(workers: WorkerHarness) -> None:
    env = environment()
    env.add_source(Broken(), "my source").print()
    with pytest.raises(JobFailedInHarness) as failed:
        run(workers, env)
    cause = failed.value.cause
    assert cause.exception_name == "builtins.LookupError"
    assert cause.operator_name == "Source: my source"
    assert __file__ in cause.stacktrace.splitlines()[1]
    assert workers.output == ["1"]


class Endless(SourceFunction[int]):
    def run(self, ctx: Any) -> None:
        self.running = True
        while self.running:
            ctx.collect(Calls.emitted[0])
            Calls.emitted[0] += 1

    def cancel(self) -> None:
        Calls.made.append("cancel")
        self.running = False
        raise ValueError("cancel() raises, too")


class Waiting(MapFunction[int, int]):
    """Stands still at the first row until told to go on."""

    def map(self, value: int) -> int:
        assert Calls.go.wait(120)
        return value


def test_a_source_function_waits_for_a_slow_consumer_and_ends_when_cancelled(workers: WorkerHarness) -> None:
    Calls.made.clear()
    Calls.go.clear()
    Calls.emitted[0] = 0
    env = environment()
    env.add_source(Endless()).map(Waiting()).print()
    workers.deploy(env.get_job_graph("slow"))
    until(workers, lambda: Calls.emitted[0] >= source_function._HANDOVER_ROWS)
    states: list[ExecutionState] = []
    before = Calls.emitted[0]
    # A report comes a second later: the source has had time to run on.
    message = workers.next_message(perf_counter() + 60)
    while not isinstance(message, MetricsReport):
        message = workers.next_message(perf_counter() + 60)
    assert Calls.emitted[0] <= before + 1 <= source_function._HANDOVER_ROWS + 2
    workers.cancel()
    Calls.go.set()
    while not states or not states[-1].is_terminal:
        message = workers.next_message(perf_counter() + 60)
        if isinstance(message, TaskStateChanged):
            states.append(message.update.state)
    assert states == [ExecutionState.CANCELED]
    assert Calls.made == ["cancel"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("source ")]


class BadReader(NumberSequenceSource):
    def create_reader(self, context: Any) -> Any:
        reader = super().create_reader(context)

        def poll(max_rows: int) -> Any:
            raise LookupError("poll")

        reader.poll = poll  # type: ignore[method-assign]
        return reader


class BadEnumerator(NumberSequenceSource):
    def create_enumerator(self, context: Any, state: Any = None) -> Any:
        raise LookupError("enumerator")


@pytest.mark.parametrize("source", [BadReader, BadEnumerator])
def test_a_source_whose_parts_raise_is_named(workers: WorkerHarness, source: Any) -> None:
    env = environment(2)
    env.from_source(source(0, 10), WatermarkStrategy.no_watermarks(), "bad").map(lambda v: v).print()
    with pytest.raises(JobFailedInHarness) as failed:
        run(workers, env)
    assert failed.value.cause.exception_name == "builtins.LookupError"
    assert failed.value.cause.operator_name == "Source: bad"
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("split enumerator of bad")
    ]


class Counting(MapFunction[int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.counter = IntCounter()
        runtime_context.add_accumulator("rows", self.counter)
        self.metric = runtime_context.get_metrics_group().counter("mine")

    def map(self, value: int) -> int:
        self.counter.add(1)
        self.metric.inc()
        return value


def test_print_is_complete_and_in_order_for_each_subtask(workers: WorkerHarness) -> None:
    env = environment(2)
    env.from_sequence(1, 5000).print("out")
    lines = run(workers, env)
    assert len(lines) == 5000
    for subtask in (1, 2):
        rows = [int(line.partition("> ")[2]) for line in lines if line.startswith(f"out:{subtask}> ")]
        assert rows == sorted(rows) and rows


def test_accumulators_and_metrics_are_in_the_last_report(workers: WorkerHarness) -> None:
    env = environment()
    env.from_collection(list(range(300))).map(Counting()).name("counting").print()
    workers.output.clear()
    workers.deploy(env.get_job_graph("metrics"))
    ended: list[TaskExecutionStateUpdate] = []
    while not ended:
        message = workers.next_message(perf_counter() + 60)
        if isinstance(message, TaskStateChanged) and message.update.state.is_terminal:
            ended.append(message.update)
    assert ended[0].state is ExecutionState.FINISHED
    assert ended[0].accumulators == {"rows": 300}
    assert len(workers.output) == 300
    metrics = ended[0].metrics
    for name in ("numRecordsIn", "numRecordsOut", "numBytesIn", "numBytesOut", "numBuffersOut"):
        assert name in metrics and f"{name}PerSecond" in metrics
    for name in (
        "busyTimeMsPerSecond",
        "idleTimeMsPerSecond",
        "backPressuredTimeMsPerSecond",
        "isBackPressured",
    ):
        assert name in metrics
    assert metrics["counting.mine"] == 300
    assert metrics["counting.numRecordsIn"] == metrics["counting.numRecordsOut"] == 300


class Sides(ProcessFunction[int, Any]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if value % 10 == 0:
            yield OutputTag("tens"), value
        else:
            yield value


def test_records_of_each_operator_are_counted(workers: WorkerHarness) -> None:
    env = environment()
    kept = (
        env.from_collection(list(range(100)))
        .map(lambda v: v)
        .name("mapped")
        .filter(lambda v: v < 50)
        .name("kept")
    )
    doubled = kept.flat_map(lambda v: [v, v]).name("doubled")
    split = doubled.process(Sides()).name("split")
    split.get_side_output(OutputTag("tens")).map(str).name("tens").print()
    split.map(str).name("others").key_by(lambda v: v).reduce(lambda a, b: a).name("reduced").print()
    workers.final_metrics.clear()
    run(workers, env)
    metrics = {name: value for task in workers.final_metrics.values() for name, value in task.items()}

    def counts(operator: str) -> tuple[float, float]:
        return metrics[f"{operator}.numRecordsIn"], metrics[f"{operator}.numRecordsOut"]

    assert counts("Source__Collection_Source")[1] == 100
    assert counts("mapped") == (100, 100)
    assert counts("kept") == (100, 50)
    assert counts("doubled") == (50, 100)
    assert counts("split") == (100, 100)
    assert counts("tens") == (10, 10)
    assert counts("others") == (90, 90)
    assert counts("reduced") == (90, 90)


class Either(CoMapFunction[int, int, int]):
    """Rows of both inputs as they come."""

    def map1(self, value: int) -> int:
        return value

    def map2(self, value: int) -> int:
        return value


def test_latency_markers_of_each_source_reach_every_operator_behind_it() -> None:
    with WorkerHarness(2, processes=False, configuration={"metrics.latency.interval": "1 ms"}) as workers:
        env = environment(2)
        first = env.from_sequence(0, 20_000).map(lambda v: v).name("beside the source")
        second = env.from_sequence(0, 20_000)
        joined = first.rebalance().connect(second.rebalance()).map(Either()).name("of two inputs")
        joined.key_by(lambda v: v).reduce(max).name("of keys").filter(lambda v: False).print()
        graph = env.get_job_graph("latency")
        workers.run(graph)
        metrics = {name: value for task in workers.final_metrics.values() for name, value in task.items()}
    operators = {str(op.id): op.name for vertex in graph.vertices for op in vertex.operators}
    sources = {str(vertex.operators[0].id) for vertex in graph.vertices if vertex.is_source}
    measured = {
        (name.split(".")[2], name.split(".")[4])
        for name, value in metrics.items()
        if name.startswith("latency.source_id.") and name.endswith(".latency_p99") and value >= 0
    }
    behind = {operators[target] for _, target in measured}
    assert behind == set(operators.values()) - {operators[source] for source in sources}
    assert {source for source, _ in measured} == sources and len(sources) == 2
