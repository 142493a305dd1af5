"""Fine buckets: dicts with the rows of one side of a narrow interval join, each for a tenth of a second at most.

Owner: whoever has the bucket; pure. A bucket has one of two forms, and generated code works on them too:

- By place, for an interval of one time. A key and a time are one place, which is looked up at once. So a row costs few
  reads of memory that is in no cache. A row stands as it came. Several of one place stand in a list, and so does a row
  that is a list.
- By key, for other intervals: a list of times and rows in turn, as they came.

A bucket has a number: the quotient of its times and its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from yarrow.container.operators.join.side_rows import Entry
from yarrow.container.operators.rows_by_key import key_list
from yarrow.runtime.snapshot.key_columns import Numbers, numbers_of

_TIME: Final = itemgetter(0)

#: The rows of a fine bucket, by place or by canonical key.
Rows = dict[Any, Any]


class FineColumns(NamedTuple):
    """Rows as columns; those of one key and time stand as they came."""

    #: Canonical keys: int64 if all are ints of 64 bits.
    keys: Numbers | list[Any]
    times: Numbers
    rows: list[Any]


def place_of(key: Any, time: int, length: int) -> Any:
    """The place of a canonical key at a time, in the time's bucket of `length` milliseconds."""
    return key * length + time if key.__class__ is int else (key, time % length)


def timed_entries(found: list[Any]) -> list[Entry]:
    """The entries of times and rows in turn, by time; equal times stand as they came."""
    turns = iter(found)
    entries = [(time, False, row) for time, row in zip(turns, turns, strict=True)]
    entries.sort(key=_TIME)
    return entries


def copy_of(rows: Rows, *, has_lists: bool) -> Rows:
    """A copy of a bucket. `has_lists`: it may have lists."""
    if not has_lists:
        return rows.copy()
    return {at: found.copy() if found.__class__ is list else found for at, found in rows.items()}


def columns_by_place(rows: Rows, number: int, length: int, *, has_lists: bool) -> FineColumns:
    """The rows of a bucket by place. `has_lists`: it may have lists."""
    places, found = list(rows), list(rows.values())
    if has_lists:
        lists = [each if each.__class__ is list else (each,) for each in found]
        places = list(chain.from_iterable(map(repeat, places, map(len, lists))))
        found = list(chain.from_iterable(lists))
    numbers = numbers_of(places)
    if numbers is not None:
        # A place is key * length + number * length + offset.
        keys = numbers // length - number
        return FineColumns(keys, numbers - keys * length, found)
    start = number * length
    pairs = [divmod(place - start, length) if place.__class__ is int else place for place in places]
    times = np.array([offset for _, offset in pairs], dtype=np.int64) + start
    return FineColumns([key for key, _ in pairs], times, found)


def columns_by_key(rows: Rows) -> FineColumns:
    """The rows of a bucket by key."""
    counts = [len(found) // 2 for found in rows.values()]
    keys = list(chain.from_iterable(map(repeat, rows, counts)))
    turns = list(chain.from_iterable(rows.values()))
    numbers = numbers_of(keys)
    return FineColumns(
        keys if numbers is None else numbers, np.array(turns[::2], dtype=np.int64), turns[1::2]
    )


def joined_columns(parts: Sequence[FineColumns]) -> FineColumns:
    """The rows of several buckets, one behind the other."""
    arrays = [part.keys for part in parts if isinstance(part.keys, np.ndarray)]
    are_numbers = len(arrays) == len(parts)
    keys = (
        np.concatenate(arrays)
        if are_numbers
        else list(chain.from_iterable(key_list(part.keys) for part in parts))
    )
    return FineColumns(
        keys,
        np.concatenate([part.times for part in parts]),
        list(chain.from_iterable(part.rows for part in parts)),
    )
