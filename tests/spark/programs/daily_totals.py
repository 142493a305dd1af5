"""Totals by shop and day from records out of order: an event-time timer at the end of each day gives its total."""

# mypy: ignore-errors
import random
import sys

from yarrow.common import Duration, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from yarrow.datastream.state import MapStateDescriptor

DAY = 1000
LATENESS = 700


class BySoldAt(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Totals(KeyedProcessFunction):
    def open(self, runtime_context):
        self.totals = runtime_context.get_map_state(MapStateDescriptor("totals", Types.LONG(), Types.LONG()))

    def process_element(self, value, ctx):
        end = (value[1] // DAY + 1) * DAY - 1
        self.totals.put(end, (self.totals.get(end) or 0) + value[2])
        ctx.timer_service().register_event_time_timer(end)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp // DAY, self.totals.get(timestamp)
        self.totals.remove(timestamp)


def sales(seed):
    """Sales whose times are never further behind than the watermark is."""
    chosen = random.Random(seed)
    return [
        (f"shop{number % 5}", number * 13 + chosen.randrange(LATENESS), number % 17) for number in range(600)
    ]


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = env.from_collection(
        sales(int(sys.argv[1]) if len(sys.argv) > 1 else 0),
        Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()]),
    )
    timed = rows.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(
            Duration.of_millis(LATENESS + 1)
        ).with_timestamp_assigner(BySoldAt())
    )
    timed.key_by(lambda row: row[0]).process(
        Totals(), Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    ).print()
    env.execute("daily totals")
