"""KeyBuckets: how a writing divides the key groups among tasks, and a task's groups into parts that fit in memory.

Owner: none (frozen values); pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from yarrow.runtime.data.key_groups import (
    KeyGroupRange,
    check_parallelism,
    key_group_range_for_operator_index,
)

#: Buckets of all partitions together, unless there are more partitions.
MOST_BUCKETS: Final = 1024

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class KeyBuckets:
    """A division of all key groups: partitions as the subtasks of a job have them, each of `per_partition` buckets.

    A bucket is a range of key groups whose rows are in memory together.
    """

    max_parallelism: int
    #: Each is written by one task.
    partitions: int
    per_partition: int

    @staticmethod
    def of(max_parallelism: int, partitions: int) -> KeyBuckets:
        """At most as many partitions as there are key groups. Raises InvalidParallelismError."""
        check_parallelism(1, max_parallelism)
        number = max(1, min(partitions, max_parallelism))
        return KeyBuckets(max_parallelism, number, -(-min(MOST_BUCKETS, max_parallelism) // number))

    def key_groups(self, partition: int) -> KeyGroupRange:
        """The key groups of a partition."""
        return key_group_range_for_operator_index(self.max_parallelism, self.partitions, partition)

    def cuts(self, groups: Numbers) -> tuple[Numbers, Numbers]:
        """The buckets of key groups that are in order (uint16, shape (rows,)), and the row with which each begins.

        Both are int64, shape (buckets,). A bucket without rows is left out.
        """
        number = self.partitions * self.per_partition
        behind = -(-np.arange(1, number + 1) * self.max_parallelism // number)
        ends = np.searchsorted(groups, behind.astype(groups.dtype))
        sizes = np.diff(ends, prepend=0)
        found = np.flatnonzero(sizes)
        return found, ends[found] - sizes[found]

    def partitions_of(self, buckets: Numbers) -> Numbers:
        """The partition (int64, shape (buckets,)) of each bucket (int64, shape (buckets,))."""
        partitions: Numbers = buckets // self.per_partition
        return partitions
