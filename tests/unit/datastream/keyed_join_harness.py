"""A harness with one join of two keyed streams, on either state backend, for tests of the rules of joins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from yarrow.datastream import (
    DataStream,
    KeyedStream,
    OutputTag,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
)
from yarrow.testing.operator_harness import OperatorHarness

ROW = Types.TUPLE([Types.STRING(), Types.LONG()])
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
MAX = (1 << 63) - 1

#: Puts a join behind two keyed streams and gives what has `process`.
Join = Callable[[KeyedStream, KeyedStream], Any]
#: Opens a harness: run(join), run(join, function).
Run = Callable[..., OperatorHarness]


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    """Shows each pair by the second fields of its rows."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left and left[1], right and right[1]


class Stamped(TimestampAssigner):
    """The time is the second field of a record."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


@contextmanager
def opened(backend: str) -> Iterator[Run]:
    """Gives a function that opens harnesses; they are closed in the end."""
    harnesses: list[OperatorHarness] = []

    def start(join: Join, function: Any = None) -> OperatorHarness:
        def build(first: DataStream, second: DataStream) -> list[DataStream]:
            left, right = first.key_by(lambda row: row[0]), second.key_by(lambda row: row[0])
            made = join(left, right).process(function or Pairs())
            return [made, made.get_side_output(LATE)]

        harnesses.append(OperatorHarness(build, inputs=2, configuration={"state.backend.type": backend}))
        return harnesses[-1]

    yield start
    for harness in harnesses:
        harness.close()


def push(harness: OperatorHarness, input: int, *times: int, key: str = "a") -> None:
    """Sends rows whose second field is their time."""
    harness.push(*[(key, time) for time in times], input=input, timestamps=list(times))


def watermark(harness: OperatorHarness, time: int) -> None:
    """Sends a watermark of both inputs."""
    for input in range(2):
        harness.watermark(time, input)


def results(harness: OperatorHarness, output: int = 0) -> list[Any]:
    """Results with their timestamps."""
    return list(zip(harness.outputs(output), harness.timestamps(output), strict=True))


def operator_of_join(harness: OperatorHarness) -> Any:
    """The operator of the join."""
    return next(
        each for task in harness.tasks for each in task.chain.operators if each.name.endswith(" Join")
    )


def keyed(
    env: StreamExecutionEnvironment | None = None, key_type: Any = None, *, timed: bool = True
) -> KeyedStream:
    """A keyed stream of a program that is only built."""
    env = env or StreamExecutionEnvironment.get_execution_environment().set_parallelism(3)
    rows = env.from_collection([("a", 1)], ROW)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamped())
    rows = rows.assign_timestamps_and_watermarks(strategy) if timed else rows
    return rows.key_by(lambda row: row[0], key_type)
