"""LiveSessions: the sessions of one subtask by number: key, bounds, whether they have fired, and their aggregates.

Owner: the task thread. A session that is gone leaves its number unused until `compacted` numbers the others anew. Must
not know columns or times of rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from yarrow.container.operators.columnar.aggregate_state import LEAST, Bools
from yarrow.container.operators.columnar.vectorized_index import Slots, grown
from yarrow.container.operators.columnar_window.session_groups import MergedSessions, SessionBounds
from yarrow.container.operators.columnar_window.slice_states import SliceStates

#: Numbers of sessions: int64, shape (sessions,).
Numbers = npt.NDArray[np.int64]


class LiveSessions:
    """Arrays by the number of a session."""

    def __init__(self, states: SliceStates) -> None:
        """`states` are empty; they belong to the sessions from now on."""
        self.size = 0
        self.states = states
        self._keys: npt.NDArray[np.int64] = np.zeros(LEAST, np.int64)
        self._starts: npt.NDArray[np.int64] = np.zeros(LEAST, np.int64)
        self._ends: npt.NDArray[np.int64] = np.zeros(LEAST, np.int64)
        self._fired: Bools = np.zeros(LEAST, np.bool_)
        self._alive: Bools = np.zeros(LEAST, np.bool_)

    @property
    def numbers(self) -> Numbers:
        """The numbers of all sessions, int64, shape (sessions,), ascending."""
        return np.flatnonzero(self._alive[: self.size])

    def of_keys(self, slots: Slots, keys: int) -> Numbers:
        """The numbers of the sessions of some keys, of which there are `keys`.

        Numbers and `slots` are int64, shape (sessions,) and shape (slots,).
        """
        wanted = np.zeros(keys, np.bool_)
        wanted[slots] = True
        held = wanted.take(self._keys[: self.size])
        held &= self._alive[: self.size]
        return np.flatnonzero(held)

    def sessions(self, numbers: Numbers) -> SessionBounds:
        """Keys and bounds of sessions; `numbers` are int64, shape (sessions,)."""
        return SessionBounds(self._keys.take(numbers), self._starts.take(numbers), self._ends.take(numbers))

    def fired(self, numbers: Numbers) -> Bools:
        """True for each session that has fired with its present rows; `numbers` are int64, shape (sessions,)."""
        return self._fired.take(numbers)

    def due(self, watermark: int) -> Numbers:
        """The sessions that have to fire, in order of their ends: int64, shape (sessions,)."""
        waiting = self._alive[: self.size] & ~self._fired[: self.size]
        waiting &= self._ends[: self.size] - 1 <= watermark
        found = np.flatnonzero(waiting)
        return found.take(np.argsort(self._ends.take(found), kind="stable"))

    def next_end(self) -> int | None:
        """The least end of a session that has still to fire; None = there is none."""
        waiting = self._ends[: self.size][self._alive[: self.size] & ~self._fired[: self.size]]
        return int(waiting.min()) if len(waiting) else None

    def mark_fired(self, numbers: Numbers) -> None:
        """Notes that sessions have fired; `numbers` are int64, shape (sessions,)."""
        self._fired[numbers] = True

    def remove_late(self, watermark: int, lateness: int) -> None:
        """Removes sessions that have fired and are late."""
        late = self._fired[: self.size] & (self._ends[: self.size] - 1 <= watermark - lateness)
        late &= self._alive[: self.size]
        self._alive[: self.size] &= ~late
        self.states.forget(np.flatnonzero(late))

    def lose_rows(self, numbers: Numbers) -> None:
        """Takes the rows out of some sessions (int64, shape (sessions,)), which stay under new numbers."""
        new = np.arange(self.size, self.size + len(numbers))
        self._reserve(self.size + len(numbers))
        for bounds in (self._keys, self._starts, self._ends):
            bounds[new] = bounds[numbers]
        self._fired[new], self._alive[new] = self._fired[numbers], True
        self._alive[numbers] = False
        # No row of another session is copied.
        self.states.forget(numbers)
        self.states.restore_present(new, self.size)

    def take(self, found: MergedSessions, live: Numbers) -> Numbers:
        """Puts merged sessions in the place of those that they are made of; `live` are these, int64, shape (merged,).

        Returns the number of each merged session: int64, shape (sessions,). Those with rows have still to fire. Raises
        SumOverflowError for the sum of a merged session.
        """
        count = len(found.sessions.keys)
        numbers = np.full(count, -1, np.int64)
        # Of several sessions that become one, the last keeps its number.
        numbers[found.of_live] = live
        new = np.flatnonzero(numbers < 0)
        numbers[new] = np.arange(self.size, self.size + len(new))
        self._reserve(self.size + len(new))
        into = numbers.take(found.of_live)
        moved = np.flatnonzero(into != live)
        if len(moved):
            self._merge(into.take(moved), live.take(moved))
        self._keys[numbers], self._starts[numbers], self._ends[numbers] = found.sessions
        self._alive[numbers] = True
        # Sessions of the same keys that no row has reached stay as they were.
        self._fired[numbers.take(found.of_rows)] = False
        return numbers

    def _merge(self, into: Numbers, merged: Numbers) -> None:
        self.states.merge(into, self.states, merged, self.size)
        self._alive[merged] = False
        self.states.forget(merged)

    def _reserve(self, size: int) -> None:
        self.size = size
        self._keys, self._starts = grown(self._keys, size), grown(self._starts, size)
        self._ends = grown(self._ends, size)
        self._fired, self._alive = grown(self._fired, size, False), grown(self._alive, size, False)

    def compacted(self, states: SliceStates, slot_of: Callable[[Slots], Slots]) -> LiveSessions:
        """The same sessions with the numbers 0 and on; `states` are empty.

        `slot_of` gives the new slots of keys: int64, shape (sessions,), as what it gets.
        """
        made, numbers = LiveSessions(states), self.numbers
        keys, starts, ends = self.sessions(numbers)
        made.restore(SessionBounds(slot_of(keys), starts, ends), self._fired.take(numbers))
        places = np.arange(len(numbers))
        made.states.merge(places, self.states, numbers, len(numbers))
        return made

    def restore(self, sessions: SessionBounds, fired: Bools) -> None:
        """Takes sessions with the numbers 0 and on, without their aggregates; `fired` is bool, shape (sessions,)."""
        count = len(fired)
        self._reserve(count)
        self._keys[:count], self._starts[:count], self._ends[:count] = sessions
        self._fired[:count], self._alive[:count] = fired, True
