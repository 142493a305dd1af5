"""PartialSequences: the partial matches of a plain sequence of relaxed steps, moved for all rows of a piece at once.

Owner: the task thread; pure. A partial match takes the first row of its key that the next step takes, if that comes in
time. So nothing but its first row and the rows behind tells where it ends. Rules are those of `PatternMatcher`, which
tests hold against this module. Must not know keys, columns or conditions. See
docs/design/0058-sequences-of-columns.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from yarrow.container.operators.columnar_pattern.pending_batches import Numbers
from yarrow.container.operators.columnar_pattern.relevant_rows import Flags
from yarrow.container.operators.columnar_pattern.waiting_sequences import LAST, ROWS, SLOT, WaitingSequences
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP

#: Parts of the time limit after which those are removed that nobody asks for.
_PARTS_OF_THE_LIMIT: Final = 8


class DuePiece(NamedTuple):
    """Rows in order of time, at least one."""

    #: int64, shape (rows,).
    times: Numbers
    #: The number of each row's key in this piece: int64, shape (rows,). Each number has a row.
    codes: Numbers
    #: The slot of each code, int64, shape (codes,); -1 = none. A key whose row begins a match has one.
    slots: Numbers
    #: For each step the rows that it takes: bool, shape (rows,).
    takes: Sequence[Flags]
    #: The number of the first row; the others follow.
    first: int


class Ended(NamedTuple):
    """Partial matches that have taken all rows, or whose time has passed, in the order in which they leave."""

    #: The numbers of the rows that each has taken: int64, shape (rows, ended); -1 = no row.
    rows: Numbers
    #: When it ended: the time of the last row, or that at which its time had passed. int64, shape (ended,).
    times: Numbers
    #: bool, shape (ended,).
    timed_out: npt.NDArray[np.bool_]
    slots: Numbers

    def only(self, chosen: npt.NDArray[np.bool_]) -> Ended:
        """Those of a mask, bool, shape (ended,)."""
        return Ended(self.rows[:, chosen], self.times[chosen], self.timed_out[chosen], self.slots[chosen])


class PartialSequences:
    """The partial matches of one pattern."""

    def __init__(self, steps: int, within_ms: int | None, *, gives_timed_out: bool) -> None:
        """`gives_timed_out`: those whose time has passed are asked for."""
        self._within = within_ms
        self._gives_timed_out = gives_timed_out
        self._grain = 1 if gives_timed_out or within_ms is None else max(1, within_ms // _PARTS_OF_THE_LIMIT)
        #: By the number of rows that they have taken, less one.
        self.waiting = [WaitingSequences(taken) for taken in range(1, steps)]
        self._steps = steps
        #: When the next time limits are looked at; None = there is none.
        self.first_end: int | None = None

    @property
    def count(self) -> int:
        """Number of partial matches, also of some whose time has passed."""
        return sum(each.count for each in self.waiting)

    @property
    def most_rows(self) -> int:
        """Most rows that they may hold."""
        return sum(taken * each.count for taken, each in enumerate(self.waiting, 1))

    def rows_held(self) -> Numbers:
        """The numbers of the rows that they hold: int64, shape (rows,), rising."""
        held = [each.alive(MIN_TIMESTAMP)[ROWS:].reshape(-1) for each in self.waiting]
        return np.unique(np.concatenate(held)) if held else np.empty(0, np.int64)

    def renumber_slots(self) -> Numbers:
        """Gives slots new numbers from 0 on; returns the former number of each: int64, shape (slots,)."""
        alive = [each.alive(MIN_TIMESTAMP) for each in self.waiting]
        slots: Numbers = np.unique(np.concatenate([fields[SLOT] for fields in alive]))
        for waiting, fields in zip(self.waiting, alive, strict=True):
            fields[SLOT] = np.searchsorted(slots, fields[SLOT])
            waiting.replace(fields, len(slots))
        return slots

    # ------------------------------------------------------------------ rows

    def run(self, piece: DuePiece) -> tuple[Ended, Flags]:
        """Runs the rows of a piece, and lets time pass up to that of its last row.

        Returns what has ended, and the rows that partial matches hold now: bool, shape (rows,).
        """
        now = int(piece.times[-1])
        held = np.zeros(len(piece.times), np.bool_)
        rows = _RowsByKey(piece)
        began = np.flatnonzero(piece.takes[0][rows.order])
        numbers = rows.order[began]
        moving = np.empty((ROWS + 1, len(began)), np.int64)
        moving[SLOT] = piece.slots[piece.codes[numbers]]
        moving[LAST] = self._last_of(piece.times[numbers])
        moving[ROWS] = numbers + piece.first
        #: Where each of them stands among the rows by key.
        at = began
        timed_out: list[Numbers] = []
        for step, waiting in enumerate(self.waiting, 1):
            rows.look_for(piece.takes[step])
            taken, owners = waiting.take(piece.slots[rows.hit_codes])
            behind = rows.behind(at)
            stays = behind < 0
            moving, left = moving[:, ~stays], moving[:, stays]
            moving = np.concatenate([moving, taken], axis=1)
            at = np.concatenate([behind[~stays], rows.first_hits[owners]])
            numbers = rows.order[at]
            in_time = piece.times[numbers] <= moving[LAST]
            if not in_time.all():
                timed_out.append(moving[:, ~in_time])
                moving, at, numbers = moving[:, in_time], at[in_time], numbers[in_time]
            moving = np.concatenate([moving, (numbers + piece.first)[None]])
            self._keep(waiting, left, now)
            numbers = left[ROWS:]
            held[numbers[numbers >= piece.first] - piece.first] = True
        ended = self._matched(moving, rows.order[at], piece)
        passed = self._pass(now)
        if self._gives_timed_out:
            ended = self._with_timed_out(ended, [*timed_out, *passed])
        return ended, held

    def _keep(self, waiting: WaitingSequences, left: Numbers, now: int) -> None:
        # Nobody may forget those that are asked for when their time has passed.
        waiting.add(left, MIN_TIMESTAMP if self._gives_timed_out else now)
        if left.shape[1] and self._within is not None:
            self._look_at(int(left[LAST].min()))

    def _look_at(self, last: int) -> None:
        """Notes that a partial match takes no row behind `last`."""
        if last == MAX_TIMESTAMP:
            # Its time never passes.
            return
        end = min(last + self._grain, MAX_TIMESTAMP)
        if self.first_end is None or end < self.first_end:
            self.first_end = end

    def _last_of(self, starts: Numbers) -> Numbers:
        """The last time at which a match that began at each time may take a row."""
        if self._within is None:
            return np.full(len(starts), MAX_TIMESTAMP, np.int64)
        reach = self._within - 1
        return np.minimum(starts, MAX_TIMESTAMP - reach) + reach

    def _matched(self, moving: Numbers, places: Numbers, piece: DuePiece) -> Ended:
        """The matches in order of their last rows, and those of one row in the order of their first ones."""
        order = np.lexsort((moving[ROWS], places))
        moving = moving[:, order]
        return Ended(moving[ROWS:], piece.times[places[order]], np.zeros(len(order), np.bool_), moving[SLOT])

    # ------------------------------------------------------------------ time

    def pass_time(self, now: int) -> Ended:
        """Lets time pass; returns the partial matches that end by then, if they are asked for."""
        nothing = np.empty(0, np.int64)
        none = Ended(np.empty((self._steps, 0), np.int64), nothing, nothing.astype(np.bool_), nothing)
        passed = self._pass(now)
        return self._with_timed_out(none, passed) if self._gives_timed_out else none

    def _pass(self, now: int) -> list[Numbers]:
        if self.first_end is None or now < self.first_end:
            return []
        passed = [waiting.remove_before(now) for waiting in self.waiting]
        self.first_end = None
        for waiting in self.waiting:
            last = waiting.first_last
            if last is not None:
                self._look_at(last)
        return passed

    def _with_timed_out(self, ended: Ended, passed: Sequence[Numbers]) -> Ended:
        """The matches and partial matches by their times: time passes before the rows of that time."""
        if not any(each.shape[1] for each in passed):
            return ended
        parts = [ended.rows]
        for each in passed:
            rows = np.full((self._steps, each.shape[1]), -1, np.int64)
            rows[: len(each) - ROWS] = each[ROWS:]
            parts.append(rows)
        fields = np.concatenate([each[:ROWS] for each in passed], axis=1)
        rows = np.concatenate(parts, axis=1)
        times = np.concatenate([ended.times, fields[LAST] + 1])
        timed_out = np.zeros(len(times), np.bool_)
        timed_out[len(ended.times) :] = True
        # Matches stay in their order.
        places = np.concatenate([np.arange(len(ended.times)), np.zeros(fields.shape[1], np.int64)])
        order = np.lexsort((rows[0], places, ~timed_out, times))
        slots = np.concatenate([ended.slots, fields[SLOT]])
        return Ended(rows[:, order], times[order], timed_out[order], slots[order])

    def clear(self) -> None:
        """Forgets all partial matches."""
        for waiting in self.waiting:
            waiting.clear()
        self.first_end = None


class _RowsByKey:
    """The rows of a piece, those of each key together in order of time."""

    def __init__(self, piece: DuePiece) -> None:
        count, codes = len(piece.slots), piece.codes
        # Small numbers are sorted by their digits.
        small = codes.astype(np.uint16) if count <= 1 << 16 else codes
        #: The number in the piece of each row.
        self.order: Numbers = np.argsort(small, kind="stable")
        sizes = np.bincount(codes, minlength=count)
        self._ends: Numbers = np.cumsum(sizes)
        self._starts: Numbers = self._ends - sizes
        self._end_of_row = np.repeat(self._ends, sizes)
        self._places = np.arange(len(codes))
        self._next: Numbers = np.empty(len(codes) + 1, np.int64)
        self._next[-1] = len(codes)
        self.hit_codes: Numbers = self._places[:0]
        self.first_hits: Numbers = self._places[:0]

    def look_for(self, takes: Flags) -> None:
        """Looks for the rows that a step takes: bool, shape (rows,) as in the piece.

        Then `hit_codes` has the keys with such rows, and `first_hits` the place of the first of each.
        """
        places = np.where(takes[self.order], self._places, len(self._places))
        self._next[:-1] = np.minimum.accumulate(places[::-1])[::-1]
        firsts = self._next[self._starts]
        self.hit_codes = np.flatnonzero(firsts < self._ends)
        self.first_hits = firsts[self.hit_codes]

    def behind(self, places: Numbers) -> Numbers:
        """The place of the next such row of the same key behind each place, -1 = none: int64, shape (places,) both."""
        found = self._next[places + 1]
        return np.where(found < self._end_of_row[places], found, -1)
