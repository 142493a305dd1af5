"""print, SinkFunction and collect: ends of a chain without transactions. A Sink is in sink_writing.

Owner: the task thread. Rows are collected by the fused loop and handed over in bulk at the end of each chunk, except
to SinkFunction, which is called once a record as users expect.
"""

from __future__ import annotations

import pickle
from collections import deque
from typing import Any

from yarrow.container.operators.base import (
    CollectMessage,
    ColumnarOperator,
    Emit,
    OperatorContext,
    RowOperator,
)
from yarrow.container.operators.row_functions import FunctionOperator
from yarrow.container.operators.user_functions import method_of
from yarrow.container.task.code_writer import CodeWriter
from yarrow.container.task.freezing import generate_fixed
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.data.elements import MIN_TIMESTAMP, ArrowBatch
from yarrow.runtime.graph.operator_spec import (
    CollectOperator,
    PrintOperator,
    SinkFunctionOperator,
)


class BulkRowOperator(RowOperator):
    """Base of ends that take rows in bulk: the loop appends, `take_rows` gets them once a chunk."""

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
        """The rows of one chunk."""
        raise TypeError(f"operator '{self.name}' takes no rows")


class PrintingOperator(BulkRowOperator):
    """Lines in Flink's form: `identifier:subtask> value`, the subtask only where there are several."""

    def __init__(self, name: str, spec: PrintOperator) -> None:
        super().__init__(name)
        self._identifier = spec.identifier

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        environment = context.environment
        several = environment.parallelism > 1
        parts = [p for p in (self._identifier, str(environment.subtask + 1) if several else "") if p]
        self._prefix = ":".join(parts) + "> " if parts else ""

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        # The text is made at once: a value changed later must print as it was.
        text = code.bind("text", self._text)
        code.line(f"{code.bind('append', self._rows.append)}({text}({value}))")

    def _text(self, value: Any) -> str:
        return f"{self._prefix}{value}\n"

    def take_rows(self, rows: list[Any], timestamps: list[int | None] | None) -> None:
        self.context.environment.write_output("".join(rows))


class RecordSinkContext:
    """What a SinkFunction learns about a record."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.watermark = MIN_TIMESTAMP
        self.element_timestamp: int | None = None

    def current_processing_time(self) -> int:
        """The machine's time, ms."""
        return self._clock.epoch_ms()

    def current_watermark(self) -> int:
        """The event time reached."""
        return self.watermark

    def timestamp(self) -> int | None:
        """The event time of the record, or None."""
        return self.element_timestamp


class SinkFunctionCaller(FunctionOperator):
    """invoke(value, context) once a record."""

    def __init__(self, name: str, spec: SinkFunctionOperator) -> None:
        super().__init__(name, spec.function)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._context = RecordSinkContext(context.environment.clock)

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        context = code.bind("ctx", self._context)
        if timestamp is not None:
            code.line(f"{context}.element_timestamp = {timestamp}")
        if hasattr(self.function, "invoke"):
            code.line(f"{code.bind('invoke', self.function.invoke)}({value}, {context})")
        else:
            code.line(f"{code.bind('invoke', method_of(self.function, 'invoke', self.name))}({value})")

    def on_watermark(self, timestamp: int) -> tuple[()]:
        self._context.watermark = timestamp
        return ()

    def finish(self) -> None:
        finisher = getattr(self.function, "finish", None)
        if callable(finisher):
            finisher()


#: Rows and bytes of one message of a collect operator; a single larger row travels alone.
COLLECT_ROWS = 1000
COLLECT_BYTES = 1 << 20


class CollectingOperator(BulkRowOperator, ColumnarOperator):
    """Hands rows to the client, one message under way at a time: the client's answer is the credit for the next."""

    def __init__(self, name: str, spec: CollectOperator) -> None:
        super().__init__(name)
        self._collect_id = spec.collect_id
        self._limit = spec.max_buffered_rows
        self._pending: list[Any] = []
        self._rows_per_message = COLLECT_ROWS
        #: Rest of a payload that is longer than a message.
        self._parts: deque[bytes] = deque()
        self._rows_under_way = 0
        self._sequence = 0
        self._in_flight = False
        self._finishing = False
        self._last_sent = False

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        fixed = generate_fixed(code, value, None, self.context.environment.object_reuse)
        super().generate(code, fixed, timestamp, emit)

    def take_rows(self, rows: list[Any], timestamps: list[int | None] | None) -> None:
        self._pending += rows
        self._send()

    def process_batch(self, batch: ArrowBatch) -> tuple[()]:
        self._pending.append(batch.batch)
        self._send()
        return ()

    def _send(self) -> None:
        if self._in_flight or self._last_sent or not (self._parts or self._pending or self._finishing):
            return
        if not self._parts:
            rows, payload = self._next_message()
            del self._pending[: len(rows)]
            cuts = range(0, max(1, len(payload)), 2 * COLLECT_BYTES)
            self._parts += [payload[cut : cut + 2 * COLLECT_BYTES] for cut in cuts]
            self._rows_under_way = len(rows)
        part = self._parts.popleft()
        continued = bool(self._parts)
        self._last_sent = self._finishing and not self._pending and not continued
        self._in_flight = True
        count = 0 if continued else self._rows_under_way
        message = CollectMessage(self._collect_id, self._sequence, part, count, self._last_sent, continued)
        self.context.environment.push_collected(message)

    def _next_message(self) -> tuple[list[Any], bytes]:
        """The next rows and their pickle; fewer rows where they are large, for messages have a size limit."""
        count = self._rows_per_message
        while True:
            rows = self._pending[:count]
            payload = pickle.dumps(rows, 5)
            if len(payload) <= COLLECT_BYTES or len(rows) <= 1:
                self._rows_per_message = min(COLLECT_ROWS, 2 * count)
                return rows, payload
            count = max(1, count * COLLECT_BYTES // (2 * len(payload)))

    def on_credit(self, sequence: int) -> None:
        """The message of that sequence number was taken."""
        if sequence == self._sequence and self._in_flight:
            self._sequence += 1
            self._in_flight = False
            self._send()

    @property
    def collect_id(self) -> str:
        """Names the client's iterator."""
        return self._collect_id

    @property
    def is_available(self) -> bool:
        return len(self._pending) < self._limit

    def finish(self) -> None:
        self._finishing = True
        self._send()

    @property
    def is_drained(self) -> bool:
        return self._last_sent and not self._in_flight
