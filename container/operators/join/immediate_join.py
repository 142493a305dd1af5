"""ImmediateJoiningOperator: joins each row of the second input with the kept rows of the first one, when it comes.

Owner: the task thread. It uses no event time: no row waits, and none is late. Rows of the first input stay as long as
the program says. See docs/joins.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from yarrow.common.typeinfo import Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import load_function
from yarrow.container.operators.base import Emit, OperatorContext, declared_type
from yarrow.container.operators.join.keyed_join import KeyedJoiningOperator
from yarrow.container.operators.join.pair_calls import Results
from yarrow.container.operators.join.pair_code import generate_emitted
from yarrow.container.operators.registry import runs
from yarrow.datastream.state import ListStateDescriptor, StateTtlConfig, ValueStateDescriptor
from yarrow.runtime.graph.join_spec import ImmediateJoinOperator

#: Name of the state with the rows of the first input.
KEPT_ROWS = "_join_kept"


@runs(ImmediateJoinOperator)
class ImmediateJoiningOperator(KeyedJoiningOperator):
    """Runs an immediate join."""

    # Results bear the time of a row, and a row need not have one.
    stamps_rows = False

    def __init__(self, name: str, spec: ImmediateJoinOperator) -> None:
        super().__init__(name, spec)
        self._spec = spec

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        spec, state = self._spec, context.state
        row_type, stored = declared_type(spec.row_types[0]), Types.PICKLED_BYTE_ARRAY()
        if row_type is not None:
            stored = Types.TUPLE([Types.LONG(), row_type])
        ttl: StateTtlConfig | None = None if spec.ttl is None else load_function(spec.ttl, self.name)
        self._last = self._all = None
        if spec.latest_only:
            last: ValueStateDescriptor[Any] = ValueStateDescriptor(KEPT_ROWS, stored)
            if ttl is not None:
                last.enable_time_to_live(ttl)
            self._last = state.value_state(last)
        else:
            every: ListStateDescriptor[Any] = ListStateDescriptor(KEPT_ROWS, stored)
            if ttl is not None:
                every.enable_time_to_live(ttl)
            self._all = state.list_state(every)

    def generate_row(
        self, code: CodeWriter, index: int, row: tuple[str, str, str | None], emit: Emit
    ) -> None:
        _, value, timestamp = row
        on_row = code.bind("on_row", partial(self.on_row, index))
        generate_emitted(code, f"{on_row}({value}, {timestamp})", emit)

    def on_row(self, index: int, row: Any, timestamp: int | None) -> Iterable[tuple[Any, int | None]]:
        if index:
            return self._results(row, timestamp)
        if self._last is not None:
            self._last.update((timestamp, row))
        elif self._all is not None:
            self._all.add((timestamp, row))
        return ()

    def _results(self, row: Any, timestamp: int | None) -> Results:
        at, found = self.pairs.at, self._kept()
        for time, kept in found:
            yield from at(timestamp, kept, time, row, timestamp)
        if not found and self._spec.kind.keeps_second:
            yield from at(timestamp, None, None, row, timestamp)

    def _kept(self) -> Sequence[tuple[int | None, Any]]:
        """The kept rows of the current key, with their times."""
        if self._last is not None:
            last = self._last.value()
            return () if last is None else (last,)
        return [] if self._all is None else list(self._all.get())

    def end_rows(self) -> Results:
        return iter(())
