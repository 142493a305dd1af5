"""Side outputs, a union, and columns: filters, and vectorised aggregates by two key columns beside rows of tuples."""

# mypy: ignore-errors
import random
import sys

import pyarrow as pa
import pyarrow.compute as pc

from yarrow.common import Types
from yarrow.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment
from yarrow.table.expressions import col

TRIPLE = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
REFUSED = OutputTag("refused", TRIPLE)
SCHEMA = pa.schema([("town", pa.string()), ("floor", pa.int32()), ("area", pa.int64())])


class Checked(ProcessFunction):
    def process_element(self, value, ctx):
        if value[2] < 0:
            yield REFUSED, value
        else:
            yield value


def doubled(batch):
    return batch.set_column(2, "area", pc.multiply(batch.column("area"), 2))


if __name__ == "__main__":
    chosen = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    rows = [(f"town{number % 4}", number % 3, number - 30) for number in range(300)]
    chosen.shuffle(rows)
    env = StreamExecutionEnvironment.get_execution_environment()
    checked = env.from_collection(rows, TRIPLE).rebalance().process(Checked(), TRIPLE)
    refused = checked.get_side_output(REFUSED).map(lambda row: (row[0], row[1], -row[2]), TRIPLE)
    flats = checked.to_arrow(SCHEMA).map_batches(doubled, schema=SCHEMA)
    totals = flats.key_by("town", "floor").aggregate([("area", "sum"), ("area", "max"), (None, "count")])
    totals.print("totals")
    large = (col("area") >= 100) & (col("town") != "town3") & ~col("floor").in_(1)
    tops = (
        flats.filter(large)
        .select("area", "town")
        .key_by("town")
        .aggregate([("area", "max"), ("area", "mean")])
    )
    tops.print("tops")
    refused.union(checked).key_by(lambda row: row[0]).max_by(2).map(lambda row: row[2]).print("highest")
    refused.print("refused")
    env.execute("columns and sides")
