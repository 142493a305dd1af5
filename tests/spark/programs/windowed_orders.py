"""Orders out of order in windows: tumbling, sessions with a gap of each order, of all orders, and with evictors."""

# mypy: ignore-errors
import random
import sys

from yarrow.common import Duration, Time, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.functions import AggregateFunction, ProcessWindowFunction, WindowFunction
from yarrow.datastream.window import (
    DynamicEventTimeSessionWindows,
    GlobalWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
)

#: No order comes more than so many ms behind a later one.
DISORDER = 30


class ByOrder(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[2], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Named(WindowFunction):
    def __init__(self, name):
        self.name = name

    def apply(self, key, window, inputs):
        return [(self.name, key, window.start, window.end, *inputs)]


class Last(WindowFunction):
    def apply(self, key, window, inputs):
        return [("last", key, sorted(inputs))]


class Sizes(ProcessWindowFunction):
    def process(self, key, context, elements):
        amounts = sorted(amount for _, _, amount in elements)
        yield "sliding", key, context.window().start, context.window().end, len(amounts), amounts[-1]


class GapOfCustomer(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return 10 + 5 * len(element[0])


def larger(first, second):
    return max(first, second, key=lambda order: (order[2], order[1]))


def orders(seed, count):
    chosen = random.Random(seed)
    made = []
    for number in range(count):
        made.append(("c" * chosen.randrange(1, 6), number * 4, chosen.randrange(1000)))
    return sorted(made, key=lambda order: order[1] + chosen.randrange(DISORDER))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    rows = env.from_collection(orders(seed, 500), Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()]))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DISORDER))
    # One subtask keeps the disorder within its bound.
    timed = rows.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(ByOrder())
    ).set_parallelism(1)
    keyed = timed.key_by(lambda order: order[0])
    tumbling = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(500)))
    tumbling.reduce(larger, Named("tumbling")).print().name("tumbling")
    sliding = keyed.window(SlidingEventTimeWindows.of(Time.milliseconds(600), Time.milliseconds(200)))
    sliding.process(Sizes()).print().name("sliding")
    sessions = keyed.window(DynamicEventTimeSessionWindows.with_dynamic_gap(GapOfCustomer()))
    sessions.aggregate(Mean(), Named("session")).print().name("sessions")
    whole = timed.window_all(TumblingEventTimeWindows.of(Time.milliseconds(1000)))
    whole.aggregate(Mean()).print().name("whole")
    recent = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(500))).evictor(TimeEvictor.of(100))
    recent.aggregate(Mean(), Named("recent")).print().name("recent")
    last = keyed.window(GlobalWindows.create_with_end_of_stream_trigger()).evictor(TimeEvictor.of(300))
    last.apply(Last()).print().name("last")
    env.execute("windowed orders")
