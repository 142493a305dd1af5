"""WaitingSequences: the partial matches that wait for one step of a plain sequence of steps, as arrays.

Owner: the task thread; pure. All that wait in a slot leave together, with the next row that the step takes. So a slot
has a chain of nodes, each a run of neighbouring places. Whoever takes a slot pays for its places alone. Places that are
free or out of time are dropped when the arrays are full. Must not know keys, rows or patterns.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from yarrow.container.operators.columnar_pattern.pending_batches import Numbers

#: The fields of a partial match: its slot, the last time at which it may take a row, and the rows that it has taken.
SLOT: Final = 0
LAST: Final = 1
ROWS: Final = 2
_LEAST_PLACES: Final = 256


class WaitingSequences:
    """The partial matches that have taken the same number of rows."""

    def __init__(self, taken: int) -> None:
        """`taken`: the number of rows that each has taken."""
        self._allot(ROWS + taken, _LEAST_PLACES)
        #: The last node of each slot; -1 = none.
        self._heads: Numbers = np.full(_LEAST_PLACES, -1, np.int64)

    def _allot(self, fields: int, places: int) -> None:
        """Makes empty arrays."""
        self._fields: Numbers = np.empty((fields, places), np.int64)
        self._alive = np.zeros(places, np.bool_)
        self._places = 0
        #: First place, number of places and the node before, by node; -1 = none.
        self._nodes: Numbers = np.empty((3, places), np.int64)
        self._node_count = 0
        #: Number of partial matches, also of those out of time.
        self.count = 0

    def add(self, sequences: Numbers, now: int) -> None:
        """Adds partial matches: int64, shape (fields, count). Those before `now` may be forgotten."""
        count = sequences.shape[1]
        if not count:
            return
        order = np.argsort(sequences[SLOT], kind="stable")
        self._make_room(count, int(sequences[SLOT, order[-1]]), now)
        self._append(sequences[:, order])

    def _append(self, sequences: Numbers) -> None:
        """Adds partial matches in order of their slots; there is room."""
        first, count = self._places, sequences.shape[1]
        self._places = first + count
        self._fields[:, first : self._places] = sequences
        self._alive[first : self._places] = True
        self.count += count
        starts = np.flatnonzero(np.diff(sequences[SLOT], prepend=-1))
        slots = sequences[SLOT, starts]
        nodes = np.arange(self._node_count, self._node_count + len(starts))
        self._node_count += len(starts)
        self._nodes[0, nodes] = starts + first
        self._nodes[1, nodes] = np.diff(starts, append=count)
        self._nodes[2, nodes] = self._heads[slots]
        self._heads[slots] = nodes

    def _make_room(self, count: int, slot: int, now: int) -> None:
        if slot >= len(self._heads):
            more = np.full(max(slot + 1, 2 * len(self._heads)) - len(self._heads), -1, np.int64)
            self._heads = np.concatenate([self._heads, more])
        if self._places + count <= len(self._alive):
            return
        # A node has at least one place, so there is room for nodes as well.
        left = self.alive(now)
        self._allot(len(self._fields), max(_LEAST_PLACES, 2 * (left.shape[1] + count)))
        self.replace(left)

    def replace(self, sequences: Numbers, slots: int | None = None) -> None:
        """Keeps these partial matches alone: int64, shape (fields, count), at most as many as there is room for.

        `slots`: above all slots.
        """
        self._places = self._node_count = self.count = 0
        self._alive[:] = False
        self._heads = np.full(len(self._heads) if slots is None else max(slots, 1), -1, np.int64)
        if sequences.shape[1]:
            self._append(sequences[:, np.argsort(sequences[SLOT], kind="stable")])

    def take(self, slots: Numbers) -> tuple[Numbers, Numbers]:
        """Removes all partial matches of some slots, int64, shape (slots,), without repetition.

        Returns them, int64, shape (fields, count), and for each the position of its slot, int64, shape (count,).
        """
        inside = np.flatnonzero((slots >= 0) & (slots < len(self._heads)))
        nodes = self._heads[slots[inside]]
        there = nodes >= 0
        nodes, owners = nodes[there], inside[there]
        self._heads[slots[owners]] = -1
        chains = [(nodes, owners)]
        while len(nodes):
            nodes = self._nodes[2, nodes]
            there = nodes >= 0
            nodes, owners = nodes[there], owners[there]
            if len(nodes):
                chains.append((nodes, owners))
        nodes = np.concatenate([chain[0] for chain in chains])
        owners = np.concatenate([chain[1] for chain in chains])
        sizes = self._nodes[1, nodes]
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        places = np.repeat(self._nodes[0, nodes] - ends + sizes, sizes) + np.arange(total)
        owners = np.repeat(owners, sizes)
        alive = self._alive[places]
        if not alive.all():
            places, owners = places[alive], owners[alive]
        self._alive[places] = False
        self.count -= len(places)
        return self._fields[:, places], owners

    def alive(self, now: int) -> Numbers:
        """The partial matches that may still take a row at `now`: int64, shape (fields, count)."""
        fields, alive = self._fields[:, : self._places], self._alive[: self._places]
        return fields[:, alive & (fields[LAST] >= now)]

    def remove_before(self, now: int) -> Numbers:
        """Removes and returns those that may take no row at `now` any more: int64, shape (fields, count)."""
        fields, alive = self._fields[:, : self._places], self._alive[: self._places]
        places = np.flatnonzero(alive & (fields[LAST] < now))
        alive[places] = False
        self.count -= len(places)
        removed = fields[:, places]
        if not self.count:
            self.clear()
        return removed

    @property
    def first_last(self) -> int | None:
        """The earliest time behind which one of them takes no row; None = there are none."""
        if not self.count:
            return None
        return int(self._fields[LAST, : self._places][self._alive[: self._places]].min())

    def clear(self) -> None:
        """Removes all, and gives back what large arrays take."""
        self._allot(len(self._fields), _LEAST_PLACES)
        self._heads = np.full(_LEAST_PLACES, -1, np.int64)
