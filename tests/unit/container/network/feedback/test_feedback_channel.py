"""FeedbackChannel: order, memory and disk, and the logs of checkpoints, whoever cuts first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from yarrow.common import Types
from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.network.feedback.feedback_channel import FeedbackChannel, FeedbackChannels, FeedbackHead
from yarrow.container.network.feedback.feedback_spill import FeedbackSpill
from yarrow.runtime.data.elements import LoopMarker, RowBatch
from yarrow.runtime.data.serializers.serializers import serializer_for


class Head:
    """The head's side: counts what it is told."""

    def __init__(self, folder: Path, memory_bytes: int = 1 << 20) -> None:
        self.woken = self.logged = 0
        self.channel = FeedbackChannel()
        self.spill = FeedbackSpill(str(folder / "task"), ElementCodec(serializer_for(Types.LONG())))
        self.side = FeedbackHead(self._wake, self._on_logged, self.spill, memory_bytes, None)

    def open(self, *restored: RowBatch) -> FeedbackChannel:
        self.channel.open(self.side, restored)
        return self.channel

    def _wake(self) -> None:
        self.woken += 1

    def _on_logged(self) -> None:
        self.logged += 1


def rows(*numbers: int) -> RowBatch:
    return RowBatch(list(numbers))


def drained(channel: FeedbackChannel, most: int = 100) -> list[Any]:
    """All rows that may be taken, and rounds of markers as texts."""
    found: list[Any] = []
    while (entry := channel.take(most)) is not None:
        found += [f"round {entry.round}"] if isinstance(entry, LoopMarker) else entry.rows
    return found


def logged(channel: FeedbackChannel, checkpoint_id: int) -> list[int]:
    assert channel.is_logged(checkpoint_id)
    return [row for batch in channel.take_log(checkpoint_id) for row in batch.rows]


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    made = Head(tmp_path)
    yield made
    made.channel.close()


def test_restored_rows_come_first_and_markers_keep_their_places(head: Head) -> None:
    head.channel.put(rows(3))
    channel = head.open(rows(1), rows(2))
    channel.put_marker(LoopMarker(1, 7, 0))
    channel.put(rows(4))
    assert channel.waiting_rows == 4
    assert drained(channel) == [1, 2, 3, "round 7", 4]
    assert (channel.waiting_rows, channel.waiting_bytes) == (0, 0)


def test_a_batch_is_taken_in_pieces_with_its_timestamps(head: Head) -> None:
    channel = head.open()
    channel.put(RowBatch([1, 2, 3], [10, None, 30]))
    first, second = channel.take(2), channel.take(2)
    assert isinstance(first, RowBatch) and isinstance(second, RowBatch)
    assert (first.rows, first.timestamps) == ([1, 2], [10, None])
    assert (second.rows, second.timestamps) == ([3], [30])


def test_small_batches_are_taken_together_up_to_a_marker(head: Head) -> None:
    channel = head.open()
    for batch in (rows(1), RowBatch([2, 3], [20, None]), rows(4, 5)):
        channel.put(batch)
    channel.put_marker(LoopMarker(1, 7, 0))
    channel.put(rows(6))
    joined, rest = channel.take(4), channel.take(4)
    assert isinstance(joined, RowBatch) and isinstance(rest, RowBatch)
    assert (joined.rows, joined.timestamps) == ([1, 2, 3, 4], [None, 20, None, None])
    assert (rest.rows, rest.timestamps, channel.waiting_rows) == ([5], None, 1)
    assert isinstance(channel.take(4), LoopMarker)
    assert drained(channel) == [6] and channel.waiting_bytes == 0


def test_the_head_is_woken_by_the_first_row_alone(head: Head) -> None:
    channel = head.open()
    channel.put(rows(1))
    channel.put(rows(2))
    assert head.woken == 1


def test_a_log_has_what_waits_at_the_cut_and_what_comes_before_the_tail_cuts(head: Head) -> None:
    channel = head.open()
    channel.put(rows(1, 2))
    assert channel.take(1) is not None
    channel.begin_log(5)
    channel.put(rows(3))
    assert drained(channel) == [2, 3] and not channel.is_logged(5)
    channel.put_barrier(5)
    channel.put(rows(4))
    assert head.logged == 1
    assert logged(channel, 5) == [2, 3]


def test_rows_behind_the_barrier_wait_until_the_head_has_cut(head: Head) -> None:
    channel = head.open()
    channel.put(rows(1))
    channel.put_barrier(5)
    channel.put(rows(2))
    assert drained(channel) == [1] and not channel.has_data
    channel.begin_log(5)
    assert logged(channel, 5) == []
    assert drained(channel) == [2]


@pytest.mark.parametrize("ends", ["completed", "aborted"])
def test_rows_behind_the_barrier_of_a_checkpoint_without_a_cut_go_on(head: Head, ends: str) -> None:
    channel = head.open()
    channel.put_barrier(5)
    channel.put(rows(2))
    getattr(channel, f"checkpoint_{ends}")(5)
    assert drained(channel) == [2]
    channel.put_barrier(5)
    channel.put(rows(3))
    assert drained(channel) == [3], "the barrier came too late"


def test_logs_of_two_checkpoints_at_once(head: Head) -> None:
    channel = head.open()
    channel.begin_log(1)
    channel.put(rows(1))
    channel.begin_log(2)
    channel.put(rows(2))
    channel.put_barrier(1)
    channel.put(rows(3))
    channel.put_barrier(2)
    assert (logged(channel, 1), logged(channel, 2)) == ([1, 2], [1, 2, 3])


def test_a_log_has_copies_of_rows_that_can_change(tmp_path: Path) -> None:
    made = Head(tmp_path)
    made.side = made.side._replace(copy=list)
    channel = made.open()
    channel.begin_log(1)
    row = [1]
    channel.put(RowBatch([row]))
    row.append(2)
    channel.put_barrier(1)
    assert [batch.rows for batch in channel.take_log(1)] == [[[1]]]


def test_rows_beyond_the_bound_go_to_disk_and_come_in_order(tmp_path: Path) -> None:
    made = Head(tmp_path, memory_bytes=200)
    channel = made.open()
    for number in range(50):
        channel.put(rows(number, 100 + number))
    assert channel.disk_bytes > 0
    assert not os.listdir(tmp_path / "task"), "the file has no name"
    channel.begin_log(1)
    expected = [row for number in range(50) for row in (number, 100 + number)]
    assert drained(channel, 3) == expected
    assert (channel.waiting_bytes, channel.disk_bytes) == (0, 0)
    channel.put(rows(7))
    assert channel.disk_bytes == 0, "there is room in memory again"
    channel.put_barrier(1)
    assert logged(channel, 1) == [*expected, 7]
    channel.close()


def test_rows_behind_the_end_are_counted(head: Head) -> None:
    channel = head.open()
    channel.begin_log(1)
    channel.end()
    channel.put(rows(1, 2))
    assert (channel.dropped_rows, head.logged) == (2, 1)
    assert logged(channel, 1) == []


def test_head_and_tail_of_an_attempt_share_a_channel() -> None:
    channels = FeedbackChannels()
    first: Sequence[FeedbackChannel] = [channels.acquire("attempt", 1) for _ in range(2)]
    assert first[0] is first[1]
    assert channels.acquire("other", 1) is not first[0]
    channels.release("attempt", 1)
    assert channels.acquire("attempt", 1) is first[0]
    channels.release("attempt", 1)
    channels.release("attempt", 1)
    assert channels.acquire("attempt", 1) is not first[0]
