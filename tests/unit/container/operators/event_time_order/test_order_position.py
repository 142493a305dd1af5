"""What a subtask begins with, whose key groups come from subtasks with other positions."""

from __future__ import annotations

from yarrow.container.operators.event_time_order.order_position import (
    OrderPosition,
    RestoredPositions,
    stored_watermark,
)
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.key_groups import KeyGroupRange

#: Key groups 0 to 7 had come to 100, those from 8 on to 50; a row of 90 with the number 4 had left last.
STORED = [(0, 7, 100, 90, 4, 9), (8, 15, 50, MIN_TIMESTAMP, -1, 12)]


def test_a_new_job_begins_at_the_beginning() -> None:
    positions = RestoredPositions([], KeyGroupRange(0, 15))
    assert positions.watermark == positions.last_watermark == MIN_TIMESTAMP
    assert positions.last_taken_time is None
    assert positions.next_number == 0
    assert not positions.has_left(3, 5, 0)


def test_event_time_begins_at_the_least_watermark_of_the_own_key_groups() -> None:
    assert RestoredPositions(STORED, KeyGroupRange(0, 15)).watermark == 50
    assert RestoredPositions(STORED, KeyGroupRange(0, 15)).last_watermark == 100
    assert RestoredPositions(STORED, KeyGroupRange(0, 3)).watermark == 100
    assert RestoredPositions(STORED, KeyGroupRange(8, 8)).last_watermark == 50


def test_a_key_group_keeps_its_own_watermark() -> None:
    positions = RestoredPositions(STORED, KeyGroupRange(5, 10))
    assert [positions.watermark_of(group) for group in (5, 7, 8, 10)] == [100, 100, 50, 50]


def test_rows_have_left_up_to_time_and_number_of_their_key_group() -> None:
    positions = RestoredPositions(STORED, KeyGroupRange(0, 15))
    assert positions.last_taken_time == 90
    assert positions.has_left(0, 89, 7)
    assert positions.has_left(0, 90, 4)
    assert not positions.has_left(0, 90, 5)
    assert not positions.has_left(0, 91, 0)
    assert not positions.has_left(8, 89, 0)


def test_numbers_go_on_behind_those_of_all_rows() -> None:
    assert RestoredPositions(STORED, KeyGroupRange(0, 15)).next_number == 12
    assert RestoredPositions(STORED, KeyGroupRange(0, 7)).next_number == 9


def test_key_groups_that_had_come_further_are_stored_beside_the_others() -> None:
    positions = RestoredPositions(STORED, KeyGroupRange(4, 9))
    present = OrderPosition(4, 9, 60, 60, 3, 20)
    stored = positions.stored_at(present)
    assert stored == [(4, 7, 100, 60, 3, 20), (8, 9, 60, 60, 3, 20), present]
    again = RestoredPositions(stored, KeyGroupRange(0, 15))
    assert (again.watermark, again.watermark_of(7), again.watermark_of(8)) == (60, 100, 60)
    assert again.has_left(4, 60, 3)


def test_a_position_is_stored_as_a_tuple() -> None:
    assert OrderPosition(*STORED[0]).taken == (90, 4)
    assert tuple(OrderPosition(*STORED[0])) == STORED[0]


def test_the_end_of_the_input_is_not_stored() -> None:
    assert stored_watermark(7) == 7
    assert stored_watermark(MAX_TIMESTAMP) == MIN_TIMESTAMP
