"""Which sessions the rows of a batch make, and with which sessions of before they merge.

Owner: the calling thread; pure. A row at t makes the session [t, t + gap), and sessions of a key that overlap or touch
are one. Keys are slots. Must not know aggregates, watermarks or state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from yarrow.container.operators.columnar.row_times import Times
from yarrow.container.operators.columnar.vectorized_index import Slots
from yarrow.runtime.data.elements import MIN_TIMESTAMP

Integers = npt.NDArray[np.int64]


class SessionBounds(NamedTuple):
    """Some sessions: the slot of the key, start and end of each; all int64, shape (sessions,)."""

    keys: Slots
    starts: Times
    ends: Times


class RowSessions(NamedTuple):
    """The sessions that the rows of one batch make among themselves."""

    sessions: SessionBounds
    #: The position of each row's session, int64, shape (rows,).
    of_rows: Integers


class MergedSessions(NamedTuple):
    """Sessions of rows and of before, merged."""

    sessions: SessionBounds
    #: The position of the merged session of each session of the rows, int64, shape (sessions of the rows,).
    of_rows: Integers
    #: The same for each session of before, int64, shape (sessions of before,).
    of_live: Integers


def sessions_of_rows(slots: Slots, times: Times, gap: int) -> RowSessions:
    """The sessions of rows; `slots` and `times` are int64, shape (rows,)."""
    order = _order(slots, times)
    keys, at = slots.take(order), times.take(order)
    begins = np.ones(len(at), np.bool_)
    begins[1:] = (keys[1:] != keys[:-1]) | (at[1:] > at[:-1] + gap)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(at)) - 1
    of_rows = np.empty(len(at), np.int64)
    of_rows[order] = np.cumsum(begins) - 1
    return RowSessions(SessionBounds(keys.take(first), at.take(first), at.take(last) + gap), of_rows)


def _order(slots: Slots, times: Times) -> Integers:
    """The positions of rows by slot, then time; rows that come in order of time are sorted by slot alone."""
    # Small integers are sorted by their digits.
    small = slots.astype(np.uint16) if int(slots.max()) < 1 << 16 else slots
    if (times[1:] >= times[:-1]).all():
        return np.argsort(small, kind="stable")
    by_time = np.argsort(times, kind="stable")
    return by_time.take(np.argsort(small.take(by_time), kind="stable"))


def merged(rows: SessionBounds, live: SessionBounds) -> MergedSessions:
    """Merges two lists of sessions; those of a key in one list do not touch each other."""
    count = len(rows.keys)
    keys = np.concatenate([rows.keys, live.keys])
    starts = np.concatenate([rows.starts, live.starts])
    ends = np.concatenate([rows.ends, live.ends])
    order = np.lexsort((starts, keys))
    keys, starts, ends = keys.take(order), starts.take(order), ends.take(order)
    of_row = order < count
    reached = np.maximum(_last_end(keys, ends, of_row), _last_end(keys, ends, ~of_row))
    begins = np.ones(len(keys), np.bool_)
    begins[1:] = (keys[1:] != keys[:-1]) | (starts[1:] > reached[:-1])
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(keys)) - 1
    group = np.empty(len(keys), np.int64)
    group[order] = np.cumsum(begins) - 1
    found = SessionBounds(keys.take(first), starts.take(first), reached.take(last))
    return MergedSessions(found, group[:count], group[count:])


def _last_end(keys: Slots, ends: Times, of_list: npt.NDArray[np.bool_]) -> Times:
    """For each session, the end of the last one of a list up to there with the same key; MIN_TIMESTAMP = none.

    All have shape (sessions,), sorted by key and start. In one list a later session of a key ends later.
    """
    at = np.maximum.accumulate(np.where(of_list, np.arange(len(keys)), -1))
    found = ends.take(np.maximum(at, 0))
    found[(at < 0) | (keys.take(np.maximum(at, 0)) != keys)] = MIN_TIMESTAMP
    return found
