"""print and SinkFunction: ends of a chain without transactions. sink_writing runs a Sink.

Owner: the task thread. `print` writes the lines of a chunk together. A SinkFunction is instead called once for each
record, as users expect.
"""

from __future__ import annotations

from typing import Any

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import method_of
from yarrow.container.operators.base import Emit, OperatorContext
from yarrow.container.operators.bulk_row_operator import BulkRowOperator
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.row_functions import FunctionOperator
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.graph.connector_spec import PrintOperator, SinkFunctionOperator


@runs(PrintOperator)
class PrintingOperator(BulkRowOperator):
    """Prints lines in Flink's form: `identifier:subtask> value`, with the subtask only if there are several."""

    prints_text = True

    def __init__(self, name: str, spec: PrintOperator) -> None:
        super().__init__(name)
        self._identifier = spec.identifier

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        environment = context.environment
        self.write_text = environment.write_output
        several = environment.parallelism > 1
        parts = [p for p in (self._identifier, str(environment.subtask + 1) if several else "") if p]
        self._prefix = ":".join(parts) + "> " if parts else ""
        context.metric_group.register("numRecordsSend", lambda: self.records_in)

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        # The text is made at once: a value that changes later must be printed in its present form.
        text = code.bind("text", self._text)
        code.line(f"{code.bind('append', self._rows.append)}({text}({value}))")

    def _text(self, value: Any) -> str:
        return f"{self._prefix}{value}\n"

    def take_rows(self, rows: list[Any], timestamps: list[int | None] | None) -> None:
        self.write_text("".join(rows))


class RecordSinkContext:
    """The context of a SinkFunction for one record."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.watermark = MIN_TIMESTAMP
        self.element_timestamp: int | None = None

    def current_processing_time(self) -> int:
        """Present processing time, epoch ms."""
        return self._clock.epoch_ms()

    def current_watermark(self) -> int:
        """The present event time."""
        return self.watermark

    def timestamp(self) -> int | None:
        """The event time of the record, or None."""
        return self.element_timestamp


@runs(SinkFunctionOperator)
class SinkFunctionCaller(FunctionOperator):
    """Calls invoke(value, context) once for each record."""

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
