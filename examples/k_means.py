"""k-means as a DataSet program: a bulk iteration over the centroids, with the points as a broadcast partner.

    python examples/k_means.py [points] [supersteps]

Each superstep assigns each point to its nearest centroid and moves the centroids to the means of their points. It ends
when no centroid moves by more than a thousandth. The last line compares the result with a plain loop.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

from yarrow.batch.dataset import DataSet, ExecutionEnvironment
from yarrow.batch.dataset.functions import (
    ConvergenceCriterion,
    DoubleSumAggregator,
    RichFlatJoinFunction,
    RichMapPartitionFunction,
    RuntimeContext,
)
from yarrow.common import Types

Point = tuple[float, float]
#: (number, x, y)
Centroid = tuple[int, float, float]

CENTROID = Types.TUPLE([Types.LONG(), Types.DOUBLE(), Types.DOUBLE()])
#: (number, sum of x, sum of y, points)
PARTIAL = Types.TUPLE([Types.LONG(), Types.DOUBLE(), Types.DOUBLE(), Types.LONG()])
POINT = Types.TUPLE([Types.DOUBLE(), Types.DOUBLE()])
ENOUGH = 0.001


def points(count: int) -> list[Point]:
    """Points around four centres."""
    chance = random.Random(7)
    centres = [(0.0, 0.0), (9.0, 1.0), (1.0, 8.0), (9.0, 9.0)]
    return [
        (x + chance.gauss(0, 1.5), y + chance.gauss(0, 1.5))
        for x, y in (centres[number % 4] for number in range(count))
    ]


def nearest(point: Point, centroids: list[Centroid]) -> int:
    """The number of the nearest centroid; of equally near ones the first."""
    x, y = point
    return min((((x - cx) ** 2 + (y - cy) ** 2), number) for number, cx, cy in centroids)[1]


class SumsOfPoints(RichMapPartitionFunction[Any, Any]):
    """The sums of the points of each centroid, in one partition."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._centroids = sorted(self.get_runtime_context().get_broadcast_variable("centroids"))

    def map_partition(self, values: Iterator[Point]) -> Iterator[Any]:
        sums: dict[int, list[float]] = {}
        counts: dict[int, int] = {}
        for point in values:
            number = nearest(point, self._centroids)
            total = sums.setdefault(number, [0.0, 0.0])
            total[0] += point[0]
            total[1] += point[1]
            counts[number] = counts.get(number, 0) + 1
        for number, (x, y) in sums.items():
            yield number, x, y, counts[number]


def added(one: Any, other: Any) -> Any:
    """The sums of two partitions."""
    return one[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


class Moved(RichFlatJoinFunction[Any, Any, Any]):
    """The centroid at the mean of its points, or where it was; aggregates how far the centroids have moved."""

    def join(self, first: Any, second: Any) -> Iterator[Centroid]:
        number, x, y = first
        after = first if second is None else (number, second[1] / second[3], second[2] / second[3])
        way = abs(after[1] - x) + abs(after[2] - y)
        self.get_iteration_runtime_context().get_iteration_aggregator("way").aggregate(way)
        yield after


class StandStill(ConvergenceCriterion[float]):
    """Whether the centroids have moved by little."""

    def is_converged(self, iteration: int, value: float) -> bool:
        return value < ENOUGH


def k_means(data: DataSet, begin: DataSet, supersteps: int) -> DataSet:
    """The centroids of the points, from those at the begin."""
    loop = begin.iterate(supersteps).name("k-means")
    loop.register_aggregation_convergence_criterion("way", DoubleSumAggregator(), StandStill())
    partial = data.map_partition(SumsOfPoints(), PARTIAL).with_broadcast_set(loop, "centroids")
    sums = partial.group_by(0).reduce(added)
    moved = loop.left_outer_join(sums).where(0).equal_to(0).with_(Moved(), CENTROID)
    return loop.close_with(moved)


def plain(data: list[Point], centroids: list[Centroid], supersteps: int) -> list[Centroid]:
    """The same by a loop."""
    for _ in range(supersteps):
        groups: dict[int, list[Point]] = {}
        for point in data:
            groups.setdefault(nearest(point, centroids), []).append(point)
        before, centroids = centroids, []
        for number, x, y in before:
            group = groups.get(number)
            if group:
                x, y = (sum(part) / len(group) for part in zip(*group, strict=True))
            centroids.append((number, x, y))
        if sum(abs(a[1] - b[1]) + abs(a[2] - b[2]) for a, b in zip(before, centroids, strict=True)) < ENOUGH:
            break
    return centroids


def main(count: int = 20_000, supersteps: int = 30) -> None:
    """Runs the program and the loop."""
    env = ExecutionEnvironment.get_execution_environment()
    data = points(count)
    begin = [(number, *data[number]) for number in range(4)]
    found = k_means(
        env.from_collection(data, POINT).rebalance(), env.from_collection(begin, CENTROID), supersteps
    )
    rows = sorted(found.collect())
    for number, x, y in rows:
        print(f"centroid {number}: {x:.3f}, {y:.3f}")
    expected = plain(data, begin, supersteps)
    same = all(
        abs(a - b) < 1e-6
        for row, other in zip(rows, expected, strict=True)
        for a, b in zip(row, other, strict=True)
    )
    print("equal to the plain loop" if same else "NOT equal to the plain loop")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
