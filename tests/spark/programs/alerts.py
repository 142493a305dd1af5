"""Broadcast rules over keyed readings: a timer behind all readings compares them with the rules of the broadcast."""

# mypy: ignore-errors
import sys

from yarrow.common import Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import KeyedBroadcastProcessFunction, StreamExecutionEnvironment
from yarrow.datastream.state import ListStateDescriptor, MapStateDescriptor

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
#: Later than all readings and rules.
CLOSING = 1_000_000


class ByTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Alerts(KeyedBroadcastProcessFunction):
    def open(self, runtime_context):
        self.readings = runtime_context.get_list_state(ListStateDescriptor("readings", Types.INT()))

    def process_element(self, value, ctx):
        self.readings.add(value[2])
        ctx.timer_service().register_event_time_timer(CLOSING)

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value[0], value[2])

    def on_timer(self, timestamp, ctx):
        readings = sorted(self.readings.get())
        for name, limit in ctx.get_broadcast_state(RULES).items():
            above = [reading for reading in readings if reading > limit]
            if above:
                yield ctx.get_current_key(), name, len(above), above[-1]


if __name__ == "__main__":
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    env = StreamExecutionEnvironment.get_execution_environment()
    triple = Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByTime())
    readings = env.from_collection(
        [(f"sensor{number % 9}", number, (number * 31 + seed) % 100) for number in range(300)], triple
    ).assign_timestamps_and_watermarks(strategy)
    # One subtask keeps the rules in order: the later one of a name counts.
    rules = (
        env.from_collection([("warm", 10, 40), ("hot", 11, 50), ("hot", 500, 80)], triple)
        .assign_timestamps_and_watermarks(strategy)
        .set_parallelism(1)
    )
    alerts = readings.key_by(lambda row: row[0]).connect(rules.broadcast(RULES)).process(Alerts())
    alerts.print()
    env.execute("alerts")
