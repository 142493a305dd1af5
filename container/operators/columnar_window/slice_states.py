"""SliceStates: what a subtask has of one slice of time: the keys with rows in it, and an array an aggregate.

Owner: the task thread. Arrays are indexed by the slots of the operator's keys. Must not know times, keys or columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.aggregate_state import (
    LEAST,
    AggregateState,
    Bools,
    SumOverflowError,
)
from yarrow.container.operators.columnar.vectorized_index import Slots, grown

#: A slice that has fewer than one slot in so many is merged slot by slot, others as whole arrays.
_SPARSE: Final = 8


class SliceStates:
    """The aggregates of the keys that have rows in one slice, or in several that were merged."""

    def __init__(self, states: Sequence[AggregateState]) -> None:
        """`states` are empty, and belong to the slice from now on."""
        self.states = tuple(states)
        #: True for each slot that has rows; bool, shape (any number of slots,).
        self.present: Bools = np.zeros(LEAST, np.bool_)
        for state in self.states:
            state.allow_gaps(self._present_now)

    def _present_now(self) -> Bools:
        return self.present

    def update(self, slots: Slots, columns: Iterable[pa.Array | None], size: int) -> None:
        """Takes rows: `slots` (int64) and each column have shape (rows,), `size` slots exist.

        Raises SumOverflowError with the position of the aggregate.
        """
        for number, (state, column) in enumerate(zip(self.states, columns, strict=True)):
            try:
                state.update(slots, column, size)
            except SumOverflowError as error:
                error.aggregate = number
                raise
        self._mark(slots, size)

    def merge(self, slots: Slots, other: SliceStates, of_other: Slots, size: int) -> None:
        """Takes what another slice has of its slots `of_other`: here these keys have `slots`.

        Both are int64, shape (slots,). Raises SumOverflowError with the position of the aggregate.
        """
        for number, (state, merged) in enumerate(zip(self.states, other.states, strict=True)):
            try:
                state.merge(slots, merged.partials(of_other), size)
            except SumOverflowError as error:
                error.aggregate = number
                raise
        self._mark(slots, size)

    def absorb(self, other: SliceStates, size: int) -> None:
        """Takes all that another slice has of the same slots, of which there are `size`.

        Raises SumOverflowError with the position of the aggregate.
        """
        slots = other.slots()
        if _SPARSE * len(slots) < size:
            self.merge(slots, other, slots, size)
            return
        for number, (state, absorbed) in enumerate(zip(self.states, other.states, strict=True)):
            try:
                state.absorb(absorbed, slots, size)
            except SumOverflowError as error:
                error.aggregate = number
                raise
        self._mark(slots, size)

    def _mark(self, slots: Slots, size: int) -> None:
        self.present = grown(self.present, size, False)
        self.present[slots] = True

    def forget(self, slots: Slots) -> None:
        """Says that nobody asks for these slots (int64, shape (slots,)) any more."""
        if len(slots):
            for state in self.states:
                state.forget(slots)

    def slots(self) -> Slots:
        """The slots that have rows, int64, shape (slots,), ascending."""
        return np.flatnonzero(self.present)

    def slots_between(self, first: int, end: int) -> Slots:
        """The slots from `first` to `end`, without `end`, that have rows, less `first`: int64, shape (slots,)."""
        return np.flatnonzero(self.present[first:end])

    def holds(self, slots: Slots) -> Bools:
        """True for each of the slots (int64, shape (slots,), ascending) that has rows."""
        self.present = grown(self.present, int(slots[-1]) + 1 if len(slots) else 0, False)
        return self.present.take(slots)

    def values(self, slots: Slots) -> list[pa.Array]:
        """The result of each aggregate for slots that have rows (int64, shape (slots,)), as columns of that length."""
        return [state.values(slots) for state in self.states]

    # ------------------------------------------------------------------ snapshots

    def frozen(self, size: int) -> Self:
        """A copy of the first `size` slots, for `entries` alone; another thread may call that."""
        made = type(self)(())
        made.states = tuple(state.frozen(size) for state in self.states)
        made.present = grown(self.present, size, False)[:size].copy()
        return made

    def entries(self, start: int, end: int, names: Sequence[str]) -> tuple[list[int], list[dict[str, Any]]]:
        """The slots from `start` to `end`, without `end`, that have rows, less `start`, and their states by `names`."""
        places: list[int] = self.slots_between(start, end).tolist()
        columns = [state.entries(start, end) for state in self.states]
        if len(places) < end - start:
            columns = [list(map(column.__getitem__, places)) for column in columns]
        if len(columns) == 1:
            (name,), (column,) = names, columns
            return places, [{name: entry} for entry in column]
        return places, [dict(zip(names, part, strict=True)) for part in zip(*columns, strict=True)]

    def restore_present(self, slots: Slots, size: int) -> None:
        """Marks the slots (int64, shape (slots,)) whose states were restored."""
        self._mark(slots, size)


def slots_of_any(slices: Sequence[SliceStates]) -> Slots:
    """The slots that have rows in at least one slice, int64, shape (slots,), ascending."""
    if len(slices) == 1:
        return slices[0].slots()
    found = np.zeros(max((len(states.present) for states in slices), default=0), np.bool_)
    for states in slices:
        found[: len(states.present)] |= states.present
    return np.flatnonzero(found)
