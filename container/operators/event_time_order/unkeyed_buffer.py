"""UnkeyedBuffer: rows of a stream without keys that wait in operator state until the watermark lets them leave.

Owner: the task thread. All rows are in memory, in order; a cut puts them into a list of operator state, a time with
its rows as one element. At another parallelism the elements are dealt out anew. Must not know user functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, groupby
from operator import itemgetter
from typing import Any

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.event_time_order.order_position import stored_watermark
from yarrow.container.operators.event_time_order.rows_by_time import RowsByTime, unnumbered
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.data.elements import MIN_TIMESTAMP


class UnkeyedBuffer:
    """Rows of one subtask that wait for the watermark."""

    def __init__(self, context: OperatorContext, name: str, row_type: TypeInformation | None) -> None:
        """`name`: that of the state. `row_type`: the declared type of rows; None = not declared."""
        environment = context.environment
        number = Types.LONG()
        stored: TypeInformation = Types.PICKLED_BYTE_ARRAY()
        if row_type is not None:
            stored = Types.TUPLE([number, Types.LIST(row_type)])
        self._place = environment.subtask, environment.parallelism
        self._state = context.operator_state.list_state(ListStateDescriptor(name, stored))
        self._watermarks = context.operator_state.union_list_state(
            ListStateDescriptor(f"{name}_watermark", Types.TUPLE([number] * 3))
        )
        #: The present event time.
        self.watermark = _restored_watermark(list(self._watermarks.get()), self._place)
        #: A row at or below it is late.
        self.perhaps_late_until = MIN_TIMESTAMP - 1 if self.watermark == MIN_TIMESTAMP else self.watermark
        self._numbers = count()
        self._in_order = RowsByTime()
        for time, rows in self._state.get():
            for row in rows:
                self.add(time, row)
        self._state.clear()

    def add(self, time: int, row: Any) -> None:
        """Adds a row that is not late; nobody changes it any more."""
        self._in_order.add((time, next(self._numbers), row))

    def generate_add(self, code: CodeWriter, key: str, time: str, row: str) -> None:
        """Generates `add`; as of KeyedBuffer, without its key."""
        in_order, numbered = code.bind("in_order", self._in_order.rows), code.fresh("numbered")
        code.line(f"{numbered} = ({time}, {code.bind('next_number', self._numbers.__next__)}(), {row})")
        with code.block(f"if {time} in {in_order}:"):
            code.line(f"{in_order}[{time}].append({numbered})")
        with code.block("else:"):
            code.line(f"{code.bind('add', self._in_order.add)}({numbered})")

    def advance(self, watermark: int) -> None:
        """Takes a watermark. After a restore it may be below the restored one, which then holds."""
        if watermark > self.watermark:
            self.watermark = self.perhaps_late_until = watermark

    @property
    def is_due(self) -> bool:
        """True while rows that the watermark has passed wait: `take` gives them."""
        first = self._in_order.first_time
        return first is not None and first <= self.watermark

    def take(self) -> Iterator[tuple[list[Any], list[int]]]:
        """Removes the rows up to the watermark, and yields them in order with their times: some rows together."""
        return map(unnumbered, self._in_order.take_until(self.watermark))

    def snapshot(self) -> None:
        """Puts rows and watermark into the state, at the cut."""
        by_time = groupby(self._in_order, key=itemgetter(0))
        self._state.update([(time, [row for _, _, row in rows]) for time, rows in by_time])
        self._watermarks.update([(*self._place, stored_watermark(self.watermark))])


def _restored_watermark(stored: list[tuple[int, int, int]], place: tuple[int, int]) -> int:
    """Where event time begins: at the subtask's own watermark, or at the least one if the parallelism has changed."""
    own = [watermark for *of, watermark in stored if tuple(of) == place]
    return min(own or (watermark for *_, watermark in stored), default=MIN_TIMESTAMP)
