"""KeyIndex: numbers the keys of a column densely (slots); the slots index numpy arrays of state.

Keys of one machine word are integers, bool, floats, dates, times and timestamps. They use a numpy hash
table with open addressing, without a Python object for each key. Other types use the canonical form of each
distinct value of a batch. Null is a key. Owner: the task thread. It must not know the use of the slots.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import islice, repeat
from types import NoneType
from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.runtime.data.column_numbers import days_of, micros_of, times_of_day
from yarrow.runtime.data.key_classes import RowKey
from yarrow.runtime.data.vectorized_keys import distinct_keys

#: The slot of each row or key: int64, shape (rows,).
Slots = npt.NDArray[np.int64]
#: The word of each key: int64, shape (keys,).
Words = npt.NDArray[np.int64]

_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_FOLD: Final = np.uint64(32)
_NAN_WORD: Final = np.array([np.nan]).view(np.int64)[0]
_LEAST_CAPACITY: Final = 1024
#: Keys up to which the table, with 4 bytes for each place, should fit a core's cache even when sparse.
_SMALL: Final = 16 * 1024


def key_index(key_type: pa.DataType) -> ColumnIndex:
    """The index for a key column of this type; a type that cannot be a key is refused at the first column."""
    return WordIndex(key_type) if is_word(key_type) else ObjectIndex(key_type)


class KeyIndex(ABC):
    """Numbers keys in the order of their first appearance."""

    def __init__(self) -> None:
        #: Number of slots so far.
        self.size = 0

    @abstractmethod
    def slots_of(self, columns: Sequence[pa.Array]) -> Slots:
        """The slot of each row's key, int64, shape (rows,); new keys get the next numbers. Raises ColumnKeyError."""

    @abstractmethod
    def frozen_keys(self) -> Callable[[int, int], list[Any]]:
        """A function from (first slot, slot behind the last) to canonical keys; another thread may call it.

        It knows the present slots only.
        """

    @abstractmethod
    def restore(self, keys: list[Any]) -> Slots:
        """Adds different canonical keys to the empty index; returns the slot of each, int64, shape (keys,).

        Raises ValueError for keys that the columns' types cannot hold.
        """


class ColumnIndex(KeyIndex):
    """An index of the values of one column."""

    @abstractmethod
    def slots(self, column: pa.Array) -> Slots:
        """The slot of each value, int64, shape (rows,); new keys get the next numbers. Raises ColumnKeyError."""

    def slots_of(self, columns: Sequence[pa.Array]) -> Slots:
        return self.slots(columns[0])

    @abstractmethod
    def frozen_lookup(self) -> Callable[[Slots], list[Any]]:
        """A function from slots (int64, shape (n,)) to their canonical keys; as `frozen_keys`."""

    def frozen_keys(self) -> Callable[[int, int], list[Any]]:
        keys_at = self.frozen_lookup()
        return lambda start, end: keys_at(np.arange(start, end))


class WordIndex(ColumnIndex):
    """Open addressing with linear probing, at most half full after each batch.

    Each of its steps processes all rows at once.
    """

    def __init__(self, key_type: pa.DataType | None = None) -> None:
        super().__init__()
        self._key_type = pa.int64() if key_type is None else key_type
        self._null_slot = -1
        #: Key of each slot, int64; the table holds slots alone, so that it stays small.
        self._keys: Words = np.zeros(_LEAST_CAPACITY, np.int64)
        self._resize(_LEAST_CAPACITY)

    def slots(self, column: pa.Array) -> Slots:
        if not column.null_count:
            return self.slots_of_words(words_of(column))
        absent = column.is_null().to_numpy(zero_copy_only=False)
        found = np.empty(len(column), np.int64)
        if self._null_slot < 0:
            self._null_slot = self._append(np.zeros(1, np.int64))
        found[absent] = self._null_slot
        found[~absent] = self.slots_of_words(words_of(column.drop_null()))
        return found

    def frozen_lookup(self) -> Callable[[Slots], list[Any]]:
        words, null_slot, kind = self.frozen_words(), self._null_slot, self._key_type

        def keys(slots: Slots) -> list[Any]:
            codes, distinct = distinct_keys(column_of(words.take(slots), kind))
            if null_slot >= 0:
                codes = np.where(slots == null_slot, len(distinct), codes)
                distinct = [*distinct, None]
            return [distinct[code] for code in codes.tolist()]

        return keys

    def frozen_words(self) -> Words:
        """The words by slot, int64, shape (slots,), as they are now; 0 for null."""
        # Words are never changed, only added; a longer array is a copy.
        return self._keys

    def restore(self, keys: list[Any]) -> Slots:
        try:
            column = word_column(keys, self._key_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not all keys are of type {self._key_type}: {error}") from None
        slots = self.slots(column)
        if self.size != len(keys):
            raise ValueError(f"different keys are equal in type {self._key_type}")
        return slots

    def slots_of_words(self, keys: Words) -> Slots:
        """The slot of each word, both int64, shape (rows,); new words get the next numbers."""
        places = self._home(keys)
        slots = self._slot_at.take(places).astype(np.int64)
        hit = self._matches(slots, keys)
        if not hit.all():
            rows = np.flatnonzero(~hit)
            self._resolve(keys.take(rows), places.take(rows), rows, slots)
        return slots

    def _matches(self, slots: Slots, keys: Words) -> npt.NDArray[np.bool_]:
        # The slot of an empty place, -1, reads the last entry, whatever it holds.
        match: npt.NDArray[np.bool_] = self._keys.take(slots) == keys
        match &= slots >= 0
        return match

    def _resolve(self, keys: Words, places: Slots, rows: Slots, slots: Slots) -> None:
        """Continues probing for the rows without a match at their home place, and adds missing keys.

        Rows of one key always stand at one place, so a key is added once. Of all rows that reach an empty
        place, the last one claims it, and the others look again.
        """
        while len(rows):
            self._claim(keys, places)
            there = self._slot_at.take(places).astype(np.int64)
            match = self._matches(there, keys)
            found, left = np.flatnonzero(match), np.flatnonzero(~match)
            slots[rows.take(found)] = there.take(found)
            keys, rows = keys.take(left), rows.take(left)
            places = (places.take(left) + 1) & self._mask
            if self.size * self._places_a_key() > self._mask + 1:
                # Twice the need: a growing table meets most of its keys while it is sparse.
                self._resize(1 << (self.size * self._places_a_key() * 2 - 1).bit_length())
                places = self._home(keys)

    def _claim(self, keys: Words, places: Slots) -> None:
        empty = np.flatnonzero(self._slot_at.take(places) < 0)
        if not len(empty):
            return
        wanted = places.take(empty)
        # A claim is a number below -1: the last writer's stays.
        claims = -2 - np.arange(len(wanted), dtype=np.int32)
        self._slot_at[wanted] = claims
        won = np.flatnonzero(self._slot_at.take(wanted) == claims)
        first = self._append(keys.take(empty.take(won)))
        self._slot_at[wanted.take(won)] = np.arange(first, self.size, dtype=np.int32)

    def _append(self, keys: Words) -> int:
        first, self.size = self.size, self.size + len(keys)
        self._keys = grown(self._keys, self.size)
        self._keys[first : self.size] = keys
        return first

    def _places_a_key(self) -> int:
        """Least number of places for each key: in a small, sparse table nearly every key is at its home place."""
        return 8 if self.size <= _SMALL else 2

    def _resize(self, capacity: int) -> None:
        """Builds the table anew from the keys of the slots."""
        self._mask = capacity - 1
        self._shift = np.uint64(64 - (capacity.bit_length() - 1))
        self._slot_at: npt.NDArray[np.int32] = np.full(capacity, -1, np.int32)
        slots = np.arange(self.size, dtype=np.int32)
        if self._null_slot >= 0:
            slots = np.delete(slots, self._null_slot)
        places = self._home(self._keys.take(slots))
        while len(slots):
            empty = np.flatnonzero(self._slot_at.take(places) < 0)
            self._slot_at[places.take(empty)] = slots.take(empty)
            left = np.flatnonzero(self._slot_at.take(places) != slots)
            slots = slots.take(left)
            places = (places.take(left) + 1) & self._mask

    def _home(self, keys: Words) -> Slots:
        """The place where the search for each key begins: the upper bits of a product mix all lower bits."""
        bits = keys.view(np.uint64)
        mixed = bits >> _FOLD
        mixed ^= bits
        mixed *= _SPREAD
        mixed >>= self._shift
        return mixed.view(np.int64)


class ObjectIndex(ColumnIndex):
    """A dict from canonical key to slot, asked once a distinct value of a batch."""

    def __init__(self, key_type: pa.DataType) -> None:
        super().__init__()
        self._key_type = key_type
        self._slot_of: dict[Any, int] = {}
        #: Keys by slot, as far as a snapshot has needed them; only added to.
        self._listed: list[Any] = []

    def slots(self, column: pa.Array) -> Slots:
        codes, keys = distinct_keys(column)
        known = self._slot_of
        slot_of_code = np.fromiter(map(known.get, keys, repeat(-1)), np.int64, len(keys))
        # A dictionary may hold values that no row uses: only used keys get a slot.
        for code in np.unique(codes[slot_of_code[codes] < 0]).tolist():
            slot_of_code[code] = known.setdefault(keys[code], len(known))
        self.size = len(known)
        return slot_of_code[codes]

    def frozen_lookup(self) -> Callable[[Slots], list[Any]]:
        # A dict keeps the order in which keys came, which is that of their slots.
        self._listed += islice(self._slot_of, len(self._listed), None)
        listed = self._listed
        return lambda slots: [listed[slot] for slot in slots.tolist()]

    def restore(self, keys: list[Any]) -> Slots:
        _refuse_others(keys, self._key_type, *_classes_of(self._key_type))
        self._slot_of.update(zip(keys, range(len(keys)), strict=True))
        self.size = len(keys)
        return np.arange(self.size)


def is_word(kind: pa.DataType) -> bool:
    """True if values of this type are held as machine words."""
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_floating(kind)
        or types.is_date(kind)
        or types.is_time(kind)
        or types.is_timestamp(kind)
    )


def words_of(column: pa.Array) -> Words:
    """A null-free column of a one-word type as int64, shape (rows,): equal keys have equal words.

    There is one NaN and one zero. Dates are days, times and timestamps microseconds. Raises ColumnKeyError.
    """
    kind = column.type
    if pa.types.is_floating(kind):
        values = column.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        words: Words = values.view(np.int64)
        absent = np.isnan(values)
        if absent.any():
            words[absent] = _NAN_WORD
        return words
    if pa.types.is_date(kind):
        return days_of(column)
    if pa.types.is_time(kind):
        return times_of_day(column)
    if pa.types.is_timestamp(kind):
        return micros_of(column)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    numbers = column.to_numpy()
    whole: Words = (
        numbers.view(np.int64) if numbers.dtype == np.uint64 else numbers.astype(np.int64, copy=False)
    )
    return whole


def column_of(words: Words, kind: pa.DataType) -> pa.Array:
    """The column of the keys with these words (int64, shape (keys,)), inverse to `words_of`.

    Bools are integers, floats have 64 bits, dates and times the units of Python's.
    """
    if pa.types.is_floating(kind):
        return pa.array(words.view(np.float64))
    if pa.types.is_boolean(kind):
        return pa.array(words)
    if pa.types.is_integer(kind):
        return pa.array(words.view(np.uint64) if pa.types.is_uint64(kind) else words)
    held = _type_of_words(kind)
    return pa.array(words.astype(np.int32) if held.bit_width == 32 else words).view(held)


def _type_of_words(kind: pa.DataType) -> pa.DataType:
    """The type with the units in which words hold values of this type."""
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    return kind


def word_column(keys: list[Any], kind: pa.DataType) -> pa.Array:
    """Canonical keys as a column of their type, in the units of words. Raises ValueError if it holds other keys."""
    if pa.types.is_boolean(kind):
        if not {*keys} <= {None, 0, 1}:
            raise ValueError("a key of a boolean column is neither True nor False")
        return pa.array([None if key is None else bool(key) for key in keys], kind)
    if pa.types.is_integer(kind):
        # pyarrow would cut off the fraction of a number.
        _refuse_others(keys, kind, int)
        return pa.array(keys, kind)
    is_float = pa.types.is_floating(kind)
    values = [None if key is None else float(key) for key in keys] if is_float else keys
    column = pa.array(values, _type_of_words(kind))
    # pyarrow takes numbers for times, drops zones and rounds: what it made of each key must be that key.
    codes, held = distinct_keys(column)
    for key, code in zip(keys, codes.tolist(), strict=True):
        if held[code] is not key and held[code] != key:
            raise ValueError(f"the key {key!r} would become {held[code]!r}")
    return column


def _refuse_others(keys: list[Any], kind: pa.DataType, *classes: type) -> None:
    """Raises ValueError for a key that is neither None nor of one of these classes."""
    if not {*map(type, keys)} <= {NoneType, *classes}:
        foreign = next(key for key in keys if key is not None and type(key) not in classes)
        raise ValueError(f"the key {foreign!r} is no value of type {kind}")


def _classes_of(kind: pa.DataType) -> tuple[type, ...]:
    """The classes of the canonical keys, without None, that values of an Arrow type are."""
    if pa.types.is_dictionary(kind):
        return _classes_of(kind.value_type)
    return next((classes for holds, classes in _CLASSES if holds(kind)), ())


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view"


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    is_plain = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return is_plain or str(kind) == "binary_view"


_CLASSES: Final[tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...]] = (
    (_is_text, (str,)),
    (_is_bytes, (bytes,)),
    (pa.types.is_decimal, (int, float, Decimal)),
    (pa.types.is_duration, (dt.timedelta,)),
    (pa.types.is_struct, (RowKey,)),
    (lambda kind: isinstance(kind, pa.UuidType), (UUID,)),
    (pa.types.is_integer, (int,)),
    (pa.types.is_boolean, (int,)),
    (pa.types.is_floating, (int, float)),
    (pa.types.is_date, (dt.date,)),
    (pa.types.is_time, (dt.time,)),
    (pa.types.is_timestamp, (dt.datetime,)),
)


def grown(array: npt.NDArray[Any], size: int, fill: Any = 0) -> npt.NDArray[Any]:
    """The array, any dtype, or a copy of shape (at least size,) and twice its length, filled up with `fill`."""
    if size <= len(array):
        return array
    larger = np.full(max(size, 2 * len(array)), fill, array.dtype)
    larger[: len(array)] = array
    return larger
