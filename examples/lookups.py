"""Orders with the prices of a price list that answers slowly, and sometimes not at the first time.

python examples/lookups.py

Up to four orders of a subtask wait for their prices at a time, and leave in the order in which they came. An order
whose price does not come within five seconds leaves without one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from yarrow.common import Time, Types
from yarrow.datastream import AsyncDataStream, AsyncFunction, RuntimeContext, StreamExecutionEnvironment
from yarrow.datastream.functions import AsyncRetryStrategy

#: (number, article)
ORDERS = [(1, "tea"), (2, "milk"), (3, "bread"), (4, "tea"), (5, "salt")]
PRICES = {"tea": 4.5, "milk": 1.2, "bread": 3.8}


class PriceList:
    """Stands for a service: its first answer to each question is an error."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    async def price(self, article: str) -> float | None:
        """The price of an article; None if it has none."""
        await asyncio.sleep(0.05 / len(article))
        if article not in self._asked:
            self._asked.add(article)
            raise ConnectionError(f"the price list is busy, asked for {article}")
        return PRICES.get(article)


class WithPrice(AsyncFunction[Any, str]):
    """Adds its price to an order."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.prices = PriceList()

    async def async_invoke(self, value: Any) -> list[str]:
        number, article = value
        price = await self.prices.price(article)
        return [f"order {number}: {article}, {'no price' if price is None else f'{price:.2f}'}"]

    def timeout(self, value: Any) -> list[str]:
        number, article = value
        return [f"order {number}: {article}, no answer"]


def is_connection_error(error: Exception) -> bool:
    """Whether another attempt may help."""
    return isinstance(error, ConnectionError)


def lookups() -> None:
    """Prints all orders with their prices."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    orders = env.from_collection(ORDERS, Types.TUPLE([Types.LONG(), Types.STRING()]))
    attempts = AsyncRetryStrategy.fixed_delay(3, 10, None, is_connection_error)
    priced = AsyncDataStream.ordered_wait_with_retry(
        orders, WithPrice(), Time.seconds(5), attempts, 4, Types.STRING()
    )
    priced.print()
    env.execute("lookups")


if __name__ == "__main__":
    lookups()
