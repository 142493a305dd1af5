"""WaitingResults: rows that wait in a task, in their order: those of earlier stages while it reads its input.

Owner: the thread of a task. What passes a budget of memory goes to a file without a name, which is gone with the
process. Must not look into rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from yarrow.container.batch.spark.tasks.stage_rows import ROW_SCHEMA
from yarrow.container.batch.spilled_runs import SpilledRuns


class WaitingResults:
    """Record batches of rows on their way through a task."""

    def __init__(self, directory: Path, budget: int) -> None:
        """`budget`: bytes of rows in memory; more go to a file in `directory`."""
        self._budget = budget
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0
        self._spilled: SpilledRuns[pa.RecordBatch] = SpilledRuns(directory, _encode, _decode)

    def add(self, rows: pa.RecordBatch) -> None:
        """Takes some rows. Raises SpillError if the disk does not take them."""
        self._waiting.append(rows)
        self._size += rows.nbytes
        if self._size > self._budget:
            waiting, self._waiting, self._size = self._waiting, [], 0
            self._spilled.append(waiting)

    def take(self) -> Iterator[pa.RecordBatch]:
        """Gives all rows away; take them all before more are added."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        for reader in self._spilled.readers():
            yield from reader
        self._spilled.close()
        yield from waiting

    def close(self) -> None:
        """Removes the file."""
        self._spilled.close()


def _encode(rows: pa.RecordBatch) -> bytes:
    return bytes(rows.serialize())


def _decode(data: bytes) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(data), ROW_SCHEMA)
