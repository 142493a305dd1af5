"""AggregateState: what the state of one running aggregate can do, and what all of them are made of.

Owner: the task thread, through VectorizedAggregation; of a frozen copy, the thread that takes its entries. Entries are
a stored form: plain data, None where no value came. Must not know keys or which aggregates there are.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.state.vectorized_index import Slots, grown

Bools = npt.NDArray[np.bool_]
#: Slots that arrays begin with.
LEAST: Final = 1024


class UnsupportedColumnError(Exception):
    """An aggregate that has no meaning for a column's type; the operator adds its name."""


class SumOverflowError(Exception):
    """A sum that left its type; the operator adds names and key."""

    def __init__(self, slot: int, value: int, kind: str) -> None:
        super().__init__(slot, value, kind)
        self.slot = slot
        self.value = value
        self.type = kind


class ForeignStateError(Exception):
    """Restored state that is of another type than the column; the operator adds names."""


class AggregateState(ABC):
    """One aggregate."""

    #: Type of the result column.
    type: pa.DataType

    @abstractmethod
    def update(self, slots: Slots, column: pa.Array | None, size: int) -> None:
        """Takes the values of a batch, one a slot; `size` slots exist now."""

    @abstractmethod
    def values(self, slots: Slots) -> pa.Array:
        """The results of these slots."""

    # Snapshots. The state of a slot as plain data: None where no value came.

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
        """The state of the slots from `start` to `end`, not included."""

    @abstractmethod
    def restore(self, entries: list[Any]) -> None:
        """Begins with these states, of slots 0 and on. Raises ForeignStateError for what it did not write."""


class SeenSlots:
    """Which slots have had a value: all, as long as no null came."""

    def __init__(self) -> None:
        self._seen: Bools | None = None

    def filter(self, slots: Slots, column: pa.Array, size: int, known: int) -> tuple[Slots, pa.Array]:
        """Slots and values without the nulls; `known` slots existed before this batch."""
        if not column.null_count:
            if self._seen is not None:
                self._seen = grown(self._seen, size, False)
                self._seen[slots] = True
            return slots, column
        if self._seen is None:
            self._seen = np.zeros(max(size, LEAST), np.bool_)
            self._seen[:known] = True
        self._seen = grown(self._seen, size, False)
        slots = slots[column.is_valid().to_numpy(zero_copy_only=False)]
        self._seen[slots] = True
        return slots, column.drop_null()

    def nulls(self, slots: Slots) -> Bools | None:
        """True where a slot has no value; None when all have one."""
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
        """The values of these slots, None where there is none."""
        if self._seen is None:
            return values
        return [
            value if seen else None
            for value, seen in zip(values, self._seen[start:end].tolist(), strict=True)
        ]

    def restore(self, entries: list[Any]) -> None:
        """Slots 0 and on have a value where `entries` has one."""
        seen = np.fromiter((entry is not None for entry in entries), np.bool_, len(entries))
        self._seen = None if seen.all() else seen


def integers_of(column: pa.Array) -> npt.NDArray[Any]:
    """A column without nulls of integers, bools or times as the integers that stand for its values."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not pa.types.is_integer(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    numbers: npt.NDArray[Any] = column.to_numpy()
    return numbers


def filled(entries: list[Any], like: npt.NDArray[Any], empty: Any) -> npt.NDArray[Any]:
    """An array of the entries, `empty` where one is None, of the type of `like` and at least as long."""
    array = np.full(max(len(entries), len(like)), empty, like.dtype)
    try:
        array[: len(entries)] = [empty if entry is None else entry for entry in entries]
    except (OverflowError, TypeError, ValueError) as error:
        raise ForeignStateError(f"it holds values that are no {like.dtype}: {error}") from None
    return array


def dated(values: npt.NDArray[Any], kind: pa.DataType) -> list[Any]:
    """Integers that stand for values of an Arrow type; those of times with the type, which names their unit."""
    numbers: list[Any] = values.tolist()
    if pa.types.is_temporal(kind):
        name = str(kind)
        return [(number, name) for number in numbers]
    return numbers


def undated(entries: list[Any], kind: pa.DataType) -> list[Any]:
    """The integers of `dated`. Raises ForeignStateError where they are of another type."""
    name = str(kind) if pa.types.is_temporal(kind) else None
    numbers = []
    for entry in entries:
        number, found = entry if type(entry) is tuple and len(entry) == 2 else (entry, None)
        if entry is not None and (found != name or type(number) is not int):
            raise ForeignStateError(
                f"it holds {'values of type ' + found if found else repr(number)}, not of {kind}"
            )
        numbers.append(number)
    return numbers
