"""ReplayedRows: rows that are read several times, in memory as far as a budget goes, and on disk beyond it.

Owner: the task thread. Must not know what the rows are for.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from yarrow.container.batch.spilled_runs import SpilledRuns
from yarrow.container.network.element_codec import estimated_bytes

#: Rows of a block on disk.
BLOCK_ROWS: Final = 1024
#: Estimated bytes of a row besides its values.
ROW_OVERHEAD: Final = 100


class ReplayedRows:
    """Rows in the order in which they were added; one reader at a time."""

    def __init__(self, budget: int, directory: Path) -> None:
        """`budget`: estimated bytes of rows in memory; more go to files in `directory`."""
        self._budget = budget
        self._directory = directory
        self._rows: list[Any] = []
        self._size = 0
        self._spilled: SpilledRuns[bytes] | None = None

    @property
    def is_spilled(self) -> bool:
        """Whether some rows lie on disk."""
        return self._spilled is not None

    def add(self, rows: list[Any]) -> None:
        """Adds rows. Raises SpillError if the disk does not take them."""
        self._rows += rows
        self._size += estimated_bytes(rows) + ROW_OVERHEAD * len(rows)
        if self._size > self._budget:
            if self._spilled is None:
                self._spilled = SpilledRuns(self._directory, bytes, bytes)
            self._spilled.append(encoded_blocks(self._rows))
            self._rows, self._size = [], 0

    def __iter__(self) -> Iterator[Any]:
        if self._spilled is not None:
            for run in self._spilled.readers():
                yield from decoded_blocks(run)
        yield from self._rows

    def close(self) -> None:
        """Forgets the rows, and removes files."""
        self._rows, self._size = [], 0
        if self._spilled is not None:
            self._spilled.close()
            self._spilled = None


def encoded_blocks(rows: Iterable[Any]) -> Iterator[bytes]:
    """Rows as blocks for a file."""
    following = iter(rows)
    while block := list(islice(following, BLOCK_ROWS)):
        yield pickle.dumps(block, 5)


def decoded_blocks(blocks: Iterable[bytes]) -> Iterator[Any]:
    """The rows of blocks that this task has written."""
    for block in blocks:
        yield from pickle.loads(block)
