"""How Spark cuts the files of a scan into tasks, and the size of a part that deals them out evenly. Pure.

Owner: none. Spark's own bound takes no notice of how many tasks run at a time. So the last of a few large tasks runs
while other slots stand still. Must not look into files.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

#: The default of `spark.sql.files.maxPartitionBytes`.
PART_BYTES: Final = 128 << 20
#: Bytes that Spark could read while it opens a file: the default of `spark.sql.files.openCostInBytes`.
_OPENING: Final = 4 << 20
#: Least bytes of a part that is chosen here: a task costs some milliseconds, and sends a row of each key it has seen.
_LEAST: Final = 16 << 20
#: Most tasks a slot, on average, that are planned. Behind more of them the last one hardly counts.
_MOST_ROUNDS: Final = 8
#: By which share the tasks must end sooner: sizes of files tell the work of a task only roughly.
_WORTH: Final = 0.02


def part_bytes(scans: Sequence[Sequence[int]], slots: int) -> int:
    """The most bytes of a task with which all tasks end soonest, if so many run at a time.

    `scans` are the sizes of each scan's files in bytes. Of sizes that are nearly as good, the largest is chosen: fewer
    tasks send fewer rows. Spark's own size stays unless another one ends the tasks sooner.
    """
    total = sum(map(sum, scans))
    if total > PART_BYTES * slots * _MOST_ROUNDS:
        return PART_BYTES
    ends = {size: _end([*_all_tasks(scans, slots, size)], slots) for size in _sizes(scans, total, slots)}
    soonest = min(ends.values())
    if ends[PART_BYTES] <= soonest * (1 + _WORTH):
        return PART_BYTES
    return max(size for size, end in ends.items() if end <= soonest * (1 + _WORTH))


def _sizes(scans: Sequence[Sequence[int]], total: int, slots: int) -> set[int]:
    """Sizes that may deal the files out evenly: equal parts of all bytes, and of the largest file."""
    largest = max((size for scan in scans for size in scan), default=0)
    parts = range(1, _MOST_ROUNDS + 1)
    equal = {-(-total // (slots * count)) for count in parts} | {-(-largest // count) for count in parts}
    return {PART_BYTES} | {size for size in equal if _LEAST <= size < PART_BYTES}


def _all_tasks(scans: Iterable[Sequence[int]], slots: int, most: int) -> Iterator[int]:
    for scan in scans:
        yield from tasks_of(scan, slots, most)


def tasks_of(scan: Sequence[int], slots: int, most: int) -> list[int]:
    """The bytes of Spark's tasks for files of these sizes, with those that opening costs, in the order of their start.

    The rules are those of Spark's `FilePartition`: with less to read than `most` a slot, each slot gets its share.
    """
    share = sum(size + _OPENING for size in scan) // slots
    most = min(most, max(_OPENING, share))
    parts = sorted((part for size in scan for part in _parts(size, most)), reverse=True)
    tasks: list[int] = []
    for part in parts:
        if tasks and tasks[-1] + part <= most:
            tasks[-1] += part + _OPENING
        else:
            tasks.append(part + _OPENING)
    return tasks


def _parts(size: int, most: int) -> Iterator[int]:
    return (min(most, size - begin) for begin in range(0, size, most))


def _end(tasks: Iterable[int], slots: int) -> int:
    """When the last task ends, if each slot takes the next one as soon as it is free."""
    free = [0] * slots
    for task in tasks:
        heapq.heapreplace(free, free[0] + task)
    return max(free)
