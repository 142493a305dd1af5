"""Classes with `__slots__` of the script keep their layout in the workers and back in the client."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.embedded.programs import run

pytestmark = pytest.mark.cluster

_PROGRAM = """
from dataclasses import dataclass
from yarrow.datastream import StreamExecutionEnvironment

@dataclass(slots=True)
class Order:
    number: int
    tags: list

class Point:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x

def grown(number):
    order, point = Order(number, [number]), Point(number)
    for made in (order, point):
        try:
            made.surplus = 1
        except AttributeError:
            order.tags.append(hasattr(made, "__dict__"))
    return order, point

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
found = list(env.from_collection([1, 2]).map(grown).rebalance().map(lambda pair: pair).execute_and_collect())
for order, point in sorted(found, key=lambda pair: pair[0].number):
    assert type(order) is Order and type(point) is Point
    assert not hasattr(order, "__dict__") and not hasattr(point, "__dict__")
    print(order, point.x)
"""


def test_records_of_slotted_classes_come_back_to_the_client(tmp_path: Path) -> None:
    outcome = run(tmp_path, _PROGRAM)
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines() == [
        "Order(number=1, tags=[1, False, False]) 1",
        "Order(number=2, tags=[2, False, False]) 2",
    ]
