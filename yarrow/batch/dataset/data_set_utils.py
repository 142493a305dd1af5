"""DataSetUtils: numbers for the rows of a data set, and samples of them.

Owner: the thread that builds the program. Names and meanings are those of Flink's DataSetUtils.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, repeat
from typing import Any

from yarrow.batch.dataset.data_set import DataSet
from yarrow.batch.dataset.fields import itself
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.functions import RuntimeContext
from yarrow.datastream.functions.data_set_functions import RichMapPartitionFunction
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.graph.transformations import operator_behind

_COUNTS = "rows of partitions"


class _CountedPartition(RichMapPartitionFunction[Any, Any]):
    """The partition and the number of its rows."""

    def map_partition(self, values: Iterator[Any]) -> Iterator[Any]:
        number = self.get_runtime_context().get_index_of_this_subtask()
        yield number, sum(1 for _ in values)


class _Indexed(RichMapPartitionFunction[Any, Any]):
    """Each row behind its index."""

    def open(self, runtime_context: RuntimeContext) -> None:
        context = self.get_runtime_context()
        self._start = _starts(context)[context.get_index_of_this_subtask()]

    def map_partition(self, values: Iterator[Any]) -> Iterator[Any]:
        return enumerate(values, self._start)


class _Identified(RichMapPartitionFunction[Any, Any]):
    """Each row behind a number that no other row has."""

    def map_partition(self, values: Iterator[Any]) -> Iterator[Any]:
        context = self.get_runtime_context()
        step = context.get_number_of_parallel_subtasks()
        for place, value in enumerate(values):
            yield place * step + context.get_index_of_this_subtask(), value


class _Sampled(RichMapPartitionFunction[Any, Any]):
    """Each row with the same chance, independently of all others."""

    def __init__(self, fraction: float, seed: int, *, with_replacement: bool) -> None:
        self._fraction = fraction
        self._seed = seed
        self._with_replacement = with_replacement

    def map_partition(self, values: Iterator[Any]) -> Iterator[Any]:
        chance = random.Random(f"{self._seed} {self.get_runtime_context().get_index_of_this_subtask()}")
        for value in values:
            if self._with_replacement:
                yield from repeat(value, _poisson(chance, self._fraction))
            elif chance.random() < self._fraction:
                yield value


def _poisson(chance: random.Random, mean: float) -> int:
    """A number of times with this mean: how many random moments fall into one unit of time."""
    times, moment = 0, chance.expovariate(mean) if mean else 1.0
    while moment < 1.0:
        times, moment = times + 1, moment + chance.expovariate(mean)
    return times


class _Drawn(RichMapPartitionFunction[Any, Any]):
    """The rows whose places have been drawn. All tasks draw the same places among the rows of all partitions."""

    def __init__(self, size: int, seed: int, *, with_replacement: bool) -> None:
        self._size = size
        self._seed = seed
        self._with_replacement = with_replacement

    def open(self, runtime_context: RuntimeContext) -> None:
        starts = _starts(self.get_runtime_context())
        self._start = starts[self.get_runtime_context().get_index_of_this_subtask()]
        chance, places = random.Random(self._seed), range(starts[-1])
        if self._with_replacement:
            drawn = chance.choices(places, k=self._size) if places else []
        else:
            drawn = chance.sample(places, min(self._size, len(places)))
        self._times = Counter(drawn)

    def map_partition(self, values: Iterator[Any]) -> Iterator[Any]:
        for place, value in enumerate(values, self._start):
            yield from repeat(value, self._times[place])


def _starts(context: RuntimeContext) -> list[int]:
    """The index of the first row of each partition, and behind them the number of all rows."""
    counts = [count for _, count in sorted(context.get_broadcast_variable(_COUNTS))]
    return [0, *accumulate(counts)]


class DataSetUtils:
    """Operations that number the rows of a data set, or take a sample of them."""

    @staticmethod
    def count_elements_per_partition(data: DataSet) -> DataSet:
        """Return pairs of a partition and the number of its rows."""
        data = _in_partitions(data)
        pairs = data.map_partition(_CountedPartition(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        return pairs.name("Count of rows").set_parallelism(_width(data))

    @staticmethod
    def zip_with_index(data: DataSet) -> DataSet:
        """Return pairs of an index and the row: 0, 1, 2 and so on, partition behind partition.

        A first pass counts the rows of partitions.
        """
        data = _in_partitions(data)
        counts = DataSetUtils.count_elements_per_partition(data)
        indexed = data.map_partition(_Indexed(), _numbered(data)).name("Index").set_parallelism(_width(data))
        return indexed.with_broadcast_set(counts, _COUNTS)

    @staticmethod
    def zip_with_unique_id(data: DataSet) -> DataSet:
        """Return pairs of a number and the row; the numbers are unique, with gaps where partitions differ."""
        data = _in_partitions(data)
        return data.map_partition(_Identified(), _numbered(data)).name("Id").set_parallelism(_width(data))

    @staticmethod
    def sample(data: DataSet, with_replacement: bool, fraction: float, seed: int | None = None) -> DataSet:
        """Return a sample in which each row comes with the chance `fraction`, or so many times on average.

        The same seed gives the same sample of the same partitions. Raises InvalidProgramError for a fraction below 0,
        and above 1 without replacement.
        """
        if not fraction >= 0 or (fraction > 1 and not with_replacement):
            raise InvalidProgramError(
                f"sample takes a fraction from 0 to 1, and above 1 only with replacement, not {fraction!r}"
            )
        data = _in_partitions(data)
        sampled = _Sampled(fraction, _seed(seed), with_replacement=with_replacement)
        made = data.map_partition(sampled, data.transformation.output_type)
        return made.name("Sample").set_parallelism(_width(data))

    @staticmethod
    def sample_with_size(
        data: DataSet, with_replacement: bool, num_samples: int, seed: int | None = None
    ) -> DataSet:
        """Return a sample of so many rows, or of all if there are fewer and none may come twice.

        A first pass counts the rows of partitions. The same seed gives the same sample of the same partitions. Raises
        InvalidProgramError for a negative number.
        """
        if isinstance(num_samples, bool) or not isinstance(num_samples, int) or num_samples < 0:
            raise InvalidProgramError(
                f"sample_with_size takes the number of rows, from 0 on, not {num_samples!r}"
            )
        data = _in_partitions(data)
        counts = DataSetUtils.count_elements_per_partition(data)
        drawn = _Drawn(num_samples, _seed(seed), with_replacement=with_replacement)
        made = data.map_partition(drawn, data.transformation.output_type)
        return made.name("Sample").set_parallelism(_width(data)).with_broadcast_set(counts, _COUNTS)


def _seed(given: int | None) -> int:
    """The seed of a sample. It is part of the program, so that a task that runs again draws the same rows."""
    return int(RandomIdFactory().hex_id(), 16) if given is None else given


def _in_partitions(data: DataSet) -> DataSet:
    """The rows with an operation of their own, which every reader finds in the same partitions.

    A mere distribution, such as rebalance or a union, deals its rows out to each reader anew.
    """
    made = data.transformation
    if operator_behind(made) is made:
        return data
    return data.map(itself, made.output_type).name("Partitions")


def _width(data: DataSet) -> int:
    """The parallelism with which the partitions of a data set stay as they are."""
    return data.get_parallelism()


def _numbered(data: DataSet) -> TypeInformation | None:
    record_type = data.transformation.output_type
    return None if record_type is None else Types.TUPLE([Types.LONG(), record_type])
