"""Unaligned checkpoints of jobs whose last stage is slow: with rows in flight, restored at any parallelism, exactly."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.support.checkpoint_harness import CheckpointHarness, TakenCheckpoint
from yarrow.common import Configuration, Row
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.functions import KeyedProcessFunction, MapFunction, RuntimeContext
from yarrow.datastream.state import ListState, ListStateDescriptor
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import AcknowledgeCheckpoint, CheckpointNotice
from yarrow.runtime.snapshot.channel_edges import edge_name
from yarrow.runtime.snapshot.errors import SavepointMismatchError
from yarrow.runtime.snapshot.handles import ChannelStateHandle

ROWS = 12_000
#: Rows a second, more than the last stage takes.
RATE = 20_000
#: Of the job with columns.
COLUMN_ROWS, COLUMN_RATE = 3000, 1333
KEYS = 20
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


@pytest.fixture(scope="module", params=["one worker", "two processes"])
def workers(request: pytest.FixtureRequest) -> Iterator[CheckpointHarness]:
    """By reference, and over TCP with TLS."""
    far = request.param == "two processes"
    # One batch of a few rows a channel: rows wait behind outputs, too.
    narrow = {"taskmanager.network.channel.credit-batches": "1"}
    with CheckpointHarness(2 if far else 1, processes=far, configuration=narrow, tcp=far) as harness:
        yield harness
    harness.close()


class Pace:
    """The pace of one subtask of the last stage: a pause for each row, until a file lies there.

    The pause soon becomes longer. So no job is at its end before the test lets the rows pass, however long the test
    waits for its turn, and the first checkpoints are quick.
    """

    fast: ClassVar[Path]
    #: Rows of a subtask until its pause becomes longer, and how many times as long it is then.
    BRISK: ClassVar = 600
    SLOWER: ClassVar = 8

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._fast = str(Pace.fast)
        self._rows = 0

    def pause(self) -> None:
        """Takes the time of one row."""
        self._rows += 1
        if not os.path.exists(self._fast):
            time.sleep(self._seconds if self._rows <= self.BRISK else self._seconds * self.SLOWER)


@pytest.fixture(autouse=True)
def slow_at_first(tmp_path: Path, workers: CheckpointHarness) -> Iterator[None]:
    """Each test begins with a slow last stage, and leaves no job to the next."""
    Pace.fast = tmp_path / "fast"
    yield
    workers.cancel_and_wait()


def finish(workers: CheckpointHarness) -> None:
    """Lets the rows pass, and returns at the end of the job."""
    Pace.fast.touch()
    workers.until_all(ExecutionState.FINISHED)


class Slow(KeyedProcessFunction[int, Any, str]):
    """Keeps the numbers of each key in the order in which they came; takes its time for each, at first."""

    def __init__(self, seconds: float) -> None:
        self._pace = Pace(seconds)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen: ListState[int] = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        self._pace.pause()
        self._seen.add(value[1])
        seen = list(self._seen)
        if len(seen) >= ROWS // KEYS or len(seen) % 10 == 0:
            yield f"{value[0]}:" + " ".join(map(str, seen))


class Pairs(MapFunction[int, Any]):
    """(key, number)."""

    def map(self, value: int) -> Any:
        return (value % KEYS, value)


class SlowPairs(Pairs):
    """The same, with a pause."""

    def map(self, value: int) -> Any:
        time.sleep(0.0007)
        return super().map(value)


def job(parallelism: int, *, seconds: float = 0.0007, declared: bool = True, **options: str) -> JobGraph:
    settings = {"execution.batch.max-rows": "20"} | {k.replace("_", "."): v for k, v in options.items()}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(parallelism)
    numbers = env.from_source(
        DataGeneratorSource(lambda index: index, ROWS, RateLimiterStrategy.per_second(RATE), Types.LONG()),
        WatermarkStrategy.no_watermarks(),
        "numbers",
    ).uid("numbers")
    # As many as there are splits: a reader without one would end at any time.
    numbers.set_parallelism(2)
    pairs = numbers.rebalance().map(Pairs(), PAIR if declared else None).uid("pairs")
    slow = pairs.key_by(lambda pair: pair[0], Types.LONG()).process(Slow(seconds), Types.STRING()).uid("slow")
    slow.print().uid("print")
    return env.get_job_graph("slow")


def lists(lines: list[str]) -> dict[int, list[int]]:
    """The longest list of each key."""
    found: dict[int, list[int]] = {}
    for line in lines:
        key, _, numbers = line.rpartition("> ")[2].partition(":")
        values = [int(number) for number in numbers.split()]
        if len(values) > len(found.get(int(key), [])):
            found[int(key)] = values
    return found


def check_exact(lines: list[str]) -> None:
    """Every number once."""
    for key, numbers in lists(lines).items():
        assert sorted(numbers) == list(range(key, ROWS, KEYS)), key
    assert len(lists(lines)) == KEYS


def in_flight(taken: TakenCheckpoint) -> list[ChannelStateHandle]:
    found: list[AcknowledgeCheckpoint] = list(taken.acknowledged.values())
    return [c for part in found for state in part.states.values() for c in state.channels]


def unaligned(
    workers: CheckpointHarness, number: int, timeout_ms: int = 0, *, overtakes: bool = True
) -> TakenCheckpoint:
    options = workers.options(number, unaligned=overtakes, aligned_timeout_ms=timeout_ms)
    return workers.checkpoint(number, options)


def begin(workers: CheckpointHarness, graph: JobGraph, restored: TakenCheckpoint | None = None) -> None:
    workers.output.clear()
    workers.checkpoints.clear()
    workers.start(graph, restored)
    workers.until_all(ExecutionState.RUNNING, ExecutionState.FINISHED)
    workers.until(lambda: len(workers.output) > 5)


@pytest.mark.slow
def test_rows_in_flight_are_in_the_checkpoint_once(workers: CheckpointHarness) -> None:
    graph = job(2)
    begin(workers, graph)
    # More of them until the outputs are full.
    for number in range(1, 30):
        taken = unaligned(workers, number)
        held = in_flight(taken)
        if {channel.at_producer for channel in held} == {True, False}:
            break
    else:
        raise AssertionError("rows never waited at inputs and behind outputs at once")
    assert held, "the last stage is slow: rows wait before it"
    metrics = [part.metrics for part in taken.acknowledged.values()]
    assert all(part.unaligned for part in metrics)
    assert sum(part.persisted_bytes for part in metrics) == sum(channel.handle.size for channel in held)
    workers.cancel_and_wait()
    begin(workers, graph, taken)
    finish(workers)
    check_exact(workers.output)


@pytest.mark.slow
def test_recovered_rows_are_in_flight_again(workers: CheckpointHarness) -> None:
    begin(workers, job(2))
    taken = unaligned(workers, 1)
    for number, parallelism in ((2, 2), (3, 3), (4, 1)):
        workers.cancel_and_wait()
        begin(workers, job(parallelism), taken)
        taken = unaligned(workers, number)
        assert in_flight(taken)
    workers.cancel_and_wait()
    begin(workers, job(2), taken)
    finish(workers)
    check_exact(workers.output)


@pytest.mark.slow
def test_an_aligned_checkpoint_holds_no_rows_in_flight(workers: CheckpointHarness) -> None:
    begin(workers, job(2))
    first = unaligned(workers, 1)
    workers.cancel_and_wait()
    begin(workers, job(3), first)
    taken = unaligned(workers, 2, overtakes=False)
    assert not in_flight(taken)
    workers.cancel_and_wait()
    # Its barriers came behind nearly all rows: some keys put out their last list before them.
    before = list(workers.output)
    workers.output.clear()
    workers.start(job(1), taken)
    finish(workers)
    check_exact(before + workers.output)


@pytest.mark.slow
def test_undeclared_rows_are_read_by_their_own_job_alone(workers: CheckpointHarness) -> None:
    graph = job(2, declared=False)
    begin(workers, graph)
    taken = unaligned(workers, 1)
    assert any(channel.rows is not None and channel.rows.type_spec is None for channel in in_flight(taken))
    workers.cancel_and_wait()
    other = job(2, declared=False)
    assert other.job_id != graph.job_id
    with pytest.raises(SavepointMismatchError, match="pickled records in flight"):
        workers.start(other, taken)
    begin(workers, graph, taken)
    finish(workers)
    check_exact(workers.output)


def test_a_job_without_the_edge_is_refused(workers: CheckpointHarness) -> None:
    begin(workers, job(2))
    taken = unaligned(workers, 1)
    workers.cancel_and_wait()
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.from_source(
        NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    ).uid("numbers").map(Pairs(), PAIR).uid("pairs").key_by(lambda pair: pair[0], Types.LONG()).process(
        Slow(0), Types.STRING()
    ).uid("slow").print().uid("other")
    with pytest.raises(SavepointMismatchError, match=r"does not have.*savepoint"):
        workers.start(env.get_job_graph("other"), taken)


@pytest.mark.parametrize("forced", [False, True])
def test_pointwise_edges_hold_rows_only_where_it_is_forced(workers: CheckpointHarness, forced: bool) -> None:
    settings = {
        "execution.batch.max-rows": "20",
        "execution.checkpointing.unaligned.forced": str(forced).lower(),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2)
    source = DataGeneratorSource(
        lambda index: index % ROWS, 10**9, RateLimiterStrategy.per_second(RATE // 5), Types.LONG()
    )
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    slow = numbers.rescale().map(SlowPairs(), PAIR).name("pairs")
    slow.key_by(lambda pair: pair[0], Types.LONG()).process(Slow(0.0), Types.STRING()).print()
    graph = env.get_job_graph("pointwise")
    begin(workers, graph)
    held = [
        channel
        for number in range(1, 4 if forced else 2)
        for channel in in_flight(unaligned(workers, number))
    ]
    workers.cancel_and_wait()
    pointwise = edge_name(graph, graph.edges[0])
    assert any(channel.edge == pointwise for channel in held) is forced


@pytest.mark.slow
def test_with_a_timeout_that_does_not_pass_nothing_is_overtaken(workers: CheckpointHarness) -> None:
    graph = job(2, seconds=0.0001)
    begin(workers, graph)
    far = 10**15
    taken = unaligned(workers, 1, timeout_ms=far)
    assert not in_flight(taken)
    assert not any(part.metrics.unaligned for part in taken.acknowledged.values())
    workers.cancel_and_wait()


@pytest.mark.slow
def test_an_aborted_checkpoint_holds_nothing(workers: CheckpointHarness) -> None:
    begin(workers, job(2))
    for number in (1, 2, 3):
        workers.trigger(number, workers.options(number, unaligned=True))
        workers.notify(number, CheckpointNotice.ABORTED)
    taken = unaligned(workers, 4)
    workers.cancel_and_wait()
    begin(workers, job(2), taken)
    finish(workers)
    check_exact(workers.output)


class SlowPrintable(MapFunction[Any, str]):
    """key:sum, after a pause."""

    def __init__(self) -> None:
        self._pace = Pace(0.002)

    def map(self, value: Any) -> str:
        self._pace.pause()
        return f"{value[0]}:{value[1]}"


def columnar_job(parallelism: int) -> JobGraph:
    settings = Configuration.from_dict({"execution.buffer-timeout.interval": "1 ms"})
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(parallelism)
    numbers = env.from_source(
        DataGeneratorSource(
            lambda index: index, COLUMN_ROWS, RateLimiterStrategy.per_second(COLUMN_RATE), Types.LONG()
        ),
        WatermarkStrategy.no_watermarks(),
        "numbers",
    ).uid("numbers")
    numbers.set_parallelism(2)
    named = Types.ROW_NAMED(["key", "n"], [Types.LONG(), Types.LONG()])
    pairs = numbers.rebalance().map(lambda n: Row(key=n % KEYS, n=n), named).uid("pairs")
    sums = pairs.to_arrow().key_by("key").sum("n")
    sums.to_rows(as_tuple=True).map(SlowPrintable(), Types.STRING()).print()
    return env.get_job_graph("columns")


@pytest.mark.slow
def test_columns_in_flight(workers: CheckpointHarness) -> None:
    """Columnar edges, keyed: at other parallelisms each subtask leaves out the rows of others."""
    begin(workers, columnar_job(2))
    held = 0
    taken = unaligned(workers, 1)
    for number, parallelism in ((2, 3), (3, 1)):
        held += len(in_flight(taken))
        workers.cancel_and_wait()
        begin(workers, columnar_job(parallelism), taken)
        taken = unaligned(workers, number)
    workers.cancel_and_wait()
    workers.start(columnar_job(2), taken)
    finish(workers)
    assert held
    found: dict[int, int] = {}
    for line in workers.output:
        key, _, total = line.rpartition("> ")[2].partition(":")
        found[int(key)] = max(int(total), found.get(int(key), 0))
    assert found == {key: sum(range(key, COLUMN_ROWS, KEYS)) for key in range(KEYS)}
