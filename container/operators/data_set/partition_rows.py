"""Order and number of the rows of a partition: sort_partition and first.

Owner: the task thread. Sorted rows leave at the end of the input. Rows beyond a budget of memory are sorted in runs on
disk. Must not know how rows reach their partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import Emit, OperatorContext, RowOperator
from yarrow.container.operators.data_set.sorted_rows import SortedRows, order_by
from yarrow.container.operators.registry import runs
from yarrow.runtime.config.options import execution
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.data_set_spec import FirstRowsOperator, SortPartitionOperator

#: Part of the memory for sorting that rows of the operator take.
_SHARE: Final = 2


@runs(SortPartitionOperator)
class SortingOperator(RowOperator):
    """Runs sort_partition."""

    takes_chunks = True

    def __init__(self, name: str, spec: SortPartitionOperator) -> None:
        super().__init__(name)
        self._fields = spec.fields
        #: Rows of the present chunk.
        self._arrived: list[Any] = []

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        budget = context.environment.settings.get(execution.SORT_MEMORY).bytes // _SHARE
        directory = Path(context.environment.local_directory)
        self._rows = SortedRows(self.name, order_by(self._fields, self.name), budget, directory)

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        code.line(f"{code.bind('add', self._arrived.append)}({value})")

    def end_of_chunk(self) -> None:
        arrived = self._arrived
        if not arrived:
            return
        self.records_in += len(arrived)
        self._rows.add(arrived)
        arrived.clear()

    def on_watermark(self, timestamp: int) -> Iterator[tuple[Any, int | None]]:
        if timestamp != MAX_TIMESTAMP:
            return
        self.end_of_chunk()
        for row in self._rows.in_order():
            yield row, None
        self._rows.clear()

    def close(self) -> None:
        if self.is_set_up:
            self._rows.clear()


@runs(FirstRowsOperator)
class FirstRows(RowOperator):
    """Runs first."""

    passes_rows = True

    def __init__(self, name: str, spec: FirstRowsOperator) -> None:
        super().__init__(name)
        self._count = spec.count
        #: Rows that were passed on, or not any more.
        self.taken = 0

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        operator = code.bind("operator", self)
        code.line(f"{operator}.taken += 1")
        with code.block(f"if {operator}.taken <= {int(self._count)}:"):
            emit(value, timestamp)
