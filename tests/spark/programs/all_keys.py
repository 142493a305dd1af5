"""Counts by keys of every kind that a key may have; equal keys of several types are one key."""

# mypy: ignore-errors
import datetime as dt
import enum
import random
import sys
import uuid
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from yarrow.common import Row, Types
from yarrow.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from yarrow.datastream.state import ValueStateDescriptor

Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Address:
    city: str
    number: int


#: What is counted together, by name.
KEYS = {
    "none": [None],
    "one": [1, True, 1.0, Decimal(1), np.int64(1), np.float32(1)],
    "large": [2**80, Decimal(2**80)],
    "half": [0.5, Decimal("0.5"), np.float64(0.5)],
    "third": [Decimal("0.3333333333333333333333333")],
    "nan": [float("nan"), np.float64("nan")],
    "text": ["text", np.str_("text")],
    "bytes": [b"bytes"],
    "date": [dt.date(2020, 2, 29)],
    "time": [dt.time(1, 2, 3)],
    "naive": [dt.datetime(2020, 2, 29, 1)],
    "aware": [
        dt.datetime(2020, 2, 29, 1, tzinfo=dt.UTC),
        dt.datetime(2020, 2, 29, 2, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    ],
    "uuid": [uuid.UUID(int=7)],
    "tuple": [(1, ("a", None)), (1.0, ("a", None))],
    "named tuple": [Point(3, 4), (3, 4)],
    "row": [Row(1, "a")],
    "named row": [Row(a=1, b="a")],
    "dataclass": [Address("Bergen", 5)],
    "red": [Colour.RED],
    "blue": [Colour.BLUE],
    "duration": [dt.timedelta(seconds=1), np.timedelta64(1, "s")],
    "long duration": [dt.timedelta(days=999_999_999)],
    "frozenset": [frozenset({1, "a"})],
    "range": [range(0, 10, 3), range(0, 12, 3)],
}  # fmt: skip


class Counted(KeyedProcessFunction):
    """Counts the records of a key, and gives the count when the input ends."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))
        self.name = runtime_context.get_state(ValueStateDescriptor("name", Types.STRING()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        self.name.update(value[0])
        ctx.timer_service().register_event_time_timer(1)

    def on_timer(self, timestamp, ctx):
        yield self.name.value(), self.count.value()


if __name__ == "__main__":
    chosen = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    rows = [(name, key, 1) for name, keys in KEYS.items() for key in keys for _ in range(3)]
    chosen.shuffle(rows)
    env = StreamExecutionEnvironment.get_execution_environment()
    keyed = env.from_collection(rows).rebalance().map(lambda row: row).key_by(lambda row: row[1])
    keyed.process(Counted()).print()
    (
        keyed.reduce(lambda one, other: (one[0], one[1], one[2] + other[2]))
        .map(lambda row: (row[0], row[2]))
        .print("reduced")
    )
    env.execute("all keys")
