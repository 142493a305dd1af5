"""RecordStep: what one record makes of the partial matches of a key, while they are asked one by one.

Owner: the task thread, or the caller of `match`; pure. It adds cells and collects the runs behind the record. Must not
know conditions, time limits or skip strategies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from yarrow.cep.partial_matches import Complete, PartialMatches, Run
from yarrow.cep.pattern_table import NOWHERE, Edge, EdgeAction
from yarrow.cep.record_moves import Followed

_TAKE: Final = EdgeAction.TAKE


class RecordStep:
    """What the record at hand makes of the runs of a key."""

    __slots__ = (
        "_cells",
        "_matched",
        "_record",
        "_records",
        "_seen",
        "_taken",
        "found",
        "position",
        "runs",
        "time",
    )

    def __init__(self, matches: PartialMatches, record: Any, timestamp: int) -> None:
        self._records, self._cells = matches.records, matches.cells
        self._record = record
        self.time = timestamp
        #: Where the record stands once a run has taken it.
        self.position = len(matches.records)
        self.runs: list[Run] = []
        #: (cell, position of the first record) of matches.
        self.found: list[tuple[int, int]] = []
        #: The new cells by (step, cell before): runs that take the record alike share one.
        self._taken: dict[tuple[int, int], int] = {}
        self._seen: set[tuple[int, int]] = set()
        self._matched: set[int] = set()

    def taken_at(self, cell: int) -> int:
        """The time of the last record of a run."""
        return self._records[self._cells[cell][1]][0]

    def take(self, edge: Edge, before: int, start: int) -> Run:
        """The run behind a record that a step takes."""
        cell = self._taken.get((edge.step, before))
        if cell is None:
            if not self._taken:
                self._records.append((self.time, self._record))
            cell = self._taken[edge.step, before] = len(self._cells)
            self._cells.append((edge.step, self.position, before))
        self._follow(edge.target, cell, start)
        self._follow(edge.waits_in, cell, start)
        if edge.accepts and cell not in self._matched:
            self._matched.add(cell)
            self.found.append((cell, start))
        return edge.target, cell, start

    def move(
        self, runs: Sequence[Run], by_state: Mapping[int, Followed] | None, begins: Iterable[Edge]
    ) -> None:
        """Lets each run follow the edges of its state, and begins a run by each edge of `begins`.

        `by_state` None = no run changes.
        """
        seen, new = self._seen, self.runs
        for run in runs:
            state, cell, start = run
            edges = None if by_state is None else by_state[state]
            if edges is None:
                if (state, cell) not in seen:
                    seen.add((state, cell))
                    new.append(run)
                continue
            for edge in edges:
                if edge.action is EdgeAction.TAKE:
                    self.take(edge, cell, start)
                else:
                    self.ignore(edge, cell, start)
        for edge in begins:
            self.take(edge, -1, self.position)

    def ignore(self, edge: Edge, cell: int, start: int) -> None:
        """Keeps a run that passes over the record."""
        self._follow(edge.target, cell, start)
        if edge.accepts and cell not in self._matched:
            self._matched.add(cell)
            self.found.append((cell, start))

    def _follow(self, state: int, cell: int, start: int) -> None:
        # A group that may be run through in two ways leads two runs to one place.
        if state != NOWHERE and (state, cell) not in self._seen:
            self._seen.add((state, cell))
            self.runs.append((state, cell, start))


def move_apart(
    matches: PartialMatches,
    record: Any,
    time: int,
    by_state: Mapping[int, Followed] | None,
    begins: Iterable[Edge],
) -> tuple[list[Run], list[Complete]]:
    """The runs and matches behind a record, as `RecordStep.move` makes them, where no two runs have the same cell.

    Then nothing can lead to one place twice, and most records take few steps. `by_state` None = no run changes; then
    the runs are those of `matches` itself.
    """
    records, cells, runs = matches.records, matches.cells, matches.runs
    position = len(records)
    found: list[Complete] = []
    if by_state is not None:
        before, runs = runs, []
        for run in before:
            edges = by_state[run[0]]
            if edges is None:
                runs.append(run)
                continue
            _, cell, start = run
            for edge in edges:
                behind = cell
                if edge.action is _TAKE:
                    behind = len(cells)
                    cells.append((edge.step, position, cell))
                if edge.target != NOWHERE:
                    runs.append((edge.target, behind, start))
                if edge.accepts:
                    found.append((behind, start))
    for edge in begins:
        behind = len(cells)
        cells.append((edge.step, position, -1))
        if edge.target != NOWHERE:
            runs.append((edge.target, behind, position))
        if edge.accepts:
            found.append((behind, position))
    if cells and cells[-1][1] == position:
        records.append((time, record))
    return runs, found
