"""map_partition, reduce_group and combine_group: functions that take many rows by an iterator.

Owner: the task thread. Rows wait in lists until there are enough for a call. A function that asks for more rows than
that waits for them, so that a partition or a key may be larger than memory. Must not know how rows reach the operator.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.failed_lines import key_error
from yarrow.container.codegen.user_functions import load_function, method_of, results_of
from yarrow.container.network.element_codec import estimated_bytes
from yarrow.container.operators.base import Emit, OperatorContext
from yarrow.container.operators.data_set.broadcasting import DataSetFunctionBase
from yarrow.container.operators.data_set.pulled_rows import PulledRows
from yarrow.container.operators.data_set.replayed_rows import ROW_OVERHEAD
from yarrow.container.operators.data_set.sorted_rows import SortedRows, order_by, sort_rows
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.row_functions import generate_iteration
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.runtime.config.options import execution
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.graph.data_set_spec import (
    DataSetFunctionOperator,
    GroupCombineOperator,
    GroupReduceOperator,
    MapPartitionOperator,
)

#: Rows that wait for a call.
WAITING_ROWS: Final = 2048
#: Part of the memory for sorting that rows of the operator take.
_SHARE: Final = 2


class _IteratingOperator(DataSetFunctionBase):
    """Base of operators whose function takes an iterator."""

    #: The function's method.
    method: str
    #: Rows that wait for a call.
    waiting_rows = WAITING_ROWS
    #: Most bytes of rows in memory, whatever the settings say.
    most_bytes = sys.maxsize

    def __init__(self, name: str, spec: DataSetFunctionOperator) -> None:
        super().__init__(name, spec)
        #: Rows that have come, and that no call has taken.
        self._waiting: list[Any] = []

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._call = method_of(self.function, self.method, self.name)
        memory = context.environment.settings.get(execution.SORT_MEMORY).bytes // _SHARE
        self._budget = min(memory, self.most_bytes)
        self._directory = Path(context.environment.local_directory)

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        waiting, kept = code.bind("waiting", self._waiting), self.generate_kept(code, value)
        code.line(f"{waiting}.append({kept})")
        with code.block(f"if len({waiting}) >= {int(self.waiting_rows)}:"):
            # Results have no time, also where rows have one.
            stamp = None if timestamp is None else code.fresh("t")
            if stamp is not None:
                code.line(f"{stamp} = None")
            generate_iteration(code, f"{code.bind('take', self._take)}()", stamp, emit)

    def _taken(self) -> list[Any]:
        rows = list(self._waiting)
        self._waiting.clear()
        return rows

    @abstractmethod
    def _take(self) -> Iterable[Any]:
        """Takes the rows that wait; returns results."""

    def _blamed(self, results: Iterable[Any] | None, *first: Any) -> Iterator[Any]:
        """The results of a function. Raises OperatorFailure, with the first row that it got, if it fails.

        `first` is empty where no row waits: the partition has none, or the function has taken all of them.
        """
        try:
            yield from results_of(results)
        except (OperatorFailure, GeneratorExit):
            raise
        except BaseException as error:  # user code may raise anything
            record = f"(rows from {short_record(first[0])} on)" if first else ""
            raise OperatorFailure(self.name, record, error) from error

    def _called(self, rows: Iterable[Any], first: Any) -> Iterator[Any]:
        try:
            results = self._call(iter(rows))
        except BaseException as error:  # user code may raise anything
            raise OperatorFailure(self.name, f"(rows from {short_record(first)} on)", error) from error
        return self._blamed(results, first)


@runs(MapPartitionOperator)
class PartitionMapping(_IteratingOperator):
    """Runs map_partition."""

    method = "map_partition"

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._rows = PulledRows(self._call)

    def _take(self) -> Iterable[Any]:
        rows = self._taken()
        return self._blamed(self._rows.push(rows), rows[0])

    def on_watermark(self, timestamp: int) -> Iterator[tuple[Any, int | None]]:
        if timestamp == MAX_TIMESTAMP:
            self.begin()
            rows = self._taken()
            for result in self._blamed(self._rows.end(rows), *rows[:1]):
                yield result, None

    def close(self) -> None:
        if self.is_set_up:
            self._rows.close()
        super().close()


@runs(GroupReduceOperator)
class GroupReducing(_IteratingOperator):
    """Runs reduce_group, key by key."""

    method = "reduce"

    def __init__(self, name: str, spec: GroupReduceOperator) -> None:
        super().__init__(name, spec)
        self._fields = spec.order
        self._sorted: SortedRows | None = None
        #: The call for a key with many rows.
        self._pulled: PulledRows | None = None

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        if self._fields:
            order = order_by(self._fields, self.name)
            self._sorted = SortedRows(self.name, order, self._budget, self._directory)

    def _take(self) -> Iterable[Any]:
        rows = self._taken()
        if self._sorted is not None:
            self._sorted.add(rows)
            return ()
        if self._pulled is None:
            self._pulled = PulledRows(self._call)
        return self._blamed(self._pulled.push(rows), rows[0])

    def end_keys(self) -> Iterator[tuple[Any, int | None]]:
        rows = self._taken()
        results: Iterable[Any]
        if self._sorted is not None:
            self._sorted.add(rows)
            results = self._called(self._sorted.in_order(), rows[0] if rows else None)
        elif self._pulled is not None:
            results = self._blamed(self._pulled.end(rows), rows[0] if rows else None)
        else:
            results = self._called(rows, rows[0]) if rows else ()
        for result in results:
            yield result, None
        self._pulled = None
        if self._sorted is not None:
            self._sorted.clear()

    def close(self) -> None:
        if self._pulled is not None:
            self._pulled.close()
        if self._sorted is not None:
            self._sorted.clear()
        super().close()


@runs(GroupCombineOperator)
class GroupCombining(_IteratingOperator):
    """Runs combine_group: keeps rows by key, and calls the function when they fill its memory and at the end."""

    method = "combine"

    def __init__(self, name: str, spec: GroupCombineOperator) -> None:
        super().__init__(name, spec)
        self._fields = spec.order
        self._selector_blob = spec.key_selector
        #: By canonical key.
        self._groups: dict[Any, list[Any]] = {}
        self._size = 0

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._key_of = method_of(load_function(self._selector_blob, self.name), "get_key", self.name)
        self._order = order_by(self._fields, self.name) if self._fields else None

    def _take(self) -> Iterable[Any]:
        rows = self._taken()
        groups, key_of, row = self._groups, self._key_of, None
        try:
            for row in rows:
                key = key_of(row)
                try:
                    groups[key].append(row)
                except (KeyError, TypeError):
                    groups.setdefault(canonicalize(key), []).append(row)
        except BaseException as error:  # user code may raise anything
            raise OperatorFailure(self.name, short_record(row), key_error(key_of, row, error)) from error
        self._size += estimated_bytes(rows) + ROW_OVERHEAD * len(rows)
        return self._combined() if self._size > self._budget else ()

    def _combined(self) -> Iterator[Any]:
        groups, self._groups, self._size = self._groups, {}, 0
        for rows in groups.values():
            yield from self._called(self._in_order(rows), rows[0])

    def _in_order(self, rows: list[Any]) -> list[Any]:
        if self._order is not None:
            sort_rows(rows, self._order, self.name)
        return rows

    def on_watermark(self, timestamp: int) -> Iterator[tuple[Any, int | None]]:
        if timestamp == MAX_TIMESTAMP:
            self.begin()
            for results in (self._take(), self._combined()):
                for result in results:
                    yield result, None
