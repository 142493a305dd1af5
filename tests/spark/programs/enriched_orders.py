"""Orders and customers, two keyed inputs: each order meets each entry of its customer, whichever comes first."""

# mypy: ignore-errors
import random
import sys

from yarrow.common import Row, Types
from yarrow.datastream import CoFlatMapFunction, StreamExecutionEnvironment
from yarrow.datastream.state import ListStateDescriptor

ORDER = Types.ROW_NAMED(["customer", "item", "price"], [Types.INT(), Types.STRING(), Types.DOUBLE()])
CUSTOMER = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])


class Enriched(CoFlatMapFunction):
    def open(self, runtime_context):
        self.orders = runtime_context.get_list_state(ListStateDescriptor("orders", ORDER))
        self.names = runtime_context.get_list_state(ListStateDescriptor("names", Types.STRING()))

    def flat_map1(self, value):
        self.orders.add(value)
        for name in self.names.get() or ():
            yield name, value.item, value.price

    def flat_map2(self, value):
        self.names.add(value.name)
        for order in self.orders.get() or ():
            yield value.name, order.item, order.price


if __name__ == "__main__":
    chosen = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    orders = [Row(customer=number % 20, item=f"item{number}", price=number / 4) for number in range(150)]
    customers = [Row(id=number % 25, name=f"name{number}") for number in range(40)]
    chosen.shuffle(orders)
    chosen.shuffle(customers)
    env = StreamExecutionEnvironment.get_execution_environment()
    first, second = env.from_collection(orders, ORDER), env.from_collection(customers, CUSTOMER)
    keyed = first.connect(second).key_by(lambda row: row.customer, lambda row: row.id)
    keyed.flat_map(Enriched(), Types.TUPLE([Types.STRING(), Types.STRING(), Types.DOUBLE()])).print()
    env.execute("enriched orders")
