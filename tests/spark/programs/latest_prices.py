"""The latest price of each product and the range of its prices, from records out of order: rolling aggregates."""

# mypy: ignore-errors
import random
import sys

from yarrow.common import Duration, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import StreamExecutionEnvironment


class BySetAt(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


if __name__ == "__main__":
    chosen = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    prices = [(number % 11, number, (number * 37) % 101) for number in range(400)]
    chosen.shuffle(prices)
    env = StreamExecutionEnvironment.get_execution_environment()
    triple = Types.TUPLE([Types.INT(), Types.LONG(), Types.INT()])
    # Most records are late, which rolling aggregates do not notice.
    timed = env.from_collection(prices, triple).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5)).with_timestamp_assigner(
            BySetAt()
        )
    )
    by_product = timed.key_by(lambda row: row[0])
    by_product.max_by(1).print("latest")
    by_product.min_by(1).print("first")
    by_product.max(2).map(lambda row: (row[0], row[2])).print("highest")
    by_product.sum(2).map(lambda row: (row[0], row[2])).filter(lambda row: row[1] % 2 == 0).print("even sums")
    env.execute("latest prices")
