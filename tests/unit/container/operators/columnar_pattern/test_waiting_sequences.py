"""WaitingSequences: partial matches by slot, taken together, and what large arrays leave behind."""

from __future__ import annotations

import numpy as np

from yarrow.container.operators.columnar_pattern.pending_batches import Numbers
from yarrow.container.operators.columnar_pattern.waiting_sequences import WaitingSequences


def sequences(slots: list[int], last: int, first: int = 0) -> Numbers:
    """One partial match of one row for each slot; rows are numbered from `first` on."""
    return np.array([slots, [last] * len(slots), range(first, first + len(slots))], np.int64)


def test_all_of_a_slot_leave_together_with_the_place_of_their_slot() -> None:
    waiting = WaitingSequences(1)
    waiting.add(sequences([3, 1, 3], 10), 0)
    waiting.add(sequences([3, 2], 20, first=3), 0)
    taken, owners = waiting.take(np.array([7000, 3, -1, 2]))
    assert sorted(zip(owners.tolist(), taken[2].tolist(), strict=True)) == [(1, 0), (1, 2), (1, 3), (3, 4)]
    assert waiting.count == 1
    taken, owners = waiting.take(np.array([3, 2, 1]))
    assert (taken[2].tolist(), owners.tolist()) == ([1], [2])
    assert waiting.first_last is None


def test_those_whose_time_has_passed_go_and_are_not_taken() -> None:
    waiting = WaitingSequences(1)
    waiting.add(sequences([1, 2], 10), 0)
    waiting.add(sequences([1], 20, first=2), 0)
    assert waiting.first_last == 10
    assert waiting.remove_before(11)[2].tolist() == [0, 1]
    assert waiting.first_last == 20
    taken, _ = waiting.take(np.array([1, 2]))
    assert taken[2].tolist() == [2]


def test_when_the_last_one_goes_large_arrays_go() -> None:
    waiting = WaitingSequences(1)
    small = len(waiting._heads), len(waiting._alive)
    waiting.add(sequences(list(range(50_000)), 10), 0)
    assert len(waiting._heads) >= 50_000
    assert waiting.remove_before(11).shape == (3, 50_000)
    assert (len(waiting._heads), len(waiting._alive)) == small
    waiting.add(sequences([40_000], 30), 20)
    assert waiting.take(np.array([40_000]))[0][2].tolist() == [0]
