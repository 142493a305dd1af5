"""Visits of users: a gap between two records ends a visit, and a timer ends the last one."""

# mypy: ignore-errors
import random
import sys

from yarrow.common import Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from yarrow.datastream.state import ValueStateDescriptor

GAP = 50


class ByClick(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Visits(KeyedProcessFunction):
    def open(self, runtime_context):
        # First click, last click, number of clicks.
        self.visit = runtime_context.get_state(
            ValueStateDescriptor("visit", Types.TUPLE([Types.LONG(), Types.LONG(), Types.INT()]))
        )

    def process_element(self, value, ctx):
        user, clicked = value
        visit = self.visit.value()
        if visit is not None and clicked > visit[1] + GAP:
            yield user, *visit
            visit = None
        first, _, clicks = visit or (clicked, clicked, 0)
        self.visit.update((first, clicked, clicks + 1))
        ctx.timer_service().register_event_time_timer(clicked + GAP)

    def on_timer(self, timestamp, ctx):
        visit = self.visit.value()
        # Timers of clicks that others followed find a visit that goes on, or none.
        if visit is not None and visit[1] + GAP == timestamp:
            yield ctx.get_current_key(), *visit
            self.visit.clear()


def clicks(seed):
    """Clicks in order of time, each at a time of its own."""
    chosen = random.Random(seed)
    at = 0
    for _ in range(400):
        at += chosen.choice((3, 5, 20))
        yield f"user{chosen.randrange(6)}", at


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = env.from_collection(
        list(clicks(int(sys.argv[1]) if len(sys.argv) > 1 else 0)),
        Types.TUPLE([Types.STRING(), Types.LONG()]),
    )
    # One subtask keeps the clicks in order.
    timed = rows.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByClick())
    ).set_parallelism(1)
    timed.key_by(lambda row: row[0]).process(Visits()).print()
    env.execute("visits")
