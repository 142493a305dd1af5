"""Sizes of parts that deal files out evenly. That Spark cuts files as `tasks_of` says is held by tests/spark."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.batch.spark.scan_partitions import PART_BYTES, part_bytes, tasks_of

MIB = 1 << 20
OPENING = 4 * MIB
SCANS = st.lists(st.lists(st.integers(0, 700 * MIB), min_size=1, max_size=9), min_size=1, max_size=3)


def end_of(scans: list[list[int]], slots: int, size: int) -> int:
    """When the last task ends: the slot that is free first takes the next one."""
    free = [0] * slots
    for task in [task for scan in scans for task in tasks_of(scan, slots, size)]:
        free[free.index(min(free))] += task
    return max(free)


def test_the_last_of_a_few_tasks_does_not_run_alone() -> None:
    files = [147 * MIB] * 4
    # Spark's own size leaves 19 MiB of each file to a fifth task, for which one slot has nothing to do.
    assert tasks_of(files, 2, PART_BYTES) == [132 * MIB] * 4 + [4 * (19 + 4) * MIB]
    assert part_bytes([files], 2) == 98 * MIB
    assert tasks_of(files, 2, 98 * MIB) == [102 * MIB] * 4 + [53 * MIB] * 4


def test_one_large_file_is_cut_for_all_slots() -> None:
    # Spark's own size: two large parts and a small one, for two slots.
    assert tasks_of([300 * MIB], 2, PART_BYTES) == [132 * MIB, 132 * MIB, 48 * MIB]
    assert tasks_of([300 * MIB], 2, part_bytes([[300 * MIB]], 2)) == [79 * MIB] * 4
    # With less than that for each slot, Spark gives each its share.
    assert part_bytes([[300 * MIB]], 4) == PART_BYTES
    assert tasks_of([300 * MIB], 4, PART_BYTES) == [80 * MIB] * 3 + [76 * MIB]


def test_files_that_are_dealt_out_evenly_keep_the_size_of_spark() -> None:
    for files, slots in (([10], 2), ([128 * MIB] * 4, 2), ([30 * MIB] * 8, 4), ([MIB] * 8, 8)):
        assert part_bytes([files], slots) == PART_BYTES


def test_behind_many_tasks_the_last_one_does_not_count() -> None:
    assert part_bytes([[147 * MIB] * 1000], 2) == PART_BYTES


def test_tasks_of_several_scans_follow_each_other() -> None:
    scans = [[147 * MIB] * 4, [147 * MIB] * 2]
    size = part_bytes(scans, 2)
    # Spark's own size: 488 MiB in one slot, and 442 in the other one.
    assert end_of(scans, 2, PART_BYTES) == 488 * MIB
    assert end_of(scans, 2, size) < 470 * MIB


@given(SCANS, st.integers(1, 9))
def test_no_choice_ends_later_than_that_of_spark(scans: list[list[int]], slots: int) -> None:
    size = part_bytes(scans, slots)
    assert 16 * MIB <= size <= PART_BYTES
    assert end_of(scans, slots, size) <= end_of(scans, slots, PART_BYTES)


@given(
    st.lists(st.integers(0, 700 * MIB), min_size=1, max_size=9), st.integers(1, 9), st.integers(1, PART_BYTES)
)
def test_each_byte_is_read_by_one_task(files: list[int], slots: int, most: int) -> None:
    most = max(most, MIB)
    tasks = tasks_of(files, slots, most)
    taken = sum(tasks) - sum(files)
    # Opening costs the same for each part of a file.
    assert taken % OPENING == 0
    assert all(task <= most + OPENING for task in tasks)
