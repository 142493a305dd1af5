"""Orders and payments, two keyed inputs: a payment deletes the timer that reports an unpaid order."""

# mypy: ignore-errors
import random
import sys

from yarrow.common import Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import KeyedCoProcessFunction, StreamExecutionEnvironment
from yarrow.datastream.state import ValueStateDescriptor

PATIENCE = 100_000


class ByTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Matched(KeyedCoProcessFunction):
    def open(self, runtime_context):
        self.ordered = runtime_context.get_state(ValueStateDescriptor("ordered", Types.LONG()))
        self.paid = runtime_context.get_state(ValueStateDescriptor("paid", Types.LONG()))

    def process_element1(self, value, ctx):
        order, at = value
        if self.paid.value() is not None:
            yield order, "paid", at, self.paid.value()
            return
        self.ordered.update(at)
        ctx.timer_service().register_event_time_timer(at + PATIENCE)

    def process_element2(self, value, ctx):
        order, at = value
        ordered = self.ordered.value()
        if ordered is None:
            self.paid.update(at)
            return
        ctx.timer_service().delete_event_time_timer(ordered + PATIENCE)
        yield order, "paid", ordered, at

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "unpaid", self.ordered.value(), -1


if __name__ == "__main__":
    chosen = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    orders = [(number, number * 3) for number in range(200)]
    payments = [(number, at + chosen.randrange(500)) for number, at in orders if number % 4]
    env = StreamExecutionEnvironment.get_execution_environment()
    pair = Types.TUPLE([Types.INT(), Types.LONG()])
    # A watermark that no payment is behind: the times of both streams differ by less than the patience.
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(ByTime())
    first = env.from_collection(orders, pair).assign_timestamps_and_watermarks(strategy)
    second = env.from_collection(payments, pair).assign_timestamps_and_watermarks(strategy)
    first.connect(second).key_by(lambda row: row[0], lambda row: row[0]).process(Matched()).print()
    env.execute("payments")
