"""Orders with prices that answer later: in the order of the orders, and in any order, with retries and timeouts."""

# mypy: ignore-errors
import asyncio
import random
import sys

from yarrow.common import Time, Types
from yarrow.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment
from yarrow.datastream.async_retry_predicates import has_exception_predicate
from yarrow.datastream.functions import AsyncRetryStrategy

ARTICLES = ["tea", "milk", "bread", "salt", "rice"]
ROW = Types.TUPLE([Types.STRING(), Types.LONG()])


class Priced(AsyncFunction):
    """Answers after some turns of the loop; the first question of each order fails."""

    def __init__(self):
        self.asked = set()

    async def async_invoke(self, value):
        article, number = value
        for _ in range(number % 4):
            await asyncio.sleep(0)
        if number not in self.asked:
            self.asked.add(number)
            raise ConnectionError(f"the price list is busy, asked for {article}")
        return [(article, number * len(article))]


class Split(AsyncFunction):
    """None, one or two rows of an order."""

    async def async_invoke(self, value):
        article, number = value
        await asyncio.sleep(0)
        return [(article, part) for part in range(number % 3)]


class Unanswered(AsyncFunction):
    """Answers the orders of one article only; the others leave when their time is over."""

    async def async_invoke(self, value):
        if value[0] != "salt":
            await asyncio.Event().wait()
        return [("answered", value[1])]

    def timeout(self, value):
        return [("unanswered", value[1])]


if __name__ == "__main__":
    chosen = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    env = StreamExecutionEnvironment.get_execution_environment()
    orders = env.from_collection(
        [(chosen.choice(ARTICLES), number) for number in range(400)], ROW
    ).rebalance()
    again = AsyncRetryStrategy.fixed_delay(3, 1, None, has_exception_predicate)
    minute = Time.minutes(1)
    priced = AsyncDataStream.ordered_wait_with_retry(orders, Priced(), minute, again, 16, ROW)
    priced.print().name("priced")
    split = AsyncDataStream.unordered_wait(orders, Split(), minute, 8, ROW)
    split.key_by(lambda row: row[0], Types.STRING()).sum(1).print().name("sums")
    few = orders.filter(lambda row: row[1] < 12)
    AsyncDataStream.unordered_wait(few, Unanswered(), Time.milliseconds(50), 12, ROW).print().name("answers")
    env.execute("priced orders")
