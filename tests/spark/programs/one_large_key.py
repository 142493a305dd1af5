"""A million records, all but a few of one key, added by a rolling reduce."""

# mypy: ignore-errors
import sys

from yarrow.common import Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.number_seq import NumberSequenceSource

if __name__ == "__main__":
    records = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_source(
        NumberSequenceSource(1, records + records // 1000), WatermarkStrategy.no_watermarks(), "numbers"
    )
    triple = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
    (
        numbers.map(lambda number: (max(0, number - records), number, 1), triple)
        .key_by(lambda row: row[0])
        .reduce(lambda one, other: (one[0], one[1] + other[1], one[2] + other[2]))
        .print()
    )
    env.execute("one large key")
