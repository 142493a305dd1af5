"""Operators that pass rows on in order of their event time, for keyed streams and for streams without keys.

Owner: the task thread. Rows wait for the watermark in state, and leave in slices. Rows of one time leave as they came.
Of bounded input, rows come in order already. See docs/design/0037-event-time-order.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Self, cast

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.freezing import generate_fixed
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.operators.base import (
    Emit,
    KeyReadingOperator,
    OperatorContext,
    RowOperator,
    declared_type,
    input_type_of,
)
from yarrow.container.operators.event_time import refuse_untimed
from yarrow.container.operators.event_time_order.buffers import open_buffer
from yarrow.container.operators.event_time_order.keyed_buffer import KeyedBuffer
from yarrow.container.operators.event_time_order.unkeyed_buffer import UnkeyedBuffer
from yarrow.container.operators.late_ledger import LateLedger, LateTime
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_key
from yarrow.datastream.output_tag import OutputTag
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.common.late_records import LatePlace, LateRemedy
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.graph.window_spec import EventTimeOrderOperator, KeyedEventTimeOrderOperator

#: Name of the state with the rows that wait; part of the format of savepoints.
WAITING_ROWS = "_waiting_rows"


class _Ordering(RowOperator):
    """What both operators have in common."""

    emits_tagged = True
    emits_lists = True
    # Rows that have left may be in a snapshot that is being written.
    emits_state = True
    stamps_rows = True
    mixes_keys = True
    wants_time_order = True

    @classmethod
    def of(cls, descriptor: OperatorDescriptor) -> Self:
        spec = cast(EventTimeOrderOperator, descriptor.spec)
        return cls(descriptor.name, spec, declared_type(input_type_of(descriptor)))

    def __init__(self, name: str, spec: EventTimeOrderOperator, row_type: TypeInformation | None) -> None:
        super().__init__(name)
        self._spec = spec
        self._row_type = row_type
        self._late_tag = None if spec.late_tag is None else OutputTag(spec.late_tag)
        self._ledger = LateLedger(name, LateRemedy.MORE_DISORDER)
        self._bounded = False

    # ------------------------------------------------------------------ life

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._bounded = context.environment.bounded
        self.one_to_one = self._bounded
        if not self._bounded:
            self._buffer = self._open_buffer(context)
        self._ledger.register(context.environment.metrics, context.metric_group)

    @abstractmethod
    def _open_buffer(self, context: OperatorContext) -> KeyedBuffer | UnkeyedBuffer:
        """The rows that wait."""

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        if not self._bounded:
            self._buffer.snapshot()

    # ------------------------------------------------------------------ rows

    def generate_waiting(
        self, code: CodeWriter, key: str, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        """Generates code that lets a row wait, or emits a late one to its side output. `key`: "None" without keys."""
        if self._bounded:
            if timestamp is None:
                code.line(f"{code.bind('refuse', self._refuse)}({value})")
            else:
                with code.block(f"if {timestamp} is None:"):
                    code.line(f"{code.bind('refuse', self._refuse)}({value})")
            emit(value, timestamp)
            return
        stamp = timestamp or "None"
        fixed, perhaps_late = value, code.fresh("perhaps_late_until")
        # Watermarks come between two calls.
        code.at_start(f"{perhaps_late} = {code.bind('buffer', self._buffer)}.perhaps_late_until")
        with code.block(f"if {stamp} is None or {stamp} <= {perhaps_late}:"):
            result, late = code.fresh("v"), code.bind("on_perhaps_late", self._on_perhaps_late)
            with code.block(f"for {result} in {late}({key}, {value}, {stamp}):"):
                emit(result, stamp)
        with code.block("else:"):
            fixed = generate_fixed(code, value, self._row_type, self.context.environment.object_reuse)
            self._buffer.generate_add(code, key, stamp, fixed)

    def _refuse(self, row: Any) -> None:
        refuse_untimed(row, self.name)

    @abstractmethod
    def _on_perhaps_late(self, key: Any, row: Any, timestamp: int | None) -> Iterable[Any]:
        """Takes a row that may be late; the results."""

    @property
    def late_dropped(self) -> int:
        """Late rows that went nowhere."""
        return self._ledger.dropped

    def _late(self, key: Any, row: Any, timestamp: int, watermark: int) -> Iterable[Any]:
        """Notes a late row; its results. `key`: the row itself where there are no keys."""
        tag = self._late_tag
        place = LatePlace.DROPPED if tag is None else LatePlace.SIDE_OUTPUT
        self._ledger.late(place, key, LateTime(timestamp, watermark, watermark - timestamp + 1))
        return () if tag is None else ((tag, row),)

    # ------------------------------------------------------------------ time

    def on_watermark(self, timestamp: int) -> tuple[()]:
        if not self._bounded:
            self._buffer.advance(timestamp)
        return ()

    @property
    def event_timers_due(self) -> bool:
        return not self._bounded and self._buffer.is_due

    def fire_event_timers(self, deadline: float) -> Iterator[tuple[list[Any], list[int]]]:
        if self._bounded:
            return
        for piece in self._buffer.take():
            yield piece
            if perf_counter() >= deadline:
                return

    def end_keys(self) -> tuple[()]:
        """Nothing ends with a key: rows have come in order, and went on."""
        return ()


@runs(KeyedEventTimeOrderOperator)
class KeyedOrdering(_Ordering, KeyReadingOperator):
    """Rows of a keyed stream in order of time."""

    _buffer: KeyedBuffer

    def setup(self, context: OperatorContext) -> None:
        spec = cast(KeyedEventTimeOrderOperator, self._spec)
        self._selector = method_of(load_function(spec.key_selector, self.name), "get_key", self.name)
        super().setup(context)

    def _open_buffer(self, context: OperatorContext) -> KeyedBuffer:
        return open_buffer(context, WAITING_ROWS, self._row_type, self._selector)

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        key = "None" if self._bounded else generate_key(code, self._selector, value, None)
        self.generate_waiting(code, key, value, timestamp, emit)

    def _on_perhaps_late(self, key: Any, row: Any, timestamp: int | None) -> Iterable[Any]:
        if timestamp is None:
            refuse_untimed(row, self.name, key)
        if self._buffer.is_late(key, timestamp):
            return self._late(key, row, timestamp, self._buffer.watermark_of(key))
        self._buffer.add(key, timestamp, row)
        return ()


@runs(EventTimeOrderOperator)
class Ordering(_Ordering):
    """Rows of a stream without keys in order of time, within each subtask."""

    _buffer: UnkeyedBuffer

    def _open_buffer(self, context: OperatorContext) -> UnkeyedBuffer:
        return UnkeyedBuffer(context, WAITING_ROWS, self._row_type)

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        self.generate_waiting(code, "None", value, timestamp, emit)

    def _on_perhaps_late(self, key: Any, row: Any, timestamp: int | None) -> Iterable[Any]:
        if timestamp is None:
            refuse_untimed(row, self.name)
        return self._late(row, row, timestamp, self._buffer.watermark)
