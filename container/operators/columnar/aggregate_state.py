"""AggregateState: the state of one running aggregate over all keys, and helpers of its implementations.

Owner: the task thread, through VectorizedAggregation; of a frozen copy, the thread that takes its entries.
Entries are a stored form: plain data, None for a slot without a value. Must not know keys or the other
aggregates. `Slots` are 1-d integer arrays with one slot for each row.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.operators.columnar.vectorized_index import Slots, grown

Bools = npt.NDArray[np.bool_]
#: Initial number of slots of arrays.
LEAST: Final = 1024


class UnsupportedColumnError(Exception):
    """The aggregate is not defined for the column's type; the operator adds its name."""


class SumOverflowError(Exception):
    """A sum exceeded its type; the operator adds names and key."""

    def __init__(self, slot: int, value: int, kind: str) -> None:
        super().__init__(slot, value, kind)
        self.slot = slot
        self.value = value
        self.type = kind
        #: Position of the aggregate, where several take the same rows.
        self.aggregate = 0


class ForeignStateError(Exception):
    """Restored state has another type than the column; the operator adds names."""


class AggregateState(ABC):
    """One aggregate."""

    #: Type of the result column.
    type: pa.DataType
    #: True if a result is the same to the last bit, whatever the order and the groups in which values come. No Python
    #: object is made of a value.
    is_exact: bool = False

    @abstractmethod
    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        """Takes a batch: `slots` (int64) and `column` have shape (rows,). `size` slots exist now."""

    @abstractmethod
    def values(self, slots: Slots) -> pa.Array:
        """The results of `slots` (int64, shape (slots,)) as a column of that length."""

    # Partial results: columns from which another state goes on. They are null for a slot without a value.

    def partials(self, slots: Slots) -> list[pa.Array]:
        """The partial results of `slots` (int64, shape (slots,)) as columns of that length."""
        return [self.values(slots)]

    def merge(self, slots: Slots, columns: Sequence[pa.Array], size: int) -> None:
        """Takes partial results of another state: `slots` (int64) and each column have shape (rows,)."""
        self.update(slots, columns[0], size)

    def absorb(self, other: Self, slots: Slots, size: int) -> None:
        """Takes all of another state of the same aggregate, which has the same slots; `size` slots exist.

        `slots` are those that have had rows there, int64, shape (slots,). Both states allow gaps.
        """
        self.merge(slots, other.partials(slots), size)

    @property
    def partial_columns(self) -> int:
        """The number of columns of `partials`."""
        return 1

    def allow_gaps(self, came: Callable[[], Bools]) -> None:
        """Tells that rows do not come for all slots: `came` gives those that have had some before a batch.

        Its result is bool, shape (any number of slots,). Called before the first batch.
        """
        return None

    def forget(self, slots: Slots) -> None:
        """Says that nobody asks for these slots (int64, shape (slots,), not empty) any more."""
        return None

    def has_room_for(self, column: pa.Array | None) -> bool:
        """False if taking these values might fail because a result becomes too large."""
        return True

    # Snapshots. The state of a slot is plain data: None if no value came.

    def frozen(self, size: int) -> Self:
        """A copy of the first `size` slots, for `entries` alone; another thread may call that."""
        made = copy.copy(self)
        made._detach(size)
        return made

    @abstractmethod
    def _detach(self, size: int) -> None:
        """Replaces arrays by copies of at least `size` slots."""

    @abstractmethod
    def entries(self, start: int, end: int) -> list[Any]:
        """The states of the slots from `start` to `end`, without `end`."""

    @abstractmethod
    def restore(self, entries: list[Any]) -> None:
        """Restores these states for slots 0 and on. Raises ForeignStateError for entries of another aggregate."""


class SeenSlots:
    """The slots that have had a value: all that have had rows, as long as no null came."""

    def __init__(self) -> None:
        self._seen: Bools | None = None
        #: The slots that have had rows before this batch; None = all that existed.
        self.came: Callable[[], Bools] | None = None

    def filter(self, slots: Slots, column: pa.Array, size: int, known: int) -> tuple[Slots, pa.Array]:
        """Slots (int64, shape (rows,)) and values without the nulls; `known` slots existed before this batch."""
        if not column.null_count:
            if self._seen is not None:
                self._seen = grown(self._seen, size, False)
                self._seen[slots] = True
            return slots, column
        if self._seen is None:
            self._seen = np.zeros(max(size, LEAST), np.bool_)
            if self.came is None:
                self._seen[:known] = True
            else:
                came = self.came()
                self._seen[: len(came)] = came[: len(self._seen)]
        self._seen = grown(self._seen, size, False)
        slots = slots[column.is_valid().to_numpy(zero_copy_only=False)]
        self._seen[slots] = True
        return slots, column.drop_null()

    def absorb(self, other: SeenSlots, size: int) -> None:
        """Takes the slots of another one with gaps; `size` slots exist."""
        if self._seen is None and other._seen is None:
            return
        seen, others = grown(self._with_values().copy(), size, False), other._with_values()[:size]
        seen[: len(others)] |= others
        self._seen = seen

    def _with_values(self) -> Bools:
        """The slots that have had a value, where there are gaps: bool, shape (any number of slots,)."""
        if self._seen is not None:
            return self._seen
        assert self.came is not None, "there are gaps"
        return self.came()

    def nulls(self, slots: Slots) -> Bools | None:
        """True for each slot without a value: bool, shape (slots,); None if all have one."""
        if self._seen is None:
            return None
        missing = ~self._seen[slots]
        return missing if missing.any() else None

    def frozen(self, size: int) -> SeenSlots:
        """A copy of the first `size` slots."""
        made = SeenSlots()
        made._seen = None if self._seen is None else grown(self._seen, size, False)[:size].copy()
        return made

    def with_nulls(self, values: list[Any], start: int, end: int) -> list[Any]:
        """The values of these slots, None for a slot without one."""
        if self._seen is None:
            return values
        return [
            value if seen else None
            for value, seen in zip(values, self._seen[start:end].tolist(), strict=True)
        ]

    def restore(self, entries: list[Any]) -> None:
        """Restores slots 0 and on: those with an entry have a value."""
        seen = np.fromiter((entry is not None for entry in entries), np.bool_, len(entries))
        self._seen = None if seen.all() else seen


def integers_of(column: pa.Array) -> npt.NDArray[Any]:
    """A null-free column of integers, bools or times as integers of its width, bool as int8, shape (rows,)."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not pa.types.is_integer(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    numbers: npt.NDArray[Any] = column.to_numpy()
    return numbers


def filled(entries: list[Any], like: npt.NDArray[Any], empty: Any) -> npt.NDArray[Any]:
    """The entries as an array, dtype of `like`, shape (at least len(like),), `empty` in place of None."""
    array = np.full(max(len(entries), len(like)), empty, like.dtype)
    try:
        array[: len(entries)] = [empty if entry is None else entry for entry in entries]
    except (OverflowError, TypeError, ValueError) as error:
        raise ForeignStateError(f"the state holds values that are no {like.dtype}: {error}") from None
    return array


def dated(values: npt.NDArray[Any], kind: pa.DataType) -> list[Any]:
    """Python values of the integers, any int dtype, shape (slots,); times with their type, which names the unit."""
    numbers: list[Any] = values.tolist()
    if pa.types.is_temporal(kind):
        name = str(kind)
        return [(number, name) for number in numbers]
    return numbers


def undated(entries: list[Any], kind: pa.DataType) -> list[Any]:
    """The integers of `dated`. Raises ForeignStateError if they have another type."""
    name = str(kind) if pa.types.is_temporal(kind) else None
    numbers = []
    for entry in entries:
        number, found = entry if type(entry) is tuple and len(entry) == 2 else (entry, None)
        if entry is not None and (found != name or type(number) is not int):
            raise ForeignStateError(
                f"the state holds {'values of type ' + found if found else repr(number)}, not of {kind}"
            )
        numbers.append(number)
    return numbers
