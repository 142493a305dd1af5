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

    def buckets_of(self, groups: Numbers) -> Numbers:
        """The bucket (int64, shape (rows,)) of each key group (uint16, shape (rows,))."""
        number = self.partitions * self.per_partition
        buckets: Numbers = groups.astype(np.int64) * number // self.max_parallelism
        return buckets

    def partitions_of(self, buckets: Numbers) -> Numbers:
        """The partition (int64, shape (buckets,)) of each bucket (int64, shape (buckets,))."""
        partitions: Numbers = buckets // self.per_partition
        return partitions
