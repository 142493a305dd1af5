"""Failures a minute in a log, by the times of its lines, and lines that come too late for their minute.

python examples/windows/log_failures.py

Lines come out of order by up to ten seconds, and wait in their window so long. A line that is late by less than half
a minute corrects its count. A line that is later goes to a side output, and none is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from yarrow.common import Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import WatermarkGenerator, WatermarkOutput
from yarrow.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from yarrow.datastream.window import TimeWindow, TumblingEventTimeWindows

DISORDER_MS = 10_000
LOG = """\
08:00:12 ERROR disk is full
08:00:40 INFO started
08:01:03 ERROR no answer
08:00:55 ERROR disk is full
08:01:15 INFO stopped
08:00:30 ERROR came by a slow host
08:02:40 ERROR no answer
08:00:50 ERROR came a minute too late
08:03:00 INFO started"""


def milliseconds(line: str) -> int:
    """The time of a line in its day."""
    hours, minutes, seconds = map(int, line[:8].split(":"))
    return 1000 * (3600 * hours + 60 * minutes + seconds)


class TimeOfLine(TimestampAssigner):
    """The event time of a line is at its beginning."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return milliseconds(value)


class BehindEachLine(WatermarkGenerator):
    """Moves event time with each line: which line is late does not depend on the machine."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp - DISORDER_MS)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class Count(ProcessWindowFunction[str, str, str, TimeWindow]):
    """Emits a line with the number of lines in a minute."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[str]
    ) -> Iterator[str]:
        hours, minutes = divmod(context.window().start // 60_000, 60)
        yield f"{hours:02}:{minutes:02} {len(list(elements))} x {key}"


def log_failures() -> None:
    """Prints counts, corrected counts and late lines."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    strategy = WatermarkStrategy.for_generator(BehindEachLine).with_timestamp_assigner(TimeOfLine())
    lines = env.from_collection(LOG.splitlines(), Types.STRING()).assign_timestamps_and_watermarks(strategy)
    failures = lines.key_by(lambda line: line.split()[1], Types.STRING())
    late = OutputTag("late lines", Types.STRING())
    windows = failures.window(TumblingEventTimeWindows.of(Time.minutes(1))).allowed_lateness(30_000)
    counts = windows.side_output_late_data(late).process(Count(), Types.STRING())
    counts.filter(lambda count: count.endswith("ERROR")).print()
    counts.get_side_output(late).map(lambda line: f"late: {line}", Types.STRING()).print()
    env.execute("log failures")


if __name__ == "__main__":
    log_failures()
