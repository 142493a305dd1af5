"""The two pages of each minute with most views: a window counts each page, and a second one ranks the counts.

python examples/windows/top_pages.py

The counts of a window bear its last millisecond. So the windows of the second step have the same bounds, and end when
all counts of their minute have come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from yarrow.common import Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import AggregateFunction, ProcessAllWindowFunction, StreamExecutionEnvironment
from yarrow.datastream.window import TimeWindow, TumblingEventTimeWindows

MOST = 2
#: (second of the day, page)
VIEWS = [
    (1, "/"),
    (5, "/news"),
    (9, "/"),
    (20, "/cart"),
    (31, "/"),
    (58, "/news"),
    (62, "/cart"),
    (70, "/help"),
    (71, "/cart"),
    (119, "/help"),
    (119, "/"),
]


class TimeOfView(TimestampAssigner):
    """The event time of a view is in its first field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[0]) * 1000


class Count(AggregateFunction[Any, Any, Any]):
    """A page and the number of its views."""

    def create_accumulator(self) -> Any:
        return "", 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return value[1], accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] or acc_b[0], acc_a[1] + acc_b[1]


class Top(ProcessAllWindowFunction[Any, str, TimeWindow]):
    """Emits a line with the pages of most views; of equal ones, those first in the alphabet."""

    def process(
        self, context: ProcessAllWindowFunction.Context[TimeWindow], elements: Iterable[Any]
    ) -> Iterator[str]:
        ranked = sorted(elements, key=lambda count: (-count[1], count[0]))[:MOST]
        pages = ", ".join(f"{page} ({views})" for page, views in ranked)
        yield f"from {context.window().start // 1000} s: {pages}"


def top_pages() -> None:
    """Prints the pages of each minute."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    counted = Types.TUPLE([Types.STRING(), Types.LONG()])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOfView())
    views = env.from_collection(VIEWS, Types.TUPLE([Types.LONG(), Types.STRING()]))
    by_page = views.assign_timestamps_and_watermarks(strategy).key_by(lambda view: view[1], Types.STRING())
    minute = TumblingEventTimeWindows.of(Time.minutes(1))
    counts = by_page.window(minute).aggregate(Count(), None, counted, counted)
    counts.window_all(minute).process(Top(), Types.STRING()).print()
    env.execute("top pages")


if __name__ == "__main__":
    top_pages()
