"""A dataclass of the main program as record, state and result; states of all kinds, and timers of a key."""

# mypy: ignore-errors
import random
import sys
from dataclasses import dataclass, field, replace

from yarrow.common import Types
from yarrow.datastream import AggregateFunction, KeyedProcessFunction, StreamExecutionEnvironment
from yarrow.datastream.state import AggregatingStateDescriptor, ReducingStateDescriptor, ValueStateDescriptor


@dataclass
class Item:
    customer: str
    price: int
    tags: list[str] = field(default_factory=list)


@dataclass
class Basket:
    customer: str
    items: int
    total: int
    tags: frozenset[str] = frozenset()

    def with_item(self, item):
        return replace(
            self, items=self.items + 1, total=self.total + item.price, tags=self.tags | set(item.tags)
        )


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, one, other):
        return one[0] + other[0], one[1] + other[1]


class Filled(KeyedProcessFunction):
    def open(self, runtime_context):
        pickled = Types.PICKLED_BYTE_ARRAY()
        self.basket = runtime_context.get_state(ValueStateDescriptor("basket", pickled))
        self.highest = runtime_context.get_reducing_state(
            ReducingStateDescriptor("highest", max, Types.INT())
        )
        self.mean = runtime_context.get_aggregating_state(AggregatingStateDescriptor("mean", Mean(), pickled))

    def process_element(self, value, ctx):
        self.basket.update((self.basket.value() or Basket(value.customer, 0, 0)).with_item(value))
        self.highest.add(value.price)
        self.mean.add(value.price)
        ctx.timer_service().register_event_time_timer(10)

    def on_timer(self, timestamp, ctx):
        yield self.basket.value(), self.highest.get(), self.mean.get()


if __name__ == "__main__":
    chosen = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    items = [Item(f"customer{number % 8}", number % 23, [f"tag{number % 3}"]) for number in range(200)]
    chosen.shuffle(items)
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection(items).rebalance().map(lambda item: item)
    stream.key_by(lambda item: item.customer).process(Filled()).print()
    (
        stream.map(lambda item: Basket(item.customer, 1, item.price, frozenset(item.tags)))
        .key_by(lambda basket: basket.customer)
        .reduce(lambda a, b: Basket(a.customer, a.items + b.items, a.total + b.total, a.tags | b.tags))
        .print("reduced")
    )
    env.execute("baskets")
