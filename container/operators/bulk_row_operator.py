"""BulkRowOperator: base of the operators that take the rows of a chunk together.

Owner: the task thread. The fused loop only collects rows. The operator gets them at the end of each chunk, in a list of
its own. Must not know what the operator does with them.
"""

from __future__ import annotations

from typing import Any

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import Emit, RowOperator


class BulkRowOperator(RowOperator):
    """Base of ends that take rows in bulk: the loop appends, and `take_rows` gets them once a chunk."""

    takes_chunks = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._rows: list[Any] = []
        self._timestamps: list[int | None] = []

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        code.line(f"{code.bind('append', self._rows.append)}({value})")
        if timestamp is not None:
            code.line(f"{code.bind('append', self._timestamps.append)}({timestamp})")

    def end_of_chunk(self) -> None:
        if self._rows:
            rows, timestamps = self._rows.copy(), self._timestamps.copy() or None
            self._rows.clear()
            self._timestamps.clear()
            self.records_in += len(rows)
            self.take_rows(rows, timestamps)

    def take_rows(self, rows: list[Any], timestamps: list[int | None] | None) -> None:
        """Takes the rows of one chunk."""
        raise TypeError(f"operator '{self.name}' takes no rows")
