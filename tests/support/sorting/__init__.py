"""An operator that emits record batches out of watermarks and timers, in two files: here its spec and its method.

It gathers record batches and emits their rows in the order of a column. No list names it.
"""

from __future__ import annotations

from typing import Any

from yarrow.datastream.data_stream import DataStream
from yarrow.runtime.graph.operator_spec import OperatorSpec, StreamKind
from yarrow.runtime.graph.transformations import ChainingStrategy


class SortBatches(OperatorSpec, frozen=True, kw_only=True, tag="sort_batches"):
    """Emits gathered rows in the order of `column`, at most `most_rows` a batch.

    With a watermark come the rows whose value, in ms, is not above it. With `wait_ms` come all rows, that long after
    the first of them.
    """

    column: str
    most_rows: int = 1024
    wait_ms: int | None = None


def sorted_by(stream: DataStream, column: str, *, at_head: bool = True, **settings: Any) -> DataStream:
    """Return a columnar stream in the order of a column; `at_head`: the operator heads its chain."""
    environment, read = stream.get_execution_environment(), stream.transformation
    made = environment.graph_builder.one_input(
        read,
        "Sort",
        SortBatches(column=column, **settings),
        output_kind=StreamKind.COLUMNAR,
        output_schema=read.output_schema,
        chaining=ChainingStrategy.HEAD if at_head else ChainingStrategy.ALWAYS,
    )
    return DataStream(environment, made)
