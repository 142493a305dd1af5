"""Partitioners of data sets: which partition a key belongs to, by its hash or by its place among sampled keys.

Owner: a producer's thread calls them. The same key gives the same partition in each process. Must not know DataSets.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from yarrow.runtime.data.key_groups import group_of_raw_key

#: Keys that each task gives for the bounds of ranges.
SAMPLED: Final = 2000


def hash_partition(key: Any, partitions: int) -> int:
    """The partition of a key, by its hash; equal keys have equal partitions."""
    return group_of_raw_key(key, partitions)


def first_of_pair(pair: tuple[int, Any]) -> int:
    """The partition that stands before a record."""
    return pair[0]


def second_of_pair(pair: tuple[int, Any]) -> Any:
    """The record behind its partition."""
    return pair[1]


def as_told(partition: int, partitions: int) -> int:
    """The partition that the record itself names."""
    return partition


class SampledOrders:
    """Gives a sample of what rows of a partition are ordered by, each row with the same chance."""

    def __init__(self, order: Callable[[Any], Any], most: int = SAMPLED) -> None:
        self._order = order
        self._most = most

    def map_partition(self, values: Iterable[Any]) -> Iterator[Any]:
        """The sample, with the number of rows that it stands for; the same for the same rows."""
        chance = random.Random(0)
        sample: list[Any] = []
        count = 0
        for count, value in enumerate(values, 1):
            if count <= self._most:
                sample.append(self._order(value))
            elif (place := chance.randrange(count)) < self._most:
                sample[place] = self._order(value)
        yield count, sample


class RangeBounds:
    """Makes the bounds of ranges from samples: as many rows as possible alike in each."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def map_partition(self, values: Iterable[tuple[int, list[Any]]]) -> Iterator[list[Any]]:
        """The bounds, in order: a range ends with its bound."""
        yield bounds_of(list(values), self._partitions)


def bounds_of(samples: Sequence[tuple[int, Sequence[Any]]], partitions: int) -> list[Any]:
    """At most `partitions` - 1 bounds, each once, from samples with the number of rows that they stand for."""
    weighted = sorted(
        ((order, rows / len(sample)) for rows, sample in samples for order in sample),
        key=lambda each: each[0],
    )
    total = sum(weight for _, weight in weighted)
    found: list[Any] = []
    passed = 0.0
    for order, weight in weighted:
        passed += weight
        if len(found) < partitions - 1 and passed >= total * (len(found) + 1) / partitions:
            if found and not found[-1] < order:
                continue
            found.append(order)
    return found


def range_of(order: Any, bounds: Sequence[Any]) -> int:
    """The range of a row: the first one whose bound is not before it."""
    return bisect_left(bounds, order)
