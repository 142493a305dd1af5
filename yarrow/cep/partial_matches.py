"""The partial matches of one key: a table of cells, which all runs of the pattern share.

Owner: the task thread, or the caller of `match`; pure. A cell is (step, record, cell before it) and never changes,
so that runs with a common beginning share its cells. Nothing counts references: `sweep` keeps what runs can reach.
The form in memory is also the stored one. Must not know the pattern, conditions or state backends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

#: (timestamp, record)
Record = tuple[int, Any]
#: (number of the step, position of its record, position of the cell before it or -1)
Cell = tuple[int, int, int]
#: (state, last cell, position of the first record). A run is one partial match.
Run = tuple[int, int, int]
#: (last cell, position of the first record): a match that waits for runs which began earlier.
Complete = tuple[int, int]

#: Cells below which no sweep is worth its time.
LEAST_SWEEP: Final = 16


class PartialMatches(NamedTuple):
    """The partial matches of a key; a plain tuple of the five lists is its stored form."""

    records: list[Record]
    cells: list[Cell]
    runs: list[Run]
    complete: list[Complete]
    #: One number: the cells that the last sweep has kept.
    kept: list[int]

    @staticmethod
    def none() -> PartialMatches:
        """A key without partial matches."""
        return PartialMatches([], [], [], [], [0])

    @property
    def is_empty(self) -> bool:
        """True if the key has nothing to keep."""
        return not self.runs and not self.complete

    def path(self, cell: int) -> Iterator[tuple[int, int]]:
        """(step, position of the record) of a cell and of those before it, the last one first."""
        cells = self.cells
        while cell >= 0:
            step, position, cell = cells[cell]
            yield step, position

    def positions(self, cell: int) -> dict[int, list[int]]:
        """Positions of records by step, up to a cell; steps in the order of their first record."""
        found: dict[int, list[int]] = {}
        for step, position in reversed(list(self.path(cell))):
            found.setdefault(step, []).append(position)
        return found

    def match(self, cell: int, steps: Sequence[str]) -> dict[str, list[Any]]:
        """Records by the name of their step, up to a cell."""
        return matched(self.records, self.cells, cell, steps)

    def of_step(self, cell: int, step: int) -> list[Any]:
        """The records of one step up to a cell."""
        found = [self.records[position][1] for number, position in self.path(cell) if number == step]
        found.reverse()
        return found

    def sweep_if_large(self) -> None:
        """Drops the cells and records that no run needs, once they may be as many as the others."""
        if not self.runs and not self.complete:
            self.records.clear()
            self.cells.clear()
            self.kept[0] = 0
        elif len(self.cells) >= 2 * self.kept[0] + LEAST_SWEEP:
            self.sweep()

    def sweep(self) -> None:
        """Drops the cells and records that no run needs; the others keep their order."""
        records, cells = self.records, self.cells
        used: set[int] = set()
        for cell in (*(run[1] for run in self.runs), *(complete[0] for complete in self.complete)):
            while cell >= 0 and cell not in used:
                used.add(cell)
                cell = cells[cell][2]
        kept_cells = sorted(used)
        kept_records = sorted({cells[cell][1] for cell in kept_cells})
        cell_at = {cell: at for at, cell in enumerate(kept_cells)}
        cell_at[-1] = -1
        record_at = {record: at for at, record in enumerate(kept_records)}
        moved = [cells[cell] for cell in kept_cells]
        cells[:] = [(step, record_at[record], cell_at[before]) for step, record, before in moved]
        records[:] = [records[record] for record in kept_records]
        self.runs[:] = [(state, cell_at[cell], record_at[start]) for state, cell, start in self.runs]
        self.complete[:] = [(cell_at[cell], record_at[start]) for cell, start in self.complete]
        self.kept[0] = len(cells)


def matched(
    records: Sequence[Record], cells: Sequence[Cell], cell: int, steps: Sequence[str]
) -> dict[str, list[Any]]:
    """Records by the name of their step, up to a cell."""
    taken: list[tuple[int, int]] = []
    while cell >= 0:
        step, position, cell = cells[cell]
        taken.append((step, position))
    found: dict[str, list[Any]] = {}
    for step, position in reversed(taken):
        name = steps[step]
        if name in found:
            found[name].append(records[position][1])
        else:
            found[name] = [records[position][1]]
    return found
